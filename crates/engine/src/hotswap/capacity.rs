//! What a look knows of nodes, pods and quota, as input of the core, which sums up the capacity of each flavor.

use std::collections::BTreeMap;

use sluice_core::{CapacityFacts, Name, PodOnNode};

use super::snapshot::{SeenPod, Snapshot, flavors_used, holds_of};

/// The nodes and pods of a look.
pub(super) struct SeenCapacity<'s, 'a> {
    /// What the look has seen.
    pub snapshot: &'s Snapshot<'a>,
    /// The flavors, by position, in the order of their names.
    pub flavors: &'s [&'s Name],
    /// By the number of a Workload: whether it moves.
    pub moves: &'s [bool],
}

impl CapacityFacts for SeenCapacity<'_, '_> {
    fn nodes(&self) -> usize {
        self.snapshot.nodes.len()
    }

    fn allocatable(&self, node: usize) -> &BTreeMap<Name, i128> {
        self.snapshot.nodes[node].allocatable
    }

    fn has_capacity(&self, node: usize) -> bool {
        self.snapshot.nodes[node].health.has_capacity()
    }

    fn other_pods(&self) -> impl Iterator<Item = PodOnNode<'_>> {
        self.snapshot.others.iter().map(on_node)
    }

    fn workloads(&self) -> usize {
        self.snapshot.workloads.len()
    }

    fn pods(&self, workload: usize) -> impl Iterator<Item = PodOnNode<'_>> {
        self.snapshot.workloads[workload].pods.iter().map(on_node)
    }

    fn flavors(&self, workload: usize) -> impl Iterator<Item = usize> {
        let at = move |name: &str| self.flavors.binary_search_by(|flavor| (***flavor).cmp(name)).ok();
        flavors_used(self.snapshot.workloads[workload].entry).filter_map(at)
    }

    fn holds(&self, workload: usize, flavor: usize, resource: &Name) -> bool {
        holds_of(self.snapshot.workloads[workload].entry, self.flavors[flavor], resource)
    }

    fn stays(&self, workload: usize) -> bool {
        !self.moves[workload]
    }
}

fn on_node<'a>(seen: &SeenPod<'a>) -> PodOnNode<'a> {
    PodOnNode { node: seen.node, leaving: seen.pod.leaving, requests: &seen.pod.requests }
}
