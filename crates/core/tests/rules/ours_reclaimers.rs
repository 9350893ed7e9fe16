//! Reclaimers that are inadmissible when others begin to borrow (gate `RequeueReclaimersOnBorrowing`). Ours.

use crate::world::{World, cohort, cq, job, q, reference_gates};
use sluice_core::Gates;
use sluice_core::PreemptionPolicy::{self, LowerPriority, Never};

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
fn it_happens_once_for_each_time_that_a_queue_begins_to_borrow() {
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
    assert_eq!(w.inadmissible("a"), ["big"], "b borrowed before");
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
