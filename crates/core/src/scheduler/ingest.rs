//! Changes of workloads: which queue they wait in, what they hold, and what they free (docs/reference/06-algorithm.md 6.4).

use std::sync::Arc;

use super::Scheduler;
use super::waiting::QueuePosition;
use crate::intern::WorkloadId;
use crate::spec::Time;
use crate::workload::{Admission, WorkloadKey, WorkloadSpec, WorkloadState};
use crate::workloads::{Place, QuotaReservation, ReservedUsage, Waiting, Workload};

impl Scheduler {
    /// Adds or replaces a workload: any transition between states, idempotent. A workload that stops holding quota, or
    /// holds less, puts the inadmissible workloads of its tree back into their heaps.
    pub fn set_workload(&mut self, spec: WorkloadSpec, now: Time) {
        self.put_workload(spec, now);
    }

    /// As [`Scheduler::set_workload`]; false if the workload is known just so, and no cycle has anything new to decide on.
    pub fn put_workload(&mut self, spec: WorkloadSpec, now: Time) -> bool {
        self.refresh();
        self.sweep_if_due();
        let known = self.world.workloads.find(&spec.key);
        let known = match known {
            Some(id) if self.world.workloads.get(id).uid != spec.uid => {
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
        self.wake_reclaimers();
        changed
    }

    fn add_workload(&mut self, spec: WorkloadSpec, now: Time) {
        let local = self.ensure_local(&spec.key.namespace, &spec.local_queue);
        let shape = self.world.shapes.acquire(&mut self.world.names, &spec.pod_sets);
        let id = self.world.workloads.insert(Workload {
            key: spec.key,
            uid: spec.uid,
            local,
            priority: spec.priority,
            created: spec.created,
            order: spec.queue_order,
            generation: spec.generation,
            gated: spec.preemption_gated,
            replaces: spec.replaces.map(Arc::new),
            shape,
            place: Place::Inactive,
            last_assignment: None,
            scans: 0,
            keeps_capacity: false,
            decision: None,
            taken_in_cycle: 0,
            preempted: false,
        });
        self.enter(id, spec.state, None, now);
        self.outside_change(id);
    }

    fn update_workload(&mut self, id: WorkloadId, spec: WorkloadSpec, now: Time) -> bool {
        let local = self.ensure_local(&spec.key.namespace, &spec.local_queue);
        let shape = self.world.shapes.acquire(&mut self.world.names, &spec.pod_sets);
        let old = self.world.workloads.get(id);
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
        let same_slice = old.replaces.as_deref() == spec.replaces.as_ref();
        if same_base && same_slice && self.is_state(id, &spec.state) {
            self.world.shapes.release(shape);
            return false;
        }
        let priority_changed = old.priority != spec.priority;
        // The earlier decision was about another request, or another queue.
        let other = old.shape != shape || old.local != local || !same_slice;
        let outside = priority_changed || other || !caused_inside(old, &spec.state);
        if outside {
            self.outside_change(id);
        }
        self.sweeps.replaced(other);
        let was = self.queue_position(id);
        let before = self.take_out(id);
        let old_shape = std::mem::replace(&mut self.world.workloads.get_mut(id).shape, shape);
        self.world.shapes.release(old_shape);
        let workload = self.world.workloads.get_mut(id);
        workload.local = local;
        workload.priority = spec.priority;
        workload.created = spec.created;
        workload.order = spec.queue_order;
        workload.generation = spec.generation;
        workload.gated = spec.preemption_gated;
        workload.replaces = spec.replaces.map(Arc::new);
        let kept_capacity = std::mem::take(&mut workload.keeps_capacity);
        if priority_changed || !same_slice {
            (workload.last_assignment, workload.scans) = (None, 0);
        }
        if other || !matches!(spec.state, WorkloadState::Pending { .. }) {
            workload.decision = None;
        }
        if before.is_none() {
            workload.preempted = false;
        }
        self.enter(id, spec.state, was, now);
        if outside {
            self.outside_change(id);
        }
        if let Some(was) = was
            && (kept_capacity || self.queue_position(id).is_none_or(|now| now.queue != was.queue))
        {
            self.flush_around(was.queue);
        }
        self.may_be_no_head(id, was);
        self.flush_freed(id, before, priority_changed);
        true
    }

    /// Notifies the preemption-loop guard that something happened to a workload that no preemption caused: what it held back is tried again.
    fn outside_change(&mut self, id: WorkloadId) {
        let workload = self.world.workloads.get(id);
        let waiting = workload.waiting().and_then(|waiting| waiting.at).map(|at| at.0);
        if let Some(queue) = workload.reservation().map(|reservation| reservation.queue).or(waiting) {
            self.outside_change_in(self.world.forest.node(self.world.queues[queue.at()].node).root);
        }
    }

    /// Flushes the tree if something is free now that was held before, or if victims may be easier to get. The priority of a waiting workload changes
    /// nothing for others.
    fn flush_freed(&mut self, id: WorkloadId, before: Option<QuotaReservation>, priority_changed: bool) {
        let now = self.world.workloads.get(id).reservation();
        let freed = before.as_ref().is_some_and(|before| {
            now.is_none_or(|now| {
                now.queue != before.queue
                    || now.topology != before.topology
                    || before.usage.iter().any(|&(pair, _, amount)| {
                        now.usage.iter().find(|usage| usage.0 == pair).map_or(0, |usage| usage.2) < amount
                    })
            })
        });
        if let Some(before) = &before {
            self.world.forest.workloads_changed(self.world.queues[before.queue.at()].node);
        }
        if let Some(before) = before.filter(|_| freed || priority_changed) {
            if freed {
                let node = self.world.queues[before.queue.at()].node;
                self.world.forest.capacity_changed(node);
                self.capacity_freed(&before);
                if self.world.workloads.get(id).reservation().is_some() {
                    self.outside_change_in(self.world.forest.node(node).root);
                }
            }
            self.flush_around(before.queue);
        }
    }

    /// Removes a workload; what it held is free.
    pub fn remove_workload(&mut self, key: &WorkloadKey, _now: Time) {
        self.drop_workload(key);
    }

    /// As [`Scheduler::remove_workload`]; false if the workload is not known, and no cycle has anything new to decide on.
    pub fn drop_workload(&mut self, key: &WorkloadKey) -> bool {
        self.refresh();
        let known = self.world.workloads.find(key);
        if let Some(id) = known {
            self.forget(id);
        }
        known.is_some()
    }

    fn forget(&mut self, id: WorkloadId) {
        self.sweeps.removed();
        self.outside_change(id);
        self.settle(id);
        let was = self.queue_position(id);
        let before = self.take_out(id);
        self.agenda.blocked.take_if(|blocked| *blocked == id);
        self.agenda.second_passes.remove(id);
        self.world.shapes.release(self.world.workloads.get(id).shape);
        self.world.workloads.remove(id);
        if let Some(before) = before {
            self.world.forest.capacity_changed(self.world.queues[before.queue.at()].node);
            self.capacity_freed(&before);
            self.flush_around(before.queue);
        }
        // A waiting workload may have kept others from quota, as the head of its queue.
        if let Some(was) = was {
            self.flush_around(was.queue);
        }
        self.may_be_no_head(id, was);
    }

    /// The write of an admission failed: forget what was assumed, and queue the workload again at once.
    pub fn admission_failed(&mut self, key: &WorkloadKey, now: Time) {
        self.refresh();
        let Some(id) =
            self.world.workloads.find(key).filter(|&id| self.world.workloads.get(id).reservation().is_some())
        else {
            return;
        };
        let Some(before) = self.take_out(id) else { return };
        self.agenda.second_passes.remove(id);
        self.settle(id);
        self.world.workloads.get_mut(id).place = Place::Pending(Box::default());
        self.queue_pending(id, None, now);
        self.world.forest.capacity_changed(self.world.queues[before.queue.at()].node);
        self.capacity_freed(&before);
        self.flush_around(before.queue);
    }

    /// Takes the entry penalty of a workload back that was not admitted after all.
    fn settle(&mut self, id: WorkloadId) {
        let local = self.world.workloads.get(id).local;
        self.world.locals[local.at()].ledger.settle(id, false);
        self.usage_moved(local);
    }

    /// Whether a workload is in this state already.
    fn is_state(&self, id: WorkloadId, state: &WorkloadState) -> bool {
        let workload = self.world.workloads.get(id);
        match (state, &workload.place) {
            (WorkloadState::Inactive, Place::Inactive) => true,
            (
                WorkloadState::Pending { requeue_at, keeps_place, requeued_false, failed_checks, invalid },
                Place::Pending(is),
            ) => {
                (is.requeue_at, is.keeps_place, is.requeued_false, is.failed_checks, &is.invalid)
                    == (*requeue_at, *keeps_place, *requeued_false, *failed_checks, invalid)
            }
            (
                WorkloadState::Reserved { admission, reserved_at, admitted, evicted, pods_ready, topology },
                Place::QuotaReserved(reservation),
            ) => {
                let queue = &self.world.queues[reservation.queue.at()];
                (reservation.reserved_at, reservation.admitted, reservation.evicted, reservation.pods_ready)
                    == (*reserved_at, *admitted, *evicted, *pods_ready)
                    && queue.name == admission.cluster_queue
                    && self.uses_exactly(&reservation.usage, admission)
                    && Self::holds_nodes(reservation, admission, topology)
            }
            _ => false,
        }
    }

    fn uses_exactly(&self, usage: &ReservedUsage, admission: &Admission) -> bool {
        let mut rest: ReservedUsage = usage.clone();
        for (flavor, resource, amount) in totals(admission) {
            let found = rest.iter().position(|(pair, _, _)| {
                let (held_flavor, held_resource) = self.world.names.flavor_and_resource(*pair);
                self.world.names.flavor_name(held_flavor) == flavor
                    && self.world.names.resource_name(held_resource) == resource
            });
            match found {
                Some(at) if rest[at].2 >= amount => rest[at].2 -= amount,
                _ => return false,
            }
        }
        rest.iter().all(|&(_, _, left)| left == 0)
    }

    /// Sets the state of a workload that is in no place.
    fn enter(&mut self, id: WorkloadId, state: WorkloadState, was: Option<QueuePosition>, now: Time) {
        if !matches!(state, WorkloadState::Reserved { .. }) {
            self.settle(id);
            self.agenda.second_passes.remove(id);
        }
        match state {
            WorkloadState::Inactive => self.world.workloads.get_mut(id).last_assignment = None,
            WorkloadState::Pending { requeue_at, keeps_place, requeued_false, failed_checks, invalid } => {
                let waiting =
                    Waiting { requeue_at, keeps_place, requeued_false, failed_checks, invalid, at: None };
                self.world.workloads.get_mut(id).place = Place::Pending(Box::new(waiting));
                self.queue_pending(id, was, now);
            }
            WorkloadState::Reserved { admission, reserved_at, admitted, evicted, pods_ready, topology } => {
                let queue = self.ensure_queue(&admission.cluster_queue);
                let mut usage = ReservedUsage::new();
                for (flavor, resource, amount) in totals(&admission) {
                    let (flavor, resource) =
                        (self.world.names.flavor(flavor), self.world.names.resource(resource));
                    let pair = self.world.names.pair(flavor, resource);
                    let node = self.world.queues[queue.at()].node;
                    let slot = self.world.forest.ensure_slot(&mut self.books.usage, node, pair);
                    match usage.iter_mut().find(|usage| usage.0 == pair) {
                        Some(usage) => usage.2 += amount,
                        None => usage.push((pair, slot, amount)),
                    }
                }
                let topology = self.nodes_of(id, &admission, topology);
                self.reserve_quota(
                    id,
                    QuotaReservation { queue, usage, reserved_at, admitted, evicted, pods_ready, topology },
                );
                self.queue_second_pass_if_needed(id, now);
            }
        }
    }

    /// Takes a workload out of wherever it is; returns what it held.
    pub(crate) fn take_out(&mut self, id: WorkloadId) -> Option<QuotaReservation> {
        let place = std::mem::replace(&mut self.world.workloads.get_mut(id).place, Place::Inactive);
        match place {
            Place::Inactive => None,
            Place::Pending(waiting) => {
                let local = self.world.workloads.get(id).local;
                self.world.locals[local.at()].pending.remove(&id);
                self.changes.locals.mark(local.at());
                self.agenda.kept_out.replace(id, &[]);
                self.unqueue(id, &waiting);
                None
            }
            Place::QuotaReserved(reservation) => {
                self.release(id, &reservation);
                Some(*reservation)
            }
        }
    }
}

/// Whether a change of state is a consequence of preemption: a victim leaves, or a workload stays pending or keeps its quota. All other changes come
/// from outside.
fn caused_inside(workload: &Workload, state: &WorkloadState) -> bool {
    match (&workload.place, state) {
        (Place::Pending(_), WorkloadState::Pending { .. })
        | (Place::QuotaReserved(_), WorkloadState::Reserved { .. }) => true,
        (Place::QuotaReserved(_), WorkloadState::Pending { .. }) => workload.preempted,
        _ => false,
    }
}

/// The totals of each (flavor, resource) pair of an admission, one per pod set; no negative ones.
fn totals(admission: &Admission) -> impl Iterator<Item = (&crate::Name, &crate::Name, i128)> {
    admission.pod_sets.iter().flat_map(|pod_set| {
        pod_set.flavors.iter().filter_map(|(resource, flavor)| {
            let (_, amount) = pod_set.usage.iter().find(|(name, _)| name == resource)?;
            Some((flavor, resource, i128::from(amount.get().max(0))))
        })
    })
}
