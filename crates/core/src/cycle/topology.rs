//! Nodes of entries: whether earlier entries of the cycle took them, and a new placement if so (docs/reference/06-algorithm.md 6.5).

use super::entry::{CycleState, Entry};
use crate::books::Basis;
use crate::flavor_assigner::Mode;
use crate::intern::WorkloadId;
use crate::scheduler::Scheduler;

impl Scheduler {
    /// Searches again, among the nominated flavors, if the quota is still free and earlier entries took nodes (gate
    /// TASRecomputeAssignmentWithinSchedulingCycle).
    pub(super) fn place_again_if_taken(
        &mut self,
        entry: &mut Entry,
        local_usage: &[f64],
        state: &CycleState,
    ) {
        let gate = self.world.config.gates.tas_recompute_assignment_within_scheduling_cycle;
        if !gate
            || !entry.assignment.has_nodes()
            || !matches!(entry.assignment.mode, Mode::Fit | Mode::Preempt)
            || (entry.assignment.mode == Mode::Preempt && entry.targets.is_empty())
            || self.nodes_are_free(entry, state)
            || !self.try_to_fit(entry, state, &[], false)
        {
            return;
        }
        let reserving = self.reserving_its_nodes(entry, state);
        self.search_again(entry, Basis::Now, local_usage);
        if entry.assignment.mode != Mode::Fit {
            entry.is_kept_out_by(reserving);
        }
    }

    /// The heads that only reserved the nodes of an entry, if these would be free otherwise.
    pub(super) fn reserving_its_nodes(&mut self, entry: &Entry, state: &CycleState) -> Vec<WorkloadId> {
        if state.reserved_pods.is_empty() || self.nodes_are_free(entry, state) {
            return Vec::new();
        }
        let free = self.without_reserved(state, |core| core.nodes_are_free(entry, state));
        if free { state.reserved_pods.iter().map(|&(id, _)| id).collect() } else { Vec::new() }
    }

    /// Whether the nodes of an entry are free: without the victims of the cycle and its own, if it preempts; with them still there, if it is to be
    /// admitted (gate `AdmitOnlyFreeQuota`).
    pub(super) fn nodes_are_free(&mut self, entry: &Entry, state: &CycleState) -> bool {
        if !entry.assignment.has_nodes() {
            return true;
        }
        let beside = entry.assignment.mode == Mode::Fit && self.world.config.gates.admit_only_free_quota;
        let of_cycle = state.victims.iter().map(|&(victim, _)| victim).filter(|_| !beside);
        let own = entry.targets.iter().map(|target| target.workload);
        let mut gone: Vec<WorkloadId> = of_cycle.chain(own).chain(entry.replaced).collect();
        gone.sort_unstable();
        gone.dedup();
        let mark = self.books.nodes.mark();
        for id in gone {
            for pods in self.world.workloads.pods_of(id) {
                self.books.nodes.remove(pods);
            }
        }
        let free = self.books.nodes.fits(entry.assignment.nodes.iter().map(|nodes| &nodes.pods));
        self.books.nodes.rollback(&mark);
        free
    }
}
