//! Elastic jobs with topology-assigned nodes (docs/reference/06-algorithm.md 6.12 and 6.26, feature gate `ElasticJobsViaWorkloadSlicesWithTAS`).

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::{Value, json};
use sluice_api::conversion::topology::decode;
use sluice_api::gates::Gate;
use sluice_api::v1beta2::Workload;
use sluice_engine::{Kind, ObjectRef};

use crate::contract::submit;
use crate::model::{Cluster, condition};
use crate::topology::{HOSTNAME, bed_with, gates};

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
pub const PLACE: &str = "kueue.x-k8s.io/topology";

/// Nodes of one rack with room for one pod, two, and four.
const NODES: [(&str, &str, &str); 3] = [("n1", "r1", "1"), ("n2", "r1", "2"), ("n4", "r1", "4")];

/// An elastic job of one pod, which has the smallest node.
fn running(on: bool) -> Cluster {
    let mut c = started(on);
    make(&mut c, 1);
    run(&mut c);
    c
}

pub fn pod_ref(kind: Kind, at: i32) -> ObjectRef {
    ObjectRef::namespaced(kind, "team-a", format!("a-{at}"))
}

/// The same that has no pods yet.
pub fn started(on: bool) -> Cluster {
    let config = gates(&[(Gate::ElasticJobsViaWorkloadSlicesWithTAS, on)]);
    let mut c = bed_with(config, &NODES, &json!({}));
    submit(&mut c, "a", "lq", 1, |view| {
        view.annotations.insert(ELASTIC.to_owned(), "true".to_owned());
        view.pod_sets[0].scheduling.scheduling_gates.push(PodSchedulingGate { name: ELASTIC.to_owned() });
    });
    assert!(!c.api.job("a").view.suspended, "it runs");
    c
}

/// The job's controller makes its pods of the template, all of them behind their gates.
pub fn make(c: &mut Cluster, count: i32) {
    let job = c.api.job("a").view.clone();
    let set = &job.pod_sets[0].scheduling;
    for at in 0..count {
        let reference = pod_ref(Kind::JobPod, at);
        if c.api.json(&reference).is_some() {
            continue;
        }
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": job.job.uid, "controller": true});
        let metadata = json!({"namespace": "team-a", "name": &*reference.name, "labels": set.labels,
            "annotations": set.annotations, "ownerReferences": [owner]});
        let container = json!({"name": "c", "resources": {"requests": {"cpu": "1"}}});
        let spec = json!({"schedulingGates": set.scheduling_gates, "nodeSelector": set.node_selector,
            "containers": [container]});
        c.api.put(Kind::JobPod, json!({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}));
    }
    c.settle();
    c.advance(1);
}

/// What a pod waits for, or its node.
fn seat(pod: &Value) -> &str {
    let gates = pod["spec"]["schedulingGates"].to_string();
    match (gates.contains(ELASTIC), gates.contains(PLACE)) {
        (true, _) => "waits for quota",
        (false, true) => "waits for a place",
        (false, false) => pod["spec"]["nodeSelector"][HOSTNAME].as_str().unwrap_or("anywhere"),
    }
}

/// Where each pod is, in the order of their names.
fn seats(c: &Cluster) -> Vec<&str> {
    c.api.names(Kind::JobPod).iter().map(|pod| seat(c.api.json(pod).unwrap())).collect()
}

/// The pods that nothing holds back get the nodes that they ask for.
fn run(c: &mut Cluster) {
    for reference in c.api.names(Kind::JobPod) {
        let pod = c.api.json(&reference).unwrap().clone();
        let node = seat(&pod);
        if node.starts_with("waits") || !pod["spec"]["nodeName"].is_null() {
            continue;
        }
        let bound = json!({"spec": {"nodeName": node}, "status": {"phase": "Running"}});
        c.api.edit(&reference, &bound);
        let pod = c.api.json(&reference).unwrap().clone();
        c.api.put(Kind::Pod, pod);
    }
    c.settle();
}

/// The job's controller deletes a pod.
fn remove(c: &mut Cluster, at: i32) {
    for kind in [Kind::JobPod, Kind::Pod] {
        c.api.delete(&pod_ref(kind, at));
    }
    c.settle();
    c.advance(1);
}

/// The user asks for `count` pods.
pub fn scale(c: &mut Cluster, count: i32) {
    c.api.edit_job("a", |job| {
        job.view.pod_sets[0].count = count;
        job.view.generation += 1;
    });
    c.settle();
    c.advance(1);
}

/// The nodes of the slice that runs, with their pods.
fn nodes(c: &Cluster) -> Vec<(String, i32)> {
    let over = |w: &Workload| condition(w, "Finished") == "True";
    let mut of = c.api.workloads_of(&c.api.job("a").view.job.uid);
    of.retain(|w| !over(w) && condition(w, "Admitted") == "True");
    let [slice] = &of[..] else { unreachable!("{of:?}") };
    let status = slice.status.clone().unwrap();
    let assignment = status.admission.unwrap().pod_set_assignments[0].topology_assignment.clone().unwrap();
    let domains = decode(&assignment).unwrap().domains;
    domains.into_iter().map(|row| (row.values.join("/"), row.count)).collect()
}

fn on(nodes: &[(&str, i32)]) -> Vec<(String, i32)> {
    nodes.iter().map(|(name, pods)| ((*name).to_owned(), *pods)).collect()
}

#[test]
fn a_job_that_grows_keeps_its_nodes_and_its_new_pods_get_others() {
    let mut c = running(true);
    assert_eq!((nodes(&c), seats(&c)), (on(&[("n1", 1)]), vec!["n1"]));
    make(&mut c, 3);
    assert_eq!(seats(&c)[1..], ["waits for quota"; 2]);
    scale(&mut c, 3);
    assert_eq!(nodes(&c), on(&[("n1", 1), ("n2", 2)]));
    assert_eq!(seats(&c), ["n1", "n2", "n2"]);
    run(&mut c);
    // Again, and after another manager has begun.
    c.restart();
    c.settle();
    scale(&mut c, 5);
    make(&mut c, 5);
    assert_eq!(nodes(&c), on(&[("n1", 1), ("n2", 2), ("n4", 2)]));
    assert_eq!(seats(&c), ["n1", "n2", "n2", "n4", "n4"]);
    run(&mut c);
    assert!(c.notes("Stopped").is_empty() && !c.api.job("a").view.suspended);
    // Its nodes are its own: two places are left.
    submit(&mut c, "b", "lq", 3, crate::topology::in_rack);
    assert!(c.api.job("b").view.suspended);
    submit(&mut c, "d", "lq", 2, crate::topology::in_rack);
    assert!(!c.api.job("d").view.suspended);
}

#[test]
fn a_job_that_finds_no_nodes_for_more_pods_runs_on_with_those_that_it_has() {
    let mut c = running(true);
    scale(&mut c, 3);
    make(&mut c, 3);
    run(&mut c);
    scale(&mut c, 9);
    make(&mut c, 9);
    assert_eq!(nodes(&c), on(&[("n1", 1), ("n2", 2)]));
    assert_eq!(seats(&c)[..3], ["n1", "n2", "n2"]);
    assert_eq!(seats(&c)[3..], ["waits for quota"; 6]);
    assert!(c.notes("Stopped").is_empty());
    crate::topology::add_node(&mut c, "n5", "r1", "2");
    c.settle();
    c.advance(1);
    let seats = seats(&c);
    assert_eq!(nodes(&c).iter().map(|(_, pods)| pods).sum::<i32>(), 9);
    assert_eq!(seats[..3], ["n1", "n2", "n2"]);
    assert!(seats.iter().all(|seat| seat.starts_with('n')), "{seats:?}");
}

#[test]
fn a_job_that_shrinks_gives_its_last_nodes_up() {
    let mut c = running(true);
    scale(&mut c, 5);
    make(&mut c, 5);
    run(&mut c);
    assert_eq!(nodes(&c), on(&[("n1", 1), ("n4", 4)]));
    scale(&mut c, 2);
    assert_eq!(seats(&c), ["n1", "n4", "n4", "n4", "n4"], "its controller has deleted none yet");
    for at in [4, 3, 2] {
        remove(&mut c, at);
    }
    // What it no longer asks for is there for others.
    submit(&mut c, "b", "lq", 5, crate::topology::in_rack);
    assert!(!c.api.job("b").view.suspended, "{:?}", nodes(&c));
    // It grows again from there.
    c.api.finish_job("b", true);
    c.settle();
    scale(&mut c, 3);
    make(&mut c, 3);
    let seats = seats(&c);
    assert_eq!(seats.len(), 3);
    assert!(seats.iter().all(|seat| seat.starts_with('n')), "{seats:?}");
    assert_eq!(nodes(&c).iter().map(|(_, pods)| pods).sum::<i32>(), 3);
    assert!(c.notes("Stopped").is_empty());
}

/// Without the gate a larger slice is placed as any other Workload: what runs stays where it is.
#[test]
fn without_the_gate_no_pod_is_lost_and_none_gets_out_of_its_place() {
    let mut c = running(false);
    scale(&mut c, 3);
    make(&mut c, 3);
    let seats = seats(&c);
    assert_eq!(seats[0], "n1");
    assert!(seats.iter().all(|seat| seat.starts_with('n')), "{seats:?} of {:?}", nodes(&c));
    assert!(c.notes("Stopped").is_empty() && !c.api.job("a").view.suspended);
}
