//! Retries inadmissible workloads that may reclaim, when others borrow more (gate `RequeueReclaimersOnBorrowing`). Not in Kueue: the reference retries
//! inadmissible workloads only when something becomes free, so that a workload that became inadmissible before there were enough candidates waits
//! needlessly.

use smallvec::SmallVec;

use super::Scheduler;
use crate::fair_sharing::{Share, share};
use crate::intern::{FrId, NodeId, QueueId, SlotId, WorkloadId};
use crate::quota::exact;
use crate::spec::PreemptionPolicy;
use crate::workloads::QuotaReservation;

impl Scheduler {
    /// Notes what a workload holds more than `before`, if its queue, or a Cohort above that, borrows with it.
    pub(crate) fn note_borrowing(&mut self, id: WorkloadId, before: Option<&QuotaReservation>) {
        if !self.world.config.gates.requeue_reclaimers_on_borrowing {
            return;
        }
        let Some(reservation) = self.world.workloads.get(id).reservation() else { return };
        let queue = reservation.queue;
        let before = before.filter(|before| before.queue == queue);
        let held = |pair: FrId| before.and_then(|before| before.usage.iter().find(|usage| usage.0 == pair));
        let more = reservation.charged().filter(|&(pair, _, now)| held(pair).is_none_or(|held| held.2 < now));
        let borrowed = more.filter(|&(_, slot, _)| self.borrows(slot)).map(|(pair, ..)| pair);
        let borrowed: SmallVec<[FrId; 4]> = borrowed.collect();
        let root = self.world.forest.node(self.world.queues[queue.at()].node).root;
        self.agenda.borrowed.extend(borrowed.into_iter().map(|pair| (root, pair, queue)));
    }

    /// Whether what is used of a slot last is borrowed, there or farther up.
    fn borrows(&self, slot: SlotId) -> bool {
        let (quota, usage) = (&self.world.forest.quota, &self.books.usage);
        let mut at = slot;
        while let Some(parent) = quota.parent(at) {
            if quota.borrowing(usage, at) {
                return true;
            }
            if usage.get(at) <= quota.guaranteed(at) {
                return false;
            }
            at = parent;
        }
        false
    }

    /// Retries inadmissible workloads in the queues that may have a right to what others borrowed: those that use less of it than their own quota, or
    /// are in a Cohort that does; and under fair sharing those with a smaller share than the borrower. Not called during a cycle.
    pub(crate) fn wake_reclaimers(&mut self) {
        while let Some((root, pair, borrower)) = self.agenda.borrowed.pop_first() {
            let queues = self.agenda.inadmissible.range((root, QueueId(0))..=(root, QueueId(u32::MAX)));
            let waiting: Vec<QueueId> =
                queues.map(|&(_, id)| id).filter(|&id| self.may_reclaim(id, pair, borrower)).collect();
            for id in waiting {
                self.flush_queue(id);
            }
        }
    }

    fn may_reclaim(&self, id: QueueId, pair: FrId, borrower: QueueId) -> bool {
        let queue = &self.world.queues[id.at()];
        if !queue.is_active() || queue.reclaim_policy() == PreemptionPolicy::Never {
            return false;
        }
        self.uses_less_than_its_own(queue.node, pair)
            || (self.world.config.fair_sharing.is_some()
                && self.has_less_than(queue.node, self.world.queues[borrower.at()].node))
    }

    fn uses_less_than_its_own(&self, node: NodeId, pair: FrId) -> bool {
        let forest = &self.world.forest;
        let mut at = forest.node(node).slot(pair);
        while let Some((slot, parent)) = at.and_then(|slot| Some((slot, forest.quota.parent(slot)?))) {
            if self.books.usage.get(slot) < exact(forest.quota.subtree(slot)) {
                return true;
            }
            at = Some(parent);
        }
        false
    }

    /// Whether the share of a queue is below that of another one of its tree, where their ways to the root meet: no strategy takes from the other
    /// otherwise (docs/reference/06-algorithm.md 6.8).
    fn has_less_than(&self, own: NodeId, other: NodeId) -> bool {
        let forest = &self.world.forest;
        if forest.node(own).in_cycle || forest.node(other).in_cycle {
            return false;
        }
        let path = |node: NodeId| std::iter::once(node).chain(forest.ancestors(node)).collect::<Vec<_>>();
        let (own, other) = (path(own), path(other));
        let common = own.iter().rev().zip(other.iter().rev()).take_while(|(own, other)| own == other).count();
        let share_below = |path: &[NodeId]| {
            let below = path.len().checked_sub(common + 1).map(|at| path[at]);
            let (names, lendable) = (&self.world.names, &self.world.lendable);
            below.map_or(Share::ZERO, |node| share(forest, names, lendable, &self.books.usage, node))
        };
        share_below(&own).compare(share_below(&other)).is_lt()
    }
}
