//! 10,000 Workloads in batches of 500, from bytes to bytes as the webhook does it, take less than a second.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use serde_json::{Value, json};
use sluice_api::conversion::{ConversionReview, answer_review};

fn workload(index: usize) -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "registry.example.com/team/trainer:v1.2.3",
            "command": ["bash", "-c", "python train.py --steps 1000 --checkpoint /data/checkpoints"],
            "env": (0..12).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "some value"})).collect::<Vec<_>>(),
            "ports": [{"containerPort": 8471, "protocol": "TCP"}, {"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"google.com/tpu": "4"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        })
    };
    let domains: Vec<Value> =
        (0..16).map(|n| json!({"values": [format!("gke-tpu-pool-a-{index}-{n}")], "count": 1})).collect();
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "Admitted", "observedGeneration": 1,
            "message": "The workload is admitted", "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    };
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": format!("jobset-training-{index}-5fc1e"), "namespace": "team-a", "uid": format!("uid-{index}"),
            "resourceVersion": "12345", "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        },
        "spec": {
            "queueName": "user-queue", "priority": 100, "active": true,
            "priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
            "podSets": [{"name": "slice", "count": 16, "template": {
                "metadata": {"labels": {"app": "training"}},
                "spec": {
                    "containers": [container("main"), container("sidecar")],
                    "nodeSelector": {"cloud.google.com/gke-tpu-topology": "4x4"},
                    "restartPolicy": "Never",
                    "volumes": [{"name": "data", "emptyDir": {}}],
                },
            }}],
        },
        "status": {
            "conditions": [condition("QuotaReserved"), condition("Admitted"), condition("PodsReady")],
            "accumulatedPastExexcutionTimeSeconds": 5,
            "admission": {"clusterQueue": "cluster-queue", "podSetAssignments": [{
                "name": "slice", "count": 16,
                "flavors": {"cpu": "f", "google.com/tpu": "f"},
                "resourceUsage": {"cpu": "64", "google.com/tpu": "64"},
                "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "domains": domains},
            }]},
        },
    })
}

fn request(objects: &[Value], to: &str) -> Vec<u8> {
    serde_json::to_vec(&json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": to, "objects": objects},
    }))
    .unwrap()
}

fn answer(body: &[u8]) -> Vec<u8> {
    let review: ConversionReview = serde_json::from_slice(body).unwrap();
    answer_review(review).unwrap()
}

/// The CPU time of this thread so far (Linux): what counts is the work, not what else the machine does.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Without optimization one batch must do, and the clock says nothing.
const BATCHES: usize = if cfg!(debug_assertions) { 1 } else { 20 };
const LIMIT: Duration = if cfg!(debug_assertions) { Duration::MAX } else { Duration::from_secs(1) };

#[test]
fn ten_thousand_workloads_convert_in_a_second() {
    let batches: Vec<Vec<u8>> = (0..BATCHES)
        .map(|batch| {
            let objects: Vec<Value> = (0..500).map(|n| workload(batch * 500 + n)).collect();
            request(&objects, "kueue.x-k8s.io/v1beta2")
        })
        .collect();
    // The best of three.
    let best = (0..3)
        .map(|_| {
            let started = cpu_time();
            for body in &batches {
                assert!(answer(body).len() > 1000);
            }
            cpu_time().saturating_sub(started)
        })
        .min()
        .unwrap();
    println!("{} Workloads: {best:?} of CPU", batches.len() * 500);
    assert!(best < LIMIT, "{best:?}");
    let back: Value = serde_json::from_slice(&answer(&batches[0])).unwrap();
    let down = request(back["response"]["convertedObjects"].as_array().unwrap(), "kueue.x-k8s.io/v1beta1");
    let down: Value = serde_json::from_slice(&answer(&down)).unwrap();
    assert_eq!(down["response"]["convertedObjects"][499], workload(499));
}
