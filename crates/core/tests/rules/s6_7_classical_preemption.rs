//! 6.7 Classical preemption.

use crate::world::{Job, World, cohort, cq, job, n, q};
use sluice_core::PreemptionPolicy::{self, Any, LowerOrNewerEqualPriority, LowerPriority, Never};
use sluice_core::{AdmissionFairSharing, BorrowWithinCohort, WorkloadState};

/// One queue with a victim of this priority, created at second 5, and a head of priority 0 created at this second.
fn within(policy: PreemptionPolicy, victim: i32, created: i64) -> String {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)).within(policy));
    w.running(job("v", "a").gpu(1).priority(victim).at(5), "default");
    w.submit(job("j", "a").gpu(1).at(created));
    w.cycle().pop().unwrap()
}

#[test]
fn s6_7_01_within_cluster_queue_never_preempts_no_workload() {
    assert_eq!(within(Never, -9, 1), "j WaitingForQuota");
}

#[test]
fn s6_7_02_lower_priority_takes_only_strictly_lower_ones() {
    assert_eq!(within(LowerPriority, -1, 9), "j preempts v:InClusterQueue");
    assert_eq!(within(LowerPriority, 0, 1), "j WaitingForQuota");
    assert_eq!(within(LowerPriority, 1, 1), "j WaitingForQuota");
}

#[test]
fn s6_7_03_lower_or_newer_equal_priority_takes_newer_ones_of_equal_priority_too() {
    assert_eq!(within(LowerOrNewerEqualPriority, -1, 9), "j preempts v:InClusterQueue");
    assert_eq!(within(LowerOrNewerEqualPriority, 0, 4), "j preempts v:InClusterQueue");
    assert_eq!(within(LowerOrNewerEqualPriority, 0, 5), "j WaitingForQuota", "equally old is not newer");
    assert_eq!(within(LowerOrNewerEqualPriority, 0, 6), "j WaitingForQuota");
    assert_eq!(within(LowerOrNewerEqualPriority, 1, 1), "j WaitingForQuota");
}

/// `b` borrows what is `a`'s with a victim of this priority; the head in `a` has priority 0.
fn reclaim(policy: PreemptionPolicy, victim: i32) -> String {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(1)).reclaim(policy));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("v", "b").gpu(1).priority(victim), "default");
    w.submit(job("j", "a").gpu(1));
    w.cycle().pop().unwrap()
}

#[test]
fn s6_7_04_reclaim_within_cohort_any_takes_every_queue_that_borrows() {
    assert_eq!(reclaim(Any, 9), "j preempts v:InCohortReclamation");
}

#[test]
fn s6_7_05_reclaim_within_cohort_lower_priority_takes_only_lower_ones() {
    assert_eq!(reclaim(LowerPriority, -1), "j preempts v:InCohortReclamation");
    assert_eq!(reclaim(LowerPriority, 0), "j WaitingForQuota");
    assert_eq!(reclaim(Never, -1), "j WaitingForQuota");
}

#[test]
fn s6_7_06_a_candidate_uses_a_flavor_resource_that_is_needed() {
    let mut w = World::new();
    w.cq(cq("a").flavor("x", &[("cpu", q(2)), ("gpu", q(4))]).within(LowerPriority));
    w.running(job("cpu", "a").req("cpu", 1).priority(-9), "x");
    w.running(job("gpu", "a").gpu(4).priority(-1), "x");
    w.submit(job("j", "a").gpu(4).req("cpu", 1));
    assert_eq!(w.cycle(), ["j preempts gpu:InClusterQueue"]);
}

#[test]
fn s6_7_07_all_that_is_requested_has_to_fit_not_only_what_is_needed() {
    let mut w = World::new();
    w.cq(cq("a").flavor("x", &[("cpu", q(2)), ("gpu", q(4))]).within(LowerPriority));
    w.running(job("both", "a").gpu(3).req("cpu", 2).priority(-1), "x");
    w.running(job("gpu", "a").gpu(1).priority(-9), "x");
    w.submit(job("j", "a").gpu(1).req("cpu", 1));
    assert_eq!(w.cycle(), ["j preempts both:InClusterQueue"]);
}

#[test]
fn s6_7_08_when_no_set_of_candidates_is_enough_no_workload_is_preempted() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(LowerPriority));
    w.running(job("low", "a").gpu(2).priority(-1), "default");
    w.running(job("high", "a").gpu(2).priority(9), "default");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    assert_eq!(w.core.cluster_queue_status("a").unwrap().reserving, 2);
}

/// `a` (4, of which `own` are used) wants 3; `b` (4) borrows with `v` of priority −1.
fn borrowing(own: i64, borrow: Option<BorrowWithinCohort>, head: Job) -> String {
    let mut w = World::new();
    let queue = cq("a").cohort("co").quota(q(4)).reclaim(Any);
    w.cq(queue.with(|spec| spec.preemption.borrow_within_cohort = borrow));
    w.cq(cq("b").cohort("co").quota(q(4)));
    w.running(job("own", "a").gpu(own).priority(5), "default");
    w.running(job("v", "b").gpu(8 - own).priority(-1), "default");
    w.submit(head);
    w.cycle().pop().unwrap()
}

/// `borrowWithinCohort`, up to this priority.
fn threshold(max_priority_threshold: Option<i32>) -> BorrowWithinCohort {
    BorrowWithinCohort { max_priority_threshold }
}

fn three() -> Job {
    job("j", "a").gpu(3)
}

#[test]
fn s6_7_09_a_queue_that_fits_into_its_own_quota_has_the_hierarchical_advantage() {
    assert_eq!(borrowing(1, Some(threshold(None)), three()), "j preempts v:InCohortReclamation");
    assert_eq!(borrowing(1, None, three()), "j preempts v:InCohortReclamation");
    assert_eq!(borrowing(1, Some(threshold(None)), three().priority(-1)), "j preempts v:InCohortReclamation");
}

#[test]
fn s6_7_10_a_queue_that_would_borrow_needs_borrow_within_cohort() {
    assert_eq!(borrowing(2, Some(threshold(None)), three()), "j preempts v:InCohortReclaimWhileBorrowing");
    assert_eq!(borrowing(2, None, three()), "j WaitingForQuota");
}

#[test]
fn s6_7_11_while_borrowing_only_lower_priorities_up_to_the_threshold_are_taken() {
    assert_eq!(borrowing(2, Some(threshold(None)), three().priority(-1)), "j WaitingForQuota");
    assert_eq!(
        borrowing(2, Some(threshold(Some(-1))), three()),
        "j preempts v:InCohortReclaimWhileBorrowing"
    );
    assert_eq!(borrowing(2, Some(threshold(Some(-2))), three()), "j WaitingForQuota");
}

#[test]
fn s6_7_12_the_advantage_counts_from_the_subtree_into_which_the_request_fits() {
    let mut w = World::new();
    w.cohort(cohort("root"));
    w.cohort(cohort("mid").parent("root").quota(q(4)));
    let borrow = BorrowWithinCohort { max_priority_threshold: None };
    let queue = cq("a").cohort("mid").quota(q(0)).reclaim(Any);
    w.cq(queue.with(|spec| spec.preemption.borrow_within_cohort = Some(borrow)));
    w.cq(cq("sibling").cohort("mid").quota(q(0)));
    w.cq(cq("outside").cohort("root").quota(q(0)));
    w.running(job("vs", "sibling").gpu(2).priority(-9), "default");
    w.running(job("vo", "outside").gpu(2).priority(-1), "default");
    w.submit(job("j", "a").gpu(2));
    // Over `outside` it has the advantage of mid, over its sibling only that of priority, which comes later.
    assert_eq!(w.cycle(), ["j preempts vo:InCohortReclamation"]);
    w.finished("j");
    w.finished("vo");
    w.running(job("vs2", "sibling").gpu(2).priority(-1), "default");
    w.submit(job("k", "a").gpu(2));
    assert_eq!(w.cycle(), ["k preempts vs:InCohortReclaimWhileBorrowing"]);
}

#[test]
fn s6_7_13_a_cohort_within_its_nominal_quota_is_not_reclaimed_from() {
    let mut w = World::new();
    w.cohort(cohort("root"));
    w.cohort(cohort("fair").parent("root").quota(q(2)));
    w.cq(cq("a").cohort("root").quota(q(4)).reclaim(Any));
    w.cq(cq("inside").cohort("fair").quota(q(0)));
    w.cq(cq("outside").cohort("root").quota(q(0)));
    // `inside` is above its own nominal, but its cohort is not.
    w.running(job("vo", "outside").gpu(2).priority(9), "default");
    w.running(job("vi", "inside").gpu(2).priority(-9), "default");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts vo:InCohortReclamation"]);
}

fn candidates(w: &mut World) {
    w.cq(cq("a").quota(q(6)).within(LowerPriority));
    w.submit(job("j", "a").gpu(2).at(99));
}

#[test]
fn s6_7_14_lower_priority_is_taken_first() {
    let mut w = World::new();
    candidates(&mut w);
    for (name, priority) in [("v1", -1), ("v3", -3), ("v2", -2)] {
        w.running_since(job(name, "a").gpu(2).priority(priority), "default", 5);
    }
    assert_eq!(w.cycle(), ["j preempts v3:InClusterQueue"]);
}

#[test]
fn s6_7_15_of_equal_priority_the_most_recently_reserved_is_taken_first() {
    let mut w = World::new();
    candidates(&mut w);
    for (name, since) in [("v1", 5), ("v2", 7), ("v3", 6)] {
        w.running_since(job(name, "a").gpu(2).priority(-1), "default", since);
    }
    assert_eq!(w.cycle(), ["j preempts v2:InClusterQueue"]);
}

#[test]
fn s6_7_16_the_last_tie_break_is_the_uid() {
    let mut w = World::new();
    candidates(&mut w);
    for (name, uid) in [("v1", "c"), ("v2", "a"), ("v3", "b")] {
        w.running_since(job(name, "a").gpu(2).priority(-1).with(|spec| spec.uid = n(uid)), "default", 5);
    }
    assert_eq!(w.cycle(), ["j preempts v2:InClusterQueue"]);
}

#[test]
fn s6_7_17_already_evicted_ones_are_taken_first() {
    let mut w = World::new();
    candidates(&mut w);
    w.running(job("v1", "a").gpu(2).priority(-9), "default");
    w.running(job("v2", "a").gpu(2).priority(-9), "default");
    w.holding(job("leaving", "a").gpu(2).priority(-1), "a", "default", |state| {
        if let WorkloadState::Reserved { evicted, .. } = state {
            *evicted = true;
        }
    });
    assert_eq!(w.cycle(), ["j preempts leaving:InClusterQueue (evicted before)"]);
}

#[test]
fn s6_7_18_candidates_of_other_queues_are_taken_before_those_of_the_own() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)).within(LowerPriority).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("own", "a").gpu(2).priority(-9), "default");
    w.running(job("other", "b").gpu(2).priority(9), "default");
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j preempts other:InCohortReclamation"]);
}

#[test]
fn s6_7_19_with_admission_fair_sharing_higher_usage_of_the_local_queue_is_taken_first() {
    let mut w = World::configured(|config| {
        config.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life_seconds: 3600,
            sampling_interval_seconds: 300,
            resource_weights: Vec::new(),
        });
    });
    w.cq(cq("a").quota(q(4)).within(LowerPriority).with(|spec| spec.usage_based_fair_sharing = true));
    w.lq("busy", "a", |spec| spec.consumed = vec![(n("gpu"), 50.0)]);
    w.lq("idle", "a", |spec| spec.consumed = vec![(n("gpu"), 1.0)]);
    w.holding(job("of_busy", "busy").gpu(2).priority(-1), "a", "default", |_| {});
    w.holding(job("of_idle", "idle").gpu(2).priority(-9), "a", "default", |_| {});
    w.submit(job("j", "a").gpu(2));
    assert_eq!(w.cycle(), ["j preempts of_busy:InClusterQueue"]);
}

/// `a` uses `own` of its 4 with a victim of its own; `b` borrows the rest.
fn attempts(own: i64) -> Vec<String> {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)).within(LowerPriority).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(4)));
    w.running(job("own", "a").gpu(own).priority(-1), "default");
    w.running(job("other", "b").gpu(8 - own).priority(-1), "default");
    w.submit(job("j", "a").gpu(4));
    w.cycle()
}

#[test]
fn s6_7_20_a_queue_at_nominal_that_may_not_borrow_takes_only_its_own() {
    assert_eq!(attempts(4), ["j preempts own:InClusterQueue"]);
}

#[test]
fn s6_7_21_a_queue_under_nominal_first_tries_without_borrowing() {
    assert_eq!(attempts(2), ["j preempts other:InCohortReclamation own:InClusterQueue"]);
}

#[test]
fn s6_7_21_without_borrowing_first_also_where_it_has_no_hierarchical_advantage() {
    let mut w = World::new();
    w.cohort(cohort("co").quota(q(2)));
    w.cq(cq("a").cohort("co").quota(q(3)).within(LowerPriority).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(3)));
    for (name, queue) in [("v1", "a"), ("v2", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b"), ("b4", "b")] {
        w.running(job(name, queue).gpu(1).priority(-1), "default");
    }
    w.submit(job("j", "a").gpu(3));
    // With borrowing one of its own would be enough.
    assert_eq!(w.cycle(), ["j preempts v1:InClusterQueue v2:InClusterQueue"]);
}

#[test]
fn s6_7_22_with_borrowing_allowed_it_is_tried_first() {
    let mut w = World::new();
    let borrow = BorrowWithinCohort { max_priority_threshold: None };
    let queue = cq("a").cohort("co").quota(q(4)).within(LowerPriority).reclaim(Any);
    w.cq(queue.with(|spec| spec.preemption.borrow_within_cohort = Some(borrow)));
    w.cq(cq("b").cohort("co").quota(q(4)));
    w.running(job("own", "a").gpu(2).priority(-1), "default");
    w.running(job("other", "b").gpu(6).priority(-1), "default");
    w.submit(job("j", "a").gpu(4));
    // With borrowing the own one can stay.
    assert_eq!(w.cycle(), ["j preempts other:InCohortReclaimWhileBorrowing"]);
}

#[test]
fn s6_7_23_a_queue_is_left_alone_once_it_is_within_nominal() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)).reclaim(Any));
    w.cq(cq("b").cohort("co").quota(q(2)));
    w.cq(cq("c").cohort("co").quota(q(0)));
    w.running(job("c1", "c").gpu(2), "default");
    w.running(job("b1", "b").gpu(2), "default");
    w.running(job("b2", "b").gpu(2), "default");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts b2:InCohortReclamation c1:InCohortReclamation"]);
}

#[test]
fn s6_7_24_a_queue_is_left_alone_once_a_cohort_above_it_is_within_nominal() {
    let mut w = World::new();
    w.cohort(cohort("right").parent("root").quota(q(2)));
    w.cq(cq("a").cohort("root").quota(q(4)).reclaim(Any));
    w.cq(cq("b").cohort("right").quota(q(0)));
    w.cq(cq("c").cohort("right").quota(q(0)));
    w.cq(cq("d").cohort("root").quota(q(0)));
    w.running(job("d1", "d").gpu(2), "default");
    w.running(job("b1", "b").gpu(2), "default");
    w.running(job("c1", "c").gpu(2), "default");
    w.submit(job("j", "a").gpu(4));
    assert_eq!(w.cycle(), ["j preempts c1:InCohortReclamation d1:InCohortReclamation"]);
}

/// Victims of these sizes, taken in this order, for a head of this size.
fn fill_back(sizes: &[i64], head: i64) -> Vec<String> {
    let mut w = World::new();
    w.cq(cq("a").quota(q(sizes.iter().sum())).within(LowerPriority));
    for (at, &size) in sizes.iter().enumerate() {
        let priority = i32::try_from(at).unwrap() - 100;
        w.running(job(&format!("v{at}"), "a").gpu(size).priority(priority), "default");
    }
    w.submit(job("j", "a").gpu(head));
    w.cycle()
}

#[test]
fn s6_7_25_what_was_not_needed_is_given_back_from_the_second_last_to_the_first() {
    assert_eq!(fill_back(&[1, 1, 4], 4), ["j preempts v2:InClusterQueue"]);
    assert_eq!(
        fill_back(&[2, 1, 1, 3], 6),
        ["j preempts v0:InClusterQueue v1:InClusterQueue v3:InClusterQueue"]
    );
    assert_eq!(fill_back(&[3, 2, 3], 6), ["j preempts v0:InClusterQueue v2:InClusterQueue"]);
}

#[test]
fn s6_7_26_giving_back_swaps_with_the_last_so_that_the_order_changes() {
    assert_eq!(
        fill_back(&[2, 1, 2, 3], 7),
        ["j preempts v0:InClusterQueue v3:InClusterQueue v2:InClusterQueue"]
    );
}

#[test]
fn s6_7_27_evicted_ones_of_all_classes_come_before_the_others_hierarchical_then_priority_then_own() {
    let mut w = World::new();
    w.cohort(cohort("root"));
    w.cohort(cohort("mid").parent("root").quota(q(8)));
    let borrow = BorrowWithinCohort { max_priority_threshold: None };
    let queue = cq("a").cohort("mid").quota(q(0)).within(LowerPriority).reclaim(Any);
    w.cq(queue.with(|spec| spec.preemption.borrow_within_cohort = Some(borrow)));
    w.cq(cq("sibling").cohort("mid").quota(q(0)));
    w.cq(cq("outside").cohort("root").quota(q(0)));
    let evict = |state: &mut WorkloadState| {
        if let WorkloadState::Reserved { evicted, .. } = state {
            *evicted = true;
        }
    };
    for queue in ["outside", "sibling", "a"] {
        w.running(job(&format!("runs_{queue}"), queue).gpu(1).priority(-9), "default");
        w.holding(job(&format!("left_{queue}"), queue).gpu(1).priority(-1), queue, "default", evict);
    }
    w.running(job("filler", "outside").gpu(2).priority(9), "default");
    let taken = |w: &mut World, gpu| {
        w.submit(job("j", "a").gpu(gpu));
        let line = w.cycle().pop().unwrap();
        w.finished("j");
        line.split_whitespace()
            .filter_map(|word| Some(word.split_once(':')?.0.to_owned()))
            .collect::<Vec<_>>()
    };
    let expected = ["left_outside", "left_sibling", "left_a", "runs_outside"];
    for count in 1..=expected.len() {
        assert_eq!(taken(&mut w, i64::try_from(count).unwrap()), expected[..count], "{count}");
    }
}
