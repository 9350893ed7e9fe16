//! Usage of every node (6.3), and the workloads that hold it.

use super::quota::{Node, Tree};
use super::world::{Fr, Name, Reservation, Usage, Workload, World};
use sluice_quantity::Amount;
use std::collections::{BTreeMap, BTreeSet};

/// What a cycle works on: quotas, and usage that can be changed to try something.
pub struct Snapshot<'a> {
    pub world: &'a World,
    pub tree: &'a Tree,
    /// By queue, then by key.
    pub held: BTreeMap<Name, BTreeMap<Name, &'a Reservation>>,
    usage: BTreeMap<Node, BTreeMap<Fr, Amount>>,
}

pub fn queue(name: &Name) -> Node {
    Node::Queue(name.clone())
}

impl<'a> Snapshot<'a> {
    pub fn new(
        world: &'a World,
        tree: &'a Tree,
        held: impl Iterator<Item = &'a Reservation>,
    ) -> Snapshot<'a> {
        let mut snapshot = Snapshot { world, tree, held: BTreeMap::new(), usage: BTreeMap::new() };
        for held in held {
            snapshot.add_workload(held);
        }
        snapshot
    }

    pub fn add_workload(&mut self, held: &'a Reservation) {
        self.add(&held.workload.queue, &held.usage);
        self.held.entry(held.workload.queue.clone()).or_default().insert(held.workload.key.clone(), held);
    }

    pub fn remove_workload(&mut self, held: &'a Reservation) {
        self.remove(&held.workload.queue, &held.usage);
        self.held.entry(held.workload.queue.clone()).or_default().remove(&held.workload.key);
    }

    /// The slice that a workload replaces: it holds quota of the same queue, and is not evicted.
    pub fn replaced(&self, by: &Workload) -> Option<&'a Reservation> {
        let slice = by.replaces.as_ref()?;
        let held = *self.held.get(&by.queue)?.get(&slice.key)?;
        (!held.evicted && held.workload.key != by.key).then_some(held)
    }

    /// No workload may preempt it: what it holds stays.
    pub fn hide(&mut self, held: &Reservation) {
        self.held.entry(held.workload.queue.clone()).or_default().remove(&held.workload.key);
    }

    pub fn show(&mut self, held: &'a Reservation) {
        self.held.entry(held.workload.queue.clone()).or_default().insert(held.workload.key.clone(), held);
    }

    pub fn add(&mut self, to: &Name, usage: &Usage) {
        for (fr, amount) in usage {
            self.add_usage(&queue(to), fr, *amount);
        }
    }

    pub fn remove(&mut self, from: &Name, usage: &Usage) {
        for (fr, amount) in usage {
            self.remove_usage(&queue(from), fr, *amount);
        }
    }

    fn add_usage(&mut self, node: &Node, fr: &Fr, amount: Amount) {
        let local = self.local_available(node, fr);
        self.set_usage(node, fr, self.usage(node, fr).add(amount));
        if let Some(parent) = self.tree.parent(node)
            && amount > local
        {
            self.add_usage(parent, fr, amount.sub(local));
        }
    }

    fn remove_usage(&mut self, node: &Node, fr: &Fr, amount: Amount) {
        let stored = self.usage(node, fr).sub(self.tree.local_quota(node, fr));
        self.set_usage(node, fr, self.usage(node, fr).sub(amount));
        if let Some(parent) = self.tree.parent(node)
            && stored > Amount::ZERO
        {
            self.remove_usage(parent, fr, amount.min(stored));
        }
    }

    fn set_usage(&mut self, node: &Node, fr: &Fr, usage: Amount) {
        self.usage.entry(node.clone()).or_default().insert(fr.clone(), usage);
    }

    pub fn usage(&self, node: &Node, fr: &Fr) -> Amount {
        self.usage.get(node).and_then(|usage| usage.get(fr)).copied().unwrap_or_default()
    }

    pub fn local_available(&self, node: &Node, fr: &Fr) -> Amount {
        self.tree.local_quota(node, fr).sub(self.usage(node, fr)).max(Amount::ZERO)
    }

    fn available_at(&self, node: &Node, fr: &Fr) -> Amount {
        let (subtree, usage) = (self.tree.subtree_quota(node, fr), self.usage(node, fr));
        let Some(parent) = self.tree.parent(node) else {
            return subtree.sub(usage);
        };
        let mut from_parent = self.available_at(parent, fr);
        if let Some(limit) = self.tree.quota(node, fr).borrowing_limit {
            let local = self.tree.local_quota(node, fr);
            let stored_in_parent = subtree.sub(local);
            let used_in_parent = usage.sub(local).max(Amount::ZERO);
            from_parent = from_parent.min(stored_in_parent.sub(used_in_parent).add(limit));
        }
        self.local_available(node, fr).add(from_parent)
    }

    /// What the queue may still use, never below zero.
    pub fn available(&self, of: &Name, fr: &Fr) -> Amount {
        self.available_at(&queue(of), fr).max(Amount::ZERO)
    }

    pub fn fits(&self, of: &Name, usage: &Usage) -> bool {
        usage.iter().all(|(fr, amount)| *amount <= self.available(of, fr))
    }

    /// Whether the node would use more than its subtree's quota (a queue's nominal) with `amount` more.
    pub fn borrowing_with(&self, node: &Node, fr: &Fr, amount: Amount) -> bool {
        self.tree.subtree_quota(node, fr) < self.usage(node, fr).add(amount)
    }

    pub fn is_within_nominal(&self, node: &Node, frs: &BTreeSet<Fr>) -> bool {
        frs.iter().all(|fr| !self.borrowing_with(node, fr, Amount::ZERO))
    }

    /// FindHeightOfLowestSubtreeThatFits: the height of the lowest subtree in which `amount` more would not borrow,
    /// and whether that is smaller than the whole tree.
    pub fn borrowing_height(&self, of: &Name, fr: &Fr, amount: Amount) -> (u32, bool) {
        let node = queue(of);
        if !self.borrowing_with(&node, fr, amount) || self.tree.parent(&node).is_none() {
            return (0, self.tree.parent(&node).is_some());
        }
        let mut remaining = amount.sub(self.local_available(&node, fr));
        for ancestor in self.tree.ancestors(&node) {
            if !self.borrowing_with(ancestor, fr, remaining) {
                return (self.tree.height(ancestor), self.tree.parent(ancestor).is_some());
            }
            remaining = remaining.sub(self.local_available(ancestor, fr));
        }
        (self.tree.height(self.tree.root(&node)), false)
    }
}
