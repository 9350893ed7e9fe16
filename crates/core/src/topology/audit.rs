//! Checks of derived data, for tests and `Scheduler::audit`.

use crate::intern::{FlavorId, HostId, PlaceId};
use crate::spec::TaintEffect;
use crate::topology::booking::NodeUsage;
use crate::topology::columns::PODS_COLUMN;
use crate::topology::hosts::Home;
use crate::topology::request::PlacedPods;
use crate::topology::world::Topologies;

impl Topologies {
    /// Recomputes from nodes and flavors what is held besides, and reports differences.
    pub(crate) fn audit(&self, usage: &NodeUsage, found: &mut Vec<String>) {
        usage.ledger.audit(found);
        for tree in self.trees.values() {
            tree.audit(found);
        }
        self.audit_homes(found);
        self.audit_leaves(found);
        self.audit_offers(usage, found);
    }

    /// Compares what is used with what these pods take.
    pub(crate) fn audit_usage<'a>(
        &self,
        usage: &NodeUsage,
        pods: impl Iterator<Item = &'a PlacedPods>,
        found: &mut Vec<String>,
    ) {
        let mut ledger = usage.ledger.emptied();
        for one in pods {
            ledger.add(one);
        }
        for (place, key) in self.places.iter() {
            if ledger.used_row(place) != usage.ledger.used_row(place) {
                found.push(format!("topology: what is used of {key:?} is not what its pods take"));
            }
        }
    }

    /// Every node is where its labels say.
    fn audit_homes(&self, found: &mut Vec<String>) {
        for id in self.hosts.ids() {
            let host = self.hosts.get(id);
            let homes: Vec<FlavorId> = host.homes.iter().map(|home| home.flavor).collect();
            let node = host.spec.as_ref();
            let belongs = |flavor: &FlavorId| {
                let (Some(tree), Some(node)) = (self.trees.get(flavor), node) else { return false };
                // One that takes no pods may stay where it was.
                let stays = || homes.contains(flavor) && tree.has_hosts();
                tree.path(node).is_some() && (node.usable || stays())
            };
            let expected: Vec<FlavorId> = self.trees.keys().copied().filter(belongs).collect();
            if homes != expected {
                found
                    .push(format!("topology: node {id:?} is in the trees {homes:?} instead of {expected:?}"));
            }
            let taints = node.map_or(&[][..], |node| &node.taints);
            let interned = self.taints.get(self.hosts.taints(id));
            if interned.iter().ne(taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule))
            {
                found.push(format!("topology: node {id:?} has other taints than it says"));
            }
        }
    }

    /// The leaves of the trees are the homes of the nodes.
    fn audit_leaves(&self, found: &mut Vec<String>) {
        for (&flavor, tree) in &self.trees {
            let mut leaves: Vec<(HostId, PlaceId)> = tree.hosts().collect();
            leaves.sort_unstable();
            let mut homes = Vec::new();
            for id in self.hosts.ids() {
                let of = self.hosts.get(id).homes.iter().filter(|home| home.flavor == flavor);
                homes.extend(of.map(|home| (id, home.place)));
            }
            let closed = |id: &HostId, home: &Home| tree.closed_for(home.place) == Some(*id);
            for id in self.hosts.ids() {
                let host = self.hosts.get(id);
                let mut of = host.homes.iter().filter(|home| home.flavor == flavor);
                if of.any(|home| closed(&id, home) == host.is_open()) {
                    found.push(format!(
                        "topology: the leaf of node {id:?} is closed while that is open, or not"
                    ));
                }
            }
            if leaves != homes {
                found.push(format!("topology: the leaves of {flavor:?} are not the homes of its nodes"));
            }
        }
    }

    /// A place offers what its nodes do, less what other pods use.
    fn audit_offers(&self, usage: &NodeUsage, found: &mut Vec<String>) {
        let stride = usage.ledger.stride();
        let mut expected = vec![0_i128; self.places.len() * stride];
        for id in self.hosts.ids() {
            let host = self.hosts.get(id);
            for place in host.open_places() {
                for (amounts, sign) in [(&host.offered, 1), (&host.other, -1)] {
                    for &(resource, amount) in amounts {
                        let column = usage.ledger.column(resource).unwrap_or(PODS_COLUMN);
                        expected[place.at() * stride + column] += i128::from(amount) * sign;
                    }
                }
            }
        }
        for (place, _) in self.places.iter() {
            if usage.ledger.bare_row(place) != &expected[place.at() * stride..][..stride] {
                found.push(format!("topology: {place:?} does not offer what its nodes do"));
            }
        }
    }
}
