//! Reclaimers that are inadmissible when others borrow more (gate `RequeueReclaimersOnBorrowing`). Ours.

use crate::world::{World, cohort, cq, job, q, reference_gates};
use sluice_core::PreemptionPolicy::{self, Any, LowerPriority, Never};
use sluice_core::{FairSharing, Gates};

/// `a` may take from what is less important than `j`, but `c`, which borrows, is not, and `b` uses no more than its own.
fn inadmissible(on: bool, policy: PreemptionPolicy) -> World {
    let gates = Gates { requeue_reclaimers_on_borrowing: on, ..reference_gates() };
    let mut w = World::configured(|config| config.gates = gates);
    w.cohort(cohort("co"));
    w.cq(cq("a").cohort("co").quota(q(3)).reclaim(policy));
    w.cq(cq("b").cohort("co").quota(q(2)));
    w.cq(cq("c").cohort("co").quota(q(0)));
    w.running(job("important", "c").gpu(2).priority(9), "default");
    w.running(job("small", "b").gpu(2).priority(-5), "default");
    w.submit(job("j", "a").gpu(2).priority(1));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    assert_eq!(w.inadmissible("a"), ["j"]);
    w
}

#[test]
fn what_may_reclaim_is_tried_again_when_others_begin_to_borrow() {
    let mut w = inadmissible(true, LowerPriority);
    w.submit(job("guest", "b").gpu(1));
    assert_eq!(w.cycle(), ["guest admitted default"]);
    assert_eq!(w.heap("a"), ["j"]);
    assert_eq!(w.cycle(), ["j preempts small:InCohortReclamation"]);
}

#[test]
fn without_the_gate_it_stays_inadmissible() {
    let mut w = inadmissible(false, LowerPriority);
    w.submit(job("guest", "b").gpu(1));
    assert_eq!(w.cycle(), ["guest admitted default"]);
    assert_eq!(w.inadmissible("a"), ["j"]);
}

#[test]
fn what_may_not_reclaim_stays_inadmissible() {
    let mut w = inadmissible(true, Never);
    w.submit(job("guest", "b").gpu(1));
    assert_eq!(w.cycle(), ["guest admitted default"]);
    assert_eq!(w.inadmissible("a"), ["j"]);
}

#[test]
fn a_reservation_that_another_program_wrote_wakes_them_too() {
    let mut w = inadmissible(true, LowerPriority);
    w.running(job("guest", "b").gpu(1), "default");
    assert_eq!(w.heap("a"), ["j"]);
}

#[test]
fn they_are_tried_once_each_time_that_more_is_borrowed() {
    let mut w = inadmissible(true, LowerPriority);
    w.submit(job("high", "b").gpu(1).priority(5));
    w.cycle();
    w.finished("j");
    w.cohort(cohort("co").quota(q(2)));
    w.submit(job("big", "a").gpu(6).priority(1));
    w.settle();
    assert_eq!(w.inadmissible("a"), ["big"]);
    w.submit(job("more", "b").gpu(1).priority(5));
    assert_eq!(w.cycle(), ["more admitted default"]);
    assert_eq!(w.heap("a"), ["big"], "b borrowed before, and may now have victims that it had not");
    assert_eq!(w.cycle(), ["big WaitingForQuota"]);
    // A change of what holds quota is none of the quota.
    w.running_since(job("more", "b").gpu(1).priority(5), "default", 9);
    assert_eq!(w.inadmissible("a"), ["big"]);
    assert!(!w.core.has_heads());
}

#[test]
fn victims_that_a_queue_had_before_it_borrowed_enough_are_found() {
    let gates = Gates { requeue_reclaimers_on_borrowing: true, ..reference_gates() };
    let mut w = World::configured(|config| config.gates = gates);
    w.cohort(cohort("co"));
    w.cq(cq("a").cohort("co").quota(q(4)).reclaim(LowerPriority));
    w.cq(cq("b").cohort("co").quota(q(2)));
    w.cq(cq("c").cohort("co").quota(q(0)));
    w.running(job("important", "c").gpu(2).priority(9), "default");
    w.running(job("s2", "b").gpu(2).priority(-5), "default");
    w.running(job("s1", "b").gpu(1).priority(-5), "default");
    w.submit(job("h", "a").gpu(3).priority(1));
    assert_eq!(w.cycle(), ["h WaitingForQuota"], "without s1 b uses its own quota");
    assert_eq!(w.inadmissible("a"), ["h"]);
    w.submit(job("guest", "b").gpu(1).priority(5));
    assert_eq!(w.cycle(), ["guest admitted default"]);
    assert_eq!(w.heap("a"), ["h"]);
    let lines = w.cycle();
    assert!(lines[0].contains("s1:InCohortReclamation") && lines[0].contains("s2:InCohortReclamation"));
}

#[test]
fn under_fair_sharing_the_share_decides_whether_a_queue_is_woken() {
    let gates = Gates { requeue_reclaimers_on_borrowing: true, ..reference_gates() };
    let mut w = World::configured(|config| {
        (config.gates, config.fair_sharing) = (gates, Some(FairSharing::default()));
    });
    w.cohort(cohort("co").quota(q(10)));
    for queue in ["a", "b", "c"] {
        w.cq(cq(queue).cohort("co").quota(q(0)).reclaim(Any));
    }
    w.running(job("own", "a").gpu(2), "default");
    w.running(job("e", "b").gpu(5), "default");
    w.submit(job("h", "a").gpu(4));
    assert_eq!(w.cycle(), ["h WaitingForQuota"], "its share would be 600, and that of b is 500");
    w.submit(job("small", "c").gpu(1));
    assert_eq!(w.cycle(), ["small admitted default"]);
    assert_eq!(w.inadmissible("a"), ["h"], "c has less than a");
    w.submit(job("z", "b").gpu(2).priority(10));
    assert_eq!(w.cycle(), ["z admitted default"]);
    assert_eq!(w.heap("a"), ["h"], "b borrowed before");
    assert_eq!(w.cycle(), ["h preempts e:InCohortFairSharing"]);
}

#[test]
fn a_queue_that_uses_its_own_quota_is_not_woken() {
    let mut w = inadmissible(true, LowerPriority);
    w.cq(cq("a").cohort("co").quota(q(0)).reclaim(LowerPriority));
    w.cohort(cohort("co").quota(q(3)));
    w.settle();
    assert_eq!(w.inadmissible("a"), ["j"]);
    w.submit(job("guest", "b").gpu(1));
    assert_eq!(w.cycle(), ["guest admitted default"]);
    assert_eq!(w.inadmissible("a"), ["j"], "it has none that others could borrow");
}

#[test]
fn one_of_lower_priority_than_all_others_of_a_borrowing_queue_wakes_them_too() {
    let mut w = inadmissible(true, LowerPriority);
    w.cohort(cohort("co").quota(q(1)));
    w.submit(job("big", "a").gpu(3).priority(1));
    w.finished("j");
    w.settle();
    assert_eq!(w.inadmissible("a"), ["big"]);
    w.submit(job("cheap", "c").gpu(1).priority(-9));
    assert_eq!(w.cycle(), ["cheap admitted default"]);
    assert_eq!(w.heap("a"), ["big"], "c borrowed before, but holds nothing that big may take");
}

#[test]
fn a_queue_in_a_cohort_that_has_quota_left_of_its_own_is_woken() {
    let mut w = World::configured(|config| {
        config.gates = Gates { requeue_reclaimers_on_borrowing: true, ..reference_gates() };
    });
    w.cohort(cohort("near").parent("root").quota(q(3)));
    w.cohort(cohort("far").parent("root").quota(q(2)));
    w.cq(cq("a").cohort("near").quota(q(0)).reclaim(LowerPriority));
    w.cq(cq("b").cohort("far").quota(q(0)));
    w.running(job("small", "b").gpu(2).priority(-5), "default");
    w.cq(cq("c").cohort("root").quota(q(0)));
    w.running(job("important", "c").gpu(2).priority(9), "default");
    w.submit(job("j", "a").gpu(2).priority(1));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w.submit(job("guest", "b").gpu(1));
    assert_eq!(w.cycle(), ["guest admitted default"]);
    assert_eq!(w.cycle(), ["j preempts small:InCohortReclamation"]);
}
