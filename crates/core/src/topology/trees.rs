//! The tree of one flavor: which nodes belong to it, and the domains that they form.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Name;
use crate::intern::{FlavorId, HostId, PlaceId};
use crate::matching::label;
use crate::spec::{FlavorSpec, Toleration};
use crate::topology::latest::Latest;
use crate::topology::layout::{Around, Layout, LeafRow, Removed};
use crate::topology::places::{Path, PlaceKey};
use crate::topology::spec::{HOSTNAME, NodeSpec, TopologySpec};

/// After this number of leaves that came or went while nothing was placed all are laid out again, once that is needed.
const MOST_SPLICED: usize = 256;

/// A leaf came or went, and all others of the layout stayed in their order.
#[derive(Debug, Clone)]
pub(crate) enum Splice {
    /// It is at this position, in domains that came with it.
    Came(usize, Around),
    /// It was there.
    Went(Removed),
}

/// Up to which change of the leaves the layout was read.
#[derive(Debug, Default)]
struct Read(AtomicUsize);

impl Clone for Read {
    fn clone(&self) -> Self {
        Self(AtomicUsize::new(self.0.load(Ordering::Relaxed)))
    }
}

/// One lowest domain that has nodes.
#[derive(Debug, Clone)]
struct Leaf {
    place: PlaceId,
    /// Its nodes, in the order of their ids; one if nodes are the lowest level.
    hosts: Vec<HostId>,
    /// Its only node takes no pods: it counts for nothing until that does, or goes.
    closed: bool,
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
    /// Changes with its nodes and its flavor, but not with what is free, nor with what is in the following lists. No two trees have the same.
    pub(crate) generation: u64,
    /// The leaves whose nodes got other labels or taints.
    relabeled: Latest<PlaceId>,
    /// The leaves that came or went.
    spliced: Latest<Splice>,
    /// Laid out when a placement needs it, until many leaves have come or gone before the next one needs it.
    layout: OnceLock<Layout>,
    read: Read,
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
            relabeled: Latest::default(),
            spliced: Latest::default(),
            layout: OnceLock::new(),
            read: Read::default(),
        }
    }

    /// The flavor whose tree it is.
    pub(crate) fn flavor(&self) -> FlavorId {
        self.flavor
    }

    /// Results about it may be out of date.
    pub(crate) fn outdate(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// All of it is going to change.
    pub(crate) fn forget_layout(&mut self) {
        drop(self.layout.take());
    }

    /// A node got other labels or taints, which matter if nodes are the lowest domains.
    pub(crate) fn relabel(&mut self, place: PlaceId) {
        if self.has_hosts() {
            self.relabeled.push(place);
        }
    }

    /// The leaves whose nodes got other labels or taints, one after the other.
    pub(crate) fn relabeled(&self) -> &Latest<PlaceId> {
        &self.relabeled
    }

    /// The leaves that came or went, one after the other.
    pub(crate) fn spliced(&self) -> &Latest<Splice> {
        &self.spliced
    }

    /// Nodes are the lowest domains.
    pub(crate) fn has_hosts(&self) -> bool {
        self.levels.last().is_some_and(|level| &**level == HOSTNAME)
    }

    /// Which level has a label, counted from the highest.
    pub(crate) fn level(&self, level: &str) -> Option<usize> {
        self.levels.iter().position(|other| **other == *level)
    }

    /// The values of all levels for a node, if it belongs to the tree once it is usable (docs/reference/06-algorithm.md 6.12 "Leaves").
    pub(crate) fn path(&self, node: &NodeSpec) -> Option<Path> {
        let has = |(key, value): &(Name, Name)| label(&node.labels, key) == Some(&**value);
        if !self.node_labels.iter().all(has) {
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

    /// A node joins the tree. Says whether that is to be outdated.
    pub(crate) fn insert(&mut self, path: &Path, place: PlaceId, host: HostId) -> bool {
        let has_hosts = self.has_hosts();
        if let Some(leaf) = self.leaves.get_mut(path) {
            let at = leaf.hosts.partition_point(|&other| other < host);
            leaf.hosts.insert(at, host);
            return if at == 0 { self.has_another_first(path, has_hosts) } else { has_hosts };
        }
        self.leaves.insert(path.clone(), Leaf { place, hosts: vec![host], closed: false });
        let row = LeafRow { path, place, host, closed: false };
        self.splice(|layout| layout.insert(&row).map(|(at, around)| Splice::Came(at, around)))
    }

    /// Another node is the first one of a leaf. Where nodes are the lowest domains, its labels and taints count. Says whether the tree is to be
    /// outdated.
    fn has_another_first(&mut self, path: &Path, counts: bool) -> bool {
        if let (Some(layout), Some(leaf)) = (self.layout.get_mut(), self.leaves.get(path))
            && let Some(&first) = leaf.hosts.first()
        {
            layout.set_host(leaf.place, first);
        }
        counts
    }

    /// A leaf comes or goes. Says whether the tree is to be outdated.
    fn splice(&mut self, change: impl FnOnce(&mut Layout) -> Option<Splice>) -> bool {
        // What is not laid out was outdated before, and nothing is known of it.
        let Some(layout) = self.layout.get_mut() else { return false };
        let unread = self.spliced.end().saturating_sub(*self.read.0.get_mut());
        let Some(splice) = (if unread < MOST_SPLICED { change(layout) } else { None }) else {
            self.forget_layout();
            return true;
        };
        self.spliced.push(splice);
        false
    }

    /// Whether a node is alone in a leaf, which stays for it while it takes no pods: of domains above nodes the sum changes instead.
    pub(crate) fn is_alone(&self, path: &Path, host: HostId) -> bool {
        self.has_hosts() && self.leaves.get(path).is_some_and(|leaf| leaf.hosts == [host])
    }

    /// The only node of a leaf takes no pods any more, or takes them again.
    pub(crate) fn set_closed(&mut self, path: &Path, closed: bool) {
        let Some(leaf) = self.leaves.get_mut(path) else { return };
        leaf.closed = closed;
        if let Some(layout) = self.layout.get_mut() {
            layout.set_closed(leaf.place, closed);
        }
    }

    /// The node for which a leaf is closed.
    pub(crate) fn closed_for(&self, path: &Path) -> Option<HostId> {
        self.leaves.get(path).filter(|leaf| leaf.closed)?.hosts.first().copied()
    }

    /// A node leaves the tree. Says whether that is to be outdated.
    pub(crate) fn remove(&mut self, path: &Path, host: HostId) -> bool {
        let has_hosts = self.has_hosts();
        let Some(leaf) = self.leaves.get_mut(path) else { return false };
        let is_first = leaf.hosts.first() == Some(&host);
        leaf.hosts.retain(|&other| other != host);
        if !leaf.hosts.is_empty() {
            return if is_first { self.has_another_first(path, has_hosts) } else { has_hosts };
        }
        let place = leaf.place;
        self.leaves.remove(path);
        self.splice(|layout| layout.remove(place).map(Splice::Went))
    }

    /// Its domains in a new layout.
    fn laid_out(&self) -> Layout {
        let rows = self.leaves.iter().filter_map(|(path, leaf)| {
            leaf.hosts.first().map(|&host| LeafRow { path, place: leaf.place, host, closed: leaf.closed })
        });
        Layout::new(self.levels.len(), rows)
    }

    /// Its domains, laid out.
    pub(crate) fn layout(&self) -> &Layout {
        self.read.0.store(self.spliced.end(), Ordering::Relaxed);
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

    /// All nodes with their paths and places, those of closed leaves among them.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (HostId, &Path, PlaceId)> {
        self.leaves
            .iter()
            .flat_map(|(path, leaf)| leaf.hosts.iter().map(move |&host| (host, path, leaf.place)))
    }
}
