//! An entry gets its victims, which keep their quota until they are gone (docs/reference/06-algorithm.md 6.5 and 6.17).

use super::entry::{CycleState, Entry, Requeue};
use super::requeue::{flavors, why};
use crate::reason::Reason;
use crate::report::{CycleReport, Outcome, Victim};
use crate::scheduler::Scheduler;
use crate::view::{Head, Target};
use crate::workloads::Place;

impl Scheduler {
    /// Records the victims; the entry waits for them in its heap.
    pub(super) fn preempt(&mut self, entry: &Entry, state: &mut CycleState) {
        let id = entry.head.workload;
        let victims = self.take_victims(&entry.head, &entry.targets, state);
        if let Some(slice) = entry.replaced {
            self.world.workloads.get_mut(slice).taken_in_cycle = self.cycle;
        }
        // The next attempt looks at all flavors again.
        self.world.workloads.get_mut(id).last_assignment = None;
        let reason = Reason::WaitingForPreemptedWorkloads;
        let why = why(entry, flavors(entry, victims.len()), reason);
        let outcome = Outcome::Preempting { victims, why: why.clone() };
        state.report.entries.push(self.report(entry, outcome));
        self.requeue(entry, &why, Requeue::PendingPreemption, state);
    }

    /// Takes victims: no other entry of the cycle gets them, and they are evicted at its end.
    pub(super) fn take_victims(
        &mut self,
        head: &Head,
        targets: &[Target],
        state: &mut CycleState,
    ) -> Vec<Victim> {
        let mut victims = Vec::with_capacity(targets.len());
        let preemptor_path = self.world.forest.node(head.node).path.clone();
        for target in targets {
            let workload = self.world.workloads.get_mut(target.workload);
            workload.taken_in_cycle = self.cycle;
            let Some(reservation) = workload.reservation() else { continue };
            let queue = &self.world.queues[reservation.queue.at()];
            state.report.progress |= !reservation.evicted;
            victims.push(Victim {
                key: workload.key.clone(),
                uid: workload.uid.clone(),
                cluster_queue: queue.name.clone(),
                reason: target.reason,
                preemptor_path: preemptor_path.clone(),
                preemptee_path: self.world.forest.node(queue.node).path.clone(),
                already_evicted: reservation.evicted,
            });
            state.victims.push((target.workload, head.workload));
        }
        victims
    }

    /// Takes back what only lasted for the cycle, and marks the victims.
    pub(super) fn finish(&mut self, mut state: CycleState) -> CycleReport {
        for (slot, amount) in std::mem::take(&mut state.transient).into_values().flatten() {
            self.books.usage.remove(&self.world.forest.quota, slot, amount);
        }
        let reserved = state.reserved_pods.iter().map(|(_, pods)| pods);
        for pods in state.transient_pods.iter().chain(reserved) {
            self.books.nodes.remove(pods);
        }
        for (victim, by) in std::mem::take(&mut state.victims) {
            let Some(reservation) = self.world.workloads.get(victim).reservation() else { continue };
            if reservation.evicted {
                continue;
            }
            let (queue, reserved_at) = (reservation.queue, reservation.reserved_at);
            let node = self.world.queues[queue.at()].node;
            self.world.forest.workloads_changed(node);
            let root = self.world.forest.node(node).root;
            if self.world.config.gates.preemption_loop_guard {
                self.agenda.loops.evicted(root, by, victim);
            }
            self.drop_second_pass(victim);
            let key = self.world.workloads.candidate_key(victim, reserved_at);
            let reservations = &mut self.world.queues[queue.at()].reservations;
            reservations.running.remove(&key);
            reservations.evicted.insert(key);
            let workload = self.world.workloads.get_mut(victim);
            workload.preempted = true;
            if let Place::QuotaReserved(reservation) = &mut workload.place {
                reservation.evicted = true;
            }
        }
        self.wake_reclaimers();
        self.wake_kept_out(&mut state);
        state.report
    }
}
