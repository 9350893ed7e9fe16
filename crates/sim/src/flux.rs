//! Flux MiniClusters, which are no jobs themselves: they are played as the Jobs that the Flux operator makes of them, as far as these matter for
//! queueing.

use serde_json::{Map, Value, json};

use crate::json::text;

const GROUP: &str = "flux-framework.org/";
/// How often the operator lets pods fail.
const RETRIES: i64 = 100;
/// How long the operator lets a MiniCluster run that says nothing of it, in seconds.
const LONGEST: i64 = 31_500_000;
/// Annotations for the simulator: they are the Job's.
const OURS: &str = "sluice.dev/";

/// Whether an object is a MiniCluster.
pub(crate) fn is_mini_cluster(object: &Value) -> bool {
    text(&object["apiVersion"]).starts_with(GROUP) && object["kind"] == "MiniCluster"
}

/// The Job of a MiniCluster: as many indexed pods as its size says, each with all of its containers. None if it has no pods.
pub(crate) fn job_of(cluster: &Value) -> Option<Value> {
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
    let container = |(index, given): (usize, &Value)| {
        let name = Some(text(&given["name"])).filter(|name| !name.is_empty()).map(str::to_owned);
        let name = name.unwrap_or_else(|| format!("{}-{index}", text(&metadata["name"])));
        filled(json!({"name": name, "image": given["image"], "resources": given["resources"]}))
    };
    let containers = spec["containers"].as_array().into_iter().flatten().enumerate();
    Some(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": filled(json!({
            "name": metadata["name"], "namespace": metadata["namespace"],
            "creationTimestamp": metadata["creationTimestamp"],
            "labels": spec["jobLabels"], "annotations": annotations,
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
