//! A job that is moved to another queue does not run with the quota of its former one.

use serde_json::json;
use sluice_api::v1beta2::{Admission, CheckState, Workload};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::model::api::JobState;
use crate::model::build::{job, pod_set};
use crate::model::{Api, Cluster, condition, reported};

fn cluster() -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("1", &json!({}));
    c
}

#[test]
fn a_job_that_moves_to_another_queue_while_it_is_stopped_gives_its_quota_back_first() {
    let mut c = cluster();
    c.api.cluster_queue("other", "default", "1", &json!({}));
    c.api.local_queue("team-a", "other", "other");
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.pods_vanish = false;
    c.api.edit_job("a", |job| {
        (job.view.suspended, job.stopping_pods) = (true, true);
        job.view.queue_name = Some("other".to_owned());
    });
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True", "its pods still use the quota");
    assert!(c.api.job("a").view.suspended, "and it is not started on it");
    c.pods_vanish = true;
    c.settle();
    let w = c.workload("a");
    assert_eq!(w.spec.queue_name.as_deref(), Some("other"));
    assert_eq!(w.status.clone().unwrap().admission.unwrap().cluster_queue, "other");
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(reported(&w, "Evicted"), "", "nothing took it away");
}

#[test]
fn a_job_that_moves_to_another_queue_and_resumes_at_once_does_not_run_on_its_former_quota() {
    let mut c = cluster();
    c.api.cluster_queue("other", "default", "1", &json!({}));
    c.api.local_queue("team-a", "other", "other");
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    // Suspended with another queue, and unsuspended: it is only seen afterwards.
    c.api.edit_job("a", |job| job.view.queue_name = Some("other".to_owned()));
    c.settle();
    let stopped = |(_, purpose): &&(ObjectRef, Purpose)| *purpose == Purpose::StopJob;
    assert_eq!(c.writes.iter().filter(stopped).count(), 1);
    let w = c.workload("a");
    assert_eq!(w.spec.queue_name.as_deref(), Some("other"));
    assert_eq!(w.status.clone().unwrap().admission.unwrap().cluster_queue, "other");
    assert!(!c.api.job("a").view.suspended);
}

/// A job that waits for `nodes`, and has the `approval`, of its queue; `other` asks for an approval alone.
fn approved() -> (Cluster, ObjectRef) {
    let mut c = cluster();
    for check in ["approval", "nodes"] {
        c.api.active_check(check);
    }
    let with = |names: &[&str]| {
        let checks: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"admissionChecksStrategy": {"admissionChecks": checks}})
    };
    c.api.simple("1", &with(&["approval", "nodes"]));
    c.api.cluster_queue("other", "default", "1", &with(&["approval"]));
    c.api.local_queue("team-a", "other", "other");
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    approve(&mut c, &workload);
    (c, workload)
}

fn approve(c: &mut Cluster, workload: &ObjectRef) {
    c.api.edit_status(workload, |status| status["admissionChecks"][0]["state"] = json!("Ready"));
    c.settle();
}

fn checks(c: &Cluster) -> Vec<(String, CheckState)> {
    let checks = c.workload("a").status.unwrap().admission_checks;
    checks.into_iter().map(|check| (check.name, check.state)).collect()
}

fn hold() -> (ObjectRef, serde_json::Value) {
    (ObjectRef::cluster(Kind::ClusterQueue, "cq"), json!({"spec": {"stopPolicy": "Hold"}}))
}

#[test]
fn what_one_queue_approved_is_not_approved_for_another() {
    for before in ["", "its queue is held", "and approved late", "its LocalQueue is deleted"] {
        let (mut c, workload) = approved();
        let (queue, held) = hold();
        let local = ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq");
        match before {
            "" => {}
            "its LocalQueue is deleted" => c.api.delete(&local),
            _ => c.api.edit(&queue, &held),
        }
        c.settle();
        if before == "and approved late" {
            approve(&mut c, &workload);
        }
        assert_eq!(condition(&c.workload("a"), "QuotaReserved") == "True", before.is_empty(), "{before}");
        c.api.edit_job("a", |job| job.view.queue_name = Some("other".to_owned()));
        c.settle();
        let status = c.workload("a").status.unwrap();
        assert_eq!(status.admission.unwrap().cluster_queue, "other", "{before}");
        assert_eq!(checks(&c), [("approval".to_owned(), CheckState::Pending)], "{before}");
        assert!(c.api.job("a").view.suspended, "{before}");
        approve(&mut c, &workload);
        assert!(!c.api.job("a").view.suspended, "{before}");
    }
}

#[test]
fn what_was_approved_before_a_queue_was_held_is_asked_again() {
    let (mut c, _) = approved();
    let (queue, held) = hold();
    c.api.edit(&queue, &held);
    c.settle();
    let names = ["approval", "nodes"].map(str::to_owned);
    assert_eq!(checks(&c), names.map(|name| (name, CheckState::Pending)));
    let w = c.workload("a");
    assert_eq!(reported(&w, "QuotaReserved"), "False/Suspended: ClusterQueue cq is stopped");
    assert_eq!(condition(&w, "Evicted"), "");
}

/// A job that asks for one cpu waits for that of the only queue with room for it. The write that follows its `change` is still on its way when the quota
/// is free.
fn changed_while_its_quota_becomes_free(cpu: &str, change: impl FnOnce(&mut JobState)) -> Cluster {
    let mut c = cluster();
    c.api.simple(cpu, &json!({}));
    c.api.cluster_queue("other", "default", cpu, &json!({}));
    c.api.local_queue("team-a", "other", "other");
    c.api.add_job(job("team-a", "first", "lq", 1, cpu));
    c.settle();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
    c.slow = Some(Purpose::UpdateWorkload);
    c.api.edit_job("a", change);
    c.settle();
    c.api.finish_job("first", true);
    c.settle();
    c.release();
    c
}

fn admitted(c: &Cluster) -> (Workload, Admission) {
    assert!(!c.api.job("a").view.suspended);
    let w = c.workload("a");
    (w.clone(), w.status.unwrap().admission.unwrap())
}

#[test]
fn a_job_that_moves_while_quota_of_its_former_queue_becomes_free_gets_that_of_the_new_one() {
    let c = changed_while_its_quota_becomes_free("1", |job| job.view.queue_name = Some("other".to_owned()));
    let (w, admission) = admitted(&c);
    assert_eq!(w.spec.queue_name.as_deref(), Some("other"));
    assert_eq!(admission.cluster_queue, "other");
}

#[test]
fn a_job_that_asks_for_more_while_quota_becomes_free_gets_what_it_asks_for_now() {
    let c = changed_while_its_quota_becomes_free("2", |job| job.view.pod_sets[0] = pod_set("main", 1, "2"));
    let (_, admission) = admitted(&c);
    assert_eq!(admission.pod_set_assignments[0].resource_usage["cpu"].0, "2");
}

#[test]
fn a_job_that_is_gated_while_quota_becomes_free_waits_for_its_gate() {
    let gate = Some("example.com/gate".to_owned());
    let mut c = changed_while_its_quota_becomes_free("1", |job| job.view.admission_gated_by = gate);
    assert!(c.api.job("a").view.suspended);
    c.api.edit_job("a", |job| job.view.admission_gated_by = None);
    c.settle();
    assert!(!c.api.job("a").view.suspended);
}
