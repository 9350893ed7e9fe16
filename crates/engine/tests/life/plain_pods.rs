//! Pods that are queued by themselves (docs/reference/07-integrations.md 7.3).

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{EngineConfig, Input, Kind, Purpose, Stage, WriteError};

use crate::model::pods::pod;
use crate::model::{Api, Cluster, condition, reported};

/// A queue with so much cpu of a flavor with a node label.
pub fn bed(cpu: &str) -> Cluster {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.frameworks.insert(JobKind::POD);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.flavor("default", &[("pool", "a")]);
    c.api.cluster_queue(
        "cq",
        "default",
        cpu,
        &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}),
    );
    c.api.local_queue("team-a", "lq", "cq");
    c.api.priority_class("high", 1000);
    c
}

/// A pod of a higher priority that asks for so much processor.
pub fn add_high(c: &mut Cluster, cpu: &str) {
    let mut high = pod("high", "lq", cpu);
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    c.api.add_pod(high);
    c.settle();
}

/// What the pod of this name says in the condition that comes before its end.
pub fn announced(c: &Cluster, name: &str) -> String {
    let conditions = c.api.pod(name).unwrap()["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition["type"] == "TerminationTarget");
    found
        .map(|c| format!("{}: {}", c["reason"].as_str().unwrap(), c["message"].as_str().unwrap()))
        .unwrap_or_default()
}

#[test]
fn a_pod_is_started_once_its_workload_is_admitted_and_released_when_it_ended() {
    let mut c = bed("1");
    c.api.add_pod(pod("a", "lq", "1"));
    c.api.add_pod(pod("b", "lq", "1"));
    c.settle();
    let workloads = c.api.workloads();
    let of =
        |name: &str| workloads.iter().find(|w| w.metadata.name.as_ref().unwrap().starts_with(name)).unwrap();
    let owner = &of("pod-a-").metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("Pod", "a", Some(true)));
    assert_eq!(of("pod-a-").spec.pod_sets[0].name, "main");
    assert!(c.api.is_free("a") && c.api.is_gated("b"));
    assert_eq!(c.api.pod("a").unwrap()["spec"]["nodeSelector"], json!({"pool": "a"}));
    assert_eq!(c.notes("Started"), ["Pod/a: Admitted by clusterQueue cq"]);
    c.api.run_pod("a", "Succeeded");
    c.settle();
    let done = c.api.workloads().into_iter().find(|w| condition(w, "Finished") == "True").unwrap();
    assert!(reported(&done, "Finished").contains("Succeeded"), "{}", reported(&done, "Finished"));
    assert_eq!(c.api.pod("a").unwrap()["metadata"]["finalizers"], json!([]));
    assert!(c.api.is_free("b"), "the quota is free");
    c.api.run_pod("b", "Failed");
    c.settle();
    let failed = c.api.workloads().into_iter().filter(|w| reported(w, "Finished").contains("True/Failed"));
    assert_eq!(failed.count(), 1);
}

#[test]
fn a_pod_that_is_preempted_is_deleted_and_its_quota_is_held_until_it_is_gone() {
    let mut c = bed("1");
    c.api.add_pod(pod("low", "lq", "1"));
    c.settle();
    c.api.run_pod("low", "Running");
    c.pods_vanish = false;
    add_high(&mut c, "1");
    assert!(announced(&c, "low").starts_with("WorkloadEvictedDueToPreempted: Preempted to accommodate"));
    assert!(c.api.pod("low").unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert!(c.api.is_gated("high"), "its pod is still there");
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.pod("low").is_none() && c.api.is_free("high"));
    assert_eq!(c.api.workloads().len(), 1);
}

#[test]
fn a_pod_that_is_deleted_goes_and_takes_its_workload_with_it() {
    let mut c = bed("1");
    for name in ["runs", "waits"] {
        c.api.add_pod(pod(name, "lq", "1"));
        c.settle();
    }
    c.api.delete_queued_pod("waits");
    c.settle();
    assert!(c.api.pod("waits").is_none());
    assert_eq!(c.api.workloads().len(), 1);
    c.api.run_pod("runs", "Running");
    c.settle();
    c.api.delete_queued_pod("runs");
    c.settle();
    assert!(c.api.pods().is_empty() && c.api.workloads().is_empty());
}

#[test]
fn a_pod_whose_gate_its_user_took_off_does_not_run_on() {
    let mut c = bed("0");
    c.api.add_pod(pod("a", "lq", "1"));
    c.settle();
    c.pods_vanish = false;
    c.api.free("a");
    c.api.run_pod("a", "Running");
    c.settle();
    assert_eq!(announced(&c, "a"), "NotAdmitted: Not admitted by cluster queue");
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.pods().is_empty() && c.api.workloads().is_empty());
}

#[test]
fn a_pod_without_a_queue_or_in_a_queue_that_is_missing_waits() {
    let mut c = bed("1");
    c.api.add_pod(pod("elsewhere", "other", "1"));
    let mut odd = pod("odd", "lq", "1");
    odd["spec"]["containers"] = json!("none");
    c.api.add_pod(odd);
    c.settle();
    assert!(c.api.is_gated("elsewhere") && c.api.is_gated("odd"));
    assert_eq!(c.notes("ErrWorkloadCompose").len(), 1, "{:?}", c.notes("ErrWorkloadCompose"));
    // One that is not ours is left alone.
    let mut foreign = pod("foreign", "lq", "1");
    foreign["metadata"]["labels"]["kueue.x-k8s.io/managed"] = json!(null);
    c.api.add_pod(foreign);
    c.settle();
    assert!(c.api.is_gated("foreign") && c.api.workloads().len() == 1);
}

#[test]
fn a_start_whose_answer_was_lost_is_looked_at_before_anything_else() {
    let mut c = bed("1");
    c.lost = Some(Purpose::StartJob);
    c.api.add_pod(pod("a", "lq", "1"));
    c.blind = Some(Kind::Job(JobKind::POD));
    c.engine.apply(c.now, Input::Applied(c.api.everything().pop().unwrap()));
    c.settle();
    assert!(c.api.is_free("a"));
    let deactivated = c.api.workloads();
    c.api.edit(&Api::workload_ref(&deactivated[0]), &json!({"spec": {"active": false}}));
    c.settle();
    assert_eq!(condition(&c.api.workloads()[0], "QuotaReserved"), "True", "the pod may run");
    c.advance(2);
    assert!(c.api.pod("a").is_none() || c.api.pod("a").unwrap()["metadata"]["deletionTimestamp"].is_string());
}

#[test]
fn a_start_that_a_look_has_shown_does_not_count_as_failed_any_more() {
    let refused = || WriteError::Refused("not yet".to_owned());
    let mut c = bed("1");
    c.lost = Some(Purpose::StartJob);
    c.fail.extend(vec![(Purpose::Read, refused()); 3]);
    c.api.add_pod(pod("a", "lq", "1"));
    c.advance(20);
    assert!(c.api.is_free("a") && c.fail.is_empty());
    c.fail.push_back((Purpose::StopJob, refused()));
    let workload = Api::workload_ref(&c.api.workloads()[0]);
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.advance(7);
    assert!(c.fail.is_empty());
    assert!(c.api.pod("a").is_none() || c.api.pod("a").unwrap()["metadata"]["deletionTimestamp"].is_string());
}

#[test]
fn what_admission_adds_and_the_pod_contradicts_fails_it() {
    let mut c = bed("1");
    let mut odd = pod("odd", "lq", "1");
    odd["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("other");
    c.api.add_pod(odd);
    c.settle();
    let finished = reported(&c.api.workloads()[0], "Finished");
    assert!(finished.starts_with("True/FailedToStart"), "{finished}");
    assert!(c.api.is_gated("odd"));
}

#[test]
fn what_is_refused_is_tried_again_later() {
    let mut c = bed("1");
    c.fail.push_back((Purpose::StartJob, WriteError::Refused("not now".to_owned())));
    c.api.add_pod(pod("a", "lq", "1"));
    c.settle();
    assert!(c.api.is_gated("a"));
    assert_eq!(c.notes("FailedUpdate").len(), 1);
    c.advance(10);
    assert!(c.api.is_free("a"));
}

#[test]
fn the_account_of_an_object_whose_pods_are_jobs_is_that_of_one_that_waits() {
    let mut c = bed("1");
    for name in ["web-5d8c-a", "web-5d8c-b", "web-a-5d8c-c", "web-0"] {
        c.api.add_pod(pod(name, "lq", "1"));
    }
    c.settle();
    let of = |kind: Option<JobKind>, name: &str| {
        let account = c.engine.account(kind.map(Kind::Job), "team-a", name, 1)?;
        Some((account.workload.name.rsplit_once('-')?.0.to_owned(), account.stage))
    };
    let waits = |name: &str| Some((name.to_owned(), Stage::Waiting));
    // The first one runs.
    for kind in [Some(JobKind::DEPLOYMENT), None] {
        assert_eq!(of(kind, "web"), waits("pod-web-5d8c-b"));
        assert_eq!(of(kind, "web-a"), waits("pod-web-a-5d8c-c"));
    }
    assert_eq!(of(Some(JobKind::DEPLOYMENT), "we"), None);
    assert_eq!(of(Some(JobKind::DEPLOYMENT), "web-5d8c"), None);
}
