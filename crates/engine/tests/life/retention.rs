//! Retention, orphans, missing owners, finalizers that never block for good (docs/reference/06-algorithm.md 6.19).

use serde_json::json;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WaitForPodsReady, WriteError};

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

fn keep(finished: Option<i64>, deactivated: Option<i64>) -> Cluster {
    let config = EngineConfig {
        status_interval_ms: 0,
        retention_after_finished_seconds: finished,
        retention_after_deactivated_seconds: deactivated,
        wait_for_pods_ready: Some(WaitForPodsReady {
            timeout_seconds: 10,
            recovery_timeout_seconds: None,
            block_admission: false,
            order_by_eviction: true,
            backoff_limit_count: Some(0),
            backoff_base_seconds: 1,
            backoff_max_seconds: 1,
        }),
        ..EngineConfig::default()
    };
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    c
}

#[test]
fn a_finished_workload_goes_when_its_retention_is_over() {
    let mut c = keep(Some(60), None);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.finish_job("a", true);
    c.advance(59);
    assert_eq!(c.api.workloads().len(), 1);
    c.advance(2);
    assert!(c.api.workloads().is_empty());
    assert_eq!(c.notes("Deleted"), ["Workload/job-a: Deleted finished workload due to elapsed retention"]);
    c.advance(600);
    assert!(c.api.workloads().is_empty(), "a finished job gets no new one");
}

#[test]
fn without_a_policy_a_finished_workload_stays() {
    let mut c = keep(None, None);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.finish_job("a", false);
    c.advance(100_000);
    assert_eq!(reported(&c.workload("a"), "Finished"), "True/Failed: Job finished");
}

#[test]
fn a_job_that_was_deactivated_by_us_is_deleted_when_its_retention_is_over() {
    let mut c = keep(None, Some(60));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.advance(11);
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/DeactivatedDueToRequeuingLimitExceeded"));
    c.advance(48);
    assert_eq!(c.api.jobs().count(), 1);
    c.advance(15);
    assert_eq!(c.api.jobs().count(), 0);
    assert!(c.api.workloads().is_empty());
    assert_eq!(c.notes("Deleted"), ["Job/a: Deleted job: deactivation retention period expired"]);
}

#[test]
fn a_job_that_its_user_deactivated_stays() {
    let mut c = keep(None, Some(60));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.advance(10_000);
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/Deactivated:"));
    assert_eq!(c.api.jobs().count(), 1);
}

#[test]
fn a_job_that_its_user_deactivates_after_it_was_resumed_stays() {
    let mut c = keep(None, Some(60));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.advance(11);
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/DeactivatedDueToRequeuingLimitExceeded"));
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": "Hold"}}));
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.advance(100);
    assert_eq!(reported(&c.workload("a"), "Requeued"), "True/Reactivated: The workload was reactivated");
    for _ in 0..2 {
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
        c.advance(10_000);
        assert_eq!(reported(&c.workload("a"), "Evicted"), "True/Deactivated: The workload is deactivated");
        assert_eq!(c.api.jobs().count(), 1);
        c.restart();
    }
}

#[test]
fn the_retention_of_a_job_that_was_rejected_while_it_waited_begins_then() {
    let mut c = keep(None, Some(60));
    c.api.active_check("prov");
    c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    let answer = |c: &mut Cluster, state: &str| {
        c.api.edit_status(&workload, |status| status["admissionChecks"][0]["state"] = json!(state));
        c.settle();
    };
    answer(&mut c, "Ready");
    c.api.edit_job("a", |job| job.view.pods_ready = true);
    let stop = json!({"spec": {"stopPolicy": "HoldAndDrain"}});
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &stop);
    c.advance(3600);
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/ClusterQueueStopped"));
    answer(&mut c, "Rejected");
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/DeactivatedDueToAdmissionCheck"));
    c.advance(30);
    assert_eq!(c.api.jobs().count(), 1);
    c.advance(60);
    assert_eq!(c.api.jobs().count(), 0);
}

/// Kueue writes no `Requeued` then, and takes the target of the deactivation off.
#[test]
fn a_job_that_kueue_rejected_while_it_waited_keeps_the_reason_and_is_deleted() {
    for (waits, evicted, jobs) in [
        ("Deactivated", "True/DeactivatedDueToAdmissionCheck: no nodes", 0),
        // It was active again since: its user pauses it now.
        ("Pending", "True/Deactivated: The workload is deactivated", 1),
    ] {
        let mut c = keep(None, Some(60));
        c.api.add_job(job("team-a", "a", "lq", 9, "1"));
        c.settle();
        let workload = Api::workload_ref(&c.workload("a"));
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
        let said = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "no nodes",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions = json!([
            said("QuotaReserved", "False", waits),
            said("Evicted", "True", "DeactivatedDueToAdmissionCheck")
        ]);
        c.api.edit_status(&workload, |status| status["conditions"] = conditions);
        c.restart();
        c.settle();
        assert_eq!(reported(&c.workload("a"), "Evicted"), evicted);
        c.advance(30);
        assert_eq!(c.api.jobs().count(), 1, "{waits}");
        c.advance(60);
        assert_eq!(c.api.jobs().count(), jobs, "{waits}");
    }
}

/// A Workload as a user created it, without a job.
fn workload(name: &str, more: &serde_json::Value) -> serde_json::Value {
    let template = serde_json::to_value(crate::model::build::template("1")).unwrap();
    let mut workload = json!({
        "metadata": {"name": name, "namespace": "team-a", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        workload["metadata"][key] = value.clone();
    }
    workload
}

#[test]
fn a_workload_whose_job_is_gone_is_finished_and_gives_its_quota_back() {
    let mut c = keep(None, None);
    let orphan =
        c.api.put(Kind::Workload, workload("left", &json!({"labels": {"kueue.x-k8s.io/job-uid": "gone"}})));
    c.settle();
    let left = c.api.json(&orphan).unwrap();
    let finished = left["status"]["conditions"].as_array().unwrap();
    let finished = finished.iter().find(|c| c["type"] == "Finished").unwrap();
    assert_eq!(finished["reason"], "OwnerNotFound");
    assert_eq!(finished["message"], "The workload's owner no longer exists");
    assert!(left["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "{left:#}");
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    assert!(!c.api.job("a").view.suspended, "all quota is free");
}

#[test]
fn a_workload_that_never_had_a_job_is_admitted_and_can_be_deleted() {
    let mut c = keep(None, None);
    let reference = c.api.put(Kind::Workload, workload("mine", &json!({})));
    c.settle();
    let all = c.api.workloads();
    assert_eq!(condition(&all[0], "Admitted"), "True");
    c.api.delete(&reference);
    c.settle();
    assert!(c.api.workloads().is_empty());
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn what_is_in_use_is_held_and_what_is_not_goes_at_once() {
    let mut c = keep(None, None);
    c.settle();
    let flavor = ObjectRef::cluster(Kind::ResourceFlavor, "default");
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.delete(&flavor);
    c.settle();
    assert!(c.api.json(&flavor).is_some(), "the queue names it");
    c.api.delete(&queue);
    c.settle();
    assert!(c.api.json(&queue).is_none(), "nothing holds its quota");
    assert!(c.api.json(&flavor).is_none(), "nothing names it any more");
}

/// Whether the Workload of a job has our finalizer.
fn is_held(c: &Cluster, job: &str) -> bool {
    let finalizers = c.workload(job).metadata.finalizers.unwrap_or_default();
    finalizers.iter().any(|f| f == "kueue.x-k8s.io/resource-in-use")
}

#[test]
fn a_finished_workload_is_held_by_nothing() {
    let mut c = keep(None, None);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert!(is_held(&c, "a"));
    c.api.finish_job("a", true);
    c.settle();
    assert!(!is_held(&c, "a"));
    assert_eq!(c.written(Purpose::ReleaseFinished), 1);
    c.api.delete_job("a");
    c.settle();
    assert!(c.api.workloads().is_empty(), "it goes with its job");
}

#[test]
fn what_a_job_is_still_to_be_restored_from_stays_until_that_is_done() {
    let mut c = keep(None, None);
    c.fail.push_back((Purpose::StartJob, WriteError::Unstartable("the label l is there".into())));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    // Its user lets it run in that moment.
    c.slow = Some(Purpose::Finish);
    c.settle();
    c.api.edit_job("a", |job| {
        (job.view.suspended, job.view.active, job.started_by_user) = (false, true, true);
    });
    c.settle();
    c.fail.push_back((Purpose::StopJob, WriteError::Transient("busy".into())));
    c.release();
    assert!(reported(&c.workload("a"), "Finished").starts_with("True/FailedToStart"));
    assert!(is_held(&c, "a") && !c.api.job("a").view.suspended);
    c.advance(10);
    assert!(!is_held(&c, "a") && c.api.job("a").view.suspended);
}

#[test]
fn finished_workloads_that_a_new_leader_finds_are_released_a_few_at_a_time() {
    let mut c = keep(None, None);
    for n in 0..50 {
        let finished = json!([{"type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let reference = c.api.put(Kind::Workload, workload(&format!("w{n}"), &json!({})));
        c.api.edit_status(&reference, |status| *status = json!({"conditions": finished}));
    }
    c.slow = Some(Purpose::ReleaseFinished);
    c.restart();
    c.settle();
    assert_eq!(c.written(Purpose::ReleaseFinished), 16, "and no more before these were answered");
    c.release();
    assert_eq!(c.written(Purpose::ReleaseFinished), 50);
    let held =
        |w: &sluice_api::v1beta2::Workload| w.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty());
    assert!(!c.api.workloads().iter().any(held));
}
