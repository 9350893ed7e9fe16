//! 6.4 Queues and ordering: inadmissible workloads, requeueing, equivalence hashing, flushes.

use crate::world::{NO_LONGER_FITS, NS, World, cohort, cq, job, lq, n, pairs, q};
use sluice_core::{
    CheckRule, Detail, LocalQueueInactive, LocalQueueSpec, PreemptionPolicy, QueueingStrategy, Reason,
    Selector, StopPolicy, Time, WhenCanPreempt, WorkloadKey, WorkloadState,
};

/// One queue, `a`, with room for one gpu.
fn one() -> World {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)));
    w
}

/// `a` is full, and `big` is inadmissible.
fn inadmissible() -> World {
    let mut w = World::new();
    w.cohort(cohort("co"));
    w.cq(cq("a").cohort("co").quota(q(4)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.running(job("r", "a").gpu(1).count(3), "default");
    w.submit(job("big", "a").gpu(2).count(2));
    assert_eq!(w.cycle(), ["big WaitingForQuota"]);
    assert_eq!(w.inadmissible("a"), ["big"]);
    w
}

#[test]
fn s6_4_12_an_inadmissible_workload_stays_so_when_nothing_relevant_changed() {
    let mut w = inadmissible();
    w.submit(job("big", "a").gpu(2).count(2));
    assert_eq!(w.inadmissible("a"), ["big"]);
    assert!(w.cycle().is_empty());
}

#[test]
fn s6_4_13_a_relevant_change_takes_it_out_of_inadmissible() {
    let mut w = inadmissible();
    w.submit(job("big", "a").gpu(2).count(1));
    assert_eq!(w.heap("a"), ["big"], "pods were reclaimed");
    assert_eq!(w.cycle(), ["big WaitingForQuota"]);
    w.submit(job("big", "a").gpu(2).count(1).priority(3));
    assert_eq!(w.heap("a"), ["big"], "its priority was boosted");
    assert_eq!(w.cycle(), ["big WaitingForQuota"]);
    w.submit(job("big", "a").gpu(1).priority(3).with(|spec| spec.generation = 2));
    assert_eq!(w.heap("a"), ["big"], "its spec changed");
    assert_eq!(w.cycle(), ["big admitted default"]);
}

fn backoff(requeue_at: Option<Time>, requeued_false: bool) -> WorkloadState {
    WorkloadState::Pending {
        requeue_at,
        keeps_place: false,
        requeued_false,
        failed_checks: false,
        invalid: None,
    }
}

#[test]
fn s6_4_14_until_its_backoff_expires_a_workload_is_inadmissible() {
    let mut w = one();
    let until = Time(w.now().0 + 10_000_000_000);
    w.submit(job("j", "a").gpu(1));
    w.state("j", backoff(Some(until), false));
    assert_eq!((w.inadmissible("a"), w.core.next_wakeup()), (vec!["j".to_owned()], Some(until)));
    w.pass(8);
    assert!(w.cycle().is_empty());
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_4_15_while_requeued_is_false_the_backoff_has_not_expired() {
    let mut w = one();
    w.submit(job("j", "a").gpu(1));
    w.state("j", backoff(None, true));
    w.pass(1_000_000);
    assert!(w.cycle().is_empty());
    assert_eq!((w.inadmissible("a"), w.core.next_wakeup()), (vec!["j".to_owned()], None));
    w.state("j", backoff(None, false));
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_4_16_a_flush_leaves_alone_whose_backoff_has_not_expired() {
    let mut w = inadmissible();
    w.submit(job("later", "a").gpu(1));
    w.state("later", backoff(Some(Time(i64::MAX)), false));
    w.submit(job("never", "a").gpu(1));
    w.state("never", backoff(None, true));
    w.finished("r");
    assert_eq!(
        (w.heap("a"), w.inadmissible("a")),
        (vec!["big".to_owned()], vec!["later".to_owned(), "never".to_owned()])
    );
}

#[test]
fn s6_4_17_a_strict_fifo_head_that_does_not_fit_stays_in_the_heap_and_blocks() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).strict());
    w.running(job("r", "a").gpu(1), "default");
    w.submit_all([job("big", "a").gpu(4), job("small", "a").gpu(1)]);
    for _ in 0..3 {
        assert_eq!(w.cycle(), ["big WaitingForQuota"]);
    }
    assert_eq!((w.heap("a"), w.inadmissible("a")), (vec!["big".to_owned(), "small".to_owned()], vec![]));
}

#[test]
fn s6_4_17_even_a_strict_fifo_head_that_can_never_fit_blocks() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).strict());
    w.submit_all([job("never", "a").gpu(5), job("small", "a").gpu(1)]);
    assert_eq!(w.cycle(), ["never ExceedsMaxQuota"]);
    assert_eq!(w.cycle(), ["never ExceedsMaxQuota"]);
}

/// `first` is to wait until then in its place, as its writes have to wait.
fn pause(w: &mut World, until: i64) {
    let state = WorkloadState::Pending {
        requeue_at: Some(Time::from_seconds(until)),
        keeps_place: true,
        requeued_false: false,
        failed_checks: false,
        invalid: None,
    };
    w.state("first", state);
}

#[test]
fn s6_4_17_a_strict_fifo_head_whose_writes_wait_keeps_its_place() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).strict());
    w.submit(job("more", "a").gpu(1).priority(1));
    w.submit_all([job("first", "a").gpu(1), job("next", "a").gpu(1)]);
    let until = w.now().0 / 1_000_000_000 + 4;
    pause(&mut w, until);
    assert_eq!(w.inadmissible("a"), ["first"]);
    assert_eq!(w.cycle(), ["more admitted default"], "one of higher priority is before it");
    assert!(w.cycle().is_empty() && w.cycle().is_empty());
    assert_eq!(w.cycle(), ["first admitted default"]);
    assert_eq!(w.cycle(), ["next admitted default"]);
}

#[test]
fn s6_4_17_what_waits_in_its_place_holds_up_no_best_effort_queue_and_none_once_it_is_gone() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).strict());
    w.submit_all([job("first", "a").gpu(1), job("next", "a").gpu(1), job("last", "a").gpu(1)]);
    pause(&mut w, 1_000_000_000);
    assert!(w.cycle().is_empty());
    w.cq(cq("a").quota(q(4)));
    assert_eq!(w.cycle(), ["next admitted default"]);
    w.cq(cq("a").quota(q(4)).strict());
    assert!(w.cycle().is_empty());
    w.finished("first");
    assert_eq!(w.cycle(), ["last admitted default"]);
}

#[test]
fn s6_4_18_a_namespace_mismatch_does_not_block_a_strict_fifo_queue() {
    let mut w = World::new();
    let team = Selector { match_labels: pairs(&[("team", "red")]), expressions: Vec::new() };
    w.core.set_namespace(&n(NS), pairs(&[("team", "red")]));
    w.cq(cq("a").quota(q(4)).strict().with(|spec| spec.namespace_selector = Some(team)));
    let mut stranger = job("stranger", "guest").gpu(1);
    stranger.spec.key = WorkloadKey::new("elsewhere", "stranger");
    w.core.set_local_queue(LocalQueueSpec { namespace: n("elsewhere"), ..lq("guest", "a") });
    w.submit_all([stranger, job("next", "a").gpu(1)]);
    assert_eq!(w.cycle(), ["stranger Misconfigured: workload namespace doesn't match ClusterQueue selector"]);
    assert_eq!(w.inadmissible("a"), ["stranger"]);
    // Nor does it while its writes have to wait.
    let paused = WorkloadState::Pending {
        requeue_at: Some(Time::from_seconds(w.now().0 / 1_000_000_000 + 2)),
        keeps_place: true,
        requeued_false: false,
        failed_checks: false,
        invalid: None,
    };
    w.state("stranger", paused);
    assert_eq!(w.cycle(), ["next admitted default"]);
    w.state("stranger", WorkloadState::PENDING);
    w.cycle();
    w.finished("next");
    assert_eq!(w.inadmissible("a"), ["stranger"], "a flush takes only those whose namespace matches");
    w.core.set_namespace(&n("elsewhere"), pairs(&[("team", "red")]));
    assert_eq!(w.cycle(), ["stranger admitted default"]);
}

#[test]
fn s6_4_19_a_best_effort_head_that_does_not_fit_is_inadmissible_and_does_not_block() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)));
    w.running(job("r", "a").gpu(1), "default");
    w.submit_all([job("big", "a").gpu(4), job("small", "a").gpu(1)]);
    assert_eq!(w.cycle(), ["big WaitingForQuota"]);
    assert_eq!(w.inadmissible("a"), ["big"]);
    assert_eq!(w.cycle(), ["small admitted default"]);
}

#[test]
fn s6_4_20_a_skipped_head_is_requeued_immediately() {
    let mut w = World::new();
    w.cq(cq("a").cohort("co").quota(q(0)));
    w.cq(cq("b").cohort("co").quota(q(0)));
    w.cohort(cohort("co").quota(q(4)));
    w.submit_all([job("j1", "a").gpu(3), job("j2", "b").gpu(3)]);
    assert_eq!(w.cycle(), ["j1 admitted default".to_owned(), format!("j2 {NO_LONGER_FITS}")]);
    assert_eq!(w.heap("b"), ["j2"]);
    assert_eq!(w.cycle(), ["j2 WaitingForQuota"]);
    assert_eq!(w.inadmissible("b"), ["j2"]);
}

#[test]
fn s6_4_21_a_head_that_waits_for_its_victims_is_requeued_immediately() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(PreemptionPolicy::LowerPriority));
    w.running(job("v", "a").gpu(4), "default");
    w.submit(job("p", "a").gpu(4).priority(5));
    assert_eq!(w.cycle(), ["p preempts v:InClusterQueue"]);
    assert_eq!(w.heap("a"), ["p"]);
}

#[test]
fn s6_4_22_a_head_without_candidates_is_inadmissible() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(4)).within(PreemptionPolicy::LowerPriority));
    w.running(job("r", "a").gpu(4), "default");
    w.submit(job("equal", "a").gpu(4));
    assert_eq!(w.cycle(), ["equal WaitingForQuota"]);
    assert_eq!(w.inadmissible("a"), ["equal"]);
}

#[test]
fn s6_4_23_a_head_with_flavors_left_to_try_goes_back_to_the_heap() {
    let mut w = World::new();
    let queue = cq("a").flavor("x", &[("gpu", q(4))]).flavor("y", &[("gpu", q(4))]);
    w.cq(queue
        .within(PreemptionPolicy::LowerPriority)
        .with(|spec| spec.fungibility.when_can_preempt = WhenCanPreempt::MayStopSearch));
    w.running(job("r", "a").gpu(4), "x");
    w.submit(job("j", "a").gpu(4).priority(1).with(|spec| spec.preemption_gated = true));
    assert_eq!(w.cycle(), ["j gated"]);
    assert!(w.report.scanning);
    assert_eq!(w.heap("a"), ["j"]);
    assert_eq!(w.cycle(), ["j admitted y"]);
}

/// `a` is full; three equal workloads wait, one of them through another LocalQueue, and one of another priority.
fn equals(w: &mut World) {
    w.lq("other", "a", |_| {});
    w.running(job("r", "a").gpu(1), "default");
    w.submit_all([
        job("one", "a").gpu(1),
        job("two", "a").gpu(1),
        job("three", "other").gpu(1),
        job("low", "a").gpu(1).priority(-1),
    ]);
}

#[test]
fn s6_4_24_when_one_is_inadmissible_all_equal_ones_are_without_evaluation() {
    let mut w = one();
    equals(&mut w);
    let before = w.core.stats().evaluations;
    assert_eq!(w.cycle(), ["one WaitingForQuota"]);
    assert_eq!(w.core.stats().evaluations, before + 1);
    assert_eq!(
        (w.inadmissible("a").len(), w.heap("a")),
        (3, vec!["low".to_owned()]),
        "another priority is not equal"
    );
    let bypassed: Vec<_> =
        w.report.bypassed.iter().map(|(key, why)| (&*key.name, why.reason, why.message())).collect();
    let reported = "Bypassed scheduling evaluation because an equivalent workload recently failed";
    assert_eq!(
        bypassed,
        [
            ("two", Reason::WaitingForQuota, reported.to_owned()),
            ("three", Reason::WaitingForQuota, reported.to_owned())
        ]
    );
    assert_eq!(w.core.last_decision(&WorkloadKey::new(NS, "two")).unwrap().detail, Detail::Bypassed);
}

#[test]
fn s6_4_25_a_later_arrival_that_is_equal_goes_straight_to_inadmissible() {
    let mut w = one();
    equals(&mut w);
    w.settle();
    w.submit(job("four", "other").gpu(1));
    w.submit(job("differs", "other").gpu(1).pod(|pod_set| pod_set.shape = 7));
    assert_eq!(w.heap("a"), ["differs"], "the pod spec's shape is part of the hash, the LocalQueue is not");
    assert!(w.inadmissible("a").contains(&"four".to_owned()));
}

#[test]
fn s6_4_26_a_flush_forgets_what_failed() {
    let mut w = one();
    equals(&mut w);
    w.settle();
    w.finished("r");
    w.submit(job("four", "a").gpu(1));
    assert_eq!(w.heap("a"), ["one", "two", "three", "four", "low"]);
    assert_eq!(w.cycle(), ["one admitted default"]);
}

#[test]
fn s6_4_27_a_strict_fifo_queue_makes_no_equals_inadmissible() {
    let mut w = World::new();
    w.cq(cq("a").quota(q(1)).strict());
    equals(&mut w);
    assert_eq!(w.cycle(), ["one WaitingForQuota"]);
    assert_eq!(w.heap("a"), ["one", "two", "three", "low"]);
}

#[test]
fn s6_4_27_without_the_gate_each_equal_workload_is_evaluated() {
    let mut w = World::gated(|gates| gates.scheduling_equivalence_hashing = false);
    w.cq(cq("a").quota(q(1)));
    equals(&mut w);
    assert_eq!(w.cycle(), ["one WaitingForQuota"]);
    assert_eq!(w.cycle(), ["two WaitingForQuota"]);
    assert_eq!(w.inadmissible("a"), ["one", "two"]);
}

#[test]
fn s6_4_28_what_frees_or_changes_capacity_flushes_the_tree() {
    type Trigger = (&'static str, fn(&mut World));
    let triggers: [Trigger; 11] = [
        ("a workload finished or was deleted", |w| w.finished("r")),
        ("a workload lost its reservation", |w| w.released("r")),
        ("a workload was deactivated", |w| w.state("r", WorkloadState::Inactive)),
        ("pods were reclaimed", |w| w.running(job("r", "a").gpu(1).count(2), "default")),
        ("a priority changed", |w| w.running_since(job("r", "a").gpu(1).count(3).priority(-5), "default", 1)),
        ("a ClusterQueue was created", |w| w.cq(cq("new").cohort("co").quota(q(1)))),
        ("a ClusterQueue changed", |w| w.cq(cq("b").cohort("co").quota(q(1)))),
        ("the ClusterQueue's preemption changed", |w| {
            w.cq(cq("a").cohort("co").quota(q(4)).within(PreemptionPolicy::LowerPriority));
        }),
        ("a Cohort changed", |w| w.cohort(cohort("co").quota(q(0)))),
        ("a Cohort was put above", |w| w.cohort(cohort("co").parent("top"))),
        ("a flavor changed", |w| w.flavor("default", |flavor| flavor.node_labels = pairs(&[("k", "v")]))),
    ];
    for (what, trigger) in triggers {
        let mut w = inadmissible();
        trigger(&mut w);
        w.core.take_changed();
        assert!(w.heap("a").contains(&"big".to_owned()), "{what}: {:?}", w.inadmissible("a"));
    }
}

#[test]
fn s6_4_28_an_admission_check_that_changes_flushes_its_queues() {
    let mut w = one();
    let check = CheckRule { name: n("check"), on_flavors: Vec::new() };
    w.core.set_check(&n("check"), true);
    w.cq(cq("a").quota(q(1)).with(|spec| spec.admission_checks = vec![check]));
    w.running(job("r", "a").gpu(1), "default");
    w.submit(job("j", "a").gpu(1));
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
    w.core.set_check(&n("check"), false);
    assert!(w.cycle().is_empty(), "the queue is inactive");
    w.core.set_check(&n("check"), true);
    assert_eq!(w.cycle(), ["j WaitingForQuota"]);
}

#[test]
fn s6_4_28_a_local_queue_that_restarts_queues_its_workloads_again() {
    let mut w = inadmissible();
    w.lq("a", "a", |spec| spec.stop_policy = StopPolicy::Hold);
    assert_eq!((w.heap("a"), w.inadmissible("a")), (vec![], vec![]));
    let status = w.core.local_queue_status(NS, "a").unwrap();
    assert_eq!((status.inactive, status.pending), (Some(LocalQueueInactive::Stopped), 0));
    w.lq("a", "a", |_| {});
    assert_eq!(w.heap("a"), ["big"]);
}

#[test]
fn s6_4_29_a_flush_covers_the_whole_tree_from_the_root_and_no_other() {
    let mut w = World::new();
    w.cohort(cohort("left").parent("root"));
    w.cohort(cohort("right").parent("root"));
    for (queue, cohort) in [("l", "left"), ("r", "right"), ("x", "another")] {
        w.cq(cq(queue).cohort(cohort).quota(q(1)));
        w.running(job(&format!("{queue}-runs"), queue).gpu(1), "default");
        w.submit(job(&format!("{queue}-waits"), queue).gpu(1));
    }
    assert_eq!(w.cycle().len(), 3);
    w.finished("l-runs");
    assert_eq!((w.heap("l"), w.heap("r")), (vec!["l-waits".to_owned()], vec!["r-waits".to_owned()]));
    assert_eq!(w.inadmissible("x"), ["x-waits"]);
}

#[test]
fn s6_4_30_an_admission_flushes_nothing() {
    let mut w = inadmissible();
    w.submit(job("small", "a").gpu(1));
    assert_eq!(w.cycle(), ["small admitted default"]);
    assert_eq!(w.inadmissible("a"), ["big"]);
}

#[test]
fn s6_4_31_the_cycle_of_a_flush_is_not_lost_for_the_head_under_way() {
    // A cycle is one step here, so an event cannot come between Pop and requeue; one right after it must not be lost.
    let mut w = inadmissible();
    w.submit(job("next", "a").gpu(4));
    assert_eq!(w.cycle(), ["next WaitingForQuota"]);
    w.finished("r");
    assert_eq!(w.heap("a"), ["big", "next"]);
}

#[test]
fn s6_4_32_positions_count_inadmissible_workloads_in_the_same_order() {
    let mut w = one();
    equals(&mut w);
    w.cycle();
    w.submit(job("top", "other").gpu(9).priority(9));
    let places: Vec<_> = w
        .core
        .positions("a")
        .iter()
        .map(|at| (at.key.name.to_string(), at.in_cluster_queue, at.in_local_queue, at.active))
        .collect();
    let expected = [
        ("top", 0, 0, true),
        ("one", 1, 0, false),
        ("two", 2, 1, false),
        ("three", 3, 1, false),
        ("low", 4, 2, true),
    ];
    assert_eq!(places, expected.map(|(name, at, local, active)| (name.to_owned(), at, local, active)));
    assert_eq!(w.core.position(&WorkloadKey::new(NS, "three")).unwrap().in_local_queue, 1);
}

#[test]
fn s6_4_33_a_failed_write_of_an_admission_queues_the_workload_again_at_once() {
    let mut w = one();
    w.submit_all([job("j", "a").gpu(1), job("later", "a").gpu(1)]);
    assert_eq!(w.settle(), ["j admitted default", "later WaitingForQuota"]);
    let now = w.now();
    w.core.admission_failed(&WorkloadKey::new(NS, "j"), now);
    assert_eq!(w.used("a"), (0, 0));
    assert_eq!(w.heap("a"), ["j", "later"]);
    assert_eq!(w.cycle(), ["j admitted default"]);
}

#[test]
fn s6_4_34_changing_the_strategy_takes_the_inadmissible_along() {
    let mut w = inadmissible();
    w.cq(cq("a").cohort("co").quota(q(4)).with(|spec| spec.strategy = QueueingStrategy::StrictFIFO));
    assert_eq!(w.heap("a"), ["big"]);
    assert_eq!(w.cycle(), ["big WaitingForQuota"]);
    assert_eq!(w.heap("a"), ["big"]);
}
