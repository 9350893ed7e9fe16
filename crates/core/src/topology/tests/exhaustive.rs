//! Placements on every small topology against all placements that there are.

use super::fixture::{LEVELS, Pods, World, node, pods, show, world_of};
use super::oracle::{Host, domain, got};
use crate::topology::HOSTNAME;
use crate::topology::request::Placement;

/// So many cpus a node has at most.
const MOST_CPUS: i64 = 2;

/// Two blocks of two racks of two nodes each, with all numbers of cpus; the nodes of a rack are in order, since their names do not matter.
fn each_world(mut check: impl FnMut(&mut World, &Small)) {
    let mut racks = Vec::new();
    for first in 0..=MOST_CPUS {
        racks.extend((0..=first).map(|second| [first, second]));
    }
    let number = racks.len();
    for at in 0..number.pow(4) {
        let rack = |place: u32| racks[at / number.pow(place) % number];
        let cpus: Vec<i64> = (0..4).flat_map(rack).collect();
        let (mut world, mut hosts) = (world_of(&LEVELS), Vec::new());
        for (at, cpus) in cpus.into_iter().enumerate() {
            let host: Host = (format!("b{}", at / 4), format!("r{}", at / 2), format!("n{at}"), cpus);
            world.node(&node(&host.0, &host.1, &host.2, &[("cpu", cpus)]));
            hosts.push(host);
        }
        check(&mut world, &Small::of(hosts));
    }
}

/// A small world and all placements of pods with one cpu each.
struct Small {
    hosts: Vec<Host>,
    /// By number of pods: how many each node gets.
    all: Vec<Vec<Vec<i64>>>,
}

impl Small {
    fn of(hosts: Vec<Host>) -> Self {
        let room: i64 = hosts.iter().map(|host| host.3).sum();
        let mut all = vec![Vec::new(); usize::try_from(room).expect("small") + 1];
        let mut pods = vec![0; hosts.len()];
        loop {
            all[usize::try_from(pods.iter().sum::<i64>()).expect("small")].push(pods.clone());
            let Some(next) = (0..hosts.len()).find(|&at| pods[at] < hosts[at].3) else { break };
            pods[..next].fill(0);
            pods[next] += 1;
        }
        Self { hosts, all }
    }

    /// All placements of so many pods.
    fn placements(&self, count: i64) -> impl Iterator<Item = &Vec<i64>> {
        usize::try_from(count).ok().and_then(|count| self.all.get(count)).into_iter().flatten()
    }

    /// The domains of a level that a placement uses.
    fn used(&self, placement: &[i64], level: usize) -> Vec<String> {
        let used = self.hosts.iter().zip(placement).filter(|(_, pods)| **pods > 0);
        let mut used: Vec<String> = used.map(|(host, _)| domain(host, level)).collect();
        used.dedup();
        used
    }

    /// The domain of a level in which all pods are, if it is one.
    fn only(&self, placement: &[i64], level: usize) -> Option<String> {
        let mut used = self.used(placement, level);
        used.pop().filter(|_| used.is_empty())
    }

    /// What is left free of a domain once all pods are in it.
    fn leftover(&self, name: &str, level: usize, count: i64) -> i64 {
        let inside = self.hosts.iter().filter(|host| domain(host, level) == *name);
        inside.map(|host| host.3).sum::<i64>() - count
    }

    /// The least that any placement in one domain of a level leaves of it; none if there is no such placement.
    fn least_leftover(&self, level: usize, count: i64) -> Option<i64> {
        let domains = self.placements(count).filter_map(|placement| self.only(placement, level));
        domains.map(|name| self.leftover(&name, level, count)).min()
    }

    /// The fewest domains of a level that a placement uses which is in these domains of the level above.
    fn fewest(&self, level: usize, count: i64, above: Option<&str>) -> Option<usize> {
        let inside = |placement: &&Vec<i64>| match (above, level.checked_sub(1)) {
            (Some(name), Some(level)) => self.only(placement, level).as_deref() == Some(name),
            _ => true,
        };
        self.placements(count).filter(inside).map(|placement| self.used(placement, level).len()).min()
    }

    /// Pods are in the best domain of a level, and in the fewest of those right below.
    fn is_best_at(&self, placed: &Placement, level: usize, count: i64, least: i64) {
        let inside = got(&self.hosts, placed, 0, level);
        assert_eq!(inside.len(), 1, "in one domain of level {level}");
        let (name, _) = inside.first_key_value().expect("there is one");
        assert_eq!(self.leftover(name, level, count), least, "least is left of it");
        if level + 1 < LEVELS.len() {
            let below = got(&self.hosts, placed, 0, level + 1).len();
            assert_eq!(Some(below), self.fewest(level + 1, count, Some(name)), "in the fewest below it");
        }
    }

    fn room(&self) -> i64 {
        self.hosts.iter().map(|host| host.3).sum()
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
                    assert_eq!(got(&small.hosts, &placed, 0, 0).len(), fewest);
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
                let whole = |placement: &&Vec<i64>| {
                    let (mut pods, mut before) = (0, None);
                    let mut whole = true;
                    for (host, on) in small.hosts.iter().zip(*placement) {
                        let name = Some(domain(host, slice_level));
                        whole &= name == before || pods % SIZE == 0;
                        pods = if name == before { pods + on } else { *on };
                        before = name;
                    }
                    whole && pods % SIZE == 0
                };
                let sliced = |set: Pods| set.slice(label, SIZE);
                let in_a_block = |placement: &Vec<i64>| small.only(placement, 0).is_some();
                let required = world.place(&sliced(pods(count).required("block")));
                let one = small.placements(count).filter(whole).any(in_a_block);
                assert_eq!(required.is_ok(), one, "{}", show(&required));
                let anywhere = world.place(&sliced(pods(count).preferred("block")));
                assert_eq!(anywhere.is_ok(), small.placements(count).any(|one| whole(&one)));
                for placed in [required, anywhere].into_iter().flatten() {
                    let got = got(&small.hosts, &placed, 0, slice_level);
                    assert!(got.values().all(|pods| pods % SIZE == 0));
                }
            }
        }
    });
}
