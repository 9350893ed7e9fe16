//! What the tests of the adapters share: objects.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::Patch;
use sluice_jobs::webhook::{Context, Operation, mutate};

/// A suspended batch Job of three pods, with what the Job controller adds to the template.
pub fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "sample", "namespace": "team-a", "uid": "0b6a2f5c", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"kueue.x-k8s.io/queue-name": "user-queue", "team": "a"},
            "annotations": {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "600", "other.example.com/x": "y"}
        },
        "spec": {
            "suspend": true, "parallelism": 3, "completions": 5,
            "template": {
                "metadata": {"labels": {"app": "x", "job-name": "sample", "controller-uid": "0b6a2f5c",
                    "batch.kubernetes.io/job-name": "sample"}},
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"disk": "ssd"},
                    "tolerations": [{"key": "a", "operator": "Exists"}],
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
                        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]
                }
            }
        }
    })
}

/// A JobSet with two replicated jobs, as the page on multislices has them: quantities are numbers, metadata is absent.
pub fn jobset() -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {
            "name": "multislice", "namespace": "default", "uid": "6d0f2a3e", "resourceVersion": "11",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"kueue.x-k8s.io/queue-name": "multislice-queue",
                "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
        },
        "spec": {
            "suspend": true,
            "replicatedJobs": [
                {"name": "Slice", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 2, "template": {
                    "spec": {"containers": [{"name": "jax", "image": "i", "resources": {"limits": {"google.com/tpu": 4}}}]}}}}},
                {"name": "driver", "template": {"spec": {"template": {
                    "metadata": {"annotations": {"a": "b"}},
                    "spec": {"nodeSelector": {"x": "y"}, "priorityClassName": "high",
                        "containers": [{"name": "d", "image": "i"}]}}}}}
            ]
        }
    })
}

/// The kind that an object says it is.
fn kind_of(object: &Value) -> JobKind {
    let text = |key: &str| object[key].as_str().unwrap();
    JobKind::from_owner(text("apiVersion"), text("kind")).unwrap()
}

/// What the mutating webhook answers.
pub fn mutate_object(operation: Operation, object: &Value, context: &Context<'_>) -> Patch {
    mutate(kind_of(object), operation, object, context)
}
