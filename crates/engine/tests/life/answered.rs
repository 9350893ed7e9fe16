//! The quota of a stopped job is free once its own controller has answered the stop: until then it may have made pods that its status does
//! not show.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::job::JobKind;
use sluice_engine::{EngineConfig, Kind, Purpose, WriteError};

use crate::model::build::job;
use crate::model::{Cluster, condition};
use crate::pods::{controlled, evict, runs};

/// `old` waited for some seconds, in which its controller saw that it is suspended, and was just admitted; `new` waits for its quota.
fn started(kind: JobKind) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    let mut old = job("team-a", "old", "lq", 2, "1");
    old.job.kind = kind;
    c.api.add_job(old);
    says(&mut c, "old", true);
    c.advance(5);
    c.api.simple("2", &json!({}));
    c.settle();
    assert!(!c.api.job("old").view.suspended);
    c.api.add_job(job("team-a", "new", "lq", 2, "1"));
    c.settle();
    assert!(!runs(&c, "new"));
    c
}

/// The controller of a job says whether it is suspended.
fn says(c: &mut Cluster, job: &str, suspended: bool) {
    let now = c.now;
    c.api.edit_job(job, |j| {
        j.view.suspended_condition = Some((suspended, now));
        j.view.active = !suspended;
    });
    c.settle();
}

/// A Job of the JobSet `old`, as the controller of that keeps it.
fn child(c: &mut Cluster, name: &str, suspended: bool, generation: i64, since: Timestamp) {
    let mut child = job("team-a", name, "", 1, "1");
    (child.suspended, child.generation) = (suspended, generation);
    child.suspended_condition = Some((true, since));
    controlled(c, &mut child);
    c.api.add_job(child);
    c.settle();
}

#[test]
fn a_job_that_was_stopped_before_its_controller_looked_holds_its_quota_until_that_answers() {
    for (kind, restart) in [(JobKind::JOB, false), (JobKind::JOB, true), (JobKind::JOB_SET, false)] {
        let mut c = started(kind);
        evict(&mut c);
        if restart {
            c.restart();
            c.settle();
        }
        assert!(!runs(&c, "new"), "{kind:?}: it may have made pods, and says so after they were deleted");
        c.advance(3);
        assert!(!runs(&c, "new"));
        says(&mut c, "old", false);
        assert!(!runs(&c, "new"), "it says late that it made some");
        says(&mut c, "old", true);
        assert!(runs(&c, "new"), "{kind:?}");
    }
}

#[test]
fn an_answer_in_the_second_of_the_start_counts_if_the_job_was_seen_to_run() {
    let mut c = started(JobKind::JOB);
    says(&mut c, "old", false);
    evict(&mut c);
    c.api.edit_job("old", |j| j.view.active = false);
    c.settle();
    assert!(!runs(&c, "new"), "no pod is active, as all failed, and others may follow");
    says(&mut c, "old", true);
    assert!(runs(&c, "new"));
}

#[test]
fn the_controller_of_a_job_that_says_nothing_is_asked() {
    for kind in [JobKind::JOB, JobKind::JOB_SET] {
        let mut c = started(kind);
        evict(&mut c);
        assert_eq!(asked(&c), 0);
        c.advance(1);
        assert_eq!(asked(&c), 1, "{kind:?}");
        assert!(c.api.job("old").view.suspended_condition.is_some_and(|(suspended, _)| !suspended));
        // Far behind, it makes the pods of the start, and deletes them when it sees the stop: only then it writes.
        c.advance(60);
        assert!(!runs(&c, "new"), "{kind:?}");
        c.restart();
        c.advance(30);
        assert!(!runs(&c, "new"), "{kind:?}");
        says(&mut c, "old", true);
        assert!(runs(&c, "new"), "{kind:?}");
        assert_eq!(asked(&c), 1);
    }
}

#[test]
fn a_controller_that_sees_a_job_wait_after_its_admission_has_answered_no_stop() {
    for (restart_before, restart_after) in [(false, false), (true, false), (false, true)] {
        let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
        c.api.namespace("team-a", &[]);
        c.api.simple("2", &json!({}));
        // It is behind: it says so of the job as it was made, after that was admitted and before that is started.
        let mut old = job("team-a", "old", "lq", 2, "1");
        old.suspended_condition = Some((true, c.now + jiff::SignedDuration::from_secs(4)));
        c.api.add_job(old);
        c.settle();
        assert!(!c.api.job("old").view.suspended);
        c.api.add_job(job("team-a", "new", "lq", 2, "1"));
        c.advance(8);
        if restart_before {
            c.restart();
        }
        evict(&mut c);
        if restart_after {
            c.restart();
            c.settle();
        }
        assert!(!runs(&c, "new"), "it may have made pods since the start");
        c.advance(1);
        assert_eq!(asked(&c), 1, "{restart_before} {restart_after}");
        assert!(!runs(&c, "new"));
        says(&mut c, "old", true);
        assert!(runs(&c, "new"));
    }
}

/// `old` was admitted at once and evicted after all replicas began again; its controller has written nothing. `new` waits for its quota.
fn evicted_unseen(managed_by: Option<&str>, condition: Option<bool>) -> Cluster {
    evicted_unseen_of(JobKind::JOB, managed_by, condition)
}

/// The same with `old` of this kind.
fn evicted_unseen_of(kind: JobKind, managed_by: Option<&str>, condition: Option<bool>) -> Cluster {
    evicted_unseen_with(kind, 2, managed_by, condition)
}

/// The same with `pods` pods.
fn evicted_unseen_with(
    kind: JobKind,
    pods: i32,
    managed_by: Option<&str>,
    condition: Option<bool>,
) -> Cluster {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.frameworks.insert(kind);
    let mut c = Cluster::new(config);
    let revision = c.api.revision();
    c.list(Kind::Job(kind), Vec::new(), revision);
    c.api.namespace("team-a", &[]);
    c.api.simple(&pods.to_string(), &json!({}));
    let mut old = job("team-a", "old", "lq", pods, "1");
    old.job.kind = kind;
    old.managed_by = managed_by.map(str::to_owned);
    old.suspended_condition =
        condition.map(|suspended| (suspended, c.now - jiff::SignedDuration::from_secs(60)));
    c.api.add_job(old);
    c.settle();
    c.api.add_job(job("team-a", "new", "lq", 2, "1"));
    c.api.edit_job("old", |j| j.view.active = false);
    c.restart();
    c.settle();
    evict(&mut c);
    c
}

fn asked(c: &Cluster) -> usize {
    c.writes.iter().filter(|(_, purpose)| *purpose == Purpose::AskController).count()
}

#[test]
fn the_controller_of_a_job_that_it_has_never_seen_is_asked() {
    for managed_by in [None, Some("kubernetes.io/job-controller")] {
        let mut c = evicted_unseen(managed_by, None);
        assert!(!runs(&c, "new"), "it may have made pods");
        c.advance(1);
        assert!(runs(&c, "new"), "it was asked, and has answered");
    }
}

#[test]
fn a_job_that_another_controller_manages_is_not_asked_about() {
    let other = Some("example.com/other");
    for condition in [None, Some(true)] {
        let mut c = evicted_unseen(other, condition);
        c.advance(5);
        assert!(!runs(&c, "new"), "that controller has 5 s, and 50 ms for each of the two pods");
        c.advance(1);
        assert!(runs(&c, "new") && asked(&c) == 0);
    }
}

#[test]
fn a_kind_that_says_nothing_of_a_stop_keeps_its_quota_for_a_while_if_it_was_not_seen_to_run() {
    for kind in [JobKind::RAY_JOB, declared()] {
        let mut c = evicted_unseen_of(kind, None, None);
        c.advance(5);
        assert!(!runs(&c, "new"), "{kind:?}: its controller may be making pods");
        c.advance(1);
        assert!(runs(&c, "new") && asked(&c) == 0, "{kind:?}");
        // Its controller makes them late, and shows it: its quota stays.
        let mut c = evicted_unseen_of(kind, None, None);
        c.advance(3);
        c.api.edit_job("old", |j| j.view.active = true);
        c.advance(60);
        assert!(!runs(&c, "new"), "{kind:?}");
        c.api.edit_job("old", |j| j.view.active = false);
        c.settle();
        assert!(runs(&c, "new"), "{kind:?}: there were some, and are none any more");
    }
}

/// A kind of this group that only a configuration describes, with one pod set.
pub fn errand(group: &str, pod_set: &Value) -> JobKind {
    let declaration = json!({
        "group": group, "version": "v1", "kind": "Errand",
        "podSets": [pod_set],
        "active": "self.status.running > 0",
    });
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"declared": [declaration]},
    });
    let (configuration, _) = Configuration::parse(&configuration.to_string()).unwrap();
    sluice_jobs::declare(&configuration).unwrap();
    JobKind::named(&format!("{group}/errand")).unwrap()
}

fn declared() -> JobKind {
    errand("engine.answered.example.com", &json!({"name": "main", "template": "spec.template"}))
}

#[test]
fn the_controller_of_a_declared_kind_answers_by_the_generation_that_it_observed() {
    let mut c = evicted_unseen_of(declared(), None, None);
    let generation = c.api.job("old").view.generation;
    c.api.edit_job("old", |j| j.view.observed_generation = Some(generation - 1));
    c.settle();
    assert!(!runs(&c, "new"), "that is the start");
    c.api.edit_job("old", |j| j.view.observed_generation = Some(j.view.generation));
    c.settle();
    assert!(runs(&c, "new"));
    // Of other kinds that says nothing.
    let mut c = evicted_unseen_of(JobKind::RAY_JOB, None, None);
    c.api.edit_job("old", |j| j.view.observed_generation = Some(j.view.generation));
    c.settle();
    assert!(!runs(&c, "new"));
}

#[test]
fn a_controller_that_never_answers_does_not_keep_quota_for_good() {
    for kind in [JobKind::JOB, JobKind::JOB_SET] {
        let mut c = started(kind);
        evict(&mut c);
        c.advance(119);
        assert!(!runs(&c, "new"));
        c.advance(1);
        assert!(runs(&c, "new"), "{kind:?}");
    }
}

#[test]
fn a_large_job_that_cannot_be_asked_has_more_time_to_answer_and_not_without_end() {
    let mut c = evicted_unseen_with(JobKind::RAY_JOB, 1_000, None, None);
    c.advance(29);
    assert!(!runs(&c, "new"));
    c.advance(1);
    assert!(runs(&c, "new"));
}

/// The JobSet `old` has run with its Job `a`; the controller of `a` has seen neither its start nor what follows.
fn with_child() -> (Cluster, Timestamp) {
    let mut c = started(JobKind::JOB_SET);
    says(&mut c, "old", false);
    let before = c.now - jiff::SignedDuration::from_secs(60);
    child(&mut c, "a", false, 2, before);
    (c, before)
}

/// JobSet's controller stops the Job `a`.
fn stop_child(c: &mut Cluster) {
    c.api.edit_job("a", |j| (j.view.suspended, j.view.generation) = (true, 3));
    c.settle();
}

#[test]
fn the_jobs_of_a_jobset_answer_too() {
    let (mut c, before) = with_child();
    // It waits for the others, and was never started.
    child(&mut c, "b", true, 1, before);
    evict(&mut c);
    c.advance(2);
    says(&mut c, "old", true);
    assert!(!runs(&c, "new"), "one of its Jobs was not reported yet");
    stop_child(&mut c);
    assert!(!runs(&c, "new"), "and has not answered yet");
    says(&mut c, "a", true);
    assert!(runs(&c, "new"));
}

#[test]
fn a_job_of_a_jobset_that_was_asked_is_waited_for_longer_than_the_jobset() {
    let (mut c, _) = with_child();
    evict(&mut c);
    says(&mut c, "old", true);
    stop_child(&mut c);
    c.advance(1);
    assert_eq!(c.api.job("a").view.suspended_condition, Some((false, c.now)), "it was asked");
    // Its controller is far behind, and makes the pods of the start meanwhile.
    c.advance(60);
    assert!(!runs(&c, "new"));
    says(&mut c, "a", true);
    assert!(runs(&c, "new"));
}

#[test]
fn jobs_that_claim_later_to_be_of_a_stopped_jobset_do_not_hold_its_quota_for_good() {
    let (mut c, before) = with_child();
    evict(&mut c);
    says(&mut c, "old", true);
    stop_child(&mut c);
    // Nothing is ever answered. A Job has two minutes.
    for n in 0..4 {
        child(&mut c, &format!("claim-{n}"), true, 2, before);
        c.advance(29);
    }
    assert!(!runs(&c, "new"));
    c.advance(4);
    assert!(runs(&c, "new"));
}

#[test]
fn a_job_that_was_admitted_and_never_started_needs_no_answer() {
    let mut c = Cluster::plain();
    c.api.add_job(job("team-a", "old", "lq", 2, "1"));
    says(&mut c, "old", true);
    c.advance(5);
    c.fail.extend((0..9).map(|_| (Purpose::StartJob, WriteError::Transient("no answer came".to_owned()))));
    c.api.simple("2", &json!({}));
    c.settle();
    c.api.add_job(job("team-a", "new", "lq", 2, "1"));
    c.settle();
    assert_eq!(condition(&c.workload("old"), "Admitted"), "True");
    assert!(c.api.job("old").view.suspended);
    c.fail.clear();
    evict(&mut c);
    // The failed start is looked at again after a while.
    c.advance(20);
    assert!(runs(&c, "new"));
}
