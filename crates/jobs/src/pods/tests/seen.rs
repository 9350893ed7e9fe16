//! Plain pods and groups as the engine's views of jobs.

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobRef};
use sluice_jobs::pods::{Group, of_group, of_pod};

use super::{at, deleted, member, phase, pod, role, with};

const SUSPENDED: &str = "/spec/schedulingGates";

/// The pod `a` outside any group.
fn alone(changes: &[(&str, Value)]) -> Value {
    let single = [
        ("/metadata/labels/kueue.x-k8s.io~1pod-group-name", json!("")),
        ("/metadata/labels/kueue.x-k8s.io~1priority-class", json!("high")),
        ("/metadata/labels/kueue.x-k8s.io~1max-exec-time-seconds", json!("60")),
        ("/metadata/annotations/provreq.kueue.x-k8s.io~1ValidUntilSeconds", json!("0")),
        ("/metadata/annotations/example.com~1x", json!("y")),
        ("/spec/priorityClassName", json!("system")),
    ];
    with(with(pod("a"), &single), changes)
}

fn group_job() -> JobRef {
    let (namespace, name) = ("team-a".into(), "group/g".into());
    JobRef { kind: JobKind::POD, namespace, name, group: None, uid: "group/team-a/g".into() }
}

#[test]
fn a_pod_alone_is_a_job_of_one_pod() {
    let view = of_pod(&member(&alone(&[])));
    assert_eq!((&*view.job.name, &*view.job.uid, &*view.resource_version), ("a", "uid-a", "7"));
    assert_eq!(view.queue_name.as_deref(), Some("user-queue"));
    assert_eq!(view.workload_priority_class.as_deref(), Some("high"));
    assert_eq!(view.pod_priority_class.as_deref(), Some("system"));
    assert_eq!(view.maximum_execution_time_seconds, Some(60));
    assert!(view.annotations.contains_key("provreq.kueue.x-k8s.io/ValidUntilSeconds"));
    assert!(!view.annotations.contains_key("example.com/x"));
    let sets: Vec<_> = view.pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
    assert_eq!(sets, [("main", 1)]);
    assert!(view.suspended && !view.deleting && view.finished.is_none() && view.invalid.is_none());
}

#[test]
fn a_pod_alone_runs_ends_and_goes() {
    let free = (SUSPENDED, Value::Null);
    let runs = of_pod(&member(&alone(&[free.clone(), phase("Running")])));
    assert!(!runs.suspended && !runs.pods_ready);
    let ready = json!([{"type": "Ready", "status": "True"}]);
    assert!(of_pod(&member(&alone(&[free.clone(), ("/status/conditions", ready)]))).pods_ready);
    for (end, success) in [("Succeeded", true), ("Failed", false)] {
        let message = ("/status/message", json!("why"));
        let ended = of_pod(&member(&alone(&[free.clone(), phase(end), message])));
        let finished = ended.finished.unwrap();
        assert_eq!((finished.success, &*finished.message, ended.suspended), (success, "why", true));
        assert_eq!(ended.pods_ready, success);
    }
    let leaves = of_pod(&member(&alone(&[free, deleted("2026-01-02T04:00:00Z")])));
    assert!(leaves.deleting && leaves.suspended, "it is stopped already");
    let odd = of_pod(&member(&alone(&[("/spec/containers", json!("none"))])));
    assert!(odd.invalid.is_some() && odd.pod_sets.is_empty());
}

#[test]
fn a_group_is_a_job_of_its_pods() {
    let mut group = Group::new(&[]);
    assert!(of_group(group_job(), &group, Vec::new()).is_none(), "it has no pods");
    let free = (SUSPENDED, Value::Null);
    group.insert(member(&pod("a")));
    group.insert(member(&with(pod("b"), &[role("worker")])));
    let sets = |group: &Group| -> Vec<_> {
        ["driver", "worker"].iter().filter_map(|role| group.pod_set(role).cloned()).collect()
    };
    let view = of_group(group_job(), &group, sets(&group)).unwrap();
    assert_eq!((&*view.job.name, view.pod_sets.len(), view.suspended), ("group/g", 2, true));
    group.insert(member(&with(pod("b"), &[role("worker"), free.clone()])));
    assert!(!of_group(group_job(), &group, sets(&group)).unwrap().suspended, "one of its pods may run");
    group.insert(member(&with(pod("b"), &[role("worker"), free.clone(), phase("Succeeded")])));
    let view = of_group(group_job(), &group, sets(&group)).unwrap();
    assert_eq!((view.suspended, view.reclaimable), (true, vec![("worker".to_owned(), 1)]));
    for name in ["a", "c"] {
        group.insert(member(&with(pod(name), &[free.clone(), phase("Succeeded")])));
    }
    let view = of_group(group_job(), &group, sets(&group)).unwrap();
    assert!(view.pods_ready && view.finished.unwrap().success);
}

#[test]
fn without_the_gate_a_group_that_only_an_annotation_names_is_none() {
    let annotated = with(
        pod("a"),
        &[
            ("/metadata/labels/kueue.x-k8s.io~1pod-group-name", json!("")),
            ("/metadata/annotations/kueue.x-k8s.io~1pod-group-name", json!("g")),
        ],
    );
    let mut seen = member(&annotated);
    assert_eq!((seen.group.as_deref(), &*seen.pod_set.as_ref().unwrap().name), (Some("g"), "driver"));
    seen.read_labels_alone();
    assert_eq!((seen.group.as_deref(), &*seen.pod_set.as_ref().unwrap().name), (None, "main"));
    let mut labelled = member(&pod("a"));
    labelled.read_labels_alone();
    assert_eq!((labelled.group.as_deref(), &*labelled.pod_set.as_ref().unwrap().name), (Some("g"), "driver"));
}

#[test]
fn without_the_gate_a_prebuilt_workload_that_only_an_annotation_names_is_none() {
    let named = |map: &str| {
        let pointer = format!("/metadata/{map}/kueue.x-k8s.io~1prebuilt-workload-name");
        member(&alone(&[(&*pointer, json!("theirs"))]))
    };
    for (map, without_gate) in [("annotations", None), ("labels", Some("theirs"))] {
        let mut seen = named(map);
        assert_eq!(of_pod(&seen).prebuilt_workload.as_deref(), Some("theirs"), "{map}");
        seen.read_labels_alone();
        assert_eq!(of_pod(&seen).prebuilt_workload.as_deref(), without_gate, "{map}");
    }
}

/// Its phase is Pending then.
#[test]
fn a_pod_that_is_deleted_while_its_init_containers_run_is_active_until_its_grace_is_over() {
    let leaves = deleted("2026-01-02T04:00:00Z");
    let bound = with(pod("c"), &[("/spec/schedulingGates", json!(null)), ("/spec/nodeName", json!("n"))]);
    let until = |pod: &Value| member(pod).active_until(false);
    assert_eq!(until(&bound), None);
    assert_eq!(
        until(&with(bound.clone(), std::slice::from_ref(&leaves))),
        Some(Some(at("2026-01-02T04:00:00Z")))
    );
    assert_eq!(until(&with(pod("c"), std::slice::from_ref(&leaves))), None, "it has no node");
    assert_eq!(until(&with(bound, &[leaves, phase("Failed")])), None);
}
