//! What events of pods with a place in the topology cost (docs/reference/06-algorithm.md 6.13 and 6.14): nothing that grows with their namespace, or
//! with the nodes of other pods.

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::JobView;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::contract::submit;
use crate::elastic_topology::{make, pod_ref, scale, started};
use crate::model::Cluster;
use crate::model::build::job;
use crate::topology::{THREE, add_node, bed, in_rack, names_of, run_pods, runs, taint};
use crate::topology_pods::{add, placed, seats};

const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";

/// Adds a pod that no job made, and that names a slice, as any user can.
fn add_stranger(c: &mut Cluster, name: &str, slice: &str) -> ObjectRef {
    let owner =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c", "controller": true});
    let metadata = json!({
        "namespace": "team-a", "name": name, "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {"kueue.x-k8s.io/workload-slice-name": slice, UNCONSTRAINED: "true"},
        "ownerReferences": [owner],
    });
    let pod = json!({"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Pending"}});
    c.api.put(Kind::JobPod, pod)
}

/// Something about a pod changes that nothing depends on.
fn touch(c: &mut Cluster, pod: &ObjectRef, seen: &str) {
    c.api.edit(pod, &json!({"metadata": {"labels": {"seen": seen}}}));
    c.settle();
}

fn visited(c: &Cluster) -> u64 {
    c.engine.work().followed_workloads
}

#[test]
fn pods_of_unknown_slices_visit_no_workload_of_their_namespace() {
    let mut c = bed(&THREE);
    c.checked = false;
    for at in 0..200 {
        c.api.add_job(job("team-a", &format!("w{at:03}"), "lq", 1, "1"));
    }
    c.settle();
    assert_eq!(c.api.workloads().len(), 200);
    for at in 0..50 {
        add_stranger(&mut c, &format!("p{at:02}"), &format!("x{at:02}"));
    }
    c.settle();
    assert_eq!(visited(&c), 50, "each name once");
}

#[test]
fn slices_that_are_over_are_not_visited() {
    let mut c = started(true);
    make(&mut c, 1);
    for pods in 2..=5 {
        scale(&mut c, pods);
        make(&mut c, pods);
    }
    assert_eq!(c.api.workloads_of(&c.api.job("a").view.job.uid).len(), 5);
    let before = visited(&c);
    touch(&mut c, &pod_ref(Kind::JobPod, 0), "1");
    assert_eq!(visited(&c) - before, 2, "the name of the first slice, and the slice that runs");
}

#[test]
fn more_than_a_hundred_pods_of_an_unknown_slice_are_looked_at_once_a_second() {
    let mut c = bed(&THREE);
    let pods: Vec<_> = (0..=100).map(|at| add_stranger(&mut c, &format!("p{at:03}"), "x")).collect();
    c.settle();
    c.advance(2);
    let before = visited(&c);
    for seen in ["1", "2", "3", "4"] {
        touch(&mut c, &pods[7], seen);
    }
    assert_eq!(visited(&c) - before, 1);
    c.advance(1);
    assert_eq!(visited(&c) - before, 2, "what has changed since is looked at a second later");
    c.advance(5);
    assert_eq!(visited(&c) - before, 2);
}

#[test]
fn pods_of_many_names_are_looked_at_in_several_cycles_that_follow_each_other() {
    let mut c = bed(&THREE);
    c.checked = false;
    let mut rest = 1_500;
    for at in 0..rest {
        add_stranger(&mut c, &format!("p{at:04}"), &format!("x{at:04}"));
    }
    c.restart();
    while rest > 0 {
        let before = visited(&c);
        c.engine.cycle(c.now);
        let looked_at = visited(&c) - before;
        assert!((1..=1_000).contains(&looked_at), "{looked_at} in a cycle");
        rest -= looked_at;
        assert!(rest == 0 || c.engine.has_work(), "{rest} are left");
    }
    c.settle();
    assert_eq!(visited(&c), 1_500, "none twice");
}

fn taints(keys: &[&str]) -> Value {
    keys.iter().map(|key| json!({"key": key, "value": "present", "effect": "NoSchedule"})).collect()
}

/// One rack; the pods tolerate the taint of its nodes.
fn for_gpus(view: &mut JobView) {
    in_rack(view);
    let tolerations = serde_json::from_value(json!([{"key": "gpu", "operator": "Exists"}])).unwrap();
    let template = Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
    template.spec.as_mut().unwrap().tolerations = Some(tolerations);
}

#[test]
fn a_pod_on_a_tainted_node_asks_about_no_other_node_unless_the_node_is_not_well_for_its_workload() {
    let mut c = bed(&[]);
    for at in 0..50 {
        let node = add_node(&mut c, &format!("n{at:02}"), "r1", "1500m");
        c.api.edit(&node, &json!({"spec": {"taints": taints(&["gpu"])}}));
    }
    submit(&mut c, "a", "lq", 50, for_gpus);
    let mut other = job("team-a", "b", "lq", 50, "500m");
    for_gpus(&mut other);
    c.api.add_job(other);
    c.settle();
    c.advance(1);
    assert_eq!((names_of(&c, "a").len(), names_of(&c, "b").len()), (50, 50));
    let pods = run_pods(&mut c, "a");
    run_pods(&mut c, "b");
    c.advance(2);
    let mut cost = |seen: &str, keys: &[&str]| {
        taint(&mut c, "n07", &taints(keys));
        let before = c.engine.work();
        touch(&mut c, &pods["n07"], seen);
        let after = c.engine.work();
        (after.workloads - before.workloads, after.asked_hosts - before.asked_hosts)
    };
    assert_eq!(cost("1", &["gpu"]), (0, 0));
    assert_eq!(cost("2", &["gpu", "other"]).1, 50, "those of its own Workload");
    assert_eq!(cost("3", &["gpu"]), (0, 0));
    assert!(runs(&c, "a") && runs(&c, "b"));
}

/// The API server has just started, and does not know the roles yet.
#[test]
fn a_look_before_a_pod_is_placed_is_repeated_with_growing_delays_while_it_is_refused() {
    let mut c = placed(1, &[("n1", 1)]);
    c.restart();
    c.refuse = Some((Purpose::Read, WriteError::Refused("no".to_owned())));
    add(&mut c, "p1", None);
    c.settle();
    assert_eq!(c.refused, 1);
    c.advance(10);
    assert!((2..=5).contains(&c.refused), "{}", c.refused);
    c.refuse = None;
    c.advance(20);
    assert_eq!(seats(&c), ["p1 n1"]);
}
