//! Flux MiniClusters, which are no jobs themselves: the Flux operator makes a batch Job of each.

use serde_json::{Map, Value, json};

use crate::job_maker::JobMaker;

/// The kind.
pub(crate) const MAKER: JobMaker = JobMaker { group: "flux-framework.org", kind: "MiniCluster", job };

/// How often the operator lets pods fail.
const RETRIES: i64 = 100;
/// How long the operator lets a MiniCluster run that says nothing of it, in seconds.
const LONGEST: i64 = 31_500_000;
/// Annotations for the simulator: they are the Job's.
const OURS: &str = "sluice.dev/";

/// The Job of a MiniCluster: as many indexed pods as its size says, each with all of its containers. None if it has no pods.
fn job(cluster: &Value) -> Option<Value> {
    let (metadata, spec) = (&cluster["metadata"], &cluster["spec"]);
    let size = spec["size"].as_i64().unwrap_or(1);
    if size < 1 {
        return None;
    }
    let pod = &spec["pod"];
    let own = metadata["annotations"].as_object().into_iter().flatten();
    let annotations: Map<_, _> = own
        .filter(|(key, _)| key.starts_with(OURS))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let owner = filled(json!({
        "apiVersion": cluster["apiVersion"], "kind": cluster["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }));
    let container = |(index, given): (usize, &Value)| {
        let name = given["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let name =
            name.unwrap_or_else(|| format!("{}-{index}", metadata["name"].as_str().unwrap_or_default()));
        filled(json!({"name": name, "image": given["image"], "resources": given["resources"]}))
    };
    let containers = spec["containers"].as_array().into_iter().flatten().enumerate();
    Some(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": filled(json!({
            "name": metadata["name"], "namespace": metadata["namespace"],
            "creationTimestamp": metadata["creationTimestamp"],
            "labels": spec["jobLabels"],
            "annotations": (!annotations.is_empty()).then_some(annotations),
            "ownerReferences": [owner],
        })),
        "spec": {
            "completionMode": "Indexed",
            "completions": size,
            "parallelism": size,
            "backoffLimit": spec["backoffLimit"].as_i64().unwrap_or(RETRIES),
            "activeDeadlineSeconds": spec["deadlineSeconds"].as_i64().unwrap_or(LONGEST),
            "template": {
                "metadata": filled(json!({"labels": pod["labels"], "annotations": pod["annotations"]})),
                "spec": filled(json!({
                    "restartPolicy": "OnFailure",
                    "nodeSelector": pod["nodeSelector"],
                    "tolerations": pod["tolerations"],
                    "runtimeClassName": pod["runtimeClassName"],
                    "schedulerName": pod["schedulerName"],
                    "containers": containers.map(container).collect::<Vec<_>>(),
                })),
            },
        },
    }))
}

/// A map without the fields that have no value.
fn filled(mut map: Value) -> Value {
    if let Some(fields) = map.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    map
}

#[cfg(test)]
mod tests;
