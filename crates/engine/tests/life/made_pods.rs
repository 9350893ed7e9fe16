//! Pods of admitted jobs that wait nevertheless, because the webhook did not recognize them.

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};

use crate::model::build::job;
use crate::model::pods::pod;
use crate::model::{Api, Cluster};
use crate::plain_pods::bed;
use crate::pods::controlled;

const UID: &str = "batch.kubernetes.io/controller-uid";
const MANAGED: &str = "kueue.x-k8s.io/managed";
/// How long it is waited for an owner that was not seen, in seconds.
const OWNER_WAIT: i64 = 10;

fn uid(c: &Cluster, job: &str) -> String {
    c.api.job(job).view.job.uid.to_string()
}

/// A gated pod that names a Job of this UID as its controller, with the label that the controller gives it.
fn made(name: &str, job: &str, uid: &str) -> Value {
    let mut pod = pod(name, "lq", "1");
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true}]);
    pod["metadata"]["labels"][UID] = json!(uid);
    pod
}

/// Adds a pod that is made now.
fn add(c: &mut Cluster, mut pod: Value) {
    pod["metadata"]["creationTimestamp"] = json!(c.now.to_string());
    c.api.add_pod(pod);
    c.settle();
}

/// A Job of this name that takes all quota.
fn add_job(c: &mut Cluster, name: &str) {
    c.api.add_job(job("team-a", name, "lq", 1, "1"));
    c.settle();
}

fn is_released(c: &Cluster, name: &str) -> bool {
    let pod = c.api.pod(name).unwrap();
    let finalizers = pod["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
    c.api.is_free(name) && pod["metadata"]["labels"][MANAGED].is_null() && finalizers
}

/// How many Workloads pods have.
fn of_pods(c: &Cluster) -> usize {
    let all = c.api.workloads();
    all.iter().filter(|w| w.metadata.name.as_deref().is_some_and(|name| name.starts_with("pod-"))).count()
}

#[test]
fn a_pod_that_an_admitted_job_made_is_released_at_once() {
    for restarts in [false, true] {
        let mut c = bed("1");
        add_job(&mut c, "a");
        let uid = uid(&c, "a");
        if restarts {
            c.restart();
        }
        add(&mut c, made("a-1", "a", &uid));
        assert!(is_released(&c, "a-1"), "{:?}", c.api.pod("a-1"));
        assert_eq!(of_pods(&c), 0);
        c.api.run_pod("a-1", "Running");
        c.advance(3_600);
        assert!(c.api.is_free("a-1") && of_pods(&c) == 0, "it is none that is queued");
    }
}

#[test]
fn the_gate_for_a_topology_stays_where_the_jobs_template_has_it() {
    const TOPOLOGY: &str = "kueue.x-k8s.io/topology";
    for placed in [false, true] {
        let mut c = bed("1");
        let mut job = job("team-a", "a", "lq", 1, "1");
        if placed {
            let gate = PodSchedulingGate { name: TOPOLOGY.to_owned() };
            job.pod_sets[0].scheduling.scheduling_gates.push(gate);
        }
        c.api.add_job(job);
        c.settle();
        let mut pod = made("a-1", "a", &uid(&c, "a"));
        pod["spec"]["schedulingGates"].as_array_mut().unwrap().push(json!({"name": TOPOLOGY}));
        add(&mut c, pod);
        let gates = c.api.pod("a-1").unwrap()["spec"]["schedulingGates"].clone();
        assert_eq!(gates, if placed { json!([{"name": TOPOLOGY}]) } else { json!([]) });
    }
}

#[test]
fn what_only_names_an_admitted_job_is_queued_as_any_other_pod() {
    let mut c = bed("1");
    add_job(&mut c, "a");
    let uid = uid(&c, "a");
    let mut unmarked = made("unmarked", "a", &uid);
    unmarked["metadata"]["labels"][UID] = json!("another");
    add(&mut c, unmarked);
    let mut other_kind = made("other-kind", "a", &uid);
    other_kind["metadata"]["ownerReferences"][0]["kind"] = json!("CronJob");
    add(&mut c, other_kind);
    assert_eq!(of_pods(&c), 2);
    c.advance(3_600);
    assert!(c.api.is_gated("unmarked") && c.api.is_gated("other-kind"));
}

/// A pod waits with the labels that a Job will select, whatever it asks for: the Job takes it for its own.
#[test]
fn a_pod_that_is_older_than_its_job_was_adopted_and_stays_queued() {
    let mut c = bed("1");
    add(&mut c, pod("older", "lq", "2"));
    c.advance(60);
    add_job(&mut c, "a");
    let uid = uid(&c, "a");
    let of_job = made("older", "a", &uid);
    c.api.edit_pod("older", &json!({"metadata": {"labels": of_job["metadata"]["labels"], "ownerReferences": of_job["metadata"]["ownerReferences"]}}));
    c.settle();
    c.advance(3_600);
    assert!(c.api.is_gated("older"), "{:?}", c.api.pod("older"));
    assert_eq!(of_pods(&c), 1);
}

#[test]
fn a_pod_of_a_job_that_was_not_seen_yet_is_queued_only_if_the_job_does_not_come() {
    let mut c = bed("1");
    add(&mut c, made("forged", "nothing", "no-such-uid"));
    assert_eq!(of_pods(&c), 0);
    c.advance(OWNER_WAIT);
    assert_eq!(of_pods(&c), 1);
    assert!(c.api.is_free("forged"), "it has quota of its own");

    // Each bed gives the same UIDs: the first one is for that of the Job.
    let come = |uid_of_job: &str| {
        let mut c = bed("1");
        add_job_set(&mut c);
        let part = part(&c, "old-main-0");
        add(&mut c, made("old-main-0-x", "old-main-0", uid_of_job));
        assert_eq!((of_pods(&c), c.api.is_gated("old-main-0-x")), (0, true));
        c.api.add_job(part);
        c.settle();
        c.advance(4);
        c
    };
    let real = uid(&come("not-known-yet"), "old-main-0");
    let c = come(&real);
    assert_eq!(uid(&c, "old-main-0"), real);
    assert!(is_released(&c, "old-main-0-x"));
    assert_eq!(of_pods(&c), 0);
}

/// The JobSet `old`, which takes all quota.
fn add_job_set(c: &mut Cluster) {
    let mut set = job("team-a", "old", "lq", 1, "1");
    set.job.kind = JobKind::JOB_SET;
    c.api.add_job(set);
    c.settle();
}

/// A Job of this name that the JobSet `old` controls, and lets run.
fn part(c: &Cluster, name: &str) -> JobView {
    let mut part = job("team-a", name, "", 1, "1");
    (part.suspended, part.queue_name) = (false, None);
    controlled(c, &mut part);
    part
}

#[test]
fn a_job_that_is_no_part_of_the_one_above_it_does_not_vouch_for_its_pods() {
    let mut c = bed("1");
    add_job_set(&mut c);
    for (name, is_part) in [("any-name", false), ("old-main-1", false), ("old-main-0", true)] {
        let part = part(&c, name);
        c.api.add_job(part);
        c.settle();
        let (pod, uid) = (format!("{name}-x"), uid(&c, name));
        add(&mut c, made(&pod, name, &uid));
        c.advance(3_600);
        assert_eq!(is_released(&c, &pod), is_part, "{name}");
    }
}

/// It was made while its job waited: then the controller did not make it, or will end it.
#[test]
fn a_pod_of_a_waiting_job_is_queued_by_itself_and_released_with_the_job() {
    let mut c = bed("1");
    add_job(&mut c, "first");
    add_job(&mut c, "a");
    let uid = uid(&c, "a");
    add(&mut c, made("a-1", "a", &uid));
    assert_eq!((of_pods(&c), c.api.is_gated("a-1")), (1, true));
    c.api.finish_job("first", true);
    c.settle();
    assert!(!c.api.job("a").view.suspended, "it came first");
    c.advance(64);
    assert!(is_released(&c, "a-1"));
    assert_eq!(of_pods(&c), 0, "nothing holds quota for it");
}

#[test]
fn a_pod_with_quota_of_its_own_keeps_that() {
    let mut c = bed("3");
    let workload = |c: &Cluster| Api::workload_ref(&c.workload("a"));
    add_job(&mut c, "a");
    c.api.edit(&workload(&c), &json!({"spec": {"active": false}}));
    c.settle();
    let uid = uid(&c, "a");
    add(&mut c, made("a-1", "a", &uid));
    assert!(c.api.is_free("a-1"), "it was admitted");
    c.api.run_pod("a-1", "Running");
    c.api.edit(&workload(&c), &json!({"spec": {"active": true}}));
    c.settle();
    c.advance(64);
    assert_eq!(of_pods(&c), 1);
    assert_eq!(c.api.pod("a-1").unwrap()["metadata"]["labels"][MANAGED], "true");
}
