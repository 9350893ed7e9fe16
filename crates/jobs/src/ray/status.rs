//! What Ray's kinds say in their status.

use serde_json::Value;

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
