//! What can be done for each head, before any other is considered (reference 06, 6.5 "Nominate").

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Entry, Requeue};
use crate::flavor_assigner::{Assignment, Mode, Request, assign};
use crate::partial_admission;
use crate::plan::{Plan, PlanInput};
use crate::preemption::{self, Preemption, Target};
use crate::reason::{Detail, Reason, Unadmitted};
use crate::scheduler::Scheduler;
use crate::view::{Head, View};

impl Scheduler {
    /// Finds out what can be done for a head (reference 06, 6.5 "Nominate").
    pub(super) fn nominate(&mut self, entry: &mut Entry, local_usage: &[f64]) {
        let id = entry.head.workload;
        let refuse = |detail, reason| Arc::new(Unadmitted { reason, detail, requests: Arc::from([]) });
        if let Some(waiting) = self.workloads.get(id).waiting() {
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
        let generation = self.tree.forest.generation(entry.head.node);
        let cycle = self.cycle;
        let workload = self.workloads.get(id);
        let shape = workload.shape;
        let from = workload
            .progress
            .as_deref()
            .filter(|progress| !progress.is_outdated(&self.config, shape, cycle, generation));
        entry.before = from.and_then(|_| workload.decision.clone());
        let mut view = view!(self, ordered_usage(&self.queues, &self.config, &entry.head, local_usage));
        let request = Request { head: &entry.head, plan: &plan, counts: &plan.counts, from, only: None };
        let found = search(&mut view, &request, self.shapes.get(shape));
        (entry.assignment, entry.targets) = found;
        let progress = entry.assignment.progress(shape, cycle, generation);
        self.workloads.get_mut(id).progress = progress;
        entry.plan = Some(plan);
    }

    /// The plan for an entry's class in its queue.
    fn plan(&mut self, entry: &Entry) -> Arc<Plan> {
        let queue = &self.queues[entry.head.queue.at()];
        if let Some(plan) = queue.pending.plan(entry.lane, queue.version) {
            return plan.clone();
        }
        let shape = self.workloads.get(entry.head.workload).shape;
        let plan = Plan::new(&PlanInput {
            queue,
            forest: &self.tree.forest,
            names: &self.names,
            flavors: &self.flavors,
            shape: self.shapes.get(shape),
            pod_sets: self.shapes.pod_sets(shape),
            ignore_uncovered: self.config.ignore_undeclared && self.config.gates.quota_check_strategy,
            pods: self.pods,
        });
        let queue = &mut self.queues[entry.head.queue.at()];
        queue.pending.set_plan(entry.lane, queue.version, plan.clone());
        plan
    }
}

/// The usage of LocalQueues, where it orders the head's queue.
pub(super) fn ordered_usage<'a>(
    queues: &[crate::cluster_queue::ClusterQueue],
    config: &crate::Config,
    head: &Head,
    local_usage: &'a [f64],
) -> &'a [f64] {
    let by_usage = queues[head.queue.at()].spec.as_ref().is_some_and(|spec| spec.usage_based_fair_sharing);
    if by_usage && config.admission_fair_sharing.is_some() { local_usage } else { &[] }
}

/// The assignment of a head and its victims: in full if that is possible, otherwise with fewer pods.
pub(super) fn search(
    view: &mut View<'_>,
    request: &Request<'_>,
    shape: &crate::shape::Shape,
) -> (Assignment, Vec<Target>) {
    let gate = view.config.gates.partial_admission;
    let mut attempt = |counts: &[i64]| {
        let assignment = assign(view, &Request { counts, ..*request });
        let targets = find_targets(view, request.head, &assignment);
        (assignment, targets)
    };
    let full = attempt(request.counts);
    let works = |found: &(Assignment, Vec<Target>)| {
        found.0.mode == Mode::Fit || (found.0.mode == Mode::Preempt && !found.1.is_empty())
    };
    if works(&full) || !shape.reducible() || !gate {
        return full;
    }
    partial_admission::search(shape, |counts| Some(attempt(counts)).filter(works)).unwrap_or(full)
}

/// The victims that an assignment needs; none if it needs none or there are none.
fn find_targets(view: &mut View<'_>, head: &Head, assignment: &Assignment) -> Vec<Target> {
    if assignment.mode != Mode::Preempt {
        return Vec::new();
    }
    let needed: SmallVec<[_; 2]> = assignment.needing_preemption();
    preemption::find(view, &Preemption { head, demands: &assignment.demands, needed: &needed })
}
