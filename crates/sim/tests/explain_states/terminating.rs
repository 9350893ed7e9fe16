//! Queues, flavors and Cohorts that are being deleted: the job starts when it, or its queue, refers to others, as the answer says.

use super::waiting::{finding, first, later, played, scenario};
use super::*;

/// Of a kind and name, with a finalizer of another program.
fn with_finalizer(manifest: &str, name: &str) -> String {
    manifest.replace(
        &format!("metadata: {{name: {name}"),
        &format!("metadata: {{finalizers: [example.com/holds], name: {name}"),
    )
}

/// That it is deleted before the second job comes.
fn deleted(kind: &str, namespace: Option<&str>, name: &str) -> String {
    let mut object = json!({"kind": kind, "name": name});
    object["namespace"] = json!(namespace);
    if namespace.is_none() {
        object.as_object_mut().unwrap().remove("namespace");
    }
    scenario(&json!({"events": [{"at": "3s", "delete": object}]}))
}

/// The answer about a job that waits, and that it runs once this is done.
fn ends(world: &str, code: Code, says: &str, act: &Act) {
    let (explained, mut simulation) = played(world, &options(), 20);
    let said = finding(&explained, code);
    assert!(said.contains(says) && said.contains("held by the finalizers "), "{said}");
    assert!(!runs(&simulation), "{}", explained.text());
    super::act(&mut simulation, &explained, act);
    assert!(runs(&simulation), "{}", explained.text());
}

const OTHER: &str = "name another queue, or create it again once it is gone";

fn other_queue() -> Act {
    Act::Change(
        OTHER,
        ("Job", "a", "mine"),
        json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}),
    )
}

#[test]
pub fn a_job_in_a_local_queue_that_goes_starts_in_another() {
    let other = LOCAL_QUEUE.replace("{name: main,", "{name: other,");
    let main = with_finalizer(LOCAL_QUEUE, "main");
    let gone = deleted("LocalQueue", Some("a"), "main");
    let world = [FLAVOR, CLUSTER_QUEUE, &main, &other, &later(JOB, ""), &gone].concat();
    let says = "the LocalQueue main is being deleted since 2026-";
    ends(&world, Code::LocalQueueTerminating, says, &other_queue());
}

#[test]
pub fn a_job_in_a_cluster_queue_that_goes_starts_in_another() {
    let second = CLUSTER_QUEUE.replace("{name: cq}", "{name: second}");
    let other = LOCAL_QUEUE
        .replace("{name: main,", "{name: other,")
        .replace("clusterQueue: cq", "clusterQueue: second");
    // The manager's own finalizer holds it: a job runs in it.
    let gone = deleted("ClusterQueue", None, "cq");
    let world =
        [FLAVOR, CLUSTER_QUEUE, &second, LOCAL_QUEUE, &other, &first(), &later(JOB, ""), &gone].concat();
    let says = "the ClusterQueue cq is being deleted since 2026-";
    ends(&world, Code::ClusterQueueTerminating, says, &other_queue());
}

#[test]
pub fn a_job_whose_flavor_goes_starts_with_another() {
    let other = FLAVOR.replace("{name: default}", "{name: other}");
    let gone = deleted("ResourceFlavor", None, "default");
    let world = [FLAVOR, &other, CLUSTER_QUEUE, LOCAL_QUEUE, &first(), &later(JOB, ""), &gone].concat();
    let quota = |flavor: &str| json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": 10}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [quota("other"), quota("default")]}]);
    let change = Act::Change(
        "name another flavor in the ClusterQueue",
        ("ClusterQueue", "", "cq"),
        json!({"spec": {"resourceGroups": groups}}),
    );
    let says = "the ResourceFlavor default is being deleted since 2026-";
    ends(&world, Code::FlavorTerminating, says, &change);
}

#[test]
pub fn a_job_whose_cohort_goes_starts_in_another() {
    let cohort = |name: &str, quota: i64| {
        format!(
            "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {{name: {name}}}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{{name: default, resources: [{{name: cpu, nominalQuota: {quota}}}]}}]
---
"
        )
    };
    let queue = CLUSTER_QUEUE.replace("spec:\n", "spec:\n  cohortName: small\n");
    let (small, large) = (with_finalizer(&cohort("small", 1), "small"), cohort("large", 10));
    let gone = deleted("Cohort", None, "small");
    let world = [FLAVOR, &small, &large, &queue, LOCAL_QUEUE, &first(), &later(JOB, ""), &gone].concat();
    let change = Act::Change(
        "name another Cohort, or create it again",
        ("ClusterQueue", "", "cq"),
        json!({"spec": {"cohortName": "large"}}),
    );
    ends(&world, Code::CohortTerminating, "the Cohort small is being deleted since 2026-", &change);
}
