//! Dominant resource shares (docs/reference/06-algorithm.md 6.8).

use std::cmp::Ordering;

use smallvec::SmallVec;

use crate::Amount;
use crate::forest::Forest;
use crate::intern::{Names, NodeId, ResourceId};
use crate::quota::{clamp, exact};
use crate::usage::Usage;

/// A node's dominant resource share relative to its parent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share {
    /// 1000 × borrowed / lendable of the resource for which that is largest.
    unweighted: f64,
    weight: f64,
    borrowing: bool,
}

impl Share {
    /// Nothing borrowed.
    pub(crate) const ZERO: Share = Share { unweighted: 0.0, weight: 1.0, borrowing: false };

    /// Something is borrowed, though the share may still be zero.
    pub(crate) const fn is_borrowing(self) -> bool {
        self.borrowing
    }

    /// Weight zero and borrowing: above every finite share.
    fn is_infinite(self) -> bool {
        self.borrowing && self.weight <= 0.0
    }

    fn weighted(self) -> f64 {
        if self.weight <= 0.0 { 0.0 } else { self.unweighted / self.weight }
    }

    /// The order of shares: nodes of weight zero that borrow are above all others, and among those the unweighted share
    /// decides.
    pub(crate) fn compare(self, other: Share) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.unweighted.total_cmp(&other.unweighted),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.weighted().total_cmp(&other.weighted()),
        }
    }

    /// The exact value; infinite for weight zero and borrowing.
    pub(crate) fn exact(self) -> f64 {
        if self.is_infinite() { f64::INFINITY } else { self.weighted() }
    }

    /// The status value: rounded up, the largest number for infinite.
    #[expect(clippy::cast_possible_truncation, reason = "a float turns into the nearest integer, saturating")]
    pub(crate) fn rounded(self) -> i64 {
        if self.is_infinite() { i64::MAX } else { libm::ceil(self.weighted()) as i64 }
    }
}

/// How much each Cohort could lend of each resource: the sum of the potential of its (flavor, resource) pairs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lendable {
    rows: Vec<Vec<(ResourceId, Amount)>>,
}

impl Lendable {
    /// Recomputes the Cohorts of a tree.
    pub(crate) fn rebuild(&mut self, forest: &Forest, names: &Names, root: NodeId) {
        for &id in forest.members(root) {
            if self.rows.len() <= id.at() {
                self.rows.resize(id.at() + 1, Vec::new());
            }
            self.rows[id.at()] =
                if forest.node(id).queue.is_none() { row(forest, names, root, id) } else { Vec::new() };
        }
    }

    /// A node is gone.
    pub(crate) fn forget(&mut self, id: NodeId) {
        if let Some(row) = self.rows.get_mut(id.at()) {
            row.clear();
        }
    }

    /// The resources that can be lent.
    pub(crate) fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.rows.iter().flatten().map(|(id, _)| *id)
    }

    fn get(&self, node: NodeId, resource: ResourceId) -> Amount {
        self.rows
            .get(node.at())
            .and_then(|row| row.iter().find(|(id, _)| *id == resource))
            .map_or(Amount::ZERO, |(_, amount)| *amount)
    }
}

fn row(forest: &Forest, names: &Names, root: NodeId, id: NodeId) -> Vec<(ResourceId, Amount)> {
    let mut row: Vec<(ResourceId, Amount)> = Vec::new();
    for &(pair, _) in forest.node(root).slots() {
        // A node without a slot sets no limit: it has the potential of its nearest ancestor with a slot.
        let slot = std::iter::once(id).chain(forest.ancestors(id)).find_map(|at| forest.node(at).slot(pair));
        let potential_available = slot.map_or(Amount::ZERO, |slot| forest.quota.potential_available(slot));
        let (_, resource) = names.flavor_and_resource(pair);
        match row.iter_mut().find(|(other, _)| *other == resource) {
            Some((_, sum)) => *sum = sum.add(potential_available),
            None => row.push((resource, potential_available)),
        }
    }
    row
}

/// The dominant resource share of a node.
pub(crate) fn share(forest: &Forest, names: &Names, lendable: &Lendable, usage: &Usage, id: NodeId) -> Share {
    let node = forest.node(id);
    let Some(parent) = node.parent else { return Share::ZERO };
    let mut over: SmallVec<[(ResourceId, Amount); 4]> = SmallVec::new();
    for &(pair, slot) in node.slots() {
        let excess = usage.get(slot) - exact(forest.quota.subtree(slot));
        if excess > 0 {
            let (_, resource) = names.flavor_and_resource(pair);
            match over.iter_mut().find(|(other, _)| *other == resource) {
                Some((_, sum)) => *sum = sum.add(clamp(excess)),
                None => over.push((resource, clamp(excess))),
            }
        }
    }
    let mut share = Share { unweighted: 0.0, weight: node.weight, borrowing: !over.is_empty() };
    for (resource, borrowed) in over {
        let lendable = lendable.get(parent, resource);
        if lendable > Amount::ZERO {
            share.unweighted = share.unweighted.max(as_f64(borrowed) * 1000.0 / as_f64(lendable));
        }
    }
    share
}

#[expect(clippy::cast_precision_loss, reason = "shares are compared as the nearest floating-point numbers")]
fn as_f64(amount: Amount) -> f64 {
    amount.get() as f64
}
