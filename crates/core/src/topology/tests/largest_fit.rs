//! How fragmented nodes are.

use super::fixture::{LEVELS, World, node, pods, tas_flavor, world_of};
use crate::fixtures::n;

const GPU: &str = "nvidia.com/gpu";

/// Two racks of two nodes with `amounts` GPUs.
fn gpus(amounts: [i64; 4]) -> World {
    let mut world = world_of(&LEVELS);
    let names = [("r1", "a"), ("r1", "b"), ("r2", "c"), ("r2", "d")];
    for ((rack, name), amount) in names.into_iter().zip(amounts) {
        world.node(&node("b1", rack, name, &[("cpu", 64), (GPU, amount)]));
    }
    world
}

/// `level: GPUs of each pod -> pods`, for the sizes given.
fn fits(world: &World, per_pod: &[i64]) -> Vec<String> {
    let (fits, _) = world.topologies.largest_fits(&world.usage, world.tas, &world.names);
    assert!(fits.iter().all(|fit| *fit.resource == *GPU), "nothing but extended resources: {fits:?}");
    let wanted = fits.iter().filter(|fit| per_pod.contains(&fit.per_pod));
    wanted.map(|fit| format!("{}: {} -> {}", fit.level, fit.per_pod, fit.pods)).collect()
}

#[test]
fn every_level_says_how_many_pods_of_each_size_fit_into_its_largest_domain() {
    let world = gpus([8, 8, 8, 4]);
    let host = |per_pod: i64, pods: i64| format!("kubernetes.io/hostname: {per_pod} -> {pods}");
    assert_eq!(
        fits(&world, &[1, 2, 4, 8]),
        [
            // A node takes ten pods.
            "block: 1 -> 28".to_owned(),
            "rack: 1 -> 16".to_owned(),
            host(1, 8),
            "block: 2 -> 14".to_owned(),
            "rack: 2 -> 8".to_owned(),
            host(2, 4),
            "block: 4 -> 7".to_owned(),
            "rack: 4 -> 4".to_owned(),
            host(4, 2),
            "block: 8 -> 3".to_owned(),
            "rack: 8 -> 2".to_owned(),
            host(8, 1),
        ]
    );
}

#[test]
fn the_same_amount_free_in_pieces_fits_fewer_large_pods() {
    let mut world = gpus([8, 8, 8, 8]);
    for name in ["a", "b", "c", "d"] {
        let one = pods(1).each(&[(GPU, 1)]).selector(&[("kubernetes.io/hostname", name)]);
        world.add(&one);
    }
    assert_eq!(
        fits(&world, &[4, 8]),
        [
            "block: 4 -> 4",
            "rack: 4 -> 2",
            "kubernetes.io/hostname: 4 -> 1",
            "block: 8 -> 0",
            "rack: 8 -> 0",
            "kubernetes.io/hostname: 8 -> 0",
        ]
    );
}

#[test]
fn a_size_that_is_no_power_of_two_counts_if_a_node_offers_it_and_sizes_are_few() {
    assert_eq!(fits(&gpus([6, 6, 0, 0]), &[6, 8]).len(), 3);
    let world = gpus([1 << 40, 0, 0, 0]);
    let (all, looked_at) = world.topologies.largest_fits(&world.usage, world.tas, &world.names);
    assert_eq!((all.len(), looked_at), (12 * LEVELS.len(), 4));
}

#[test]
fn what_is_taken_beyond_what_is_there_counts_as_nothing_free() {
    let mut world = gpus([2, 0, 0, 0]);
    let over = world.amounts(&[(GPU.to_owned(), 5)]);
    world.topologies.set_other_usage(&mut world.usage, &n("a"), &over);
    assert!(fits(&world, &[1, 2]).iter().all(|fit| fit.ends_with("-> 0")));
    let other = world.names.flavor(&n("other"));
    world.topologies.set_flavor(&mut world.usage, other, Some(&tas_flavor("other")));
    world.topologies.set_topology(&mut world.usage, &n("default"), None);
    assert!(fits(&world, &[1, 2]).is_empty(), "without its topology a flavor has no domains");
}

#[test]
fn the_roomiest_domains_of_each_level_are_named_with_how_many_pods_fit_there() {
    let mut world = gpus([8, 4, 8, 8]);
    let shape = |gpus: i64| vec![(n("cpu"), 1), (n(GPU), gpus)];
    let all = world.topologies.domain_fits(&world.usage, world.tas, &world.names, &shape(4), 2);
    let shown: Vec<String> = all
        .iter()
        .map(|level| {
            let each = level.roomiest.iter().map(|(path, pods)| format!("{}:{pods}", path.join("/")));
            format!("{} {} {} {}", level.level, level.domains, level.pods, each.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(
        shown,
        ["block 1 7 b1:7", "rack 2 7 b1/r2:4 b1/r1:3", "kubernetes.io/hostname 4 7 b1/r1/a:2 b1/r2/c:2",]
    );
    // What is taken is not free, and pods that ask for what no node offers fit nowhere.
    world.add(&pods(1).each(&[(GPU, 8)]).selector(&[("kubernetes.io/hostname", "c")]));
    let racks = |shape: &[(crate::Name, i64)]| {
        let all = world.topologies.domain_fits(&world.usage, world.tas, &world.names, shape, 9);
        all[1].roomiest.iter().map(|(path, pods)| (path[1].to_string(), *pods)).collect::<Vec<_>>()
    };
    assert_eq!(racks(&shape(4)), [("r1".to_owned(), 3), ("r2".to_owned(), 2)]);
    assert_eq!(racks(&[(n("example.com/none"), 1)]), [("r1".to_owned(), 0), ("r2".to_owned(), 0)]);
    let other = world.names.flavor(&n("other"));
    assert!(world.topologies.domain_fits(&world.usage, other, &world.names, &shape(1), 2).is_empty());
}
