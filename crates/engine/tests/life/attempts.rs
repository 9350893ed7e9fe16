//! The steps of attempts to admit a Workload, from which traces are made (docs/tasks/tracing.md).

use std::collections::BTreeSet;

use serde_json::json;
use sluice_engine::attempt::{AttemptStep, Step};
use sluice_engine::{EngineConfig, Kind, WaitForPodsReady};

use crate::model::build::job;
use crate::model::{Api, Cluster};

fn config(timeout: Option<i64>) -> EngineConfig {
    let waits = |timeout_seconds: i64| WaitForPodsReady {
        timeout_seconds,
        recovery_timeout_seconds: None,
        block_admission: false,
        order_by_eviction: true,
        backoff_limit_count: None,
        backoff_base_seconds: 60,
        backoff_max_seconds: 60,
    };
    let wait_for_pods_ready = timeout.map(waits);
    EngineConfig { tracing: true, status_interval_ms: 0, wait_for_pods_ready, ..EngineConfig::default() }
}

/// A cluster with three processors, and a job of three.
fn cluster(config: EngineConfig, queue: &serde_json::Value) -> Cluster {
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.active_check("prov");
    c.api.simple("3", queue);
    c.api.priority_class("high", 100);
    c.settle();
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    c
}

/// A step of job `a` in a few words, after the number of its attempt.
fn said(step: &AttemptStep) -> String {
    let what = match &step.step {
        Step::Decided { heads, .. } => format!("decided among {heads}"),
        Step::JobStarted => "job started".to_owned(),
        Step::Seen(progress) => {
            let mut words: Vec<String> = Vec::new();
            words.push(if progress.reserved.is_some() { "reserved" } else { "queued" }.to_owned());
            words.extend(progress.checks.iter().map(|check| format!("{}={:?}", check.name, check.state)));
            words.extend(progress.admitted.map(|_| "admitted".to_owned()));
            words.extend(progress.end.as_ref().map(|end| format!("{:?} {}", end.how, end.reason)));
            words.join(" ")
        }
    };
    format!("{}: {}", step.attempt, what.trim_end())
}

fn story(c: &mut Cluster) -> Vec<String> {
    let own = |step: &AttemptStep| step.workload.name.starts_with("job-a-");
    std::mem::take(&mut c.attempts).iter().filter(|step| own(step)).map(said).collect()
}

fn ready(c: &mut Cluster, ready: bool) {
    c.api.edit_job("a", |j| j.view.pods_ready = ready);
    c.settle();
}

#[test]
fn an_attempt_ends_with_ready_pods_and_nothing_of_what_comes_later_is_one() {
    let mut c = cluster(config(Some(300)), &json!({}));
    c.advance(5);
    ready(&mut c, true);
    let whole = ["1: queued", "1: decided among 1", "1: reserved admitted", "1: job started"];
    let mut expected = whole.map(str::to_owned).to_vec();
    expected.push("1: reserved admitted Started Started".to_owned());
    assert_eq!(story(&mut c), expected);
    ready(&mut c, false);
    ready(&mut c, true);
    c.advance(10);
    c.restart();
    c.settle();
    c.api.finish_job("a", true);
    c.advance(1);
    c.api.delete_job("a");
    c.advance(1);
    assert_eq!(story(&mut c), [""; 0]);
}

#[test]
fn an_attempt_that_is_evicted_is_followed_by_one_with_the_next_number() {
    let mut c = cluster(config(Some(60)), &json!({}));
    story(&mut c);
    c.advance(61);
    assert_eq!(story(&mut c), ["1: reserved admitted Evicted PodsReadyTimeout", "2: queued"]);
    // The pods had a minute, which is over for a second.
    let since = c.now.as_second() - 1;
    c.advance(61);
    let steps = std::mem::take(&mut c.attempts);
    let reported: Vec<_> = steps.iter().map(said).collect();
    assert_eq!(reported, ["2: decided among 1", "2: reserved admitted", "2: job started"]);
    let Step::Seen(progress) = &steps[1].step else { unreachable!("{reported:?}") };
    assert_eq!(progress.queued.map(jiff::Timestamp::as_second), Some(since), "since it gave its quota back");
    // Another process has the same numbers.
    c.restart();
    c.advance(1);
    ready(&mut c, true);
    assert_eq!(story(&mut c), ["2: reserved admitted Started Started"]);
}

#[test]
fn checks_are_followed_and_their_eviction_ends_the_attempt() {
    let queue = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}});
    let mut c = cluster(config(Some(300)), &queue);
    let first = ["1: queued", "1: decided among 1", "1: reserved prov=Pending"];
    assert!(story(&mut c).iter().filter(|said| !said.contains("queued prov")).eq(&first.map(str::to_owned)));
    let workload = Api::workload_ref(&c.workload("a"));
    let mut answer = |state: &str| {
        c.advance(2);
        let now = c.now.to_string();
        c.api.edit_status(&workload, |s| {
            s["admissionChecks"][0]["lastTransitionTime"] = json!(now);
            s["admissionChecks"][0]["state"] = json!(state);
            s["admissionChecks"][0]["requeueAfterSeconds"] = json!(1);
        });
        c.settle();
        c.advance(1);
        story(&mut c)
    };
    let retried = answer("Retry");
    assert_eq!(
        retried[..3],
        [
            "1: reserved prov=Retry",
            "1: reserved prov=Pending Evicted AdmissionCheck",
            "2: queued prov=Pending"
        ]
    );
    let passed = answer("Ready");
    assert!(passed.contains(&"2: reserved prov=Ready admitted".to_owned()), "{passed:?}");
}

#[test]
fn every_event_of_a_workload_says_its_attempt_and_without_traces_none() {
    let mut c = cluster(config(Some(60)), &json!({}));
    c.advance(61);
    c.advance(61);
    let attempts = |c: &Cluster, reason: &str| -> Vec<Option<u32>> {
        c.events.iter().filter(|e| e.reason == reason).map(|e| e.attempt).collect()
    };
    assert_eq!(attempts(&c, "EvictedDueToPodsReadyTimeout"), [Some(1)]);
    assert_eq!(attempts(&c, "Admitted"), [Some(1), Some(2)]);
    let account = c.engine.account(None, "team-a", "a", 1).unwrap();
    assert_eq!((account.attempt, account.uid.is_empty()), (Some(2), false));

    let mut c = cluster(EngineConfig { tracing: false, ..config(Some(60)) }, &json!({}));
    c.advance(61);
    assert!(c.events.iter().all(|event| event.attempt.is_none()) && !c.events.is_empty());
    assert!(c.attempts.is_empty());
}

#[test]
fn an_attempt_of_which_no_trace_is_made_has_no_number() {
    // Nothing here starts what a Workload without a job is for.
    for (timeout, expected) in [(None, None), (Some(60), Some(1))] {
        let mut c = Cluster::new(config(timeout));
        c.api.namespace("team-a", &[]);
        c.api.simple("3", &json!({}));
        c.settle();
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
        c.api.put(
            Kind::Workload,
            json!({
                "metadata": {"name": "foreign", "namespace": "team-a"},
                "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}]},
            }),
        );
        c.settle();
        let admitted = c.events.iter().find(|event| event.reason == "Admitted").unwrap();
        assert_eq!(admitted.attempt, expected);
        assert_eq!(c.engine.account(None, "team-a", "foreign", 1).unwrap().attempt, expected);
    }
}

#[test]
fn a_preempted_a_deleted_and_a_finished_attempt_say_how_they_ended() {
    let mut c = cluster(config(Some(300)), &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    story(&mut c);
    let mut high = job("team-a", "b", "lq", 3, "1");
    high.workload_priority_class = Some("high".to_owned());
    c.api.add_job(high);
    c.advance(1);
    let preempted = story(&mut c);
    assert_eq!(preempted[..2], ["1: reserved admitted Evicted Preempted", "2: queued"]);
    c.api.delete_job("a");
    c.advance(1);
    assert_eq!(story(&mut c), ["2: queued Deleted"]);
    c.api.finish_job("b", true);
    c.advance(1);
    let last = c.attempts.iter().map(said).next_back();
    assert_eq!(last.as_deref(), Some("1: reserved admitted Finished Succeeded"));
}

#[test]
fn where_pods_are_not_waited_for_the_start_of_the_job_is_the_last_step() {
    let mut c = cluster(config(None), &json!({}));
    let expected = ["1: queued", "1: decided among 1", "1: reserved admitted", "1: job started"];
    assert_eq!(story(&mut c), expected);
    c.advance(10);
    c.api.finish_job("a", true);
    c.advance(1);
    c.api.delete_job("a");
    c.advance(1);
    assert_eq!(story(&mut c), [""; 0]);
    let numbers: BTreeSet<_> = c.events.iter().filter_map(|event| event.attempt).collect();
    assert_eq!(numbers, BTreeSet::from([1]));
}
