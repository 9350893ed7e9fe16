//! An entry goes back to its queue: into the heap or among the inadmissible (docs/reference/06-algorithm.md 6.4 "Requeue after a cycle").

use std::sync::Arc;

use super::entry::{CycleState, Entry, Requeue};
use crate::intern::WorkloadId;
use crate::queue::Placement;
use crate::reason::{Detail, Reason, Unadmitted};
use crate::report::{EntryReport, Outcome};
use crate::scheduler::Scheduler;
use crate::spec::QueueingStrategy;

/// How many cycles in a row a flavor scan may continue (or as many as there are flavors in a group if they are more): groups of up to four have been
/// searched in every combination of starting points by then. Not in Kueue: by the reference's rules scans of several groups that are not in step may
/// continue endlessly (each starts again while another has flavors left), and workloads behind them in their queue are never evaluated.
const MAX_SCANS: usize = 12;

impl Scheduler {
    pub(super) fn report(&self, entry: &Entry, outcome: Outcome) -> EntryReport {
        EntryReport {
            key: self.world.workloads.get(entry.head.workload).key.clone(),
            uid: entry.key.uid.clone(),
            cluster_queue: self.world.queues[entry.head.queue.at()].name.clone(),
            outcome,
            new_targets: entry.recomputed && !entry.targets.is_empty(),
            has_targets: !entry.targets.is_empty(),
        }
    }

    pub(super) fn refused(
        &mut self,
        entry: &Entry,
        why: &Arc<Unadmitted>,
        requeue: Requeue,
        state: &mut CycleState,
    ) {
        state.report.entries.push(self.report(entry, Outcome::Unadmitted(why.clone())));
        self.requeue(entry, why, requeue, state);
    }

    /// Puts an entry back into its queue: into the heap or among the inadmissible (docs/reference/06-algorithm.md 6.4).
    pub(super) fn requeue(
        &mut self,
        entry: &Entry,
        why: &Arc<Unadmitted>,
        requeue: Requeue,
        state: &mut CycleState,
    ) {
        let id = entry.head.workload;
        let searched = matches!(requeue, Requeue::NoFit | Requeue::NoCandidates);
        let missed = searched && self.world.forest.freed(entry.head.node) > entry.scan.since;
        let workload = self.world.workloads.get_mut(id);
        workload.decision = Some(why.clone());
        let queue = &mut self.world.queues[entry.head.queue.at()];
        let alone = queue.pending.class(entry.class).key.alone.is_some();
        let groups = queue.spec.iter().flat_map(|spec| &spec.resource_groups);
        let max_scans = || groups.map(|group| group.flavors.len()).fold(MAX_SCANS, usize::max);
        let scanning = workload.last_assignment.is_some() && usize::from(workload.scans) < max_scans();
        if scanning {
            workload.scans = workload.scans.saturating_add(1);
        } else {
            (workload.scans, workload.last_assignment) = (0, None);
        }
        if let Some(last) = &mut workload.last_assignment {
            last.kept_out_by.clone_from(&entry.kept_out_by);
        }
        let strict = queue.spec.as_ref().is_some_and(|spec| spec.strategy == QueueingStrategy::StrictFIFO);
        let immediate = match requeue {
            Requeue::NamespaceMismatch => false,
            Requeue::PendingPreemption | Requeue::FailedAfterNomination => true,
            Requeue::Generic | Requeue::NoFit | Requeue::NoCandidates => strict,
        };
        let displaced = queue.pending.preemptor().filter(|_| requeue == Requeue::PendingPreemption);
        if requeue == Requeue::PendingPreemption {
            queue.pending.remember_preemptor(id);
        }
        let placement = match requeue {
            Requeue::NamespaceMismatch => Placement::OnHold,
            _ if immediate || scanning => Placement::Active,
            // While its search continued in several cycles capacity became free, perhaps in a flavor that was tried before.
            _ if missed => Placement::Active,
            _ => Placement::Inadmissible,
        };
        state.report.scanning |= (scanning || missed) && placement == Placement::Active;
        queue.pending.push(entry.class, entry.key.clone(), placement, true);
        if requeue == Requeue::PendingPreemption && displaced != Some(id) {
            self.moved(id);
            if let Some(displaced) = displaced {
                self.moved(displaced);
            }
        }
        let by: &[WorkloadId] = if placement == Placement::Inadmissible { &entry.kept_out_by } else { &[] };
        self.agenda.kept_out.replace(id, by);
        let shared = searched
            && self.world.config.gates.scheduling_equivalence_hashing
            && !alone
            && !strict
            && placement == Placement::Inadmissible;
        if shared {
            self.bypass(entry, why, state);
        }
        self.sync_ready(entry.head.queue);
    }

    /// Makes all workloads of the class that just failed inadmissible.
    fn bypass(&mut self, entry: &Entry, why: &Arc<Unadmitted>, state: &mut CycleState) {
        let unadmitted = Arc::new(Unadmitted {
            reason: why.reason,
            detail: Detail::Bypassed,
            requests: why.requests.clone(),
        });
        let queue = entry.head.queue;
        let unreported = self.world.queues[queue.at()].pending.mark_inadmissible(entry.class, &unadmitted);
        for id in unreported {
            if id == entry.head.workload {
                continue;
            }
            let Some(workload) = self.world.workloads.try_get(id) else { continue };
            let here = workload.waiting().and_then(|waiting| waiting.at).is_some_and(|at| at.0 == queue);
            if here && workload.decision.as_ref().map(|decision| decision.reason) != Some(why.reason) {
                state.report.bypassed.push((workload.key.clone(), unadmitted.clone()));
                self.world.workloads.get_mut(id).decision = Some(unadmitted.clone());
            }
        }
    }
}

/// Why an entry is not admitted.
pub(super) fn why(entry: &Entry, detail: Detail, reason: Reason) -> Arc<Unadmitted> {
    let requests = entry.plan.as_ref().map_or_else(|| Arc::from([]), |plan| plan.requests.clone());
    Arc::new(Unadmitted { reason, detail, requests })
}

/// What prevented each pod set, and how many victims are waited for.
pub(super) fn flavors(entry: &Entry, pending_preemptions: usize) -> Detail {
    let pod_sets = entry.plan.as_ref().map_or_else(Vec::new, |plan| entry.assignment.refusals(plan));
    Detail::Flavors { pod_sets, pending_preemptions }
}
