//! How fragmented nodes are.

use super::fixture::{LEVELS, Pods, World, node, pods, taint, tas_flavor, world_of};
use crate::fixtures::n;
use crate::spec::TaintEffect;

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
    let shape = |gpus: i64| pods(1).each(&[("cpu", 1), (GPU, gpus)]);
    let all = world.domain_fits(&shape(4), 2);
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
    let racks = |shape: &Pods| {
        let all = world.domain_fits(shape, 9);
        all[1].roomiest.iter().map(|(path, pods)| (path[1].to_string(), *pods)).collect::<Vec<_>>()
    };
    assert_eq!(racks(&shape(4)), [("r1".to_owned(), 3), ("r2".to_owned(), 2)]);
    let none = pods(1).each(&[("example.com/none", 1)]);
    assert_eq!(racks(&none), [("r1".to_owned(), 0), ("r2".to_owned(), 0)]);
    world.tas = world.names.flavor(&n("other"));
    assert!(world.domain_fits(&shape(1), 2).is_empty());
}

/// How many pods of a set fit into the racks r1 and r2, as far as they are named.
fn in_racks(world: &World, set: &Pods) -> Vec<(String, i64)> {
    let racks = world.domain_fits(set, 9).swap_remove(1);
    assert_eq!(racks.pods, racks.roomiest.iter().map(|(_, pods)| pods).sum::<i64>());
    let mut racks: Vec<_> = racks.roomiest.iter().map(|(path, pods)| (path[1].to_string(), *pods)).collect();
    racks.sort();
    racks
}

#[test]
fn what_fits_is_counted_on_nodes_that_the_pods_select_and_whose_taints_they_tolerate() {
    let mut world = gpus([8, 8, 4, 2]);
    let mut away = node("b1", "r1", "a", &[("cpu", 64), (GPU, 8)]);
    away.taints = vec![taint("maintenance", "", TaintEffect::NoSchedule)];
    world.node(&away);
    let set = || pods(4).required("rack").each(&[(GPU, 1)]);
    let racks = |r1: i64, r2: i64| vec![("r1".to_owned(), r1), ("r2".to_owned(), r2)];
    assert_eq!(in_racks(&world, &set()), racks(8, 6));
    assert_eq!(in_racks(&world, &set().selector(&[("rack", "r2")])), racks(0, 6));
    let mut not_ready = node("b1", "r1", "b", &[("cpu", 64), (GPU, 8)]);
    not_ready.usable = false;
    world.node(&not_ready);
    assert_eq!(in_racks(&world, &set()), racks(0, 6));
    assert_eq!(world.domain_fits(&set(), 1)[2].domains, 3, "what is not ready is no domain");
}

#[test]
fn what_fits_is_counted_in_whole_slices() {
    let world = gpus([3, 3, 3, 2]);
    let set = |count: i64| pods(count).each(&[(GPU, 1)]).unconstrained();
    assert_eq!(in_racks(&world, &set(8)), [("r1".to_owned(), 6), ("r2".to_owned(), 5)]);
    let sliced = |size: i64| set(8).slice("rack", size);
    assert_eq!(in_racks(&world, &sliced(4)), [("r1".to_owned(), 4), ("r2".to_owned(), 4)]);
    assert_eq!(in_racks(&world, &sliced(6)), [("r1".to_owned(), 6), ("r2".to_owned(), 0)]);
    assert_eq!(world.domain_fits(&sliced(6), 1)[0].pods, 6);
    assert_eq!(world.domain_fits(&sliced(6), 1)[2].pods, 11, "a node holds parts of slices");
    let layered = set(8).slice("rack", 4).slice(LEVELS[2], 2);
    assert_eq!(in_racks(&world, &layered), [("r1".to_owned(), 4), ("r2".to_owned(), 4)]);
    // Slices of a level that the topology has above that of the pods are none.
    assert_eq!(in_racks(&world, &set(8).required("rack").slice("block", 4)), in_racks(&world, &set(8)));
}

#[test]
fn a_node_that_plain_pods_do_not_tolerate_fits_none() {
    let mut world = gpus([8, 8, 4, 2]);
    let racks = |world: &World| fits(world, &[1])[1].clone();
    let mut tainted = node("b1", "r1", "a", &[("cpu", 64), (GPU, 8)]);
    tainted.taints = vec![taint(GPU, "present", TaintEffect::NoSchedule)];
    world.node(&tainted);
    assert_eq!(racks(&world), "rack: 1 -> 16", "pods tolerate the taint of what they request");
    tainted.taints.push(taint("maintenance", "", TaintEffect::NoSchedule));
    world.node(&tainted);
    assert_eq!(racks(&world), "rack: 1 -> 8");
}
