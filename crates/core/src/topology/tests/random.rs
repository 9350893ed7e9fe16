//! Random events: the incremental state equals that of a new start, and no pod is placed where it does not fit.

use super::fixture::{LEVELS, Pods, World, node, pods, show, taint, world_of};
use crate::Name;
use crate::spec::TaintEffect;
use crate::topology::places::PlaceKey;
use crate::topology::{HOSTNAME, NodeSpec, PlacedPods};

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

/// What a run holds, to start again from it.
#[derive(Default)]
struct Kept {
    nodes: Vec<NodeSpec>,
    other: Vec<(String, i64)>,
    used: Vec<PlacedPods>,
}

fn step(random: &mut Random, world: &mut World, kept: &mut Kept) {
    match random.below(7) {
        6 if !kept.nodes.is_empty() => {
            let at = usize::try_from(random.below(1_000)).expect("small") % kept.nodes.len();
            let node = &mut kept.nodes[at];
            node.usable = !node.usable;
            if random.one_in(2) {
                world.turn(&node.name, node.usable);
            } else {
                world.node(node);
            }
        }
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

/// Whether the flavor counts what a node has.
fn offers(node: &NodeSpec) -> bool {
    node.usable && node.labels.iter().any(|(key, _)| **key == *"pool")
}

/// The domain of a node.
fn path_of(node: &NodeSpec, levels: &[&str]) -> Vec<Name> {
    let value =
        |level: &&str| node.labels.iter().find(|(key, _)| **key == **level).map(|(_, value)| value.clone());
    levels.iter().filter_map(value).collect()
}

/// A leader with its workers.
fn any_pair(random: &mut Random) -> [Pods; 2] {
    [any_request(random).with(|spec| spec.count += 1), pods(1).each(&[("gpu", 1)])]
}

/// What fits where, for all shapes.
fn fits(world: &World) -> String {
    let (topologies, usage, names) = (&world.topologies, &world.usage, &world.names);
    let domains = world.domain_fits(&pods(1), 3);
    format!("{domains:?} {:?}", topologies.largest_fits(usage, world.tas, names))
}

/// The same state, built from nothing. Places have other ids there, so that usage is taken over as usage by other pods.
fn rebuilt(world: &World, kept: &Kept, levels: &[&str]) -> World {
    let mut fresh = world_of(levels);
    for node in &kept.nodes {
        fresh.node(node);
    }
    let mut amounts: std::collections::BTreeMap<String, i64> = kept.other.iter().cloned().collect();
    for (place, count) in kept.used.iter().flat_map(|pods| &pods.places) {
        let key = world.topologies.places.iter().find(|(id, _)| id == place).map(|(_, key)| key.clone());
        let node = match key {
            Some(PlaceKey::Host(name)) => Some(name.to_string()),
            // Any node of it, as what is used of a domain is a sum. One without nodes has nothing to give.
            Some(PlaceKey::Domain(_, path)) => {
                let is_there = |node: &&NodeSpec| offers(node) && path_of(node, levels) == path[..];
                kept.nodes.iter().find(is_there).map(|node| node.name.to_string())
            }
            _ => None,
        };
        if let Some(node) = node {
            *amounts.entry(node).or_default() += count;
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
            // What happens between two placements is laid out at once.
            for _ in 0..=random.below(4) {
                step(&mut random, &mut world, &mut kept);
            }
            let mut fresh = rebuilt(&world, &kept, &LEVELS);
            for gates in [&mut world.config.gates, &mut fresh.config.gates] {
                (gates.tas_profile_mixed, gates.tas_balanced_placement) = (seed % 2 == 0, seed % 3 == 0);
            }
            let (set, pair) = (any_request(&mut random), any_pair(&mut random));
            assert_eq!(world.put(&set), fresh.put(&set), "seed {seed}");
            let both = [&mut world, &mut fresh].map(|world| show(&world.place_with(&pair, false, &[], &[])));
            assert_eq!(both[0], both[1], "seed {seed}");
            assert_eq!(fits(&world), fits(&fresh), "seed {seed}");
        }
    }
}

/// Pods come, go and are placed under a mark, with marks in it; then it is taken back, and everything is as it was.
fn try_and_roll_back(random: &mut Random, world: &mut World, kept: &Kept, depth: u32) {
    let before = format!("{:?}", world.usage.ledger);
    let asked = any_request(random);
    let answer = world.put(&asked);
    let mark = world.usage.mark();
    for _ in 0..random.below(6) {
        let one = usize::try_from(random.below(1_000)).expect("small") % kept.used.len().max(1);
        match (random.below(4), kept.used.get(one)) {
            (0, Some(used)) => world.usage.remove(used),
            (1, Some(used)) => world.usage.add(used),
            (2, _) if depth > 0 => try_and_roll_back(random, world, kept, depth - 1),
            _ => {
                if let Ok(placed) = world.place(&any_request(random)) {
                    world.usage.add(&placed[0].pods);
                }
            }
        }
    }
    world.usage.rollback(&mark);
    world.check();
    assert_eq!(format!("{:?}", world.usage.ledger), before);
    assert_eq!(world.put(&asked), answer);
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
        try_and_roll_back(&mut random, &mut world, &kept, 3);
    }
}

#[test]
fn random_events_where_domains_are_racks() {
    let levels = ["block", "rack"];
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut world = world_of(&levels);
        let mut kept = Kept::default();
        for _ in 0..40 {
            for _ in 0..=random.below(4) {
                step(&mut random, &mut world, &mut kept);
            }
            let mut fresh = rebuilt(&world, &kept, &levels);
            let set = pods(1 + random.below(6)).preferred("rack");
            assert_eq!(world.put(&set), fresh.put(&set), "seed {seed}");
        }
    }
}
