//! 10,000 Workloads in batches of 500, from bytes to bytes as in the webhook, take less than a second; and no request of a few MiB takes minutes,
//! whatever its content.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice_api::conversion::{ConversionReview, answer_review};
use sluice_api::gates::Gates;
use sluice_api::v1beta2::ResourceFlavor;
use sluice_api::validation::{
    FieldError, aggregate, validate_cluster_queue, validate_resource_flavor, validate_workload,
};

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

/// What each of the requests below takes at most. They take some ms; where each item of a list is compared with all others, they take minutes.
const ANY_REQUEST: Duration = Duration::from_secs(10);

fn converts_soon(object: &Value) -> Value {
    let body = request(std::slice::from_ref(object), "kueue.x-k8s.io/v1beta2");
    let started = cpu_time();
    let answered = answer(&body);
    let spent = cpu_time().saturating_sub(started);
    assert!(spent < ANY_REQUEST, "{spent:?}");
    let answered: Value = serde_json::from_slice(&answered).unwrap();
    assert_eq!(answered["response"]["result"]["status"], "Success", "{}", answered["response"]["result"]);
    answered["response"]["convertedObjects"][0].clone()
}

#[test]
fn many_rules_of_one_check_are_joined_soon() {
    let flavors = |from: usize, to: usize| (from..to).map(|n| format!("f{n}")).collect::<Vec<_>>();
    let mut rules = vec![json!({"name": "a", "onFlavors": flavors(0, 8000)})];
    rules.extend((0..400).map(|n| json!({"name": "a", "onFlavors": [format!("f{n}"), "x"]})));
    rules.extend((0..8000).map(|n| json!({"name": format!("c{n}")})));
    let queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "q"},
        "spec": {"admissionChecksStrategy": {"admissionChecks": rules}},
    });
    let converted = converts_soon(&queue);
    let joined = converted["spec"]["admissionChecksStrategy"]["admissionChecks"].as_array().unwrap();
    assert_eq!(joined.len(), 8001);
    let all = joined[0]["onFlavors"].as_array().unwrap();
    assert_eq!((all.len(), &all[8000]), (8001, &json!("x")));
}

/// 1,200 nodes, one of each pool in turn, so that runs by pool are too many.
fn assigned(beginning: &str) -> Value {
    let domain = |n: usize| json!({"values": [format!("{beginning}{}-{n}", ["a", "b"][n % 2])], "count": 1});
    let assignment =
        json!({"levels": ["kubernetes.io/hostname"], "domains": (0..1200).map(domain).collect::<Vec<_>>()});
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "w", "namespace": "n"},
        "spec": {"podSets": []},
        "status": {"admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main", "topologyAssignment": assignment}]}},
    })
}

#[test]
fn names_of_many_dashes_are_compressed_soon() {
    for dashes in [50, 2000] {
        let converted = converts_soon(&assigned(&"-".repeat(dashes)));
        let assignment = &converted["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
        assert_eq!(assignment["slices"].as_array().unwrap().len(), 1, "{dashes}");
    }
}

/// The messages about a change of an object.
fn validated_soon<T: DeserializeOwned>(
    validate: impl Fn(&T, Option<&T>, Gates) -> Vec<FieldError>,
    new: Value,
    old: Value,
) -> Vec<FieldError> {
    let [new, old]: [T; 2] = [new, old].map(|object| serde_json::from_value(object).unwrap());
    let started = cpu_time();
    let errors = validate(&new, Some(&old), Gates::default());
    assert!(aggregate(&errors).len() > 10_000);
    let spent = cpu_time().saturating_sub(started);
    assert!(spent < ANY_REQUEST, "{spent:?}");
    errors
}

#[test]
fn long_lists_are_validated_soon() {
    const LONG: usize = 40_000;
    let list = |of: &dyn Fn(String) -> Value| (0..LONG).map(|n| of(format!("n{n}"))).collect::<Vec<_>>();
    let (names, more) = (list(&|name| json!(name)), list(&|name| json!(format!("x{name}"))));
    let queue = |flavors: &[Value]| {
        let rules = json!([{"name": "a", "onFlavors": flavors}]);
        json!({"metadata": {"name": "q"}, "spec": {"admissionChecksStrategy": {"admissionChecks": rules}}})
    };
    let errors = validated_soon(validate_cluster_queue, queue(&[&names[..], &more].concat()), queue(&names));
    assert_eq!(errors.len(), LONG, "what was wrong before stays allowed");

    let taints = list(&|name| json!({"key": name, "value": "-", "effect": "NoSchedule"}));
    let flavor = |taints: Vec<Value>| json!({"metadata": {"name": "f"}, "spec": {"nodeTaints": taints}});
    let of_flavor =
        |new: &ResourceFlavor, old: Option<&ResourceFlavor>, _| validate_resource_flavor(new, old);
    assert_eq!(validated_soon(of_flavor, flavor(taints), flavor(Vec::new())).len(), LONG);

    let reserved = json!({"type": "QuotaReserved", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let workload = |count: i32| {
        let mut conditions = list(
            &|name| json!({"type": name, "status": "True", "reason": "-", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}),
        );
        conditions.push(reserved.clone());
        let checks = list(&|name| {
            json!({"name": name, "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "podSetUpdates": [{"name": "main", "labels": {"count": count.to_string()}}]})
        });
        json!({
            "metadata": {"name": "w", "namespace": "n"}, "spec": {"podSets": []},
            "status": {
                "conditions": conditions, "admissionChecks": checks, "admission": {"clusterQueue": "q", "podSetAssignments": []},
                "reclaimablePods": list(&|name| json!({"name": name, "count": count})),
            },
        })
    };
    assert!(validated_soon(validate_workload, workload(1), workload(2)).len() > 3 * LONG);
    let mut wide = workload(1);
    wide["spec"]["podSets"] = list(&|name| json!({"name": name, "count": 1, "template": {}})).into();
    let errors = validate_workload(&serde_json::from_value(wide).unwrap(), None, Gates::default());
    assert_eq!(aggregate(&errors), "spec.podSets: Too many: 40000: must have at most 18 items");
}
