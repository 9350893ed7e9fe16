//! Topology: nodes, the domains that they form, what is used of them, and where pods go (docs/reference/06-algorithm.md 6.11–6.15).

mod request;
mod spec;

pub use request::{Exclusions, PlacementFailure, PlacementFit};
pub(crate) use request::{PlacedPods, Placement, PlacementRequest, PodSetPlacement, PodSetToPlace};
pub use spec::{
    AssignedDomain, HOSTNAME, NodeSpec, RequestedLevel, SharedAssignment, SliceLayer, TopologyAssignment,
    TopologyRequest, TopologySpec,
};

use crate::Name;
use crate::config::Config;
use crate::intern::{FlavorId, Names, ResourceId};
use crate::spec::FlavorSpec;

/// A point to roll back to.
#[must_use]
#[derive(Debug)]
pub(crate) struct TopologyMark(usize);

/// Nodes, topologies, the trees of the flavors that have one, and what workloads and other pods use of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Topologies {}

impl Topologies {
    /// Takes in a Topology, or takes it away. Returns the flavors that it concerns.
    pub(crate) fn set_topology(&mut self, name: &Name, spec: Option<&TopologySpec>) -> Vec<FlavorId> {
        unimplemented!("{name}{spec:?}")
    }
    /// Whether a Topology exists.
    pub(crate) fn exists(&self, name: &str) -> bool {
        unimplemented!("{name}")
    }
    /// Takes in a flavor, or takes it away: its `topology`, `node_labels`, `taints` and `tolerations`.
    pub(crate) fn set_flavor(&mut self, id: FlavorId, spec: Option<&FlavorSpec>) {}
    /// Takes in a Node. Returns the flavors that it concerns, before or after, if anything changed that matters to them.
    pub(crate) fn set_node(&mut self, names: &mut Names, node: &NodeSpec) -> Vec<FlavorId> {
        unimplemented!("{names:?}{node:?}")
    }
    /// A Node is gone. Returns the flavors that it concerns.
    pub(crate) fn remove_node(&mut self, name: &str) -> Vec<FlavorId> {
        unimplemented!("{name}")
    }
    /// What pods that are not placed by topology take of a node, `pods` included; the node need not exist yet. Returns the flavors
    /// that it concerns, if something was freed.
    pub(crate) fn set_other_usage(&mut self, node: &Name, usage: &[(ResourceId, i64)]) -> Vec<FlavorId> {
        unimplemented!("{node}{usage:?}")
    }
    /// Whether a flavor has a topology that is known.
    pub(crate) fn knows(&self, flavor: FlavorId) -> bool {
        unimplemented!("{flavor:?}")
    }
    /// Whether a flavor's topology has a level.
    pub(crate) fn has_level(&self, flavor: FlavorId, level: &str) -> bool {
        unimplemented!("{flavor:?}{level}")
    }
    /// Whether nodes are the lowest domains of a flavor's topology.
    pub(crate) fn has_hosts(&self, flavor: FlavorId) -> bool {
        unimplemented!("{flavor:?}")
    }
    /// The flavors that may have places in common with a flavor, itself included.
    pub(crate) fn sharing(&self, flavor: FlavorId) -> Vec<FlavorId> {
        unimplemented!("{flavor:?}")
    }
    /// A counter that changes when places of a flavor may have become free, or nodes changed.
    pub(crate) fn generation(&self, flavor: FlavorId) -> u64 {
        unimplemented!("{flavor:?}")
    }
    /// The places that an assignment names, whether its nodes exist or not.
    pub(crate) fn resolve(
        &mut self,
        flavor: FlavorId,
        assignment: &TopologyAssignment,
        per_pod: &[(ResourceId, i64)],
        config: &Config,
    ) -> PlacedPods {
        unimplemented!("{flavor:?}{assignment:?}{per_pod:?}{config:?}")
    }
    /// Pods take what they need of their places.
    pub(crate) fn add(&mut self, pods: &PlacedPods) {}
    /// The exact inverse of [`Topologies::add`].
    pub(crate) fn remove(&mut self, pods: &PlacedPods) {}
    /// Starts to try something. Marks nest; each ends with [`Topologies::rollback`] or [`Topologies::keep`].
    pub(crate) fn mark(&mut self) -> TopologyMark {
        TopologyMark(0)
    }
    /// Takes back all usage since the mark.
    pub(crate) fn rollback(&mut self, mark: &TopologyMark) {}
    /// Keeps all usage since the mark.
    pub(crate) fn keep(&mut self, mark: &TopologyMark) {}
    /// Whether pods fit where they are to go, with what is used now.
    pub(crate) fn fits(&self, pods: &[&PlacedPods]) -> bool {
        unimplemented!("{pods:?}")
    }
    /// Where pods go (docs/reference/06-algorithm.md 6.12).
    pub(crate) fn place(
        &mut self,
        flavor: FlavorId,
        request: &PlacementRequest<'_>,
        names: &Names,
        config: &Config,
    ) -> Result<Placement, PlacementFailure> {
        unimplemented!("{flavor:?}{request:?}{names:?}{config:?}")
    }
}
