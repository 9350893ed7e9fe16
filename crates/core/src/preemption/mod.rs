//! Preemption: which workloads have to go so that another fits (reference 06, 6.7 and 6.8).

mod candidates;
mod classical;
mod fair;

use std::cmp::Reverse;

use crate::Name;
use crate::intern::{FrId, WorkloadId};
use crate::report::{FlavorMode, PreemptionReason};
use crate::spec::Time;
use crate::view::{FlavorResourceQuantity, Head, View};

/// The order of candidates within one queue: lower priority first, then the more recently reserved, then the UID
/// (reference 06, 6.7 "Ordering"; evicted ones are kept apart and come before).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CandidateKey {
    pub(crate) priority: i32,
    pub(crate) reserved_at: Reverse<Time>,
    pub(crate) uid: Name,
    pub(crate) id: WorkloadId,
}

/// A victim and why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) workload: WorkloadId,
    pub(crate) reason: PreemptionReason,
}

/// A preemption to be searched.
pub(crate) struct PreemptionRequest<'a> {
    pub(crate) head: &'a Head,
    /// Everything that the head asks for.
    pub(crate) workload_usage: &'a [FlavorResourceQuantity],
    /// The pairs for which room has to be made.
    pub(crate) needed: &'a [FrId],
}

/// What one search found, kept while the world stays as it is: the flavor search asks for each resource alone, and
/// where there is one resource only, what is asked for in the end is the same.
#[derive(Debug)]
pub(crate) struct SimulatedPreemption {
    quantity: FlavorResourceQuantity,
    targets: Vec<Target>,
}

/// The victims that make room for all that a head asks for, or none. The usage is as before.
pub(crate) fn find(view: &mut View<'_>, preemption: &PreemptionRequest<'_>) -> Vec<Target> {
    if let (&[quantity], &[_]) = (preemption.workload_usage, preemption.needed)
        && let Some(at) = view.simulated.iter().position(|simulated| simulated.quantity == quantity)
    {
        return view.simulated.swap_remove(at).targets;
    }
    targets(view, preemption)
}

/// The victims that make room, or none. The usage is as before.
fn targets(view: &mut View<'_>, preemption: &PreemptionRequest<'_>) -> Vec<Target> {
    view.stats.preemption_searches += 1;
    if view.config.fair_sharing.is_some() {
        fair::targets(view, preemption)
    } else {
        classical::targets(view, preemption)
    }
}

/// What a preemption for one (flavor, resource) alone would bring: the mode, and the borrowing height after it
/// (reference 06, 6.6 "preemption oracle").
pub(crate) fn simulate(
    view: &mut View<'_>,
    head: &Head,
    quantity: FlavorResourceQuantity,
) -> (FlavorMode, u32) {
    let preemption = PreemptionRequest { head, workload_usage: &[quantity], needed: &[quantity.pair] };
    let targets = targets(view, &preemption);
    let mark = view.usage.mark();
    for target in &targets {
        view.remove(target.workload);
    }
    let (height, _) = view.forest.borrowing_height(view.usage, head.node, quantity.slot, quantity.amount);
    view.usage.rollback(&mark);
    let mode = if targets.is_empty() {
        FlavorMode::NoPreemptionCandidates
    } else if targets.iter().any(|target| has_reservation_in(view, target.workload, head)) {
        FlavorMode::Preempt
    } else {
        FlavorMode::Reclaim
    };
    view.simulated.push(SimulatedPreemption { quantity, targets });
    (mode, height)
}

fn has_reservation_in(view: &View<'_>, workload: WorkloadId, head: &Head) -> bool {
    view.workload(workload).reservation().is_some_and(|reservation| reservation.queue == head.queue)
}

/// Gives victims back that are not needed after all: from the last but one to the first, each that leaves the head
/// fitting. [quirk] A victim that is given back is replaced by the last one, so the order is not kept.
fn fill_back(
    view: &mut View<'_>,
    quantities: &[FlavorResourceQuantity],
    allow_borrowing: bool,
    targets: &mut Vec<Target>,
) {
    for at in (0..targets.len().saturating_sub(1)).rev() {
        let workload = targets[at].workload;
        view.restore(workload);
        if view.fits(quantities, allow_borrowing) {
            targets.swap_remove(at);
        } else {
            view.remove(workload);
        }
    }
}
