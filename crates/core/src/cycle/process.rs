//! Processes entries one by one, with what earlier ones left (docs/reference/06-algorithm.md 6.5 "processEntry").

use std::sync::Arc;

use super::entry::{CycleState, Entry, Requeue};
use super::nominate::search_for;
use super::requeue::{flavors, why};
use crate::Amount;
use crate::books::Basis;
use crate::flavor_assigner::{Assignment, Mode, Request};
use crate::intern::{SlotId, WorkloadId};
use crate::quota::{clamp, exact};
use crate::reason::{Detail, PodSetRefusal, PreemptionPossibility, Reason, Refusal, Unadmitted};
use crate::report::Outcome;
use crate::scheduler::Scheduler;
use crate::spec::Time;
use crate::view::{FlavorResourceQuantity, fit};

/// The decision about an entry.
enum Decision {
    Admit,
    Preempt,
    Gated,
    Refuse(Detail, Reason, Requeue),
}

/// Why an entry is refused whose search continued in this cycle, with the flavors that the cycles before refused it.
fn with_what_was_tried_before(entry: &Entry, why: Arc<Unadmitted>) -> Arc<Unadmitted> {
    let one_search = entry.plan.as_ref().is_some_and(|plan| plan.groups.len() == 1);
    entry.before.as_ref().and_then(|before| why.after(before, one_search)).map_or(why, Arc::new)
}

impl Scheduler {
    /// Decides about one entry, with what earlier ones left (docs/reference/06-algorithm.md 6.5 "processEntry").
    pub(super) fn process(
        &mut self,
        entry: &mut Entry,
        local_usage: &[f64],
        now: Time,
        state: &mut CycleState,
    ) {
        if let Some((why, requeue)) = entry.early.take() {
            self.refused(entry, &why, requeue, state);
            return;
        }
        if self.slice_is_taken(entry) {
            let reason = Reason::WaitingForQuota;
            let why = with_what_was_tried_before(entry, why(entry, Detail::OverlappingTargets, reason));
            self.refused(entry, &why, Requeue::FailedAfterNomination, state);
            return;
        }
        if self.overlaps(entry)
            && self.world.config.gates.recompute_assignment_upon_preemption_targets_overlap
        {
            self.recompute(entry, local_usage, state);
        }
        self.place_again_if_taken(entry, local_usage, state);
        let decision = self.decide(entry, state);
        let waits = matches!(decision, Decision::Refuse(Detail::WaitingForPodsReady, ..));
        if waits
            && self
                .agenda
                .blocked
                .is_none_or(|id| self.world.workloads.try_get(id).is_none_or(|w| w.waiting().is_none()))
        {
            self.agenda.blocked = Some(entry.head.workload);
        } else if !waits && self.agenda.blocked == Some(entry.head.workload) {
            self.agenda.blocked = None;
        }
        match decision {
            Decision::Admit => self.admit(entry, now, state),
            Decision::Preempt => self.preempt(entry, state),
            Decision::Gated => {
                let why = why(entry, flavors(entry, 0), entry.assignment.reason());
                state.report.entries.push(self.report(entry, Outcome::PreemptionGated(why.clone())));
                self.requeue(entry, &why, Requeue::Generic, state);
            }
            Decision::Refuse(detail, reason, requeue) => {
                // If another head took the quota first, the next flavor may have some; if it fits once victims are gone, this flavor is kept.
                let keep = self.world.config.gates.flavor_fungibility_preserve_scan_progress;
                let again = match detail {
                    Detail::DeferredFit => true,
                    Detail::NoLongerFits | Detail::OverlappingTargets => !keep,
                    _ => false,
                };
                if again {
                    self.world.workloads.get_mut(entry.head.workload).last_assignment = None;
                } else if detail == Detail::NoLongerFits {
                    self.note_crowded_out(entry);
                }
                let why = with_what_was_tried_before(entry, why(entry, detail, reason));
                self.refused(entry, &why, requeue, state);
            }
        }
    }

    /// An earlier entry of this cycle took a target of the entry.
    pub(super) fn overlaps(&self, entry: &Entry) -> bool {
        entry
            .targets
            .iter()
            .any(|target| self.world.workloads.get(target.workload).taken_in_cycle == self.cycle)
    }

    /// Searches again with the victims of earlier entries gone, among the flavors nominated before. What fits then has
    /// to wait for those victims.
    fn recompute(&mut self, entry: &mut Entry, local_usage: &[f64], state: &CycleState) {
        // A slice that another one replaced is not a victim: there may be none.
        let found = self.search_again(entry, self.basis(entry, state), local_usage);
        if found && entry.assignment.mode == Mode::Fit {
            entry.assignment.mode = Mode::DeferredFit;
        }
    }

    /// Searches again among the flavors nominated before; false for an entry that was not searched for.
    pub(super) fn search_again(&mut self, entry: &mut Entry, basis: Basis, local_usage: &[f64]) -> bool {
        let Some(plan) = entry.plan.clone() else { return false };
        let mut view = self.view(basis, local_usage);
        let world = view.world;
        let workload = world.workloads.get(entry.head.workload);
        let (shape, replaces) = (workload.shape, workload.replaces.as_deref());
        let request = Request {
            head: &entry.head,
            plan: &plan,
            counts: &plan.counts,
            from: None,
            only: Some(&entry.assignment),
            replaces,
        };
        let mut again = Assignment::default();
        let targets = search_for(&mut view, &request, world.shapes.get(shape), entry.replaced, &mut again);
        self.world.workloads.get_mut(entry.head.workload).last_assignment =
            again.last_assignment(&entry.scan);
        (entry.assignment, entry.targets, entry.recomputed) = (again, targets, true);
        true
    }

    fn decide(&mut self, entry: &mut Entry, state: &mut CycleState) -> Decision {
        let reason = entry.assignment.reason();
        match entry.assignment.mode {
            Mode::NoFit => return Decision::Refuse(flavors(entry, 0), reason, Requeue::NoFit),
            Mode::Preempt if entry.targets.is_empty() => {
                self.reserve(entry, state);
                return Decision::Refuse(flavors(entry, 0), reason, Requeue::NoCandidates);
            }
            Mode::Preempt if self.world.workloads.get(entry.head.workload).gated => return Decision::Gated,
            Mode::DeferredFit => {
                self.occupy(entry, state);
                let reason = Reason::WaitingForPreemptedWorkloads;
                return Decision::Refuse(Detail::DeferredFit, reason, Requeue::PendingPreemption);
            }
            Mode::Preempt | Mode::Fit => {}
        }
        if self.overlaps(entry) {
            let requeue = Requeue::FailedAfterNomination;
            return Decision::Refuse(Detail::OverlappingTargets, Reason::WaitingForQuota, requeue);
        }
        if let Some(detail) = self.would_loop(entry) {
            let root = self.world.forest.node(entry.head.node).root;
            self.agenda.loops.refused(root, entry.head.queue);
            return Decision::Refuse(detail, Reason::WaitingForQuota, Requeue::Generic);
        }
        if let Some(detail) = self.lacks_nodes(entry) {
            return Decision::Refuse(detail, Reason::WaitingForCapacity, Requeue::Generic);
        }
        let fits_beside_victims = self.fits_beside_victims(entry, state);
        if !fits_beside_victims || !self.nodes_are_free(entry, state) || !self.still_fits(entry, state) {
            if fits_beside_victims {
                self.note_kept_out(entry, state);
            }
            return Decision::Refuse(
                Detail::NoLongerFits,
                Reason::WaitingForQuota,
                Requeue::FailedAfterNomination,
            );
        }
        if entry.assignment.mode == Mode::Preempt {
            self.occupy(entry, state);
            return Decision::Preempt;
        }
        if self.world.config.block_admission && self.agenda.unready > 0 {
            let reason = Reason::WaitingForPodsReady;
            return Decision::Refuse(Detail::WaitingForPodsReady, reason, Requeue::FailedAfterNomination);
        }
        Decision::Admit
    }

    /// Whether an entry to be admitted fits while this cycle's victims are still in place: their usage is not free before they are gone. Not in Kueue
    /// (gate `AdmitOnlyFreeQuota`): the reference lets several heads share the room of one victim, so that more is admitted than there is until the
    /// victim has left.
    fn fits_beside_victims(&mut self, entry: &Entry, state: &CycleState) -> bool {
        let root = self.world.forest.node(entry.head.node).root;
        if !self.world.config.gates.admit_only_free_quota
            || entry.assignment.mode != Mode::Fit
            || !state.overlaid.contains(&root)
        {
            return true;
        }
        let mut view = self.view(Basis::Now, &[]);
        let mark = view.mark();
        for &(slot, amount) in state.transient.get(&root).into_iter().flatten() {
            view.usage.remove(&view.world.forest.quota, slot, amount);
        }
        if let Some(slice) = entry.replaced {
            view.remove(slice);
        }
        let fits = view.fits(&entry.assignment.usage, true);
        view.rollback(&mark);
        fits
    }

    /// Whether the entry fits with all victims of the cycle, and its own, gone. Its own stay gone if it does.
    fn still_fits(&mut self, entry: &Entry, state: &mut CycleState) -> bool {
        let root = self.world.forest.node(entry.head.node).root;
        if !entry.targets.is_empty() && state.overlaid.insert(root) {
            self.books.overlay(self.world.forest.slots_of_tree(root));
        }
        self.try_to_fit(entry, state, &[], true)
    }

    /// Whether the entry fits with all victims of the cycle, its own, and what these heads reserved, gone. Its own stay gone if
    /// it does, and `keep` says so.
    pub(super) fn try_to_fit(
        &mut self,
        entry: &Entry,
        state: &CycleState,
        reserved: &[(WorkloadId, SlotId, i128)],
        keep: bool,
    ) -> bool {
        let basis = self.basis(entry, state);
        if entry.targets.is_empty() && entry.replaced.is_none() && reserved.is_empty() {
            // No usage is subtracted, so none has to be restored.
            return fit(&self.world.forest.quota, self.books.usage(basis), &entry.assignment.usage);
        }
        let mut view = self.view(basis, &[]);
        let quota = &view.world.forest.quota;
        let mark = view.usage.mark();
        let nodes = view.nodes.mark();
        for &(_, slot, amount) in reserved {
            view.usage.remove(quota, slot, amount);
        }
        for target in &entry.targets {
            view.remove(target.workload);
        }
        // The replaced slice stays until the entry is admitted.
        let before = view.mark();
        if let Some(slice) = entry.replaced {
            view.remove(slice);
        }
        let fits = view.fits(&entry.assignment.usage, true);
        view.rollback(&before);
        // Victims keep their nodes until they have left: there is only one usage of nodes.
        view.nodes.rollback(&nodes);
        if fits && keep {
            view.usage.keep(&mark);
        } else {
            view.usage.rollback(&mark);
        }
        fits
    }

    /// The usage of quota that an entry is held against: without the victims of this cycle, if its tree has any.
    pub(super) fn basis(&self, entry: &Entry, state: &CycleState) -> Basis {
        let overlaid = state.overlaid.contains(&self.world.forest.node(entry.head.node).root);
        if overlaid { Basis::AfterVictims } else { Basis::Now }
    }

    /// Records why an entry did not fit any more, in case its search continues without a result.
    fn note_crowded_out(&mut self, entry: &Entry) {
        if self.world.workloads.get(entry.head.workload).last_assignment.is_some() {
            let before = with_what_was_tried_before(entry, self.crowded_out(entry));
            let workload = self.world.workloads.get_mut(entry.head.workload);
            if let Some(last) = &mut workload.last_assignment {
                last.before = Some(before);
            }
        }
    }

    /// What an entry lacks in the flavors that earlier entries used or reserved.
    fn crowded_out(&self, entry: &Entry) -> Arc<Unadmitted> {
        let quota = &self.world.forest.quota;
        let refusal = |quantity: &FlavorResourceQuantity| {
            let (flavor, resource) = self.world.names.flavor_and_resource(quantity.pair);
            let (nominal, free) =
                (quota.nominal(quantity.slot), quota.available(&self.books.usage, quantity.slot));
            Refusal::InsufficientQuota {
                flavor: self.world.names.flavor_name(flavor).clone(),
                resource: self.world.names.resource_name(resource).clone(),
                needed: clamp(quantity.amount),
                free,
                missing: clamp(quantity.amount - exact(free)),
                nominal,
                borrowable: quota.potential_available(quantity.slot).sub(nominal).max(Amount::ZERO),
                preemption: PreemptionPossibility::NotConsidered,
            }
        };
        let lacking = |quantity: &&FlavorResourceQuantity| {
            quantity.amount > exact(quota.available(&self.books.usage, quantity.slot))
        };
        let requests = entry.plan.iter().flat_map(|plan| plan.requests.iter()).enumerate();
        let pod_sets = requests.map(|(at, (name, _))| {
            let asks = |quantity: &&FlavorResourceQuantity| {
                let mut of = entry.assignment.flavors.iter().filter(|assigned| assigned.pod_set == at);
                of.any(|assigned| assigned.pair == quantity.pair)
            };
            let usage = entry.assignment.usage.iter().filter(lacking).filter(asks);
            PodSetRefusal { name: name.clone(), refusals: usage.map(refusal).collect() }
        });
        let pod_sets = pod_sets.filter(|pod_set| !pod_set.refusals.is_empty()).collect();
        why(entry, Detail::Flavors { pod_sets, pending_preemptions: 0 }, Reason::WaitingForQuota)
    }

    /// Records the heads that kept the entry out, if it would fit without their reservations.
    fn note_kept_out(&mut self, entry: &mut Entry, state: &CycleState) {
        let root = self.world.forest.node(entry.head.node).root;
        let reserved = state.reserved.get(&root).map_or(&[][..], Vec::as_slice);
        if reserved.is_empty() && state.reserved_pods.is_empty() {
            return;
        }
        if self.try_to_fit(entry, state, reserved, false) {
            entry.is_kept_out_by(reserved.iter().map(|&(id, ..)| id));
            let of_nodes = self.reserving_its_nodes(entry, state);
            entry.is_kept_out_by(of_nodes);
        }
    }

    /// Whether physical capacity has no room, even with the entry's victims gone; earlier heads of the cycle may have
    /// taken it. The room of victims that others chose is not free before they are gone.
    fn lacks_nodes(&mut self, entry: &Entry) -> Option<Detail> {
        let plan = entry.plan.as_ref()?;
        if !self.world.capacity.limits_any() {
            return None;
        }
        let gone: Vec<WorkloadId> =
            entry.targets.iter().map(|target| target.workload).chain(entry.replaced).collect();
        let lack =
            self.view(Basis::Now, &[]).first_lack(entry.head.workload, &entry.assignment.usage, &gone)?;
        let pod_sets = plan
            .requests
            .iter()
            .map(|(name, _)| PodSetRefusal { name: name.clone(), refusals: vec![lack.clone()] });
        Some(Detail::Flavors { pod_sets: pod_sets.collect(), pending_preemptions: 0 })
    }

    /// The preemption-loop guard has something against these victims.
    fn would_loop(&self, entry: &Entry) -> Option<Detail> {
        if !self.world.config.gates.preemption_loop_guard || entry.targets.is_empty() {
            return None;
        }
        let root = self.world.forest.node(entry.head.node).root;
        let is_new = |id: &WorkloadId| {
            self.world.workloads.get(*id).reservation().is_some_and(|reservation| !reservation.evicted)
        };
        let victims = entry.targets.iter().map(|target| target.workload).filter(is_new);
        let (victim, kind) = self.agenda.loops.objection(root, entry.head.workload, victims)?;
        let plan = entry.plan.as_ref()?;
        let own = &self.world.workloads.get(entry.head.workload).key;
        let victim = self.world.workloads.get(victim);
        Some(Detail::PreemptionLoop {
            victim: victim.key.clone(),
            elsewhere: victim.key.namespace != own.namespace,
            kind,
            pod_sets: entry.assignment.refusals(plan),
        })
    }
}
