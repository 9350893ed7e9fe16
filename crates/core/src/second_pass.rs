//! Workloads with quota that are evaluated once more, before the heads of the queues (docs/reference/06-algorithm.md 6.4 "Heads", 6.5, 6.15). The
//! placement of pods requires it once the checks are ready, or when a node is lost.
//!
//! The reservation of such a workload stays: its flavors count as found and its usage as zero, so a second pass uses no quota.

use std::collections::{BTreeMap, BTreeSet};

use crate::Name;
use crate::backoff::Backoff;
use crate::intern::WorkloadId;
use crate::spec::Time;
use crate::topology::PlacedPods;

/// One workload in the queue of second passes.
#[derive(Debug, Clone, Copy)]
struct QueuedPass {
    at: Time,
    /// How often it was put here, from 1.
    iteration: u32,
}

/// Nodes that were lent out, and that a slice waits for.
#[derive(Debug, Clone)]
pub(crate) struct LentNodes {
    /// The workloads that were evicted for them, and when each had reserved its quota.
    pub(crate) victims: Vec<(WorkloadId, Time)>,
    /// The unhealthy nodes for which the slice moves.
    pub(crate) lost: Vec<Name>,
    /// The pods of the slice, where they will be.
    pub(crate) pods: Vec<PlacedPods>,
    /// Until when it waits for pods that still use them; none before those who borrowed them have given their quota back.
    pub(crate) until: Option<Time>,
}

/// The queue of second passes.
#[derive(Debug, Clone, Default)]
pub(crate) struct SecondPassQueue {
    queued: BTreeMap<WorkloadId, QueuedPass>,
    /// Passes that wait for their time.
    waiting: BTreeSet<(Time, WorkloadId)>,
    /// Passes whose time has come.
    ready: BTreeSet<(Time, WorkloadId)>,
    /// Passes of slices that wait for lent nodes, with their iteration: they are ready in every cycle.
    lent: BTreeMap<WorkloadId, (u32, LentNodes)>,
    /// When these stop waiting.
    ends: BTreeSet<(Time, WorkloadId)>,
}

impl SecondPassQueue {
    /// Puts a workload in for its next pass, unless it is in.
    pub(crate) fn push(&mut self, id: WorkloadId, iteration: u32, now: Time) {
        if self.lent.contains_key(&id) {
            return;
        }
        let at = Time(now.0.saturating_add(delay(iteration)));
        if let std::collections::btree_map::Entry::Vacant(queued) = self.queued.entry(id) {
            queued.insert(QueuedPass { at, iteration });
            self.waiting.insert((at, id));
        }
    }

    /// Puts a workload in, which is not in, and whose pass is ready at once.
    pub(crate) fn push_ready(&mut self, id: WorkloadId, iteration: u32, now: Time) {
        self.queued.insert(id, QueuedPass { at: now, iteration });
        self.ready.insert((now, id));
    }

    /// Puts a workload in whose slice waits for lent nodes.
    pub(crate) fn wait_for_lent(&mut self, id: WorkloadId, iteration: u32, lent: LentNodes) {
        self.remove(id);
        self.ends.extend(lent.until.map(|until| (until, id)));
        self.lent.insert(id, (iteration, lent));
    }

    /// Whether the slice of a workload waits for lent nodes.
    pub(crate) fn waits_for_lent(&self, id: WorkloadId) -> bool {
        self.lent.contains_key(&id)
    }

    /// Takes a workload out whose slice waits for lent nodes; returns the iteration of its pass.
    pub(crate) fn wait_ends(&mut self, id: WorkloadId) -> Option<u32> {
        let iteration = self.lent.get(&id)?.0;
        self.remove(id);
        Some(iteration)
    }

    /// The pods of all slices that wait for lent nodes.
    pub(crate) fn lent_pods(&self) -> impl Iterator<Item = &PlacedPods> {
        self.lent.values().flat_map(|(_, lent)| &lent.pods)
    }

    /// Takes a workload out, wherever it is.
    pub(crate) fn remove(&mut self, id: WorkloadId) {
        if let Some(queued) = self.queued.remove(&id) {
            self.waiting.remove(&(queued.at, id));
            self.ready.remove(&(queued.at, id));
        }
        if let Some(until) = self.lent.remove(&id).and_then(|(_, lent)| lent.until) {
            self.ends.remove(&(until, id));
        }
    }

    /// The queued workloads, by id.
    pub(crate) fn ids(&self) -> impl Iterator<Item = WorkloadId> + '_ {
        self.queued.keys().chain(self.lent.keys()).copied()
    }

    /// Makes those ready whose time has come. A slice that has waited long enough for lent nodes is ready already.
    pub(crate) fn wake(&mut self, now: Time) {
        while let Some(&end) = self.ends.first().filter(|end| end.0 <= now) {
            self.ends.remove(&end);
        }
        while let Some(&queued) = self.waiting.first().filter(|queued| queued.0 <= now) {
            self.waiting.remove(&queued);
            self.ready.insert(queued);
        }
    }

    /// When the next pass is ready, or a slice stops waiting for lent nodes.
    pub(crate) fn next(&self) -> Option<Time> {
        let firsts = [self.waiting.first(), self.ends.first()];
        firsts.into_iter().flatten().map(|first| first.0).min()
    }

    /// Whether a pass is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.lent.is_empty()
    }

    /// Takes all whose slice waits for lent nodes, each with its iteration.
    pub(crate) fn take_lent(&mut self) -> BTreeMap<WorkloadId, (u32, LentNodes)> {
        self.ends.clear();
        std::mem::take(&mut self.lent)
    }

    /// Takes all that are ready, the longest ready first, each with its iteration.
    pub(crate) fn take_ready(&mut self) -> Vec<(WorkloadId, u32)> {
        let ready = std::mem::take(&mut self.ready);
        ready.into_iter().filter_map(|(_, id)| Some((id, self.queued.remove(&id)?.iteration))).collect()
    }
}

/// The waits before passes.
const WAITS: Backoff = Backoff::seconds(1, 30);

/// The wait before a pass in nanoseconds.
fn delay(iteration: u32) -> i64 {
    WAITS.doubled(iteration.saturating_sub(1)) * 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_from_a_second_to_half_a_minute() {
        let seconds = |iteration| delay(iteration) / 1_000_000_000;
        assert_eq!([1, 2, 3, 4, 5, 6, 7, u32::MAX].map(seconds), [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn a_slice_that_waits_for_lent_nodes_is_ready_in_every_cycle_and_wakes_once_at_the_end() {
        let mut passes = SecondPassQueue::default();
        let (id, until) = (WorkloadId(3), Time(50));
        let waits = |until| LentNodes { victims: Vec::new(), lost: Vec::new(), pods: Vec::new(), until };
        passes.push(id, 1, Time(0));
        passes.wait_for_lent(id, 2, waits(None));
        assert_eq!((passes.next(), passes.has_ready()), (None, true));
        passes.wait_for_lent(id, 2, waits(Some(until)));
        passes.push(id, 1, Time(0));
        assert_eq!((passes.ids().collect::<Vec<_>>(), passes.next()), (vec![id], Some(until)));
        passes.wake(Time(49));
        assert_eq!((passes.next(), passes.has_ready(), passes.take_ready()), (Some(until), true, Vec::new()));
        passes.wake(until);
        assert_eq!((passes.next(), passes.has_ready(), passes.waits_for_lent(id)), (None, true, true));
        let taken = passes.take_lent();
        assert_eq!(taken.values().map(|(iteration, _)| *iteration).collect::<Vec<_>>(), [2]);
        assert!(!passes.has_ready() && !passes.waits_for_lent(id));
        passes.wait_for_lent(id, 2, waits(Some(until)));
        passes.remove(id);
        assert_eq!((passes.next(), passes.has_ready()), (None, false));
    }
}
