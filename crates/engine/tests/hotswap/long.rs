//! The search for capacity for displaced jobs: its length, and that it stops in each cycle and continues in the next.

use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::bed::Bed;

/// Steps of one placement, at most.
const PLACEMENT: u64 = 20;

/// Some pools of two nodes with a JobSet each, those of high priority on the first half, of which all but one fail.
fn failing(pools: usize, steps: u64) -> Bed {
    let config = EngineConfig { status_interval_ms: 0, hotswap_steps: steps, ..EngineConfig::default() };
    let mut bed = Bed::with(config);
    bed.page_queue(1_000);
    let names: Vec<String> = (0..pools).map(|pool| format!("p{pool:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&names, 2);
    for (pool, name) in names.iter().enumerate() {
        let priority = if pool < pools / 2 { "high" } else { "low" };
        bed.sized_jobset(name, "q", priority, 1, 2);
        bed.settle();
    }
    bed.fail(&names[1..pools / 2]);
    bed.c.most_steps = 0;
    bed.pass(45);
    bed
}

/// Which JobSets run, and how often each was evicted and why.
fn outcome(bed: &Bed, pools: usize) -> Vec<(bool, Vec<(String, i32)>)> {
    (0..pools).map(|pool| format!("p{pool:03}")).map(|job| (bed.runs(&job), bed.evictions(&job))).collect()
}

#[test]
fn a_search_that_continues_in_later_cycles_finds_the_same() {
    let pools = 16;
    let whole = failing(pools, u64::MAX);
    let most = 40;
    assert!(whole.c.most_steps > 2 * most, "{} steps at a stretch", whole.c.most_steps);
    let parts = failing(pools, most);
    assert!(parts.c.most_steps <= most + PLACEMENT, "{} steps at a stretch", parts.c.most_steps);
    assert_eq!(outcome(&parts, pools), outcome(&whole, pools));
    let moved =
        outcome(&whole, pools).iter().filter(|(runs, evictions)| *runs && !evictions.is_empty()).count();
    assert_eq!(moved, pools / 2 - 1, "work on failing nodes runs elsewhere");
}

#[test]
fn twice_as_many_failing_pools_take_at_most_four_times_as_long() {
    let (small, large) = (failing(6, u64::MAX).c.most_steps, failing(12, u64::MAX).c.most_steps);
    assert!(large <= 5 * small, "{small} steps, then {large}");
}

/// Racks of four nodes with a JobSet each, those of high priority on the first half, of which all but one lose two nodes.
fn failing_racks(racks: usize, steps: u64) -> Bed {
    let config = EngineConfig { status_interval_ms: 0, hotswap_steps: steps, ..EngineConfig::default() };
    let mut bed = Bed::with(config);
    bed.c.checked = false;
    bed.topology();
    bed.page_queue(100_000);
    let names: Vec<String> = (0..racks).map(|rack| format!("p{rack:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&names, 4);
    for (rack, name) in names.iter().enumerate() {
        bed.placed_jobset(name, if rack < racks / 2 { "high" } else { "low" }, 3, 4);
    }
    bed.settle();
    for name in &names[1..racks / 2] {
        for (node, _) in bed.assigned(name).into_iter().take(2) {
            bed.ready(&ObjectRef::cluster(Kind::Node, node.as_str()), "Unknown");
        }
    }
    bed.c.most_steps = 0;
    bed.pass(45);
    bed
}

#[test]
fn no_cycle_makes_more_steps_than_it_may_while_many_wait_to_run_and_the_rest_have_their_turn() {
    let racks = 30;
    let whole = failing_racks(racks, u64::MAX);
    let most = whole.c.most_steps / 5;
    let parts = failing_racks(racks, most);
    assert!(
        parts.c.most_steps <= most + PLACEMENT,
        "{} steps at a stretch, {most} and a placement at most",
        parts.c.most_steps
    );
    assert_eq!(outcome(&parts, racks), outcome(&whole, racks));
    let moved =
        outcome(&whole, racks).iter().filter(|(runs, evictions)| *runs && !evictions.is_empty()).count();
    assert_eq!(moved, racks / 2 - 1);
}

#[test]
fn a_search_longer_than_a_cycle_may_take_continues_in_the_next_and_finds_the_same() {
    let pools = 8;
    let (whole, parts) = (failing(pools, u64::MAX), failing(pools, 0));
    assert!(parts.c.most_steps < whole.c.most_steps, "{} steps at a stretch", parts.c.most_steps);
    assert!(!parts.c.engine.has_work(), "the search does not begin again and again");
    assert_eq!(outcome(&parts, pools), outcome(&whole, pools));
    let racks = 12;
    let (whole, parts) = (failing_racks(racks, u64::MAX), failing_racks(racks, 0));
    assert!(parts.c.most_steps < whole.c.most_steps, "{} steps at a stretch", parts.c.most_steps);
    assert_eq!(outcome(&parts, racks), outcome(&whole, racks));
}

/// Nodes under a JobSet each that has the priority `low`, and the last two under one with the priority `high`, of which one fails now.
fn full_nodes(lows: usize, steps: u64) -> Bed {
    let config = EngineConfig { status_interval_ms: 0, hotswap_steps: steps, ..EngineConfig::default() };
    let mut bed = Bed::with(config);
    bed.page_queue(100_000);
    let names: Vec<String> = (0..lows + 2).map(|node| format!("n{node:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&names, 1);
    bed.plain_jobset("high", "high", 2, 4);
    for name in &names[..lows] {
        bed.plain_jobset(name, "low", 1, 4);
    }
    bed.c.settle();
    for name in &names[..lows] {
        bed.bind(name, Some(name), &format!("{name}-0"), 4);
    }
    for name in &names[lows..] {
        bed.bind(name, Some("high"), &format!("{name}-0"), 4);
    }
    bed.pass(2);
    bed.fail(&names[lows..=lows]);
    bed
}

/// How many of those with the priority `low` were preempted.
fn preempted(bed: &Bed, lows: usize) -> usize {
    (0..lows).filter(|node| !bed.evictions(&format!("n{node:03}")).is_empty()).count()
}

#[test]
fn a_world_of_full_nodes_is_not_too_large_to_find_one_to_preempt() {
    let lows = 60;
    let mut bed = full_nodes(lows, 100);
    bed.pass(45);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(preempted(&bed, lows), 1);
}

#[test]
fn a_node_that_comes_restarts_the_search_and_none_is_preempted() {
    let lows = 60;
    let mut bed = full_nodes(lows, 0);
    let goes_on = |bed: &Bed| bed.c.engine.state()["hotswap"]["goesOn"] == true;
    // Time alone passes, then one cycle after the other.
    bed.c.cycles_left = Some(0);
    bed.c.advance(30);
    let next = |bed: &mut Bed| {
        bed.c.cycles_left = Some(1);
        bed.c.settle();
    };
    next(&mut bed);
    for _ in 0..100 {
        if goes_on(&bed) {
            break;
        }
        next(&mut bed);
    }
    assert!(goes_on(&bed) && preempted(&bed, lows) == 0, "it looks for those that could be preempted");
    bed.c.cycles_left = None;
    bed.pools(&["spare"], 1);
    bed.pass(45);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(preempted(&bed, lows), 0);
}

#[test]
fn a_search_that_takes_too_many_cycles_is_given_up_and_says_so() {
    let note = |steps: u64| {
        let config = EngineConfig { status_interval_ms: 0, hotswap_steps: steps, ..EngineConfig::default() };
        let mut bed = Bed::with(config);
        bed.c.checked = false;
        bed.page_queue(100_000);
        let names: Vec<String> = (0..70).map(|pool| format!("p{pool:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        bed.pools(&["big"], 2);
        bed.sized_jobset("big", "q", "high", 1, 2);
        bed.settle();
        bed.pools(&names, 1);
        for name in &names {
            bed.sized_jobset(name, "q", "low", 1, 1);
        }
        bed.settle();
        bed.ready(&bed.nodes_of(&["big"])[0].clone(), "Unknown");
        bed.pass(45);
        assert!(!bed.c.engine.has_work(), "the search does not begin again and again");
        assert!(bed.evictions("big").is_empty() && !bed.listed("big").is_empty());
        let notes = bed.c.notes("HotswapNotPossible");
        assert_eq!(notes.len(), 1, "{notes:?}");
        notes[0].clone()
    };
    let (whole, parts) = (note(u64::MAX), note(0));
    assert!(whole.contains("even if all workloads of lower priority were evicted"), "{whole}");
    assert!(parts.contains("was given up: it takes too many cycles"), "{parts}");
}
