//! waitForPodsReady and its requeuing (docs/reference/06-algorithm.md 6.16), and the longest execution time (6.19).

use serde_json::json;
use sluice_api::config::Configuration;
use sluice_engine::{EngineConfig, Gather, Kind, ObjectRef, Purpose, WaitForPodsReady, WriteError};

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

/// It is waited for pods to be ready, and nothing is held up by it.
pub fn for_pods() -> WaitForPodsReady {
    WaitForPodsReady {
        timeout_seconds: 300,
        recovery_timeout_seconds: Some(120),
        block_admission: false,
        order_by_eviction: true,
        backoff_limit_count: None,
        backoff_base_seconds: 60,
        backoff_max_seconds: 150,
    }
}

/// A cluster that waits for pods to be ready, with three processors.
pub fn wait(change: impl FnOnce(&mut WaitForPodsReady)) -> Cluster {
    let mut config = for_pods();
    change(&mut config);
    let config =
        EngineConfig { status_interval_ms: 0, wait_for_pods_ready: Some(config), ..EngineConfig::default() };
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    c
}

fn ready(c: &mut Cluster, name: &str, ready: bool) {
    c.api.edit_job(name, |j| j.view.pods_ready = ready);
    c.settle();
}

/// Seconds until the workload of job `a` may be queued again.
fn backoff(c: &Cluster) -> i64 {
    let state = c.workload("a").status.unwrap().requeue_state.unwrap();
    state.requeue_at.map_or(0, |at| at.0.as_second() - c.now.as_second())
}

#[test]
fn run_time_before_an_eviction_is_measured_for_both_queues() {
    let mut c = wait(|_| {});
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    let evict = |c: &mut Cluster, active: bool| {
        let workload = Api::workload_ref(&c.workload("a"));
        c.api.edit(&workload, &json!({"spec": {"active": active}}));
        c.settle();
    };
    let lost = |c: &Cluster| {
        let all = c.observed.iter().filter(|(metric, _)| metric.contains("_pods_ready_to_evicted_"));
        all.map(|(metric, labels)| format!("{metric} {}", labels.join(","))).collect::<Vec<_>>()
    };
    evict(&mut c, false);
    assert_eq!(lost(&c), Vec::<String>::new(), "its pods were never ready: nothing is lost");
    evict(&mut c, true);
    ready(&mut c, "a", true);
    evict(&mut c, false);
    let expected = [
        "kueue_pods_ready_to_evicted_time_seconds cq,Deactivated,",
        "sluice_local_queue_pods_ready_to_evicted_time_seconds lq,team-a,Deactivated,",
    ];
    assert_eq!(lost(&c), expected);
}

#[test]
fn readiness_is_reported_lost_and_recovered() {
    let mut c = wait(|_| {});
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    assert_eq!(c.written(Purpose::PodsReady), 0, "it came with the admission");
    assert_eq!(
        reported(&c.workload("a"), "PodsReady"),
        "False/WaitForStart: Not all pods are ready or succeeded"
    );
    ready(&mut c, "a", true);
    let all = "All pods reached readiness and the workload is running";
    assert_eq!(reported(&c.workload("a"), "PodsReady"), format!("True/Started: {all}"));
    ready(&mut c, "a", false);
    assert_eq!(
        reported(&c.workload("a"), "PodsReady"),
        "False/WaitForRecovery: At least one pod has failed, waiting for recovery"
    );
    ready(&mut c, "a", true);
    assert_eq!(reported(&c.workload("a"), "PodsReady"), format!("True/Recovered: {all}"));
    let first = c.observed.iter().filter(|(name, _)| name == "kueue_ready_wait_time_seconds").count();
    assert_eq!(first, 1, "only the first time is observed");
    c.advance(1_000);
    assert_eq!(condition(&c.workload("a"), "Evicted"), "");
}

#[test]
fn pods_that_never_get_ready_are_put_back_with_growing_waits() {
    let mut c = wait(|_| {});
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.advance(299);
    assert_eq!(condition(&c.workload("a"), "Evicted"), "");
    for (n, seconds) in [(1, 60), (2, 120), (3, 150)] {
        assert_eq!(c.notes("EvictedDueToPodsReadyTimeout").len() + 1, usize::try_from(n).unwrap());
        c.advance(2);
        let w = c.workload("a");
        let message = format!("Exceeded the PodsReady timeout team-a/{}", w.metadata.name.clone().unwrap());
        assert_eq!(reported(&w, "Evicted"), format!("True/PodsReadyTimeout: {message}"));
        assert_eq!(reported(&w, "Requeued"), format!("False/PodsReadyTimeout: {message}"));
        assert_eq!(reported(&w, "PodsReady"), "False/WaitForStart: Not all pods are ready or succeeded");
        assert_eq!(w.status.unwrap().requeue_state.unwrap().count, Some(n));
        assert!((seconds - 5..=seconds).contains(&backoff(&c)), "{n}: {}", backoff(&c));
        assert!(c.api.job("a").view.suspended);
        c.advance(seconds + 1);
        assert_eq!(
            reported(&c.workload("a"), "Requeued"),
            "True/BackoffFinished: The workload backoff was finished"
        );
        assert!(!c.api.job("a").view.suspended);
        c.advance(297);
    }
}

#[test]
fn a_failed_pod_has_its_own_timeout() {
    let mut c = wait(|_| {});
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    ready(&mut c, "a", true);
    c.advance(10_000);
    ready(&mut c, "a", false);
    c.advance(119);
    assert_eq!(condition(&c.workload("a"), "Evicted"), "");
    c.advance(2);
    let stats = c.workload("a").status.unwrap().scheduling_stats.unwrap().evictions;
    assert_eq!(stats[0].underlying_cause, "WaitForRecovery");
    assert_eq!(c.notes("EvictedDueToPodsReadyTimeout").len(), 1);
}

#[test]
fn without_a_recovery_timeout_a_failed_pod_is_waited_for() {
    let mut c = wait(|w| w.recovery_timeout_seconds = None);
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    ready(&mut c, "a", true);
    ready(&mut c, "a", false);
    c.advance(100_000);
    assert_eq!(condition(&c.workload("a"), "Evicted"), "");
}

#[test]
fn a_recovery_timeout_below_a_second_is_one_and_zero_alone_is_none() {
    for (text, evicted) in [("100ms", true), ("1ns", true), ("999ms", true), ("0s", false), ("0ms", false)] {
        let file = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
             waitForPodsReady: {{timeout: 5m, recoveryTimeout: {text}}}\n"
        );
        let (file, _) = Configuration::parse(&file).unwrap();
        let mut c = Cluster::new(EngineConfig {
            status_interval_ms: 0,
            gather: Gather::NONE,
            ..EngineConfig::from(&file)
        });
        c.api.namespace("team-a", &[]);
        c.api.simple("3", &json!({}));
        c.api.add_job(job("team-a", "a", "lq", 3, "1"));
        c.settle();
        ready(&mut c, "a", true);
        c.advance(10);
        ready(&mut c, "a", false);
        assert_eq!(condition(&c.workload("a"), "Evicted"), "", "{text}: not at once");
        c.advance(2);
        let stopped = reported(&c.workload("a"), "Evicted").starts_with("True/PodsReadyTimeout");
        assert_eq!(stopped, evicted, "{text}");
    }
}

#[test]
fn past_the_limit_the_workload_is_deactivated_and_its_user_may_start_again() {
    let mut c = wait(|w| w.backoff_limit_count = Some(1));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.advance(300 + 60 + 300 + 5);
    let w = c.workload("a");
    assert_eq!(w.spec.active, Some(false));
    assert_eq!(
        reported(&w, "Evicted"),
        "True/DeactivatedDueToRequeuingLimitExceeded: The workload is deactivated due to exceeding the maximum number \
         of re-queuing retries"
    );
    assert_eq!(w.status.clone().unwrap().requeue_state, None);
    c.api.edit(&Api::workload_ref(&w), &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(reported(&c.workload("a"), "Requeued"), "True/Reactivated: The workload was reactivated");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn block_admission_lets_one_after_the_other_get_ready() {
    let mut c = wait(|w| w.block_admission = true);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    assert!(!c.api.job("a").view.suspended && c.api.job("b").view.suspended);
    assert_eq!(
        reported(&c.workload("b"), "QuotaReserved"),
        "False/WaitingForPodsReady: waiting for all admitted workloads to be in PodsReady condition"
    );
    ready(&mut c, "a", true);
    assert!(!c.api.job("b").view.suspended);
}

#[test]
fn readiness_is_written_as_a_report_unless_admissions_wait_for_it() {
    for (block_admission, unblocking) in [(true, 1), (false, 0)] {
        let mut c = wait(|config| config.block_admission = block_admission);
        c.api.add_job(job("team-a", "a", "lq", 3, "1"));
        c.settle();
        let written = |c: &Cluster| (c.written(Purpose::Unblock), c.written(Purpose::PodsReady));
        ready(&mut c, "a", true);
        assert_eq!(written(&c), (unblocking, 1 - unblocking));
        ready(&mut c, "a", false);
        assert_eq!(written(&c), (unblocking, 2 - unblocking), "no admission waits for that");
    }
}

/// As without `blockAdmission`: `budget.rs`.
#[test]
fn an_eviction_waits_neither_for_readiness_that_was_not_sent_nor_until_it_may_be_written_again() {
    let blocking = || {
        let mut c = wait(|config| config.block_admission = true);
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.settle();
        c
    };
    let deactivated = |c: &mut Cluster| {
        c.writes.clear();
        let workload = Api::workload_ref(&c.workload("a"));
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
        c.settle();
        c.written(Purpose::Evict)
    };
    let mut c = blocking();
    c.refuse = Some((Purpose::Unblock, WriteError::Refused("no such luck".to_owned())));
    ready(&mut c, "a", true);
    assert_eq!((c.refused, deactivated(&mut c)), (1, 1));
    let mut c = blocking();
    c.slow = Some(Purpose::Unblock);
    ready(&mut c, "a", true);
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!((c.withdrawn, c.written(Purpose::Finish)), (1, 1));
}

/// docs/reference/11-observed.md 11.1.21.
#[test]
fn what_waited_for_the_pods_of_another_queue_goes_before_the_one_that_was_put_back() {
    let mut c = wait(|w| w.block_admission = true);
    c.api.cluster_queue("other", "default", "3", &json!({}));
    c.api.local_queue("team-a", "other", "other");
    c.api.priority_class("high", 100);
    let mut blocker = job("team-a", "a", "lq", 1, "1");
    blocker.workload_priority_class = Some("high".to_owned());
    c.api.add_job(blocker);
    c.settle();
    c.api.add_job(job("team-a", "b", "other", 1, "1"));
    c.settle();
    assert!(c.api.job("b").view.suspended, "the pods of a are not ready");
    let running = |c: &Cluster| ["a", "b"].map(|name| !c.api.job(name).view.suspended);
    c.advance(301);
    assert_eq!(running(&c), [false, true], "a waits for its backoff");
    // Both could start when the backoff is over: the pods of b hold a up now.
    c.advance(61);
    assert_eq!(running(&c), [false, true]);
    ready(&mut c, "b", true);
    assert_eq!(running(&c), [true, true]);
}

/// The order in which two jobs get the quota of a third, when the older one was put back.
fn first_after_eviction(order_by_eviction: bool) -> String {
    let mut c = wait(|w| {
        w.order_by_eviction = order_by_eviction;
        w.backoff_base_seconds = 1;
    });
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.advance(10);
    c.api.add_job(job("team-a", "b", "lq", 3, "1"));
    // A third job comes before `a` is put back and `b` runs and gets ready.
    c.advance(190);
    c.api.add_job(job("team-a", "d", "lq", 3, "1"));
    c.advance(110);
    ready(&mut c, "b", true);
    c.advance(10);
    c.api.finish_job("b", true);
    c.settle();
    let running: Vec<_> = ["a", "d"].into_iter().filter(|n| !c.api.job(n).view.suspended).collect();
    assert_eq!(running.len(), 1);
    running[0].to_owned()
}

#[test]
fn the_configuration_says_whether_eviction_or_creation_orders_a_queue() {
    assert_eq!(first_after_eviction(false), "a");
    assert_eq!(first_after_eviction(true), "d", "it was created before the other one was evicted");
}

#[test]
fn the_longest_execution_time_counts_over_all_admissions() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    let mut view = job("team-a", "a", "lq", 3, "1");
    view.maximum_execution_time_seconds = Some(100);
    c.api.add_job(view);
    c.advance(60);
    let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.advance(1_000);
    assert_eq!(c.workload("a").status.unwrap().accumulated_past_execution_time_seconds, Some(60));
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": "None"}}));
    c.advance(39);
    assert!(!c.api.job("a").view.suspended);
    c.advance(2);
    let w = c.workload("a");
    assert_eq!(
        reported(&w, "Evicted"),
        "True/DeactivatedDueToMaximumExecutionTimeExceeded: The workload is deactivated due to exceeding the maximum \
         execution time"
    );
    assert_eq!(w.spec.active, Some(false));
    assert_eq!(
        c.notes("MaximumExecutionTimeExceeded"),
        ["Workload/job-a: The maximum execution time (100s) exceeded"]
    );
    let past = w.status.unwrap().accumulated_past_execution_time_seconds;
    assert!(past.is_none_or(|p| p <= 41), "cleared when it was exceeded: {past:?}");
}

#[test]
fn that_pods_are_not_ready_rides_on_the_writes_that_admit_and_release() {
    let mut c = wait(|_| {});
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    let waits = "False/WaitForStart: Not all pods are ready or succeeded";
    assert_eq!(reported(&c.workload("a"), "PodsReady"), waits);
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert_eq!(reported(&c.workload("a"), "PodsReady"), waits, "an eviction before it was ready keeps it");
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "None"}}));
    c.settle();
    ready(&mut c, "a", true);
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert_eq!(reported(&c.workload("a"), "PodsReady"), waits, "its run is over");
    assert_eq!(c.written(Purpose::PodsReady), 1, "one write in two runs: that all pods were ready");
}

#[test]
fn an_eviction_for_pods_that_are_not_ready_says_so_after_any_admission() {
    let mut c = wait(|w| w.timeout_seconds = 10);
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    c.now = c.now.checked_add(jiff::SignedDuration::from_secs(20)).unwrap();
    c.api.now = c.now;
    c.api.edit_status(&workload, |status| {
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.retain(|condition| condition["type"] != "PodsReady");
    });
    c.pods_vanish = false;
    c.settle();
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/PodsReadyTimeout"));
    assert!(reported(&c.workload("a"), "PodsReady").starts_with("False/WaitForStart"));
    assert_eq!(c.written(Purpose::PodsReady), 0);
}
