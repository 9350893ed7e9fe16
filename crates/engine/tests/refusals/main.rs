//! A write that fails again and again is never repeated without end, for any purpose, and its object gets the reason.

#[path = "../model/mod.rs"]
mod model;
mod rare;

use std::collections::BTreeSet;

use serde_json::json;
use sluice_api::gates::Gate;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WaitForPodsReady, WriteError};

use model::build::{job, made_by};
use model::{Api, Cluster};

const CHECK: &str = "dws-prov";

/// Everything is on, and short.
fn cluster() -> Cluster {
    cluster_with(false)
}

/// The same; `block_admission`: nothing is admitted before the pods of what was admitted are ready.
fn cluster_with(block_admission: bool) -> Cluster {
    let mut config = EngineConfig {
        status_interval_ms: 0,
        provisioning: true,
        retention_after_finished_seconds: Some(300),
        retention_after_deactivated_seconds: Some(60),
        wait_for_pods_ready: Some(WaitForPodsReady {
            timeout_seconds: 1000,
            recovery_timeout_seconds: None,
            block_admission,
            order_by_eviction: true,
            backoff_limit_count: Some(0),
            backoff_base_seconds: 1,
            backoff_max_seconds: 1,
        }),
        ..EngineConfig::default()
    };
    config.gates = config.gates.with(Gate::FailureRecoveryPolicy, true);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    c
}

/// The same with a check that asks for nodes.
fn checked() -> Cluster {
    let mut c = cluster();
    ask_for_nodes(&mut c);
    c
}

fn ask_for_nodes(c: &mut Cluster) {
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"});
    let controller = "kueue.x-k8s.io/provisioning-request";
    c.api.put(
        Kind::AdmissionCheck,
        json!({"metadata": {"name": CHECK}, "spec": {"controllerName": controller, "parameters": parameters}}),
    );
    let spec = json!({"provisioningClassName": "queued", "managedResources": ["cpu"]});
    c.api.put(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "dws"}, "spec": spec}));
    c.api.edit(
        &ObjectRef::cluster(Kind::ClusterQueue, "cq"),
        &json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}}),
    );
}

fn queue_job(c: &mut Cluster, count: i32) {
    c.api.add_job(job("team-a", "a", "lq", count, "1"));
    c.settle();
}

fn workload(c: &Cluster) -> Option<ObjectRef> {
    c.api.workloads().first().map(Api::workload_ref)
}

fn deactivate(c: &mut Cluster, active: bool) {
    if let Some(workload) = workload(c) {
        c.api.edit(&workload, &json!({"spec": {"active": active}}));
    }
    c.settle();
}

fn provided(c: &mut Cluster) {
    for request in c.api.names(Kind::ProvisioningRequest) {
        let said = json!({"type": "Provisioned", "status": "True", "reason": "Provisioned", "message": "",
            "lastTransitionTime": c.now.to_string()});
        c.api.edit_status(&request, |s| *s = json!({"conditions": [said]}));
    }
    c.settle();
}

fn stuck_pod(c: &mut Cluster) {
    let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    c.api.put(Kind::Node, json!({"metadata": {"name": "n"}, "spec": {"taints": taints}}));
    c.api.put(
        Kind::Pod,
        json!({
            "metadata": {
                "name": "p", "namespace": "team-a",
                "annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"},
                "deletionTimestamp": c.now.to_string(), "deletionGracePeriodSeconds": 30,
                "finalizers": ["batch.kubernetes.io/job-tracking"],
            },
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running"},
        }),
    );
    c.advance(120);
}

/// Runs into the write.
fn play(purpose: Purpose, c: &mut Cluster) {
    match purpose {
        Purpose::Pend => queue_job(c, 9),
        Purpose::PodsReady | Purpose::Unblock => {
            queue_job(c, 1);
            c.api.edit_job("a", |job| job.view.pods_ready = true);
        }
        Purpose::Reclaim => {
            queue_job(c, 3);
            c.api.edit_job("a", |job| job.view.reclaimable = vec![("main".to_owned(), 1)]);
        }
        Purpose::Evict | Purpose::StopJob | Purpose::ReleaseQuota | Purpose::DeleteRequest => {
            queue_job(c, 1);
            deactivate(c, false);
        }
        Purpose::Requeue => {
            queue_job(c, 1);
            deactivate(c, false);
            deactivate(c, true);
        }
        Purpose::Deactivate | Purpose::DeleteJob => {
            queue_job(c, 1);
            c.advance(1100);
        }
        Purpose::Finish | Purpose::DeleteWorkload | Purpose::ReleaseFinished => {
            queue_job(c, 1);
            c.api.finish_job("a", true);
        }
        Purpose::Finalizer => {
            c.settle();
            c.api.delete(&ObjectRef::cluster(Kind::ClusterQueue, "cq"));
        }
        Purpose::UpdateWorkload => {
            queue_job(c, 9);
            c.api.local_queue("team-a", "other", "cq");
            c.api.edit_job("a", |job| job.view.queue_name = Some("other".to_owned()));
        }
        Purpose::AskController => {
            queue_job(c, 1);
            // Its controller has seen that it was suspended, before it was started, and says no more.
            let before = c.now - jiff::SignedDuration::from_secs(60);
            c.api.edit_job("a", |job| {
                job.view.suspended_condition = Some((true, before));
                job.view.active = false;
            });
            c.settle();
            c.restart();
            let workload = Api::workload_ref(&c.workload("a"));
            c.api.edit(&workload, &json!({"spec": {"active": false}}));
        }
        Purpose::SuspendJob => {
            let mut parent = job("team-a", "parent", "lq", 9, "1");
            parent.job.kind = model::api::kind(true);
            c.api.add_job(parent);
            c.settle();
            let mut child = job("team-a", "child", "", 1, "1");
            child.suspended = false;
            child.controller = Some(made_by(&c.api.job("parent").view));
            c.api.add_job(child);
        }
        Purpose::FailPod | Purpose::DeletePod => stuck_pod(c),
        Purpose::Admit | Purpose::MoveTemplate => {
            queue_job(c, 1);
            provided(c);
        }
        Purpose::SyncChecks => {
            queue_job(c, 1);
            ask_for_nodes(c);
        }
        Purpose::Read => {
            c.lost = Some(Purpose::ReserveQuota);
            queue_job(c, 1);
        }
        Purpose::Bypassed => {
            queue_job(c, 9);
            c.api.add_job(job("team-a", "b", "lq", 9, "1"));
        }
        Purpose::CreateWorkload
        | Purpose::ReserveQuota
        | Purpose::StartJob
        | Purpose::QueueStatus
        | Purpose::CreateTemplate
        | Purpose::CreateRequest => queue_job(c, 1),
        Purpose::UnhealthyNodes
        | Purpose::Place
        | Purpose::EndPods
        | Purpose::DeleteChild
        | Purpose::UpdateChild
        | Purpose::ReplacePart
        | Purpose::MovePod
        | Purpose::UngatePod
        | Purpose::ResizeSlice
        | Purpose::ReleasePod
        | Purpose::RemovePod
        | Purpose::Replacement => rare::play(purpose, c),
    }
    c.settle();
}

/// All of them: with one more, neither this nor [`play`] compiles.
const PURPOSES: [Purpose; Purpose::Read as usize + 1] = [
    Purpose::CreateWorkload,
    Purpose::UpdateWorkload,
    Purpose::DeleteWorkload,
    Purpose::ReserveQuota,
    Purpose::Admit,
    Purpose::Pend,
    Purpose::Bypassed,
    Purpose::Evict,
    Purpose::ReleaseQuota,
    Purpose::Requeue,
    Purpose::SyncChecks,
    Purpose::Deactivate,
    Purpose::Finish,
    Purpose::PodsReady,
    Purpose::Unblock,
    Purpose::Reclaim,
    Purpose::UnhealthyNodes,
    Purpose::Place,
    Purpose::StartJob,
    Purpose::StopJob,
    Purpose::SuspendJob,
    Purpose::AskController,
    Purpose::EndPods,
    Purpose::DeleteJob,
    Purpose::DeleteChild,
    Purpose::UpdateChild,
    Purpose::ReplacePart,
    Purpose::QueueStatus,
    Purpose::Finalizer,
    Purpose::ReleaseFinished,
    Purpose::CreateTemplate,
    Purpose::CreateRequest,
    Purpose::MoveTemplate,
    Purpose::DeleteRequest,
    Purpose::FailPod,
    Purpose::DeletePod,
    Purpose::MovePod,
    Purpose::UngatePod,
    Purpose::ResizeSlice,
    Purpose::ReleasePod,
    Purpose::RemovePod,
    Purpose::Replacement,
    Purpose::Read,
];

fn begin(purpose: Purpose) -> Cluster {
    match purpose {
        Purpose::Admit
        | Purpose::CreateTemplate
        | Purpose::CreateRequest
        | Purpose::MoveTemplate
        | Purpose::DeleteRequest => checked(),
        Purpose::Unblock => cluster_with(true),
        _ => rare::begin(purpose).unwrap_or_else(cluster),
    }
}

fn creates(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::CreateWorkload | Purpose::CreateTemplate | Purpose::CreateRequest)
}

/// Plays into a write, and answers it and all that follow of its kind with `error` for an hour.
fn refuse(purpose: Purpose, error: &WriteError) -> Cluster {
    refuse_in(begin(purpose), play, purpose, error)
}

/// The same for a write on another kind of object.
fn refuse_elsewhere(purpose: Purpose, error: &WriteError) -> Cluster {
    refuse_in(rare::begin_elsewhere(purpose), rare::play_elsewhere, purpose, error)
}

fn refuse_in(
    mut c: Cluster,
    play: fn(Purpose, &mut Cluster),
    purpose: Purpose,
    error: &WriteError,
) -> Cluster {
    c.refuse = Some((purpose, error.clone()));
    play(purpose, &mut c);
    c.advance(3600);
    c
}

/// Refuses each of these purposes so; at most `most` writes in an hour and `events` events are expected.
fn table(
    purposes: impl IntoIterator<Item = Purpose>,
    error: &WriteError,
    right: impl Fn(Purpose) -> (usize, usize),
) {
    table_of(refuse, purposes, error, right);
}

fn table_of(
    refuse: fn(Purpose, &WriteError) -> Cluster,
    purposes: impl IntoIterator<Item = Purpose>,
    error: &WriteError,
    right: impl Fn(Purpose) -> (usize, usize),
) {
    let mut wrong = Vec::new();
    for purpose in purposes {
        let c = refuse(purpose, error);
        let (most, events) = right(purpose);
        if c.refused == 0 {
            wrong.push(format!("{purpose:?} is never written"));
        } else if c.refused > most {
            wrong.push(format!("{purpose:?} is written {} times in an hour", c.refused));
        }
        if reported(&c).len() != events {
            wrong.push(format!("{purpose:?} is reported: {:?}", reported(&c)));
        }
        let warnings: Vec<_> = c.warnings.iter().filter(|line| line.contains("no such luck")).collect();
        if matches!(error, WriteError::NotFound(_)) && !creates(purpose) && !warnings.is_empty() {
            wrong.push(format!("{purpose:?}: {warnings:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Of each object at most `most` writes and one event; reading reports nothing.
fn each(purpose: Purpose, most: usize) -> (usize, usize) {
    match purpose {
        Purpose::Read => (most, 0),
        // The ClusterQueue's and the LocalQueue's.
        Purpose::QueueStatus => (2 * most, 2),
        _ => (most, 1),
    }
}

/// The events that say why.
fn reported(c: &Cluster) -> Vec<String> {
    let events = ["FailedCreate", "FailedUpdate", "FailedDelete"];
    events.iter().flat_map(|reason| c.notes(reason)).filter(|note| note.contains("no such luck")).collect()
}

#[test]
fn each_purpose_is_played() {
    assert_eq!(BTreeSet::from(PURPOSES).len(), PURPOSES.len());
}

#[test]
fn writes_on_pods_are_repeated_less_and_less_often_and_the_pod_says_why() {
    let no = "no such luck".to_owned();
    for (error, most, events) in [
        (WriteError::Refused(no.clone()), 20, 1),
        (WriteError::Transient(no.clone()), 80, 1),
        (WriteError::Conflict(no.clone()), 90, 1),
        (WriteError::NotFound(no), 5, 0),
    ] {
        table_of(refuse_elsewhere, rare::ELSEWHERE, &error, |_| (most, events));
    }
}

#[test]
fn a_write_that_is_refused_is_repeated_less_and_less_often_and_its_object_says_why() {
    // 400, 403, 413 and 422: an hour has 5, 10, 20, 40, 80, 160 and then 300 seconds. Looks begin with 1, 2 and 4.
    table(PURPOSES, &WriteError::Refused("no such luck".to_owned()), |purpose| match purpose {
        // Four attempts to get nodes, with names of their own, of three writes each; then it is rejected.
        Purpose::CreateTemplate | Purpose::CreateRequest => (12, 4),
        _ => each(purpose, 20),
    });
}

#[test]
fn what_may_not_be_made_for_want_of_rights_is_tried_less_and_less_often_and_its_object_says_why() {
    let why = "podtemplates is forbidden: User \"u\" cannot create resource: no such luck (403 Forbidden)";
    let purposes = [Purpose::CreateTemplate, Purpose::CreateRequest];
    table(purposes, &WriteError::Refused(why.to_owned()), |purpose| each(purpose, 20));
}

#[test]
fn a_write_that_fails_is_repeated_less_and_less_often_and_its_object_says_why() {
    // 429, 500, no answer: and then every minute.
    table(PURPOSES, &WriteError::Transient("no such luck".to_owned()), |purpose| each(purpose, 80));
}

#[test]
fn a_conflict_that_no_newer_version_explains_is_repeated_less_and_less_often_and_its_object_says_why() {
    table(PURPOSES, &WriteError::Conflict("no such luck".to_owned()), |purpose| each(purpose, 90));
}

#[test]
fn an_object_that_is_in_the_way_is_reported_and_read_less_and_less_often() {
    let purposes = PURPOSES.into_iter().filter(|purpose| creates(*purpose));
    table(purposes, &WriteError::AlreadyExists("no such luck".to_owned()), |_| (20, 1));
}

#[test]
fn what_is_gone_is_not_written_again_and_is_no_warning() {
    table(PURPOSES, &WriteError::NotFound("no such luck".to_owned()), |purpose| {
        if creates(purpose) { (80, 1) } else { (5, 0) }
    });
}

#[test]
fn a_job_that_cannot_be_started_is_ended_with_the_reason() {
    let c = refuse(Purpose::StartJob, &WriteError::Unstartable("no such luck".to_owned()));
    // Whenever the retention of its Workload is over.
    assert!(c.refused <= 13, "{}", c.refused);
    assert!(c.notes("FailedToStart").iter().any(|note| note.contains("no such luck")));
}

#[test]
fn a_reason_that_was_refused_for_an_hour_is_written_in_its_own_words() {
    for error in ["refused", "transient"] {
        let error = match error {
            "refused" => WriteError::Refused("no such luck".to_owned()),
            _ => WriteError::Transient("no such luck".to_owned()),
        };
        let mut c = refuse(Purpose::Pend, &error);
        assert!(c.refused > 2, "{}", c.refused);
        c.refuse = None;
        c.advance(300);
        let own = "False/ExceedsMaxQuota: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, \
                   previously considered podsets requests (0) + current podset request (9) > maximum capacity (3)";
        assert_eq!(model::reported(&c.workload("a"), "QuotaReserved"), own);
        assert_eq!(c.written(Purpose::Bypassed), 0);
        let pending = c.events.iter().filter(|event| event.note.starts_with("couldn't assign"));
        assert_eq!(pending.count(), 1, "{:#?}", c.events);
    }
}
