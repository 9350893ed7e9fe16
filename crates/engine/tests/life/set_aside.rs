//! An object that made the engine panic is left out, but a job that is managed and not admitted does not run even then.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use sluice_api::job::{JobFinished, JobKind, JobView};
use sluice_engine::{Engine, EngineConfig, Input, Kind, ObjectRef, Purpose, WriteError};

use crate::kinds::{restart_with, suspended_by_field};
use crate::model::build::{job, made_by};
use crate::model::{Api, Cluster, KINDS};
use crate::unadmitted::{ADMITTED, cluster, halts, running, set, workload};

fn reference(c: &Cluster, name: &str) -> ObjectRef {
    let job = &c.api.job(name).view.job;
    ObjectRef::namespaced(Kind::Job(job.kind), Arc::clone(&job.namespace), Arc::clone(&job.name))
}

/// Replaces the engine as the manager does after a panic on a job: the new one leaves it out from the beginning. Its controller writes nothing: a
/// change would end that.
fn set_aside(c: &mut Cluster, name: &str) {
    c.pods_vanish = false;
    let object = reference(c, name);
    c.engine = Engine::new(c.config.clone());
    c.engine.apply(c.now, Input::SetAside { object, why: "a bug".to_owned() });
    c.engine.apply(c.now, Input::Leader(true));
    for object in c.api.everything() {
        c.engine.apply(c.now, Input::Applied(object));
    }
    for kind in KINDS {
        let (present, revision) = (c.api.names(kind), c.api.revision());
        c.list(kind, present, revision);
    }
    c.engine.apply(c.now, Input::Synced);
    c.settle();
}

/// Makes a job, which its user lets run, and sets it aside.
fn left_running(change: impl FnOnce(&mut JobView)) -> Cluster {
    let mut c = cluster();
    let mut view = job("team-a", "a", "lq", 1, "1");
    change(&mut view);
    restart_with(&mut c, view.job.kind);
    running(&mut c, view);
    set_aside(&mut c, "a");
    c
}

#[test]
fn a_job_that_is_set_aside_and_not_admitted_does_not_run() {
    for kind in suspended_by_field() {
        let mut c = left_running(|view| view.job.kind = kind);
        assert!(c.api.job("a").view.suspended, "{kind:?}");
        c.advance(600);
        assert_eq!(halts(&c, "a"), 1, "{kind:?}");
        assert!(c.engine.leaves_out(&reference(&c, "a")), "{kind:?}: only its suspension has changed");
        assert_eq!(c.notes("Stopped"), [format!("{}/a: Set aside, and not admitted", kind.kind())]);
    }
}

#[test]
fn a_job_that_is_set_aside_runs_as_long_as_it_is_admitted() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    set_aside(&mut c, "a");
    c.advance(600);
    assert!(!c.api.job("a").view.suspended && halts(&c, "a") == 0, "{:?}", c.writes);
    let name = c.workload("a").metadata.name.unwrap();
    set(&mut c, &ObjectRef::namespaced(Kind::Workload, "team-a", name), &[]);
    c.settle();
    assert!(c.api.job("a").view.suspended);
}

#[test]
fn a_workload_of_the_same_owner_elsewhere_admits_no_job_that_is_set_aside() {
    let mut c = cluster();
    running(&mut c, job("team-b", "a", "lq", 1, "1"));
    let uid = c.api.job("a").view.job.uid.to_string();
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": uid, "controller": true});
    let forged = workload(&mut c, "forged", "lq", &owner);
    set(&mut c, &forged, &ADMITTED);
    set_aside(&mut c, "a");
    assert!(c.api.job("a").view.suspended);
}

#[test]
fn a_stop_of_a_job_that_is_set_aside_is_tried_again_until_it_succeeds() {
    let mut c = cluster();
    running(&mut c, job("team-a", "a", "lq", 1, "1"));
    c.fail.extend((0..3).map(|_| (Purpose::SuspendJob, WriteError::Refused("no".to_owned()))));
    set_aside(&mut c, "a");
    assert_eq!(halts(&c, "a"), 1);
    c.advance(600);
    assert!(c.api.job("a").view.suspended);
    assert_eq!(halts(&c, "a"), 4);
    assert_eq!(c.notes("FailedUpdate").len(), 1);
}

/// A job of that kind and queue, with quota for one pod, and below it a part that runs and is set aside.
fn below(kind: JobKind, queue: &str, mut part: JobView) -> Cluster {
    let mut c = cluster();
    c.api.local_queue("team-a", "default", "cq");
    restart_with(&mut c, kind);
    let name = part.job.name.to_string();
    let mut above = job("team-a", "set", queue, 1, "1");
    above.job.kind = kind;
    above.part_names = vec![name.clone()];
    c.api.add_job(above);
    c.settle();
    part.controller = Some(made_by(&c.api.job("set").view));
    running(&mut c, part);
    set_aside(&mut c, &name);
    c
}

/// A JobSet in that queue, and below it a job of that name that runs and is set aside.
fn below_jobset(queue: &str, name: &str) -> Cluster {
    below(JobKind::JOB_SET, queue, job("team-a", name, "", 1, "1"))
}

/// How often it was deleted, to be made again.
fn replaced(c: &Cluster, name: &str) -> usize {
    let deletes =
        |(object, purpose): &&(ObjectRef, Purpose)| *object.name == *name && *purpose == Purpose::ReplacePart;
    c.writes.iter().filter(deletes).count()
}

#[test]
fn a_part_that_is_set_aside_runs_on_the_workload_of_the_job_above_it() {
    let c = below_jobset("lq", "set-main-0");
    assert_eq!((halts(&c, "set-main-0"), replaced(&c, "set-main-0")), (0, 0));
    assert_eq!(halts(&below_jobset("missing", "set-main-0"), "set-main-0"), 1);
}

#[test]
fn a_part_that_is_set_aside_does_not_run_with_more_pods_than_the_job_above_it_has_quota_for() {
    for (pods, stops) in [(1, 0), (2, 1)] {
        let mut part = job("team-a", "ray", "", pods, "1");
        part.job.kind = JobKind::RAY_CLUSTER;
        let c = below(JobKind::RAY_JOB, "lq", part);
        assert_eq!((halts(&c, "ray"), replaced(&c, "ray")), (stops, 0), "{pods} pods");
    }
    // The JobSet's controller would resume it.
    let c = below(JobKind::JOB_SET, "lq", job("team-a", "set-main-0", "", 2, "1"));
    assert_eq!((halts(&c, "set-main-0"), replaced(&c, "set-main-0")), (0, 1));
}

/// Without its owner it would have been queued.
#[test]
fn a_job_that_is_set_aside_and_only_claims_to_be_a_part_does_not_run() {
    assert_eq!(halts(&below_jobset("lq", "other"), "other"), 1);
}

#[test]
fn what_is_over_or_stopping_or_not_managed_is_not_stopped_when_it_is_set_aside() {
    let unmanaged = left_running(|view| view.queue_name = None);
    assert_eq!(halts(&unmanaged, "a"), 0);
    let over = left_running(|view| {
        view.finished = Some(JobFinished { success: true, message: String::new() });
    });
    assert_eq!(halts(&over, "a"), 0);
    // It is suspended, and its templates are still to be restored.
    let stopping = left_running(|view| view.stopping = true);
    assert_eq!(halts(&stopping, "a"), 0);
}

#[test]
fn an_object_that_is_set_aside_is_forgotten_when_a_list_lacks_it() {
    let mut c = left_running(|_| {});
    let object = reference(&c, "a");
    let (present, revision) = (c.api.names(object.kind), c.api.revision());
    c.list(object.kind, present, revision);
    assert!(c.engine.leaves_out(&object));
    c.list(object.kind, Vec::new(), revision);
    assert!(!c.engine.leaves_out(&object));
}

/// An engine that leaves an object out, as it is now.
fn leaving_out(api: &Api, object: &ObjectRef) -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    engine.apply(api.now, Input::SetAside { object: object.clone(), why: "a bug".to_owned() });
    for _ in 0..2 {
        engine.apply(api.now, Input::Applied(api.seen(object)));
        assert!(engine.leaves_out(object), "{object}");
    }
    engine
}

#[test]
fn an_object_of_any_kind_that_is_set_aside_and_changes_is_looked_at_again() {
    for kind in KINDS.into_iter().filter(|kind| !matches!(kind, Kind::Job(_))) {
        let mut api = Api::at(Timestamp::UNIX_EPOCH);
        let namespace = kind.namespaced().then_some("team-a");
        let metadata = json!({"name": "a", "namespace": namespace});
        // What classes have to have, too.
        let object = api.put(kind, json!({"metadata": metadata, "value": 1, "handler": "x"}));
        let mut engine = leaving_out(&api, &object);
        api.edit(&object, &json!({"metadata": {"labels": {"a": "b"}}}));
        engine.apply(api.now, Input::Applied(api.seen(&object)));
        assert!(!engine.leaves_out(&object), "{object}");
    }
}

#[test]
fn a_heartbeat_of_a_node_that_is_set_aside_is_no_change() {
    let mut api = Api::at(Timestamp::UNIX_EPOCH);
    let node = api.put(Kind::Node, json!({"metadata": {"name": "n"}, "spec": {}}));
    let says = |status: &str, at: &str| json!({"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": at}]});
    api.edit_status(&node, |now| *now = says("True", "2026-01-01T00:00:00Z"));
    let mut engine = leaving_out(&api, &node);
    api.edit_status(&node, |now| *now = says("True", "2026-01-01T00:00:10Z"));
    engine.apply(api.now, Input::Applied(api.seen(&node)));
    assert!(engine.leaves_out(&node));
    api.edit_status(&node, |now| *now = says("Unknown", "2026-01-01T00:00:20Z"));
    engine.apply(api.now, Input::Applied(api.seen(&node)));
    assert!(!engine.leaves_out(&node));
}
