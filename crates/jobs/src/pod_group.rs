//! The pods of a job that share a template.

use std::borrow::Cow;

use serde_json::Value;
use sluice_api::job::JobPodSet;

use crate::object;

/// The pods of a job that share a template, as the job's controller makes them.
#[derive(Clone, Debug)]
pub struct PodGroup<'a> {
    /// The name of its pod set, from the object: `main` if there is only one.
    pub name: Cow<'a, str>,
    /// Where its template is: a JSON pointer.
    pub pointer: String,
    /// The pod template. Where the object does not say all of it, with what its controller adds; where what admission adds is beside it, with that.
    pub template: Cow<'a, Value>,
    /// How many parts the job's controller makes from it, each of which has the pods; 1 for a kind without parts.
    pub replicas: i32,
    /// How many pods a part has at a time.
    pub parallel: i32,
    /// How many pods of a part have to succeed.
    pub completions: i32,
    /// The node label by which each part takes whole groups of nodes.
    pub exclusive: Option<&'a str>,
}

impl PodGroup<'_> {
    /// Pods at a time, in all.
    pub fn count(&self) -> i32 {
        self.replicas.saturating_mul(self.parallel)
    }

    /// The pod set. `generated_labels` stay out of the Workload.
    pub(crate) fn pod_set(&self, generated_labels: &[&str]) -> Result<JobPodSet, String> {
        object::pod_set(&self.name, self.count(), &self.template, &self.path(), generated_labels)
    }

    /// Its template's path as messages have it: `spec.replicatedJobs[0].template.spec.template`.
    pub fn path(&self) -> String {
        path_of(&self.pointer)
    }
}

/// A JSON pointer as messages have it: `spec.replicatedJobs[0].template` for `/spec/replicatedJobs/0/template`.
pub fn path_of(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        if part.parse::<usize>().is_ok() {
            path.extend(["[", part, "]"]);
        } else {
            path.extend([if path.is_empty() { "" } else { "." }, part]);
        }
    }
    path
}
