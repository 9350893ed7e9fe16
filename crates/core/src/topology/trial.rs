//! Placements that are only tried: the world's nodes, with amounts of their own.

use crate::config::Config;
use crate::intern::{FlavorId, HostId, Names, PlaceId, ResourceId};
use crate::topology::booking::NodeUsage;
use crate::topology::places::Path;
use crate::topology::request::{PlacedPods, Placement, PlacementFailure, PlacementRequest};
use crate::topology::world::Topologies;

/// The free amounts at every place, as an owned copy: trial changes affect nothing else.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    world: &'a Topologies,
    usage: NodeUsage,
    /// The domains that placements have visited, besides those that were counted.
    looked: u64,
}

impl Topologies {
    /// A copy of all amounts to try something with.
    pub(crate) fn trial(&self, usage: &NodeUsage) -> Trial<'_> {
        let mut usage = usage.clone();
        usage.ledger.grow(self.places.len());
        Trial { world: self, usage, looked: 0 }
    }
}

impl Trial<'_> {
    /// Pods take what they need of their places.
    pub(crate) fn add(&mut self, pods: &PlacedPods) {
        self.usage.add(pods);
    }

    /// Whether pods fit in their places.
    pub(crate) fn fits<'p>(&self, pods: impl Iterator<Item = &'p PlacedPods>) -> bool {
        self.usage.fits(pods)
    }

    /// The exact inverse of [`Trial::add`].
    pub(crate) fn remove(&mut self, pods: &PlacedPods) {
        self.usage.remove(pods);
    }

    /// A node, if it is known.
    pub(crate) fn host(&self, name: &str) -> Option<HostId> {
        self.world.hosts.find(name)
    }

    /// The place of a node in the tree of each flavor that it belongs to.
    pub(crate) fn homes(&self, host: HostId) -> impl Iterator<Item = (FlavorId, PlaceId)> {
        self.world.hosts.get(host).homes.iter().map(|home| (home.flavor, home.place))
    }

    /// The values of a node for the levels of a flavor's topology, if it belongs to that.
    pub(crate) fn path(&self, host: HostId, flavor: FlavorId) -> Option<Path> {
        let homes = &self.world.hosts.get(host).homes;
        homes.iter().find(|home| home.flavor == flavor).map(|home| Path::clone(&home.path))
    }

    /// Adds amounts to the places of a node, or subtracts them if the sign is negative.
    pub(crate) fn offer(&mut self, host: HostId, amounts: &[(ResourceId, i64)], sign: i128) {
        for place in self.world.hosts.get(host).open_places() {
            self.usage.ledger.offer(place, amounts, sign);
        }
    }

    /// A node has nothing for pods.
    pub(crate) fn close(&mut self, host: HostId) {
        let host = self.world.hosts.get(host);
        for place in host.open_places() {
            self.usage.ledger.offer(place, &host.offered, -1);
            self.usage.ledger.offer(place, &host.other, 1);
        }
    }

    /// Where pods go.
    pub(crate) fn place(
        &mut self,
        flavor: FlavorId,
        request: &PlacementRequest<'_>,
        names: &Names,
        config: &Config,
    ) -> Result<Placement, PlacementFailure> {
        // A search reads less of a domain than counting it.
        let domains = self.world.trees.get(&flavor).map_or(0, |tree| tree.layout().places.len());
        let read = (domains / 8).saturating_mul(request.pod_sets.len());
        self.looked = self.looked.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        self.world.place(&mut self.usage, flavor, request, names, config)
    }

    /// The usage of nodes with all changes.
    pub(crate) fn usage(&self) -> &NodeUsage {
        &self.usage
    }

    /// How many domains all placements have looked at, about.
    pub(crate) fn looked(&self) -> u64 {
        self.looked.saturating_add(self.usage.searched().1)
    }
}
