//! Random events: what is kept up to date is what a new start gives, and no pod is placed where it does not fit.

use super::fixture::{LEVELS, Pods, World, node, pods, show, taint, world_of};
use crate::fixtures::n;
use crate::spec::TaintEffect;
use crate::topology::{HOSTNAME, NodeSpec, PlacedPods, TopologySpec};

/// Numbers that look random and are the same in every run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1))
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i64::try_from(self.0 >> 33).expect("31 bits fit") % limit
    }

    pub(super) fn one_in(&mut self, of: i64) -> bool {
        self.below(of) == 0
    }
}

/// A request of any kind.
pub(super) fn any_request(random: &mut Random) -> Pods {
    let size = 1 + random.below(3);
    let set = pods(size * (1 + random.below(5)));
    let level = usize::try_from(random.below(3)).expect("small");
    let set = match random.below(4) {
        0 => set.required(LEVELS[level]),
        1 => set.preferred(LEVELS[level]),
        _ => set.unconstrained(),
    };
    match random.below(4) {
        0 => set.slice(HOSTNAME, size),
        1 if level < 2 => set.slice("rack", size * 2).with(|spec| spec.count *= 2).slice(HOSTNAME, size),
        _ => set,
    }
}

fn any_node(random: &mut Random) -> NodeSpec {
    let name = format!("n{}", random.below(8));
    let (block, rack) = (format!("b{}", random.below(2)), format!("r{}", random.below(2)));
    let mut node = node(&block, &rack, &name, &[("cpu", random.below(5)), ("gpu", random.below(3))]);
    node.usable = !random.one_in(5);
    if random.one_in(5) {
        node.taints.push(taint("t", "", TaintEffect::NoSchedule));
    }
    if random.one_in(6) {
        node.labels.retain(|(key, _)| **key != *"pool");
    }
    node
}

/// What a run holds, to start anew from it.
#[derive(Default)]
struct Kept {
    nodes: Vec<NodeSpec>,
    other: Vec<(String, i64)>,
    used: Vec<PlacedPods>,
}

fn step(random: &mut Random, world: &mut World, kept: &mut Kept) {
    match random.below(6) {
        0 | 1 => {
            let node = any_node(random);
            world.node(&node);
            kept.nodes.retain(|other| other.name != node.name);
            kept.nodes.push(node);
        }
        2 if !kept.nodes.is_empty() => {
            world.topologies.remove_node(&mut world.usage, &kept.nodes.swap_remove(0).name);
        }
        3 => {
            let (name, cpu) = (format!("n{}", random.below(8)), random.below(3));
            world.other(&name, cpu, cpu);
            kept.other.retain(|(other, _)| *other != name);
            kept.other.push((name, cpu));
        }
        4 if !kept.used.is_empty() => world.usage.remove(&kept.used.swap_remove(0)),
        _ => {
            let set = any_request(random);
            if let Ok(placed) = world.place(&set) {
                assert_eq!(placed[0].pods.places.iter().map(|(_, count)| count).sum::<i64>(), set.spec.count);
                assert!(world.usage.fits(std::slice::from_ref(&placed[0].pods)), "{}", show(&Ok(placed)));
                world.usage.add(&placed[0].pods);
                kept.used.push(placed[0].pods.clone());
            }
        }
    }
    world.check();
}

/// The same state, built from nothing. Places have other ids there, so that usage is taken over as usage by other pods.
fn anew(world: &World, kept: &Kept, levels: &[&str]) -> World {
    let mut fresh = world_of(levels);
    for node in &kept.nodes {
        fresh.node(node);
    }
    let mut amounts: std::collections::BTreeMap<String, i64> = kept.other.iter().cloned().collect();
    for (place, count) in kept.used.iter().flat_map(|pods| &pods.places) {
        let key = world.topologies.places.iter().find(|(id, _)| id == place).map(|(_, key)| key.clone());
        if let Some(crate::topology::places::PlaceKey::Host(name)) = key {
            *amounts.entry(name.to_string()).or_default() += count;
        }
    }
    for (name, cpu) in amounts {
        fresh.other(&name, cpu, cpu);
    }
    fresh
}

#[test]
fn random_events_leave_what_a_new_start_gives() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut world = world_of(&LEVELS);
        let mut kept = Kept::default();
        for _ in 0..40 {
            step(&mut random, &mut world, &mut kept);
            let mut fresh = anew(&world, &kept, &LEVELS);
            let set = any_request(&mut random);
            assert_eq!(world.put(&set), fresh.put(&set), "seed {seed}");
        }
    }
}

#[test]
fn rollback_restores_everything() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut world = world_of(&LEVELS);
        let mut kept = Kept::default();
        for _ in 0..30 {
            step(&mut random, &mut world, &mut kept);
        }
        let before = format!("{:?}", world.topologies);
        let mark = world.usage.mark();
        for used in &kept.used {
            if random.one_in(2) {
                world.usage.remove(used);
            }
        }
        for used in &kept.used {
            world.usage.add(used);
        }
        world.usage.rollback(&mark);
        assert_eq!(format!("{:?}", world.topologies), before, "seed {seed}");
    }
}

#[test]
fn random_events_where_domains_are_racks() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut world = world_of(&LEVELS);
        let spec = TopologySpec { name: n("default"), levels: vec![n("block"), n("rack")] };
        world.topologies.set_topology(&mut world.usage, &n("default"), Some(&spec));
        let mut nodes: Vec<NodeSpec> = Vec::new();
        for _ in 0..30 {
            let node = any_node(&mut random);
            world.node(&node);
            nodes.retain(|other| other.name != node.name);
            nodes.push(node);
            world.other(&format!("n{}", random.below(8)), random.below(3), 1);
            if random.one_in(3) {
                world.topologies.remove_node(&mut world.usage, &nodes.swap_remove(0).name);
            }
            let set = pods(1 + random.below(6)).preferred("rack");
            if let Ok(placed) = world.place(&set) {
                assert!(world.usage.fits(std::slice::from_ref(&placed[0].pods)));
            }
        }
    }
}
