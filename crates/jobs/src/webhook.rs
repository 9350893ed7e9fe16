//! What happens to a job when a user writes it: defaults and refusals (docs/reference/07-integrations.md 7.1 and 7.2).
//!
//! Pure: the caller answers from its caches what the [`Context`] asks, so that a webhook never waits for the API server.

mod pod;
mod topology;
mod validate;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::config::selector_matches;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobKind;
use sluice_api::labels;

use crate::adapter;
use crate::object::string_map;
use crate::patch::{Patch, escape};

pub use pod::mutate_pod;
pub use validate::validate;
pub(crate) use validate::{Violations, annotation_path};

/// What the user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an existing one.
    Update,
}

/// What the rules depend on besides the object.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named where it is set")]
pub struct Context<'a> {
    /// `manageJobsWithoutQueueName` of the configuration.
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector` of the configuration.
    pub managed_jobs_namespace_selector: &'a LabelSelector,
    /// Labels of the job's namespace; empty when it is not known yet.
    pub namespace_labels: &'a BTreeMap<String, String>,
    /// Whether the namespace has a LocalQueue named `default`.
    pub default_local_queue: bool,
    /// Whether there is a WorkloadPriorityClass named `default`.
    pub default_priority_class: bool,
    /// Whether the object's controller is a job that is managed itself, and was seen: by name, in the object's namespace, with that UID. What is
    /// only claimed does not count.
    pub managed_owner: bool,
    /// The gates in force.
    pub gates: Gates,
}

impl Context<'_> {
    /// Whether jobs of this namespace may be managed at all.
    fn namespace_is_managed(&self) -> bool {
        selector_matches(self.managed_jobs_namespace_selector, self.namespace_labels)
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field.
    pub path: String,
    /// What is wrong, as Kubernetes words it.
    pub message: String,
}

/// The rules that a write breaks; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(pub Vec<Violation>);

impl fmt::Display for Denied {
    /// One violation by itself, several in brackets, as Kubernetes does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = self.0.len() > 1;
        f.write_str(if several { "[" } else { "" })?;
        for (index, violation) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {}", violation.path, violation.message)?;
        }
        f.write_str(if several { "]" } else { "" })
    }
}

impl std::error::Error for Denied {}

/// The labels, annotations and suspension of a job: all that most rules look at.
pub(crate) struct Meta {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) suspended: bool,
}

impl Meta {
    pub(crate) fn read(kind: JobKind, object: &Value) -> Self {
        Self {
            labels: string_map(&object["metadata"]["labels"]),
            annotations: string_map(&object["metadata"]["annotations"]),
            suspended: adapter::of(kind).is_suspended(object),
        }
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The label, else the annotation of the same key.
    pub(crate) fn queue_name(&self) -> Option<&str> {
        self.label(labels::QUEUE_NAME).or_else(|| self.annotation(labels::QUEUE_NAME))
    }
}

/// The JSON patch that a new job gets, in the order of docs/reference/07-integrations.md: default LocalQueue, default
/// WorkloadPriorityClass, suspension. An update gets none: what runs is stopped by the engine, not by the webhook.
///
/// A job of a managed owner is left alone: its owner holds the Workload. One that names a queue is managed in every namespace.
pub fn mutate(kind: JobKind, operation: Operation, object: &Value, context: &Context<'_>) -> Patch {
    if operation == Operation::Update || context.managed_owner || !object["spec"].is_object() {
        return Patch::Json(Vec::new());
    }
    let meta = Meta::read(kind, object);
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
        operations.extend(suspension(adapter::of(kind).suspend_path(), object));
    }
    Patch::Json(operations)
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
