//! Reduced kinds of cluster objects that decisions use.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::api::node::v1 as node;
use k8s_openapi::api::scheduling::v1 as scheduling;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::{Parts, watchable};

/// The kept metadata of a cluster object: name, labels, annotations, versions and times.
fn kept(full: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: full.name,
        namespace: full.namespace,
        uid: full.uid,
        resource_version: full.resource_version,
        labels: full.labels,
        deletion_timestamp: full.deletion_timestamp,
        ..ObjectMeta::default()
    }
}

/// Decodes a slim type through the full one.
macro_rules! decoded_through {
    ($full:ty => $slim:ident) => {
        impl<'de> Deserialize<'de> for $slim {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$full>::deserialize(deserializer).map(Self::from)
            }
        }
    };
}

/// A Namespace: its labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Namespace {
    /// Name, labels, whether it is being deleted.
    pub metadata: ObjectMeta,
}

impl From<core::Namespace> for Namespace {
    fn from(full: core::Namespace) -> Self {
        Self { metadata: kept(full.metadata) }
    }
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::deserialize(deserializer)?;
        Ok(core::Namespace { metadata, spec, status }.into())
    }
}

watchable!(Namespace, "Namespace", "", "v1", "namespaces", ClusterResourceScope);

/// A Node: labels, taints, what it offers and whether it is well.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// `status.allocatable`.
    pub allocatable: BTreeMap<String, Quantity>,
    /// The status of the condition `Ready`, `None` when it is missing.
    pub ready: Option<bool>,
    /// When the condition `Ready` last flipped.
    pub ready_since: Option<jiff::Timestamp>,
}

impl From<core::Node> for Node {
    fn from(full: core::Node) -> Self {
        let spec = full.spec.unwrap_or_default();
        let status = full.status.unwrap_or_default();
        let ready = status.conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "Ready");
        Self {
            metadata: kept(full.metadata),
            taints: spec.taints.unwrap_or_default(),
            unschedulable: spec.unschedulable.unwrap_or(false),
            allocatable: status.allocatable.unwrap_or_default(),
            ready: ready.as_ref().map(|c| c.status == "True"),
            ready_since: ready.and_then(|c| c.last_transition_time).map(|t| t.0),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::deserialize(deserializer)?;
        Ok(core::Node { metadata, spec, status }.into())
    }
}

watchable!(Node, "Node", "", "v1", "nodes", ClusterResourceScope);

/// A PriorityClass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PriorityClass {
    /// Its name.
    pub metadata: ObjectMeta,
    /// The priority.
    pub value: i32,
    /// Whether it applies to pods that name no class.
    pub global_default: bool,
}

impl From<scheduling::PriorityClass> for PriorityClass {
    fn from(full: scheduling::PriorityClass) -> Self {
        Self {
            metadata: kept(full.metadata),
            value: full.value.unwrap_or_default(),
            global_default: full.global_default.unwrap_or(false),
        }
    }
}

decoded_through!(scheduling::PriorityClass => PriorityClass);
watchable!(
    PriorityClass,
    "PriorityClass",
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    ClusterResourceScope
);

/// A RuntimeClass: what the API server adds to its pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeClass {
    /// Its name.
    pub metadata: ObjectMeta,
    /// `overhead.podFixed`.
    pub overhead: BTreeMap<String, Quantity>,
    /// `scheduling.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `scheduling.tolerations`.
    pub tolerations: Vec<Toleration>,
}

impl From<node::RuntimeClass> for RuntimeClass {
    fn from(full: node::RuntimeClass) -> Self {
        let scheduling = full.scheduling.unwrap_or_default();
        Self {
            metadata: kept(full.metadata),
            node_selector: scheduling.node_selector.unwrap_or_default(),
            tolerations: scheduling.tolerations.unwrap_or_default(),
            overhead: full.overhead.and_then(|o| o.pod_fixed).unwrap_or_default(),
        }
    }
}

decoded_through!(node::RuntimeClass => RuntimeClass);
watchable!(RuntimeClass, "RuntimeClass", "node.k8s.io", "v1", "runtimeclasses", ClusterResourceScope);

/// One entry of a LimitRange.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitItem {
    /// `Container` or `Pod` (others are not looked at).
    pub type_: String,
    /// The most that may be asked for.
    pub max: BTreeMap<String, Quantity>,
    /// The least that must be asked for.
    pub min: BTreeMap<String, Quantity>,
    /// Default limits.
    pub default: BTreeMap<String, Quantity>,
    /// Default requests.
    pub default_request: BTreeMap<String, Quantity>,
}

/// A LimitRange.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitRange {
    /// Name and namespace.
    pub metadata: ObjectMeta,
    /// Its entries.
    pub limits: Vec<LimitItem>,
}

impl From<core::LimitRange> for LimitRange {
    fn from(full: core::LimitRange) -> Self {
        let limits = full.spec.map(|s| s.limits).unwrap_or_default();
        Self {
            metadata: kept(full.metadata),
            limits: limits
                .into_iter()
                .map(|l| LimitItem {
                    type_: l.type_,
                    max: l.max.unwrap_or_default(),
                    min: l.min.unwrap_or_default(),
                    default: l.default.unwrap_or_default(),
                    default_request: l.default_request.unwrap_or_default(),
                })
                .collect(),
        }
    }
}

decoded_through!(core::LimitRange => LimitRange);
watchable!(LimitRange, "LimitRange", "", "v1", "limitranges", NamespaceResourceScope);
