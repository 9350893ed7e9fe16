//! The status of Ray's kinds.

use serde_json::Value;

use crate::object;

/// The state of a cluster whose pods are ready.
pub(crate) const READY: &str = "ready";

/// A condition of a status, by its type.
pub(crate) fn condition<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

/// Whether a condition of a status is true.
pub(crate) fn is(status: &Value, type_: &str) -> bool {
    condition(status, type_).is_some_and(|condition| condition["status"] == "True")
}

/// A name in a status, if there is one.
pub(crate) fn name(value: &Value) -> Option<String> {
    value.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

/// How many pods of a RayCluster are ready, by its status.
pub(crate) fn ready_pods(cluster: &Value) -> i32 {
    let workers = object::int(&cluster["readyWorkerReplicas"]).unwrap_or(0).max(0);
    workers.saturating_add(i32::from(is(cluster, "HeadPodReady")))
}
