//! The quota of each slot and the formulas over it (docs/reference/06-algorithm.md 6.3): subtree quota, guaranteed quota, available,
//! potential, borrowing. One slot is one (ClusterQueue or Cohort, flavor, resource) that exists; the columns are
//! parallel vectors, and the way to the root is a chain of array reads.

use smallvec::SmallVec;

use crate::Amount;
use crate::intern::SlotId;
use crate::tables::TableSize;
use crate::usage::Usage;

/// "Unlimited" for exact amounts: above every possible sum.
const INFINITE: i128 = i128::MAX / 4;

/// The columns of the slots. An amount that is not limited is [`Amount::UNLIMITED`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Quota {
    parent: Vec<Option<SlotId>>,
    nominal: Vec<Amount>,
    borrow: Vec<Amount>,
    lend: Vec<Option<Amount>>,
    subtree: Vec<Amount>,
    /// `localQuota`: the part that a lending limit keeps inside.
    guaranteed: Vec<i128>,
    potential_available: Vec<Amount>,
    /// Slots that no node uses any more.
    free: Vec<SlotId>,
}

/// The quota of one slot from a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaLimits {
    pub(crate) nominal: Amount,
    pub(crate) borrow: Option<Amount>,
    pub(crate) lend: Option<Amount>,
}

impl QuotaLimits {
    /// No quota, and no limits: the slot of a node without a setting.
    pub(crate) const NONE: QuotaLimits = QuotaLimits { nominal: Amount::ZERO, borrow: None, lend: None };
}

/// An exact amount as [`Amount`], clamped to its range.
pub(crate) fn clamp(value: i128) -> Amount {
    let in_range = value.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
    Amount(i64::try_from(in_range).expect("it was clamped to the range"))
}

/// An amount as an exact number; unlimited is above every sum.
pub(crate) fn exact(amount: Amount) -> i128 {
    if amount.is_unlimited() { INFINITE } else { i128::from(amount.get()) }
}

impl Quota {
    /// How many slots there are.
    pub(crate) fn len(&self) -> usize {
        self.parent.len()
    }

    /// How long the columns are.
    pub(crate) fn size(&self) -> TableSize {
        TableSize { rows: self.len(), free: self.free.len() }
    }

    /// Takes back a slot that nothing uses.
    pub(crate) fn forget(&mut self, slot: SlotId) {
        self.set(slot, None, QuotaLimits::NONE);
        self.potential_available[slot.at()] = Amount::ZERO;
        self.free.push(slot);
    }

    /// Adds a slot without quota.
    pub(crate) fn push(&mut self) -> SlotId {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        let slot = SlotId::new(self.parent.len());
        self.parent.push(None);
        self.nominal.push(Amount::ZERO);
        self.borrow.push(Amount::UNLIMITED);
        self.lend.push(None);
        self.subtree.push(Amount::ZERO);
        self.guaranteed.push(0);
        self.potential_available.push(Amount::ZERO);
        slot
    }

    /// Sets what the spec says, and the slot of the parent node.
    pub(crate) fn set(&mut self, slot: SlotId, parent: Option<SlotId>, limits: QuotaLimits) {
        let at = slot.at();
        self.parent[at] = parent;
        self.nominal[at] = limits.nominal;
        self.borrow[at] = limits.borrow.unwrap_or(Amount::UNLIMITED);
        self.lend[at] = limits.lend;
        self.subtree[at] = limits.nominal;
        self.guaranteed[at] = 0;
    }

    /// Completes a slot whose children are complete: its guaranteed quota, and what it adds to its parent.
    pub(crate) fn complete(&mut self, slot: SlotId) {
        let at = slot.at();
        let subtree = self.subtree[at];
        let kept = self.lend[at].map_or(Amount::ZERO, |lend| subtree.sub(lend).max(Amount::ZERO));
        self.guaranteed[at] = exact(kept);
        if let Some(parent) = self.parent[at] {
            let lent = subtree.sub(kept);
            self.subtree[parent.at()] = self.subtree[parent.at()].add(lent);
        }
    }

    /// Sets the potential of a slot whose parent's is set.
    pub(crate) fn set_potential_available(&mut self, slot: SlotId) {
        let at = slot.at();
        self.potential_available[at] = match self.parent[at] {
            None => self.subtree[at],
            Some(parent) => {
                let all = clamp(self.guaranteed[at]).add(self.potential_available[parent.at()]);
                all.min(self.subtree[at].add(self.borrow[at]))
            }
        };
    }

    /// The slot of the parent node.
    pub(crate) fn parent(&self, slot: SlotId) -> Option<SlotId> {
        self.parent[slot.at()]
    }

    /// The node's own nominal quota.
    pub(crate) fn nominal(&self, slot: SlotId) -> Amount {
        self.nominal[slot.at()]
    }

    /// The borrowing limit; unlimited if there is none.
    pub(crate) fn borrowing_limit(&self, slot: SlotId) -> Amount {
        self.borrow[slot.at()]
    }

    /// The quota of the whole subtree.
    pub(crate) fn subtree(&self, slot: SlotId) -> Amount {
        self.subtree[slot.at()]
    }

    /// The part of the quota that the parent cannot lend, as an exact number.
    pub(crate) fn guaranteed(&self, slot: SlotId) -> i128 {
        self.guaranteed[slot.at()]
    }

    /// The most that the node could ever use: the maximum capacity.
    pub(crate) fn potential_available(&self, slot: SlotId) -> Amount {
        self.potential_available[slot.at()]
    }

    /// The free part of the guaranteed quota.
    pub(crate) fn local_available(&self, usage: &Usage, slot: SlotId) -> i128 {
        (self.guaranteed[slot.at()] - usage.get(slot)).max(0)
    }

    /// What the node may still use; negative if the tree exceeds its quota.
    pub(crate) fn available_signed(&self, usage: &Usage, slot: SlotId) -> Amount {
        let mut path: SmallVec<[SlotId; 8]> = SmallVec::new();
        let mut at = slot;
        while let Some(parent) = self.parent[at.at()] {
            path.push(at);
            at = parent;
        }
        let mut available = self.subtree[at.at()].sub(clamp(usage.get(at)));
        for &at in path.iter().rev() {
            let limit = self.borrow[at.at()];
            if !limit.is_unlimited() {
                let guaranteed = clamp(self.guaranteed[at.at()]);
                let stored = self.subtree[at.at()].sub(guaranteed);
                let used = clamp((usage.get(at) - self.guaranteed[at.at()]).max(0));
                available = available.min(stored.sub(used).add(limit));
            }
            available = clamp(self.local_available(usage, at)).add(available);
        }
        available
    }

    /// What a ClusterQueue may still use, at least zero.
    pub(crate) fn available(&self, usage: &Usage, slot: SlotId) -> Amount {
        self.available_signed(usage, slot).max(Amount::ZERO)
    }

    /// Whether the node's subtree would use more than its quota with `amount` more.
    pub(crate) fn borrowing_with(&self, usage: &Usage, slot: SlotId, amount: i128) -> bool {
        exact(self.subtree[slot.at()]) < usage.get(slot) + amount
    }

    /// Whether the node's subtree uses more than its quota.
    pub(crate) fn borrowing(&self, usage: &Usage, slot: SlotId) -> bool {
        self.borrowing_with(usage, slot, 0)
    }
}
