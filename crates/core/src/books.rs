//! The books: usage of quota, of nodes and of physical capacity, with a journal to try changes and undo them.

use std::collections::BTreeMap;

use crate::intern::{FrId, SlotId};
use crate::topology::NodeUsage;
use crate::usage::Usage;

/// The usage of everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    /// Usage of quota.
    pub(crate) usage: Usage,
    /// The same without the victims of the running cycle. Current only for the trees that the cycle has overlaid.
    after_victims: Usage,
    /// Usage of nodes.
    pub(crate) nodes: NodeUsage,
    /// Usage of the pairs whose physical capacity is limited.
    pub(crate) capacity: BTreeMap<FrId, i128>,
}

/// Which usage of quota a search works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The current usage.
    Now,
    /// The usage without the victims of the running cycle.
    AfterVictims,
}

impl Books {
    /// Usage of quota.
    pub(crate) fn usage(&self, basis: Basis) -> &Usage {
        match basis {
            Basis::Now => &self.usage,
            Basis::AfterVictims => &self.after_victims,
        }
    }

    /// The same, mutable.
    pub(crate) fn usage_mut(&mut self, basis: Basis) -> &mut Usage {
        self.parts(basis).0
    }

    /// The inputs of a search: usage of quota and of nodes, which it changes and restores, and of physical capacity.
    pub(crate) fn parts(&mut self, basis: Basis) -> (&mut Usage, &mut NodeUsage, &BTreeMap<FrId, i128>) {
        let usage = match basis {
            Basis::Now => &mut self.usage,
            Basis::AfterVictims => &mut self.after_victims,
        };
        (usage, &mut self.nodes, &self.capacity)
    }

    /// Lets what the victims of this cycle leave begin with what is used now, for some slots.
    pub(crate) fn overlay(&mut self, slots: impl Iterator<Item = SlotId>) {
        self.after_victims.copy_slots(&self.usage, slots);
    }

    /// No trial of quota is in progress, and none has left anything.
    pub(crate) fn is_settled(&self) -> bool {
        self.usage.is_settled() && self.after_victims.is_settled()
    }

    /// Counts what a workload holds of a pair whose physical capacity is limited.
    pub(crate) fn add_capacity(&mut self, pair: FrId, amount: i128) {
        if let Some(used) = self.capacity.get_mut(&pair) {
            *used += amount;
        }
    }
}
