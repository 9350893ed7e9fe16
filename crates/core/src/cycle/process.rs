//! Entries one by one, with what earlier ones left (reference 06, 6.5 "processEntry").

use std::sync::Arc;

use super::nominate::{ordered_usage, search};
use super::requeue::{flavors, why};
use super::{Entry, Progress, Requeue};
use crate::flavor_assigner::{Mode, Request};
use crate::intern::{SlotId, WorkloadId};
use crate::reason::{Detail, PodSetRefusal, Reason, Unadmitted};
use crate::report::Outcome;
use crate::scheduler::Scheduler;
use crate::spec::{PreemptionPolicy, Time};
use crate::view::View;

/// What becomes of an entry.
enum Decision {
    Admit,
    Preempt,
    Gated,
    Refuse(Detail, Reason, Requeue),
}

/// Why an entry is refused whose search went on in this cycle, with the flavors that the cycles before refused it.
fn with_what_was_tried_before(entry: &Entry, why: Arc<Unadmitted>) -> Arc<Unadmitted> {
    let one_search = entry.plan.as_ref().is_some_and(|plan| plan.groups.len() == 1);
    entry.before.as_ref().and_then(|before| why.after(before, one_search)).map_or(why, Arc::new)
}

impl Scheduler {
    /// Decides about one entry with what earlier ones left (reference 06, 6.5 "processEntry").
    pub(super) fn process(
        &mut self,
        entry: &mut Entry,
        local_usage: &[f64],
        now: Time,
        progress: &mut Progress,
    ) {
        if let Some((why, requeue)) = entry.early.take() {
            self.refused(entry, &why, requeue, progress);
            return;
        }
        if self.overlaps(entry) && self.config.gates.recompute_assignment_upon_preemption_targets_overlap {
            self.recompute(entry, local_usage);
        }
        match self.decide(entry, progress) {
            Decision::Admit => self.admit(entry, now, progress),
            Decision::Preempt => self.preempt(entry, progress),
            Decision::Gated => {
                let why = why(entry, flavors(entry, 0), entry.assignment.reason());
                progress.report.entries.push(self.report(entry, Outcome::PreemptionGated(why.clone())));
                self.requeue(entry, &why, Requeue::Generic, progress);
            }
            Decision::Refuse(detail, reason, requeue) => {
                if matches!(detail, Detail::NoLongerFits | Detail::OverlappingTargets | Detail::DeferredFit) {
                    self.workloads.get_mut(entry.head.workload).progress = None;
                }
                let why = with_what_was_tried_before(entry, why(entry, detail, reason));
                self.refused(entry, &why, requeue, progress);
            }
        }
    }

    /// A target of the entry was taken by an earlier one in this cycle.
    fn overlaps(&self, entry: &Entry) -> bool {
        entry.targets.iter().any(|target| self.workloads.get(target.workload).settled == self.cycle)
    }

    /// Searches again with the victims of earlier entries gone, among the flavors nominated before. What fits then has
    /// to wait for those victims.
    fn recompute(&mut self, entry: &mut Entry, local_usage: &[f64]) {
        let Some(plan) = entry.plan.clone() else { return };
        self.tree.usage.swap_views();
        let mut view = view!(self, ordered_usage(&self.queues, &self.config, &entry.head, local_usage));
        let request = Request {
            head: &entry.head,
            plan: &plan,
            counts: &plan.counts,
            from: None,
            only: Some(&entry.assignment),
        };
        let shape = self.workloads.get(entry.head.workload).shape;
        let (mut again, targets) = search(&mut view, &request, self.shapes.get(shape));
        self.tree.usage.swap_views();
        let generation = self.tree.forest.generation(entry.head.node);
        self.workloads.get_mut(entry.head.workload).progress = again.progress(shape, self.cycle, generation);
        if again.mode == Mode::Fit {
            again.mode = Mode::DeferredFit;
        }
        (entry.assignment, entry.targets, entry.recomputed) = (again, targets, true);
    }

    fn decide(&mut self, entry: &Entry, progress: &mut Progress) -> Decision {
        let reason = entry.assignment.reason();
        match entry.assignment.mode {
            Mode::NoFit => return Decision::Refuse(flavors(entry, 0), reason, Requeue::NoFit),
            Mode::Preempt if entry.targets.is_empty() => {
                self.reserve(entry, progress);
                return Decision::Refuse(flavors(entry, 0), reason, Requeue::NoCandidates);
            }
            Mode::Preempt if self.workloads.get(entry.head.workload).gated => return Decision::Gated,
            Mode::DeferredFit => {
                self.occupy(entry, progress);
                let reason = Reason::WaitingForPreemptedWorkloads;
                return Decision::Refuse(Detail::DeferredFit, reason, Requeue::PendingPreemption);
            }
            Mode::Preempt | Mode::Fit => {}
        }
        if self.overlaps(entry) {
            let reason = Reason::WaitingForPreemptedWorkloads;
            return Decision::Refuse(Detail::OverlappingTargets, reason, Requeue::FailedAfterNomination);
        }
        if let Some(detail) = self.would_loop(entry) {
            return Decision::Refuse(detail, Reason::WaitingForQuota, Requeue::Generic);
        }
        if let Some(detail) = self.lacks_nodes(entry) {
            return Decision::Refuse(detail, Reason::WaitingForCapacity, Requeue::Generic);
        }
        if !self.is_free(entry, progress) || !self.fits_still(entry, progress) {
            return Decision::Refuse(
                Detail::NoLongerFits,
                Reason::WaitingForQuota,
                Requeue::FailedAfterNomination,
            );
        }
        if entry.assignment.mode == Mode::Preempt {
            self.occupy(entry, progress);
            return Decision::Preempt;
        }
        if self.config.block_admission && self.unready > 0 {
            let reason = Reason::WaitingForPodsReady;
            return Decision::Refuse(Detail::WaitingForPodsReady, reason, Requeue::FailedAfterNomination);
        }
        Decision::Admit
    }

    /// Whether an entry that is to be admitted fits with this cycle's victims still in place: what they hold is not free
    /// before they are gone. Ours (gate `AdmitOnlyFreeQuota`): the reference lets several heads share the room of one
    /// victim, so that more is admitted than there is until it has left.
    fn is_free(&mut self, entry: &Entry, progress: &Progress) -> bool {
        let root = self.tree.forest.node(entry.head.node).root;
        if !self.config.gates.admit_only_free_quota
            || entry.assignment.mode != Mode::Fit
            || !progress.overlaid.contains(&root)
        {
            return true;
        }
        let mark = self.tree.usage.mark();
        for &(slot, amount) in progress.transient.get(&root).into_iter().flatten() {
            self.tree.usage.remove(&self.tree.forest.quota, slot, amount);
        }
        let fits = view!(self, &[]).fits(&entry.assignment.demands, true);
        self.tree.usage.rollback(&mark);
        fits
    }

    /// Whether the entry fits with all victims of the cycle, and its own, gone. Its own stay gone if it does.
    fn fits_still(&mut self, entry: &Entry, progress: &mut Progress) -> bool {
        let root = self.tree.forest.node(entry.head.node).root;
        if !entry.targets.is_empty() && progress.overlaid.insert(root) {
            self.tree.usage.overlay(self.tree.forest.slots_of_tree(root));
        }
        let overlaid = progress.overlaid.contains(&root);
        if overlaid {
            self.tree.usage.swap_views();
        }
        let mark = self.tree.usage.mark();
        let mut view = view!(self, &[]);
        for target in &entry.targets {
            view.remove(target.workload);
        }
        let fits = view.fits(&entry.assignment.demands, true);
        if fits {
            self.tree.usage.keep(&mark);
        } else {
            self.tree.usage.rollback(&mark);
        }
        if overlaid {
            self.tree.usage.swap_views();
        }
        fits
    }

    /// Adds usage for the rest of the cycle.
    fn add_transient(&mut self, entry: &Entry, slot: SlotId, amount: i128, progress: &mut Progress) {
        self.tree.usage.add(&self.tree.forest.quota, slot, amount);
        let root = self.tree.forest.node(entry.head.node).root;
        progress.transient.entry(root).or_default().push((slot, amount));
        self.add_to_overlay(entry, slot, amount, progress);
    }

    pub(super) fn add_to_overlay(&mut self, entry: &Entry, slot: SlotId, amount: i128, progress: &Progress) {
        let root = self.tree.forest.node(entry.head.node).root;
        if progress.overlaid.contains(&root) {
            self.tree.usage.swap_views();
            self.tree.usage.add(&self.tree.forest.quota, slot, amount);
            self.tree.usage.swap_views();
        }
    }

    /// Takes what the entry will use, so that later ones do not.
    fn occupy(&mut self, entry: &Entry, progress: &mut Progress) {
        for demand in &entry.assignment.demands {
            self.add_transient(entry, demand.slot, demand.amount, progress);
        }
    }

    /// Reserves capacity for an entry that waits for workloads which it may not preempt: later ones must not take it.
    /// A queue that may reclaim anything gets it back anyway (reference 06, 6.5 step 6).
    fn reserve(&mut self, entry: &Entry, progress: &mut Progress) {
        let remembered = entry.preemptor && self.config.gates.prioritize_preemptor_workloads;
        if self.queues[entry.head.queue.at()].reclaim_policy() == PreemptionPolicy::Any && !remembered {
            return;
        }
        for demand in &entry.assignment.demands {
            let quota = &self.tree.forest.quota;
            let used = self.tree.usage.get(demand.slot);
            let nominal = quota.nominal(demand.slot);
            let limit = if entry.assignment.borrow > 0 {
                nominal.add(quota.borrowing_limit(demand.slot))
            } else {
                nominal
            };
            let amount = demand.amount.min(crate::quota::exact(limit) - used).max(0);
            self.add_transient(entry, demand.slot, amount, progress);
        }
    }

    /// Whether physical capacity has no room, even with the entry's victims gone; earlier heads of the cycle may have
    /// taken it. The room of victims that others chose is not free before they are gone.
    fn lacks_nodes(&mut self, entry: &Entry) -> Option<Detail> {
        let plan = entry.plan.as_ref()?;
        let gone: Vec<WorkloadId> = entry.targets.iter().map(|target| target.workload).collect();
        let lack = view!(self, &[]).first_lack(entry.head.workload, &entry.assignment.demands, &gone)?;
        let pod_sets = plan
            .requests
            .iter()
            .map(|(name, _)| PodSetRefusal { name: name.clone(), refusals: vec![lack.clone()] });
        Some(Detail::Flavors { pod_sets: pod_sets.collect(), pending_preemptions: 0 })
    }

    /// The preemption-loop guard has something against these victims.
    fn would_loop(&self, entry: &Entry) -> Option<Detail> {
        if !self.config.gates.preemption_loop_guard {
            return None;
        }
        let root = self.tree.forest.node(entry.head.node).root;
        let is_new = |id: &WorkloadId| self.workloads.get(*id).hold().is_some_and(|hold| !hold.evicted);
        let victims = entry.targets.iter().map(|target| target.workload).filter(is_new);
        let (victim, kind) = self.loops.objection(root, entry.head.workload, victims)?;
        let plan = entry.plan.as_ref()?;
        Some(Detail::PreemptionLoop {
            victim: self.workloads.get(victim).key.clone(),
            kind,
            pod_sets: entry.assignment.refusals(plan),
        })
    }
}
