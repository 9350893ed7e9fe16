//! Pending workloads are in the queue of their LocalQueue: in the heap, or outside of it until a backoff ends
//! (docs/reference/06-algorithm.md 6.4).

use std::collections::BTreeSet;

use super::Scheduler;
use crate::cluster_queue::ClusterQueue;
use crate::intern::{LocalId, QueueId, WorkloadId};
use crate::matching::selects;
use crate::queue::{ClassKey, Placement};
use crate::spec::Time;
use crate::workloads::{Place, Waiting};

/// Where a workload waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuePosition {
    pub(crate) queue: QueueId,
    /// It is in the heap.
    active: bool,
    /// It is the queue's preemptor with precedence.
    preemptor: bool,
}

impl Scheduler {
    /// Where a workload waits, if it does.
    pub(crate) fn queue_position(&self, id: WorkloadId) -> Option<QueuePosition> {
        let (queue, class) = self.world.workloads.get(id).waiting()?.at?;
        let pending = &self.world.queues[queue.at()].pending;
        let active = pending.placement(class, &self.world.workloads.order_key(id)) == Some(Placement::Active);
        Some(QueuePosition { queue, active, preemptor: pending.preemptor() == Some(id) })
    }

    pub(crate) fn unqueue(&mut self, id: WorkloadId, waiting: &Waiting) {
        self.moved(id);
        if let Some(at) = waiting.requeue_at {
            self.agenda.wakeups.remove(&(at, id));
        }
        if let Some((queue, class)) = waiting.at {
            let key = self.world.workloads.order_key(id);
            let pending = &mut self.world.queues[queue.at()].pending;
            pending.remove(class, &key);
            pending.forget_preemptor(id);
            self.left_class(queue, class);
        }
    }

    /// Adds a waiting workload to the queue of its LocalQueue, if that is open. If it `was` there before, it stays the preemptor with precedence; and
    /// if it was in the heap, it stays there, even if its class has failed meanwhile.
    pub(crate) fn queue_pending(&mut self, id: WorkloadId, was: Option<QueuePosition>, now: Time) {
        self.moved(id);
        let workload = self.world.workloads.get(id);
        let Some(waiting) = workload.waiting() else { return };
        let local = workload.local;
        let requeue_at = waiting.requeue_at.filter(|&at| at > now);
        let (requeued_false, keeps_place) = (waiting.requeued_false, waiting.keeps_place);
        self.world.locals[local.at()].pending.insert(id);
        self.changes.locals.mark(local.at());
        let Some(queue) = self.world.locals[local.at()].target() else { return };
        let placement = match (requeue_at, requeued_false) {
            (None, false) => Placement::Active,
            // One of a namespace that the queue does not select holds up no other.
            (Some(_), false) if keeps_place && self.namespace_matches(id, queue) => Placement::Paused,
            _ => Placement::OnHold,
        };
        let class = self.class_key(id, queue);
        let key = self.world.workloads.order_key(id);
        let pending = &mut self.world.queues[queue.at()].pending;
        let class = pending.ensure_class(class);
        let was = was.filter(|was| was.queue == queue);
        let inadmissible =
            pending.push(class, key, placement, was.is_some_and(|was| was.active)) != placement;
        if was.is_some_and(|was| was.preemptor) {
            pending.remember_preemptor(id);
        }
        // A new workload of a failed class is not evaluated: it gets the decision about its class. A workload that failed for the same reason itself,
        // and comes back after a backoff, keeps its own decision.
        if let Some(decision) = pending.failed(class).filter(|_| inadmissible) {
            let workload = self.world.workloads.get_mut(id);
            if workload.decision.as_ref().map(|own| own.reason) != Some(decision.reason) {
                workload.decision = Some(decision);
            }
        }
        if let Place::Pending(waiting) = &mut self.world.workloads.get_mut(id).place {
            waiting.at = Some((queue, class));
        }
        if let Some(at) = requeue_at {
            self.agenda.wakeups.insert((at, id));
        }
        self.sync_ready(queue);
    }

    fn class_key(&self, id: WorkloadId, queue: QueueId) -> ClassKey {
        let workload = self.world.workloads.get(id);
        let by_local = self.orders_by_usage(&self.world.queues[queue.at()]);
        ClassKey {
            shape: workload.shape,
            priority: workload.priority,
            local: by_local.then_some(workload.local),
            alone: (workload.replaces.is_some() || self.is_displaced(id)).then_some(id),
        }
    }

    /// Admission fair sharing orders this queue (docs/reference/06-algorithm.md 6.9).
    pub(crate) fn orders_by_usage(&self, queue: &ClusterQueue) -> bool {
        self.world.config.gates.admission_fair_sharing
            && self.world.config.admission_fair_sharing.is_some()
            && queue.spec.as_ref().is_some_and(|spec| spec.usage_based_fair_sharing)
    }

    /// Queues the waiting workloads of a LocalQueue again. The inadmissible workloads of the queues that they leave and join are tried again.
    pub(crate) fn requeue_members(&mut self, local: LocalId) {
        let members: Vec<WorkloadId> = self.world.locals[local.at()].pending.iter().copied().collect();
        let left: BTreeSet<QueueId> =
            members.iter().filter_map(|&id| self.queue_position(id)).map(|position| position.queue).collect();
        for id in members {
            let was = self.queue_position(id);
            self.requeue_one(id);
            self.may_be_no_head(id, was);
        }
        for queue in left.into_iter().chain(self.world.locals[local.at()].target()) {
            self.flush_around(queue);
        }
        self.changes.locals.mark(local.at());
    }

    /// What a head keeps out may be of another tree, which no flush of the head's own tree reaches: it is tried again if the head, which `was` there, is
    /// not in that heap any more. No cycle may follow that would find out.
    pub(crate) fn may_be_no_head(&mut self, id: WorkloadId, was: Option<QueuePosition>) {
        let Some(was) = was.filter(|was| was.active) else { return };
        let now = self.world.workloads.try_get(id).and_then(|_| self.queue_position(id));
        if now.is_some_and(|now| now.active && now.queue == was.queue) {
            return;
        }
        for kept_out in self.agenda.kept_out.without(id) {
            if let Some(position) = self.queue_position(kept_out) {
                self.flush_queue(position.queue);
            }
        }
    }

    /// Queues the waiting workloads of a ClusterQueue again.
    pub(crate) fn requeue_queue(&mut self, queue: QueueId) {
        self.flush_queue(queue);
        let members: Vec<WorkloadId> =
            self.world.queues[queue.at()].pending.iter().map(|(_, key, _)| key.id).collect();
        for id in members {
            self.requeue_one(id);
        }
    }

    /// Queues a workload again, if it waits.
    pub(crate) fn requeue_one(&mut self, id: WorkloadId) {
        let was = self.queue_position(id);
        let Place::Pending(waiting) = &self.world.workloads.get(id).place else { return };
        let waiting = waiting.clone();
        self.unqueue(id, &waiting);
        if let Place::Pending(waiting) = &mut self.world.workloads.get_mut(id).place {
            waiting.at = None;
        }
        // Backoffs that have ended are not kept in `wakeups`, so a kept one has not ended.
        self.queue_pending(id, was, Time(i64::MIN));
    }

    /// When the first backoff of an inadmissible workload ends, a second pass is due, or a sample of admission fair sharing is.
    pub fn next_wakeup(&self) -> Option<Time> {
        let backoff = self.agenda.wakeups.first().map(|&(at, _)| at);
        [backoff, self.agenda.second_passes.next(), self.next_sample()].into_iter().flatten().min()
    }

    /// Queues the workloads whose backoff ended by `now`, makes due second passes heads of the next cycle, and takes the samples of admission fair sharing that are due.
    pub fn wake(&mut self, now: Time) {
        self.refresh();
        while let Some(&(at, id)) = self.agenda.wakeups.first().filter(|&&(at, _)| at <= now) {
            self.agenda.wakeups.remove(&(at, id));
            let Place::Pending(waiting) = &mut self.world.workloads.get_mut(id).place else { continue };
            waiting.requeue_at = None;
            let waiting = waiting.clone();
            let was = self.queue_position(id);
            self.unqueue(id, &waiting);
            self.queue_pending(id, was, now);
        }
        self.agenda.second_passes.wake(now);
        self.sample(now);
    }

    /// Whether the namespace of a workload matches the queue's selector (docs/reference/06-algorithm.md 6.2). An unknown namespace has no labels.
    pub(crate) fn namespace_matches(&self, id: WorkloadId, queue: QueueId) -> bool {
        let Some(selector) =
            self.world.queues[queue.at()].spec.as_ref().and_then(|spec| spec.namespace_selector.as_ref())
        else {
            return false;
        };
        if selector.match_labels.is_empty() && selector.expressions.is_empty() {
            return true;
        }
        let labels = self.world.namespaces.get(&self.world.workloads.get(id).key.namespace);
        selects(selector, labels.map_or(&[], Vec::as_slice))
    }
}
