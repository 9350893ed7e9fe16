//! Variables and ports of containers.

use serde_json::{Value, json};

use crate::patch::set;

/// Sets an item in a list of a container, in place of one of the same name.
pub(super) fn upsert(container: &mut Value, list: &str, item: &Value) {
    let Some(known) = container[list].as_array_mut() else {
        return set(container, &[list], json!([item]));
    };
    match known.iter_mut().find(|known| known["name"] == item["name"]) {
        Some(known) => *known = item.clone(),
        None => known.push(item.clone()),
    }
}

/// Sets a port, in place of one with that number, or of one without a name.
pub(super) fn upsert_port(container: &mut Value, port: i32) {
    let item = json!({"containerPort": port, "protocol": "TCP"});
    let Some(known) = container["ports"].as_array_mut() else {
        return set(container, &["ports"], json!([item]));
    };
    match known.iter_mut().find(|known| known["containerPort"] == port || known["name"].is_null()) {
        Some(known) => *known = item,
        None => known.push(item),
    }
}

/// A variable with a value.
pub(super) fn variable(name: &str, value: &str) -> Value {
    json!({"name": name, "value": value})
}

/// A variable with the index of the pod in its Job.
pub(super) fn index(name: &str) -> Value {
    let path = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
    json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
}
