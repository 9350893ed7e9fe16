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
            simulated: Vec::new(),
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

use crate::flavor_assigner::{Assignment, Scan};
use crate::intern::{ClassId, NodeId, QueueId, SlotId, WorkloadId};
use crate::plan::Plan;
use crate::preemption::Target;
use crate::queue::OrderKey;
use crate::reason::Unadmitted;
use crate::report::CycleReport;
use crate::scheduler::Scheduler;
use crate::second_pass::SecondPass;
use crate::spec::Time;
use crate::tournament::Tournament;
use crate::view::Head;
use crate::workload::WorkloadKey;

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

/// When an entry is processed, compared with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    /// It had its turn in a cycle before, and waited until all pods are ready: before all others.
    Blocked,
    /// Before all others of its tree.
    First,
    /// In the order of the cycle.
    InOrder,
}

/// One head on its way through the cycle.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) head: Head,
    /// Where in its queue it waits; of no meaning in a second pass.
    class: ClassId,
    /// Its place among those of equal priority, with its UID.
    pub(crate) key: OrderKey,
    plan: Option<Arc<Plan>>,
    pub(crate) assignment: Assignment,
    targets: Vec<Target>,
    /// Its flavor search.
    scan: Scan,
    /// What its last flavor search found, if this one goes on where that one stopped.
    before: Option<Arc<Unadmitted>>,
    /// Heads that only reserved what it would have got, since its search began.
    kept_out_by: Vec<WorkloadId>,
    /// The assignment and the targets were searched anew while it was processed.
    recomputed: bool,
    /// It preempted before and waits for that (gate PrioritizePreemptorWorkloads, and capacity reservation).
    preemptor: bool,
    /// When it is processed.
    pub(crate) precedence: Precedence,
    /// Decided at nomination already.
    early: Option<(Arc<Unadmitted>, Requeue)>,
    /// It holds quota, and this is its second pass; which one, from 1.
    pub(crate) second_pass: Option<u32>,
}

/// What one cycle has decided so far, and the usage that only lasts for it.
#[derive(Default)]
pub(crate) struct CycleState {
    pub(crate) report: CycleReport,
    victims: Vec<(WorkloadId, WorkloadId)>,
    /// Usage that only lasts for the cycle, by the root of its tree.
    transient: BTreeMap<NodeId, Vec<(SlotId, i128)>>,
    /// The part of it that heads reserved for which there are no victims, by the root of their tree.
    pub(crate) reserved: BTreeMap<NodeId, Vec<(WorkloadId, SlotId, i128)>>,
    /// Roots whose usage without the victims is kept.
    overlaid: BTreeSet<NodeId>,
}

impl Scheduler {
    /// One cycle: takes one head per active ClusterQueue, decides, and assumes what it decided. Victims are marked
    /// evicted and keep their quota until they are set to another state or removed. Second passes that are due find
    /// that none is needed.
    pub fn cycle(&mut self, now: Time) -> CycleReport {
        self.cycle_with(now, &mut |_| SecondPass::NotNeeded)
    }

    /// One cycle, in which `place` answers for the workloads whose second pass is due
    /// ([`Scheduler::queue_second_pass`]).
    pub fn cycle_with(
        &mut self,
        now: Time,
        place: &mut dyn FnMut(&WorkloadKey) -> SecondPass,
    ) -> CycleReport {
        self.wake(now);
        self.cycle += 1;
        let local_usage = self.rank_locals();
        // One head per active ClusterQueue. What one nomination looks at does not depend on which heads are taken, so each
        // is nominated at once, while what belongs to it is in the processor's caches.
        let ready: Vec<QueueId> = self.ready.iter().copied().collect();
        let mut state = CycleState::default();
        state.report.cycle = self.cycle;
        let mut entries = self.take_second_passes(now, &mut state);
        entries.reserve(ready.len());
        for id in ready {
            entries.extend(self.take_head(id, &local_usage));
            if let Some(entry) = entries.last_mut().filter(|entry: &&mut Entry| entry.head.queue == id) {
                self.nominate(entry, &local_usage);
            }
        }
        state.report.entries.reserve(entries.len());
        if self.config.fair_sharing.is_some() {
            let mut tournament = Tournament::new(self, &entries);
            for entry in tournament.left_out(&entries) {
                let why = "Another workload of its ClusterQueue is considered first".to_owned();
                self.second_pass_done(entry, Err(why), now, &mut state);
            }
            while let Some(at) = tournament.pop(self, &entries) {
                self.process_pass(&mut entries[at], &local_usage, now, place, &mut state);
            }
        } else {
            for at in self.order(&entries) {
                self.process_pass(&mut entries[at], &local_usage, now, place, &mut state);
            }
        }
        self.finish(state)
    }

    /// Processes an entry: its first pass, or its second.
    fn process_pass(
        &mut self,
        entry: &mut Entry,
        local_usage: &[f64],
        now: Time,
        place: &mut dyn FnMut(&WorkloadKey) -> SecondPass,
        state: &mut CycleState,
    ) {
        if entry.second_pass.is_some() {
            self.second_pass(entry, now, place, state);
        } else {
            self.process(entry, local_usage, now, state);
        }
    }

    /// There is something in the heap of an active ClusterQueue, or a second pass is due. After a change of specs it may
    /// also say so when only a cycle can tell.
    pub fn has_heads(&self) -> bool {
        if self.second_passes.has_ready() {
            return true;
        }
        let stale = self.tree.forest.is_stale() || !self.flush_later.is_empty();
        if stale && !self.inadmissible.is_empty() {
            return true;
        }
        self.ready.iter().any(|id| stale || !self.tree.forest.node(self.queues[id.at()].node).in_cycle)
    }

    /// The order without fair sharing, as places in `entries`: workloads that hold quota already (second pass), remembered
    /// preemptors (gate, or loop guard), lower borrowing, higher priority (gate), older timestamp, UID.
    fn order(&self, entries: &[Entry]) -> SmallVec<[usize; 4]> {
        let by_priority = self.config.gates.priority_sorting_within_cohort;
        let key = |entry: &Entry| {
            let priority = if by_priority { entry.head.priority } else { 0 };
            (
                entry.second_pass.is_none(),
                entry.precedence,
                entry.assignment.borrow,
                Reverse(priority),
                entry.head.order,
            )
        };
        let tie_break = |at: usize| (&entries[at].key.uid, entries[at].head.workload);
        let mut order: SmallVec<[_; 4]> =
            entries.iter().enumerate().map(|(at, entry)| (key(entry), at)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| tie_break(a.1).cmp(&tie_break(b.1))));
        order.into_iter().map(|(_, at)| at).collect()
    }
}
