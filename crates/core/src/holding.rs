//! What a workload holds counts wherever it is added up: the quota tree, its queue's holders, its LocalQueue.

use crate::intern::{LocalId, QueueId, WorkloadId};
use crate::scheduler::Scheduler;
use crate::workloads::{Hold, Place};

impl Scheduler {
    /// Lets a workload hold quota.
    pub(crate) fn hold(&mut self, id: WorkloadId, hold: Hold) {
        let key = self.candidate_key(id, hold.reserved_at);
        let local = self.workloads.get(id).local;
        let queue = &mut self.queues[hold.queue.at()];
        if hold.evicted { &mut queue.holders.evicted } else { &mut queue.holders.running }.insert(key);
        queue.admitted += usize::from(hold.admitted);
        let row = &mut self.locals[local.at()];
        row.reserving += 1;
        row.admitted += usize::from(hold.admitted);
        for (pair, slot, amount) in hold.charged() {
            self.tree.usage.add(&self.tree.forest.quota, slot, amount);
            self.capacity.add(pair, amount);
            let sums = row.held.entry(pair).or_insert((0, 0));
            sums.0 += amount;
            if hold.admitted {
                sums.1 += amount;
                *queue.admitted_usage.entry(pair).or_insert(0) += amount;
            }
        }
        self.unready += usize::from(!hold.pods_ready);
        if hold.admitted {
            row.ledger.settle(id, true);
        }
        self.mark_held(hold.queue, local);
        self.workloads.get_mut(id).place = Place::Holding(Box::new(hold));
    }

    pub(crate) fn release(&mut self, id: WorkloadId, hold: &Hold) {
        let key = self.candidate_key(id, hold.reserved_at);
        let local = self.workloads.get(id).local;
        let queue = &mut self.queues[hold.queue.at()];
        if hold.evicted { &mut queue.holders.evicted } else { &mut queue.holders.running }.remove(&key);
        queue.admitted -= usize::from(hold.admitted);
        let row = &mut self.locals[local.at()];
        row.reserving -= 1;
        row.admitted -= usize::from(hold.admitted);
        for (pair, slot, amount) in hold.charged() {
            self.tree.usage.remove(&self.tree.forest.quota, slot, amount);
            self.capacity.add(pair, -amount);
            if let Some(held) = row.held.get_mut(&pair) {
                held.0 -= amount;
                if hold.admitted {
                    held.1 -= amount;
                }
                if *held == (0, 0) {
                    row.held.remove(&pair);
                }
            }
            if hold.admitted
                && let Some(used) = queue.admitted_usage.get_mut(&pair)
            {
                *used -= amount;
                if *used == 0 {
                    queue.admitted_usage.remove(&pair);
                }
            }
        }
        self.unready -= usize::from(!hold.pods_ready);
        self.mark_held(hold.queue, local);
    }

    fn mark_held(&mut self, queue: QueueId, local: LocalId) {
        self.changed_queues.mark(queue.at());
        self.changed_locals.mark(local.at());
        let node = self.queues[queue.at()].node;
        for ancestor in self.tree.forest.ancestors(node) {
            self.changed_nodes.mark(ancestor.at());
        }
    }
}
