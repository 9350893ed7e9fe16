//! Usage of each slot, exact, with a journal to try things and take them back (docs/reference/06-algorithm.md 6.3).

use crate::intern::SlotId;
use crate::quota::Quota;

/// Usage per slot. Sums are exact (128 bits), so that what was added can be removed again whatever the amounts are;
/// comparisons with quota saturate as docs/reference/06-algorithm.md 6.28 has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    /// The current usage.
    values: Vec<i128>,
    journal: Vec<(SlotId, i128)>,
    trying: usize,
}

/// A point to roll back to.
#[must_use]
#[derive(Debug)]
pub(crate) struct Mark(usize);

impl Usage {
    /// A copy of the current usage alone.
    pub(crate) fn copy(&self) -> Usage {
        Usage { values: self.values.clone(), ..Usage::default() }
    }

    /// Whether a slot was there when the copy was made.
    pub(crate) fn has(&self, slot: SlotId) -> bool {
        slot.at() < self.values.len()
    }

    /// Makes room for `slots` slots.
    pub(crate) fn grow(&mut self, slots: usize) {
        self.values.resize(slots, 0);
    }

    /// The usage of a slot.
    pub(crate) fn get(&self, slot: SlotId) -> i128 {
        self.values[slot.at()]
    }

    /// Overwrites what a slot uses; for rebuilding a tree from its leaves.
    pub(crate) fn set(&mut self, slot: SlotId, value: i128) {
        self.values[slot.at()] = value;
    }

    /// Adds an amount at a ClusterQueue's slot. Only the part that the guaranteed quota of a level does not cover
    /// reaches the level above.
    pub(crate) fn add(&mut self, quota: &Quota, slot: SlotId, amount: i128) {
        let (mut at, mut amount) = (slot, amount);
        loop {
            let before = self.values[at.at()];
            if self.trying > 0 {
                self.journal.push((at, before));
            }
            self.values[at.at()] = before + amount;
            let covered = (quota.guaranteed(at) - before).max(0);
            match quota.parent(at) {
                Some(parent) if amount > covered => {
                    amount -= covered;
                    at = parent;
                }
                _ => return,
            }
        }
    }

    /// Removes an amount at a ClusterQueue's slot: the exact inverse of [`Usage::add`], in any order.
    pub(crate) fn remove(&mut self, quota: &Quota, slot: SlotId, amount: i128) {
        let (mut at, mut amount) = (slot, amount);
        loop {
            let before = self.values[at.at()];
            if self.trying > 0 {
                self.journal.push((at, before));
            }
            self.values[at.at()] = before - amount;
            let stored = before - quota.guaranteed(at);
            match quota.parent(at) {
                Some(parent) if stored > 0 => {
                    amount = amount.min(stored);
                    at = parent;
                }
                _ => return,
            }
        }
    }

    /// Starts to try something. Marks nest; each ends with [`Usage::rollback`] or [`Usage::keep`].
    pub(crate) fn mark(&mut self) -> Mark {
        self.trying += 1;
        Mark(self.journal.len())
    }

    /// Takes back everything since the mark.
    pub(crate) fn rollback(&mut self, mark: &Mark) {
        while self.journal.len() > mark.0 {
            if let Some((slot, value)) = self.journal.pop() {
                self.values[slot.at()] = value;
            }
        }
        self.ended();
    }

    /// Keeps everything since the mark.
    pub(crate) fn keep(&mut self, _mark: &Mark) {
        self.ended();
    }

    fn ended(&mut self) {
        self.trying = self.trying.saturating_sub(1);
        if self.trying == 0 {
            self.journal.clear();
        }
    }

    /// No trial is in progress, and none has left anything.
    pub(crate) fn is_settled(&self) -> bool {
        self.trying == 0 && self.journal.is_empty()
    }

    /// Takes what some slots use from elsewhere.
    pub(crate) fn copy_slots(&mut self, from: &Usage, slots: impl Iterator<Item = SlotId>) {
        self.values.resize(from.values.len(), 0);
        for slot in slots {
            self.values[slot.at()] = from.values[slot.at()];
        }
    }
}
