//! Placements on every small topology, compared with all possible placements.

use std::collections::BTreeMap;

use super::fixture::{LEVELS, Pods, World, node, pods, show, world_of};
use crate::topology::HOSTNAME;
use crate::topology::request::Placement;

/// The most cpus of a node.
const MOST_CPUS: i64 = 2;
const NODES: usize = 8;
/// How many nodes the domains of each level have; the domain of a node is its number divided by that.
const WIDTHS: [usize; 3] = [4, 2, 1];

/// Two blocks of two racks of two nodes each, with all numbers of cpus; the nodes of a rack are in order, since their names do not matter.
fn each_world(mut check: impl FnMut(&mut World, &Small)) {
    let mut racks = Vec::new();
    for first in 0..=MOST_CPUS {
        racks.extend((0..=first).map(|second| [first, second]));
    }
    let number = racks.len();
    for at in 0..number.pow(4) {
        let mut cpus = [0; NODES];
        for (place, rack) in (0..4).zip(cpus.chunks_exact_mut(2)) {
            rack.copy_from_slice(&racks[at / number.pow(place) % number]);
        }
        let mut world = world_of(&LEVELS);
        for (at, cpus) in cpus.into_iter().enumerate() {
            let (block, rack, name) =
                (format!("b{}", at / WIDTHS[0]), format!("r{}", at / WIDTHS[1]), name(at));
            world.node(&node(&block, &rack, &name, &[("cpu", cpus)]));
        }
        check(&mut world, &Small::of(cpus));
    }
}

fn name(node: usize) -> String {
    format!("n{node}")
}

/// Pods with one cpu each on each node.
type OnNodes = [i64; NODES];

/// The domains of a level that a placement uses, one bit each.
fn used(placement: &OnNodes, level: usize) -> u8 {
    let nodes = placement.iter().enumerate().filter(|(_, pods)| **pods > 0);
    nodes.fold(0, |used, (node, _)| used | 1 << (node / WIDTHS[level]))
}

/// The domain of a level in which all pods are, if it is one.
fn only(placement: &OnNodes, level: usize) -> Option<usize> {
    let used = used(placement, level);
    used.is_power_of_two().then(|| used.trailing_zeros() as usize)
}

/// Pods per domain of a level.
fn got(placed: &Placement, level: usize) -> BTreeMap<usize, i64> {
    let mut got = BTreeMap::new();
    for assigned in &placed[0].assignment.domains {
        let node = (0..NODES).find(|node| *name(*node) == *assigned.values[0]);
        *got.entry(node.expect("only nodes are assigned") / WIDTHS[level]).or_default() += assigned.count;
    }
    got
}

/// A small world and all placements of pods with one cpu each.
struct Small {
    cpus: OnNodes,
    /// By number of pods.
    all: Vec<Vec<OnNodes>>,
}

impl Small {
    fn of(cpus: OnNodes) -> Self {
        let room: i64 = cpus.iter().sum();
        let mut all = vec![Vec::new(); usize::try_from(room).expect("small") + 1];
        let mut pods = [0; NODES];
        loop {
            all[usize::try_from(pods.iter().sum::<i64>()).expect("small")].push(pods);
            let Some(next) = (0..NODES).find(|&at| pods[at] < cpus[at]) else { break };
            pods[..next].fill(0);
            pods[next] += 1;
        }
        Self { cpus, all }
    }

    /// All placements of `count` pods.
    fn placements(&self, count: i64) -> impl Iterator<Item = &OnNodes> {
        usize::try_from(count).ok().and_then(|count| self.all.get(count)).into_iter().flatten()
    }

    /// What is left free of a domain once all pods are in it.
    fn leftover(&self, domain: usize, level: usize, count: i64) -> i64 {
        self.cpus[domain * WIDTHS[level]..][..WIDTHS[level]].iter().sum::<i64>() - count
    }

    /// The least that any placement in one domain of a level leaves of it; none if there is no such placement.
    fn least_leftover(&self, level: usize, count: i64) -> Option<i64> {
        let domains = self.placements(count).filter_map(|placement| only(placement, level));
        domains.map(|domain| self.leftover(domain, level, count)).min()
    }

    /// The fewest domains of a level that a placement uses which is in this domain of the level above.
    fn fewest(&self, level: usize, count: i64, above: Option<usize>) -> Option<usize> {
        let inside = |placement: &&OnNodes| match (above, level.checked_sub(1)) {
            (Some(domain), Some(level)) => only(placement, level) == Some(domain),
            _ => true,
        };
        let used = |placement| used(placement, level).count_ones() as usize;
        self.placements(count).filter(inside).map(used).min()
    }

    /// Pods are in the best domain of a level, and in the fewest of those right below.
    fn is_best_at(&self, placed: &Placement, level: usize, count: i64, least: i64) {
        let inside = got(placed, level);
        assert_eq!(inside.len(), 1, "in one domain of level {level}");
        let (&domain, _) = inside.first_key_value().expect("there is one");
        assert_eq!(self.leftover(domain, level, count), least, "least is left of it");
        if level + 1 < LEVELS.len() {
            let below = got(placed, level + 1).len();
            assert_eq!(Some(below), self.fewest(level + 1, count, Some(domain)), "in the fewest below it");
        }
    }

    fn room(&self) -> i64 {
        self.cpus.iter().sum()
    }
}

#[test]
fn required_is_the_best_of_all_placements_in_one_domain() {
    each_world(|world, small| {
        for count in 1..=small.room() + 1 {
            for (level, label) in LEVELS.iter().enumerate() {
                let placed = world.place(&pods(count).required(label));
                match small.least_leftover(level, count) {
                    Some(least) => small.is_best_at(&placed.expect("one holds all"), level, count, least),
                    None => assert!(placed.is_err(), "{}", show(&placed)),
                }
            }
        }
    });
}

#[test]
fn preferred_is_the_best_of_all_placements_at_the_best_level() {
    each_world(|world, small| {
        for count in 1..=small.room() + 1 {
            for (level, label) in LEVELS.iter().enumerate() {
                let placed = world.place(&pods(count).preferred(label));
                let at = |level: usize| Some((level, small.least_leftover(level, count)?));
                if let Some((best, least)) = (0..=level).rev().find_map(at) {
                    small.is_best_at(&placed.expect("one holds all"), best, count, least);
                } else if let Some(fewest) = small.fewest(0, count, None) {
                    let placed = placed.expect("all together hold them");
                    assert_eq!(got(&placed, 0).len(), fewest);
                } else {
                    assert!(placed.is_err(), "{}", show(&placed));
                }
            }
        }
    });
}

#[test]
fn slices_are_placed_where_any_placement_keeps_them_whole() {
    const SIZE: i64 = 2;
    each_world(|world, small| {
        for count in (SIZE..=small.room()).step_by(2) {
            for (slice_level, label) in [(1, "rack"), (2, HOSTNAME)] {
                let whole = |placement: &&OnNodes| {
                    let mut domains = placement.chunks_exact(WIDTHS[slice_level]);
                    domains.all(|nodes| nodes.iter().sum::<i64>() % SIZE == 0)
                };
                let sliced = |set: Pods| set.slice(label, SIZE);
                let in_a_block = |placement: &OnNodes| only(placement, 0).is_some();
                let required = world.place(&sliced(pods(count).required("block")));
                let one = small.placements(count).filter(whole).any(in_a_block);
                assert_eq!(required.is_ok(), one, "{}", show(&required));
                let anywhere = world.place(&sliced(pods(count).preferred("block")));
                assert_eq!(anywhere.is_ok(), small.placements(count).any(|one| whole(&one)));
                for placed in [required, anywhere].into_iter().flatten() {
                    let got = got(&placed, slice_level);
                    assert!(got.values().all(|pods| pods % SIZE == 0));
                }
            }
        }
    });
}
