//! Workloads with quota that are evaluated once more, before the heads of the queues (docs/reference/06-algorithm.md 6.4 "Heads", 6.5, 6.15). The
//! placement of pods requires it once the checks are ready, or when a node is lost.
//!
//! The reservation of such a workload stays: its flavors count as found and its usage as zero, so a second pass uses no quota.

use std::collections::{BTreeMap, BTreeSet};

use crate::backoff::Backoff;
use crate::intern::WorkloadId;
use crate::spec::Time;

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
    /// Passes that wait for their time.
    waiting: BTreeSet<(Time, WorkloadId)>,
    /// Passes whose time has come.
    ready: BTreeSet<(Time, WorkloadId)>,
}

impl SecondPassQueue {
    /// Puts a workload in for its next pass, unless it is in.
    pub(crate) fn push(&mut self, id: WorkloadId, iteration: u32, now: Time) {
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

    /// The queued workloads, by id.
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

    /// When the next pass is ready.
    pub(crate) fn next(&self) -> Option<Time> {
        self.waiting.first().map(|queued| queued.0)
    }

    /// Whether a pass is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
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
}
