//! Physical capacity (gate `Hotswap`, ours): a limit across all queues beside their quotas, and for which workloads room is kept.

use crate::world::{World, cq, job, n, q};
use sluice_core::PreemptionPolicy::LowerPriority;
use sluice_core::{AdmissionFairSharing, Amount, Displaced, Name, Time, WorkloadKey, WorkloadState};

fn limit(w: &mut World, flavor: &str, gpu: i64) {
    w.core.set_capacity(&n(flavor), &[(n("gpu"), Amount(gpu))]);
}

fn displace(w: &mut World, all: &[(&str, i64)]) {
    let claim = |gpu: i64| -> Vec<(Name, Name, Amount)> { vec![(n("default"), n("gpu"), Amount(gpu))] };
    let all: Vec<_> = all
        .iter()
        .map(|(name, gpu)| Displaced { key: WorkloadKey::new("ns", *name), needs: claim(*gpu) })
        .collect();
    w.core.set_displaced(&all);
}

#[test]
fn quota_and_capacity_are_both_needed_and_the_message_says_which_is_missing() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(10)));
    limit(&mut w, "default", 6);
    w.submit_all([job("x", "a").gpu(4), job("y", "a").gpu(4)]);
    assert_eq!(w.settle(), ["x admitted default", "y WaitingForCapacity"]);
    let text = "couldn't assign flavors to pod set main: insufficient capacity of healthy nodes for gpu in flavor default, 2 more needed";
    assert_eq!(w.message("y"), text);
    assert_eq!(w.why("y").reason.legacy(), "Pending");
}

#[test]
fn capacity_is_shared_by_queues_that_share_no_cohort() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)));
    w.cq(cq("b").quota(q(4)));
    limit(&mut w, "default", 6);
    w.submit_all([job("x", "a").gpu(4), job("y", "b").gpu(4)]);
    let lines = w.settle();
    assert!(lines.contains(&"x admitted default".to_owned()), "{lines:?}");
    assert_eq!(w.inadmissible("b"), ["y"]);
    w.finished("x");
    assert_eq!(w.settle(), ["y admitted default"], "what is freed in one tree is tried in the other");
}

#[test]
fn more_capacity_lets_the_inadmissible_be_tried_again_and_less_evicts_nothing() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(10)));
    limit(&mut w, "default", 0);
    w.submit(job("x", "a").gpu(4));
    assert_eq!(w.settle(), ["x WaitingForCapacity"]);
    limit(&mut w, "default", 4);
    assert_eq!(w.settle(), ["x admitted default"]);
    limit(&mut w, "default", 1);
    assert!(w.cycle().is_empty());
    assert_eq!(w.used("a"), (4, 0));
    w.core.set_capacity(&n("default"), &[]);
    w.submit(job("y", "a").gpu(6));
    assert_eq!(w.settle(), ["y admitted default"], "without a limit quota alone decides");
}

#[test]
fn a_flavor_without_room_is_passed_over_for_the_next_one() {
    let mut w = World::new();
    w.cq(cq("a").flavor("default", &[("gpu", q(4))]).flavor("spare", &[("gpu", q(4))]));
    limit(&mut w, "default", 2);
    w.submit(job("x", "a").gpu(4));
    assert_eq!(w.settle(), ["x admitted spare"]);
}

#[test]
fn nothing_is_preempted_for_quota_where_capacity_would_still_be_missing() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(LowerPriority));
    w.running(job("low", "a").gpu(4), "default");
    limit(&mut w, "default", 3);
    w.submit(job("high", "a").gpu(4).priority(1));
    assert_eq!(w.settle(), ["high WaitingForCapacity"]);
    limit(&mut w, "default", 4);
    assert_eq!(w.cycle(), ["high preempts low:InClusterQueue"]);
}

#[test]
fn a_displaced_workload_goes_first_and_its_room_is_kept() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(10)));
    w.cq(cq("b").quota(q(10)));
    w.running(job("victim", "b").gpu(4), "default");
    limit(&mut w, "default", 6);
    displace(&mut w, &[("d", 6)]);
    w.submit(job("d", "a").gpu(6).at(9));
    w.submit(job("older", "a").gpu(2).priority(7).at(1));
    w.submit(job("other", "b").gpu(2).at(1));
    let lines = w.settle();
    assert!(lines.iter().all(|line| line.ends_with("WaitingForCapacity")), "{lines:?}");
    assert_eq!(
        lines.iter().find(|line| line.contains("older") || line.starts_with("d ")).unwrap(),
        "d WaitingForCapacity"
    );
    w.finished("victim");
    let lines = w.settle();
    assert!(lines.contains(&"d admitted default".to_owned()), "{lines:?}");
    assert_eq!(w.used("b"), (0, 0));
    w.finished("d");
    displace(&mut w, &[]);
    let lines = w.settle();
    for name in ["older", "other"] {
        assert!(lines.contains(&format!("{name} admitted default")), "{lines:?}");
    }
}

#[test]
fn of_several_displaced_the_first_has_its_room_before_the_second() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(20)));
    w.cq(cq("b").quota(q(20)));
    limit(&mut w, "default", 6);
    displace(&mut w, &[("d1", 4), ("d2", 4)]);
    w.submit_all([job("d2", "a").gpu(4), job("d1", "b").gpu(4)]);
    let lines = w.settle();
    assert!(lines.contains(&"d1 admitted default".to_owned()), "{lines:?}");
    assert_eq!(w.inadmissible("a"), ["d2"]);
    w.finished("d1");
    assert_eq!(w.settle(), ["d2 admitted default"]);
}

#[test]
fn a_displaced_workload_is_tried_after_its_backoff_although_its_equals_have_no_room() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(10)));
    limit(&mut w, "default", 4);
    displace(&mut w, &[("x", 4)]);
    let until = Time::from_seconds(100_060);
    w.submit(job("x", "a").gpu(4).with(|spec| {
        spec.state = WorkloadState::Pending {
            requeue_at: Some(until),
            keeps_place: false,
            requeued_false: false,
            failed_checks: false,
            invalid: None,
        };
    }));
    w.submit(job("y", "a").gpu(4));
    assert_eq!(w.settle(), ["y WaitingForCapacity"], "the room is kept for x");
    w.pass(120);
    assert_eq!(w.settle(), ["x admitted default"]);
}

#[test]
fn an_equal_of_another_local_queue_does_not_lock_a_displaced_workload_out() {
    let mut w = World::configured(|config| {
        config.admission_fair_sharing = Some(AdmissionFairSharing {
            half_life_seconds: 600,
            sampling_interval_seconds: 60,
            resource_weights: Vec::new(),
        });
    });
    w.cq(cq("a").quota(q(10)).with(|spec| spec.usage_based_fair_sharing = true));
    w.lq("used", "a", |spec| spec.consumed = vec![(n("gpu"), 9.0)]);
    w.lq("unused", "a", |_| {});
    limit(&mut w, "default", 4);
    displace(&mut w, &[("x", 4)]);
    w.submit_all([job("x", "used").gpu(4), job("y", "unused").gpu(4)]);
    let lines = w.settle();
    assert_eq!(lines, ["y WaitingForCapacity", "x admitted default"]);
}

#[test]
fn what_can_never_be_met_keeps_no_others_waiting() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(20)));
    limit(&mut w, "default", 6);
    displace(&mut w, &[("huge", 9)]);
    w.submit_all([job("huge", "a").gpu(9), job("small", "a").gpu(6)]);
    assert_eq!(w.settle(), ["huge WaitingForCapacity", "small admitted default"]);
}

#[test]
fn room_is_kept_only_while_the_displaced_workload_waits_in_an_active_queue() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(20)));
    w.cq(cq("b").quota(q(20)).with(|spec| spec.stop_policy = sluice_core::StopPolicy::Hold));
    limit(&mut w, "default", 6);
    displace(&mut w, &[("stopped", 6), ("gone", 6)]);
    w.submit_all([job("stopped", "b").gpu(6), job("x", "a").gpu(6)]);
    assert_eq!(w.settle(), ["x admitted default"]);
}

#[test]
fn the_most_that_a_queue_could_ever_use_is_its_own_quota_and_what_it_could_borrow() {
    let mut w = World::new();
    w.cq(cq("alone").quota(q(4)));
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(10).lend(3)));
    w.cq(cq("c").cohort("co").quota(q(1).borrow(2)));
    let most = |w: &World, queue: &str| w.core.potential_available(queue, "default", "gpu");
    assert_eq!(most(&w, "alone"), Some(Amount(4)));
    assert_eq!(most(&w, "a"), Some(Amount(8)), "its own, what b lends, and what c has");
    assert_eq!(most(&w, "c"), Some(Amount(3)));
    w.cq(cq("alone").quota(q(2)));
    assert_eq!(most(&w, "alone"), Some(Amount(2)));
    assert_eq!(most(&w, "missing"), None);
    assert_eq!(w.core.potential_available("alone", "default", "cpu"), None);
    assert_eq!(w.core.nominal("alone", "default", "gpu"), Some(Amount(2)));
    assert_eq!(w.core.nominal("b", "default", "gpu"), Some(Amount(10)));
    assert_eq!(w.core.nominal("alone", "default", "cpu"), None);
}

#[test]
fn what_would_be_available_without_some_is_known() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(4)));
    w.submit_all([job("x", "a").gpu(6), job("y", "b").gpu(2)]);
    w.settle();
    let mut trial = w.core.snapshot();
    let available =
        |trial: &sluice_core::Snapshot, w: &World| trial.available(&w.core, "a", "default", "gpu");
    assert_eq!(available(&trial, &w), Some(Amount(0)));
    trial.release(&w.core, &WorkloadKey::new("ns", "x"));
    assert_eq!(available(&trial, &w), Some(Amount(6)), "what it borrowed is back, too");
    trial.release(&w.core, &WorkloadKey::new("ns", "y"));
    trial.release(&w.core, &WorkloadKey::new("ns", "missing"));
    assert_eq!(available(&trial, &w), Some(Amount(8)));
    assert_eq!(w.used("a"), (6, 2), "it was a trial");
}
