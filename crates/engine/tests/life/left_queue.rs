//! A job that leaves its queue: alone, in one write with other changes, or with its namespace. A running job keeps its quota until it has ended.

use serde_json::json;
use sluice_api::job::{JobKind, JobView};
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};
use crate::pods::runs;
use crate::sources::prebuilt;
use crate::unadmitted::{cluster, running, with};

/// `old` runs, of this kind, and `new` waits for its quota.
pub fn full(kind: JobKind) -> Cluster {
    let mut c = cluster();
    let mut old = job("team-a", "old", "lq", 1, "1");
    old.job.kind = kind;
    c.api.add_job(old);
    c.settle();
    assert!(runs(&c, "old"));
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.settle();
    c
}

const KINDS: [JobKind; 3] = [JobKind::JOB, JobKind::JOB_SET, JobKind::MPI_JOB];

fn holds(c: &Cluster) -> bool {
    condition(&c.workload("old"), "QuotaReserved") == "True"
}

fn edit(c: &mut Cluster, change: fn(&mut JobView)) {
    c.api.edit_job("old", |job| {
        change(&mut job.view);
        job.started_by_user = true;
    });
    c.settle();
}

#[test]
fn what_leaves_its_queue_and_runs_keeps_its_quota_until_it_has_ended() {
    for kind in KINDS {
        // Suspended without a queue, and resumed again: what is seen is the last of both.
        let mut c = full(kind);
        edit(&mut c, |job| (job.queue_name, job.generation) = (None, job.generation + 2));
        c.advance(600);
        assert!(holds(&c) && !runs(&c, "new"), "{kind:?}");
        c.restart();
        c.advance(600);
        assert!(holds(&c) && !runs(&c, "new"), "{kind:?}");
        c.api.finish_job("old", true);
        c.settle();
        assert_eq!(condition(&c.workload("old"), "Finished"), "True", "{kind:?}");
        assert!(runs(&c, "new"), "{kind:?}");
    }
}

/// One write lets a job run that waits, and takes it out of its queue: it runs as one that was never in a queue, and gets no quota.
#[test]
fn what_leaves_its_queue_while_it_waits_gets_no_quota() {
    for kind in KINDS {
        for suspended in [false, true] {
            let mut c = full(JobKind::JOB);
            let mut third = job("team-a", "third", "lq", 1, "1");
            third.job.kind = kind;
            c.api.add_job(third);
            c.settle();
            let uid = c.api.job("third").view.job.uid.clone();
            assert_eq!(c.api.workloads_of(&uid).len(), 1);
            c.api.edit_job("third", |job| {
                (job.view.suspended, job.view.active) = (suspended, !suspended);
                (job.view.queue_name, job.started_by_user) = (None, true);
            });
            c.advance(60);
            assert!(c.api.workloads_of(&uid).is_empty(), "{kind:?}, suspended: {suspended}");
            assert_eq!(c.api.job("third").view.suspended, suspended, "it is not managed");
        }
    }
}

/// It was admitted, and our start comes too late: it runs on what it holds.
#[test]
fn what_leaves_its_queue_while_it_is_started_keeps_its_quota() {
    for kind in KINDS {
        let mut c = cluster();
        let mut old = job("team-a", "old", "lq", 1, "1");
        old.job.kind = kind;
        c.api.add_job(old);
        c.slow = Some(sluice_engine::Purpose::StartJob);
        c.settle();
        edit(&mut c, |job| {
            (job.suspended, job.active, job.queue_name, job.generation) = (false, true, None, 2);
        });
        c.release();
        c.api.add_job(job("team-a", "new", "lq", 1, "1"));
        c.advance(600);
        assert!(holds(&c) && !runs(&c, "new"), "{kind:?}");
        c.api.finish_job("old", true);
        c.settle();
        assert!(runs(&c, "new"), "{kind:?}");
    }
}

#[test]
fn what_left_its_queue_is_preempted_like_any_other() {
    for kind in KINDS {
        let mut c = full(kind);
        edit(&mut c, |job| job.queue_name = None);
        let workload = Api::workload_ref(&c.workload("old"));
        c.pods_vanish = false;
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
        c.settle();
        assert!(c.api.job("old").view.suspended && !runs(&c, "new"), "{kind:?}: its pods are there");
        c.pods_vanish = true;
        c.advance(60);
        assert!(runs(&c, "new"), "{kind:?}");
    }
}

/// Whether or not the owner references go with it: the finalizer keeps the Workload until the job has stopped.
#[test]
fn what_left_its_queue_is_stopped_when_its_workload_is_deleted() {
    for kind in KINDS {
        let mut c = full(kind);
        edit(&mut c, |job| job.queue_name = None);
        let workload = Api::workload_ref(&c.workload("old"));
        let uid = c.api.job("old").view.job.uid.clone();
        c.pods_vanish = false;
        c.api.delete(&workload);
        c.settle();
        assert!(c.api.job("old").view.suspended, "{kind:?}");
        assert!(holds(&c) && !runs(&c, "new"), "{kind:?}: its pods are there");
        c.pods_vanish = true;
        c.advance(60);
        assert!(c.api.workloads_of(&uid).is_empty() && runs(&c, "new"), "{kind:?}");
    }
}

#[test]
fn a_job_that_leaves_its_queue_keeps_its_quota_until_its_pods_are_gone() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.pods_vanish = false;
    c.api.edit_job("a", |job| {
        (job.view.suspended, job.stopping_pods) = (true, true);
        job.view.queue_name = None;
    });
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.workloads().is_empty());
}

/// A job on a Workload that its user made; before it one that runs, if the queue is `taken`.
fn on_prebuilt(taken: bool) -> Cluster {
    let mut c = cluster();
    if taken {
        c.api.add_job(job("team-a", "first", "lq", 1, "1"));
        c.settle();
    }
    prebuilt(&mut c, "mine", 1);
    let mut old = job("team-a", "old", "lq", 1, "1");
    old.prebuilt_workload = Some("mine".to_owned());
    c.api.add_job(old);
    c.settle();
    assert_eq!(holds(&c), !taken);
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.settle();
    c
}

#[test]
fn a_prebuilt_workload_takes_no_quota_for_a_suspended_job_that_left_its_queue() {
    let mut c = on_prebuilt(true);
    edit(&mut c, |job| job.queue_name = None);
    c.api.finish_job("first", true);
    c.advance(60);
    assert!(!holds(&c) && runs(&c, "new") && c.api.job("old").view.suspended);
    let message = "True/OutOfSync: The prebuilt workload is out of sync with its user job";
    assert_eq!(reported(&c.workload("old"), "Finished"), message);
}

#[test]
fn a_prebuilt_workload_is_released_when_its_job_is_suspended_without_a_queue() {
    for (evicted, deleted) in [(false, false), (true, false), (false, true)] {
        let mut c = on_prebuilt(false);
        let workload = Api::workload_ref(&c.workload("old"));
        let uid = c.api.job("old").view.job.uid.clone();
        c.pods_vanish = false;
        c.api.edit_job("old", |job| {
            (job.view.suspended, job.stopping_pods, job.view.queue_name) = (true, true, None);
        });
        c.settle();
        if evicted {
            c.api.edit(&workload, &json!({"spec": {"active": false}}));
        }
        if deleted {
            c.api.delete(&workload);
        }
        c.advance(5);
        assert!(holds(&c) && !runs(&c, "new"), "its pods are there");
        c.pods_vanish = true;
        c.advance(60);
        assert!(runs(&c, "new"), "evicted: {evicted}, deleted: {deleted}");
        assert_eq!(c.api.workloads_of(&uid).is_empty(), deleted);
    }
}

#[test]
fn a_job_with_a_queue_in_a_namespace_that_is_not_managed_stays_suspended() {
    let selector = serde_json::from_value(json!({"matchLabels": {"managed": "yes"}})).unwrap();
    let mut c =
        with(EngineConfig { managed_jobs_namespace_selector: Some(selector), ..EngineConfig::default() });
    running(&mut c, job("team-b", "b", "lq", 1, "1"));
    c.settle();
    assert!(c.api.job("b").view.suspended && c.api.workloads().is_empty());
    assert_eq!(
        c.notes("ErrWorkloadCompose"),
        ["Job/b: The job stays suspended: managedJobsNamespaceSelector does not select the namespace team-b"]
    );
    c.api.edit(
        &ObjectRef::cluster(Kind::Namespace, "team-b"),
        &json!({"metadata": {"labels": {"managed": "yes"}}}),
    );
    c.settle();
    assert!(!c.api.job("b").view.suspended, "it was admitted once its namespace was selected");
    // One that runs on its quota is not forgotten when its namespace is selected no longer.
    c.api.edit(
        &ObjectRef::cluster(Kind::Namespace, "team-b"),
        &json!({"metadata": {"labels": {"managed": "no"}}}),
    );
    c.settle();
    c.api.finish_job("b", true);
    c.settle();
    assert_eq!(condition(&c.workload("b"), "Finished"), "True");
}
