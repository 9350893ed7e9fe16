//! Dominant resource shares (6.8).

use super::quota::Node;
use super::snapshot::Snapshot;
use super::world::Name;
use sluice_quantity::Amount;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// How far a node borrows, relative to what its parent could lend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub borrowing: bool,
    /// Thousandths of the lendable amount of the dominant resource.
    pub unweighted: f64,
    pub weight: f64,
}

impl Share {
    pub fn is_infinite(self) -> bool {
        self.borrowing && self.weight == 0.0
    }

    fn weighted(self) -> f64 {
        if self.unweighted == 0.0 { 0.0 } else { self.unweighted / self.weight }
    }

    /// Borrowers of zero weight rank above everyone, and among themselves by the unweighted ratio.
    pub fn compare(self, other: Share) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.unweighted.total_cmp(&other.unweighted),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.weighted().total_cmp(&other.weighted()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the reference computes shares in double precision")]
fn float(amount: Amount) -> f64 {
    amount.get() as f64
}

pub fn share(snapshot: &Snapshot<'_>, node: &Node) -> Share {
    let weight = match node {
        Node::Queue(name) => snapshot.world.queues[name].weight,
        Node::Cohort(name) => snapshot.world.cohorts.get(name).map_or(1.0, |cohort| cohort.weight),
    };
    let mut share = Share { borrowing: false, unweighted: 0.0, weight };
    let Some(parent) = snapshot.tree.parent(node) else {
        return share;
    };
    let mut borrowed: BTreeMap<&Name, Amount> = BTreeMap::new();
    for fr in snapshot.tree.subtree_frs(node) {
        let over = snapshot.usage(node, fr).sub(snapshot.tree.subtree_quota(node, fr));
        if over > Amount::ZERO {
            let sum = borrowed.entry(&fr.resource).or_default();
            *sum = sum.add(over);
        }
    }
    for (resource, over) in borrowed {
        share.borrowing = true;
        let lendable: Amount = snapshot
            .tree
            .subtree_frs(snapshot.tree.root(node))
            .filter(|fr| fr.resource == *resource)
            .map(|fr| snapshot.tree.potential_available(parent, fr))
            .sum();
        if lendable > Amount::ZERO {
            share.unweighted = share.unweighted.max(float(over) * 1000.0 / float(lendable));
        }
    }
    share
}
