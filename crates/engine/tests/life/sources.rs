//! The origins of Workloads: gates, prebuilt ones, jobs without a queue name, copied fields (docs/reference/06-algorithm.md 6.19;
//! docs/reference/07-integrations.md 7.1).

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::answered::errand;
use crate::kinds::restart_with;
use crate::model::build::{job, made_by, template};
use crate::model::{Cluster, condition, reported};

fn with(config: EngineConfig) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..config });
    c.api.namespace("team-a", &[("managed", "yes")]);
    c.api.namespace("team-b", &[]);
    c.api.simple("3", &json!({}));
    c
}

#[test]
fn an_admission_gate_holds_a_job_back_until_its_owner_lifts_it() {
    let mut c = with(EngineConfig::default());
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.admission_gated_by = Some("example.com/data,example.com/budget".to_owned());
    c.api.add_job(view);
    c.settle();
    let w = c.workload("a");
    assert_eq!(
        reported(&w, "QuotaReserved"),
        "False/AdmissionGated: Admission is gated by: example.com/data,example.com/budget"
    );
    assert_eq!(
        c.notes("AdmissionGated"),
        ["Workload/job-a: Workload admission is gated by: example.com/data,example.com/budget"]
    );
    c.api.edit_job("a", |j| j.view.admission_gated_by = Some("example.com/budget".to_owned()));
    c.settle();
    assert_eq!(
        reported(&c.workload("a"), "QuotaReserved"),
        "False/AdmissionGated: Admission is gated by: example.com/budget"
    );
    c.api.edit_job("a", |j| j.view.admission_gated_by = None);
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(
        c.notes("AdmissionGateCleared"),
        ["Workload/job-a: Admission gate cleared, workload is now admissible"]
    );
    let updates = c.notes("UpdatedWorkload");
    assert!(updates.last().is_some_and(|n| n.ends_with("AdmissionGatedBy to \"\"")), "{updates:?}");
}

#[test]
fn a_blank_list_of_admission_gates_holds_no_job_back() {
    let mut c = with(EngineConfig::default());
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.admission_gated_by = Some(" ".to_owned());
    c.api.add_job(view);
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.notes("AdmissionGated"), Vec::<String>::new());
}

/// A Workload that exists before its job.
pub fn prebuilt(c: &mut Cluster, name: &str, count: i32) {
    let template = serde_json::to_value(template("1")).unwrap();
    c.api.put(
        Kind::Workload,
        json!({
            "metadata": {"name": name, "namespace": "team-a", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": count, "template": template}]},
        }),
    );
}

#[test]
fn a_job_waits_for_its_prebuilt_workload_and_takes_it_over() {
    let mut c = with(EngineConfig::default());
    let mut view = job("team-a", "a", "lq", 2, "1");
    view.prebuilt_workload = Some("mine".to_owned());
    c.api.add_job(view);
    c.settle();
    assert!(c.api.workloads().is_empty() && c.api.job("a").view.suspended, "none is made for it");
    prebuilt(&mut c, "mine", 2);
    c.settle();
    let w = c.workload("a");
    assert_eq!(w.metadata.name.as_deref(), Some("mine"));
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.notes("OwnerReferencesAdded"), ["Workload/mine: Added 1 owner reference(s)"]);
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!(reported(&c.workload("a"), "Finished"), "True/Succeeded: Job finished");
}

#[test]
fn a_prebuilt_workload_that_does_not_match_is_out_of_sync() {
    let mut c = with(EngineConfig::default());
    prebuilt(&mut c, "mine", 1);
    let mut view = job("team-a", "a", "lq", 2, "1");
    view.prebuilt_workload = Some("mine".to_owned());
    c.api.add_job(view);
    c.settle();
    assert_eq!(
        reported(&c.workload("a"), "Finished"),
        "True/OutOfSync: The prebuilt workload is out of sync with its user job"
    );
    assert!(c.api.job("a").view.suspended);
}

#[test]
fn jobs_without_a_queue_name_are_managed_when_the_configuration_says_so() {
    for managed in [false, true] {
        let config = EngineConfig { manage_jobs_without_queue_name: managed, ..EngineConfig::default() };
        let mut c = with(config);
        c.api.add_job(job("team-a", "a", "", 1, "1"));
        c.settle();
        assert_eq!(c.api.workloads().len(), usize::from(managed));
        if managed {
            let text = reported(&c.workload("a"), "QuotaReserved");
            assert!(text.starts_with("False/Misconfigured: LocalQueue"), "{text}");
            c.api.edit_job("a", |j| j.view.queue_name = Some("lq".to_owned()));
            c.settle();
            assert!(!c.api.job("a").view.suspended);
        }
    }
}

#[test]
fn only_selected_namespaces_are_managed() {
    let selector = serde_json::from_value(json!({"matchLabels": {"managed": "yes"}})).unwrap();
    let mut c = with(EngineConfig {
        managed_jobs_namespace_selector: Some(selector),
        manage_jobs_without_queue_name: true,
        ..EngineConfig::default()
    });
    c.api.local_queue("team-b", "lq", "cq");
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.api.add_job(job("team-b", "b", "lq", 1, "1"));
    c.api.add_job(job("team-b", "d", "", 1, "1"));
    c.settle();
    assert_eq!(c.api.workloads().len(), 1);
    assert!(!c.api.job("a").view.suspended && c.api.job("b").view.suspended);
}

#[test]
fn the_configured_labels_are_copied_and_no_others() {
    let mut c = with(EngineConfig { label_keys_to_copy: vec!["team".to_owned()], ..EngineConfig::default() });
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.labels = [("team", "x"), ("other", "y")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    view.annotations = [("provreq.kueue.x-k8s.io/maxRunDurationSeconds".to_owned(), "600".to_owned())].into();
    c.api.add_job(view);
    c.settle();
    let metadata = c.workload("a").metadata;
    let labels = metadata.labels.unwrap();
    assert_eq!(labels["team"], "x");
    assert!(!labels.contains_key("other"));
    assert_eq!(metadata.annotations.unwrap()["provreq.kueue.x-k8s.io/maxRunDurationSeconds"], "600");
}

#[test]
fn a_job_that_another_controller_manages_is_queued_all_the_same() {
    let mut c = with(EngineConfig::default());
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.managed_by = Some("example.com/controller".to_owned());
    c.api.add_job(view);
    c.settle();
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn the_child_of_a_managed_job_runs_on_the_quota_of_its_ancestor() {
    let mut c = with(EngineConfig::default());
    let mut parent = job("team-a", "parent", "lq", 4, "1");
    parent.job.kind = JobKind::JOB_SET;
    c.api.add_job(parent);
    c.settle();
    let mut child = job("team-a", "child", "", 4, "1");
    child.suspended = false;
    child.active = true;
    child.controller = Some(made_by(&c.api.job("parent").view));
    c.api.add_job(child);
    c.settle();
    assert!(c.api.job("child").view.suspended, "its ancestor's workload is not admitted");
    assert_eq!(c.notes("Suspended"), ["Job/child: Kueue managed child job suspended"]);
    assert_eq!(c.api.workloads().len(), 1, "it has none of its own");
    c.api.cluster_queue("cq", "default", "4", &json!({}));
    c.settle();
    c.api.edit_job("child", |j| j.view.suspended = false);
    c.settle();
    assert!(!c.api.job("child").view.suspended);
}

#[test]
fn a_running_job_whose_workload_is_missing_is_stopped_before_it_gets_one() {
    let mut c = with(EngineConfig::default());
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.suspended = false;
    view.active = true;
    c.api.add_job(view);
    c.api.edit_job("a", |j| j.started_by_user = true);
    c.settle();
    assert_eq!(c.notes("Stopped"), ["Job/a: Missing Workload; unable to restore pod templates"]);
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn an_answer_that_a_watch_has_overtaken_takes_nothing_back() {
    let mut c = Cluster::plain();
    c.late = Some(Purpose::Finalizer);
    let check = c.api.put(
        Kind::AdmissionCheck,
        json!({"metadata": {"name": "prov"}, "spec": {"controllerName": "example.com/x"}}),
    );
    c.api.simple("1", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
    c.settle();
    // The check's controller says that it is active; then comes the answer to our finalizer, without that.
    let active = json!([{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    c.api.edit_status(&check, |s| *s = json!({"conditions": active}));
    c.settle();
    c.release();
    let queue = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "cq")).unwrap();
    assert_eq!(queue["status"]["conditions"][0]["status"], "True", "{}", queue["status"]);
}

/// What the controller of a declared kind makes is not known.
#[test]
fn a_job_below_one_of_a_declared_kind_is_queued_by_itself_where_it_is_managed_itself() {
    let kind = errand("engine.sources.example.com", &json!({"name": "main", "template": "spec.template"}));
    for (manage_all, queue, own, starts) in
        [(false, "", 0, true), (false, "lq", 1, true), (true, "", 1, false), (true, "lq", 1, true)]
    {
        let config = EngineConfig { manage_jobs_without_queue_name: manage_all, ..EngineConfig::default() };
        let mut c = with(config);
        restart_with(&mut c, kind);
        let mut above = job("team-a", "above", "lq", 1, "1");
        above.job.kind = kind;
        c.api.add_job(above);
        c.settle();
        let mut below = job("team-a", "below", queue, 1, "1");
        (below.suspended, below.active) = (false, true);
        below.controller = Some(made_by(&c.api.job("above").view));
        c.api.add_job(below);
        c.api.edit_job("below", |job| job.started_by_user = true);
        c.advance(60);
        let found = c.api.workloads_of(&c.api.job("below").view.job.uid).len();
        assert_eq!((found, !c.api.job("below").view.suspended), (own, starts), "{manage_all} {queue:?}");
    }
}
