//! The usage of places by workloads and other pods.

use std::collections::{BTreeMap, BTreeSet};

use crate::cache::Cache;
use crate::intern::{FlavorId, PlaceId, ResourceId, UsedNames};
use crate::tables::TableSize;
use crate::topology::columns::PODS_COLUMN;
use crate::topology::kept::KeptCounts;
use crate::topology::ledger::{Ledger, TopologyMark};
use crate::topology::places::PlaceKey;
use crate::topology::request::PlacedPods;
use crate::topology::spec::{AssignedDomain, HOSTNAME, TopologyAssignment};
use crate::topology::world::Topologies;

/// The usage of nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeUsage {
    pub(super) ledger: Ledger,
    /// How many pods fit, kept from one placement to the next.
    pub(super) kept: Cache<KeptCounts>,
}

impl NodeUsage {
    /// Pods take what they need of their places.
    pub(crate) fn add(&mut self, pods: &PlacedPods) {
        self.ledger.add(pods);
    }

    /// The exact inverse of [`NodeUsage::add`].
    pub(crate) fn remove(&mut self, pods: &PlacedPods) {
        self.ledger.remove(pods);
    }

    /// Starts to try something. Marks nest; each ends with [`NodeUsage::rollback`].
    pub(crate) fn mark(&mut self) -> TopologyMark {
        self.ledger.mark()
    }

    /// Takes back all usage since the mark.
    pub(crate) fn rollback(&mut self, mark: &TopologyMark) {
        self.ledger.rollback(mark);
    }

    /// Whether pods fit in their places, with the current usage.
    pub(crate) fn fits<'a>(&self, pods: impl IntoIterator<Item = &'a PlacedPods>) -> bool {
        let mut needed: BTreeMap<(PlaceId, usize), i128> = BTreeMap::new();
        for one in pods {
            for &(place, count) in &one.places {
                *needed.entry((place, PODS_COLUMN)).or_default() += i128::from(count);
                for &(resource, amount) in &one.per_pod {
                    let amount = i128::from(amount) * i128::from(count);
                    match self.ledger.column(resource) {
                        Some(column) => *needed.entry((place, column)).or_default() += amount,
                        None if amount > 0 => return false,
                        None => {}
                    }
                }
            }
        }
        needed.iter().all(|(&(place, column), &amount)| amount <= 0 || self.ledger.has(place, column, amount))
    }

    /// How many placements were searched for, and how many lowest domains were counted for that.
    pub(crate) fn searched(&self) -> (u64, u64) {
        (self.kept.0.searched(), self.kept.0.counted())
    }

    /// How many domains the searches compared, besides those that an order gave.
    pub(crate) fn compared(&self) -> u64 {
        self.kept.0.compared()
    }

    /// How many domains were visited to order the levels of topologies.
    pub(crate) fn ordered(&self) -> u64 {
        self.kept.0.ordered()
    }
}

impl Topologies {
    /// The places that an assignment names, whether its nodes exist or not.
    pub(crate) fn resolve(
        &mut self,
        usage: &mut NodeUsage,
        flavor: FlavorId,
        assignment: &TopologyAssignment,
        per_pod: &[(ResourceId, i64)],
    ) -> PlacedPods {
        let by_host = assignment.levels.last().is_some_and(|level| &**level == HOSTNAME);
        let own_hosts = self.own_hosts;
        let key = |domain: &AssignedDomain| match domain.values.last() {
            Some(host) if by_host && own_hosts => PlaceKey::HostOf(flavor, host.clone()),
            Some(host) if by_host => PlaceKey::Host(host.clone()),
            _ => PlaceKey::Domain(flavor, domain.values.clone().into()),
        };
        let domains = &assignment.domains;
        let places = domains.iter().map(|domain| (self.places.id(key(domain)), domain.count)).collect();
        usage.ledger.grow(self.places.len());
        PlacedPods { places, per_pod: per_pod.iter().copied().collect() }
    }

    /// How long the table of places is.
    pub(crate) fn places_size(&self) -> TableSize {
        self.places.size()
    }

    /// Removes unused places without nodes that are not in `held`: those of all stored [`PlacedPods`].
    pub(crate) fn retain_places(&mut self, usage: &NodeUsage, held: &BTreeSet<PlaceId>) {
        self.places.retain(held, |place| usage.ledger.is_used(place));
    }

    /// Adds the ids of names that topology refers to, so that they are not given to other names.
    pub(crate) fn mark_names(&self, usage: &NodeUsage, used: &mut UsedNames) {
        used.flavors.extend(self.flavors.keys().copied());
        let flavor_of = |key: &PlaceKey| match key {
            PlaceKey::HostOf(flavor, _) | PlaceKey::Domain(flavor, _) => Some(*flavor),
            PlaceKey::Host(_) => None,
        };
        used.flavors.extend(self.places.iter().filter_map(|(_, key)| flavor_of(key)));
        used.resources.extend(usage.ledger.resources());
        for id in self.hosts.ids() {
            let host = self.hosts.get(id);
            used.resources.extend(host.offered.iter().chain(&host.other).map(|&(resource, _)| resource));
        }
    }
}
