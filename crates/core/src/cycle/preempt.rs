//! An entry gets its victims, which keep their quota until they are gone (reference 06, 6.5 and 6.17).

use super::requeue::{flavors, why};
use super::{Entry, Progress, Requeue};
use crate::reason::Reason;
use crate::report::{CycleReport, Outcome, Victim};
use crate::scheduler::Scheduler;
use crate::workloads::Place;

impl Scheduler {
    /// Records the victims; the entry waits for them in its heap.
    pub(super) fn preempt(&mut self, entry: &Entry, progress: &mut Progress) {
        let id = entry.head.workload;
        let mut victims = Vec::with_capacity(entry.targets.len());
        let preemptor_path = self.tree.forest.node(entry.head.node).path.clone();
        for target in &entry.targets {
            let workload = self.workloads.get_mut(target.workload);
            workload.settled = self.cycle;
            let Some(hold) = workload.hold() else { continue };
            let queue = &self.queues[hold.queue.at()];
            progress.report.progress |= !hold.evicted;
            victims.push(Victim {
                key: workload.key.clone(),
                uid: workload.uid.clone(),
                cluster_queue: queue.name.clone(),
                reason: target.reason,
                preemptor_path: preemptor_path.clone(),
                preemptee_path: self.tree.forest.node(queue.node).path.clone(),
                already_evicted: hold.evicted,
            });
            progress.victims.push((target.workload, id));
        }
        // The next attempt looks at all flavors again.
        self.workloads.get_mut(id).progress = None;
        let reason = Reason::WaitingForPreemptedWorkloads;
        let why = why(entry, flavors(entry, victims.len()), reason);
        let outcome = Outcome::Preempting { victims, why: why.clone() };
        progress.report.entries.push(self.report(entry, outcome));
        self.requeue(entry, &why, Requeue::PendingPreemption, progress);
    }

    /// Takes back what only lasted for the cycle, and marks the victims.
    pub(super) fn finish(&mut self, progress: Progress) -> CycleReport {
        for (slot, amount) in progress.transient.into_values().flatten() {
            self.tree.usage.remove(&self.tree.forest.quota, slot, amount);
        }
        for (victim, by) in progress.victims {
            let Some(hold) = self.workloads.get(victim).hold() else { continue };
            if hold.evicted {
                continue;
            }
            let (queue, reserved_at) = (hold.queue, hold.reserved_at);
            let root = self.tree.forest.node(self.queues[queue.at()].node).root;
            if self.config.gates.preemption_loop_guard {
                self.loops.evicted(root, by, victim);
            }
            self.second_passes.remove(victim);
            let key = self.candidate_key(victim, reserved_at);
            let holders = &mut self.queues[queue.at()].holders;
            holders.running.remove(&key);
            holders.evicted.insert(key);
            let workload = self.workloads.get_mut(victim);
            workload.preempted = true;
            if let Place::Holding(hold) = &mut workload.place {
                hold.evicted = true;
            }
        }
        progress.report
    }
}
