//! What tests of adapters share: an API server's way with patches, and what a cluster answers. Tests through the public interface have this file, too.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_jobs::Patch;
use sluice_jobs::webhook::{Context, Operation, mutate, validate};

/// Applies a patch as the API server does: conflict on a stale resource version, a new one on every change.
pub fn apply(object: &Value, patch: &Patch) -> Result<Value, String> {
    let mut result = object.clone();
    match patch {
        Patch::Strategic(_) => return Err("these tests have no schema to merge by".to_owned()),
        Patch::Merge(body) => json_patch::merge(&mut result, body),
        Patch::Json(operations) => {
            let operations: json_patch::Patch =
                serde_json::from_value(json!(operations)).map_err(|error| error.to_string())?;
            json_patch::patch(&mut result, &operations).map_err(|error| error.to_string())?;
        }
    }
    if result["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
        return Err("409 Conflict".to_owned());
    }
    prune(&mut result);
    let mut before = object.clone();
    prune(&mut before);
    if result != before {
        let version: u64 = object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        result["metadata"]["resourceVersion"] = json!((version + 1).to_string());
    }
    Ok(result)
}

/// Removes what a typed round trip does not keep: nulls and empty maps and lists.
pub fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(prune);
            map.retain(|_, value| !is_nothing(value));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// What a cluster answers.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct World {
    pub default_local_queue: bool,
    pub default_priority_class: bool,
    pub manage_all: bool,
    pub managed_owner: bool,
    pub system: bool,
}

impl World {
    pub fn with<T>(&self, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        let name = if self.system { "kube-system" } else { "team-a" };
        let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        let selector: LabelSelector = Configuration::default().managed_jobs_namespace_selector;
        let gate = sluice_api::gates::Gate::WorkloadPriorityClassDefaulting;
        ask(&Context {
            manage_jobs_without_queue_name: self.manage_all,
            managed_jobs_namespace_selector: &selector,
            namespace_labels: &labels,
            default_local_queue: self.default_local_queue,
            default_priority_class: self.default_priority_class,
            managed_owner: self.managed_owner,
            gatherer: None,
            gates: Gates::default().with(gate, true),
        })
    }

    /// The same with the gates that a test changes.
    pub fn with_gates<T>(&self, gates: Gates, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        self.with(|context| ask(&Context { gates, ..*context }))
    }

    pub fn written(&self, kind: JobKind, operation: Operation, object: &Value) -> Value {
        apply(object, &self.with(|context| mutate(kind, operation, object, context))).unwrap()
    }

    pub fn refusals(&self, kind: JobKind, object: &Value, old: Option<&Value>) -> String {
        self.with(|context| match validate(kind, object, old, context) {
            Ok(()) => String::new(),
            Err(denied) => denied.to_string(),
        })
    }
}
