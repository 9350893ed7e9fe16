//! Finds and reuses rows without references, so that the length of tables depends on the existing objects alone: tenants make LocalQueues, and
//! Workloads that name queues and resources, by the thousand with ever new names.
//!
//! When a table has grown by half since the last sweep, and something was removed or replaced since, all existing objects are visited once, which
//! costs as much as creating them did. References are not counted, and decisions do not depend on ids.

use std::collections::BTreeSet;

use super::Scheduler;
use crate::Name;
use crate::cluster_queue::ClusterQueue;
use crate::intern::{LocalId, NodeId, QueueId, UsedNames};
use crate::local_queue::LocalQueue;
use crate::tables::{TABLES, TableSize};
use crate::workloads::TopologyReservation;

impl Scheduler {
    /// How long each table is.
    pub(crate) fn sizes(&self) -> [TableSize; TABLES] {
        let [flavors, resources, pairs] = self.world.names.sizes();
        let queues = TableSize { rows: self.world.queues.len(), free: self.world.free_queues.len() };
        let locals = TableSize { rows: self.world.locals.len(), free: self.world.free_locals.len() };
        let (nodes, slots) = (self.world.forest.size(), self.world.forest.quota.size());
        [flavors, resources, pairs, nodes, slots, queues, locals, self.world.topology.places_size()]
    }

    /// Looks for dead rows if a table has become long. No id is in the caller's hands.
    pub(crate) fn sweep_if_due(&mut self) {
        if self.sweeps.may_find_any() && self.sweeps.is_due(self.sizes()) {
            self.sweep();
            self.sweeps.done(self.sizes());
        }
    }

    /// Forgets all rows that nothing refers to.
    pub(crate) fn sweep(&mut self) {
        // Trees are what specs say, and hold no memory of what they were.
        self.refresh();
        let nodes = self.sweep_queues();
        self.sweep_locals();
        self.sweep_forest(&nodes);
        let pods = self.world.workloads.all_pods().chain(self.agenda.second_passes.lent_pods());
        let held = pods.flat_map(|pods| &pods.places).map(|&(place, _)| place).collect();
        self.world.topology.retain_places(&self.books.nodes, &held);
        self.sweep_names();
    }

    /// Removes ClusterQueues without an object or references from LocalQueues and Workloads; returns their nodes.
    fn sweep_queues(&mut self) -> Vec<NodeId> {
        let mut used = BTreeSet::new();
        for (_, workload) in self.world.workloads.iter() {
            used.extend(workload.reservation().map(|reservation| reservation.queue));
            used.extend(workload.waiting().and_then(|waiting| waiting.at).map(|at| at.0));
        }
        let is_dead = |id: QueueId| {
            let queue = &self.world.queues[id.at()];
            queue.spec.is_none() && queue.locals.is_empty() && !used.contains(&id)
        };
        let dead: Vec<QueueId> = self.world.queue_index.values().copied().filter(|&id| is_dead(id)).collect();
        let mut nodes = Vec::new();
        for id in dead {
            // Classes that failed may be remembered without a member.
            self.flush_queue(id);
            let node = self.world.queues[id.at()].node;
            let row = ClusterQueue::new(Name::from(""), node);
            let old = std::mem::replace(&mut self.world.queues[id.at()], row);
            self.world.queue_index.swap_remove(&old.name);
            self.world.free_queues.push(id);
            nodes.push(node);
        }
        nodes
    }

    /// Removes LocalQueues without an object or references from Workloads.
    fn sweep_locals(&mut self) {
        let mut used: BTreeSet<LocalId> =
            self.world.workloads.iter().map(|(_, workload)| workload.local).collect();
        used.extend(self.world.queues.iter().flat_map(|queue| queue.pending.locals()));
        let is_dead = |id: LocalId| {
            let local = &self.world.locals[id.at()];
            local.spec.is_none() && !local.ledger.has_charges() && !used.contains(&id)
        };
        let dead: Vec<LocalId> = self.world.local_index.values().copied().filter(|&id| is_dead(id)).collect();
        for id in dead {
            let row = LocalQueue::new(Name::from(""), Name::from(""));
            let old = std::mem::replace(&mut self.world.locals[id.at()], row);
            if let Some(of_namespace) = self.world.namespace_locals.get_mut(&old.namespace) {
                of_namespace.retain(|other| *other != id);
                if of_namespace.is_empty() {
                    self.world.namespace_locals.swap_remove(&old.namespace);
                }
            }
            self.world.local_index.swap_remove(&(old.namespace, old.name));
            self.world.free_locals.push(id);
        }
    }

    /// Forgets nodes and slots.
    fn sweep_forest(&mut self, queues: &[NodeId]) {
        // The status of a removed Cohort may still have to be reported.
        let kept = |id: NodeId| self.changes.nodes.has(id.at());
        let usage = self.world.workloads.iter().filter_map(|(_, workload)| workload.reservation());
        let used = usage.flat_map(|reservation| &reservation.usage).map(|&(_, slot, _)| slot);
        let (gone, lost) = self.world.forest.sweep(&mut self.books.usage, queues, kept, used);
        for id in gone {
            self.world.lendable.forget(id);
            self.agenda.loops.outside_change(id);
            self.agenda.began_to_borrow.retain(|(node, _)| *node != id);
        }
        for root in lost {
            self.world.lendable.rebuild(&self.world.forest, &self.world.names, root);
        }
    }

    /// Forgets names of flavors and resources, and pairs.
    fn sweep_names(&mut self) {
        let mut used = UsedNames::default();
        let existing =
            self.world.flavors.iter().flatten().filter_map(|spec| self.world.names.find_flavor(&spec.name));
        used.flavors.extend(existing);
        used.resources.extend(self.world.pods);
        self.world.topology.mark_names(&self.books.nodes, &mut used);
        used.resources.extend(self.world.shapes.resources());
        used.resources.extend(self.world.lendable.resources());
        used.pairs.extend(self.world.forest.pairs());
        used.pairs.extend(self.world.capacity.pairs());
        used.pairs.extend(self.agenda.began_to_borrow.iter().map(|(_, pair)| *pair));
        for queue in &self.world.queues {
            for group in &queue.groups {
                used.resources.extend(&group.covered);
                used.flavors.extend(&group.flavors);
                used.pairs.extend(group.pairs.iter().flatten());
            }
            used.pairs.extend(queue.admitted_usage.keys());
        }
        for local in &self.world.locals {
            used.resources.extend(local.ledger.resources());
            used.pairs.extend(local.usage.keys());
        }
        for (_, workload) in self.world.workloads.iter() {
            let usage = workload.reservation().into_iter().flat_map(|reservation| &reservation.usage);
            used.pairs.extend(usage.map(|&(pair, _, _)| pair));
            let topology = workload.reservation().and_then(|reservation| reservation.topology.as_deref());
            let nodes = topology.into_iter().flat_map(|topology| &topology.pod_sets);
            used.flavors.extend(nodes.map(|nodes| nodes.flavor));
            let pods = topology.into_iter().flat_map(TopologyReservation::pods);
            used.resources.extend(pods.flat_map(|pods| &pods.per_pod).map(|&(resource, _)| resource));
            used.resources.extend(workload.last_assignment.iter().flat_map(|last| last.resources()));
        }
        self.world.names.retain(used);
    }
}

#[cfg(test)]
mod tests;
