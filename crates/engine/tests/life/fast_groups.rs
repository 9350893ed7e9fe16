//! Groups of pods that are admitted with their first pod, before the others exist.

use serde_json::{Value, json};

use crate::model::pods::member;
use crate::model::{Cluster, condition, reported};
use crate::plain_pods::{add_high, bed};
use crate::pod_groups::{free, run};

fn fast(name: &str, role: &str) -> Value {
    let mut pod = member(name, "g", 3, role);
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = json!("true");
    pod
}

fn add(c: &mut Cluster, name: &str, role: &str) {
    c.api.add_pod(fast(name, role));
    c.settle();
}

/// A pod that matters more takes the place of the group.
fn preempt(c: &mut Cluster) {
    add_high(c, "3");
    assert!(c.api.is_free("high"));
}

fn says(c: &Cluster, type_: &str) -> String {
    let all = c.api.workloads();
    let own = all.iter().find(|workload| workload.metadata.name.as_deref() == Some("g")).unwrap();
    reported(own, type_)
}

#[test]
fn it_returns_with_its_first_pod_after_an_eviction() {
    for pods in [1, 3] {
        let mut c = bed("3");
        for name in ["a", "b", "c"].into_iter().take(pods) {
            add(&mut c, name, "main");
        }
        run(&mut c, "Running");
        preempt(&mut c);
        assert!(says(&c, "WaitingForReplacementPods").starts_with("True/Preempted"), "{pods}");
        add(&mut c, "a2", "main");
        assert!(says(&c, "WaitingForReplacementPods").starts_with("False/"), "{pods}");
        c.api.run_pod("high", "Succeeded");
        c.settle();
        assert_eq!(free(&c), ["a2"], "{pods}: the others are made once it runs");
        for name in ["b2", "c2"] {
            add(&mut c, name, "main");
        }
        assert_eq!(free(&c), ["a2", "b2", "c2"], "{pods}");
    }
}

#[test]
fn a_pod_that_fails_is_missed_only_if_no_other_runs() {
    let mut c = bed("3");
    add(&mut c, "a", "main");
    add(&mut c, "b", "main");
    run(&mut c, "Running");
    c.api.run_pod("a", "Failed");
    c.settle();
    assert_eq!(says(&c, "WaitingForReplacementPods"), "");
    c.api.run_pod("b", "Failed");
    c.settle();
    let missed = "True/PodsFailed: Some Failed pods need replacement";
    assert_eq!(says(&c, "WaitingForReplacementPods"), missed);
}

/// All are taken to be like the first: those that are not wait.
#[test]
fn a_pod_of_another_shape_waits_and_an_event_says_so() {
    let mut c = bed("3");
    add(&mut c, "driver", "driver");
    run(&mut c, "Running");
    add(&mut c, "executor", "executor");
    assert_eq!(free(&c), ["driver"]);
    let note = "Pod/driver: The pod \"executor\" waits: the Workload of the group has no pods of its shape (role \"executor\")";
    assert_eq!(c.notes("ErrWorkloadCompose"), [note]);
    c.advance(600);
    assert_eq!(c.notes("ErrWorkloadCompose").len(), 1);
    let all = c.api.workloads();
    assert_eq!(condition(&all[0], "Admitted"), "True");
}
