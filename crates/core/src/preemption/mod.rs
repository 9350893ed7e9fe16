//! Preemption: which workloads have to go so that another fits (docs/reference/06-algorithm.md 6.7 and 6.8).

mod candidates;
mod classical;
mod fair;
mod lent;
mod request;

use crate::intern::WorkloadId;
use crate::report::FlavorMode;
use crate::view::{FlavorResourceQuantity, Head, SimulatedPreemption, Target, View};

pub(crate) use lent::{Lent, lent};
pub(crate) use request::PreemptionRequest;

/// Victims that make room for the whole request of a head, or none. The usage is restored.
pub(crate) fn find(view: &mut View<'_>, preemption: &PreemptionRequest<'_>) -> Vec<Target> {
    if let (&[quantity], &[_], None) = (preemption.workload_usage, preemption.needed, preemption.placement)
        && let Some(at) = view.simulated.iter().position(|simulated| simulated.quantity == quantity)
    {
        return view.simulated.swap_remove(at).targets;
    }
    targets(view, preemption)
}

/// The victims that make room, or none. The usage is as before.
fn targets(view: &mut View<'_>, preemption: &PreemptionRequest<'_>) -> Vec<Target> {
    view.stats.preemption_searches += 1;
    if view.world.config.fair_sharing.is_some() {
        fair::targets(view, preemption)
    } else {
        classical::targets(view, preemption)
    }
}

/// The result of preemption for one (flavor, resource) alone: the mode, and the borrowing height after it (docs/reference/06-algorithm.md 6.6
/// "preemption oracle").
pub(crate) fn simulate(
    view: &mut View<'_>,
    head: &Head,
    quantity: FlavorResourceQuantity,
) -> (FlavorMode, u32) {
    let preemption =
        PreemptionRequest { head, workload_usage: &[quantity], needed: &[quantity.pair], placement: None };
    let targets = targets(view, &preemption);
    let mark = view.mark();
    for target in &targets {
        view.remove(target.workload);
    }
    let (height, _) =
        view.world.forest.borrowing_height(view.usage, head.node, quantity.slot, quantity.amount);
    view.rollback(&mark);
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
