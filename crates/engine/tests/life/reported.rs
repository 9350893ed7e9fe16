//! What is reported about jobs: rows of docs/reference/03-conditions-events.md 3.4 that no other test of a life has.

use serde_json::json;
use sluice_api::job::{ControllerRef, JobKind};
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::contract::{JOBS, submit};
use crate::model::build::{job, pod_set};
use crate::model::{Api, Cluster, condition, reported};
use crate::readiness::wait;

fn cluster() -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    c
}

/// Reporter, type, and the rest of the events with that reason.
fn events(c: &Cluster, reason: &str) -> Vec<String> {
    let of = c.events.iter().filter(|e| e.reason == reason && e.action == reason);
    of.map(|e| format!("{} {:?} {}: {}", e.reporter, e.type_, e.object.kind.as_str(), e.note)).collect()
}

fn name_of(c: &Cluster, job: &str) -> String {
    format!("team-a/{}", c.workload(job).metadata.name.unwrap())
}

#[test]
fn a_running_job_whose_template_was_changed_is_restored_and_its_workload_is_made_again() {
    let mut c = cluster();
    submit(&mut c, "a", "lq", 1, |_| {});
    let before = name_of(&c, "a");
    let uid = c.workload("a").metadata.uid;
    c.api.edit_job("a", |job| job.view.pod_sets = vec![pod_set("main", 2, "1")]);
    c.settle();
    assert_eq!(
        events(&c, "Stopped"),
        [format!(
            "{JOBS} Normal Job: No matching Workload; restoring pod templates according to existent Workload"
        )]
    );
    assert_eq!(
        c.workload("a").metadata.uid,
        uid,
        "restored to what the Workload says, so that it matches again"
    );
    assert_eq!(name_of(&c, "a"), before);
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn of_two_workloads_the_one_that_does_not_match_goes() {
    let mut c = cluster();
    submit(&mut c, "a", "lq", 1, |_| {});
    let mut second = c.api.json(&Api::workload_ref(&c.workload("a"))).unwrap().clone();
    second["metadata"]["name"] = json!("second");
    second["spec"]["podSets"][0]["count"] = json!(7);
    second["status"] = json!({});
    c.api.put(Kind::Workload, second);
    c.settle();
    assert_eq!(
        events(&c, "DeletedWorkload"),
        [format!("{JOBS} Normal Job: Deleted not matching Workload: team-a/second")]
    );
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
}

#[test]
fn a_waiting_job_that_changes_and_one_that_ends_get_events_about_their_workloads() {
    let mut c = cluster();
    submit(&mut c, "a", "lq", 3, |_| {});
    c.api.edit_job("a", |job| job.view.pod_sets = vec![pod_set("main", 1, "1")]);
    c.settle();
    let name = name_of(&c, "a");
    assert_eq!(
        events(&c, "UpdatedWorkload"),
        [format!("{JOBS} Normal Job: Updated not matching Workload for suspended job: {name}")]
    );
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!(
        events(&c, "FinishedWorkload"),
        [format!("{JOBS} Normal Job: Workload '{name}' is declared finished")]
    );
}

#[test]
fn a_job_that_runs_without_its_prebuilt_workload_is_stopped() {
    let mut c = cluster();
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.prebuilt_workload = Some("mine".to_owned());
    (view.suspended, view.active) = (false, true);
    c.api.add_job(view);
    c.api.edit_job("a", |job| job.started_by_user = true);
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(events(&c, "Stopped"), [format!("{JOBS} Normal Job: missing workload")]);
    assert!(c.api.workloads().is_empty(), "it is waited for");
}

#[test]
fn the_reporter_of_a_job_set_is_named_after_its_integration() {
    let mut c = cluster();
    submit(&mut c, "a", "lq", 1, |view| view.job.kind = JobKind::JOB_SET);
    assert_eq!(
        events(&c, "Started"),
        ["jobset.x-k8s.io/jobset-kueue-controller Normal JobSet: Admitted by clusterQueue cq"]
    );
}

#[test]
fn a_job_below_more_owners_than_are_read_is_not_managed_and_gets_the_reason() {
    let mut c = cluster();
    let owner = |name: &str, uid: &str| ControllerRef {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    };
    let mut above: Option<ControllerRef> = None;
    for depth in 0..11 {
        let name = format!("j{depth}");
        // Only the last one names a queue.
        let mut view = job("team-a", &name, if depth == 10 { "lq" } else { "" }, 1, "1");
        view.controller = above.take();
        c.api.add_job(view);
        above = Some(owner(&name, &c.api.job(&name).view.job.uid));
    }
    c.advance(60);
    assert_eq!(
        events(&c, "JobNestingTooDeep"),
        [format!(
            "{JOBS} Warning Job: Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10"
        )]
    );
    assert!(c.api.workloads().is_empty());
}

#[test]
fn every_part_of_a_status_has_its_field_manager() {
    let mut c = wait(|ready| ready.recovery_timeout_seconds = None);
    submit(&mut c, "a", "lq", 2, |_| {});
    c.api.edit_job("a", |job| {
        job.view.pods_ready = true;
        job.view.reclaimable = vec![("main".to_owned(), 1)];
    });
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    let admission = "kueue-admission";
    let (ready, reclaimable) = ("kueue-job-controller-PodsReady", "kueue-reclaimable-pods");
    let managers: Vec<_> = c.applied.iter().map(|(manager, _)| *manager).collect();
    // Admitted; less of it, ready; evicted, released, deactivated.
    assert_eq!(managers, [admission, reclaimable, ready, admission, admission, admission]);
    let with_pods = c.applied.iter().map(|(_, types)| types.iter().any(|t| t == "PodsReady"));
    let with_pods: Vec<_> = with_pods.collect();
    assert_eq!(with_pods, [true, false, true, false, true, true], "as long as they were not ready");
    assert_eq!(c.applied[2].1, ["PodsReady"]);
    assert_eq!(c.applied[1].1, Vec::<String>::new());
    let mut last = c.applied.last().unwrap().1.clone();
    last.sort();
    let all = ["Admitted", "Evicted", "PodsReady", "QuotaReserved", "Requeued"];
    assert_eq!(last, all, "an apply says everything that it owns");
}

#[test]
fn a_workload_that_is_deleted_after_its_owner_is_finished_first() {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("2", &json!({}));
    c.settle();
    let template = serde_json::to_value(crate::model::build::template("1")).unwrap();
    let orphan = c.api.put(
        Kind::Workload,
        json!({
            "metadata": {"name": "left", "namespace": "team-a",
                "finalizers": ["kueue.x-k8s.io/resource-in-use", "example.com/watcher"]},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
        }),
    );
    c.settle();
    c.api.delete(&orphan);
    c.settle();
    let left = &c.api.workloads()[0];
    assert_eq!(reported(left, "Finished"), "True/OwnerNotFound: The workload's owner no longer exists");
    assert_eq!(left.metadata.finalizers.as_deref(), Some(&["example.com/watcher".to_owned()][..]));
    let queue = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "cq")).unwrap();
    assert_eq!(queue["status"]["reservingWorkloads"], 0);
}

#[test]
fn a_cluster_queue_that_is_deleted_goes_with_its_last_reservation_however_seldom_figures_are_written() {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 3_600_000, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("2", &json!({}));
    c.settle();
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.delete(&queue);
    c.settle();
    assert!(c.api.json(&queue).is_some(), "a job runs in it");
    c.api.finish_job("a", true);
    c.settle();
    assert!(c.api.json(&queue).is_none());
}

#[test]
fn a_cluster_queue_that_is_deleted_says_how_many_workloads_use_it_as_often_as_its_figures_are_written() {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 60_000, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("4", &json!({}));
    c.settle();
    for name in ["a", "b", "c", "d"] {
        c.api.add_job(job("team-a", name, "lq", 1, "1"));
    }
    c.advance(120);
    c.api.delete(&ObjectRef::cluster(Kind::ClusterQueue, "cq"));
    c.settle();
    for name in ["a", "b"] {
        c.api.finish_job(name, true);
        c.settle();
    }
    let said = |count| {
        format!("ClusterQueue/cq: Kept until it is no longer used by: {count} Workloads with a reservation")
    };
    assert_eq!(c.notes("InUse"), [said(4)]);
    c.advance(60);
    assert_eq!(c.notes("InUse"), [said(4), said(2)]);
}
