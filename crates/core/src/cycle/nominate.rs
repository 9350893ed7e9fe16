//! What can be done for each head, considered alone (docs/reference/06-algorithm.md 6.5 "Nominate").

use std::sync::Arc;

use smallvec::SmallVec;

use super::entry::{Entry, Requeue};
use crate::books::Basis;
use crate::flavor_assigner::{Assignment, Mode, Request, assign, to_place};
use crate::intern::WorkloadId;
use crate::last_assignment::Scan;
use crate::partial_admission;
use crate::placement;
use crate::plan::{Plan, PlanInput};
use crate::preemption::{self, PreemptionRequest};
use crate::reason::{Detail, Reason, Unadmitted};
use crate::scheduler::Scheduler;
use crate::view::{FlavorResourceQuantity, Target, View};

impl Scheduler {
    /// Finds out what can be done for a head (docs/reference/06-algorithm.md 6.5 "Nominate").
    pub(super) fn nominate(&mut self, entry: &mut Entry, local_usage: &[f64]) {
        let id = entry.head.workload;
        self.world.workloads.get_mut(id).keeps_capacity = false;
        let refuse = |detail, reason| Arc::new(Unadmitted { reason, detail, requests: Arc::from([]) });
        if let Some(waiting) = self.world.workloads.get(id).waiting() {
            if waiting.failed_checks {
                let why = refuse(Detail::FailedChecks, Reason::PendingEvaluation);
                entry.early = Some((why, Requeue::Generic));
                return;
            }
            if !self.namespace_matches(id, entry.head.queue) {
                let why = refuse(Detail::NamespaceMismatch, Reason::Misconfigured);
                entry.early = Some((why, Requeue::NamespaceMismatch));
                return;
            }
            if let Some(message) = &waiting.invalid {
                let why = refuse(Detail::Invalid(message.clone()), Reason::Misconfigured);
                entry.early = Some((why, Requeue::Generic));
                return;
            }
        }
        let plan = self.plan(entry);
        debug_assert!(self.agenda.flush_flavors.is_empty(), "the trees do not know yet what was freed");
        let (generation, freed) =
            (self.world.forest.generation(entry.head.node), self.world.forest.freed(entry.head.node));
        let cycle = self.cycle;
        entry.replaced = self.replaced_slice(&entry.head);
        let mut view = self.view(Basis::Now, local_usage);
        let world = view.world;
        let workload = world.workloads.get(id);
        let shape = workload.shape;
        let from = workload
            .last_assignment
            .as_deref()
            .filter(|last| !last.is_outdated(&world.config, shape, cycle, generation));
        entry.kept_out_by = from.map_or_else(Vec::new, |from| from.kept_out_by.clone());
        entry.before = from.and_then(|from| from.before.clone().or_else(|| workload.decision.clone()));
        entry.scan = Scan { shape, cycle, generation, since: from.map_or(freed, |from| from.since) };
        let replaces = workload.replaces.as_deref();
        let request =
            Request { head: &entry.head, plan: &plan, counts: &plan.counts, from, only: None, replaces };
        let shape = world.shapes.get(shape);
        entry.targets = search_for(&mut view, &request, shape, entry.replaced, &mut entry.assignment);
        let last_assignment = entry.assignment.last_assignment(&entry.scan);
        self.world.workloads.get_mut(id).last_assignment = last_assignment;
        entry.plan = Some(plan);
    }

    /// The plan for an entry's class in its queue.
    fn plan(&mut self, entry: &Entry) -> Arc<Plan> {
        let queue = &self.world.queues[entry.head.queue.at()];
        if let Some(plan) = queue.pending.plan(entry.class, queue.version) {
            return plan.clone();
        }
        let shape = self.world.workloads.get(entry.head.workload).shape;
        let plan = Plan::new(&PlanInput {
            node: queue.node,
            groups: &queue.groups,
            forest: &self.world.forest,
            names: &self.world.names,
            flavors: &self.world.flavors,
            shape: self.world.shapes.get(shape),
            pod_sets: self.world.shapes.pod_sets(shape),
            ignore_uncovered: self.world.config.ignore_undeclared
                && self.world.config.gates.quota_check_strategy,
            pods: self.world.pods,
            topology: &self.world.topology,
        });
        let queue = &mut self.world.queues[entry.head.queue.at()];
        queue.pending.set_plan(entry.class, queue.version, plan.clone());
        plan
    }
}

/// The same without the slice that the head replaces.
pub(super) fn search_for(
    view: &mut View<'_>,
    request: &Request<'_>,
    shape: &crate::shape::Shape,
    replaced: Option<WorkloadId>,
    assignment: &mut Assignment,
) -> Vec<Target> {
    let Some(slice) = replaced else { return search(view, request, shape, assignment) };
    view.replaced = replaced;
    let mark = view.mark();
    view.remove(slice);
    let targets = search(view, request, shape, assignment);
    view.rollback(&mark);
    targets
}

/// The assignment of a head and its victims: in full if possible, otherwise with fewer pods.
fn search(
    view: &mut View<'_>,
    request: &Request<'_>,
    shape: &crate::shape::Shape,
    assignment: &mut Assignment,
) -> Vec<Target> {
    assign(view, request, assignment);
    if assignment.mode == Mode::Fit {
        return Vec::new();
    }
    let targets = find_targets(view, request, assignment);
    let works = |assignment: &Assignment, targets: &[Target]| {
        assignment.mode == Mode::Fit || (assignment.mode == Mode::Preempt && !targets.is_empty())
    };
    let reduces = shape.reducible() && view.world.config.gates.partial_admission;
    if works(assignment, &targets) || !reduces {
        return targets;
    }
    let fewer = partial_admission::search(shape, |counts| {
        let mut fewer = Assignment::default();
        assign(view, &Request { counts, ..*request }, &mut fewer);
        let targets = find_targets(view, request, &mut fewer);
        works(&fewer, &targets).then_some((fewer, targets))
    });
    let Some((fewer, its_targets)) = fewer else { return targets };
    *assignment = fewer;
    its_targets
}

/// The victims that an assignment needs; none if it needs none or there are none. Its pods get the nodes that are free with them gone.
fn find_targets(view: &mut View<'_>, request: &Request<'_>, assignment: &mut Assignment) -> Vec<Target> {
    if assignment.mode != Mode::Preempt {
        return Vec::new();
    }
    let head = request.head;
    let placement = to_place(view, head, request.plan, assignment).ok().map(|(to_place, _)| to_place);
    let placement = placement.filter(|to_place| !to_place.groups.is_empty());
    let needed: SmallVec<[_; 2]> = assignment.needing_preemption();
    // A request of zero needs no victims. Pods that fit may be borrowed all the same: that does not keep the head from
    // reclaiming its own quota of another resource.
    let counts = |quantity: &&FlavorResourceQuantity| {
        quantity.amount > 0 && (needed.contains(&quantity.pair) || !view.world.names.is_pods(quantity.pair))
    };
    let quantities: SmallVec<[FlavorResourceQuantity; 2]> =
        assignment.usage.iter().filter(counts).copied().collect();
    let placement = placement.as_ref();
    let request = PreemptionRequest { head, workload_usage: &quantities, needed: &needed, placement };
    let targets = preemption::find(view, &request);
    if let Some(to_place) = placement.filter(|_| !targets.is_empty()) {
        let mark = view.mark();
        for target in &targets {
            view.remove(target.workload);
        }
        if let Ok(nodes) = placement::place(view, to_place, false) {
            assignment.nodes.retain(|of| of.assignment.is_none());
            assignment.nodes.extend(nodes);
        }
        view.rollback(&mark);
    }
    targets
}
