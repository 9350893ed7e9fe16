//! Groups of pods (docs/reference/07-integrations.md 7.3).

use serde_json::json;
use sluice_api::gates::Gate;
use sluice_api::v1beta2::Workload;
use sluice_engine::{Kind, ObjectRef, Purpose};

use crate::model::pods::{member, pod};
use crate::model::{Api, Cluster, condition, reported};
use crate::plain_pods::{add_high, announced, bed};

/// Adds pods `<prefix>0`, `<prefix>1`, … of the group `g` of `total`.
pub fn add(c: &mut Cluster, prefix: &str, pods: usize, total: usize) {
    for at in 0..pods {
        c.api.add_pod(member(&format!("{prefix}{at}"), "g", total, "main"));
    }
    c.settle();
}

/// The only Workload.
pub fn workload(c: &Cluster) -> Workload {
    let all = c.api.workloads();
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

fn owners(c: &Cluster) -> Vec<String> {
    let workload = workload(c);
    workload.metadata.owner_references.into_iter().flatten().map(|owner| owner.name).collect()
}

/// The pods that run, or may at any time.
pub fn free(c: &Cluster) -> Vec<String> {
    c.api.pods().into_iter().filter(|name| c.api.is_free(name)).collect()
}

/// These are in this phase now.
pub fn run(c: &mut Cluster, phase: &str) {
    for name in free(c) {
        c.api.run_pod(&name, phase);
    }
    c.settle();
}

/// A group of this many pods, which run and take all quota.
pub fn running(pods: usize) -> Cluster {
    let mut c = bed(&pods.to_string());
    add(&mut c, "p", pods, pods);
    run(&mut c, "Running");
    c
}

#[test]
fn a_group_waits_for_its_last_pod_runs_as_a_whole_and_finishes() {
    let mut c = bed("3");
    add(&mut c, "p", 2, 3);
    assert!(c.api.workloads().is_empty());
    assert_eq!(c.notes("ErrWorkloadCompose"), ["Pod/p0: 'g' group has fewer runnable pods than expected"]);
    c.api.add_pod(member("q", "g", 3, "driver"));
    c.settle();
    let made = workload(&c);
    assert_eq!(made.metadata.name.as_deref(), Some("g"));
    assert_eq!(made.metadata.annotations.as_ref().unwrap()["kueue.x-k8s.io/is-group-workload"], "true");
    let sets: Vec<_> = made.spec.pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
    assert_eq!(sets, [("driver", 1), ("main", 2)]);
    assert_eq!(owners(&c), ["p0", "p1", "q"]);
    assert!(made.metadata.owner_references.iter().flatten().all(|owner| owner.controller.is_none()));
    assert_eq!(free(&c), ["p0", "p1", "q"]);
    run(&mut c, "Running");
    c.api.run_pod("p0", "Succeeded");
    c.settle();
    let reclaimed = workload(&c).status.unwrap().reclaimable_pods;
    assert_eq!(reclaimed.iter().map(|r| (&*r.name, r.count)).collect::<Vec<_>>(), [("main", 1)]);
    assert_eq!(c.api.pod("p0").unwrap()["metadata"]["finalizers"].as_array().unwrap().len(), 1);
    c.api.run_pod("p1", "Succeeded");
    c.api.run_pod("q", "Succeeded");
    c.settle();
    assert!(reported(&workload(&c), "Finished").starts_with("True/Succeeded: Pods succeeded: 3/3."));
    for name in ["p0", "p1", "q"] {
        assert_eq!(c.api.pod(name).unwrap()["metadata"]["finalizers"], json!([]), "{name}");
    }
}

#[test]
fn a_pod_that_failed_is_replaced() {
    let mut c = running(2);
    c.api.run_pod("p0", "Failed");
    c.settle();
    let waiting = "True/PodsFailed: Some Failed pods need replacement";
    assert_eq!(reported(&workload(&c), "WaitingForReplacementPods"), waiting);
    assert_eq!(c.api.pod("p0").unwrap()["metadata"]["finalizers"].as_array().unwrap().len(), 1);
    add(&mut c, "r", 1, 2);
    assert!(c.api.is_free("r0"));
    assert_eq!(owners(&c), ["p0", "p1", "r0"]);
    assert_eq!(c.api.pod("p0").unwrap()["metadata"]["finalizers"], json!([]));
    assert_eq!(
        reported(&workload(&c), "WaitingForReplacementPods"),
        "False/PodsReady: No pods need replacement"
    );
    run(&mut c, "Succeeded");
    assert_eq!(condition(&workload(&c), "Finished"), "True");
}

#[test]
fn a_group_that_is_preempted_returns_once_its_pods_were_made_again() {
    let mut c = running(2);
    c.pods_vanish = false;
    add_high(&mut c, "2");
    assert!(announced(&c, "p1").starts_with("WorkloadEvictedDueToPreempted: "));
    assert!(c.api.is_gated("high"));
    c.pods_vanish = true;
    c.settle();
    assert!(c.api.is_free("high"));
    let group = |c: &Cluster| {
        c.api.workloads().into_iter().find(|w| w.metadata.name.as_deref() == Some("g")).unwrap()
    };
    assert_eq!(condition(&group(&c), "QuotaReserved"), "False");
    assert!(reported(&group(&c), "WaitingForReplacementPods").starts_with("True/Preempted"));
    // Its pods stay until others take their place.
    assert_eq!(c.api.pods(), ["high", "p0", "p1"]);
    add(&mut c, "r", 2, 2);
    assert_eq!(c.api.pods(), ["high", "r0", "r1"]);
    assert!(c.api.is_gated("r0") && c.api.is_gated("r1"));
    c.api.run_pod("high", "Succeeded");
    c.settle();
    assert_eq!(free(&c), ["r0", "r1"]);
    assert_eq!(owners_of(&group(&c)), ["p0", "p1", "r0", "r1"]);
}

#[test]
fn the_quota_of_pods_that_terminate_is_free_at_once_only_with_the_gate() {
    for fast in [false, true] {
        let mut c = bed("2");
        c.config.gates = c.config.gates.with(Gate::FastQuotaReleaseInPodIntegration, fast);
        c.restart();
        add(&mut c, "p", 2, 2);
        run(&mut c, "Running");
        c.pods_vanish = false;
        add_high(&mut c, "2");
        assert_eq!(c.api.is_free("high"), fast);
        let runs = |name: &str| c.api.pod(name).unwrap()["status"]["phase"] == "Running";
        assert!(runs("p0") && runs("p1"), "they have 30 seconds to end");
        c.advance(29);
        assert_eq!(c.api.is_free("high"), fast);
        c.advance(2);
        assert!(c.api.is_free("high"), "their grace is over");
    }
}

fn owners_of(workload: &Workload) -> Vec<&str> {
    workload.metadata.owner_references.iter().flatten().map(|owner| &*owner.name).collect()
}

#[test]
fn pods_beyond_the_number_of_the_group_are_removed() {
    let mut c = bed("2");
    // All at once: the last ones are too many before there is a Workload.
    for at in 0..4 {
        c.now = c.now.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
        c.api.now = c.now;
        c.api.add_pod(member(&format!("p{at}"), "g", 2, "main"));
    }
    c.settle();
    assert_eq!(c.api.pods(), ["p0", "p1"]);
    assert_eq!(c.notes("ExcessPodDeleted"), ["p2", "p3"].map(|pod| format!("Pod/{pod}: Excess pod deleted")));
    run(&mut c, "Running");
    add(&mut c, "q", 1, 2);
    assert_eq!(c.api.pods(), ["p0", "p1"]);
    assert_eq!(c.notes("ExcessPodDeleted").len(), 3);
    // Also where it is seen that the pod is gone before the answer comes.
    c.late = Some(Purpose::RemovePod);
    add(&mut c, "r", 1, 2);
    assert_eq!((c.api.pods().len(), c.notes("ExcessPodDeleted").len()), (2, 3));
    c.release();
    assert_eq!(c.notes("ExcessPodDeleted").len(), 4);
    assert!(free(&c).len() == 2 && condition(&workload(&c), "Admitted") == "True");
}

#[test]
fn a_group_whose_pods_are_all_deleted_is_gone() {
    for runs in [false, true] {
        let mut c = bed(if runs { "2" } else { "0" });
        add(&mut c, "p", 2, 2);
        if runs {
            run(&mut c, "Running");
        }
        c.api.delete_queued_pod("p0");
        c.settle();
        assert_eq!(c.api.pods().len(), 2, "the other one may wait for a third");
        c.api.delete_queued_pod("p1");
        c.settle();
        assert!(c.api.pods().is_empty() && c.api.workloads().is_empty(), "{runs}");
    }
}

#[test]
fn a_group_whose_workload_is_deleted_is_deleted_with_it() {
    for runs in [false, true] {
        let mut c = bed(if runs { "2" } else { "0" });
        add(&mut c, "p", 2, 2);
        if runs {
            run(&mut c, "Running");
        }
        c.pods_vanish = false;
        c.api.delete(&Api::workload_ref(&workload(&c)));
        c.settle();
        if runs {
            assert_eq!(announced(&c, "p0"), "WorkloadDeleted: Workload is deleted");
            assert_eq!(condition(&workload(&c), "QuotaReserved"), "True", "its pods are there");
        }
        c.pods_vanish = true;
        c.settle();
        assert!(c.api.workloads().is_empty() && c.api.pods().is_empty(), "{runs}: {:?}", c.api.pods());
    }
}

#[test]
fn a_pod_of_a_group_that_runs_before_its_time_is_stopped() {
    let mut c = bed("0");
    add(&mut c, "p", 2, 2);
    c.api.free("p0");
    c.settle();
    assert!(c.api.pod("p0").is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string()));
    assert!(c.api.is_gated("p1"), "a pod that waits is left to be admitted");
    // One of a role that was not admitted is none of those that may run.
    let mut c = running(2);
    c.api.add_pod(member("odd", "g", 2, "other"));
    c.settle();
    assert!(c.api.is_gated("odd"));
    c.api.free("odd");
    c.settle();
    assert_eq!(free(&c), ["p0", "p1"]);
}

#[test]
fn a_group_that_does_not_wait_for_its_pods_is_admitted_with_the_first() {
    let mut c = bed("3");
    let fast = |name: &str| {
        let mut pod = member(name, "g", 3, "main");
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = json!("true");
        pod
    };
    c.api.add_pod(fast("a"));
    c.settle();
    assert_eq!(workload(&c).spec.pod_sets[0].count, 3);
    assert_eq!(free(&c), ["a"]);
    assert_eq!(condition(&workload(&c), "WaitingForReplacementPods"), "");
    for name in ["b", "c"] {
        c.api.add_pod(fast(name));
        c.settle();
    }
    assert_eq!(free(&c), ["a", "b", "c"]);
    assert_eq!(owners(&c), ["a", "b", "c"]);
}

#[test]
fn a_group_that_serves_never_ends_and_one_without_retries_ends_with_its_last_pod() {
    let mut c = bed("4");
    for (group, key, value) in [("s", "pod-group-serving", "true"), ("u", "retriable-in-group", "false")] {
        for at in 0..2 {
            let mut pod = member(&format!("{group}{at}"), group, 2, "main");
            pod["metadata"]["annotations"][format!("kueue.x-k8s.io/{key}")] = json!(value);
            c.api.add_pod(pod);
        }
    }
    c.settle();
    run(&mut c, "Running");
    for name in ["s0", "s1", "u0"] {
        c.api.run_pod(name, "Succeeded");
    }
    c.api.run_pod("u1", "Failed");
    c.settle();
    let of = |name: &str| {
        c.api.workloads().into_iter().find(|w| w.metadata.name.as_deref() == Some(name)).unwrap()
    };
    assert_eq!(condition(&of("s"), "Finished"), "");
    assert!(of("s").status.unwrap().reclaimable_pods.is_empty());
    assert_eq!(reported(&of("u"), "Finished"), "True/Succeeded: Pods succeeded: 1/2.");
}

#[test]
fn a_group_does_not_take_a_workload_that_only_has_its_name() {
    let mut c = bed("2");
    let pod_set = json!({"name": "main", "count": 1, "template": {"spec": {"containers": []}}});
    let metadata = json!({"namespace": "team-a", "name": "g"});
    c.api.put(
        Kind::Workload,
        json!({"metadata": metadata, "spec": {"queueName": "lq", "active": true, "podSets": [pod_set]}}),
    );
    add(&mut c, "p", 2, 2);
    assert!(free(&c).is_empty());
    let event = c.events.iter().find(|event| event.reason == "WorkloadNameConflict").unwrap();
    assert_eq!((&*event.action, &*event.object.name), ("Admission", "p0"));
    c.api.delete(&Api::workload_ref(&workload(&c)));
    c.settle();
    assert_eq!(free(&c), ["p0", "p1"]);
}

#[test]
fn after_a_restart_at_any_write_a_group_continues_where_it_was() {
    for writes in 0..30 {
        let mut c = bed("2");
        c.writes_left = Some(writes);
        for at in 0..3 {
            c.api.add_pod(member(&format!("p{at}"), "g", 2, "main"));
        }
        c.settle();
        c.writes_left = None;
        c.restart();
        c.settle();
        c.advance(1);
        assert_eq!(free(&c), ["p0", "p1"], "after {writes} writes");
        let left = Some(writes);
        run(&mut c, "Running");
        c.writes_left = left;
        c.api.delete(&Api::workload_ref(&workload(&c)));
        c.settle();
        c.writes_left = None;
        c.restart();
        c.settle();
        assert!(
            c.api.pods().is_empty() && c.api.workloads().is_empty(),
            "after {writes} writes: {:?}",
            c.api.pods()
        );
    }
}

/// Adds a pod of the role `main` of the group `g` of two that asks for `cpu` processors.
fn add_sized(c: &mut Cluster, name: &str, cpu: &str) {
    let mut pod = member(name, "g", 2, "main");
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    c.api.add_pod(pod);
    c.settle();
}

#[test]
fn a_pod_that_asks_for_more_than_its_role_waits() {
    let mut c = bed("9");
    add_sized(&mut c, "p0", "1");
    add_sized(&mut c, "p1", "3");
    assert_eq!(free(&c), ["p0"]);
    let reported =
        "Pod/p0: The pod \"p1\" waits: it requests more than its role in the Workload has quota for";
    assert_eq!(c.notes("ErrWorkloadCompose").last().map(String::as_str), Some(reported));
    c.restart();
    c.settle();
    assert_eq!(free(&c), ["p0"]);
    c.api.delete_queued_pod("p1");
    c.settle();
    add_sized(&mut c, "r", "1000m");
    assert_eq!(free(&c), ["p0", "r"]);
}

/// It keeps the place in its group, and the quota of one pod of its role with it, until it or the group goes.
#[test]
fn a_pod_that_asks_for_more_than_its_role_holds_the_quota_of_its_place() {
    let mut c = bed("2");
    add_sized(&mut c, "p0", "1");
    add_sized(&mut c, "p1", "3");
    c.api.run_pod("p0", "Succeeded");
    c.settle();
    c.api.add_pod(pod("one", "lq", "1"));
    c.api.add_pod(pod("two", "lq", "1"));
    c.advance(3_600);
    assert_eq!(free(&c).len(), 1, "one cpu is free again: {:?}", free(&c));
    c.api.edit(&ObjectRef::namespaced(Kind::Workload, "team-a", "g"), &json!({"spec": {"active": false}}));
    c.advance(60);
    assert_eq!(free(&c), ["one", "two"]);
}

#[test]
fn a_pod_that_asks_for_less_than_its_role_runs() {
    let mut c = bed("9");
    add_sized(&mut c, "p0", "3");
    add_sized(&mut c, "p1", "1");
    assert_eq!(free(&c), ["p0", "p1"]);
    let usage = workload(&c).status.unwrap().admission.unwrap().pod_set_assignments[0].resource_usage.clone();
    assert_eq!(usage["cpu"].0, "6");
}

#[test]
fn a_replacement_asks_for_no_more_than_the_pod_before() {
    let mut c = bed("9");
    add(&mut c, "p", 2, 2);
    run(&mut c, "Running");
    c.api.run_pod("p0", "Failed");
    c.settle();
    add_sized(&mut c, "large", "2");
    assert!(c.api.is_gated("large"));
}

#[test]
fn a_pod_that_runs_and_asks_for_more_than_its_role_is_stopped() {
    let mut c = bed("9");
    add_sized(&mut c, "p0", "1");
    add_sized(&mut c, "p1", "3");
    c.api.free("p1");
    c.settle();
    assert_eq!(free(&c), ["p0"]);
    // One that was started and grows in its place.
    add_sized(&mut c, "q", "1");
    assert_eq!(free(&c), ["p0", "q"]);
    run(&mut c, "Running");
    let container = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]);
    c.api.edit_pod("p0", &json!({"spec": {"containers": container}}));
    c.settle();
    assert!(!free(&c).contains(&"p0".to_owned()), "{:?}", free(&c));
}

/// The role is what Kueue's webhook writes into such a pod, and what it says is not what the pod asks for.
#[test]
fn a_role_that_another_pod_was_given_is_held_to_what_it_has_quota_for() {
    let sized = |name: &str, cpu: &str, role: &str| {
        let mut pod = member(name, "g", 2, role);
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        pod
    };
    let large = sized("large", "8", "");
    let spec = serde_json::from_value(large["spec"].clone()).unwrap();
    let role = sluice_api::names::role_hash(&spec);
    let mut c = bed("9");
    c.api.add_pod(sized("a-small", "1", &role));
    c.api.add_pod(sized("large", "8", &role));
    c.settle();
    assert_eq!(free(&c), ["a-small"]);
}
