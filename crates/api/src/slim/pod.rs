//! The pod template, reduced to what requests, matching, start and stop need.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Container as FullContainer, NodeSelectorTerm, PodSchedulingGate, PodSpec, PodTemplateSpec,
    ResourceRequirements, Toleration,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Deserializer};

/// Requests and limits by resource name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// The requests.
    pub requests: BTreeMap<String, Quantity>,
    /// The limits.
    pub limits: BTreeMap<String, Quantity>,
}

impl Resources {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }
}

impl From<ResourceRequirements> for Resources {
    fn from(full: ResourceRequirements) -> Self {
        Self { requests: full.requests.unwrap_or_default(), limits: full.limits.unwrap_or_default() }
    }
}

/// One container: its name and resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// The container's name.
    pub name: String,
    /// Its resources.
    pub resources: Resources,
    /// Whether an init container keeps running (`restartPolicy: Always`).
    pub sidecar: bool,
}

impl From<FullContainer> for Container {
    fn from(full: FullContainer) -> Self {
        Self {
            sidecar: full.restart_policy.as_deref() == Some("Always"),
            resources: full.resources.map(Resources::from).unwrap_or_default(),
            name: full.name,
        }
    }
}

/// A pod template without what no decision needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodTemplate {
    /// Labels of the pods.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    pub annotations: BTreeMap<String, String>,
    /// The init containers.
    pub init_containers: Vec<Container>,
    /// The containers.
    pub containers: Vec<Container>,
    /// Resources of the pod as a whole.
    pub resources: Resources,
    /// `spec.overhead`.
    pub overhead: BTreeMap<String, Quantity>,
    /// The RuntimeClass that overhead is taken from when the template has none.
    pub runtime_class_name: Option<String>,
    /// The node selector.
    pub node_selector: BTreeMap<String, String>,
    /// The unchanged affinity, to be restored when the job stops.
    pub affinity: Option<Box<Affinity>>,
    /// The tolerations.
    pub tolerations: Vec<Toleration>,
    /// The scheduling gates.
    pub scheduling_gates: Vec<PodSchedulingGate>,
    /// `spec.priorityClassName`.
    pub priority_class_name: Option<String>,
    /// Whether the pods name ResourceClaims.
    pub has_resource_claims: bool,
    /// The hash for the comparison by docs/reference/06-algorithm.md 6.20, besides counts and tolerations: [`crate::names::containers_hash`].
    pub containers_hash: u64,
    /// The hash of a pod's requests: [`crate::names::requests_hash`].
    pub requests_hash: u64,
    /// Equal for equal templates ([`crate::names::template_hash`]).
    pub template_hash: u64,
    /// Equal for templates that are equal to a scheduler ([`crate::names::scheduling_hash`]).
    pub scheduling_hash: u64,
}

impl PodTemplate {
    /// The required node affinity: any of these terms.
    pub fn node_affinity(&self) -> &[NodeSelectorTerm] {
        let nodes = self.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            nodes.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
        required.map_or(&[], |required| &required.node_selector_terms)
    }
}

impl From<PodTemplateSpec> for PodTemplate {
    fn from(full: PodTemplateSpec) -> Self {
        let template_hash = crate::names::template_hash(&full);
        let metadata = full.metadata.unwrap_or_default();
        let spec = full.spec.unwrap_or_default();
        Self {
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            containers_hash: crate::names::containers_hash(&spec),
            requests_hash: crate::names::requests_hash(&spec),
            template_hash,
            scheduling_hash: crate::names::scheduling_hash(&spec),
            ..Self::from(spec)
        }
    }
}

impl From<PodSpec> for PodTemplate {
    fn from(spec: PodSpec) -> Self {
        Self {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            init_containers: spec
                .init_containers
                .unwrap_or_default()
                .into_iter()
                .map(Container::from)
                .collect(),
            containers: spec.containers.into_iter().map(Container::from).collect(),
            resources: spec.resources.map(Resources::from).unwrap_or_default(),
            overhead: spec.overhead.unwrap_or_default(),
            runtime_class_name: spec.runtime_class_name,
            node_selector: spec.node_selector.unwrap_or_default(),
            affinity: spec.affinity.map(Box::new),
            tolerations: spec.tolerations.unwrap_or_default(),
            scheduling_gates: spec.scheduling_gates.unwrap_or_default(),
            priority_class_name: spec.priority_class_name.filter(|n| !n.is_empty()),
            has_resource_claims: spec.resource_claims.is_some_and(|c| !c.is_empty()),
            containers_hash: 0,
            requests_hash: 0,
            template_hash: 0,
            scheduling_hash: 0,
        }
    }
}

impl<'de> Deserialize<'de> for PodTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        PodTemplateSpec::deserialize(deserializer).map(Self::from)
    }
}
