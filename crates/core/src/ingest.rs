//! Workloads come and go: which queue they wait in, what they hold, and what that sets free (reference 06, 6.4).

use std::cmp::Reverse;

use crate::cluster_queue::ClusterQueue;
use crate::intern::{LocalId, QueueId, WorkloadId};
use crate::matching::selects;
use crate::preemption::CandidateKey;
use crate::queue::{LaneKey, OrderKey, Spot};
use crate::scheduler::Scheduler;
use crate::spec::Time;
use crate::workload::{Admission, WorkloadKey, WorkloadSpec, WorkloadState};
use crate::workloads::{Held, Hold, Place, Waiting, Workload};

impl Scheduler {
    /// Adds or replaces a workload: any transition between states, idempotent. A workload that stops holding quota, or
    /// holds less, makes the parked workloads of its tree to be tried again.
    pub fn set_workload(&mut self, spec: WorkloadSpec, now: Time) {
        self.put_workload(spec, now);
    }

    /// As [`Scheduler::set_workload`]; false if the workload is known just so, and no cycle has anything new to decide on.
    pub fn put_workload(&mut self, spec: WorkloadSpec, now: Time) -> bool {
        self.refresh();
        let known = self.workloads.find(&spec.key);
        let known = match known {
            Some(id) if self.workloads.get(id).uid != spec.uid => {
                self.forget(id);
                None
            }
            known => known,
        };
        let changed = match known {
            None => {
                self.add_workload(spec, now);
                true
            }
            Some(id) => self.update_workload(id, spec, now),
        };
        self.refresh();
        changed
    }

    fn add_workload(&mut self, spec: WorkloadSpec, now: Time) {
        let local = self.ensure_local(&spec.key.namespace, &spec.local_queue);
        let shape = self.shapes.acquire(&mut self.names, &spec.pod_sets);
        let id = self.workloads.insert(Workload {
            key: spec.key,
            uid: spec.uid,
            local,
            priority: spec.priority,
            created: spec.created,
            order: spec.queue_order,
            generation: spec.generation,
            gated: spec.preemption_gated,
            shape,
            place: Place::Parked,
            progress: None,
            scans: 0,
            decision: None,
            settled: 0,
            preempted: false,
        });
        self.enter(id, spec.state, now);
        self.outside_change(id);
    }

    fn update_workload(&mut self, id: WorkloadId, spec: WorkloadSpec, now: Time) -> bool {
        let local = self.ensure_local(&spec.key.namespace, &spec.local_queue);
        let shape = self.shapes.acquire(&mut self.names, &spec.pod_sets);
        let old = self.workloads.get(id);
        let same_base =
            (old.local, old.priority, old.created, old.order, old.generation, old.gated, old.shape)
                == (
                    local,
                    spec.priority,
                    spec.created,
                    spec.queue_order,
                    spec.generation,
                    spec.preemption_gated,
                    shape,
                );
        if same_base && self.is_state(id, &spec.state) {
            self.shapes.release(shape);
            return false;
        }
        let priority_changed = old.priority != spec.priority;
        let outside =
            priority_changed || old.shape != shape || old.local != local || !caused_inside(old, &spec.state);
        if outside {
            self.outside_change(id);
        }
        let before = self.leave(id);
        let old_shape = std::mem::replace(&mut self.workloads.get_mut(id).shape, shape);
        self.shapes.release(old_shape);
        let workload = self.workloads.get_mut(id);
        workload.local = local;
        workload.priority = spec.priority;
        workload.created = spec.created;
        workload.order = spec.queue_order;
        workload.generation = spec.generation;
        workload.gated = spec.preemption_gated;
        if !matches!(spec.state, WorkloadState::Pending { .. }) {
            workload.decision = None;
        }
        if before.is_none() {
            workload.preempted = false;
        }
        self.enter(id, spec.state, now);
        if outside {
            self.outside_change(id);
        }
        self.flush_freed(id, before, priority_changed);
        true
    }

    /// Tells the preemption-loop guard that something happened to a workload that no preemption caused.
    fn outside_change(&mut self, id: WorkloadId) {
        let workload = self.workloads.get(id);
        let waiting = workload.waiting().and_then(|waiting| waiting.at).map(|at| at.0);
        if let Some(queue) = workload.hold().map(|hold| hold.queue).or(waiting) {
            let root = self.tree.forest.node(self.queues[queue.at()].node).root;
            self.loops.outside_change(root);
        }
    }

    /// Flushes the tree if something is free now that was held before, or if victims may be easier to get.
    fn flush_freed(&mut self, id: WorkloadId, before: Option<Hold>, priority_changed: bool) {
        let now = self.workloads.get(id).hold();
        let freed = before.as_ref().is_some_and(|before| {
            now.is_none_or(|now| {
                now.queue != before.queue
                    || before.usage.iter().any(|&(pair, _, amount)| {
                        now.usage.iter().find(|held| held.0 == pair).map_or(0, |held| held.2) < amount
                    })
            })
        });
        if let Some(before) = before.filter(|_| freed || priority_changed) {
            if freed {
                let node = self.queues[before.queue.at()].node;
                self.tree.forest.capacity_changed(node);
                self.capacity_freed(&before);
                if self.workloads.get(id).hold().is_some() {
                    self.loops.outside_change(self.tree.forest.node(node).root);
                }
            }
            self.flush_around(before.queue);
        } else if priority_changed
            && let Some((queue, _)) = self.workloads.get(id).waiting().and_then(|waiting| waiting.at)
        {
            self.flush_around(queue);
        }
    }

    /// Flushes the tree of a queue.
    pub(crate) fn flush_around(&mut self, queue: QueueId) {
        let root = self.tree.forest.node(self.queues[queue.at()].node).root;
        self.flush_tree(root);
    }

    /// Removes a workload; what it held is free.
    pub fn remove_workload(&mut self, key: &WorkloadKey, _now: Time) {
        self.refresh();
        if let Some(id) = self.workloads.find(key) {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: WorkloadId) {
        self.outside_change(id);
        self.settle(id);
        let before = self.leave(id);
        self.second_passes.remove(id);
        self.shapes.release(self.workloads.get(id).shape);
        self.workloads.remove(id);
        if let Some(before) = before {
            self.tree.forest.capacity_changed(self.queues[before.queue.at()].node);
            self.capacity_freed(&before);
            self.flush_around(before.queue);
        }
    }

    /// The write of an admission failed: forget what was assumed, and queue the workload again at once.
    pub fn admission_failed(&mut self, key: &WorkloadKey, now: Time) {
        self.refresh();
        let Some(id) = self.workloads.find(key).filter(|&id| self.workloads.get(id).hold().is_some()) else {
            return;
        };
        let Some(before) = self.leave(id) else { return };
        self.second_passes.remove(id);
        self.settle(id);
        self.workloads.get_mut(id).place = Place::Pending(Box::default());
        self.queue_pending(id, now);
        self.tree.forest.capacity_changed(self.queues[before.queue.at()].node);
        self.capacity_freed(&before);
        self.flush_around(before.queue);
    }

    /// Takes the entry penalty of a workload back that was not admitted after all.
    fn settle(&mut self, id: WorkloadId) {
        let local = self.workloads.get(id).local;
        self.locals[local.at()].ledger.settle(id, false);
    }

    /// Whether a workload is in this state already.
    fn is_state(&self, id: WorkloadId, state: &WorkloadState) -> bool {
        let workload = self.workloads.get(id);
        match (state, &workload.place) {
            (WorkloadState::Parked, Place::Parked) => true,
            (
                WorkloadState::Pending { requeue_at, requeued_false, failed_checks, invalid },
                Place::Pending(is),
            ) => {
                (is.requeue_at, is.requeued_false, is.failed_checks, &is.invalid)
                    == (*requeue_at, *requeued_false, *failed_checks, invalid)
            }
            (
                WorkloadState::Reserved { admission, reserved_at, admitted, evicted, pods_ready },
                Place::Holding(hold),
            ) => {
                let queue = &self.queues[hold.queue.at()];
                (hold.reserved_at, hold.admitted, hold.evicted, hold.pods_ready)
                    == (*reserved_at, *admitted, *evicted, *pods_ready)
                    && queue.name == admission.cluster_queue
                    && self.holds_exactly(&hold.usage, admission)
            }
            _ => false,
        }
    }

    fn holds_exactly(&self, held: &Held, admission: &Admission) -> bool {
        let mut rest: Held = held.clone();
        for (flavor, resource, amount) in totals(admission) {
            let found = rest.iter().position(|(pair, _, _)| {
                let (held_flavor, held_resource) = self.names.parts(*pair);
                self.names.flavor_name(held_flavor) == flavor
                    && self.names.resource_name(held_resource) == resource
            });
            match found {
                Some(at) if rest[at].2 >= amount => rest[at].2 -= amount,
                _ => return false,
            }
        }
        rest.iter().all(|&(_, _, left)| left == 0)
    }

    /// Puts a workload that is nowhere into a state.
    fn enter(&mut self, id: WorkloadId, state: WorkloadState, now: Time) {
        if !matches!(state, WorkloadState::Reserved { .. }) {
            self.settle(id);
        }
        if !matches!(state, WorkloadState::Reserved { evicted: false, .. }) {
            self.second_passes.remove(id);
        }
        match state {
            WorkloadState::Parked => self.workloads.get_mut(id).progress = None,
            WorkloadState::Pending { requeue_at, requeued_false, failed_checks, invalid } => {
                let waiting = Waiting { requeue_at, requeued_false, failed_checks, invalid, at: None };
                self.workloads.get_mut(id).place = Place::Pending(Box::new(waiting));
                self.queue_pending(id, now);
            }
            WorkloadState::Reserved { admission, reserved_at, admitted, evicted, pods_ready } => {
                let queue = self.ensure_queue(&admission.cluster_queue);
                let mut usage = Held::new();
                for (flavor, resource, amount) in totals(&admission) {
                    let (flavor, resource) = (self.names.flavor(flavor), self.names.resource(resource));
                    let pair = self.names.pair(flavor, resource);
                    let node = self.queues[queue.at()].node;
                    let slot = self.tree.forest.ensure_slot(&mut self.tree.usage, node, pair);
                    match usage.iter_mut().find(|held| held.0 == pair) {
                        Some(held) => held.2 += amount,
                        None => usage.push((pair, slot, amount)),
                    }
                }
                self.hold(id, Hold { queue, usage, reserved_at, admitted, evicted, pods_ready });
            }
        }
    }

    /// Takes a workload out of wherever it is; returns what it held.
    pub(crate) fn leave(&mut self, id: WorkloadId) -> Option<Hold> {
        let place = std::mem::replace(&mut self.workloads.get_mut(id).place, Place::Parked);
        match place {
            Place::Parked => None,
            Place::Pending(waiting) => {
                let local = self.workloads.get(id).local;
                self.locals[local.at()].pending.remove(&id);
                self.changed_locals.mark(local.at());
                self.unqueue(id, &waiting);
                None
            }
            Place::Holding(hold) => {
                self.release(id, &hold);
                Some(*hold)
            }
        }
    }

    fn unqueue(&mut self, id: WorkloadId, waiting: &Waiting) {
        if let Some(at) = waiting.requeue_at {
            self.wakeups.remove(&(at, id));
        }
        if let Some((queue, lane)) = waiting.at {
            let key = self.order_key(id);
            let pending = &mut self.queues[queue.at()].pending;
            pending.remove(lane, &key);
            pending.forget_preemptor(id);
            pending.drop_if_empty(lane);
            self.sync_ready(queue);
        }
    }

    /// The place of a workload among those of equal priority.
    pub(crate) fn order_key(&self, id: WorkloadId) -> OrderKey {
        let workload = self.workloads.get(id);
        OrderKey { order: workload.order, uid: workload.uid.clone(), id }
    }

    /// The place of a workload among the candidates of its queue.
    pub(crate) fn candidate_key(&self, id: WorkloadId, reserved_at: Time) -> CandidateKey {
        let workload = self.workloads.get(id);
        CandidateKey {
            priority: workload.priority,
            reserved_at: Reverse(reserved_at),
            uid: workload.uid.clone(),
            id,
        }
    }

    /// Puts a waiting workload into the queue that its LocalQueue points to, if that takes any.
    pub(crate) fn queue_pending(&mut self, id: WorkloadId, now: Time) {
        let workload = self.workloads.get(id);
        let Some(waiting) = workload.waiting() else { return };
        let local = workload.local;
        let (requeue_at, held_back) = (waiting.requeue_at.filter(|&at| at > now), waiting.requeued_false);
        self.locals[local.at()].pending.insert(id);
        self.changed_locals.mark(local.at());
        let Some(queue) = self.locals[local.at()].target() else { return };
        let lane = self.lane_key(id, queue);
        let key = self.order_key(id);
        let spot = if requeue_at.is_some() || held_back { Spot::Held } else { Spot::Active };
        let pending = &mut self.queues[queue.at()].pending;
        let lane = pending.ensure_lane(lane);
        let parked = pending.push(lane, key, spot, false) != spot;
        // Nobody looks at a newcomer whose class has failed: what was said of the class is said of it, too.
        let said = pending.failed(lane).filter(|_| parked);
        if said.is_some() {
            self.workloads.get_mut(id).decision = said;
        }
        if let Place::Pending(waiting) = &mut self.workloads.get_mut(id).place {
            waiting.at = Some((queue, lane));
        }
        if let Some(at) = requeue_at {
            self.wakeups.insert((at, id));
        }
        self.sync_ready(queue);
    }

    fn lane_key(&self, id: WorkloadId, queue: QueueId) -> LaneKey {
        let workload = self.workloads.get(id);
        let by_local = self.orders_by_usage(&self.queues[queue.at()]);
        LaneKey {
            shape: workload.shape,
            priority: workload.priority,
            local: by_local.then_some(workload.local),
        }
    }

    /// Admission fair sharing orders this queue (reference 06, 6.9).
    pub(crate) fn orders_by_usage(&self, queue: &ClusterQueue) -> bool {
        self.config.gates.admission_fair_sharing
            && self.config.admission_fair_sharing.is_some()
            && queue.spec.as_ref().is_some_and(|spec| spec.usage_based_fair_sharing)
    }

    /// Queues the waiting workloads of a LocalQueue anew.
    pub(crate) fn requeue_members(&mut self, local: LocalId) {
        let members: Vec<WorkloadId> = self.locals[local.at()].pending.iter().copied().collect();
        for id in members {
            self.requeue_one(id);
        }
        self.changed_locals.mark(local.at());
    }

    /// Queues the waiting workloads of a ClusterQueue anew.
    pub(crate) fn requeue_queue(&mut self, queue: QueueId) {
        let members: Vec<WorkloadId> =
            self.queues[queue.at()].pending.iter().map(|(_, key, _)| key.id).collect();
        for id in members {
            self.requeue_one(id);
        }
    }

    fn requeue_one(&mut self, id: WorkloadId) {
        let Place::Pending(waiting) = &self.workloads.get(id).place else { return };
        let waiting = waiting.clone();
        self.unqueue(id, &waiting);
        if let Place::Pending(waiting) = &mut self.workloads.get_mut(id).place {
            waiting.at = None;
        }
        // Backoffs that are over are not kept in `wakeups`, so one that is has not ended.
        self.queue_pending(id, Time(i64::MIN));
    }

    /// When the first backoff of a parked workload ends, a second pass is due, or a sample of admission fair sharing is.
    pub fn next_wakeup(&self) -> Option<Time> {
        let backoff = self.wakeups.first().map(|&(at, _)| at);
        [backoff, self.second_passes.next(), self.next_sample()].into_iter().flatten().min()
    }

    /// Queues the workloads whose backoff ended by `now`, makes due second passes heads of the next cycle, and takes the samples of admission fair sharing that are due.
    pub fn wake(&mut self, now: Time) {
        self.refresh();
        while let Some(&(at, id)) = self.wakeups.first().filter(|&&(at, _)| at <= now) {
            self.wakeups.remove(&(at, id));
            let Place::Pending(waiting) = &mut self.workloads.get_mut(id).place else { continue };
            waiting.requeue_at = None;
            let waiting = waiting.clone();
            self.unqueue(id, &waiting);
            self.queue_pending(id, now);
        }
        self.second_passes.wake(now);
        self.sample(now);
    }

    /// Whether the namespace of a workload matches the queue's selector (reference 06, 6.2). A namespace that is not
    /// known has no labels.
    pub(crate) fn namespace_matches(&self, id: WorkloadId, queue: QueueId) -> bool {
        let Some(selector) =
            self.queues[queue.at()].spec.as_ref().and_then(|spec| spec.namespace_selector.as_ref())
        else {
            return false;
        };
        if selector.match_labels.is_empty() && selector.expressions.is_empty() {
            return true;
        }
        let labels = self.namespaces.get(&self.workloads.get(id).key.namespace);
        selects(selector, labels.map_or(&[], Vec::as_slice))
    }
}

/// Whether a change of state is what preemption brings about: a victim leaves, or what is pending or holds quota stays so.
/// All else comes from outside.
fn caused_inside(workload: &Workload, state: &WorkloadState) -> bool {
    match (&workload.place, state) {
        (Place::Pending(_), WorkloadState::Pending { .. })
        | (Place::Holding(_), WorkloadState::Reserved { .. }) => true,
        (Place::Holding(_), WorkloadState::Pending { .. }) => workload.preempted,
        _ => false,
    }
}

/// The total of each (flavor, resource) pair of an admission, one per pod set; nothing negative.
fn totals(admission: &Admission) -> impl Iterator<Item = (&crate::Name, &crate::Name, i128)> {
    admission.pod_sets.iter().flat_map(|pod_set| {
        pod_set.flavors.iter().filter_map(|(resource, flavor)| {
            let (_, amount) = pod_set.usage.iter().find(|(name, _)| name == resource)?;
            Some((flavor, resource, i128::from(amount.get().max(0))))
        })
    })
}
