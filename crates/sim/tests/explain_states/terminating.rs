//! Queues, flavors and Cohorts that are being deleted: the job starts when it, or its queue, refers to others, as the answer says.

use super::waiting::{finding, first, later, played, scenario, wait};
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

/// The answer about a job that waits, and the cluster when what goes is gone.
fn gone(world: &str, code: Code, (kind, name): (Kind, &str)) -> (Explained, Simulation) {
    let (explained, mut simulation) = played(world, &options(), 20);
    finding(&explained, code);
    if kind == Kind::Cohort {
        simulation.patch(kind.as_str(), None, name, &json!({"metadata": {"finalizers": null}})).unwrap();
    }
    wait(&mut simulation, 120);
    assert!(simulation.object(&ObjectRef::cluster(kind, name)).is_none(), "{}", explained.text());
    assert!(!runs(&simulation), "{}", explained.text());
    (explained, simulation)
}

#[test]
pub fn a_job_in_a_cluster_queue_that_goes_starts_when_the_queue_is_made_again() {
    // The queue goes with the job that runs in it.
    let short = first().replace("\"3600\"", "\"60\"");
    let goes = deleted("ClusterQueue", None, "cq");
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &short, &later(JOB, ""), &goes].concat();
    let (explained, mut simulation) = gone(&world, Code::ClusterQueueTerminating, (Kind::ClusterQueue, "cq"));
    act(&mut simulation, &explained, &Act::Apply(OTHER, CLUSTER_QUEUE));
    assert!(runs(&simulation), "{}", explained.text());
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

fn cohort(name: &str, quota: i64) -> String {
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
}

/// A job that waits, in the queue of a Cohort that goes and is too small for it.
fn in_a_small_cohort() -> String {
    let queue = CLUSTER_QUEUE.replace("spec:\n", "spec:\n  cohortName: small\n");
    let small = with_finalizer(&cohort("small", 1), "small");
    let goes = deleted("Cohort", None, "small");
    [FLAVOR, &small, &queue, LOCAL_QUEUE, &first(), &later(JOB, ""), &goes].concat()
}

const OTHER_COHORT: &str = "name another Cohort, or create it again once it is gone";

#[test]
pub fn a_job_whose_cohort_goes_starts_when_that_is_made_again() {
    let (explained, mut simulation) =
        gone(&in_a_small_cohort(), Code::CohortTerminating, (Kind::Cohort, "small"));
    carried_out(&explained, OTHER_COHORT);
    simulation.apply(&read(&cohort("small", 10)).objects[0]).unwrap();
    wait(&mut simulation, 120);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_job_whose_cohort_goes_starts_in_another() {
    let world = [in_a_small_cohort(), cohort("large", 10)].concat();
    let change =
        Act::Change(OTHER_COHORT, ("ClusterQueue", "", "cq"), json!({"spec": {"cohortName": "large"}}));
    ends(&world, Code::CohortTerminating, "the Cohort small is being deleted since 2026-", &change);
}
