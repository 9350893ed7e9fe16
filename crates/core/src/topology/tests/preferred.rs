//! docs/reference/06-algorithm.md 6.12 "Phase 2", the affinity score: preferred node affinity (gate TASRespectNodeAffinityPreferred).

use super::fixture::{LEVELS, Pods, World, node, pods, show, taint, world};
use super::random::Random;
use crate::spec::TaintEffect;

/// A world with the gate.
fn respecting(nodes: &[(&str, &str, &str, i64)]) -> World {
    let mut world = world(nodes);
    world.config.gates.tas_respect_node_affinity_preferred = true;
    world
}

/// Two racks of two nodes.
const RACKS: [(&str, &str, &str, i64); 4] =
    [("b1", "r1", "a", 2), ("b1", "r1", "b", 4), ("b1", "r2", "c", 4), ("b1", "r2", "d", 8)];

fn host(set: Pods, weights: &[(&str, i32)]) -> Pods {
    set.prefers(LEVELS[2], weights)
}

#[test]
fn the_node_that_is_worth_most_comes_before_the_tightest() {
    let set = || host(pods(2), &[("d", 1)]);
    assert_eq!(respecting(&RACKS).put(&set()), "d=2");
    assert_eq!(world(&RACKS).put(&set()), "a=2", "without the gate");
    let several = host(pods(2), &[("d", 3), ("b", 2), ("b", 2)]);
    assert_eq!(respecting(&RACKS).put(&several), "b=2", "weights add up");
}

#[test]
fn of_nodes_that_are_worth_the_same_the_tightest_is_taken() {
    assert_eq!(respecting(&RACKS).put(&host(pods(3), &[("c", 1), ("d", 1)])), "c=3");
    assert_eq!(respecting(&RACKS).put(&host(pods(5), &[("c", 1), ("d", 1)])), "d=5");
}

#[test]
fn a_domain_is_worth_what_its_nodes_are_together_whatever_is_free() {
    let set = || host(pods(2).required("rack"), &[("a", 1), ("b", 1), ("c", 1)]);
    assert_eq!(respecting(&RACKS).put(&set()), "a=2", "r1 has two");
    let mut full = respecting(&RACKS);
    full.other("a", 2, 0);
    assert_eq!(full.put(&set()), "b=2");
}

#[test]
fn nodes_that_are_kept_out_are_worth_nothing() {
    let set = || host(pods(2).required("rack"), &[("a", 1), ("b", 1), ("c", 1)]);
    let mut tainted = respecting(&RACKS);
    for name in ["a", "b"] {
        let mut one = node("b1", "r1", name, &[("cpu", 4)]);
        one.taints = vec![taint("k", "v", TaintEffect::NoSchedule)];
        tainted.node(&one);
    }
    assert_eq!(tainted.put(&set()), "c=2");
}

#[test]
fn required_pods_go_to_the_best_domain_that_holds_them_and_preferred_pods_one_level_up() {
    let weights = &[("a", 1), ("b", 1)];
    assert_eq!(respecting(&RACKS).put(&host(pods(8).required("rack"), weights)), "d=8");
    // The rack that is worth most does not hold them, so that the block does.
    assert_eq!(respecting(&RACKS).put(&host(pods(8).preferred("rack"), weights)), "a=2 b=4 c=2");
    let text = "topology \"default\" allows to fit only 6 out of 13 pod(s)";
    assert_eq!(respecting(&RACKS).put(&host(pods(13).required("rack"), weights)), text);
}

#[test]
fn pods_that_spread_begin_with_what_is_worth_most() {
    let put = |count: i64| {
        let mut world = respecting(&RACKS);
        world.config.gates.tas_profile_mixed = false;
        world.put(&host(pods(count), &[("a", 2), ("b", 1)]))
    };
    assert_eq!(put(2), "a=2");
    assert_eq!(put(5), "a=2 b=3");
    assert_eq!(put(9), "a=2 b=4 c=3");
}

#[test]
fn the_smallest_first_comes_after_what_is_worth_most() {
    let mut world = respecting(&RACKS);
    world.config.gates.tas_profile_mixed = true;
    assert_eq!(world.put(&host(pods(1), &[("d", 1)])), "d=1");
    assert_eq!(world.put(&host(pods(8), &[("c", 1)])), "d=8", "one that holds all, whatever it is worth");
}

#[test]
fn a_leader_goes_where_it_is_worth_most() {
    let group = |weights: &[(&str, i32)]| [host(pods(2).required("rack"), weights), pods(1)];
    let mut world = respecting(&RACKS);
    assert_eq!(show(&world.place_with(&group(&[]), false, &[], &[])), "b=2 | b=1");
    assert_eq!(show(&world.place_with(&group(&[("d", 1)]), false, &[], &[])), "d=2 | d=1");
}

#[test]
fn replacements_prefer_nodes_too() {
    let mut world =
        respecting(&[("b", "r", "a", 2), ("b", "r", "b", 2), ("b", "r", "c", 2), ("b", "r", "d", 2)]);
    let set = host(pods(4).required("rack"), &[("d", 1)]).previous(&[("a", 2), ("b", 2)]);
    let used = world.resolve(&[("a", 2), ("b", 2)]);
    world.usage.add(&used);
    assert_eq!(show(&world.place_with(&[set], false, &[], &["b"])), "a=2 d=2");
    world.usage.remove(&used);
}

#[test]
fn weights_without_bounds_do_not_overflow() {
    let all: Vec<(&str, i32)> =
        ["a", "b", "c", "d"].iter().flat_map(|host| vec![(*host, i32::MIN); 3]).collect();
    assert_eq!(respecting(&RACKS).put(&host(pods(2), &all)), "a=2");
    let best: Vec<(&str, i32)> = all.into_iter().chain(vec![("c", i32::MAX); 9]).collect();
    assert_eq!(respecting(&RACKS).put(&host(pods(2), &best)), "c=2");
}

#[test]
fn preferences_decide_nothing_where_all_nodes_are_worth_the_same() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut world = super::oracle::any_world(&mut random).0;
        world.config.gates.tas_profile_mixed = random.one_in(2);
        world.config.gates.tas_respect_node_affinity_preferred = true;
        let count = 1 + random.below(8);
        let workers = if random.one_in(2) { pods(count).required(LEVELS[2]) } else { pods(count) };
        let sets = |set: Pods| if seed % 2 == 0 { vec![set] } else { vec![set, pods(1)] };
        let plain = show(&world.place_with(&sets(workers.clone()), false, &[], &[]));
        let same = sets(workers.prefers("pool", &[("tas", 7)]));
        assert_eq!(show(&world.place_with(&same, false, &[], &[])), plain, "seed {seed}");
    }
}

/// What a node is worth.
fn worth(name: &str) -> i64 {
    i64::from(name.as_bytes()[1] % 3)
}

#[test]
fn required_is_in_the_domain_that_is_worth_most_of_those_that_hold_all() {
    let values: Vec<String> = (0..10).map(|at| format!("n{at}")).collect();
    let weights: Vec<(&str, i32)> =
        values.iter().map(|name| (name.as_str(), i32::try_from(worth(name)).expect("small"))).collect();
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let (mut world, hosts) = super::oracle::any_world(&mut random);
        world.config.gates.tas_respect_node_affinity_preferred = true;
        let (count, level) = (1 + random.below(8), usize::try_from(random.below(3)).expect("small"));
        let placed = world.place(&host(pods(count).required(LEVELS[level]), &weights));
        let mut domains: Vec<(String, i64, i64)> = Vec::new();
        for one in &hosts {
            let name = super::oracle::domain(one, level);
            match domains.iter_mut().find(|known| known.0 == name) {
                Some(known) => (known.1, known.2) = (known.1 + worth(&one.2), known.2 + one.3),
                None => domains.push((name, worth(&one.2), one.3)),
            }
        }
        let holding = domains.iter().filter(|(_, _, room)| *room >= count);
        let best = holding.max_by_key(|(_, worth, room)| (*worth, -room));
        let Some(best) = best else {
            assert!(placed.is_err(), "seed {seed}");
            continue;
        };
        let placed = placed.expect("a domain holds all");
        let got = super::oracle::got(&hosts, &placed, 0, level);
        let (name, _) = got.first_key_value().expect("there is one");
        let of = domains.iter().find(|one| one.0 == *name).expect("a domain");
        assert_eq!((got.len(), of.1, of.2), (1, best.1, best.2), "seed {seed}");
    }
}
