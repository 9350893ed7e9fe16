//! The search for room for displaced work: how long it is, and that it ends in each cycle and goes on in the next.

use sluice_engine::EngineConfig;

use crate::bed::Bed;

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
fn a_search_that_goes_on_in_later_cycles_finds_the_same() {
    let pools = 12;
    let whole = failing(pools, u64::MAX);
    let most = 20;
    assert!(whole.c.most_steps > 2 * most, "{} steps at a stretch", whole.c.most_steps);
    let parts = failing(pools, most);
    // One search begins before the end and is cut there.
    assert!(parts.c.most_steps <= 2 * most, "{} steps at a stretch", parts.c.most_steps);
    assert_eq!(outcome(&parts, pools), outcome(&whole, pools));
    let moved =
        outcome(&whole, pools).iter().filter(|(runs, evictions)| *runs && !evictions.is_empty()).count();
    assert_eq!(moved, pools / 2 - 1, "who was on failing nodes runs elsewhere");
}

#[test]
fn twice_as_many_failing_pools_take_at_most_four_times_as_long() {
    let (small, large) = (failing(6, u64::MAX).c.most_steps, failing(12, u64::MAX).c.most_steps);
    assert!(large <= 5 * small, "{small} steps, then {large}");
}

#[test]
fn work_that_only_finds_its_room_again_does_not_keep_the_rest_from_their_turn() {
    let pools = 20;
    let (whole, parts) = (failing(pools, u64::MAX), failing(pools, 10));
    // Those that were evicted look for their nodes in each cycle until they run: soon that alone is more than a cycle may take.
    assert!(parts.c.most_steps < whole.c.most_steps / 2, "{} steps at a stretch", parts.c.most_steps);
    assert_eq!(outcome(&parts, pools), outcome(&whole, pools));
}

#[test]
fn a_search_longer_than_a_cycle_may_take_ends_with_nothing_and_the_next_has_its_turn() {
    let bed = failing(8, 0);
    assert!(bed.c.most_steps < 200, "{} steps at a stretch", bed.c.most_steps);
    assert!(!bed.c.engine.has_work(), "the search does not begin again and again");
    for job in ["p001", "p002", "p003"] {
        assert!(bed.evictions(job).is_empty() && !bed.listed(job).is_empty(), "{job} stays on its nodes");
    }
}
