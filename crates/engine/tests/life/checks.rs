//! Two-phase admission (docs/reference/06-algorithm.md 6.10).

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_engine::{Kind, ObjectRef, Purpose};

use crate::model::build::job;
use crate::model::pods::pod;
use crate::model::{Api, Cluster, condition, reported};
use crate::plain_pods::bed;

/// A queue with check `prov` and a job that has its quota.
fn waiting() -> (Cluster, ObjectRef) {
    let mut c = Cluster::plain();
    c.api.active_check("prov");
    c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    let reference = Api::workload_ref(&c.workload("a"));
    (c, reference)
}

/// What the check's controller writes.
fn answer(c: &mut Cluster, workload: &ObjectRef, fields: &Value) {
    let now = c.now.to_string();
    c.api.edit_status(workload, |s| {
        s["admissionChecks"][0]["lastTransitionTime"] = json!(now);
        for (key, value) in fields.as_object().unwrap() {
            s["admissionChecks"][0][key] = value.clone();
        }
    });
    c.settle();
}

#[test]
fn a_retry_frees_the_quota_until_its_delay_is_over() {
    let (mut c, workload) = waiting();
    answer(&mut c, &workload, &json!({"state": "Retry", "message": "no nodes", "requeueAfterSeconds": 60}));
    let w = c.workload("a");
    let evicted = "Evicted due to AdmissionCheck in Retry state: \"prov\" (no nodes)";
    assert_eq!(reported(&w, "Evicted"), format!("True/AdmissionCheck: {evicted}"));
    assert_eq!(condition(&w, "QuotaReserved"), "False");
    assert_eq!(reported(&w, "Requeued"), format!("False/AdmissionCheck: {evicted}"));
    let status = w.status.unwrap();
    let until = status.requeue_state.unwrap().requeue_at.unwrap().0;
    assert_eq!(until.as_second() - c.now.as_second(), 60);
    let known = &status.admission_checks[0];
    assert_eq!((known.retry_count, known.requeue_after_seconds), (Some(1), Some(60)));
    assert_eq!(known.message, "Reset to Pending after eviction. Previously: Retry");
    assert_eq!(c.notes("EvictedDueToAdmissionCheck"), [format!("Workload/job-a: {evicted}")]);

    c.advance(59);
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
    c.advance(2);
    let w = c.workload("a");
    assert_eq!(condition(&w, "QuotaReserved"), "True");
    assert_eq!(reported(&w, "Requeued"), "True/BackoffFinished: The workload backoff was finished");
    assert_eq!(w.status.unwrap().requeue_state, None);
}

#[test]
fn the_longest_delay_of_several_checks_counts_and_all_are_named() {
    let mut c = Cluster::plain();
    c.api.active_check("one");
    c.api.active_check("two");
    let checks = json!([{"name": "two"}, {"name": "one"}]);
    c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": checks}}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    let now = c.now.to_string();
    c.api.edit_status(&workload, |s| {
        for (at, seconds) in [(0, 10), (1, 90)] {
            s["admissionChecks"][at]["state"] = json!("Retry");
            s["admissionChecks"][at]["lastTransitionTime"] = json!(now);
            s["admissionChecks"][at]["requeueAfterSeconds"] = json!(seconds);
        }
    });
    c.settle();
    let w = c.workload("a");
    assert!(reported(&w, "Evicted").ends_with("AdmissionChecks in Retry state: \"one\"; \"two\""));
    let until = w.status.unwrap().requeue_state.unwrap().requeue_at.unwrap().0;
    assert_eq!(until.as_second() - c.now.as_second(), 90);
}

#[test]
fn what_a_ready_check_adds_is_in_the_started_pods_and_goes_with_an_eviction() {
    let (mut c, workload) = waiting();
    let updates = json!([{"name": "main", "labels": {"l": "1"}, "annotations": {"a": "2"},
        "nodeSelector": {"zone": "z"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}]);
    answer(&mut c, &workload, &json!({"state": "Ready", "podSetUpdates": updates}));
    let started = &c.api.job("a").view;
    assert!(!started.suspended);
    let scheduling = &started.pod_sets[0].scheduling;
    assert_eq!((scheduling.labels["l"].as_str(), scheduling.annotations["a"].as_str()), ("1", "2"));
    assert_eq!(scheduling.node_selector["zone"], "z");
    assert_eq!(scheduling.node_selector["pool"], "default", "the flavor's labels stay");
    assert_eq!(scheduling.tolerations[0].key.as_deref(), Some("gpu"));

    c.api.edit(
        &ObjectRef::cluster(Kind::ClusterQueue, "cq"),
        &json!({"spec": {"stopPolicy": "HoldAndDrain"}}),
    );
    c.settle();
    let job = c.api.job("a");
    assert!(job.view.suspended);
    assert_eq!(job.original[0], job.view.pod_sets[0].scheduling);
    let known = c.workload("a").status.unwrap().admission_checks;
    assert!(known[0].pod_set_updates.is_empty());
    assert_eq!(known[0].message, "Reset to Pending after eviction. Previously: Ready");
    assert_eq!(known[0].retry_count, None, "only a retry is counted");
}

#[test]
fn a_rejection_deactivates_for_good() {
    let (mut c, workload) = waiting();
    answer(&mut c, &workload, &json!({"state": "Rejected", "message": "never"}));
    let w = c.workload("a");
    assert_eq!(w.spec.active, Some(false));
    let text = "AdmissionCheck in Rejected state: \"prov\" (never)";
    assert_eq!(
        reported(&w, "Evicted"),
        format!("True/DeactivatedDueToAdmissionCheck: The workload is deactivated due to {text}")
    );
    assert_eq!(condition(&w, "DeactivationTarget"), "");
    assert_eq!(c.notes("AdmissionCheckRejected"), [format!("Workload/job-a: Deactivated due to {text}")]);
    assert_eq!(c.notes("EvictedDueToDeactivatedDueToAdmissionCheck").len(), 1);
    let stats = w.status.unwrap().scheduling_stats.unwrap().evictions;
    assert_eq!(
        (stats[0].reason.as_str(), stats[0].underlying_cause.as_str()),
        ("Deactivated", "AdmissionCheck")
    );
    c.advance(1_000);
    assert_eq!(c.workload("a").spec.active, Some(false));
}

#[test]
fn only_checks_of_the_assigned_flavors_apply() {
    let mut c = Cluster::plain();
    c.api.active_check("here");
    c.api.active_check("elsewhere");
    c.api.flavor("other", &[]);
    let rules =
        json!([{"name": "here", "onFlavors": ["default"]}, {"name": "elsewhere", "onFlavors": ["other"]}]);
    let flavor = |name: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": "3"}]});
    c.api.simple(
        "3",
        &json!({
            "admissionChecksStrategy": {"admissionChecks": rules},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor("default"), flavor("other")]}],
        }),
    );
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.api.add_job(job("team-a", "b", "lq", 3, "1"));
    c.settle();
    let names = |c: &Cluster, job: &str| -> Vec<String> {
        c.workload(job).status.unwrap().admission_checks.into_iter().map(|k| k.name).collect()
    };
    assert_eq!(names(&c, "a"), ["here"]);
    assert_eq!(names(&c, "b"), ["elsewhere"]);
}

#[test]
fn what_asks_for_nothing_waits_for_its_checks_too() {
    let (mut c, _) = waiting();
    let mut view = job("team-a", "b", "lq", 1, "1");
    let set = &mut view.pod_sets[0];
    let template = Arc::make_mut(set.template.as_mut().unwrap());
    let spec = template.spec.as_mut().unwrap();
    spec.containers[0].resources = None;
    set.containers_hash = sluice_api::names::containers_hash(spec);
    set.requests_hash = sluice_api::names::requests_hash(spec);
    c.api.add_job(view);
    c.settle();
    let w = c.workload("b");
    assert_eq!((condition(&w, "QuotaReserved"), condition(&w, "Admitted")), ("True".into(), "False".into()));
    assert_eq!(c.notes("Admitted"), Vec::<String>::new());
    answer(&mut c, &Api::workload_ref(&w), &json!({"state": "Ready"}));
    assert_eq!(condition(&c.workload("b"), "Admitted"), "True");
    assert_eq!(c.notes("Admitted").len(), 1);
}

#[test]
fn a_check_that_the_queue_drops_no_longer_holds_anything_back() {
    let (mut c, _) = waiting();
    c.api.edit(
        &ObjectRef::cluster(Kind::ClusterQueue, "cq"),
        &json!({"spec": {"admissionChecksStrategy": null}}),
    );
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert!(c.workload("a").status.unwrap().admission_checks.is_empty());
}

#[test]
fn the_waiting_job_gets_the_messages_of_its_checks_once() {
    let (mut c, workload) = waiting();
    answer(&mut c, &workload, &json!({"message": "two nodes to go"}));
    answer(&mut c, &workload, &json!({"message": "two nodes to go"}));
    assert_eq!(c.notes("UpdatedAdmissionCheck"), ["Job/a: prov: two nodes to go"]);
    answer(&mut c, &workload, &json!({"message": "one node to go"}));
    assert_eq!(c.notes("UpdatedAdmissionCheck").len(), 2);
}

#[test]
fn a_held_queue_takes_the_quota_of_what_still_waits_for_its_checks() {
    let (mut c, _) = waiting();
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": "Hold"}}));
    c.settle();
    let w = c.workload("a");
    assert_eq!(reported(&w, "QuotaReserved"), "False/Suspended: ClusterQueue cq is stopped");
    assert_eq!(condition(&w, "Evicted"), "");
    assert_eq!(c.written(Purpose::Evict), 0);
}

#[test]
fn a_queue_that_stops_and_drops_its_checks_admits_nothing_that_waited_for_them() {
    let (mut c, _) = waiting();
    let change = json!({"spec": {"stopPolicy": "Hold", "admissionChecksStrategy": null}});
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &change);
    c.settle();
    let w = c.workload("a");
    assert_eq!(condition(&w, "QuotaReserved"), "False");
    assert_eq!(c.written(Purpose::Admit), 0);
    assert!(c.api.job("a").view.suspended);
}

#[test]
fn a_late_answer_of_a_check_does_not_keep_a_waiting_workload_out_of_its_queue() {
    let (mut c, workload) = waiting();
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "Hold"}}));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
    answer(&mut c, &workload, &json!({"state": "Retry", "message": "late", "requeueAfterSeconds": 60}));
    let w = c.workload("a");
    let evicted = "Evicted due to AdmissionCheck in Retry state: \"prov\" (late)";
    assert_eq!(reported(&w, "Evicted"), format!("True/AdmissionCheck: {evicted}"));
    assert_eq!(reported(&w, "Requeued"), format!("False/AdmissionCheck: {evicted}"));
    assert_eq!(reported(&w, "QuotaReserved"), "False/Suspended: ClusterQueue cq is inactive");
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "None"}}));
    c.advance(59);
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False", "the check asked for time");
    c.advance(2);
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");

    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "Hold"}}));
    c.settle();
    answer(&mut c, &workload, &json!({"state": "Rejected", "message": "never"}));
    let w = c.workload("a");
    assert_eq!(w.spec.active, Some(false));
    assert_eq!(
        reported(&w, "Evicted"),
        "True/DeactivatedDueToAdmissionCheck: The workload is deactivated due to AdmissionCheck in Rejected state: \
         \"prov\" (never)"
    );
}

#[test]
fn a_check_that_rejects_a_deactivated_workload_changes_nothing_until_it_is_active_again() {
    let (mut c, workload) = waiting();
    answer(&mut c, &workload, &json!({"state": "Rejected", "message": "never"}));
    let w = c.workload("a");
    assert_eq!((w.spec.active, condition(&w, "QuotaReserved").as_str()), (Some(false), "False"));
    let events_before = c.notes("AdmissionCheckRejected").len();
    let written = c.writes.len();
    answer(&mut c, &workload, &json!({"state": "Rejected", "message": "still never"}));
    c.advance(600);
    assert_eq!(c.notes("AdmissionCheckRejected").len(), events_before);
    assert_eq!(c.writes.len(), written, "{:?}", &c.writes[written..]);

    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    let w = c.workload("a");
    assert_eq!((w.spec.active, condition(&w, "QuotaReserved").as_str()), (Some(true), "True"));
    assert_eq!(reported(&w, "Requeued"), "True/Reactivated: The workload was reactivated");
    answer(&mut c, &workload, &json!({"state": "Ready"}));
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_workload_that_waits_after_its_reactivation_is_deactivated_again_by_a_check() {
    let (mut c, workload) = waiting();
    answer(&mut c, &workload, &json!({"state": "Rejected", "message": "never"}));
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "Hold"}}));
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(c.workload("a").spec.active, Some(true));
    answer(&mut c, &workload, &json!({"state": "Rejected", "message": ""}));
    let w = c.workload("a");
    assert_eq!((w.spec.active, condition(&w, "DeactivationTarget").as_str()), (Some(false), ""));
    assert_eq!(
        reported(&w, "Evicted"),
        "True/DeactivatedDueToAdmissionCheck: The workload is deactivated due to AdmissionCheck in Rejected state: \"prov\""
    );
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "None"}}));
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");
}

#[test]
fn the_waiting_job_gets_no_event_about_the_reset_of_its_checks() {
    let (mut c, workload) = waiting();
    answer(&mut c, &workload, &json!({"state": "Retry", "message": "no nodes", "requeueAfterSeconds": 60}));
    c.advance(30);
    assert_eq!(c.notes("UpdatedAdmissionCheck"), Vec::<&str>::new());
}

#[test]
fn with_quota_and_without_its_checks_a_workload_is_reported_as_not_admitted() {
    let (c, _) = waiting();
    let w = c.workload("a");
    assert_eq!(condition(&w, "QuotaReserved"), "True");
    assert_eq!(
        reported(&w, "Admitted"),
        "False/UnsatisfiedAdmissionChecks: The workload has not all checks ready"
    );
    let why =
        c.engine.metrics_snapshot().into_iter().find(|g| g.metric == "kueue_unadmitted_workloads").unwrap();
    let labels: Vec<_> = why.labels.iter().map(|label| &**label).collect();
    assert_eq!((labels, why.value), (vec!["cq", "UnsatisfiedAdmissionChecks", ""], 1.0));
}

#[test]
fn work_whose_queue_gets_more_checks_than_a_status_can_list_is_still_looked_after() {
    let checks = |count: usize| {
        let all: Vec<_> = (0..count).map(|at| json!({"name": format!("check-{at}")})).collect();
        json!({"admissionChecksStrategy": {"admissionChecks": all}})
    };
    let mut c = Cluster::plain();
    for at in 0..9 {
        c.api.active_check(&format!("check-{at}"));
    }
    c.api.simple("3", &checks(8));
    for name in ["ends", "runs", "waits"] {
        c.api.add_job(job("team-a", name, "lq", 1, "1"));
    }
    c.settle();
    for name in ["ends", "runs"] {
        let workload = Api::workload_ref(&c.workload(name));
        c.api.edit_status(&workload, |status| {
            for check in status["admissionChecks"].as_array_mut().unwrap() {
                check["state"] = json!("Ready");
            }
        });
    }
    c.settle();
    c.api.simple("3", &checks(9));
    c.settle();
    assert_eq!(c.written(Purpose::SyncChecks), 0, "nine would be refused");
    c.api.finish_job("ends", true);
    c.settle();
    assert_eq!(condition(&c.workload("ends"), "Finished"), "True");
    // Nothing is admitted without the ninth.
    let workload = Api::workload_ref(&c.workload("waits"));
    c.api.edit_status(&workload, |status| {
        for check in status["admissionChecks"].as_array_mut().unwrap() {
            check["state"] = json!("Ready");
        }
    });
    c.settle();
    assert!(c.api.job("waits").view.suspended);
    let stop = json!({"spec": {"stopPolicy": "HoldAndDrain"}});
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &stop);
    c.settle();
    assert!(c.api.job("runs").view.suspended);
    assert_eq!(condition(&c.workload("waits"), "QuotaReserved"), "False");
}

#[test]
fn a_check_that_a_queue_gets_later_stops_nothing_that_runs() {
    let mut c = bed("3");
    c.api.active_check("prov");
    for name in ["a", "b"] {
        c.api.add_job(job("team-a", name, "lq", 1, "1"));
    }
    c.api.add_pod(pod("alone", "lq", "1"));
    c.settle();
    c.api.run_pod("alone", "Running");
    c.settle();
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}});
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": checks}));
    c.settle();
    let runs = |c: &Cluster, name: &str| {
        let w = c.workload(name);
        let listed = &w.status.as_ref().unwrap().admission_checks;
        assert_eq!(listed.iter().map(|check| &*check.name).collect::<Vec<_>>(), ["prov"]);
        condition(&w, "Admitted") == "True" && !c.api.job(name).view.suspended
    };
    assert!(runs(&c, "a") && runs(&c, "b"));
    let of_pods = |w: &sluice_api::v1beta2::Workload| condition(w, "Admitted") == "True";
    assert!(c.api.workloads().iter().all(of_pods) && c.api.is_free("alone"));
    let [a, b] = ["a", "b"].map(|name| Api::workload_ref(&c.workload(name)));
    // Nor does a check that is asked again.
    for state in ["Ready", "Pending"] {
        answer(&mut c, &a, &json!({"state": state}));
        assert!(runs(&c, "a"), "{state}");
    }
    assert_eq!((c.written(Purpose::Evict), c.notes("Stopped").len()), (0, 0));
    // What it says counts.
    answer(&mut c, &a, &json!({"state": "Retry", "message": "", "requeueAfterSeconds": 60}));
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/AdmissionCheck"));
    answer(&mut c, &b, &json!({"state": "Rejected", "message": ""}));
    assert_eq!(c.workload("b").spec.active, Some(false));
    assert!(c.api.job("a").view.suspended && c.api.job("b").view.suspended);
}

#[test]
fn an_answer_to_a_workload_that_was_deactivated_while_it_waited_counts_no_more_when_it_is_active() {
    let (mut c, workload) = waiting();
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "Hold"}}));
    c.settle();
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    let w = c.workload("a");
    assert_eq!(reported(&w, "QuotaReserved"), "False/Deactivated: The workload is deactivated");
    assert_eq!(reported(&w, "Requeued"), "False/Deactivated: The workload is deactivated");
    answer(&mut c, &workload, &json!({"state": "Rejected", "message": "never"}));
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    let w = c.workload("a");
    assert_eq!((w.spec.active, condition(&w, "DeactivationTarget").as_str()), (Some(true), ""));
    assert_eq!(reported(&w, "Requeued"), "True/Reactivated: The workload was reactivated");
    c.api.edit(&queue, &json!({"spec": {"stopPolicy": "None"}}));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");
}
