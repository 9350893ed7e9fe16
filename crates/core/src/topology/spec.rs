//! Topologies, nodes and what pod sets ask of them, as plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::spec::Taint;
use crate::{Amount, Name};

/// The label whose value is a node's name: as the lowest level of a topology it makes every node a domain of its own.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// A Topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologySpec {
    /// Its name.
    pub name: Name,
    /// The node labels that its levels are, from the highest to the lowest.
    pub levels: Vec<Name>,
}

/// A Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its name.
    pub name: Name,
    /// Its labels.
    pub labels: Vec<(Name, Name)>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// `status.allocatable`, `pods` included. cpu in milli-CPU, everything else in whole units.
    pub allocatable: Vec<(Name, Amount)>,
    /// It is Ready, and not `spec.unschedulable`.
    pub usable: bool,
}

/// A pod set's request for the topology of its nodes: `topologyRequest`, if it requests anything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyRequest {
    /// Where its pods have to be together.
    pub level: RequestedLevel,
    /// Slices: this number of pods has to be in one domain of a level. The outermost first; each size is a multiple of the next.
    pub slices: Vec<SliceLayer>,
}

/// Where the pods of a pod set have to be together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestedLevel {
    /// `required`: in one domain of the level.
    Required(Name),
    /// `preferred`: in one domain of the level, or else of a higher one, or else in as few as possible.
    Preferred(Name),
    /// `unconstrained`, or only slices are asked for.
    Unconstrained,
}

/// One layer of slices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceLayer {
    /// The level of which a slice has to be in one domain.
    pub level: Name,
    /// How many pods a slice has, at least 1.
    pub size: i64,
}

/// Whether slices that lost a node may move whole, healthy pods and all, where the lost node has no replacement in their domain; pods of such a slice
/// on other nodes that take none (not ready, cordoned, gone) are replaced with the lost ones (ours: docs/concepts/hotswap.md).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SliceMoves {
    /// They stay, as with Kueue, and nothing is said about it.
    #[default]
    Off,
    /// They would, if this did not prevent it.
    Refused(Name),
    /// They may.
    Allowed,
}

/// Where the pods of one pod set are: `topologyAssignment`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyAssignment {
    /// The labels of the levels that the domains are named by: the lowest alone where it is the hostname.
    pub levels: Vec<Name>,
    /// The domains, in order: ranks and scale-down depend on it.
    pub domains: Vec<AssignedDomain>,
}

impl TopologyAssignment {
    /// Whether any of these nodes is among its domains. Only domains that are nodes are compared.
    pub fn uses_any(&self, nodes: &[Name]) -> bool {
        self.levels.last().is_some_and(|level| &**level == HOSTNAME)
            && self.domains.iter().any(|domain| domain.values.last().is_some_and(|host| nodes.contains(host)))
    }

    /// How many pods each domain has, by the last of its values.
    pub(crate) fn by_host(&self) -> BTreeMap<&Name, i64> {
        let mut pods = BTreeMap::new();
        for domain in &self.domains {
            let Some(host) = domain.values.last() else { continue };
            let count: &mut i64 = pods.entry(host).or_default();
            *count = count.saturating_add(domain.count);
        }
        pods
    }
}

/// A number of pods in one domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedDomain {
    /// A value for each level.
    pub values: Vec<Name>,
    /// How many pods.
    pub count: i64,
}

/// A shared [`TopologyAssignment`].
pub type SharedAssignment = Arc<TopologyAssignment>;
