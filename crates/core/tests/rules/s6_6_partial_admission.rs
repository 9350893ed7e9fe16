//! 6.6 Partial admission.

use crate::world::{World, cq, job, q};
use sluice_core::PreemptionPolicy::LowerPriority;

#[test]
fn s6_6_41_partial_admission_takes_the_largest_counts_that_fit() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(6)));
    w.submit(job("j", "a").gpu(1).count(10).min(2));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(w.admission("j").pod_sets[0].count, 6);
    assert_eq!(w.used("a"), (6, 0));
}

#[test]
fn s6_6_42_partial_admission_scales_all_reducible_pod_sets_by_one_factor() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(13)));
    let job = job("j", "a").gpu(1).count(10).min(5).pod_set("fixed").gpu(1).count(1);
    w.submit(job.pod_set("third").gpu(1).count(10).min(0));
    assert_eq!(w.cycle(), ["j admitted default"]);
    // Step 9 of 15: 10 − 5·9/15 and 10 − 10·9/15; at step 8 it is 8 + 1 + 5.
    let counts: Vec<i64> = w.admission("j").pod_sets.iter().map(|pod_set| pod_set.count).collect();
    assert_eq!(counts, [7, 1, 4]);
}

#[test]
fn s6_6_43_below_the_minimum_nothing_is_admitted() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(6)));
    w.running(job("r", "a").gpu(1), "default");
    w.submit(job("j", "a").gpu(1).count(10).min(6));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
    w.finished("r");
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(w.admission("j").pod_sets[0].count, 6);
}

#[test]
fn s6_6_44_a_full_admission_after_a_preemption_goes_before_a_partial_one() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(6)).within(LowerPriority));
    w.running(job("v", "a").gpu(2).priority(-1), "default");
    w.submit(job("j", "a").gpu(1).count(6).min(1));
    assert_eq!(w.cycle(), ["j preempts v:InClusterQueue"]);
}

#[test]
fn s6_6_45_partial_admission_may_preempt() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(6)).within(LowerPriority));
    w.running(job("v", "a").gpu(2).priority(-1), "default");
    w.running(job("high", "a").gpu(2).priority(9), "default");
    w.submit(job("j", "a").gpu(1).count(6).min(1));
    assert_eq!(w.cycle(), ["j preempts v:InClusterQueue"]);
    w.finished("v");
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(w.admission("j").pod_sets[0].count, 4);
}

#[test]
fn s6_6_46_without_the_gate_partial_admission_nothing_is_reduced() {
    let mut w = World::gated(|gates| gates.partial_admission = false);
    w.cq(cq("a").quota(q(6)));
    w.submit(job("j", "a").gpu(1).count(10).min(2));
    assert_eq!(w.cycle(), ["j ExceedsMaxQuota"]);
}
