//! An object that made the engine panic is left out, but a job that is managed and not admitted does not run even then.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use sluice_api::job::{JobFinished, JobKind, JobView};
use sluice_engine::{Engine, EngineConfig, Input, Kind, ObjectRef, Purpose, WriteError};

use crate::kinds::{restart_with, suspended_by_field};
use crate::model::build::{job, made_by};
use crate::model::{Api, Cluster, KINDS, condition};
use crate::pods::runs;
use crate::unadmitted::{ADMITTED, cluster, halts, running, set, workload};

fn reference(c: &Cluster, name: &str) -> ObjectRef {
    let job = &c.api.job(name).view.job;
    ObjectRef::namespaced(Kind::Job(job.kind), Arc::clone(&job.namespace), Arc::clone(&job.name))
}

/// What the manager tells an engine about an object that made the one before panic in this version.
fn left_out(object: &ObjectRef, version: Option<&str>, pause: u32) -> Input {
    let (object, version) = (object.clone(), version.map(str::to_owned));
    Input::SetAside { object, version, why: "a bug".to_owned(), pause }
}

/// Replaces the engine as the manager does after a panic on a job: the new one leaves it out from the beginning. Its controller writes nothing: a
/// change would end that.
fn set_aside(c: &mut Cluster, name: &str) {
    set_aside_for(c, name, 0);
}

/// The same after several panics.
fn set_aside_for(c: &mut Cluster, name: &str, pause: u32) {
    c.pods_vanish = false;
    let object = reference(c, name);
    c.engine = Engine::new(c.config.clone());
    c.engine.apply(c.now, left_out(&object, None, pause));
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

#[test]
fn a_job_that_is_set_aside_and_whose_stop_panics_is_stopped_later() {
    let mut c = cluster();
    running(&mut c, job("team-a", "a", "lq", 1, "1"));
    c.slow = Some(Purpose::SuspendJob);
    set_aside(&mut c, "a");
    let object = reference(&c, "a");
    // So says the part of the manager that makes the patches, and then that the write failed.
    c.engine.apply(c.now, left_out(&object, Some(""), 0));
    c.time_out();
    assert!(!c.api.job("a").view.suspended);
    c.advance(600);
    assert!(c.api.job("a").view.suspended && c.engine.leaves_out(&object));
    assert_eq!(halts(&c, "a"), 2);
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
    engine.apply(api.now, left_out(object, None, 0));
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

#[test]
fn a_version_other_than_the_one_that_panicked_is_looked_at_also_if_it_is_the_first_that_is_seen() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    let object = reference(&c, "a");
    let version = c.api.job("a").view.resource_version.clone();
    for (known, stays) in [(Some(&*version), true), (Some("1"), false), (Some(""), false), (None, true)] {
        let mut engine = Engine::new(EngineConfig::default());
        engine.apply(c.now, left_out(&object, known, 0));
        engine.apply(c.now, Input::Applied(c.api.seen(&object)));
        assert_eq!(engine.leaves_out(&object), stays, "{known:?}");
    }
}

#[test]
fn an_object_that_panicked_several_times_is_left_out_until_its_pause_is_over_whatever_becomes_of_it() {
    let mut c = cluster();
    running(&mut c, job("team-a", "a", "lq", 1, "1"));
    set_aside_for(&mut c, "a", 60);
    let object = reference(&c, "a");
    for _ in 0..3 {
        assert!(c.api.job("a").view.suspended, "it is not admitted");
        c.advance(15);
        assert!(c.engine.leaves_out(&object));
        c.api.edit_job("a", |job| (job.view.suspended, job.started_by_user) = (false, true));
        c.settle();
    }
    c.pods_vanish = true;
    c.advance(14);
    assert!(c.engine.leaves_out(&object));
    c.advance(1);
    assert!(!c.engine.leaves_out(&object));
    assert!(runs(&c, "a"), "its newest version is suspended, and has no pods");
}

#[test]
fn an_object_that_comes_again_during_its_pause_is_left_out_and_one_that_does_not_is_forgotten() {
    for again in [true, false] {
        let mut c = cluster();
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        set_aside_for(&mut c, "a", 60);
        let object = reference(&c, "a");
        c.api.delete_job("a");
        c.settle();
        let revision = c.api.revision();
        c.list(object.kind, Vec::new(), revision);
        if again {
            c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        }
        c.advance(59);
        assert!(c.engine.leaves_out(&object));
        c.advance(1);
        assert!(!c.engine.leaves_out(&object));
        assert!(!again || runs(&c, "a"));
    }
}

/// A job that has all the quota, and one that waits for that.
fn with_a_waiter() -> Cluster {
    let mut c = cluster();
    for name in ["a", "b"] {
        c.api.add_job(job("team-a", name, "lq", 1, "1"));
        c.advance(1);
    }
    assert!(runs(&c, "a") && !runs(&c, "b"));
    c
}

fn workload_of(c: &Cluster, name: &str) -> ObjectRef {
    Api::workload_ref(&c.workload(name))
}

fn deactivate(c: &mut Cluster, name: &str) {
    let workload = workload_of(c, name);
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
}

/// The controller reports that the job has no pods any more, and the engine panics once more.
fn shows_no_pods(c: &mut Cluster, name: &str) {
    c.api.edit_job(name, |job| job.view.active = false);
    set_aside(c, name);
}

#[test]
fn a_job_that_is_set_aside_gives_its_quota_back_after_its_eviction_once_its_pods_are_gone() {
    let mut c = with_a_waiter();
    set_aside(&mut c, "a");
    let uid = Arc::clone(&c.api.job("a").view.job.uid);
    deactivate(&mut c, "a");
    assert!(c.api.job("a").view.suspended);
    c.advance(600);
    assert!(!runs(&c, "b"), "its status shows pods");
    c.api.ending_pods.insert(uid);
    shows_no_pods(&mut c, "a");
    c.advance(600);
    assert!(!runs(&c, "b"), "its pods still end");
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "b"));
    assert!(c.engine.leaves_out(&reference(&c, "a")));
}

#[test]
fn a_job_that_is_set_aside_gives_its_quota_back_after_its_end() {
    let mut c = with_a_waiter();
    c.api.finish_job("a", true);
    set_aside(&mut c, "a");
    c.advance(31);
    assert_eq!(condition(&c.workload("a"), "Finished"), "True");
    assert!(runs(&c, "b"));
}

#[test]
fn a_deactivated_workload_keeps_its_quota_until_its_job_that_is_set_aside_has_stopped() {
    let mut c = with_a_waiter();
    set_aside(&mut c, "a");
    c.slow = Some(Purpose::SuspendJob);
    deactivate(&mut c, "a");
    c.advance(600);
    assert!(!c.api.job("a").view.suspended && !runs(&c, "b"));
    c.release();
    shows_no_pods(&mut c, "a");
    c.advance(31);
    assert!(runs(&c, "b"));
}

#[test]
fn a_workload_that_is_deleted_goes_once_its_job_that_is_set_aside_has_stopped() {
    let mut c = with_a_waiter();
    set_aside(&mut c, "a");
    let workload = workload_of(&c, "a");
    let uid = Arc::clone(&c.api.job("a").view.job.uid);
    c.slow = Some(Purpose::SuspendJob);
    c.api.delete(&workload);
    c.advance(600);
    assert!(!c.api.job("a").view.suspended && !runs(&c, "b"));
    c.api.ending_pods.insert(uid);
    c.release();
    c.advance(600);
    assert!(c.api.job("a").view.suspended && !runs(&c, "b"));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "b") && c.api.json(&workload).is_none());
}

#[test]
fn a_waiting_job_that_is_set_aside_gets_no_quota_until_it_changes() {
    let mut c = with_a_waiter();
    c.api.add_job(job("team-a", "next", "lq", 1, "1"));
    c.settle();
    set_aside(&mut c, "b");
    c.api.finish_job("a", true);
    c.advance(31);
    assert!(runs(&c, "next") && condition(&c.workload("b"), "QuotaReserved") != "True");
    c.api.edit_job("b", |job| {
        job.view.labels.insert("mended".to_owned(), "yes".to_owned());
    });
    c.api.finish_job("next", true);
    c.advance(31);
    assert!(runs(&c, "b"));
}

#[test]
fn a_job_whose_writes_panic_is_held_as_it_was_seen_last() {
    let mut c = with_a_waiter();
    c.pods_vanish = false;
    let object = reference(&c, "a");
    // So says the part of the manager that makes the patches.
    c.engine.apply(c.now, left_out(&object, Some(""), 0));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    deactivate(&mut c, "a");
    assert!(c.api.job("a").view.suspended && c.engine.leaves_out(&object));
    assert_eq!((halts(&c, "a"), c.written(Purpose::StopJob)), (1, 0));
    c.advance(600);
    assert!(!runs(&c, "b"), "its status shows pods");
    c.api.edit_job("a", |job| job.view.active = false);
    c.advance(31);
    assert!(runs(&c, "b") && !c.engine.leaves_out(&object));
}
