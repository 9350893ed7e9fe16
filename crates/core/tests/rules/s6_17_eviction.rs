//! 6.17 Eviction protocol: what it means for quota. The conditions are the engine's.

use crate::world::{World, cohort, cq, job, q};
use sluice_core::PreemptionPolicy::LowerPriority;
use sluice_core::WorkloadState;

fn evicted(state: &mut WorkloadState) {
    if let WorkloadState::Reserved { evicted, .. } = state {
        *evicted = true;
    }
}

/// `r` uses all of `a`, and `j` waits.
fn full() -> World {
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)).within(LowerPriority));
    w.running(job("r", "a").gpu(2), "default");
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w
}

#[test]
fn s6_17_01_an_evicted_workload_keeps_its_reservation() {
    let mut w = full();
    w.holding(job("r", "a").gpu(2), "a", "default", evicted);
    assert_eq!(w.used("a"), (2, 0));
    assert_eq!(w.inadmissible("a"), ["j"], "nothing is free yet, so nothing is flushed");
    assert!(w.cycle().is_empty());
    assert_eq!(w.core.cluster_queue_status("a").unwrap().reserving, 1);
}

#[test]
fn s6_17_02_quota_is_free_when_the_reservation_is_released_and_then_the_tree_is_flushed() {
    let mut w = full();
    w.holding(job("r", "a").gpu(2), "a", "default", evicted);
    w.released("r");
    assert_eq!((w.used("a"), w.heap("a")), ((0, 0), vec!["r".to_owned(), "j".to_owned()]));
    assert_eq!(w.cycle(), ["r admitted default"], "it has its original place");
}

#[test]
fn s6_17_03_a_victim_waits_again_only_once_it_is_released() {
    let mut w = full();
    w.submit(job("p", "a").gpu(2).priority(1));
    assert_eq!(w.cycle(), ["p preempts r:InClusterQueue"]);
    assert_eq!(w.heap("a"), ["p"], "r is in no queue while it stops");
    w.state(
        "r",
        WorkloadState::Pending {
            requeue_at: None,
            keeps_place: false,
            requeued_false: true,
            failed_checks: false,
            invalid: None,
        },
    );
    assert_eq!(w.cycle(), ["p admitted default"]);
    assert_eq!(
        (w.heap("a"), w.inadmissible("a")),
        (vec!["j".to_owned()], vec!["r".to_owned()]),
        "r waits for Requeued"
    );
}

#[test]
fn s6_17_04_a_victim_that_finishes_while_it_is_evicted_frees_its_quota() {
    let mut w = full();
    w.submit(job("p", "a").gpu(2).priority(1));
    assert_eq!(w.cycle(), ["p preempts r:InClusterQueue"]);
    w.state("r", WorkloadState::Inactive);
    assert_eq!(w.cycle(), ["p admitted default"]);
}

#[test]
fn s6_17_05_an_eviction_of_something_else_is_no_reason_to_preempt_more() {
    let mut w = World::new();
    w.cohort(cohort("co"));
    w.cq(cq("a").cohort("co").quota(q(4)).within(LowerPriority));
    w.running(job("low", "a").gpu(2).priority(-9), "default");
    w.holding(job("leaving", "a").gpu(2).priority(-1), "a", "default", evicted);
    w.submit(job("p", "a").gpu(2));
    for _ in 0..3 {
        assert_eq!(w.cycle(), ["p preempts leaving:InClusterQueue (evicted before)"]);
        assert!(!w.report.progress);
    }
    w.finished("leaving");
    assert_eq!(w.cycle(), ["p admitted default"]);
}
