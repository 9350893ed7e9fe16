//! The tree of one flavor: which nodes belong to it, and the domains that they form.

use std::sync::OnceLock;

use smallvec::{SmallVec, smallvec};

use crate::Name;
use crate::index_map::IndexMap;
use crate::intern::{FlavorId, HostId, PlaceId};
use crate::matching::label;
use crate::spec::{FlavorSpec, Toleration};
use crate::topology::laid::{Before, Laid, Moved, Splice};
use crate::topology::latest::Latest;
use crate::topology::layout::{Layout, LeafRow};
use crate::topology::places::{Path, PlaceKey};
use crate::topology::spec::{HOSTNAME, NodeSpec, TopologySpec};

/// After this number of leaves that came or went while nothing was placed all are laid out again, once that is needed.
const MOST_SPLICED: usize = 256;

/// One lowest domain that has nodes.
#[derive(Debug, Clone)]
struct Leaf {
    path: Path,
    /// Its nodes, in the order of their ids; one if nodes are the lowest level.
    hosts: SmallVec<[HostId; 1]>,
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
    /// By place. Paths are in order only once they are laid out: an event of a node compares none of those of others.
    leaves: IndexMap<PlaceId, Leaf>,
    /// Changes with its nodes and its flavor, but not with what is free, nor with what is in the following lists. No two trees have the same.
    pub(crate) generation: u64,
    /// The leaves whose nodes got other labels or taints.
    relabeled: Latest<PlaceId>,
    /// Laid out when a placement needs it, until many leaves have come or gone before the next one needs it.
    laid: OnceLock<Box<Laid>>,
    /// Until then the layout as it was before these leaves came or went: all of them follow at once.
    before: Before,
    moved: Vec<Moved>,
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
            leaves: IndexMap::default(),
            generation: 0,
            relabeled: Latest::default(),
            laid: OnceLock::new(),
            before: Before::default(),
            moved: Vec::new(),
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
        drop(self.laid.take());
        drop(self.before.get_mut().take());
        self.moved.clear();
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
        &self.laid().spliced
    }

    /// Nodes are the lowest domains.
    pub(crate) fn has_hosts(&self) -> bool {
        self.levels.last().is_some_and(|level| &**level == HOSTNAME)
    }

    /// Which level has a label, counted from the highest.
    pub(crate) fn level(&self, level: &str) -> Option<usize> {
        self.levels.iter().position(|other| **other == *level)
    }

    /// Whether a label decides which nodes belong to it, or where they are.
    pub(crate) fn reads_label(&self, key: &str) -> bool {
        self.level(key).is_some() || label(&self.node_labels, key).is_some()
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

    /// Whether that is the path of a node.
    pub(crate) fn is_path(&self, node: &NodeSpec, path: &Path) -> bool {
        let has = |key: &Name, value: &Name| label(&node.labels, key) == Some(&**value);
        self.node_labels.iter().all(|(key, value)| has(key, value))
            && self.levels.iter().zip(path.iter()).all(|(level, value)| has(level, value))
    }

    /// The path of the leaf at a place.
    pub(crate) fn path_of(&self, place: PlaceId) -> Option<&Path> {
        self.leaves.get(&place).map(|leaf| &leaf.path)
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
        if let Some(leaf) = self.leaves.get_mut(&place) {
            let at = leaf.hosts.partition_point(|&other| other < host);
            leaf.hosts.insert(at, host);
            return if at == 0 { self.has_another_first(place, has_hosts) } else { has_hosts };
        }
        self.leaves.insert(place, Leaf { path: path.clone(), hosts: smallvec![host], closed: false });
        self.moves(Moved::Came { path: path.clone(), place, host, closed: false })
    }

    /// Another node is the first one of a leaf. Where nodes are the lowest domains, its labels and taints count. Says whether the tree is to be
    /// outdated.
    fn has_another_first(&mut self, place: PlaceId, counts: bool) -> bool {
        if let Some(&first) = self.leaves.get(&place).and_then(|leaf| leaf.hosts.first()) {
            match self.known(place) {
                Known::Laid(layout) => layout.set_host(place, first),
                Known::Came { host, .. } => *host = first,
                Known::Not => {}
            }
        }
        counts
    }

    /// A leaf comes or goes. Says whether the tree is to be outdated.
    fn moves(&mut self, moved: Moved) -> bool {
        if let Some(laid) = self.laid.take() {
            *self.before.get_mut() = Some(laid);
            self.moved.clear();
        }
        // What is not laid out was outdated before, and nothing is known of it.
        if self.before.get_mut().is_none() {
            return false;
        }
        if self.moved.len() >= MOST_SPLICED {
            self.forget_layout();
            return true;
        }
        self.moved.push(moved);
        false
    }

    /// Where a leaf that is there is known besides.
    fn known(&mut self, place: PlaceId) -> Known<'_> {
        if let Some(laid) = self.laid.get_mut() {
            return Known::Laid(&mut laid.layout);
        }
        let Some(laid) = self.before.get_mut() else { return Known::Not };
        for moved in self.moved.iter_mut().rev() {
            if let Moved::Came { place: other, host, closed, .. } = moved
                && *other == place
            {
                return Known::Came { host, closed };
            }
        }
        Known::Laid(&mut laid.layout)
    }

    /// Whether a node is alone in a leaf, which stays for it while it takes no pods: of domains above nodes the sum changes instead.
    pub(crate) fn is_alone(&self, place: PlaceId, host: HostId) -> bool {
        self.has_hosts() && self.leaves.get(&place).is_some_and(|leaf| leaf.hosts[..] == [host])
    }

    /// The only node of a leaf takes no pods any more, or takes them again.
    pub(crate) fn set_closed(&mut self, place: PlaceId, closed: bool) {
        let Some(leaf) = self.leaves.get_mut(&place) else { return };
        leaf.closed = closed;
        match self.known(place) {
            Known::Laid(layout) => layout.set_closed(place, closed),
            Known::Came { closed: known, .. } => *known = closed,
            Known::Not => {}
        }
    }

    /// Whether a place is a leaf that is not closed.
    pub(crate) fn takes_pods(&self, place: PlaceId) -> bool {
        self.leaves.get(&place).is_some_and(|leaf| !leaf.closed)
    }

    /// The node for which a leaf is closed.
    pub(crate) fn closed_for(&self, place: PlaceId) -> Option<HostId> {
        self.leaves.get(&place).filter(|leaf| leaf.closed)?.hosts.first().copied()
    }

    /// A node leaves the tree. Says whether that is to be outdated.
    pub(crate) fn remove(&mut self, place: PlaceId, host: HostId) -> bool {
        let has_hosts = self.has_hosts();
        let Some(leaf) = self.leaves.get_mut(&place) else { return false };
        let is_first = leaf.hosts.first() == Some(&host);
        leaf.hosts.retain(|other| *other != host);
        if !leaf.hosts.is_empty() {
            return if is_first { self.has_another_first(place, has_hosts) } else { has_hosts };
        }
        self.leaves.swap_remove(&place);
        self.moves(Moved::Went(place))
    }

    /// Its domains in a new layout.
    fn laid_out(&self) -> Layout {
        let rows = self.leaves.iter().filter_map(|(&place, leaf)| {
            leaf.hosts.first().map(|&host| LeafRow { path: &leaf.path, place, host, closed: leaf.closed })
        });
        let mut rows: Vec<LeafRow<'_>> = rows.collect();
        rows.sort_by(|a, b| a.path.cmp(b.path));
        Layout::new(self.levels.len(), rows.into_iter())
    }

    /// Its domains, laid out.
    pub(crate) fn layout(&self) -> &Layout {
        &self.laid().layout
    }

    fn laid(&self) -> &Laid {
        self.laid.get_or_init(|| match self.before.take() {
            Some(mut laid) => {
                laid.follow(&self.moved);
                laid
            }
            None => Box::new(Laid::of(self.laid_out())),
        })
    }

    /// Compares the layout with the leaves.
    pub(crate) fn audit(&self, found: &mut Vec<String>) {
        let copy;
        let layout = match self.laid.get() {
            Some(laid) => &laid.layout,
            // A copy follows: that the leaves are looked at here is no reason to lay them out.
            None if self.before.is_some() => {
                copy = self.clone();
                copy.layout()
            }
            None => return,
        };
        if *layout != self.laid_out() {
            found.push(format!(
                "topology {}: the order of the domains is not that of the leaves",
                self.topology
            ));
        }
    }

    /// All nodes with their places, those of closed leaves among them.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (HostId, PlaceId)> {
        self.leaves.iter().flat_map(|(&place, leaf)| leaf.hosts.iter().map(move |&host| (host, place)))
    }
}

/// Where a leaf is known besides the leaves themselves.
enum Known<'a> {
    /// In the layout.
    Laid(&'a mut Layout),
    /// Among those that came since.
    Came { host: &'a mut HostId, closed: &'a mut bool },
    /// Nowhere: nothing is laid out.
    Not,
}
