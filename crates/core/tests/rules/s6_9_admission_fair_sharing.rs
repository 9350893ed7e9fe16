//! 6.9 Admission fair sharing: the usage of LocalQueues orders a ClusterQueue.

use crate::world::{Cq, NS, World, cq, job, n, q};
use sluice_core::{AdmissionFairSharing, CheckRule, LocalQueueStatus, Weight, WorkloadKey, WorkloadState};

const HALF_LIFE: i64 = 600;

fn configured(half_life: i64, change: impl FnOnce(&mut AdmissionFairSharing)) -> World {
    World::configured(|config| {
        let mut sharing = AdmissionFairSharing {
            half_life_seconds: half_life,
            sampling_interval_seconds: 60,
            resource_weights: Vec::new(),
        };
        change(&mut sharing);
        config.admission_fair_sharing = Some(sharing);
    })
}

fn by_usage(queue: Cq) -> Cq {
    queue.with(|spec| spec.usage_based_fair_sharing = true)
}

/// The ClusterQueue `a` with the LocalQueues `one` and `two`, which consumed this much.
fn two(w: &mut World, one: f64, two: f64) {
    w.cq(by_usage(cq("a").quota(q(100))));
    w.lq("one", "a", |spec| spec.consumed = vec![(n("gpu"), one)]);
    w.lq("two", "a", |spec| spec.consumed = vec![(n("gpu"), two)]);
}

fn status(w: &World, name: &str) -> LocalQueueStatus {
    w.core.local_queue_status(NS, name).unwrap()
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-9
}

#[test]
fn s6_9_01_it_needs_the_configuration_the_gate_and_the_queues_mode() {
    let order = |config: bool, gate: bool, mode: bool| {
        let mut w = World::configured(|all| {
            all.gates.admission_fair_sharing = gate;
            all.admission_fair_sharing = config.then(|| AdmissionFairSharing {
                half_life_seconds: HALF_LIFE,
                sampling_interval_seconds: 60,
                resource_weights: Vec::new(),
            });
        });
        w.cq(cq("a").quota(q(1)).with(|spec| spec.usage_based_fair_sharing = mode));
        w.lq("one", "a", |spec| spec.consumed = vec![(n("gpu"), 9.0)]);
        w.lq("two", "a", |_| {});
        w.submit_all([job("first", "one").gpu(1), job("second", "two").gpu(1)]);
        w.cycle().pop().unwrap()
    };
    assert_eq!(order(true, true, true), "second admitted default");
    for (config, gate, mode) in [(false, true, true), (true, false, true), (true, true, false)] {
        assert_eq!(order(config, gate, mode), "first admitted default", "{config} {gate} {mode}");
    }
}

#[test]
fn s6_9_02_lower_usage_goes_before_priority_and_before_the_sticky_preemptor() {
    let mut w = configured(HALF_LIFE, |_| {});
    let queue = cq("a").quota(q(2)).within(sluice_core::PreemptionPolicy::LowerPriority);
    w.cq(by_usage(queue));
    w.lq("one", "a", |spec| spec.consumed = vec![(n("gpu"), 9.0)]);
    w.lq("two", "a", |_| {});
    w.holding(job("v", "one").gpu(2).priority(-9), "a", "default", |_| {});
    w.submit(job("p", "one").gpu(2).priority(5));
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue"]);
    w.submit(job("modest", "two").gpu(1).priority(-8));
    assert_eq!(w.heap("a"), ["modest", "p"]);
    w.submit(job("urgent", "one").gpu(1).priority(9));
    assert_eq!(w.heap("a"), ["modest", "p", "urgent"], "of one LocalQueue the sticky one is first");
}

#[test]
fn s6_9_03_usage_is_weighted_by_resource_and_divided_by_the_local_queues_weight() {
    let mut w =
        configured(HALF_LIFE, |config| config.resource_weights = vec![(n("gpu"), 3.0), (n("cpu"), 0.5)]);
    w.cq(by_usage(cq("a").quota(q(100))));
    w.lq("one", "a", |spec| {
        spec.consumed = vec![(n("gpu"), 4.0), (n("cpu"), 8.0), (n("memory"), 1.0)];
        spec.fair_weight = Weight::from_milli(2000);
    });
    assert!(near(status(&w, "one").fair_usage, (3.0 * 4.0 + 0.5 * 8.0 + 1.0) / 2.0));
}

#[test]
fn s6_9_04_weight_zero_is_sorted_last() {
    let mut w = configured(HALF_LIFE, |_| {});
    two(&mut w, 0.0, 50.0);
    w.lq("one", "a", |spec| spec.fair_weight = Weight::ZERO);
    w.submit_all([job("first", "one").gpu(1).priority(9), job("second", "two").gpu(1)]);
    assert!(status(&w, "one").fair_usage.is_infinite());
    assert_eq!(w.heap("a"), ["second", "first"]);
}

#[test]
fn s6_9_05_consumed_decays_by_half_per_half_life_towards_the_present_usage() {
    let mut w = configured(HALF_LIFE, |_| {});
    two(&mut w, 8.0, 0.0);
    w.holding(job("r", "two").gpu(4), "a", "default", |_| {});
    let now = w.now();
    w.core.wake(now);
    assert_eq!(
        w.core.next_wakeup(),
        Some(sluice_core::Time(now.0 + 60_000_000_000)),
        "the sampling interval"
    );
    w.pass(HALF_LIFE);
    w.core.wake(w.now());
    let consumed = |w: &World, name| status(w, name).consumed[0].1;
    assert!(near(consumed(&w, "one"), 4.0));
    assert!(near(consumed(&w, "two"), 2.0));
    w.pass(HALF_LIFE);
    w.core.wake(w.now());
    assert!(near(consumed(&w, "one"), 2.0));
    assert!(near(consumed(&w, "two"), 3.0));
    assert_eq!(status(&w, "two").consumed_at, Some(w.now()));
}

#[test]
fn s6_9_06_only_admitted_workloads_count_as_present_usage_and_cpu_in_cores() {
    let mut w = configured(HALF_LIFE, |_| {});
    w.cq(by_usage(cq("a").flavor("x", &[("cpu", q(100_000))])));
    w.holding(job("admitted", "a").req("cpu", 2500), "a", "x", |_| {});
    w.holding(job("reserved", "a").req("cpu", 9000), "a", "x", |state| {
        if let WorkloadState::Reserved { admitted, .. } = state {
            *admitted = false;
        }
    });
    w.core.wake(w.now());
    w.pass(HALF_LIFE);
    w.core.wake(w.now());
    assert!(near(status(&w, "a").consumed[0].1, 1.25));
}

/// What one gpu costs at once: the share that one sampling interval would add.
fn penalty() -> f64 {
    1.0 - libm::pow(0.5, 60.0 / 600.0)
}

/// A queue whose admissions wait for a check, so that the penalty is seen.
fn checked(w: &mut World) {
    w.core.set_check(&n("check"), true);
    let check = CheckRule { name: n("check"), on_flavors: Vec::new() };
    w.cq(by_usage(cq("a").quota(q(100)).with(|spec| spec.admission_checks = vec![check])));
    w.lq("one", "a", |_| {});
    w.lq("two", "a", |_| {});
}

#[test]
fn s6_9_07_an_entry_penalty_counts_from_the_moment_of_the_admission() {
    let mut w = configured(HALF_LIFE, |_| {});
    checked(&mut w);
    w.submit_all([job("first", "one").gpu(3), job("next", "one").gpu(1), job("other", "two").gpu(1)]);
    assert_eq!(w.cycle(), ["first admitted default"]);
    assert!(near(status(&w, "one").fair_usage, 3.0 * penalty()));
    assert!(status(&w, "one").consumed.iter().all(|(_, value)| near(*value, 0.0)), "not consumed yet");
    assert_eq!(w.heap("a"), ["other", "next"]);
    assert_eq!(w.cycle(), ["other admitted default"]);
}

#[test]
fn s6_9_08_the_penalty_becomes_consumed_when_the_workload_is_admitted() {
    let mut w = configured(HALF_LIFE, |_| {});
    checked(&mut w);
    w.submit(job("j", "one").gpu(3));
    assert_eq!(w.cycle(), ["j admitted default"]);
    w.holding(job("j", "one").gpu(3), "a", "default", |_| {});
    assert!(near(status(&w, "one").fair_usage, 3.0 * penalty()));
    assert!(near(status(&w, "one").consumed[0].1, 3.0 * penalty()));
}

#[test]
fn s6_9_09_the_penalty_is_taken_back_when_the_workload_is_not_admitted_after_all() {
    type Undo = (&'static str, fn(&mut World));
    let undo: [Undo; 4] = [
        ("the write failed", |w| w.core.admission_failed(&WorkloadKey::new(NS, "j"), w.now())),
        ("it lost its reservation", |w| w.released("j")),
        ("it was deactivated", |w| w.state("j", WorkloadState::Inactive)),
        ("it was deleted or finished", |w| w.finished("j")),
    ];
    for (what, undo) in undo {
        let mut w = configured(HALF_LIFE, |_| {});
        checked(&mut w);
        w.submit(job("j", "one").gpu(3));
        assert_eq!(w.cycle(), ["j admitted default"]);
        undo(&mut w);
        assert!(near(status(&w, "one").fair_usage, 0.0), "{what}: {:?}", status(&w, "one"));
    }
}

#[test]
fn s6_9_10_without_a_half_life_nothing_is_remembered() {
    let mut w = configured(0, |_| {});
    two(&mut w, 8.0, 0.0);
    w.holding(job("r", "two").gpu(4), "a", "default", |_| {});
    w.core.wake(w.now());
    w.pass(61);
    w.core.wake(w.now());
    assert!(status(&w, "one").consumed.is_empty() && status(&w, "two").consumed.is_empty());
}

#[test]
fn s6_9_11_the_ledger_is_seeded_from_the_status_once() {
    let mut w = configured(HALF_LIFE, |_| {});
    two(&mut w, 8.0, 0.0);
    w.lq("one", "a", |spec| spec.consumed = vec![(n("gpu"), 99.0)]);
    assert!(near(status(&w, "one").consumed[0].1, 8.0));
}

#[test]
fn s6_9_12_a_queue_without_the_mode_charges_no_penalty() {
    let mut w = configured(HALF_LIFE, |_| {});
    w.cq(cq("a").quota(q(100)));
    w.submit(job("j", "a").gpu(3));
    assert_eq!(w.cycle(), ["j admitted default"]);
    assert!(near(status(&w, "a").fair_usage, 0.0));
}

#[test]
fn s6_9_13_the_usage_of_local_queues_that_nothing_happens_to_is_not_computed_again() {
    let mut w = configured(HALF_LIFE, |_| {});
    two(&mut w, 9.0, 1.0);
    w.cq(cq("other").quota(q(1)));
    for number in 0..1000 {
        w.lq(&format!("idle-{number}"), "other", |_| {});
    }
    w.submit_all([job("first", "one").gpu(1), job("second", "two").gpu(1)]);
    assert_eq!(w.cycle(), ["second admitted default"]);
    let before = w.core.stats().local_usages;
    assert_eq!(w.cycle(), ["first admitted default"]);
    assert!(w.core.stats().local_usages - before <= 2, "of what was charged");
    // What happens to one counts.
    w.lq("two", "a", |spec| spec.fair_weight = Weight::ZERO);
    w.submit_all([job("third", "two").gpu(1), job("fourth", "one").gpu(1)]);
    assert_eq!(w.cycle(), ["fourth admitted default"]);
}
