//! Puts inadmissible workloads back into their heaps; and which queues have heads (docs/reference/06-algorithm.md 6.4 "Flush").

use std::collections::BTreeSet;

use super::Scheduler;
use crate::intern::{ClassId, NodeId, QueueId};

impl Scheduler {
    /// Keeps the lists of queues with heads and with inadmissible workloads.
    pub(crate) fn sync_ready(&mut self, id: QueueId) {
        let queue = &self.world.queues[id.at()];
        if queue.is_active() && queue.pending.active() > 0 {
            self.agenda.ready.insert(id);
        } else {
            self.agenda.ready.remove(&id);
        }
        let root = queue.pending.has_inadmissible().then(|| self.world.forest.node(queue.node).root);
        if queue.flushed_with != root {
            if let Some(old) = queue.flushed_with {
                self.agenda.inadmissible.remove(&(old, id));
            }
            self.agenda.inadmissible.extend(root.map(|root| (root, id)));
            self.world.queues[id.at()].flushed_with = root;
        }
        self.changes.queues.mark(id.at());
    }

    /// Updates the trees after changes of specs, and flushes the queues of those that changed.
    pub(crate) fn refresh(&mut self) {
        if !self.world.forest.is_stale() && !self.agenda.flushes() {
            return;
        }
        self.expand_flavors_to_flush();
        let roots = self.world.refresh(&mut self.books.usage);
        let mut flush: BTreeSet<NodeId> = roots.iter().copied().collect();
        for root in roots {
            let members: Vec<NodeId> = self.world.forest.members(root).to_vec();
            self.stats.rebuilt_nodes += members.len() as u64;
            for node in members {
                self.changes.nodes.mark(node.at());
                let Some(id) = self.world.forest.node(node).queue else { continue };
                self.world.queues[id.at()].version += 1;
                self.sync_ready(id);
            }
        }
        for id in std::mem::take(&mut self.agenda.flush_later) {
            flush.insert(self.world.forest.node(self.world.queues[id.at()].node).root);
        }
        for root in flush {
            self.flush_tree(root);
        }
    }

    /// Puts what is inadmissible in the queues of a tree back into their heaps (docs/reference/06-algorithm.md 6.4 "Flush").
    pub(crate) fn flush_tree(&mut self, root: NodeId) {
        let queues: Vec<QueueId> = self
            .agenda
            .inadmissible
            .range((root, QueueId(0))..=(root, QueueId(u32::MAX)))
            .map(|&(_, id)| id)
            .collect();
        for id in queues {
            self.flush_queue(id);
        }
    }

    /// Something changed in a tree that no preemption caused: what the preemption-loop guard held back there is tried again.
    pub(crate) fn outside_change_in(&mut self, root: NodeId) {
        let held_back = self.agenda.loops.outside_change(root);
        self.agenda.flush_later.extend(held_back);
    }

    /// The same for all trees.
    pub(crate) fn outside_change_anywhere(&mut self) {
        let held_back = self.agenda.loops.outside_change_anywhere();
        self.agenda.flush_later.extend(held_back);
    }

    /// Flushes the tree of a queue.
    pub(crate) fn flush_around(&mut self, queue: QueueId) {
        let root = self.world.forest.node(self.world.queues[queue.at()].node).root;
        self.flush_tree(root);
    }

    /// Puts what is inadmissible in a queue back into its heap.
    pub(crate) fn flush_queue(&mut self, id: QueueId) {
        for shape in self.world.queues[id.at()].pending.flush() {
            self.world.shapes.release(shape);
        }
        self.sync_ready(id);
    }

    /// A workload left a class: if it was the last, the class goes, or is remembered because its class failed.
    pub(crate) fn left_class(&mut self, id: QueueId, class: ClassId) {
        if let Some(shape) = self.world.queues[id.at()].pending.drop_if_empty(class) {
            self.world.shapes.retain(shape);
        }
        self.sync_ready(id);
    }
}
