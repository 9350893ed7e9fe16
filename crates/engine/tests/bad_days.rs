//! Unexpected actions of users and administrators.

mod model;

use model::build::{job, pod_set};
use model::{Api, Cluster, condition, reported};
use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

fn cq() -> ObjectRef {
    ObjectRef::cluster(Kind::ClusterQueue, "cq")
}

#[test]
fn an_unknown_queue_is_named() {
    let mut c = Cluster::plain();
    c.api.add_job(job("team-a", "a", "nowhere", 1, "1"));
    c.settle();
    assert_eq!(
        reported(&c.workload("a"), "QuotaReserved"),
        "False/Misconfigured: LocalQueue nowhere doesn't exist"
    );
    c.api.local_queue("team-a", "nowhere", "cq");
    c.settle();
    assert_eq!(
        reported(&c.workload("a"), "QuotaReserved"),
        "False/Misconfigured: ClusterQueue cq doesn't exist"
    );
    c.api.simple("3", &json!({}));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_namespace_that_is_not_selected_gets_a_remedy() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({"namespaceSelector": null}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let text = reported(&c.workload("a"), "QuotaReserved");
    assert!(
        text.starts_with("False/Misconfigured: workload namespace doesn't match ClusterQueue selector; "),
        "{text}"
    );
    assert!(text.contains("namespaceSelector: {}"), "{text}");
    c.api.edit(&cq(), &json!({"spec": {"namespaceSelector": {}}}));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_waiting_job_that_the_user_starts_is_stopped_again() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.edit_job("a", |j| {
        j.started_by_user = true;
        j.view.suspended = false;
        j.view.active = true;
    });
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(c.notes("Stopped"), ["Job/a: Not admitted by cluster queue"]);
}

#[test]
fn a_workload_that_the_user_deletes_comes_back_after_the_job_stopped() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let old = c.workload("a");
    let reference = Api::workload_ref(&old);
    c.api.delete(&reference);
    c.settle();
    let new = c.workload("a");
    assert_ne!(new.metadata.uid, old.metadata.uid);
    assert_eq!(condition(&new, "Admitted"), "True");
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.notes("Stopped"), ["Job/a: Workload is deleted"]);
}

#[test]
fn an_edited_template_updates_a_waiting_workload() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    let old = c.workload("a").metadata.uid;
    c.api.edit_job("a", |j| j.view.pod_sets = vec![pod_set("main", 2, "1")]);
    c.settle();
    let workload = c.workload("a");
    assert_eq!(workload.metadata.uid, old);
    assert_eq!(workload.spec.pod_sets[0].count, 2);
    assert_eq!(condition(&workload, "Admitted"), "True");
    assert_eq!(c.written(Purpose::UpdateWorkload), 1);
}

#[test]
fn a_dropped_queue_name_gives_everything_back() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.edit_job("a", |j| j.view.queue_name = None);
    c.settle();
    assert!(c.api.workloads().is_empty());
}

#[test]
fn a_changed_queue_name_moves_a_waiting_workload() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    c.api.cluster_queue("other", "default", "5", &json!({}));
    c.api.local_queue("team-a", "other", "other");
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.edit_job("a", |j| j.view.queue_name = Some("other".to_owned()));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(
        reported(&c.workload("a"), "QuotaReserved"),
        "True/QuotaReserved: Quota reserved in ClusterQueue other"
    );
}

#[test]
fn a_queue_in_use_is_deleted_only_when_it_is_free() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.delete(&cq());
    c.settle();
    assert!(c.api.json(&cq()).is_some(), "it is held while a workload holds its quota");
    c.api.finish_job("a", true);
    c.settle();
    assert!(c.api.json(&cq()).is_none());
}

#[test]
fn hold_keeps_what_runs_and_drain_evicts_it_until_the_queue_restarts() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "Hold"}}));
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(reported(&c.workload("b"), "QuotaReserved"), "False/Suspended: ClusterQueue cq is inactive");
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(
        reported(&c.workload("a"), "Requeued"),
        "False/ClusterQueueStopped: The ClusterQueue is stopped"
    );
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "None"}}));
    c.settle();
    assert!(!c.api.job("a").view.suspended && !c.api.job("b").view.suspended);
    assert_eq!(
        reported(&c.workload("a"), "Requeued"),
        "True/ClusterQueueRestarted: The ClusterQueue was restarted after being stopped"
    );
}

#[test]
fn deactivation_stops_the_job_and_reactivation_lets_it_run_again() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let reference = Api::workload_ref(&c.workload("a"));
    c.api.edit(&reference, &json!({"spec": {"active": false}}));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    let workload = c.workload("a");
    assert_eq!(reported(&workload, "Evicted"), "True/Deactivated: The workload is deactivated");
    assert_eq!(reported(&workload, "QuotaReserved"), "False/Deactivated: The workload is deactivated");
    c.api.edit(&reference, &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(reported(&c.workload("a"), "Requeued"), "True/Reactivated: The workload was reactivated");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_refused_admission_is_taken_back_and_tried_again_later() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    c.fail.push_back((Purpose::ReserveQuota, WriteError::Refused("no".to_owned())));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert!(!c.api.job("b").view.suspended, "the others continue with the quota");
    c.api.finish_job("b", true);
    c.advance(60);
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_reservation_whose_answer_was_lost_keeps_its_quota() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    c.lost = Some(Purpose::ReserveQuota);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    let reserved = |c: &Cluster, job| condition(&c.workload(job), "QuotaReserved") == "True";
    assert!(reserved(&c, "a") && !reserved(&c, "b"), "there is quota for one");
    c.advance(60);
    assert!(!c.api.job("a").view.suspended);
    c.api.finish_job("a", true);
    c.advance(60);
    assert!(!c.api.job("b").view.suspended);
}

#[test]
fn what_a_write_reports_is_reported_once_though_its_answer_was_lost() {
    for purpose in [Purpose::ReserveQuota, Purpose::Evict, Purpose::Finish] {
        for carried_out in [true, false] {
            let mut c = Cluster::plain();
            c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
            c.api.priority_class("high", 1000);
            if carried_out {
                c.lost = Some(purpose);
            } else {
                c.fail.push_back((purpose, WriteError::Transient("no answer came".to_owned())));
            }
            c.api.add_job(job("team-a", "low", "lq", 1, "1"));
            c.advance(60);
            let mut high = job("team-a", "high", "lq", 1, "1");
            high.workload_priority_class = Some("high".into());
            c.api.add_job(high);
            c.advance(60);
            let count = |c: &Cluster, reason| c.notes(reason).len();
            let metric =
                |c: &Cluster, name: &str| c.observed.iter().filter(|(metric, _)| metric == name).count();
            assert_eq!((count(&c, "Admitted"), count(&c, "Preempted")), (2, 1), "{purpose:?} {carried_out}");
            assert_eq!(metric(&c, "kueue_admitted_workloads_total"), 2, "{purpose:?} {carried_out}");
            assert_eq!(metric(&c, "kueue_preempted_workloads_total"), 1, "{purpose:?} {carried_out}");
            c.api.finish_job("high", true);
            c.advance(60);
            assert_eq!(count(&c, "FinishedWorkload"), 1, "{purpose:?} {carried_out}");
            assert!(c.lost.is_none() && c.fail.is_empty());
        }
    }
}

#[test]
fn a_newcomer_that_is_inadmissible_with_its_class_has_a_message() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    for name in ["a", "b"] {
        c.api.add_job(job("team-a", name, "lq", 2, "1"));
        c.advance(60);
        let reported = reported(&c.workload(name), "QuotaReserved");
        assert!(reported.starts_with("False/ExceedsMaxQuota: "), "{name}: {reported}");
    }
}

#[test]
fn a_reason_whose_write_failed_is_reported_later() {
    for error in [WriteError::Conflict("c".to_owned()), WriteError::Transient("t".to_owned())] {
        let mut c = Cluster::plain();
        c.api.simple("1", &json!({}));
        c.fail.push_back((Purpose::Pend, error.clone()));
        c.api.add_job(job("team-a", "a", "lq", 2, "1"));
        c.advance(60);
        assert!(c.fail.is_empty());
        let reported = reported(&c.workload("a"), "QuotaReserved");
        assert!(reported.starts_with("False/ExceedsMaxQuota: "), "{error}: {reported}");
    }
}

#[test]
fn conflicts_and_failures_on_the_way_change_nothing_in_the_end() {
    let purposes = [Purpose::CreateWorkload, Purpose::ReserveQuota, Purpose::StartJob, Purpose::Finish];
    for purpose in purposes {
        for error in [WriteError::Conflict("c".to_owned()), WriteError::Transient("t".to_owned())] {
            let mut c = Cluster::plain();
            c.api.simple("1", &json!({}));
            c.fail.push_back((purpose, error.clone()));
            c.api.add_job(job("team-a", "a", "lq", 1, "1"));
            c.advance(60);
            assert!(!c.api.job("a").view.suspended, "{purpose:?} {error}");
            c.api.finish_job("a", true);
            c.advance(60);
            assert_eq!(condition(&c.workload("a"), "Finished"), "True", "{purpose:?} {error}");
            assert!(c.fail.is_empty());
        }
    }
}

#[test]
fn a_job_whose_start_was_not_answered_is_read_before_its_quota_is_given_back() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    c.slow = Some(Purpose::ReserveQuota);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.blind = Some(Kind::Job(JobKind::JOB));
    c.lost = Some(Purpose::StartJob);
    c.pods_vanish = false;
    c.release();
    assert!(c.lost.is_none() && !c.api.job("a").view.suspended, "it was started, and no answer came");
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.advance(60);
    assert_eq!(condition(&c.workload("a"), "Evicted"), "True");
    assert!(c.api.job("a").view.suspended, "it was stopped");
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True", "and its pods are still there");
}

#[test]
fn what_a_look_shows_to_be_written_does_not_count_as_failed_any_more() {
    let refused = || WriteError::Refused("not yet".to_owned());
    for (lost, later) in [(Purpose::ReserveQuota, Purpose::Evict), (Purpose::StartJob, Purpose::StopJob)] {
        let mut c = Cluster::plain();
        c.api.simple("1", &json!({}));
        c.lost = Some(lost);
        c.fail.extend(vec![(Purpose::Read, refused()); 3]);
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.advance(20);
        assert!(!c.api.job("a").view.suspended && c.fail.is_empty(), "{lost:?}");
        c.fail.push_back((later, refused()));
        let workload = Api::workload_ref(&c.workload("a"));
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
        c.advance(6);
        assert!(c.api.job("a").view.suspended && c.fail.is_empty(), "{later:?}");
    }
}

#[test]
fn checks_stand_between_reservation_and_admission() {
    let mut c = Cluster::plain();
    c.api.active_check("prov");
    c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = c.workload("a");
    assert_eq!(condition(&workload, "QuotaReserved"), "True");
    assert_ne!(condition(&workload, "Admitted"), "True");
    assert!(c.api.job("a").view.suspended);
    let reference = Api::workload_ref(&workload);
    c.api.edit_status(&reference, |s| s["admissionChecks"][0]["state"] = json!("Retry"));
    c.settle();
    let workload = c.workload("a");
    let checks = workload.status.clone().unwrap().admission_checks;
    assert_eq!(checks[0].retry_count, Some(1));
    assert_eq!(condition(&workload, "QuotaReserved"), "True", "it was reserved again without a delay");
    c.api.edit_status(&reference, |s| s["admissionChecks"][0]["state"] = json!("Ready"));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    c.api.edit_status(&reference, |s| s["admissionChecks"][0]["state"] = json!("Rejected"));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/DeactivatedDueToAdmissionCheck: "));
    assert_eq!(c.workload("a").spec.active, Some(false));
}

#[test]
fn a_job_that_is_just_being_started_is_evicted_once_it_was() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.priority_class("high", 1000);
    c.api.add_job(job("team-a", "low", "lq", 1, "1"));
    c.slow = Some(Purpose::StartJob);
    c.settle();
    assert_eq!(condition(&c.workload("low"), "Admitted"), "True");
    let mut high = job("team-a", "high", "lq", 1, "1");
    high.workload_priority_class = Some("high".into());
    c.api.add_job(high);
    c.settle();
    assert_eq!(c.written(Purpose::Evict), 0, "the start may still arrive, and would come after the eviction");
    c.release();
    assert_eq!(c.written(Purpose::Evict), 1);
    assert!(c.api.job("low").view.suspended);
    assert!(!c.api.job("high").view.suspended);
}
