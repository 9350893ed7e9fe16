//! Retries inadmissible workloads that may reclaim, when others begin to borrow their quota (gate `RequeueReclaimersOnBorrowing`). Not in Kueue: the
//! reference retries inadmissible workloads only when something becomes free, so that a workload that became inadmissible before there were
//! candidates waits needlessly.

use super::Scheduler;
use crate::intern::{FrId, QueueId, SlotId, WorkloadId};
use crate::quota::exact;
use crate::spec::PreemptionPolicy;
use crate::workloads::QuotaReservation;

impl Scheduler {
    /// Notes what a workload is about to hold if its queue, or a Cohort above that, begins to borrow with it; or if they borrow, and
    /// no workload of lower priority holds quota of its queue, so that it is the first candidate for others.
    pub(crate) fn note_borrowing(&mut self, id: WorkloadId, reservation: &QuotaReservation) {
        if !self.world.config.gates.requeue_reclaimers_on_borrowing {
            return;
        }
        let queue = &self.world.queues[reservation.queue.at()];
        let root = self.world.forest.node(queue.node).root;
        let priority = self.world.workloads.get(id).priority;
        let is_lowest = queue.reservations.running.first().is_none_or(|first| priority < first.priority);
        for (pair, slot, amount) in reservation.charged() {
            if self.begins_to_borrow(slot, amount, is_lowest) {
                self.agenda.began_to_borrow.insert((root, pair));
            }
        }
    }

    fn begins_to_borrow(&self, slot: SlotId, amount: i128, even_if_before: bool) -> bool {
        let (quota, usage) = (&self.world.forest.quota, &self.books.usage);
        let (mut at, mut amount) = (slot, amount);
        while let Some(parent) = quota.parent(at) {
            if quota.borrowing_with(usage, at, amount) && (even_if_before || !quota.borrowing(usage, at)) {
                return true;
            }
            amount -= quota.local_available(usage, at);
            if amount <= 0 {
                return false;
            }
            at = parent;
        }
        false
    }

    /// Retries inadmissible workloads in the queues that may reclaim what others began to borrow: queues that use less of it than their own quota, or
    /// are in a Cohort that does. Not called during a cycle.
    pub(crate) fn wake_reclaimers(&mut self) {
        while let Some((root, pair)) = self.agenda.began_to_borrow.pop_first() {
            let queues = self.agenda.inadmissible.range((root, QueueId(0))..=(root, QueueId(u32::MAX)));
            let waiting: Vec<QueueId> =
                queues.map(|&(_, id)| id).filter(|&id| self.may_reclaim(id, pair)).collect();
            for id in waiting {
                self.flush_queue(id);
            }
        }
    }

    fn may_reclaim(&self, id: QueueId, pair: FrId) -> bool {
        let queue = &self.world.queues[id.at()];
        let forest = &self.world.forest;
        if !queue.is_active() || queue.reclaim_policy() == PreemptionPolicy::Never {
            return false;
        }
        let mut at = forest.node(queue.node).slot(pair);
        while let Some((slot, parent)) = at.and_then(|slot| Some((slot, forest.quota.parent(slot)?))) {
            if self.books.usage.get(slot) < exact(forest.quota.subtree(slot)) {
                return true;
            }
            at = Some(parent);
        }
        false
    }
}
