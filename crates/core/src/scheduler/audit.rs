//! The audit: usage and queues rebuilt from the workloads, compared with the incrementally updated ones.

use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use crate::intern::{FrId, LocalId, QueueId, SlotId, WorkloadId};
use crate::queue::Placement;
use crate::referring_queues::ReferringQueues;
use crate::usage::Usage;
use crate::workloads::{Place, QuotaReservation};

impl Scheduler {
    /// Rebuilds usage and queues from the specs and compares.
    ///
    /// # Errors
    ///
    /// The differences, if there are any.
    pub fn audit(&self) -> Result<(), Vec<String>> {
        let mut found = Vec::new();
        self.audit_usage(&mut found);
        self.audit_holders(&mut found);
        self.audit_pending(&mut found);
        self.audit_locals(&mut found);
        self.audit_capacity(&mut found);
        self.audit_second_passes(&mut found);
        self.audit_referring_queues(&mut found);
        self.audit_samples(&mut found);
        self.world.shapes.audit(&mut found);
        self.world.topology.audit(&self.books.nodes, &mut found);
        self.world.topology.audit_usage(&self.books.nodes, self.world.workloads.all_pods(), &mut found);
        if found.is_empty() { Ok(()) } else { Err(found) }
    }

    /// Which queues name a flavor or a check.
    fn audit_referring_queues(&self, found: &mut Vec<String>) {
        let mut referring_queues = ReferringQueues::default();
        for (at, queue) in self.world.queues.iter().enumerate() {
            referring_queues.replace(QueueId::new(at), (&[], None), (&queue.groups, queue.spec.as_ref()));
        }
        if referring_queues != self.world.referring_queues {
            found.push("the queues by flavor and check are wrong".to_owned());
        }
    }

    /// Only workloads that hold quota and are not evicted have a second pass.
    fn audit_second_passes(&self, found: &mut Vec<String>) {
        for id in self.agenda.second_passes.ids() {
            let reservation = self.world.workloads.try_get(id).and_then(|workload| workload.reservation());
            if reservation.is_none_or(|reservation| reservation.evicted) {
                found.push(format!("{id:?} is to have a second pass, but keeps no quota"));
            }
        }
    }

    /// Compares the usage of every slot with a new sum.
    fn audit_usage(&self, found: &mut Vec<String>) {
        if !self.books.is_settled() {
            found.push("something that was tried is neither kept nor taken back".to_owned());
        }
        let tree = self.numbers();
        let mut usage = Usage::default();
        usage.grow(tree.forest.quota.len());
        for (_, workload) in self.world.workloads.iter() {
            for (_, slot, amount) in workload.reservation().into_iter().flat_map(QuotaReservation::charged) {
                usage.add(&tree.forest.quota, slot, amount);
            }
        }
        for at in 0..tree.forest.quota.len() {
            let slot = SlotId::new(at);
            if usage.get(slot) != tree.usage.get(slot) {
                found.push(format!("slot {at} uses {}, should be {}", tree.usage.get(slot), usage.get(slot)));
            }
        }
    }

    /// The holders of each queue, and how many and what is admitted.
    fn audit_holders(&self, found: &mut Vec<String>) {
        let mut running = vec![BTreeSet::new(); self.world.queues.len()];
        let mut evicted = running.clone();
        let mut admitted = vec![(0, BTreeMap::<FrId, i128>::new()); self.world.queues.len()];
        let mut unready = 0;
        for (id, workload) in self.world.workloads.iter() {
            let Some(reservation) = workload.reservation() else { continue };
            let at = reservation.queue.at();
            let list = if reservation.evicted { &mut evicted } else { &mut running };
            list[at].insert(self.world.workloads.candidate_key(id, reservation.reserved_at));
            unready += usize::from(!reservation.pods_ready);
            if reservation.admitted {
                admitted[at].0 += 1;
                for (pair, _, amount) in reservation.charged() {
                    *admitted[at].1.entry(pair).or_default() += amount;
                }
            }
        }
        for (at, queue) in self.world.queues.iter().enumerate() {
            if queue.reservations.running != running[at] || queue.reservations.evicted != evicted[at] {
                found.push(format!("the reservations of {} are wrong", queue.name));
            }
            if (queue.admitted, &queue.admitted_usage) != (admitted[at].0, &admitted[at].1) {
                found.push(format!("the admitted workloads of {} are wrong", queue.name));
            }
        }
        if unready != self.agenda.unready {
            found.push(format!("{} unready workloads, should be {unready}", self.agenda.unready));
        }
    }

    /// Each waiting workload is in exactly the right queue, and nothing else is.
    fn audit_pending(&self, found: &mut Vec<String>) {
        let mut members = vec![0; self.world.queues.len()];
        for (id, workload) in self.world.workloads.iter() {
            let Place::Pending(waiting) = &workload.place else { continue };
            let target = self.world.locals[workload.local.at()].target();
            if waiting.at.map(|at| at.0) != target {
                found.push(format!("{} waits in {:?}, should be {target:?}", workload.key, waiting.at));
            }
            let Some((queue, class)) = waiting.at else { continue };
            members[queue.at()] += 1;
            let pending = &self.world.queues[queue.at()].pending;
            let key = pending.class(class).key;
            match pending.placement(class, &self.world.workloads.order_key(id)) {
                Some(Placement::Active | Placement::Inadmissible | Placement::OnHold)
                    if (key.shape, key.priority) == (workload.shape, workload.priority) => {}
                other => found.push(format!("{} is in {other:?} of class {class:?}", workload.key)),
            }
        }
        for (at, queue) in self.world.queues.iter().enumerate() {
            if let Err(error) = queue.pending.check() {
                found.push(format!("the queue of {}: {error}", queue.name));
            }
            let total = queue.pending.active() + queue.pending.inadmissible();
            if total != members[at] {
                found
                    .push(format!("{} has {total} pending workloads, should be {}", queue.name, members[at]));
            }
            let ready = queue.is_active() && queue.pending.active() > 0;
            if self.agenda.ready.contains(&crate::intern::QueueId::new(at)) != ready {
                found.push(format!("{} is listed as ready: {}", queue.name, !ready));
            }
        }
    }

    /// The usage of each LocalQueue's workloads, and which wait.
    fn audit_locals(&self, found: &mut Vec<String>) {
        let mut pending = vec![BTreeSet::<WorkloadId>::new(); self.world.locals.len()];
        let mut sums = vec![(0, 0, BTreeMap::<FrId, (i128, i128)>::new()); self.world.locals.len()];
        for (id, workload) in self.world.workloads.iter() {
            let at = workload.local.at();
            if workload.waiting().is_some() {
                pending[at].insert(id);
            }
            let Some(reservation) = workload.reservation() else { continue };
            sums[at].0 += 1;
            sums[at].1 += usize::from(reservation.admitted);
            for (pair, _, amount) in reservation.charged() {
                let row = sums[at].2.entry(pair).or_default();
                row.0 += amount;
                row.1 += if reservation.admitted { amount } else { 0 };
            }
        }
        for (at, local) in self.world.locals.iter().enumerate() {
            let is = (local.reserving, local.admitted, &local.usage);
            let id = LocalId::new(at);
            if local.pending != pending[at] || is != (sums[at].0, sums[at].1, &sums[at].2) {
                found.push(format!("LocalQueue {}/{} ({id:?}) is wrong", local.namespace, local.name));
            }
        }
    }
}
