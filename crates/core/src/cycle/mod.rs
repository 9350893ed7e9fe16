//! One cycle: heads, nomination, order, processing, requeueing (docs/reference/06-algorithm.md 6.5).

mod admit;
mod entry;
mod heads;
mod nominate;
mod preempt;
mod process;
mod requeue;
mod retry;
mod second_pass;
mod slices;
mod topology;
mod tournament;
mod transient;

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::intern::QueueId;
use crate::report::CycleReport;
use crate::scheduler::Scheduler;
use crate::spec::Time;
use entry::{CycleState, Entry};
use tournament::Tournament;

impl Scheduler {
    /// One cycle: takes one head per active ClusterQueue, decides, and assumes its decisions. Victims are marked evicted and keep their quota until
    /// they are set to another state or removed.
    pub fn cycle(&mut self, now: Time) -> CycleReport {
        self.wake(now);
        self.cycle += 1;
        let mut state = CycleState::default();
        state.report.cycle = self.cycle;
        self.take_lent_back(now, &mut state);
        let local_usage = self.rank_locals();
        // One head per active ClusterQueue. Nominations do not depend on which other heads are taken, so each head is nominated at once, while its
        // data is in the processor's caches.
        let ready: Vec<QueueId> = self.agenda.ready.iter().copied().collect();
        let displaced = self.first_displaced();
        let mut entries = self.take_second_passes(now, &mut state);
        entries.reserve(ready.len());
        for id in ready {
            let Some(entry) = self.take_head(id, &local_usage, &displaced) else { continue };
            entries.push(entry);
            self.nominate(entries.last_mut().expect("one was pushed just now"), &local_usage);
        }
        state.report.entries.reserve(entries.len());
        if self.world.config.fair_sharing.is_some() {
            let mut tournament = Tournament::new(self, &entries);
            while let Some(at) = tournament.pop(self, &entries) {
                for second_pass in tournament.second_passes_before(&entries[at]) {
                    self.process_pass(&mut entries[second_pass], &local_usage, now, &mut state);
                }
                self.process_pass(&mut entries[at], &local_usage, now, &mut state);
            }
        } else {
            for at in self.order(&entries) {
                self.process_pass(&mut entries[at], &local_usage, now, &mut state);
            }
        }
        self.usages.known = local_usage;
        self.finish(state)
    }

    /// Processes an entry: its first pass, or its second.
    fn process_pass(&mut self, entry: &mut Entry, local_usage: &[f64], now: Time, state: &mut CycleState) {
        if entry.second_pass.is_some() {
            self.second_pass(entry, now, state);
        } else {
            self.process(entry, local_usage, now, state);
        }
    }

    /// There is something in the heap of an active ClusterQueue, or a second pass is due. After a change of specs it may
    /// also say so when only a cycle can find out.
    pub fn has_heads(&self) -> bool {
        if self.agenda.second_passes.has_ready() {
            return true;
        }
        let stale = self.world.forest.is_stale() || self.agenda.flushes();
        if stale && !self.agenda.inadmissible.is_empty() {
            return true;
        }
        self.agenda
            .ready
            .iter()
            .any(|id| stale || !self.world.forest.node(self.world.queues[id.at()].node).in_cycle)
    }

    /// The order without fair sharing, as places in `entries`: workloads that hold quota already (second pass), remembered
    /// preemptors (gate, or loop guard), lower borrowing, higher priority (gate), older timestamp, UID.
    fn order(&self, entries: &[Entry]) -> SmallVec<[usize; 4]> {
        // A world with one ClusterQueue has no order, and needs no memory for it.
        if entries.len() < 2 {
            return (0..entries.len()).collect();
        }
        let by_priority = self.world.config.gates.priority_sorting_within_cohort;
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
        let mut order: Vec<_> = entries.iter().enumerate().map(|(at, entry)| (key(entry), at)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| tie_break(a.1).cmp(&tie_break(b.1))));
        SmallVec::from_vec(order.into_iter().map(|(_, at)| at).collect())
    }
}
