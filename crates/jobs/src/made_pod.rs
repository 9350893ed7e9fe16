//! Whether a pod may be one that a job's controller made.
//!
//! Any user can write an owner reference. A pod made by a controller has more than that: a name, or labels, by which the controller finds its pods
//! again, and in most cases deletes surplus ones. Nothing limits the number of pods without them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice_api::job::{JobKind, JobView};

/// How the pods of a job are identified, as far as the job's spec says it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodMarks {
    /// Whether another controller than its kind's own looks after it (`managedBy`).
    pub managed_by_others: bool,
    /// Which pods it takes for its own, where its user says so.
    pub selector: Option<Arc<LabelSelector>>,
    /// Its pod sets.
    sets: Box<[Set]>,
}

/// A pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    name: Box<str>,
    /// The name as its controller writes it on pods, if that is not `name`.
    written_name: Option<Box<str>>,
    count: i32,
    parts: i32,
}

impl PodMarks {
    /// The marks of a job's pods.
    pub fn of(view: &JobView) -> Self {
        let own = view.job.kind.integration().managed_by;
        let sets = view.pod_sets.iter().map(|set| Set {
            name: set.name.as_str().into(),
            written_name: set.written_name.clone(),
            count: set.count,
            parts: set.parts,
        });
        Self {
            managed_by_others: view.managed_by.as_deref().is_some_and(|by| own.is_some_and(|own| own != by)),
            selector: view.pod_selector.clone(),
            sets: sets.collect(),
        }
    }

    /// Whether nothing is known of its pods.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// How many pods a pod set has, if there is one of this name.
    pub fn count(&self, pod_set: &str) -> Option<i32> {
        self.set(pod_set).map(|set| set.count)
    }

    /// Whether there is a pod set whose name its controller writes in this way on pods.
    pub fn is_written(&self, name: &str) -> bool {
        self.sets.iter().any(|set| *set.written_name.as_deref().unwrap_or(&set.name) == *name)
    }

    /// How many jobs its controller makes from a pod set, if there is one of this name.
    pub fn parts(&self, pod_set: &str) -> Option<i32> {
        self.set(pod_set).map(|set| set.parts)
    }

    fn set(&self, name: &str) -> Option<&Set> {
        self.sets.iter().find(|set| *set.name == *name)
    }
}

/// A job that a pod names as its controller.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'a> {
    /// Its kind.
    pub kind: JobKind,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// How its pods are identified.
    pub marks: &'a PodMarks,
}

/// A pod that names it.
#[derive(Clone, Copy, Debug)]
pub struct MadePod<'a> {
    /// Its name, or the beginning of it that was asked for.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

#[cfg(test)]
mod tests;
