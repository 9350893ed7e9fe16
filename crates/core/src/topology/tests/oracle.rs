//! Placements on small random topologies, compared with trying all domains.

use std::collections::BTreeMap;

use super::fixture::{Pods, World, node, pods, show, world_of};
use super::random::Random;
use crate::topology::request::Placement;
use crate::topology::{HOSTNAME, PlacementFailure};

/// (block, rack, node, cpus).
pub(super) type Host = (String, String, String, i64);

pub(super) fn any_world(random: &mut Random) -> (World, Vec<Host>) {
    let mut world = world_of(&super::fixture::LEVELS);
    let mut hosts = Vec::new();
    for at in 0..2 + random.below(8) {
        let (block, rack) = (format!("b{}", random.below(2)), format!("r{}", random.below(3)));
        let host = (block, rack, format!("n{at}"), random.below(5));
        world.node(&node(&host.0, &host.1, &host.2, &[("cpu", host.3)]));
        hosts.push(host);
    }
    (world, hosts)
}

/// The domain of a level that a node is in.
pub(super) fn domain(host: &Host, level: usize) -> String {
    [host.0.clone(), format!("{}/{}", host.0, host.1), host.2.clone()][level].clone()
}

/// What every domain of a level holds.
fn room(hosts: &[Host], level: usize) -> BTreeMap<String, i64> {
    let mut room = BTreeMap::new();
    for host in hosts {
        *room.entry(domain(host, level)).or_default() += host.3;
    }
    room
}

/// Pods per domain of a level.
pub(super) fn got(hosts: &[Host], placed: &Placement, set: usize, level: usize) -> BTreeMap<String, i64> {
    let mut got = BTreeMap::new();
    for assigned in &placed[set].assignment.domains {
        let host = hosts.iter().find(|host| *host.2 == *assigned.values[0]).expect("only nodes are assigned");
        *got.entry(domain(host, level)).or_default() += assigned.count;
    }
    got
}

/// How few of these hold `count`.
fn fewest(room: impl Iterator<Item = i64>, mut count: i64) -> usize {
    let mut room: Vec<i64> = room.collect();
    room.sort_unstable_by_key(|room| -room);
    let enough = room.iter().take_while(|room| {
        let needed = count > 0;
        count -= **room;
        needed
    });
    enough.count()
}

fn each_world(mut check: impl FnMut(&mut Random, &mut World, &[Host])) {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let (mut world, hosts) = any_world(&mut random);
        check(&mut random, &mut world, &hosts);
    }
}

/// No node gets more than it has, and all pods are somewhere.
fn conserved(hosts: &[Host], placed: &Placement, count: i64) {
    let got = got(hosts, placed, 0, 2);
    assert_eq!(got.values().sum::<i64>(), count);
    assert!(got.iter().all(|(name, count)| hosts.iter().any(|host| host.2 == *name && host.3 >= *count)));
}

const LEVELS: [&str; 3] = super::fixture::LEVELS;

#[test]
fn required_is_in_one_domain_with_least_room_on_the_fewest_nodes() {
    each_world(|random, world, hosts| {
        let (count, level) = (1 + random.below(8), usize::try_from(random.below(3)).expect("small"));
        let placed = world.place(&pods(count).required(LEVELS[level]));
        let room = room(hosts, level);
        let Some(least) = room.values().filter(|room| **room >= count).min() else {
            let most = room.values().max().expect("there are nodes");
            return assert_fails(&placed, *most, count);
        };
        let placed = placed.expect("a domain holds all");
        conserved(hosts, &placed, count);
        let domains = got(hosts, &placed, 0, level);
        assert_eq!(domains.len(), 1);
        let (name, _) = domains.first_key_value().expect("there is one");
        assert_eq!(room[name], *least);
        let inside = hosts.iter().filter(|host| domain(host, level) == *name).map(|host| host.3);
        if level == 1 {
            assert_eq!(placed[0].assignment.domains.len(), fewest(inside, count));
        }
    });
}

fn assert_fails(placed: &Result<Placement, PlacementFailure>, fit: i64, wanted: i64) {
    let start = if fit == 0 { format!("any of {wanted} ") } else { format!("only {fit} out of {wanted} ") };
    assert!(show(placed).contains(&start), "{} but {start}", show(placed));
}

#[test]
fn preferred_is_at_the_lowest_level_that_holds_all_or_in_the_fewest_blocks() {
    each_world(|random, world, hosts| {
        let (count, level) = (1 + random.below(12), usize::try_from(random.below(3)).expect("small"));
        let placed = world.place(&pods(count).preferred(LEVELS[level]));
        let all: i64 = hosts.iter().map(|host| host.3).sum();
        if all < count {
            return assert_fails(&placed, all, count);
        }
        let placed = placed.expect("there is room");
        conserved(hosts, &placed, count);
        let holds = |level: &usize| room(hosts, *level).values().any(|room| *room >= count);
        if let Some(level) = (0..=level).rev().find(holds) {
            assert_eq!(got(hosts, &placed, 0, level).len(), 1);
        } else {
            let blocks = fewest(room(hosts, 0).into_values(), count);
            assert_eq!(got(hosts, &placed, 0, 0).len(), blocks);
        }
    });
}

#[test]
fn unconstrained_is_on_the_smallest_node_that_holds_all_or_wherever_there_is_room() {
    each_world(|random, world, hosts| {
        let count = 1 + random.below(12);
        let placed = world.place(&pods(count));
        let all: i64 = hosts.iter().map(|host| host.3).sum();
        if all < count {
            return assert_fails(&placed, all, count);
        }
        let placed = placed.expect("there is room");
        conserved(hosts, &placed, count);
        if let Some(least) = hosts.iter().map(|host| host.3).filter(|cpus| *cpus >= count).min() {
            let name = &placed[0].assignment.domains[0].values[0];
            assert!(hosts.iter().any(|host| *host.2 == **name && host.3 == least));
        }
    });
}

#[test]
fn slices_are_whole_wherever_they_are() {
    each_world(|random, world, hosts| {
        let (size, level) = (1 + random.below(3), usize::try_from(1 + random.below(2)).expect("small"));
        // The last slice has the pods that do not fill it; the only one needs no more room than its pods.
        let count = 1 + random.below(4 * size);
        let wanted = (count + size - 1) / size;
        let sliced = |set: Pods| set.slice(LEVELS[level], size);
        let size = size.min(count);
        let whole = |inside: &str| -> i64 {
            let of = |(name, _): &(&String, &i64)| {
                hosts.iter().any(|host| domain(host, level) == **name && host.0 == inside)
            };
            room(hosts, level).iter().filter(of).map(|(_, room)| room / size).sum()
        };
        let most = ["b0", "b1"].map(whole);
        let required = world.place(&sliced(pods(count).required("block")));
        assert_eq!(required.is_ok(), most.iter().any(|slices| *slices >= wanted));
        let anywhere = world.place(&sliced(pods(count).preferred("block")));
        assert_eq!(anywhere.is_ok(), most.iter().sum::<i64>() >= wanted);
        let alone = world.place(&sliced(pods(count)));
        assert_eq!(alone.is_ok(), anywhere.is_ok());
        for placed in [required, anywhere, alone].into_iter().flatten() {
            conserved(hosts, &placed, count);
            let short = got(hosts, &placed, 0, level).into_values().filter(|pods| pods % size != 0);
            assert_eq!(short.map(|pods| pods % size).sum::<i64>(), count % size);
        }
    });
}

#[test]
fn layers_of_slices_are_whole_on_each_level() {
    each_world(|random, world, hosts| {
        let count = 4 * (1 + random.below(3));
        let set = pods(count).required("block").slice("rack", 4).slice(HOSTNAME, 2);
        let mut racks: BTreeMap<String, i64> = BTreeMap::new();
        for host in hosts {
            *racks.entry(domain(host, 1)).or_default() += host.3 / 2 * 2;
        }
        let mut blocks: BTreeMap<&str, i64> = BTreeMap::new();
        for (rack, pods) in &racks {
            *blocks.entry(&rack[..2]).or_default() += pods / 4 * 4;
        }
        let placed = world.place(&set);
        assert_eq!(placed.is_ok(), blocks.values().any(|room| *room >= count));
        if let Ok(placed) = placed {
            conserved(hosts, &placed, count);
            assert!(got(hosts, &placed, 0, 1).values().all(|pods| pods % 4 == 0));
            assert!(got(hosts, &placed, 0, 2).values().all(|pods| pods % 2 == 0));
        }
    });
}

#[test]
fn a_leader_and_its_workers_fit_together() {
    each_world(|random, world, hosts| {
        let (count, cpus) = (1 + random.below(6), 1 + random.below(3));
        let level = usize::try_from(random.below(3)).expect("small");
        let group = [pods(count).required(LEVELS[level]), pods(1).each(&[("cpu", cpus)])];
        let fits = |name: &String| {
            let inside: Vec<i64> =
                hosts.iter().filter(|host| domain(host, level) == *name).map(|host| host.3).collect();
            inside.iter().any(|host| *host >= cpus) && inside.iter().sum::<i64>() - cpus >= count
        };
        let placed = world.place_with(&group, false, &[], &[]);
        assert_eq!(placed.is_ok(), room(hosts, level).keys().any(fits), "{}", show(&placed));
        let Ok(placed) = placed else { return };
        let (workers, leaders) = (got(hosts, &placed, 0, 2), got(hosts, &placed, 1, 2));
        assert_eq!((workers.values().sum::<i64>(), leaders.values().sum::<i64>()), (count, 1));
        for host in hosts {
            let of = |got: &BTreeMap<String, i64>| got.get(&host.2).copied().unwrap_or(0);
            assert!(of(&workers) + of(&leaders) * cpus <= host.3);
        }
    });
}

#[test]
fn balanced_placement_finds_room_where_best_fit_does() {
    each_world(|random, world, _| {
        let count = 1 + random.below(12);
        let group = [pods(count).preferred("rack"), pods(1)];
        let sets = if random.one_in(2) { &group[..] } else { &group[..1] };
        let plain = world.place_with(sets, false, &[], &[]);
        world.config.gates.tas_balanced_placement = true;
        let balanced = world.place_with(sets, false, &[], &[]);
        assert_eq!(balanced.is_ok(), plain.is_ok());
        if let Ok(balanced) = balanced {
            assert_eq!(balanced[0].assignment.domains.iter().map(|one| one.count).sum::<i64>(), count);
            let together: Vec<_> = balanced.iter().map(|one| one.pods.clone()).collect();
            assert!(world.usage.fits(&together), "{}", show(&Ok(balanced)));
        }
    });
}
