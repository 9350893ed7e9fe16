//! When the quota of a stopped or finished job is free again: once no pod of it, or of the Jobs that it consists of, can use it.

use serde_json::json;
use sluice_api::job::{JobKind, JobView};
use sluice_engine::{EngineConfig, Kind, ObjectRef};

use crate::model::build::{job, made_by};
use crate::model::{Api, Cluster, condition, reported};

fn with(config: EngineConfig) -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..config });
    c.pods_vanish = false;
    c.api.namespace("team-a", &[]);
    c.api.simple("2", &json!({}));
    c
}

/// `old` runs with all there is, `new` waits for it.
fn full(kind: JobKind, config: EngineConfig) -> Cluster {
    let mut c = with(config);
    let mut old = job("team-a", "old", "lq", 2, "1");
    old.job.kind = kind;
    c.api.add_job(old);
    c.settle();
    assert!(runs(&c, "old"));
    let mut new = job("team-a", "new", "lq", 2, "1");
    new.job.kind = JobKind::JOB_SET;
    c.api.add_job(new);
    c.settle();
    c
}

/// Makes `child` a Job that the JobSet `old` controls.
pub fn controlled(c: &Cluster, child: &mut JobView) {
    child.controller = Some(made_by(&c.api.job("old").view));
}

/// A child Job of `old` with pods that run.
fn add_child(c: &mut Cluster, name: &str) {
    let mut child = job("team-a", name, "", 1, "1");
    (child.suspended, child.active) = (false, true);
    controlled(c, &mut child);
    c.api.add_job(child);
    c.settle();
}

pub fn runs(c: &Cluster, job: &str) -> bool {
    !c.api.job(job).view.suspended && condition(&c.workload(job), "Admitted") == "True"
}

/// Deactivates `old`, which is stopped then.
pub fn evict(c: &mut Cluster) {
    let workload = Api::workload_ref(&c.workload("old"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    assert!(c.api.job("old").view.suspended);
}

/// What the status of a job says of its pods.
fn set_pods(c: &mut Cluster, job: &str, active: bool, terminating: i32) {
    c.api.edit_job(job, |j| {
        (j.view.active, j.view.terminating) = (active, terminating);
        // Those of a JobSet are stopped by its controller.
        j.view.suspended |= !active;
    });
    c.settle();
}

pub fn node(c: &mut Cluster, name: &str) -> ObjectRef {
    let node = c.api.put(Kind::Node, json!({"metadata": {"name": name}}));
    ready(c, &node, "True");
    node
}

pub fn ready(c: &mut Cluster, node: &ObjectRef, status: &str) {
    let at = c.now.to_string();
    let condition = json!([{"type": "Ready", "status": status, "lastTransitionTime": at}]);
    c.api.edit_status(node, |s| s["conditions"] = condition);
    c.settle();
}

/// A pod of a job that is being deleted on a node.
pub fn leaving_pod(c: &mut Cluster, name: &str, job: &str, node: &str) -> ObjectRef {
    let uid = c.api.job(job).view.job.uid.to_string();
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true}]);
    let pod = c.api.put(
        Kind::Pod,
        json!({"metadata": {"name": name, "namespace": "team-a", "ownerReferences": owner},
            "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Running"}}),
    );
    let at = c.now.to_string();
    c.api.edit(&pod, &json!({"metadata": {"deletionTimestamp": at}}));
    c.settle();
    pod
}

fn kinds() -> [EngineConfig; 2] {
    let only_jobsets = EngineConfig { frameworks: [JobKind::JOB_SET].into(), ..EngineConfig::default() };
    [EngineConfig::default(), only_jobsets]
}

#[test]
fn a_stopped_jobset_holds_its_quota_while_pods_of_its_jobs_terminate() {
    for config in kinds() {
        let mut c = full(JobKind::JOB_SET, config);
        add_child(&mut c, "a");
        add_child(&mut c, "b");
        evict(&mut c);
        // The JobSet's own status knows only of pods that run.
        set_pods(&mut c, "old", false, 0);
        assert!(!runs(&c, "new"), "its Jobs were not seen to stop");
        set_pods(&mut c, "a", false, 2);
        set_pods(&mut c, "b", false, 1);
        assert!(!runs(&c, "new"));
        set_pods(&mut c, "a", false, 0);
        assert!(!runs(&c, "new"));
        c.api.delete_job("b");
        c.settle();
        assert!(runs(&c, "new"), "a Job that is gone has no pods");
        assert_eq!(condition(&c.workload("old"), "QuotaReserved"), "False");
    }
}

#[test]
fn jobs_of_jobsets_are_not_touched_where_only_jobsets_are_managed() {
    let [_, config] = kinds();
    let mut c = with(config);
    let mut old = job("team-a", "old", "lq", 3, "1");
    old.job.kind = JobKind::JOB_SET;
    c.api.add_job(old);
    c.settle();
    assert!(!runs(&c, "old"), "it is larger than the queue");
    add_child(&mut c, "a");
    assert!(!c.api.job("a").view.suspended);
    c.api.edit_job("a", |j| {
        j.view.controller = None;
        j.view.queue_name = Some("lq".to_owned());
        j.started_by_user = true;
    });
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.api.workloads().len(), 1, "Jobs get no Workload");
}

#[test]
fn a_finished_jobset_holds_its_quota_while_pods_of_its_jobs_terminate() {
    let mut c = full(JobKind::JOB_SET, EngineConfig::default());
    add_child(&mut c, "driver");
    c.api.finish_job("old", true);
    set_pods(&mut c, "driver", false, 1);
    assert!(!runs(&c, "new") && reported(&c.workload("old"), "Finished").is_empty());
    set_pods(&mut c, "driver", false, 0);
    assert_eq!(reported(&c.workload("old"), "Finished"), "True/Succeeded: Job finished");
    assert!(runs(&c, "new"));
}

#[test]
fn pods_on_a_node_that_is_not_ready_hold_their_quota_for_thirty_seconds() {
    let mut c = full(JobKind::JOB, EngineConfig::default());
    let (dead, well) = (node(&mut c, "dead"), node(&mut c, "well"));
    evict(&mut c);
    set_pods(&mut c, "old", false, 2);
    leaving_pod(&mut c, "p-0", "old", &dead.name);
    let other = leaving_pod(&mut c, "p-1", "old", &well.name);
    c.advance(600);
    assert!(!runs(&c, "new"), "a long grace period");
    ready(&mut c, &dead, "Unknown");
    c.advance(600);
    assert!(!runs(&c, "new"), "one pod is on a node that answers");
    c.api.delete(&other);
    set_pods(&mut c, "old", false, 1);
    assert!(runs(&c, "new"), "the other will never end");
}

#[test]
fn quota_is_free_when_the_last_node_has_not_been_ready_for_long_enough() {
    let mut c = full(JobKind::JOB, EngineConfig::default());
    let nodes = [node(&mut c, "first"), node(&mut c, "second")];
    evict(&mut c);
    set_pods(&mut c, "old", false, 2);
    ready(&mut c, &nodes[0], "Unknown");
    c.advance(10);
    ready(&mut c, &nodes[1], "False");
    for (index, node) in nodes.iter().enumerate() {
        leaving_pod(&mut c, &format!("p-{index}"), "old", &node.name);
    }
    c.advance(29);
    assert!(!runs(&c, "new"));
    c.advance(1);
    assert!(runs(&c, "new"));
}

#[test]
fn a_node_that_comes_back_in_time_ends_its_pods_first() {
    let mut c = full(JobKind::JOB, EngineConfig::default());
    let node = node(&mut c, "n");
    evict(&mut c);
    set_pods(&mut c, "old", false, 1);
    leaving_pod(&mut c, "p", "old", &node.name);
    ready(&mut c, &node, "Unknown");
    c.advance(29);
    ready(&mut c, &node, "True");
    c.advance(60);
    assert!(!runs(&c, "new"));
    set_pods(&mut c, "old", false, 0);
    assert!(runs(&c, "new"));
}

#[test]
fn pods_on_a_node_that_is_gone_hold_nothing() {
    let mut c = full(JobKind::JOB, EngineConfig::default());
    let node = node(&mut c, "n");
    evict(&mut c);
    set_pods(&mut c, "old", false, 1);
    leaving_pod(&mut c, "p", "old", &node.name);
    assert!(!runs(&c, "new"));
    c.api.delete(&node);
    c.settle();
    assert!(runs(&c, "new"));
}

#[test]
fn pods_on_a_node_that_only_says_that_it_will_go_hold_their_quota() {
    let mut c = full(JobKind::JOB, EngineConfig::default());
    let node = node(&mut c, "n");
    evict(&mut c);
    set_pods(&mut c, "old", false, 1);
    leaving_pod(&mut c, "p", "old", &node.name);
    c.api.edit(&node, &json!({"metadata": {"labels": {"cloud.google.com/active-node-maintenance": "true"}}}));
    c.advance(600);
    assert!(!runs(&c, "new"), "they end in their own time");
}

#[test]
fn before_pods_were_listed_all_that_terminate_hold_their_quota() {
    let mut c = full(JobKind::JOB, EngineConfig::default());
    let node = node(&mut c, "n");
    evict(&mut c);
    ready(&mut c, &node, "Unknown");
    c.restart_without(&[Kind::Pod]);
    set_pods(&mut c, "old", false, 1);
    c.advance(600);
    let pod = leaving_pod(&mut c, "p", "old", &node.name);
    assert!(!runs(&c, "new"), "others may be on nodes that answer");
    c.list(Kind::Pod, vec![pod], c.api.revision());
    c.settle();
    assert!(runs(&c, "new"));
}

#[test]
fn a_jobset_whose_pods_terminate_on_a_lost_node_gives_its_quota_back() {
    for config in kinds() {
        let mut c = full(JobKind::JOB_SET, config);
        add_child(&mut c, "a");
        let node = node(&mut c, "n");
        evict(&mut c);
        set_pods(&mut c, "old", false, 0);
        ready(&mut c, &node, "Unknown");
        set_pods(&mut c, "a", false, 1);
        leaving_pod(&mut c, "p", "a", &node.name);
        c.advance(29);
        assert!(!runs(&c, "new"));
        c.advance(1);
        assert!(runs(&c, "new"));
    }
}

#[test]
fn a_deleted_workload_goes_although_pods_of_its_job_never_end() {
    let mut c = full(JobKind::JOB, EngineConfig::default());
    let node = node(&mut c, "n");
    let workload = c.workload("old");
    c.api.delete(&Api::workload_ref(&workload));
    c.settle();
    assert!(c.api.job("old").view.suspended);
    set_pods(&mut c, "old", false, 1);
    leaving_pod(&mut c, "p", "old", &node.name);
    assert_eq!(c.workload("old").metadata.uid, workload.metadata.uid);
    ready(&mut c, &node, "Unknown");
    c.advance(30);
    assert_ne!(c.workload("old").metadata.uid, workload.metadata.uid, "it is gone, and the job has another");
}
