//! Places by dense id: the lowest domains of topologies, with or without nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::index_map::IndexMap;
use smallvec::SmallVec;

use crate::Name;
use crate::intern::{FlavorId, PlaceId};
use crate::tables::{TableSize, put};

/// The values of all levels, from the highest to the lowest.
pub(crate) type Path = Arc<[Name]>;

/// Identifies a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PlaceKey {
    /// A node, shared by all flavors that it belongs to.
    Host(Name),
    /// A node for one flavor (`tas_handle_overlapping_flavors` is off).
    HostOf(FlavorId, Name),
    /// A lowest domain of one flavor that is not a node.
    Domain(FlavorId, Path),
}

/// One place.
#[derive(Debug, Clone)]
struct PlaceRow {
    key: PlaceKey,
    /// The flavors of which it is a leaf, and through how many nodes each.
    links: SmallVec<[(FlavorId, usize); 1]>,
}

/// All places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    rows: Vec<Option<PlaceRow>>,
    index: IndexMap<PlaceKey, PlaceId>,
    free: Vec<usize>,
}

impl Places {
    /// The id of a place, created if necessary.
    pub(crate) fn id(&mut self, key: PlaceKey) -> PlaceId {
        if let Some(&id) = self.index.get(&key) {
            return id;
        }
        let at = self.free.pop().unwrap_or(self.rows.len());
        put(&mut self.rows, at, Some(PlaceRow { key: key.clone(), links: SmallVec::new() }));
        let id = PlaceId::new(at);
        self.index.insert(key, id);
        id
    }

    /// The id of a place, if it is known.
    pub(crate) fn find(&self, key: &PlaceKey) -> Option<PlaceId> {
        self.index.get(key).copied()
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// How long the table is.
    pub(crate) fn size(&self) -> TableSize {
        TableSize { rows: self.rows.len(), free: self.free.len() }
    }

    /// A node of a flavor is added at a place.
    pub(crate) fn link(&mut self, id: PlaceId, flavor: FlavorId) {
        let Some(place) = self.rows[id.at()].as_mut() else { return };
        match place.links.iter_mut().find(|(other, _)| *other == flavor) {
            Some((_, nodes)) => *nodes += 1,
            None => place.links.push((flavor, 1)),
        }
    }

    /// A node of a flavor is removed at a place.
    pub(crate) fn unlink(&mut self, id: PlaceId, flavor: FlavorId) {
        let Some(place) = self.rows[id.at()].as_mut() else { return };
        if let Some((_, nodes)) = place.links.iter_mut().find(|(other, _)| *other == flavor) {
            *nodes = nodes.saturating_sub(1);
        }
        place.links.retain(|(_, nodes)| *nodes > 0);
    }

    /// The flavors of which a place is a leaf now.
    pub(crate) fn flavors(&self, id: PlaceId) -> impl Iterator<Item = FlavorId> + '_ {
        self.rows[id.at()].iter().flat_map(|place| place.links.iter().map(|&(flavor, _)| flavor))
    }

    /// All places that are known, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PlaceId, &PlaceKey)> {
        self.index.iter().map(|(key, &id)| (id, key))
    }

    /// Forgets the places without nodes that are neither used nor held.
    pub(crate) fn retain(&mut self, held: &BTreeSet<PlaceId>, used: impl Fn(PlaceId) -> bool) {
        for (at, row) in self.rows.iter_mut().enumerate() {
            let id = PlaceId::new(at);
            let dead = |place: &mut PlaceRow| place.links.is_empty() && !held.contains(&id) && !used(id);
            if let Some(place) = row.take_if(dead) {
                self.index.swap_remove(&place.key);
                self.free.push(at);
            }
        }
    }
}
