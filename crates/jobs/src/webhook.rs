//! The webhooks of jobs: defaults and refusals of users' writes (docs/reference/07-integrations.md 7.1 and 7.2).
//!
//! Pure: the caller fills the [`Context`] from its caches, so that a webhook never waits for the API server.

mod additions;
mod bounds;
mod plain_pod;
mod pod;
mod pod_marks;
mod topology;
mod validate;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::labels;

use self::additions::Additions;
use crate::patch::{Patch, escape};
use crate::pod_group::PodGroup;
use crate::registry;
use crate::review::Meta;

pub use crate::review::{Context, Denied, Gatherer, Violation};
pub use plain_pod::{PodSelectors, mutate_plain_pod, suspending_parent, validate_plain_pod};
pub use pod::mutate_pod;
pub use validate::validate;

/// The labels of an object.
const LABELS: &str = "/metadata/labels";
/// The annotations of an object.
const ANNOTATIONS: &str = "/metadata/annotations";

/// The user's operation.
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

/// The JSON patch of a new job, in the order of docs/reference/07-integrations.md: default LocalQueue, default WorkloadPriorityClass, suspension. An
/// update gets none: the engine stops what runs, not the webhook. Only the marks of pods that wait in the place of their object are kept in its
/// templates.
///
/// A job of a managed owner is left alone, except that its pods are placed by the owner's Workload: its templates say from which number on they are
/// counted. A job that names a queue is managed in every namespace.
pub fn mutate(kind: JobKind, operation: Operation, object: &Value, context: &Context<'_>) -> Patch {
    let marks = kind.integration().suspends_pods;
    let nothing_to_do = operation == Operation::Update && !marks || registry::of(kind).skips(object);
    if nothing_to_do || !object["spec"].is_object() {
        return Patch::Json(Vec::new());
    }
    let meta = meta(kind, object);
    let mut patch = Additions::to(object);
    let placed = !marks && context.gates.enabled(Gate::TopologyAwareScheduling);
    if context.managed_owner {
        if placed {
            pod_marks::number(kind, object, &mut patch);
        }
        return Patch::Json(patch.operations());
    }
    if operation == Operation::Update {
        let leaves = object["metadata"]["deletionTimestamp"].is_string();
        if !leaves && pod_marks::stays_managed(&meta, context) {
            let class = meta.label(labels::PRIORITY_CLASS);
            pod_marks::mark(kind, (meta.queue_name(), class), object, &mut patch);
        }
        return Patch::Json(patch.operations());
    }
    let mut queue = meta.queue_name();
    if queue.is_none() && !context.namespace_is_managed() {
        return Patch::Json(Vec::new());
    }
    if queue.is_none() && context.default_local_queue {
        patch.set(LABELS, labels::QUEUE_NAME, labels::DEFAULT_LOCAL_QUEUE);
        queue = Some(labels::DEFAULT_LOCAL_QUEUE);
    }
    if queue.is_none() && !context.manage_jobs_without_queue_name {
        return Patch::Json(Vec::new());
    }
    let mut class = meta.label(labels::PRIORITY_CLASS);
    let defaulting = context.gates.enabled(Gate::WorkloadPriorityClassDefaulting);
    if defaulting && context.default_priority_class && class.is_none() {
        patch.set(LABELS, labels::PRIORITY_CLASS, labels::DEFAULT_WORKLOAD_PRIORITY_CLASS);
        class = Some(labels::DEFAULT_WORKLOAD_PRIORITY_CLASS);
    }
    if marks {
        pod_marks::mark(kind, (queue, class), object, &mut patch);
        return Patch::Json(patch.operations());
    }
    if placed {
        pod_marks::number(kind, object, &mut patch);
    }
    let mut operations = if meta.suspended { patch.operations() } else { suspension(kind, object, patch) };
    if is_elastic(kind, &meta, context) {
        operations.extend(held_back(kind, object));
    }
    Patch::Json(operations)
}

/// The JSON patch that suspends a new job, whatever manages it. None for a kind that no field suspends.
pub fn suspend(kind: JobKind, object: &Value) -> Patch {
    let by_field = !(kind.integration().of_pods || kind.integration().suspends_pods);
    if !by_field || !object["spec"].is_object() || meta(kind, object).suspended {
        return Patch::Json(Vec::new());
    }
    Patch::Json(suspension(kind, object, Additions::to(object)))
}

/// Whether the templates of an object, of a kind that suspends its pods, have the marks of waiting pods.
pub fn is_marked(kind: JobKind, object: &Value) -> bool {
    let says = |group: &PodGroup<'_>| {
        let annotations = &group.template["metadata"]["annotations"];
        annotations[labels::POD_SUSPENDING_PARENT] == kind.framework()
    };
    kind.integration().suspends_pods && registry::of(kind).pod_groups(object).iter().any(says)
}

/// Whether a job gets workload slices: not if it names the Workload that it runs on.
fn is_elastic(kind: JobKind, meta: &Meta, context: &Context<'_>) -> bool {
    context.gates.enabled(Gate::ElasticJobsViaWorkloadSlices)
        && meta.prebuilt_workload(context.gates).is_none()
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

/// A patch of an object with the operations that set the field that suspends it, and the objects on the way to it that are missing. What its user
/// lets it run with is remembered.
fn suspension(kind: JobKind, object: &Value, mut more: Additions<'_>) -> Vec<Value> {
    let adapter = registry::of(kind);
    let running = adapter.running_value(object);
    if let Some(value) = &running {
        more.set(ANNOTATIONS, labels::RUNNING_VALUE, value);
    }
    let mut operations = more.operations();
    // One that was copied with the object is not what its user lets it run with now.
    if running.is_none()
        && kind.is_declared()
        && !object["metadata"]["annotations"][labels::RUNNING_VALUE].is_null()
    {
        let path = format!("/metadata/annotations/{}", escape(labels::RUNNING_VALUE));
        operations.push(json!({"op": "remove", "path": path}));
    }
    let (path, suspended) = (adapter.suspend_path(), adapter.suspended_value());
    let (mut parent, mut pointer) = (object, String::new());
    for (depth, key) in path.iter().enumerate() {
        pointer = format!("{pointer}/{}", escape(key));
        let last = depth + 1 == path.len();
        parent = &parent[*key];
        if last {
            operations.push(json!({"op": "add", "path": pointer, "value": suspended}));
        } else if !parent.is_object() {
            operations.push(json!({"op": "add", "path": pointer, "value": {}}));
        }
    }
    operations
}

/// The kind of the job's controller, if it is one that Sluice integrates, or one of `external`: only then can [`Context::managed_owner`] be true.
pub fn owner_kind(object: &Value, external: &BTreeSet<JobKind>) -> Option<JobKind> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    JobKind::from_owner_or(external, owner["apiVersion"].as_str()?, owner["kind"].as_str()?)
}
