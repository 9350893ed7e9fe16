//! 6.4 Queues and ordering: the order of a queue, and its heads.

use crate::world::{World, cq, job, n, q};
use sluice_core::{AdmissionFairSharing, PreemptionPolicy, StopPolicy, Time, WorkloadState};

/// One queue, `a`, with room for one gpu.
fn one() -> World {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    w
}

#[test]
fn s6_4_01_higher_priority_first() {
    let mut w = one();
    w.submit_all([
        job("low", "a").gpu(1).priority(-1),
        job("high", "a").gpu(1).priority(1),
        job("mid", "a").gpu(1),
    ]);
    assert_eq!(w.heap("a"), ["high", "mid", "low"]);
    assert_eq!(w.cycle(), ["high admitted default"]);
}

#[test]
fn s6_4_02_of_equal_priority_the_older_queue_order_timestamp_first() {
    let mut w = one();
    w.submit_all([job("newer", "a").gpu(1).at(2), job("older", "a").gpu(1).at(1)]);
    assert_eq!(w.heap("a"), ["older", "newer"]);
    assert_eq!(w.cycle(), ["older admitted default"]);
}

#[test]
fn s6_4_03_of_equal_timestamp_the_smaller_uid_first() {
    let mut w = one();
    w.submit_all([
        job("first", "a").gpu(1).at(1).with(|spec| spec.uid = n("z")),
        job("second", "a").gpu(1).at(1).with(|spec| spec.uid = n("y")),
    ]);
    assert_eq!(w.heap("a"), ["second", "first"]);
    assert_eq!(w.cycle(), ["second admitted default"]);
}

#[test]
fn s6_4_04_the_queue_order_timestamp_orders_not_the_creation() {
    let mut w = one();
    let seconds = Time::from_seconds;
    w.submit_all([
        job("created_first", "a").gpu(1).at(1).with(|spec| spec.queue_order = seconds(50)),
        job("evicted_early", "a").gpu(1).at(9).with(|spec| spec.queue_order = seconds(3)),
    ]);
    assert_eq!(w.heap("a"), ["evicted_early", "created_first"]);
}

#[test]
fn s6_4_05_with_admission_fair_sharing_lower_usage_comes_before_everything() {
    let mut w = World::configured(|config| {
        config.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life_seconds: 3600,
            sampling_interval_seconds: 300,
            resource_weights: Vec::new(),
        });
    });
    w.cq(cq("a").quota(q(1)).with(|spec| spec.usage_based_fair_sharing = true));
    w.lq("busy", "a", |spec| spec.consumed = vec![(n("gpu"), 5.0)]);
    w.lq("idle", "a", |spec| spec.consumed = vec![(n("gpu"), 1.0)]);
    w.submit_all([job("urgent", "busy").gpu(1).priority(9), job("modest", "idle").gpu(1)]);
    assert_eq!(w.heap("a"), ["modest", "urgent"]);
    assert_eq!(w.cycle(), ["modest admitted default"]);
}

/// `p` preempted `v` in `a`; then `h`, of higher priority, arrives.
fn preempted(strict: bool) -> World {
    let mut w = World::new();
    let queue = cq("a").quota(q(4)).within(PreemptionPolicy::LowerPriority);
    w.cq(if strict { queue.strict() } else { queue });
    w.running(job("v", "a").gpu(4), "default");
    w.submit(job("p", "a").gpu(4).priority(5));
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue"]);
    w.submit(job("h", "a").gpu(4).priority(10));
    w
}

#[test]
fn s6_4_06_the_sticky_preemptor_comes_before_higher_priority() {
    let mut w = preempted(false);
    assert_eq!(w.heap("a"), ["p", "h"]);
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue (evicted before)"]);
    w.finished("v");
    assert_eq!(w.cycle(), ["p admitted default"]);
}

#[test]
fn s6_4_06_a_strict_fifo_queue_has_no_sticky_preemptor() {
    let mut w = preempted(true);
    assert_eq!(w.heap("a"), ["h", "p"]);
    assert_eq!(w.cycle(), ["h preempts v:InClusterQueue (evicted before)"]);
}

#[test]
fn s6_4_07_the_preemptor_stays_sticky_when_its_object_is_updated() {
    let mut w = preempted(false);
    w.submit(job("p", "a").gpu(4).priority(5).with(|spec| spec.generation = 2));
    assert_eq!(w.heap("a"), ["p", "h"]);
    // It evicts a victim, and then has no more priority than that: the victim does not take its place back.
    let mut w = World::new();
    w.cq(cq("a").flavor("default", &[("cpu", q(4))]).within(PreemptionPolicy::LowerPriority));
    w.running(job("victim", "a").req("cpu", 1), "default");
    w.submit(job("new", "a").req("cpu", 4).priority(1));
    assert_eq!(w.cycle(), ["new preempts victim:InClusterQueue"]);
    w.submit(job("new", "a").req("cpu", 4).priority(0).with(|spec| spec.generation = 2));
    w.released("victim");
    assert_eq!(w.cycle(), ["new admitted default"]);
}

#[test]
fn s6_4_08_only_leaving_the_queue_makes_it_forget_the_preemptor() {
    let mut w = preempted(false);
    w.cq(cq("a").quota(q(2)));
    assert_eq!(w.cycle(), ["p ExceedsMaxQuota"]);
    assert_eq!(w.inadmissible("a"), ["p"]);
    w.cq(cq("a").quota(q(4)).within(PreemptionPolicy::LowerPriority));
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue (evicted before)"], "it is still remembered");
    w.state("p", WorkloadState::Inactive);
    w.state("p", WorkloadState::PENDING);
    assert_eq!(w.heap("a"), ["h", "p"], "it left the queue");
}

#[test]
fn s6_4_09_a_workload_that_may_not_be_queued_is_in_no_queue() {
    let mut w = one();
    w.submit(job("j", "a").gpu(1));
    w.state("j", WorkloadState::Inactive);
    assert_eq!((w.heap("a"), w.inadmissible("a")), (vec![], vec![]));
    assert!(!w.core.has_heads());
    assert!(w.cycle().is_empty());
    w.state("j", WorkloadState::PENDING);
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!((w.heap("a"), w.inadmissible("a")), (vec![], vec![]), "nor is one that holds quota");
}

#[test]
fn s6_4_10_a_workload_is_in_exactly_one_place() {
    let mut w = one();
    w.running(job("r", "a").gpu(1), "default");
    w.submit_all([job("one", "a").gpu(1), job("two", "a").gpu(1).priority(1)]);
    let places = |w: &World| {
        let status = w.core.cluster_queue_status("a").unwrap();
        (status.pending_active, status.pending_inadmissible, status.reserving)
    };
    assert_eq!(places(&w), (2, 0, 1));
    assert_eq!(w.cycle(), ["two WaitingForQuota"]);
    assert_eq!(places(&w), (1, 1, 1));
    assert_eq!(w.cycle(), ["one WaitingForQuota"]);
    assert_eq!(places(&w), (0, 2, 1));
    w.finished("r");
    assert_eq!(places(&w), (2, 0, 0));
    w.cycle();
    assert_eq!(places(&w), (1, 0, 1));
}

#[test]
fn s6_4_11_one_head_is_taken_from_each_active_cluster_queue() {
    let mut w = World::new();
    for name in ["a", "b", "c"] {
        w.cq(cq(name).quota(q(9)));
        w.submit_all([job(&format!("{name}1"), name).gpu(1), job(&format!("{name}2"), name).gpu(1)]);
    }
    w.cq(cq("c").quota(q(9)).with(|spec| spec.stop_policy = StopPolicy::Hold));
    assert_eq!(w.cycle(), ["a1 admitted default", "b1 admitted default"]);
    assert_eq!(w.cycle(), ["a2 admitted default", "b2 admitted default"]);
    assert_eq!(w.heap("c"), ["c1", "c2"]);
}
