//! The defaults of the mutating webhooks (docs/reference/01-api.md 1.0), as JSON patches. Plain defaults are in the schemas.
//!
//! They work on documents, because the typed objects require the fields already.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use crate::gates::{Gate, Gates};
use crate::labels::RESOURCE_IN_USE_FINALIZER;

/// One operation of a JSON patch (RFC 6902).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum PatchOperation {
    /// Sets a field, or appends to a list where the path ends in `-`.
    Add {
        /// Where (RFC 6901).
        path: String,
        /// What.
        value: Value,
    },
    /// Takes a field away.
    Remove {
        /// Where (RFC 6901).
        path: String,
    },
}

/// The finalizer that keeps a ClusterQueue or ResourceFlavor while it is in use.
pub fn finalizer(object: &Value) -> Vec<PatchOperation> {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    let (path, value) = match finalizers {
        Some(list) if list.iter().any(|f| f == RESOURCE_IN_USE_FINALIZER) => return Vec::new(),
        Some(_) => ("/metadata/finalizers/-", json!(RESOURCE_IN_USE_FINALIZER)),
        None => ("/metadata/finalizers", json!([RESOURCE_IN_USE_FINALIZER])),
    };
    vec![PatchOperation::Add { path: path.to_owned(), value }]
}

/// `coveredResources` of a resource group without it: the resources of its flavors, in the order of their first appearance. An addition to Kueue,
/// whose schema refuses such a group.
pub fn covered_resources(object: &Value) -> Vec<PatchOperation> {
    let groups = object.pointer("/spec/resourceGroups").and_then(Value::as_array);
    let mut operations = Vec::new();
    for (index, group) in groups.into_iter().flatten().enumerate() {
        let left_out = group.get("coveredResources").is_none_or(|list| list.is_null() || *list == json!([]));
        let named = resources_named(group);
        if group.is_object() && left_out && !named.is_empty() {
            let path = format!("/spec/resourceGroups/{index}/coveredResources");
            operations.push(PatchOperation::Add { path, value: json!(named) });
        }
    }
    operations
}

fn resources_named(group: &Value) -> Vec<&str> {
    let (mut named, mut known) = (Vec::new(), BTreeSet::new());
    let flavors = group.get("flavors").and_then(Value::as_array);
    for flavor in flavors.into_iter().flatten() {
        let resources = flavor.get("resources").and_then(Value::as_array);
        for resource in resources.into_iter().flatten() {
            if let Some(name) = resource.get("name").and_then(Value::as_str)
                && known.insert(name)
            {
                named.push(name);
            }
        }
    }
    named
}

/// Without the gate PartialAdmission a workload has no `minCount`.
pub fn min_count(object: &Value, gates: Gates) -> Vec<PatchOperation> {
    if gates.enabled(Gate::PartialAdmission) {
        return Vec::new();
    }
    let pod_sets = object.pointer("/spec/podSets").and_then(Value::as_array);
    let with_min_count = |(_, pod_set): &(usize, &Value)| pod_set.get("minCount").is_some();
    let pod_sets = pod_sets.into_iter().flatten().enumerate().filter(with_min_count);
    pod_sets
        .map(|(index, _)| PatchOperation::Remove { path: format!("/spec/podSets/{index}/minCount") })
        .collect()
}
