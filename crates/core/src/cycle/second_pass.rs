//! The second passes of a cycle (docs/reference/06-algorithm.md 6.5 and 6.15; see [`crate::second_pass`]).

use std::sync::Arc;

use super::entry::{CycleState, Entry};
use crate::intern::WorkloadId;
use crate::reason::{Detail, Reason, Unadmitted};
use crate::report::Outcome;
use crate::scheduler::Scheduler;
use crate::second_pass::SecondPass;
use crate::spec::Time;
use crate::view::Head;
use crate::workload::WorkloadKey;

impl Scheduler {
    /// Asks for a second pass of a workload, a second from now. Nothing happens if it is asked for already, or if the
    /// workload holds no quota or is being evicted.
    pub fn queue_second_pass(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.workloads.find(key) else { return };
        if self.workloads.get(id).reservation().is_some_and(|reservation| !reservation.evicted) {
            self.second_passes.push(id, 1, now);
        }
    }

    /// The workloads whose second pass is due: heads beside those of the queues. Those of an inactive ClusterQueue fail.
    pub(super) fn take_second_passes(&mut self, now: Time, state: &mut CycleState) -> Vec<Entry> {
        let mut entries = Vec::new();
        for queued in self.second_passes.take_ready() {
            let Some(entry) = self.second_pass_entry(queued) else { continue };
            match self.second_pass_objection(&entry) {
                Some(why) => self.second_pass_done(&entry, Err(why), now, state),
                None => entries.push(entry),
            }
        }
        entries
    }

    fn second_pass_entry(&self, (id, iteration): (WorkloadId, u32)) -> Option<Entry> {
        let workload = self.workloads.get(id);
        let queue = workload.reservation().filter(|reservation| !reservation.evicted)?.queue;
        let head = Head {
            workload: id,
            queue,
            node: self.queues[queue.at()].node,
            priority: workload.priority,
            order: workload.order,
        };
        Some(Entry::of_second_pass(head, self.workloads.order_key(id), iteration))
    }

    /// Evaluates an entry that holds quota once more. Nothing of the first pass can refuse it: not `blockAdmission`,
    /// not what earlier entries took (docs/reference/06-algorithm.md 6.5 and 6.15).
    pub(super) fn second_pass(
        &mut self,
        entry: &Entry,
        now: Time,
        place: &mut dyn FnMut(&WorkloadKey) -> SecondPass,
        state: &mut CycleState,
    ) {
        let result = match place(&self.workloads.get(entry.head.workload).key) {
            SecondPass::NotNeeded => return,
            SecondPass::Placed => Ok(()),
            SecondPass::Failed(why) => Err(why),
        };
        self.second_pass_done(entry, result, now, state);
    }

    /// What keeps a ClusterQueue from having second passes.
    fn second_pass_objection(&self, entry: &Entry) -> Option<String> {
        let queue = &self.queues[entry.head.queue.at()];
        let (reason, detail) = match &queue.spec {
            None => (Reason::Misconfigured, Detail::QueueMissing(queue.name.clone())),
            Some(_) if queue.is_active() && !self.tree.forest.node(queue.node).in_cycle => return None,
            Some(_) => (Reason::Suspended, Detail::QueueInactive(queue.name.clone())),
        };
        Some(Unadmitted { reason, detail, requests: Arc::from([]) }.message())
    }

    /// Reports a second pass; one that failed is queued again.
    pub(super) fn second_pass_done(
        &mut self,
        entry: &Entry,
        result: Result<(), String>,
        now: Time,
        state: &mut CycleState,
    ) {
        if result.is_ok() {
            state.report.progress = true;
        } else {
            let iteration = entry.second_pass.unwrap_or_default().saturating_add(1);
            self.second_passes.push(entry.head.workload, iteration, now);
        }
        state.report.entries.push(self.report(entry, Outcome::SecondPass(result)));
    }
}
