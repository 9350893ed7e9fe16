//! Classical preemption (docs/reference/06-algorithm.md 6.7).

use super::candidates::{self, CandidateFilter, CandidateQueue, CohortCandidates, QueueCandidates};
use super::request::{PreemptionRequest, fill_back, fits};
use crate::intern::{NodeId, WorkloadId};
use crate::report::PreemptionReason;
use crate::spec::PreemptionPolicy;
use crate::view::{Target, View};

/// The queues of the cohort whose workloads may be taken.
#[derive(Default)]
struct CandidateQueues {
    /// Where the preemptor has the hierarchical advantage: its request fits into a subtree that the victim's queue
    /// is not part of.
    hierarchical: Vec<CandidateQueue>,
    /// All others: priorities and `borrowWithinCohort` decide.
    priority: Vec<CandidateQueue>,
}

/// How a candidate of another queue may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Hierarchical,
    ReclaimWithoutBorrowing,
    ReclaimWhileBorrowing,
}

impl Variant {
    const fn reason(self) -> PreemptionReason {
        match self {
            Variant::Hierarchical | Variant::ReclaimWithoutBorrowing => PreemptionReason::InCohortReclamation,
            Variant::ReclaimWhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
        }
    }
}

/// The victims, or none. The usage is as before.
pub(super) fn targets(view: &mut View<'_>, preemption: &PreemptionRequest<'_>) -> Vec<Target> {
    let sources = collect_sources(view, preemption);
    let reclaim = CandidateFilter::new(view.queue(preemption.head.queue).reclaim_policy());
    let hierarchical = candidates::any(view, preemption, &sources.hierarchical, reclaim);
    let others = hierarchical || candidates::any(view, preemption, &sources.priority, reclaim);
    let forbidden = borrow_within_cohort(view, preemption).is_none();
    let attempts: &[bool] = if !others || (forbidden && !strictly_under_nominal(view, preemption)) {
        &[true]
    } else if forbidden && !hierarchical {
        &[false, true]
    } else {
        &[true, false]
    };
    for &allow_borrowing in attempts {
        let mark = view.mark();
        let found = attempt(view, preemption, &sources, allow_borrowing);
        view.rollback(&mark);
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

fn borrow_within_cohort(
    view: &View<'_>,
    preemption: &PreemptionRequest<'_>,
) -> Option<crate::spec::BorrowWithinCohort> {
    view.queue(preemption.head.queue).spec.as_ref().and_then(|spec| spec.preemption.borrow_within_cohort)
}

/// The preemptor's queue uses less than its nominal quota of every needed pair.
fn strictly_under_nominal(view: &View<'_>, preemption: &PreemptionRequest<'_>) -> bool {
    let node = view.world.forest.node(preemption.head.node);
    preemption.needed.iter().all(|&pair| {
        node.slot(pair).is_none_or(|slot| {
            view.usage.get(slot) < crate::quota::exact(view.world.forest.quota.nominal(slot))
        })
    })
}

/// Walks from the parent to the root. At each ancestor the subtree's queues above nominal are collected; the
/// preemptor has the advantage over them once its request fits into a subtree below.
fn collect_sources(view: &View<'_>, preemption: &PreemptionRequest<'_>) -> CandidateQueues {
    let mut sources = CandidateQueues::default();
    let head = preemption.head;
    if view.queue(head.queue).reclaim_policy() == PreemptionPolicy::Never {
        return sources;
    }
    let forest = &view.world.forest;
    let quota = &forest.quota;
    let mut remaining: smallvec::SmallVec<[_; 4]> =
        preemption.workload_usage.iter().map(|quantity| (quantity.slot, quantity.amount)).collect();
    let mut fits_below = |advantage: bool| {
        let mut fits = true;
        for (slot, amount) in &mut remaining {
            fits &= !quota.borrowing_with(view.usage, *slot, *amount);
            *amount = (*amount - quota.local_available(view.usage, *slot)).max(0);
            *slot = quota.parent(*slot).unwrap_or(*slot);
        }
        advantage || fits
    };
    let mut advantage = fits_below(false);
    let mut below = head.node;
    for ancestor in forest.ancestors(head.node) {
        let list = if advantage { &mut sources.hierarchical } else { &mut sources.priority };
        collect_subtree(view, preemption, ancestor, below, list);
        advantage = fits_below(advantage);
        below = ancestor;
    }
    sources
}

/// Adds the queues below an ancestor that use more than nominal, except those below `visited`.
pub(super) fn collect_subtree(
    view: &View<'_>,
    preemption: &PreemptionRequest<'_>,
    ancestor: NodeId,
    visited: NodeId,
    list: &mut Vec<CandidateQueue>,
) {
    let forest = &view.world.forest;
    let mut stack: smallvec::SmallVec<[NodeId; 16]> = smallvec::smallvec![ancestor];
    while let Some(id) = stack.pop() {
        for child in forest.node(id).children() {
            if child == visited || forest.within_nominal(view.usage, child, preemption.needed) {
                continue;
            }
            match forest.node(child).queue {
                None => stack.push(child),
                Some(queue) if view.is_active(queue) => list.push(CandidateQueue { queue, ancestor }),
                Some(_) => {}
            }
        }
    }
}

/// One attempt: adds candidates in order until the request fits, then removes unneeded ones.
fn attempt(
    view: &mut View<'_>,
    preemption: &PreemptionRequest<'_>,
    sources: &CandidateQueues,
    allow_borrowing: bool,
) -> Vec<Target> {
    let mut found = Vec::new();
    let reclaim = CandidateFilter::new(view.queue(preemption.head.queue).reclaim_policy());
    // While borrowing, queues without the hierarchical advantage over them give only what `borrowWithinCohort` allows.
    let by_priority = if allow_borrowing {
        while_borrowing(view, preemption).map(|max_priority| reclaim.max_priority(max_priority))
    } else {
        Some(reclaim)
    };
    let above_nominal = |view: &View<'_>, source| still_above_nominal(view, preemption, source);
    for evicted in [true, false] {
        let lists = [(&sources.hierarchical, Some(reclaim), true), (&sources.priority, by_priority, false)];
        for (list, filter, hierarchical) in lists {
            let Some(filter) = filter.filter(|_| !list.is_empty()) else { continue };
            let mut candidates = CohortCandidates::new(view, preemption, list, filter, evicted);
            while let Some(workload) = candidates.next(view, preemption, above_nominal) {
                let variant = variant(view, preemption, workload, hierarchical);
                let target = Target { workload, reason: variant.reason() };
                if take(view, preemption, target, allow_borrowing, &mut found) {
                    return found;
                }
            }
        }
        if take_own(view, preemption, evicted, allow_borrowing, &mut found) {
            return found;
        }
    }
    Vec::new()
}

/// Takes candidates of the own queue; true once the request fits.
fn take_own(
    view: &mut View<'_>,
    preemption: &PreemptionRequest<'_>,
    evicted: bool,
    allow_borrowing: bool,
    found: &mut Vec<Target>,
) -> bool {
    let own = preemption.head.queue;
    let policy = view.queue(own).within_policy();
    let reason = PreemptionReason::InClusterQueue;
    if policy == PreemptionPolicy::Never {
        return false;
    }
    let mut candidates = QueueCandidates::of(view, preemption, own, evicted, CandidateFilter::new(policy));
    while let Some(key) = candidates.next(view, preemption) {
        if take(view, preemption, Target { workload: key.id, reason }, allow_borrowing, found) {
            return true;
        }
    }
    false
}

/// Adds one victim; returns true if the request then fits, with unneeded victims removed.
fn take(
    view: &mut View<'_>,
    preemption: &PreemptionRequest<'_>,
    target: Target,
    allow_borrowing: bool,
    found: &mut Vec<Target>,
) -> bool {
    view.remove(target.workload);
    found.push(target);
    let fits = fits(view, preemption, allow_borrowing);
    if fits {
        fill_back(view, preemption, allow_borrowing, found);
    }
    fits
}

fn variant(
    view: &View<'_>,
    preemption: &PreemptionRequest<'_>,
    workload: WorkloadId,
    hierarchical: bool,
) -> Variant {
    if hierarchical {
        return Variant::Hierarchical;
    }
    let priority = view.workload(workload).priority;
    if while_borrowing(view, preemption).is_some_and(|max_priority| priority <= max_priority) {
        Variant::ReclaimWhileBorrowing
    } else {
        Variant::ReclaimWithoutBorrowing
    }
}

/// The highest priority that `borrowWithinCohort` lets the preemptor take while it borrows: below its own, and up to
/// the threshold.
fn while_borrowing(view: &View<'_>, preemption: &PreemptionRequest<'_>) -> Option<i32> {
    let borrow = borrow_within_cohort(view, preemption)?;
    let below = preemption.head.priority.checked_sub(1)?;
    Some(borrow.max_priority_threshold.map_or(below, |threshold| threshold.min(below)))
}

/// Without the victims so far, the candidate's queue and its ancestors below the common one still use more than nominal.
pub(super) fn still_above_nominal(
    view: &View<'_>,
    preemption: &PreemptionRequest<'_>,
    source: CandidateQueue,
) -> bool {
    let forest = &view.world.forest;
    let node = view.queue(source.queue).node;
    std::iter::once(node)
        .chain(forest.ancestors(node).take_while(|&id| id != source.ancestor))
        .all(|id| !forest.within_nominal(view.usage, id, preemption.needed))
}
