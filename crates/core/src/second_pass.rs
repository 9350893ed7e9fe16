//! Workloads that hold quota and are evaluated once more, before the heads of the queues (reference 06, 6.4 "Heads", 6.5,
//! 6.15). The placement of pods asks for it once the checks are ready, or when a node is lost.
//!
//! The reservation of such a workload stays as it is: its flavors count as found and its usage as zero, so a second pass
//! takes no quota. Where its pods go is answered by the caller of [`Scheduler::cycle_with`].

use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::{CycleState, Entry};
use crate::intern::WorkloadId;
use crate::reason::{Detail, Reason, Unadmitted};
use crate::report::Outcome;
use crate::scheduler::Scheduler;
use crate::spec::Time;
use crate::view::Head;
use crate::workload::WorkloadKey;

/// The result of a second pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecondPass {
    /// It needs no second pass any more: it is dropped, and nothing is reported.
    NotNeeded,
    /// Its pods have their places.
    Placed,
    /// Not yet, and why. It is tried again after a longer wait.
    Failed(String),
}

/// One workload in the queue of second passes.
#[derive(Debug, Clone, Copy)]
struct QueuedPass {
    at: Time,
    /// How often it was put here, from 1.
    iteration: u32,
}

/// The queue of second passes.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecondPassQueue {
    queued: BTreeMap<WorkloadId, QueuedPass>,
    /// Those that wait for their time.
    waiting: BTreeSet<(Time, WorkloadId)>,
    /// Those whose time has come.
    ready: BTreeSet<(Time, WorkloadId)>,
}

impl SecondPassQueue {
    /// Puts a workload in for its next pass, unless it is in.
    fn push(&mut self, id: WorkloadId, iteration: u32, now: Time) {
        let at = Time(now.0.saturating_add(delay(iteration)));
        if let std::collections::btree_map::Entry::Vacant(queued) = self.queued.entry(id) {
            queued.insert(QueuedPass { at, iteration });
            self.waiting.insert((at, id));
        }
    }

    /// Takes a workload out, wherever it is.
    pub(crate) fn remove(&mut self, id: WorkloadId) {
        if let Some(queued) = self.queued.remove(&id) {
            self.waiting.remove(&(queued.at, id));
            self.ready.remove(&(queued.at, id));
        }
    }

    /// Those that are in, by id.
    pub(crate) fn ids(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.queued.keys().copied()
    }

    /// Makes those ready whose time has come.
    pub(crate) fn wake(&mut self, now: Time) {
        while let Some(&queued) = self.waiting.first().filter(|queued| queued.0 <= now) {
            self.waiting.remove(&queued);
            self.ready.insert(queued);
        }
    }

    /// When the next one is ready.
    pub(crate) fn next(&self) -> Option<Time> {
        self.waiting.first().map(|queued| queued.0)
    }

    /// Whether one is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes all that are ready, the longest ready first, each with its iteration.
    fn take_ready(&mut self) -> Vec<(WorkloadId, u32)> {
        let ready = std::mem::take(&mut self.ready);
        ready.into_iter().filter_map(|(_, id)| Some((id, self.queued.remove(&id)?.iteration))).collect()
    }
}

/// The wait before a pass in nanoseconds: 1 s, 2 s, 4 s … at most 30 s.
fn delay(iteration: u32) -> i64 {
    let seconds = 1_i64 << iteration.saturating_sub(1).min(5);
    seconds.min(30) * 1_000_000_000
}

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
    pub(crate) fn take_second_passes(&mut self, now: Time, state: &mut CycleState) -> Vec<Entry> {
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
        Some(Entry::of_second_pass(head, self.order_key(id), iteration))
    }

    /// Evaluates an entry that holds quota once more. Nothing of the first pass can refuse it: not `blockAdmission`,
    /// not what earlier entries took (reference 06, 6.5 and 6.15).
    pub(crate) fn second_pass(
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
        Some(Unadmitted { reason, detail, requests: std::sync::Arc::from([]) }.message())
    }

    /// Reports a second pass; one that failed is queued again.
    pub(crate) fn second_pass_done(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_a_second_to_half_a_minute() {
        let seconds = |iteration| delay(iteration) / 1_000_000_000;
        assert_eq!([1, 2, 3, 4, 5, 6, 7, u32::MAX].map(seconds), [1, 2, 4, 8, 16, 30, 30, 30]);
    }
}
