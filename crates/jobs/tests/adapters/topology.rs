//! The additions of a start if a topology decides the place of pods, and the topology requests of templates, kind by kind
//! (docs/reference/06-algorithm.md 6.13).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobPodSet, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::{observe, start, stop};

use sluice_jobs::webhook::Operation;

use crate::rules_of_all::waiting;
use crate::testing::serving::{deployment, made};
use crate::testing::{World, apply, job, jobset, kubeflow, ray};

const GATE: &str = "kueue.x-k8s.io/topology";
const LABEL: &str = "kueue.x-k8s.io/podset";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";

/// A suspended object of each kind whose templates are in it.
fn samples() -> Vec<(JobKind, Value)> {
    let trained = kubeflow::KINDS.into_iter().map(|kind| (kind.0, kubeflow::job(kind)));
    let ray = ray::KINDS.into_iter().map(|(kind, _)| (kind, ray::ray(kind)));
    let others = [
        (JobKind::JOB, job()),
        (JobKind::JOB_SET, jobset()),
        (JobKind::SPARK_APPLICATION, waiting(JobKind::SPARK_APPLICATION)),
    ];
    trained.chain(ray).chain(others).collect()
}

fn addition(set: &JobPodSet) -> PodSetInfo {
    let scheduling = PodScheduling {
        labels: BTreeMap::from([(LABEL.to_owned(), set.name.clone())]),
        annotations: BTreeMap::from([(UNCONSTRAINED.to_owned(), "true".to_owned())]),
        scheduling_gates: vec![PodSchedulingGate { name: GATE.to_owned() }],
        ..PodScheduling::default()
    };
    PodSetInfo { name: set.name.clone(), count: set.count, scheduling }
}

fn original(set: &JobPodSet) -> PodSetInfo {
    PodSetInfo { name: set.name.clone(), count: set.count, scheduling: set.scheduling.clone() }
}

/// Of each pod set, whether it has all that was added, or anything of it.
fn added(view: &JobView) -> Vec<[bool; 3]> {
    let of = |set: &JobPodSet| {
        let scheduling = &set.scheduling;
        [
            scheduling.scheduling_gates.iter().any(|gate| gate.name == GATE),
            scheduling.labels.get(LABEL) == Some(&set.name),
            scheduling.annotations.contains_key(UNCONSTRAINED),
        ]
    };
    view.pod_sets.iter().map(of).collect()
}

#[test]
fn every_kind_takes_the_gate_and_its_marks_and_gives_them_back() {
    for (kind, object) in samples() {
        let view = observe(kind, &object);
        let adds: Vec<_> = view.pod_sets.iter().map(addition).collect();
        let mut started = apply(&object, &start(&view, &adds).unwrap()).unwrap();
        let running = observe(kind, &started);
        assert_eq!(added(&running), vec![[true; 3]; view.pod_sets.len()], "{kind:?}");
        let before: Vec<_> = view.pod_sets.iter().map(original).collect();
        for _ in 0..2 {
            for step in stop(&observe(kind, &started), &before) {
                let version = started["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                started = apply(&started, &step.pinned(&version).patch).unwrap();
            }
        }
        assert_eq!(added(&observe(kind, &started)), vec![[false; 3]; view.pod_sets.len()], "{kind:?}");
    }
}

#[test]
fn a_template_asks_of_the_topology_in_every_kind_and_its_pods_are_numbered() {
    let index = |view: &JobView| {
        let request = view.pod_sets[0].topology_request.clone();
        request.and_then(|request| request.pod_index_label).unwrap_or_default()
    };
    for (kind, object) in samples() {
        let view = observe(kind, &object);
        assert!(
            view.pod_sets.iter().all(|set| !set.topology_request.as_ref().is_some_and(|r| r.is_explicit()))
        );
        let asks = |set: &JobPodSet| {
            let mut info = original(set);
            let key = "kueue.x-k8s.io/podset-preferred-topology".to_owned();
            info.scheduling.annotations.insert(key, "rack".to_owned());
            info
        };
        let asks: Vec<_> = view.pod_sets.iter().map(asks).collect();
        let asked = observe(kind, &apply(&object, &start(&view, &asks).unwrap()).unwrap());
        for set in &asked.pod_sets {
            let request = set.topology_request.as_ref().unwrap();
            assert_eq!(request.preferred.as_deref(), Some("rack"), "{kind:?}");
        }
        assert_eq!(index(&asked), index(&view));
    }
    assert_eq!(index(&observe(JobKind::JOB, &job())), "batch.kubernetes.io/job-completion-index");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": []}});
    assert_eq!(index(&observe(JobKind::POD, &pod)), "kueue.x-k8s.io/pod-group-pod-index");
}

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";

/// A pod as a controller makes it of a template.
fn pod_of(template: &Value) -> Value {
    let mut pod = template.clone();
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    let metadata = &mut pod["metadata"];
    (metadata["name"], metadata["namespace"]) = (json!("web-1"), json!("team-a"));
    (metadata["uid"], metadata["resourceVersion"]) = (json!("u2"), json!("1"));
    pod
}

/// A pod in the webhook, and what it waits for.
fn waits_for(pod: &Value) -> (Value, Vec<String>) {
    let pod = made(&World::default(), pod, false);
    let gates = gates(&pod);
    (pod, gates)
}

fn gates(pod: &Value) -> Vec<String> {
    let gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    gates.map(|gate| gate["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn pods_that_others_make_wait_for_their_place_and_ask_what_their_template_asks() {
    let queued = json!({"kueue.x-k8s.io/queue-name": "lq"});
    for (kind, name) in [(JobKind::STATEFUL_SET, "StatefulSet"), (JobKind::DEPLOYMENT, "Deployment")] {
        let mut object = deployment(&queued);
        object["kind"] = json!(name);
        object["spec"]["template"]["metadata"]["annotations"] = json!({REQUIRED: "rack"});
        let written = World::default().written(kind, Operation::Create, &object);
        let template = &written["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"][REQUIRED], "rack", "{name}");
        let (pod, gates_before) = waits_for(&pod_of(template));
        assert_eq!(gates_before, ["kueue.x-k8s.io/admission", GATE], "{name}");
        let view = observe(JobKind::POD, &pod);
        let request = view.pod_sets[0].topology_request.as_ref().unwrap();
        assert_eq!(request.required.as_deref(), Some("rack"), "{name}");
        let started = apply(&pod, &start(&view, &[addition(&view.pod_sets[0])]).unwrap()).unwrap();
        assert_eq!(gates(&started), [GATE], "{name}: admitted, it waits for its place still");
    }
}

#[test]
fn a_stateful_set_asks_for_all_its_pods_together() {
    let mut object = deployment(&json!({"kueue.x-k8s.io/queue-name": "lq"}));
    object["kind"] = json!("StatefulSet");
    object["spec"]["template"]["metadata"]["annotations"] = json!({REQUIRED: "rack"});
    let written = World::default().written(JobKind::STATEFUL_SET, Operation::Create, &object);
    let view = observe(JobKind::STATEFUL_SET, &written);
    let request = view.pod_sets[0].topology_request.as_ref().unwrap();
    assert_eq!((view.pod_sets[0].count, request.required.as_deref()), (3, Some("rack")));
    assert_eq!(request.pod_index_label.as_deref(), Some("apps.kubernetes.io/pod-index"));
}

#[test]
fn the_pods_of_a_group_wait_for_their_place_and_are_numbered() {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({
        "metadata": {
            "labels": {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/pod-group-name": "g"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2", REQUIRED: "rack"},
        },
        "spec": {"containers": [container]},
    });
    let (pod, gates) = waits_for(&pod_of(&template));
    assert_eq!(gates, ["kueue.x-k8s.io/admission", GATE]);
    let view = observe(JobKind::POD, &pod);
    let request = view.pod_sets[0].topology_request.as_ref().unwrap();
    assert_eq!(request.required.as_deref(), Some("rack"));
    assert_eq!(request.pod_index_label.as_deref(), Some("kueue.x-k8s.io/pod-group-pod-index"));
}
