//! 6.2 Integer model of resources, and the admissibility checks.

use crate::world::{World, cq, job, n, pairs, q};
use sluice_core::{Amount, Reason, Selector, WorkloadKey, WorkloadState};

#[test]
fn s6_2_01_the_total_request_is_per_pod_times_count() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(6)));
    w.submit(job("j", "a").gpu(2).count(3));
    assert_eq!(w.cycle(), ["j admitted default"]);
    let pod_set = &w.admission("j").pod_sets[0];
    assert_eq!((pod_set.count, &pod_set.usage), (3, &vec![(n("gpu"), Amount(6))]));
    assert_eq!(w.used("a"), (6, 0));
}

#[test]
fn s6_2_02_a_negative_request_counts_as_zero() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)));
    w.submit_all([job("negative", "a").gpu(-5), job("j", "a").gpu(2)]);
    assert_eq!(w.settle(), ["negative admitted default", "j admitted default"]);
    assert_eq!((w.used("a"), w.available("a")), ((2, 0), 0));
}

#[test]
fn s6_2_03_a_positive_request_that_is_not_covered_makes_the_workload_inadmissible() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)));
    w.submit(job("j", "a").gpu(1).req("tpu", 1));
    assert_eq!(w.cycle(), ["j NoMatchingFlavor"]);
    assert_eq!(
        w.message("j"),
        "couldn't assign flavors to pod set main: resource tpu unavailable in ClusterQueue"
    );
    assert_eq!(w.inadmissible("a"), ["j"]);
}

#[test]
fn s6_2_04_a_zero_request_that_is_not_covered_is_skipped() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)));
    w.submit(job("j", "a").gpu(1).req("tpu", 0));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(w.flavors("j"), ["gpu=default"]);
}

#[test]
fn s6_2_05_ignore_undeclared_gives_uncovered_resources_neither_quota_nor_flavor() {
    let mut w = World::configured(|config| config.ignore_undeclared = true);
    w.cq(cq("a").quota(q(2)));
    w.submit(job("j", "a").gpu(1).req("tpu", 8));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(w.flavors("j"), ["gpu=default"]);
}

#[test]
fn s6_2_05_without_the_gate_quota_check_strategy_undeclared_is_blocked() {
    let mut w = World::configured(|config| {
        config.ignore_undeclared = true;
        config.gates.quota_check_strategy = false;
    });
    w.cq(cq("a").quota(q(2)));
    w.submit(job("j", "a").gpu(1).req("tpu", 8));
    assert_eq!(w.cycle(), ["j NoMatchingFlavor"]);
}

#[test]
fn s6_2_06_where_pods_is_covered_each_pod_counts_one() {
    let mut w = World::new();
    w.cq(cq("a").flavor("x", &[("pods", q(3))]));
    w.submit_all([job("two", "a").count(2), job("more", "a").count(2)]);
    assert_eq!(w.settle(), ["two admitted x", "more WaitingForQuota"]);
    assert_eq!(
        w.message("more"),
        "couldn't assign flavors to pod set main: insufficient unused quota for pods in flavor x, 1 more needed"
    );
}

#[test]
fn s6_2_06_a_request_for_pods_is_replaced_by_the_count() {
    let mut w = World::new();
    w.cq(cq("a").flavor("x", &[("pods", q(3))]));
    w.submit(job("j", "a").req("pods", 7).count(2));
    assert_eq!(w.cycle(), ["j admitted x"]);
    assert_eq!(w.admission("j").pod_sets[0].usage, [(n("pods"), Amount(2))]);
}

#[test]
fn s6_2_07_where_pods_is_not_covered_pods_are_not_counted() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)));
    w.cq(cq("b").flavor("x", &[("pods", q(1))]));
    w.submit(job("j", "a").gpu(0).count(1000));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert_eq!(w.flavors("j"), ["gpu=default"]);
}

#[test]
fn s6_2_08_a_namespace_that_the_selector_does_not_match_is_misconfigured() {
    let mut w = World::new();
    let team = Selector { match_labels: pairs(&[("team", "red")]), expressions: Vec::new() };
    w.core.set_namespace(&n("ns"), pairs(&[("team", "blue")]));
    w.cq(cq("a").quota(q(2)).with(|spec| spec.namespace_selector = Some(team)));
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j Misconfigured: workload namespace doesn't match ClusterQueue selector"]);
    assert_eq!(w.inadmissible("a"), ["j"]);
    w.core.set_namespace(&n("ns"), pairs(&[("team", "red")]));
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_2_08_no_selector_selects_nothing() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)).with(|spec| spec.namespace_selector = None));
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j Misconfigured: workload namespace doesn't match ClusterQueue selector"]);
}

#[test]
fn s6_2_09_a_workload_that_fails_validation_is_misconfigured_with_the_message() {
    let message = "resources validation failed: requests must not exceed its limits";
    let mut w = World::new();
    w.cq(cq("a").quota(q(2)));
    w.submit(job("j", "a").gpu(1));
    let key = WorkloadKey::new("ns", "j");
    assert!(w.core.waits_validly(&key));
    w.state(
        "j",
        WorkloadState::Pending {
            requeue_at: None,
            keeps_place: false,
            requeued_false: false,
            failed_checks: false,
            invalid: Some(message.to_owned()),
        },
    );
    assert!(!w.core.waits_validly(&key));
    assert_eq!(w.cycle(), [format!("j Misconfigured: {message}")]);
    assert_eq!(w.why("j").reason, Reason::Misconfigured);
    assert_eq!(w.why("j").reason.legacy(), "Inadmissible");
}
