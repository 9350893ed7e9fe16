//! The inputs and results of the rules for users' writes: shared by the webhooks and the adapters.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use sluice_api::config::selector_matches;
use sluice_api::gates::{Gate, Gates};
use sluice_api::labels;

use crate::object::string_map;

/// The inputs of the rules besides the object.
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
    /// Whether the object's controller is a managed job that was seen: by name, in the object's namespace, with that UID. A mere claim does not
    /// count.
    pub managed_owner: bool,
    /// The object that a pod claims to belong to, if the pod itself does not name its UID. It was seen.
    pub gatherer: Option<Gatherer<'a>>,
    /// The gates in force.
    pub gates: Gates,
}

/// An object whose pods wait for admission in its place, and how these are identified.
#[derive(Clone, Copy, Debug)]
pub struct Gatherer<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Its LocalQueue.
    pub queue_name: Option<&'a str>,
    /// Its WorkloadPriorityClass.
    pub priority_class: Option<&'a str>,
}

impl Context<'_> {
    /// Whether jobs of this namespace may be managed at all.
    pub(crate) fn namespace_is_managed(&self) -> bool {
        selector_matches(self.managed_jobs_namespace_selector, self.namespace_labels)
    }

    /// Whether an object is managed: it names a queue, or all jobs of its namespace are. What a managed object controls is managed with that.
    pub(crate) fn is_managed(&self, meta: &Meta) -> bool {
        let by_default = || self.manage_jobs_without_queue_name && self.namespace_is_managed();
        !self.managed_owner && (meta.queue_name().is_some() || by_default())
    }

    /// Whether a changed object is checked, for kinds whose rules apply to managed objects only: objects that are managed now, and those that were
    /// (gate `ValidateRayAndSparkJobUpdates`), so that none leaves its queue while it runs.
    pub(crate) fn judges_managed(&self, old: &Meta, new: &Meta) -> bool {
        let was = || old.queue_name().is_some() && self.gates.enabled(Gate::ValidateRayAndSparkJobUpdates);
        self.manage_jobs_without_queue_name || new.queue_name().is_some() || was()
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field.
    pub path: String,
    /// What is wrong, in Kubernetes' words.
    pub message: String,
}

/// The rules that a write breaks; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(pub Vec<Violation>);

impl fmt::Display for Denied {
    /// One violation alone, several in brackets, as Kubernetes does.
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
    pub(crate) fn read(object: &Value, suspended: bool) -> Self {
        Self {
            labels: string_map(&object["metadata"]["labels"]),
            annotations: string_map(&object["metadata"]["annotations"]),
            suspended,
        }
    }

    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The prebuilt Workload that the job names: by the annotation, if that counts, else by the label.
    pub(crate) fn prebuilt_workload(&self, gates: Gates) -> Option<&str> {
        let key = labels::PREBUILT_WORKLOAD_NAME;
        let annotated = self.annotation(key).filter(|_| gates.enabled(Gate::WorkloadIdentifierAnnotations));
        annotated.or_else(|| self.label(key))
    }

    /// The label, else the annotation of the same key.
    pub(crate) fn queue_name(&self) -> Option<&str> {
        self.label(labels::QUEUE_NAME).or_else(|| self.annotation(labels::QUEUE_NAME))
    }
}

/// Collects violations.
#[derive(Default)]
pub(crate) struct Violations(pub(crate) Vec<Violation>);

impl Violations {
    pub(crate) fn invalid(&mut self, path: &str, value: &str, message: &str) {
        self.add(path, format!("Invalid value: {value:?}: {message}"));
    }

    pub(crate) fn forbidden(&mut self, path: &str, message: &str) {
        self.add(path, format!("Forbidden: {message}"));
    }

    pub(crate) fn immutable(&mut self, path: &str, value: &str) {
        self.invalid(path, value, "field is immutable");
    }

    pub(crate) fn add(&mut self, path: &str, message: String) {
        self.0.push(Violation { path: path.to_owned(), message });
    }
}

/// An annotation as messages have it.
pub(crate) fn annotation_path(key: &str) -> String {
    format!("metadata.annotations[{key}]")
}

/// A label as messages have it.
pub(crate) fn label_path(key: &str) -> String {
    format!("metadata.labels[{key}]")
}
