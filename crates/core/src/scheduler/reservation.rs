//! The usage of a workload counts in all sums: the quota tree, its queue's holders, its LocalQueue.

use super::Scheduler;
use crate::intern::{LocalId, QueueId, WorkloadId};
use crate::quota::clamp;
use crate::workload::WorkloadKey;
use crate::workloads::{Place, QuotaReservation};
use crate::{Amount, Name};

impl Scheduler {
    /// Lets a workload hold quota.
    pub(crate) fn reserve_quota(&mut self, id: WorkloadId, reservation: QuotaReservation) {
        let key = self.world.workloads.candidate_key(id, reservation.reserved_at);
        let local = self.world.workloads.get(id).local;
        self.note_borrowing(id, &reservation);
        let queue = &mut self.world.queues[reservation.queue.at()];
        if reservation.evicted { &mut queue.reservations.evicted } else { &mut queue.reservations.running }
            .insert(key);
        queue.admitted += usize::from(reservation.admitted);
        let row = &mut self.world.locals[local.at()];
        row.reserving += 1;
        row.admitted += usize::from(reservation.admitted);
        for (pair, slot, amount) in reservation.charged() {
            self.books.usage.add(&self.world.forest.quota, slot, amount);
            self.books.add_capacity(pair, amount);
            let sums = row.usage.entry(pair).or_insert((0, 0));
            sums.0 += amount;
            if reservation.admitted {
                sums.1 += amount;
                *queue.admitted_usage.entry(pair).or_insert(0) += amount;
            }
        }
        for pods in reservation.topology.iter().flat_map(|topology| topology.pods()) {
            self.books.nodes.add(pods);
        }
        self.agenda.unready += usize::from(!reservation.pods_ready);
        if reservation.admitted {
            row.ledger.settle(id, true);
        }
        self.usage_moved(local);
        self.mark_usage(reservation.queue, local);
        self.world.workloads.get_mut(id).place = Place::QuotaReserved(Box::new(reservation));
    }

    /// The counted usage of a workload: (flavor, resource, amount).
    pub fn reserved(&self, key: &WorkloadKey) -> Vec<(Name, Name, Amount)> {
        let Some(id) = self.world.workloads.find(key) else { return Vec::new() };
        let usage = self.world.workloads.usage_of(id).iter();
        let named = usage.map(|&(pair, _, amount)| {
            let (flavor, resource) = self.world.names.flavor_and_resource(pair);
            let (flavor, resource) =
                (self.world.names.flavor_name(flavor), self.world.names.resource_name(resource));
            (flavor.clone(), resource.clone(), clamp(amount))
        });
        named.collect()
    }

    pub(crate) fn release(&mut self, id: WorkloadId, reservation: &QuotaReservation) {
        let key = self.world.workloads.candidate_key(id, reservation.reserved_at);
        let local = self.world.workloads.get(id).local;
        let queue = &mut self.world.queues[reservation.queue.at()];
        if reservation.evicted { &mut queue.reservations.evicted } else { &mut queue.reservations.running }
            .remove(&key);
        queue.admitted -= usize::from(reservation.admitted);
        let row = &mut self.world.locals[local.at()];
        row.reserving -= 1;
        row.admitted -= usize::from(reservation.admitted);
        for (pair, slot, amount) in reservation.charged() {
            self.books.usage.remove(&self.world.forest.quota, slot, amount);
            self.books.add_capacity(pair, -amount);
            if let Some(usage) = row.usage.get_mut(&pair) {
                usage.0 -= amount;
                if reservation.admitted {
                    usage.1 -= amount;
                }
                if *usage == (0, 0) {
                    row.usage.remove(&pair);
                }
            }
            if reservation.admitted
                && let Some(used) = queue.admitted_usage.get_mut(&pair)
            {
                *used -= amount;
                if *used == 0 {
                    queue.admitted_usage.remove(&pair);
                }
            }
        }
        for pods in reservation.topology.iter().flat_map(|topology| topology.pods()) {
            self.books.nodes.remove(pods);
        }
        self.agenda.unready -= usize::from(!reservation.pods_ready);
        self.mark_usage(reservation.queue, local);
    }

    fn mark_usage(&mut self, queue: QueueId, local: LocalId) {
        self.changes.queues.mark(queue.at());
        self.changes.locals.mark(local.at());
        let node = self.world.queues[queue.at()].node;
        for ancestor in self.world.forest.ancestors(node) {
            self.changes.nodes.mark(ancestor.at());
        }
    }
}
