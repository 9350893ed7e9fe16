//! Jobs with more pods than they hold quota for, because running pods were replaced or released by others.

use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind};
use sluice_engine::{Kind, ObjectRef};

use crate::elastic::{free, running, scale};
use crate::left_queue::full;
use crate::model::build::job;
use crate::model::{Cluster, reported};
use crate::pods::{node, ready, runs};

fn child(c: &mut Cluster) {
    let mut child = job("team-a", "old-main-0", "", 1, "1");
    child.controller = Some(ControllerRef {
        api_version: JobKind::JOB_SET.api_version().to_owned(),
        kind: JobKind::JOB_SET.kind().to_owned(),
        name: "old".to_owned(),
        uid: c.api.job("old").view.job.uid.to_string(),
    });
    (child.suspended, child.active) = (false, true);
    c.api.add_job(child);
    c.settle();
}

fn count(c: &mut Cluster, job: &str, active: i32, terminating: i32) {
    c.api.edit_job(job, |job| {
        (job.view.active, job.view.active_pods, job.view.terminating) = (active > 0, active, terminating);
        // That of a JobSet is stopped by its controller.
        job.view.suspended |= active == 0;
    });
    c.settle();
}

fn evicted(c: &Cluster, job: &str) -> String {
    reported(&c.workload(job), "Evicted")
}

#[test]
fn a_job_whose_pods_run_on_beside_those_that_took_their_place_is_evicted() {
    for (kind, of) in [(JobKind::JOB, "old"), (JobKind::JOB_SET, "old-main-0")] {
        let mut c = full(kind);
        if kind != JobKind::JOB {
            child(&mut c);
        }
        // Pods that end in time are replaced as ever.
        for _ in 0..3 {
            count(&mut c, of, 1, 3);
            c.advance(50);
            count(&mut c, of, 1, 0);
            c.advance(50);
        }
        assert_eq!(evicted(&c, "old"), "", "{kind:?}");
        count(&mut c, of, 1, 3);
        c.advance(59);
        assert_eq!(evicted(&c, "old"), "");
        c.advance(2);
        let why = evicted(&c, "old");
        assert!(why.contains("WorkloadOutOfSync") || why.contains("OutOfSync"), "{why}");
        assert!(why.contains("1 pods run and 3 terminating pods have not ended"), "{why}");
        count(&mut c, of, 0, 3);
        c.advance(5);
        assert!(!runs(&c, "new"), "its pods use the quota");
        count(&mut c, of, 0, 0);
        c.advance(5);
        assert!(runs(&c, "new"));
    }
}

#[test]
fn pods_that_cannot_end_on_a_lost_node_are_no_reason() {
    let mut c = full(JobKind::JOB);
    let node = node(&mut c, "n1");
    let pod = crate::pods::leaving_pod(&mut c, "old-0", "old", "n1");
    ready(&mut c, &node, "False");
    c.advance(60);
    count(&mut c, "old", 1, 1);
    c.advance(300);
    assert_eq!(evicted(&c, "old"), "");
    // Another one could.
    count(&mut c, "old", 1, 2);
    c.advance(61);
    assert!(evicted(&c, "old").starts_with("True"), "{pod:?}");
}

#[test]
fn pods_of_a_deleted_part_count_beside_those_of_the_one_that_takes_its_place() {
    let mut c = full(JobKind::JOB_SET);
    child(&mut c);
    let uid = c.api.job("old-main-0").view.job.uid.clone();
    c.api.ending_pods.insert(uid);
    c.api.delete_job("old-main-0");
    child(&mut c);
    c.advance(59);
    assert_eq!(evicted(&c, "old"), "");
    c.advance(5);
    assert!(evicted(&c, "old").starts_with("True"));
    count(&mut c, "old-main-0", 0, 0);
    c.advance(60);
    assert!(!runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "new"));
}

fn pod(name: &str) -> ObjectRef {
    ObjectRef::namespaced(Kind::JobPod, "team-a", name)
}

/// Six pods of an elastic job, which is granted three.
fn elastic() -> Cluster {
    let mut c = running("3", &json!({}));
    scale(&mut c, 6);
    c.api.edit_job("a", |job| job.view.active_pods = 6);
    c.advance(60);
    assert_eq!(free(&c), ["a-0", "a-1", "a-2"]);
    assert_eq!(elastic_evicted(&c), "");
    c
}

fn elastic_evicted(c: &Cluster) -> String {
    let of = c.api.workloads_of(&c.api.job("a").view.job.uid);
    of.iter().map(|workload| reported(workload, "Evicted")).collect()
}

#[test]
fn an_elastic_job_whose_pods_others_ungated_is_evicted() {
    let mut c = elastic();
    c.api.edit(&pod("a-5"), &json!({"spec": {"schedulingGates": [{"name": "other"}]}}));
    c.settle();
    c.advance(9);
    assert_eq!(elastic_evicted(&c), "");
    c.advance(2);
    let why = elastic_evicted(&c);
    assert!(why.contains("4 pods run, but quota covers only 3"), "{why}");
    assert!(c.api.job("a").view.suspended);
}

/// The watch of these pods is by their label.
#[test]
fn an_elastic_job_whose_pods_do_not_say_so_is_evicted() {
    let mut c = elastic();
    c.api.delete(&pod("a-0"));
    c.settle();
    assert_eq!(free(&c).len(), 3, "another one takes its place");
    c.advance(11);
    let why = elastic_evicted(&c);
    assert!(why.contains("4 pods run, but quota covers only 3"), "{why}");
}

#[test]
fn an_elastic_job_that_shrinks_keeps_its_quota_until_its_pods_are_gone() {
    let mut c = running("3", &json!({}));
    c.api.add_job(job("team-a", "new", "lq", 2, "1"));
    c.api.edit_job("a", |job| {
        job.view.pod_sets[0].count = 1;
        job.view.generation += 1;
    });
    let at = json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}});
    for name in ["a-1", "a-2"] {
        c.api.edit(&pod(name), &at);
    }
    c.advance(600);
    assert!(!runs(&c, "new"), "they run on");
    c.api.delete(&pod("a-1"));
    c.advance(5);
    assert!(!runs(&c, "new"));
    c.api.delete(&pod("a-2"));
    c.advance(5);
    assert!(runs(&c, "new"));
    assert_eq!(free(&c), ["a-0"]);
}
