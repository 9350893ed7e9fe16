//! A job that is deleted holds its quota until its pods are gone.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WriteError};

use crate::elastic;
use crate::model::build::job;
use crate::model::{Cluster, condition};
use crate::pods::runs;
use crate::unadmitted::{cluster, with};

/// How a job is deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Background,
    Foreground,
    /// Its Workload, and its pods, have no owner then.
    Orphans,
}

fn workload(c: &Cluster, job: &str) -> ObjectRef {
    let name = c.workload(job).metadata.name.unwrap();
    ObjectRef::namespaced(Kind::Workload, "team-a", name)
}

/// A job runs that has all the quota, and another waits for it.
fn running() -> Cluster {
    running_with(EngineConfig::default())
}

fn running_with(config: EngineConfig) -> Cluster {
    let mut c = with(config);
    c.api.add_job(job("team-a", "old", "lq", 1, "1"));
    c.settle();
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.settle();
    assert!(runs(&c, "old") && !runs(&c, "new"));
    c
}

fn uid(c: &Cluster, job: &str) -> Arc<str> {
    Arc::clone(&c.api.job(job).view.job.uid)
}

fn delete(c: &mut Cluster, how: How) {
    let of = workload(c, "old");
    match how {
        How::Background => c.api.delete_job("old"),
        How::Foreground => {
            c.api.edit_job("old", |job| job.view.deleting = true);
            c.settle();
            c.api.delete(&of);
        }
        How::Orphans => {
            // A finalizer keeps it until its dependents have no owner.
            c.api.edit_job("old", |job| job.view.deleting = true);
            c.settle();
            c.api.edit(&of, &json!({"metadata": {"ownerReferences": null}}));
            c.settle();
            c.api.delete_job("old");
        }
    }
    c.settle();
}

#[test]
fn a_job_that_is_deleted_holds_its_quota_until_its_pods_are_gone() {
    for (how, restarts) in [
        (How::Background, false),
        (How::Background, true),
        (How::Foreground, false),
        (How::Foreground, true),
        (How::Orphans, false),
    ] {
        let mut c = running();
        let old = uid(&c, "old");
        c.api.ending_pods.insert(old);
        delete(&mut c, how);
        if restarts {
            c.restart();
        }
        c.advance(3600);
        assert!(!runs(&c, "new"), "{how:?}: the pods of the old job run on");
        c.api.ending_pods.clear();
        c.advance(31);
        assert!(runs(&c, "new"), "{how:?}");
    }
}

#[test]
fn pods_of_the_jobs_below_a_deleted_one_count_as_its_own() {
    let mut c = cluster();
    let mut set = job("team-a", "old", "lq", 1, "1");
    set.job.kind = JobKind::JOB_SET;
    c.api.add_job(set);
    c.settle();
    let mut child = job("team-a", "old-main-0", "", 1, "1");
    child.controller = Some(ControllerRef {
        api_version: JobKind::JOB_SET.api_version().to_owned(),
        kind: JobKind::JOB_SET.kind().to_owned(),
        name: "old".to_owned(),
        uid: uid(&c, "old").to_string(),
    });
    (child.suspended, child.active) = (false, true);
    c.api.add_job(child);
    c.settle();
    let child = uid(&c, "old-main-0");
    c.api.ending_pods.insert(child);
    c.api.delete_job("old");
    c.api.delete_job("old-main-0");
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.advance(600);
    assert!(!runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "new"));
}

#[test]
fn a_deletion_costs_one_look_and_that_of_a_job_that_waits_none() {
    let mut c = running();
    c.api.delete_job("new");
    c.settle();
    assert_eq!(c.written(Purpose::EndPods), 0);
    c.api.delete_job("old");
    c.settle();
    assert_eq!(c.written(Purpose::EndPods), 1);
    assert_eq!(c.api.workloads(), []);
}

#[test]
fn one_look_is_for_all_jobs_of_a_namespace() {
    let mut c = cluster();
    c.api.simple("50", &json!({}));
    let names: Vec<_> = (0..50).map(|n| format!("old-{n}")).collect();
    for name in &names {
        c.api.add_job(job("team-a", name, "lq", 1, "1"));
    }
    c.settle();
    for name in &names {
        let uid = uid(&c, name);
        c.api.ending_pods.insert(uid);
        c.api.delete_job(name);
    }
    c.advance(60);
    assert_eq!(c.api.workloads().len(), 50);
    assert!(c.written(Purpose::EndPods) < 12, "{} looks", c.written(Purpose::EndPods));
    c.api.ending_pods.clear();
    c.advance(31);
    assert_eq!(c.api.workloads().len(), 0);
}

#[test]
fn where_it_cannot_be_looked_the_quota_is_kept() {
    let mut c = running();
    c.refuse = Some((Purpose::EndPods, WriteError::Transient("down".to_owned())));
    c.api.delete_job("old");
    c.advance(120);
    assert!(!runs(&c, "new"));
    c.refuse = None;
    c.advance(120);
    assert!(runs(&c, "new"));
    assert_eq!(condition(&c.workload("new"), "Admitted"), "True");
}

#[test]
fn pods_that_take_longer_than_they_may_are_given_less_time() {
    for longest in [None, Some(SignedDuration::from_mins(10))] {
        let mut c = running_with(EngineConfig { longest_termination: longest, ..EngineConfig::default() });
        let old = uid(&c, "old");
        c.api.ending_pods.insert(Arc::clone(&old));
        delete(&mut c, How::Background);
        c.advance(599);
        assert!(c.api.hurried.is_empty());
        c.advance(3600);
        assert_eq!(c.api.hurried.contains(&old), longest.is_some());
        assert_eq!(c.notes("StopEnforced").len(), usize::from(longest.is_some()), "it is told once");
    }
}

#[test]
fn so_are_those_of_an_evicted_job() {
    let mut c = running_with(EngineConfig {
        longest_termination: Some(SignedDuration::from_mins(10)),
        ..EngineConfig::default()
    });
    let old = uid(&c, "old");
    c.pods_vanish = false;
    c.api.ending_pods.insert(Arc::clone(&old));
    let of = workload(&c, "old");
    c.api.edit(&of, &json!({"spec": {"active": false}}));
    c.api.edit_job("old", |job| job.view.terminating = 1);
    c.settle();
    c.api.edit_job("old", |job| job.view.active = false);
    c.advance(599);
    assert!(c.api.hurried.is_empty() && !runs(&c, "new"));
    c.advance(2);
    assert!(c.api.hurried.contains(&old));
    c.advance(60);
    assert!(!runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    // None is left that has a node.
    assert!(runs(&c, "new"), "whatever the status of the job says");
}

#[test]
fn slices_that_were_replaced_keep_no_deletion_busy() {
    let mut c = elastic::running("6", &json!({}));
    elastic::scale(&mut c, 5);
    assert_eq!(elastic::slices(&c), ["3 WorkloadSliceReplaced", "5 runs"]);
    // Its user's finalizer keeps it.
    c.api.edit_job("a", |job| job.view.deleting = true);
    c.settle();
    assert_eq!(c.written(Purpose::EndPods), 1);
    c.advance(60);
    assert_eq!(c.written(Purpose::EndPods), 1, "its pods are gone");
}
