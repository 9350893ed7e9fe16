//! Nodes by dense id, with what they offer, what other pods use of them and where in which tree they are.

use smallvec::SmallVec;

use crate::Name;
use crate::index_map::IndexMap;
use crate::intern::{FlavorId, HostId, PlaceId, ResourceId};
use crate::tables::put;
use crate::topology::places::Path;
use crate::topology::spec::NodeSpec;
use crate::topology::taints::NO_TAINTS;

/// The position of a node in the tree of one flavor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    /// The flavor.
    pub(crate) flavor: FlavorId,
    /// The values of all levels of its topology.
    pub(crate) path: Path,
    /// Its leaf's place.
    pub(crate) place: PlaceId,
}

/// A node, or the data of one that does not exist (yet).
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    /// The node, if it exists.
    pub(crate) spec: Option<NodeSpec>,
    /// Its allocatable resources, by id.
    pub(crate) offered: Vec<(ResourceId, i64)>,
    /// Its usage by pods outside of topologies.
    pub(crate) other: Vec<(ResourceId, i64)>,
    /// Where it is, in the order of flavors. A node that is not usable comes nowhere; where it is alone in its leaf, it stays until it is
    /// usable again, and the leaf is closed.
    pub(crate) homes: Vec<Home>,
}

impl Host {
    /// Its places, each once.
    pub(crate) fn places(&self) -> SmallVec<[PlaceId; 4]> {
        let mut places: SmallVec<[PlaceId; 4]> = self.homes.iter().map(|home| home.place).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// Whether it takes pods.
    pub(crate) fn is_open(&self) -> bool {
        self.spec.as_ref().is_some_and(|node| node.usable)
    }

    /// The places for which it has something.
    pub(crate) fn open_places(&self) -> SmallVec<[PlaceId; 4]> {
        if self.is_open() { self.places() } else { SmallVec::new() }
    }

    /// The flavors that it has something for.
    pub(crate) fn open_flavors(&self) -> Vec<FlavorId> {
        if self.is_open() { self.homes.iter().map(|home| home.flavor).collect() } else { Vec::new() }
    }
}

/// All nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    rows: Vec<Host>,
    /// The number of its taints, for each node.
    taints: Vec<usize>,
    index: IndexMap<Name, HostId>,
    free: Vec<usize>,
}

impl Hosts {
    /// The id of a node's name, created if necessary.
    pub(crate) fn id(&mut self, name: &Name) -> HostId {
        if let Some(&id) = self.index.get(name) {
            return id;
        }
        let at = self.free.pop().unwrap_or(self.rows.len());
        put(&mut self.rows, at, Host::default());
        put(&mut self.taints, at, NO_TAINTS);
        let id = HostId::new(at);
        self.index.insert(name.clone(), id);
        id
    }

    /// The id of a node's name, if it is known.
    pub(crate) fn find(&self, name: &str) -> Option<HostId> {
        self.index.get(name).copied()
    }

    /// A node.
    pub(crate) fn get(&self, id: HostId) -> &Host {
        &self.rows[id.at()]
    }

    /// A node, to change it.
    pub(crate) fn get_mut(&mut self, id: HostId) -> &mut Host {
        &mut self.rows[id.at()]
    }

    /// The number of a node's taints.
    pub(crate) fn taints(&self, id: HostId) -> usize {
        self.taints[id.at()]
    }

    /// Replaces the number of a node's taints; returns the previous one.
    pub(crate) fn set_taints(&mut self, id: HostId, taints: usize) -> usize {
        std::mem::replace(&mut self.taints[id.at()], taints)
    }

    /// Removes a node that does not exist and has no usage.
    pub(crate) fn forget_if_unknown(&mut self, name: &str) {
        let Some(id) = self.find(name) else { return };
        let host = self.get(id);
        if host.spec.is_none() && host.other.is_empty() {
            self.index.swap_remove(name);
            self.rows[id.at()] = Host::default();
            self.free.push(id.at());
        }
    }

    /// All nodes that are known, in the order of their ids.
    pub(crate) fn ids(&self) -> Vec<HostId> {
        let mut ids: Vec<HostId> = self.index.values().copied().collect();
        ids.sort_unstable();
        ids
    }
}
