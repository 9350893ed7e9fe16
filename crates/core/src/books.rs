//! What is booked: usage of quota, of nodes and of physical capacity, with a journal to try things and take them back.

use std::collections::BTreeMap;

use crate::intern::{FrId, SlotId};
use crate::topology::NodeUsage;
use crate::usage::Usage;

/// What is booked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Books {
    /// What is used of quota.
    pub(crate) usage: Usage,
    /// The same with the victims of the running cycle gone. Current for the trees that the cycle has overlaid, and for them alone.
    after_victims: Usage,
    /// What is used of nodes.
    pub(crate) nodes: NodeUsage,
    /// What is used of the pairs whose physical capacity is limited.
    pub(crate) capacity: BTreeMap<FrId, i128>,
}

/// Which usage of quota a search works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// What is used now.
    Now,
    /// The same with the victims of the running cycle gone.
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

    /// The same, to be changed.
    pub(crate) fn usage_mut(&mut self, basis: Basis) -> &mut Usage {
        self.parts(basis).0
    }

    /// What a search works on: usage of quota and of nodes, which it changes and restores, and of physical capacity.
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

    /// Nothing of quota is being tried, and nothing is left of what was.
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
