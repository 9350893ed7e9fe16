//! What is kept of a pod that is bound to a node, what it uses of the node, and what a node has.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_api::slim;
use sluice_core::{Amount, Name};
use sluice_quantity::{CPU, Quantity};

use crate::config::ResourceConfig;
use crate::ingest::limits::LimitSummary;
use crate::ingest::requests::{Surroundings, per_pod};

/// The resource that counts pods.
pub(crate) const PODS: &str = "pods";

/// What a node has for pods: cpu in milli-CPU, everything else in whole units, rounded down.
pub(crate) type Allocatable = BTreeMap<Name, i128>;

/// The allocatable resources of a node.
pub(crate) fn allocatable(node: &slim::Node) -> Allocatable {
    node.allocatable
        .iter()
        .map(|(resource, q)| (Name::from(resource.as_str()), floor(resource, &q.0)))
        .collect()
}

fn floor(resource: &str, text: &str) -> i128 {
    let nano = Quantity::parse(text).map_or(0, |q| q.nano()).max(0);
    if resource == CPU { nano / 1_000_000 } else { nano / 1_000_000_000 }
}

/// A pod by namespace and name.
pub(crate) type PodKey = (Name, Name);

/// A pod that is bound and has not ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pod {
    /// Its node.
    pub node: Name,
    /// Its UID.
    pub(super) uid: Name,
    /// Whether it is being deleted, which takes until its node responds.
    pub leaving: bool,
    /// Whether its Workload has given its quota back since: then its job had no pods any more, whatever a lagging watch shows.
    pub(super) former: bool,
    /// The UID of its controller.
    pub controller: Option<Name>,
    /// The JobSet that it names.
    pub(super) jobset: Option<Name>,
    /// When it was first seen on its node before that was: the watch of Nodes may be behind that of Pods.
    pub(super) before_node: Option<Timestamp>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// What it uses of its node: cpu in milli-CPU, everything else in whole units; `pods` is 1.
    pub requests: Vec<(Name, Amount)>,
}

impl Pod {
    /// The UID of its controller, and the name of its JobSet.
    pub(crate) fn owners(&self) -> (Option<&Name>, Option<&Name>) {
        (self.controller.as_ref(), self.jobset.as_ref())
    }

    /// Whether another version of it is found by the same properties.
    pub(crate) fn is_indexed_like(&self, other: &Self) -> bool {
        (&self.node, self.owners(), self.leaving) == (&other.node, other.owners(), other.leaving)
    }
}

#[cfg(test)]
impl Pod {
    /// A pod of a job, by its UID, on a node.
    pub(crate) fn bound(node: &str, controller: &str) -> Self {
        Self {
            node: Name::from(node),
            uid: Name::from("uid"),
            leaving: false,
            former: false,
            controller: Some(Name::from(controller)),
            jobset: None,
            before_node: None,
            created: None,
            requests: Vec::new(),
        }
    }
}

/// What one pod of a template uses of a node, without what counts for quotas only.
pub(crate) fn takes(
    template: &slim::PodTemplate,
    limits: &LimitSummary,
    runtime_classes: &BTreeMap<Name, slim::RuntimeClass>,
) -> Vec<(Name, Amount)> {
    let plain = ResourceConfig::default();
    let around = Surroundings { limits, runtime_classes, resources: &plain };
    let (mut requests, _) = per_pod(template, "", around);
    requests.retain(|(name, amount)| **name != *PODS && *amount > Amount::ZERO);
    requests.push((Name::from(PODS), Amount(1)));
    requests
}
