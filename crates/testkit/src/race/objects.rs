//! The objects of the load, how their state is read, and how they end: Workloads, or Jobs whose controller the race plays.

use kube::Client;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use super::plan::{Class, NAMESPACE, Work};
use crate::workloads;

const WORKLOAD: &str = "kueue.x-k8s.io/v1beta2";

/// The state of an object.
pub(super) struct Seen {
    /// Since when it is admitted, or runs.
    pub runs_since: Option<String>,
    pub evicted: bool,
    /// Whether the manager waits until its client, or its controller, reports that nothing runs any more.
    pub holds: bool,
    pub finished: bool,
}

/// Where they are.
pub(super) fn api(work: Work, client: &Client) -> Api<DynamicObject> {
    match work {
        Work::Workloads => workloads::namespaced(client, NAMESPACE, "Workload", "workloads"),
        Work::Jobs => {
            let kind = kube::api::ApiResource::erase::<k8s_openapi::api::batch::v1::Job>(&());
            Api::namespaced_with(client.clone(), NAMESPACE, &kind)
        }
    }
}

/// An object of a class.
pub(super) fn of(work: Work, name: &str, queue: &str, class: &Class) -> Value {
    let requests = json!({"cpu": class.cpu.to_string()});
    let container = json!({"name": "c", "image": "race", "resources": {"requests": requests}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    match work {
        Work::Workloads => json!({
            "apiVersion": WORKLOAD, "kind": "Workload", "metadata": {"name": name},
            "spec": {
                "active": true, "queueName": queue, "priority": class.priority,
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        }),
        Work::Jobs => {
            let labels = json!({
                "kueue.x-k8s.io/queue-name": queue,
                "kueue.x-k8s.io/priority-class": class.name,
            });
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels},
                "spec": {"suspend": true, "parallelism": 1, "completions": 1, "template": template},
            })
        }
    }
}

/// The priority class that the Jobs of a class have.
pub(super) fn priority(class: &Class) -> Value {
    json!({
        "apiVersion": WORKLOAD, "kind": "WorkloadPriorityClass",
        "metadata": {"name": class.name}, "value": class.priority,
    })
}

/// Reads an object.
pub(super) fn seen(work: Work, object: &DynamicObject) -> Seen {
    let conditions = object.data["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let since = |type_: &str| {
        let found = conditions.iter().find(|c| c["type"] == type_ && c["status"] == "True")?;
        found["lastTransitionTime"].as_str().map(str::to_owned)
    };
    match work {
        Work::Workloads => Seen {
            runs_since: since("Admitted"),
            evicted: since("Evicted").is_some(),
            holds: since("Evicted").is_some() && since("QuotaReserved").is_some(),
            finished: since("Finished").is_some(),
        },
        Work::Jobs => {
            // The generation changes with each start and stop.
            let runs = object.data["spec"]["suspend"] == false;
            let generation = object.metadata.generation.unwrap_or_default();
            Seen {
                runs_since: runs.then(|| generation.to_string()),
                evicted: false,
                holds: !runs && conditions.iter().any(|c| c["type"] == "Suspended" && c["status"] == "False"),
                finished: since("Complete").is_some(),
            }
        }
    }
}

/// The answer of a Job's controller that it has seen the stop.
pub(super) fn stopped(name: &str) -> Value {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let condition = json!({
        "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended",
        "lastProbeTime": now, "lastTransitionTime": now,
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "status": {"conditions": [condition]},
    })
}

/// The status of an ended object that was admitted at that time.
pub(super) fn end(work: Work, name: &str, since: &str) -> Value {
    match work {
        Work::Workloads => {
            let condition = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "",
                "lastTransitionTime": since});
            json!({
                "apiVersion": WORKLOAD, "kind": "Workload", "metadata": {"name": name},
                "status": {"conditions": [condition]},
            })
        }
        Work::Jobs => {
            let now = k8s_openapi::jiff::Timestamp::now().to_string();
            let condition = |type_: &str| {
                json!({
                    "type": type_, "status": "True", "reason": "CompletionsReached", "message": "",
                    "lastProbeTime": now, "lastTransitionTime": now,
                })
            };
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                "status": {
                    "startTime": now, "completionTime": now, "succeeded": 1,
                    "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
                },
            })
        }
    }
}
