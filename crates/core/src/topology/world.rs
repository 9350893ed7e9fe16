//! The state: nodes, topologies, trees and places.

use std::collections::BTreeMap;

use crate::Name;
use crate::intern::{FlavorId, PlaceId};
use crate::spec::FlavorSpec;
use crate::topology::hosts::Hosts;
use crate::topology::places::Places;
use crate::topology::spec::{NodeSpec, TopologySpec};
use crate::topology::taints::TaintSets;
use crate::topology::trees::Tree;

/// Nodes, topologies, and the trees of the flavors that have one. Their usage is in [`NodeUsage`](super::NodeUsage).
#[derive(Debug, Clone, Default)]
pub(crate) struct Topologies {
    pub(super) specs: BTreeMap<Name, TopologySpec>,
    /// Flavors that name a topology, whether it is known or not.
    pub(super) flavors: BTreeMap<FlavorId, FlavorSpec>,
    /// The flavors whose topology is known.
    pub(super) trees: BTreeMap<FlavorId, Tree>,
    pub(super) hosts: Hosts,
    pub(super) taints: TaintSets,
    pub(super) places: Places,
    /// Every flavor counts what is used of a node by itself.
    pub(super) own_hosts: bool,
    /// How many generations trees have had: see [`Tree::generation`].
    pub(super) generations: u64,
}

impl Topologies {
    /// No nodes. `shared`: the usage of a node counts for all flavors that it belongs to.
    pub(crate) fn new(shared: bool) -> Self {
        Self { own_hosts: !shared, ..Self::default() }
    }

    /// Whether a Topology exists.
    pub(crate) fn exists(&self, name: &str) -> bool {
        self.specs.contains_key(name)
    }

    /// The flavors that may have places in common with a flavor, itself included.
    pub(crate) fn sharing(&self, flavor: FlavorId) -> Vec<FlavorId> {
        let hosts = self.has_hosts(flavor);
        let shares = |&(&other, tree): &(&FlavorId, &Tree)| other != flavor && hosts && tree.has_hosts();
        let others = self.trees.iter().filter(shares).map(|(&other, _)| other);
        std::iter::once(flavor).chain(others).collect()
    }

    /// A node, if it exists.
    pub(crate) fn node(&self, name: &str) -> Option<&NodeSpec> {
        self.hosts.get(self.hosts.find(name)?).spec.as_ref()
    }

    /// Whether a flavor has a known topology.
    pub(crate) fn knows(&self, flavor: FlavorId) -> bool {
        self.trees.contains_key(&flavor)
    }

    /// The labels of the levels of a flavor's topology, from the highest to the lowest; empty without a known topology.
    pub(crate) fn levels(&self, flavor: FlavorId) -> &[Name] {
        self.trees.get(&flavor).map_or(&[], |tree| &tree.levels)
    }

    /// Whether a flavor's topology has a level.
    pub(crate) fn has_level(&self, flavor: FlavorId, level: &str) -> bool {
        self.trees.get(&flavor).is_some_and(|tree| tree.level(level).is_some())
    }

    /// Whether some flavor has nodes at a place, and pods may go there.
    pub(crate) fn takes_pods(&self, place: PlaceId) -> bool {
        let open = |flavor| self.trees.get(&flavor).is_some_and(|tree| tree.takes_pods(place));
        self.places.flavors(place).any(open)
    }

    /// Whether nodes are the lowest domains of a flavor's topology.
    pub(crate) fn has_hosts(&self, flavor: FlavorId) -> bool {
        self.trees.get(&flavor).is_some_and(Tree::has_hosts)
    }
}
