//! One cycle: heads, nomination, order, processing, requeueing (reference 06, 6.5).

/// What a search sees; a macro, so that the borrow checker sees which fields it takes.
macro_rules! view {
    ($self:ident, $local_usage:expr) => {
        View {
            config: &$self.config,
            names: &$self.names,
            forest: &$self.tree.forest,
            usage: &mut $self.tree.usage,
            lendable: &$self.tree.lendable,
            capacity: &$self.capacity,
            queues: &$self.queues,
            workloads: &$self.workloads,
            local_usage: $local_usage,
            cycle: $self.cycle,
            stats: &mut $self.stats,
            searched: Vec::new(),
        }
    };
}

mod admit;
mod heads;
mod nominate;
mod preempt;
mod process;
mod requeue;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::flavor_assigner::Assignment;
use crate::intern::{LaneId, NodeId, QueueId, SlotId, WorkloadId};
use crate::plan::Plan;
use crate::preemption::Target;
use crate::queue::OrderKey;
use crate::reason::Unadmitted;
use crate::report::CycleReport;
use crate::scheduler::Scheduler;
use crate::spec::Time;
use crate::tournament::Tournament;
use crate::view::Head;

/// Why an entry goes back to its queue, which decides where it goes there (reference 06, 6.4 "Requeue after a cycle").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeue {
    Generic,
    NoFit,
    NoCandidates,
    PendingPreemption,
    FailedAfterNomination,
    NamespaceMismatch,
}

/// One head on its way through the cycle.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    lane: LaneId,
    /// Its place among those of equal priority, with its UID.
    pub(crate) key: OrderKey,
    plan: Option<Arc<Plan>>,
    pub(crate) assignment: Assignment,
    targets: Vec<Target>,
    /// It preempted before and waits for that (gate PrioritizePreemptorWorkloads, and capacity reservation).
    preemptor: bool,
    /// It is processed before all others of its tree.
    pub(crate) first: bool,
    /// Decided at nomination already.
    early: Option<(Arc<Unadmitted>, Requeue)>,
}

/// What the processing of a cycle collects.
#[derive(Default)]
struct Progress {
    report: CycleReport,
    victims: Vec<(WorkloadId, WorkloadId)>,
    /// Usage that only lasts for the cycle, by the root of its tree.
    transient: BTreeMap<NodeId, Vec<(SlotId, i128)>>,
    /// Roots whose usage without the victims is kept.
    overlaid: BTreeSet<NodeId>,
}

impl Scheduler {
    /// One cycle: takes one head per active ClusterQueue, decides, and assumes what it decided. Victims are marked
    /// evicted and keep their quota until they are set to another state or removed.
    pub fn cycle(&mut self, now: Time) -> CycleReport {
        self.wake(now);
        self.cycle += 1;
        let local_usage = self.rank_locals();
        // One head per active ClusterQueue. What one nomination looks at does not depend on which heads are taken, so each
        // is nominated at once, while what belongs to it is in the processor's caches.
        let ready: Vec<QueueId> = self.ready.iter().copied().collect();
        let mut entries = Vec::with_capacity(ready.len());
        for id in ready {
            entries.extend(self.take_head(id, &local_usage));
            if let Some(entry) = entries.last_mut().filter(|entry: &&mut Entry| entry.head.queue == id) {
                self.nominate(entry, &local_usage);
            }
        }
        let mut progress = Progress::default();
        progress.report.cycle = self.cycle;
        progress.report.entries.reserve(entries.len());
        if self.config.fair_sharing.is_some() {
            let mut tournament = Tournament::new(self, &entries);
            while let Some(at) = tournament.pop(self, &entries) {
                self.process(&mut entries[at], &local_usage, now, &mut progress);
            }
        } else {
            for at in self.order(&entries) {
                self.process(&mut entries[at], &local_usage, now, &mut progress);
            }
        }
        self.finish(progress)
    }

    /// There is something in the heap of an active ClusterQueue. After a change of specs it may also say so when only
    /// a cycle can tell.
    pub fn has_heads(&self) -> bool {
        let stale = self.tree.forest.is_stale() || !self.flush_later.is_empty();
        if stale && !self.parked.is_empty() {
            return true;
        }
        self.ready.iter().any(|id| stale || !self.tree.forest.node(self.queues[id.at()].node).in_cycle)
    }

    /// The order without fair sharing, as places in `entries`: remembered preemptors (gate, or loop guard), lower borrowing,
    /// higher priority (gate), older timestamp, UID.
    fn order(&self, entries: &[Entry]) -> SmallVec<[usize; 4]> {
        let by_priority = self.config.gates.priority_sorting_within_cohort;
        let key = |entry: &Entry| {
            let priority = if by_priority { entry.head.priority } else { 0 };
            (!entry.first, entry.assignment.borrow, Reverse(priority), entry.head.order)
        };
        let tie_break = |at: usize| (&entries[at].key.uid, entries[at].head.workload);
        let mut order: SmallVec<[_; 4]> =
            entries.iter().enumerate().map(|(at, entry)| (key(entry), at)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| tie_break(a.1).cmp(&tie_break(b.1))));
        order.into_iter().map(|(_, at)| at).collect()
    }
}
