//! The reduced Workload.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::pod::PodTemplate;
use super::watchable;
use crate::v1beta2::{PodSetTopologyRequest, PriorityClassRef, WorkloadStatus};

/// One pod set of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// The pod set's name.
    #[serde(default = "main")]
    pub name: String,
    /// How many pods.
    #[serde(default = "one")]
    pub count: i32,
    /// The least number of pods (partial admission).
    #[serde(default)]
    pub min_count: Option<i32>,
    /// The kept part of the template; equal templates share one copy.
    #[serde(default, deserialize_with = "super::memo::template")]
    pub template: Arc<PodTemplate>,
    /// Where the pods should be, in the topology, and how they are numbered.
    #[serde(default)]
    pub topology_request: Option<Box<PodSetTopologyRequest>>,
}

fn main() -> String {
    "main".to_owned()
}

fn one() -> i32 {
    1
}

fn yes() -> bool {
    true
}

/// The name of a preemption gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Gate {
    /// Its name.
    pub name: String,
}

/// The request of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec {
    /// The pod sets.
    #[serde(default)]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue.
    #[serde(default)]
    pub queue_name: String,
    /// The class that the priority came from.
    #[serde(default)]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// The priority.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Whether it may run at all.
    #[serde(default = "yes")]
    pub active: bool,
    /// The longest it may be admitted, in seconds.
    #[serde(default)]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that keep it from preempting until they are open.
    #[serde(default)]
    pub preemption_gates: Vec<Gate>,
}

/// A Workload.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Workload {
    /// Name, labels, annotations, owners, finalizers.
    #[serde(deserialize_with = "super::reduced_metadata")]
    pub metadata: ObjectMeta,
    /// The request. Versions that differ only in their status share it.
    #[serde(default, deserialize_with = "shared")]
    pub spec: Arc<WorkloadSpec>,
    /// The complete status, because applies contain all of it.
    #[serde(default)]
    pub status: WorkloadStatus,
}

/// A Workload without its spec.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct WorkloadRest {
    #[serde(deserialize_with = "super::reduced_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: WorkloadStatus,
}

impl WorkloadRest {
    /// The whole, with the spec as of its present `metadata.generation`.
    #[must_use]
    pub fn with(self, spec: Arc<WorkloadSpec>) -> Workload {
        let Self { metadata, status } = self;
        Workload { metadata, spec, status }
    }
}

impl Workload {
    /// Decodes an object whose spec is known already, as of its present `metadata.generation`: the templates are most of the work.
    ///
    /// # Errors
    ///
    /// As decoding the whole does: if the metadata or the status do not have the form of a Workload's.
    pub fn with_spec<'de, D: Deserializer<'de>>(
        object: D,
        spec: Arc<WorkloadSpec>,
    ) -> Result<Self, D::Error> {
        Ok(WorkloadRest::deserialize(object)?.with(spec))
    }
}

/// Decodes a spec that others may have, too.
fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<WorkloadSpec>, D::Error> {
    let mut spec = WorkloadSpec::deserialize(deserializer)?;
    spec.pod_sets.shrink_to_fit();
    Ok(Arc::new(spec))
}

watchable!(Workload, "Workload", "kueue.x-k8s.io", "v1beta2", "workloads", NamespaceResourceScope);
