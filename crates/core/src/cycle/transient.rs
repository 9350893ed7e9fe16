//! Usage that only lasts for the cycle: that of entries that are not admitted in it (docs/reference/06-algorithm.md 6.5).

use super::entry::{CycleState, Entry};
use crate::books::Basis;
use crate::intern::SlotId;
use crate::quota::exact;
use crate::scheduler::Scheduler;
use crate::spec::PreemptionPolicy;
use crate::topology::PlacedPods;

impl Scheduler {
    /// Adds usage for the rest of the cycle.
    fn add_transient(&mut self, entry: &Entry, slot: SlotId, amount: i128, state: &mut CycleState) {
        self.world.workloads.get_mut(entry.head.workload).keeps_capacity |= amount > 0;
        self.books.usage.add(&self.world.forest.quota, slot, amount);
        let root = self.world.forest.node(entry.head.node).root;
        state.transient.entry(root).or_default().push((slot, amount));
        self.add_to_overlay(entry, slot, amount, state);
    }

    /// Adds usage to the view without the victims of the cycle.
    pub(super) fn add_to_overlay(&mut self, entry: &Entry, slot: SlotId, amount: i128, state: &CycleState) {
        let root = self.world.forest.node(entry.head.node).root;
        if state.overlaid.contains(&root) {
            self.books.usage_mut(Basis::AfterVictims).add(&self.world.forest.quota, slot, amount);
        }
    }

    /// Adds the usage of the entry, so that later entries do not take it.
    pub(super) fn occupy(&mut self, entry: &Entry, state: &mut CycleState) {
        for quantity in &entry.assignment.usage {
            let amount = self.beyond_replaced(entry, quantity.pair, quantity.amount);
            self.add_transient(entry, quantity.slot, amount, state);
        }
        for pods in nodes_of(entry) {
            self.books.nodes.add(pods);
            state.transient_pods.push(pods.clone());
        }
    }

    /// Reserves capacity for an entry that waits for workloads which it may not preempt: later entries must not take it. A queue that may reclaim any
    /// usage gets it back anyway (docs/reference/06-algorithm.md 6.5 step 6).
    pub(super) fn reserve(&mut self, entry: &Entry, state: &mut CycleState) {
        let remembered = entry.preemptor && self.world.config.gates.prioritize_preemptor_workloads;
        if self.world.queues[entry.head.queue.at()].reclaim_policy() == PreemptionPolicy::Any && !remembered {
            return;
        }
        for quantity in &entry.assignment.usage {
            let wanted = self.beyond_replaced(entry, quantity.pair, quantity.amount);
            let quota = &self.world.forest.quota;
            let used = self.books.usage.get(quantity.slot);
            let nominal = quota.nominal(quantity.slot);
            let limit = if entry.assignment.borrow > 0 {
                nominal.add(quota.borrowing_limit(quantity.slot))
            } else {
                nominal
            };
            let amount = wanted.min(exact(limit) - used).max(0);
            self.add_transient(entry, quantity.slot, amount, state);
            if amount > 0 {
                let root = self.world.forest.node(entry.head.node).root;
                let reserved = (entry.head.workload, quantity.slot, amount);
                state.reserved.entry(root).or_default().push(reserved);
            }
        }
        for pods in nodes_of(entry) {
            self.books.nodes.add(pods);
            state.reserved_pods.push((entry.head.workload, pods.clone()));
        }
    }

    /// Runs `run` without the nodes that heads without victims reserved in this cycle.
    pub(super) fn without_reserved<T>(&mut self, state: &CycleState, run: impl FnOnce(&mut Self) -> T) -> T {
        let mark = self.books.nodes.mark();
        for (_, pods) in &state.reserved_pods {
            self.books.nodes.remove(pods);
        }
        let outcome = run(self);
        self.books.nodes.rollback(&mark);
        outcome
    }
}

/// The nodes that the entry will use.
fn nodes_of(entry: &Entry) -> impl Iterator<Item = &PlacedPods> {
    entry.assignment.nodes.iter().map(|nodes| &nodes.pods).filter(|pods| !pods.places.is_empty())
}
