//! What happens to a job when a user writes it: defaults and refusals (docs/reference/07-integrations.md 7.1 and 7.2).
//!
//! Pure: the caller answers from its caches what the [`Context`] asks, so that a webhook never waits for the API server.

mod plain_pod;
mod pod;
mod topology;
mod validate;

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::labels;

use crate::patch::{Patch, escape};
use crate::registry;
use crate::review::Meta;

pub use crate::review::{Context, Denied, Violation};
pub use plain_pod::{PodSelectors, mutate_plain_pod, validate_plain_pod};
pub use pod::mutate_pod;
pub use validate::validate;

/// What the user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an existing one.
    Update,
}

/// The labels, annotations and suspension of a job of this kind.
fn meta(kind: JobKind, object: &Value) -> Meta {
    Meta::read(object, registry::of(kind).is_suspended(object))
}

/// The JSON patch that a new job gets, in the order of docs/reference/07-integrations.md: default LocalQueue, default
/// WorkloadPriorityClass, suspension. An update gets none: what runs is stopped by the engine, not by the webhook.
///
/// A job of a managed owner is left alone: its owner holds the Workload. One that names a queue is managed in every namespace.
pub fn mutate(kind: JobKind, operation: Operation, object: &Value, context: &Context<'_>) -> Patch {
    let left_alone = context.managed_owner || registry::of(kind).skips(object);
    if operation == Operation::Update || left_alone || !object["spec"].is_object() {
        return Patch::Json(Vec::new());
    }
    let meta = meta(kind, object);
    let mut added = Vec::new();
    let mut queued = meta.queue_name().is_some();
    if !queued && !context.namespace_is_managed() {
        return Patch::Json(Vec::new());
    }
    if !queued && context.default_local_queue {
        added.push((labels::QUEUE_NAME, labels::DEFAULT_LOCAL_QUEUE));
        queued = true;
    }
    if !queued && !context.manage_jobs_without_queue_name {
        return Patch::Json(Vec::new());
    }
    let defaulting = context.gates.enabled(Gate::WorkloadPriorityClassDefaulting);
    if defaulting && context.default_priority_class && meta.label(labels::PRIORITY_CLASS).is_none() {
        added.push((labels::PRIORITY_CLASS, labels::DEFAULT_WORKLOAD_PRIORITY_CLASS));
    }
    let mut operations = Vec::new();
    if !added.is_empty() && !object["metadata"]["labels"].is_object() {
        operations.push(json!({"op": "add", "path": "/metadata/labels", "value": {}}));
    }
    for (key, value) in added {
        let path = format!("/metadata/labels/{}", escape(key));
        operations.push(json!({"op": "add", "path": path, "value": value}));
    }
    if !meta.suspended {
        operations.extend(suspension(registry::of(kind).suspend_path(), object));
    }
    if is_elastic(kind, &meta, context) {
        operations.extend(held_back(kind, object));
    }
    Patch::Json(operations)
}

/// Whether workload slices are to be made of a job.
fn is_elastic(kind: JobKind, meta: &Meta, context: &Context<'_>) -> bool {
    context.gates.enabled(Gate::ElasticJobsViaWorkloadSlices)
        && registry::of(kind).is_elastic()
        && meta.annotation(labels::ELASTIC_JOB).is_some_and(|text| text == "true")
}

/// The operations that give the pods of an elastic job the gate that holds them back until a slice has room for them.
fn held_back(kind: JobKind, object: &Value) -> Vec<Value> {
    let gate = json!({"name": labels::ELASTIC_JOB_SCHEDULING_GATE});
    let mut operations = Vec::new();
    for group in registry::of(kind).pod_groups(object) {
        let spec = object.pointer(&group.pointer).map(|template| &template["spec"]);
        let Some(spec) = spec.filter(|spec| spec.is_object()) else { continue };
        let mut gates = spec["schedulingGates"].as_array().cloned().unwrap_or_default();
        if !gates.contains(&gate) {
            gates.push(gate.clone());
            let path = format!("{}/spec/schedulingGates", group.pointer);
            operations.push(json!({"op": "add", "path": path, "value": gates}));
        }
    }
    operations
}

/// The operations that set a field to true, with the objects on the way to it that are missing.
fn suspension(path: &[&str], object: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    let (mut parent, mut pointer) = (object, String::new());
    for (depth, key) in path.iter().enumerate() {
        pointer = format!("{pointer}/{}", escape(key));
        let last = depth + 1 == path.len();
        parent = &parent[*key];
        if last {
            operations.push(json!({"op": "add", "path": pointer, "value": true}));
        } else if !parent.is_object() {
            operations.push(json!({"op": "add", "path": pointer, "value": {}}));
        }
    }
    operations
}

/// The kind of the job's controller, if it is one that Sluice integrates: only then can [`Context::managed_owner`] be true.
pub fn owner_kind(object: &Value) -> Option<JobKind> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    JobKind::from_owner(owner["apiVersion"].as_str()?, owner["kind"].as_str()?)
}
