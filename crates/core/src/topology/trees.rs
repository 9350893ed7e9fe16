//! The tree of one flavor: which nodes belong to it, and the domains that they form.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::Name;
use crate::intern::{FlavorId, HostId, PlaceId};
use crate::matching::label;
use crate::spec::{FlavorSpec, Toleration};
use crate::topology::layout::{Layout, LeafRow};
use crate::topology::places::{Path, PlaceKey};
use crate::topology::spec::{HOSTNAME, NodeSpec, TopologySpec};

/// After this number of changes of labels and taints all leaves are counted anew.
const MOST_RELABELED: usize = 256;

/// One lowest domain that has nodes.
#[derive(Debug, Clone)]
struct Leaf {
    place: PlaceId,
    /// Its nodes, in the order of their ids; one if nodes are the lowest level.
    hosts: Vec<HostId>,
}

/// The tree of one flavor.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    flavor: FlavorId,
    /// The Topology's name.
    pub(crate) topology: Name,
    /// The labels of its levels, from the highest to the lowest.
    pub(crate) levels: Vec<Name>,
    /// The flavor's tolerations for its pods.
    pub(crate) tolerations: Vec<Toleration>,
    node_labels: Vec<(Name, Name)>,
    leaves: BTreeMap<Path, Leaf>,
    /// Changes with its nodes and its flavor, and after many changes of labels and taints, but not with what is free. No two trees have the
    /// same.
    pub(crate) generation: u64,
    /// The leaves whose nodes got other labels or taints since that generation, one after the other, while they are few.
    relabeled: Vec<PlaceId>,
    /// Laid out when a placement needs it, until leaves come or go.
    layout: OnceLock<Layout>,
}

impl Tree {
    /// The tree of a flavor without nodes.
    pub(crate) fn new(id: FlavorId, flavor: &FlavorSpec, topology: &TopologySpec) -> Tree {
        Tree {
            flavor: id,
            topology: topology.name.clone(),
            levels: topology.levels.clone(),
            tolerations: flavor.tolerations.clone(),
            node_labels: flavor.node_labels.clone(),
            leaves: BTreeMap::new(),
            generation: 0,
            relabeled: Vec::new(),
            layout: OnceLock::new(),
        }
    }

    /// The flavor whose tree it is.
    pub(crate) fn flavor(&self) -> FlavorId {
        self.flavor
    }

    /// Results about it may be out of date.
    pub(crate) fn outdate(&mut self, generation: u64) {
        self.generation = generation;
        self.relabeled.clear();
    }

    /// A node got other labels or taints, which matter if nodes are the lowest domains. Returns whether there were too many of these changes, so that
    /// the tree is out of date.
    pub(crate) fn relabel(&mut self, place: PlaceId) -> bool {
        if !self.has_hosts() {
            return false;
        }
        self.relabeled.push(place);
        self.relabeled.len() > MOST_RELABELED
    }

    /// The leaves whose nodes got other labels or taints since its generation began, one after the other.
    pub(crate) fn relabeled(&self) -> &[PlaceId] {
        &self.relabeled
    }

    /// Nodes are the lowest domains.
    pub(crate) fn has_hosts(&self) -> bool {
        self.levels.last().is_some_and(|level| &**level == HOSTNAME)
    }

    /// Which level has a label, counted from the highest.
    pub(crate) fn level(&self, level: &str) -> Option<usize> {
        self.levels.iter().position(|other| **other == *level)
    }

    /// The values of all levels for a node, if it belongs to the tree (docs/reference/06-algorithm.md 6.12 "Leaves").
    pub(crate) fn path(&self, node: &NodeSpec) -> Option<Path> {
        let has = |(key, value): &(Name, Name)| label(&node.labels, key) == Some(&**value);
        if !node.usable || !self.node_labels.iter().all(has) {
            return None;
        }
        let value =
            |level: &Name| node.labels.iter().find(|(key, _)| key == level).map(|(_, value)| value.clone());
        self.levels.iter().map(value).collect()
    }

    /// The path of the leaf at a place.
    pub(crate) fn path_of(&self, place: PlaceId) -> Option<Path> {
        self.leaves.iter().find(|(_, leaf)| leaf.place == place).map(|(path, _)| path.clone())
    }

    /// The key of the place of a path; `shared`: a node's place is the same for all flavors.
    pub(crate) fn place_key(&self, path: &Path, shared: bool) -> PlaceKey {
        match path.last() {
            Some(host) if self.has_hosts() && shared => PlaceKey::Host(host.clone()),
            Some(host) if self.has_hosts() => PlaceKey::HostOf(self.flavor, host.clone()),
            _ => PlaceKey::Domain(self.flavor, path.clone()),
        }
    }

    /// A node joins the tree.
    pub(crate) fn insert(&mut self, path: &Path, place: PlaceId, host: HostId) {
        let leaf = self.leaves.entry(path.clone()).or_insert_with(|| Leaf { place, hosts: Vec::new() });
        let at = leaf.hosts.partition_point(|&other| other < host);
        leaf.hosts.insert(at, host);
        if at == 0 {
            drop(self.layout.take());
        }
    }

    /// A node leaves the tree.
    pub(crate) fn remove(&mut self, path: &Path, host: HostId) {
        let Some(leaf) = self.leaves.get_mut(path) else { return };
        if leaf.hosts.first() == Some(&host) {
            drop(self.layout.take());
        }
        leaf.hosts.retain(|&other| other != host);
        if leaf.hosts.is_empty() {
            self.leaves.remove(path);
        }
    }

    /// Its domains in a new layout.
    fn laid_out(&self) -> Layout {
        let rows = self.leaves.iter().filter_map(|(path, leaf)| {
            leaf.hosts.first().map(|&host| LeafRow { path, place: leaf.place, host })
        });
        Layout::new(self.levels.len(), rows)
    }

    /// Its domains, laid out.
    pub(crate) fn layout(&self) -> &Layout {
        self.layout.get_or_init(|| self.laid_out())
    }

    /// Compares the layout with the leaves.
    pub(crate) fn audit(&self, found: &mut Vec<String>) {
        if self.layout.get().is_some_and(|layout| *layout != self.laid_out()) {
            found.push(format!(
                "topology {}: the order of the domains is not that of the leaves",
                self.topology
            ));
        }
    }

    /// The lowest domains with their places, in the order of their values.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = (&Path, PlaceId)> {
        self.leaves.iter().map(|(path, leaf)| (path, leaf.place))
    }

    /// All nodes with their paths and places.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (HostId, &Path, PlaceId)> {
        self.leaves
            .iter()
            .flat_map(|(path, leaf)| leaf.hosts.iter().map(move |&host| (host, path, leaf.place)))
    }
}
