//! Victims for a slice that gets nodes back which its cohort has lent out (not in Kueue).

use std::collections::BTreeSet;
use std::convert::Infallible;

use super::candidates::{CandidateFilter, CohortCandidates};
use super::classical::{collect_subtree, still_above_nominal};
use super::request::PreemptionRequest;
use crate::halving::lowest_enough;
use crate::intern::PlaceId;
use crate::placement;
use crate::report::PreemptionReason;
use crate::spec::PreemptionPolicy;
use crate::topology::PlacedPods;
use crate::view::{Target, View};
use crate::workloads::{QuotaReservation, TopologyReservation};

/// How often it is tried whether fewer victims are enough. More victims than this are tried several at once.
const MOST_TRIALS: usize = 64;

/// Nodes for a slice that are free without these workloads.
pub(crate) struct Lent {
    pub(crate) targets: Vec<Target>,
    /// The pods of the slice that will be there.
    pub(crate) pods: Vec<PlacedPods>,
}

/// Victims that make room on nodes for a slice whose workload keeps its quota and `holds` these nodes, or none: workloads of lower priorities in
/// queues that borrow, as long as these do, first those that are evicted already, and none whose eviction is refused. For a slice whose own queue
/// borrows there are none. The usage is restored.
///
/// A placement costs much and there may be thousands of candidates, so that they are not tried one by one. If all of them are not enough, one
/// placement says so.
pub(crate) fn lent(
    view: &mut View<'_>,
    preemption: &PreemptionRequest<'_>,
    holds: &TopologyReservation,
) -> Option<Lent> {
    view.stats.preemption_searches += 1;
    let mark = view.mark();
    let found = first_that_are_enough(view, preemption, holds);
    view.rollback(&mark);
    let found = found?;
    let mark = view.mark();
    for target in &found {
        view.remove(target.workload);
    }
    let mut pods = gained(view, preemption, holds);
    let mut targets = Vec::new();
    for some in found.chunks(found.len().div_ceil(MOST_TRIALS).max(1)).rev() {
        for target in some {
            view.restore(target.workload);
        }
        if let Some(without) = gained(view, preemption, holds) {
            pods = Some(without);
            continue;
        }
        for target in some {
            view.remove(target.workload);
        }
        targets.extend_from_slice(some);
    }
    view.rollback(&mark);
    Some(Lent { targets, pods: pods? }).filter(|lent| !lent.targets.is_empty())
}

/// Of the first candidates that are enough together, found by halving: those that are where the slice goes. The candidates stay removed.
fn first_that_are_enough(
    view: &mut View<'_>,
    preemption: &PreemptionRequest<'_>,
    holds: &TopologyReservation,
) -> Option<Vec<Target>> {
    let mut candidates = remove_candidates(view, preemption);
    if candidates.is_empty() {
        return None;
    }
    let mut pods = gained(view, preemption, holds)?;
    let mut removed = candidates.len();
    let Ok(enough) = lowest_enough(0, candidates.len(), |number| {
        for target in candidates.get(number..removed).into_iter().flatten() {
            view.restore(target.workload);
        }
        for target in candidates.get(removed..number).into_iter().flatten() {
            view.remove(target.workload);
        }
        removed = number;
        let found = gained(view, preemption, holds);
        let is_enough = found.is_some();
        if let Some(found) = found {
            pods = found;
        }
        Ok::<_, Infallible>(is_enough)
    });
    candidates.truncate(enough);
    let places: BTreeSet<PlaceId> =
        pods.iter().flat_map(|pods| &pods.places).map(|&(place, _)| place).collect();
    let workloads = &view.world.workloads;
    candidates.retain(|target| {
        let mut used = workloads.pods_of(target.workload).flat_map(|pods| &pods.places);
        used.any(|(place, _)| places.contains(place))
    });
    Some(candidates)
}

/// Removes all candidates, and returns them in the order in which they are taken.
fn remove_candidates(view: &mut View<'_>, preemption: &PreemptionRequest<'_>) -> Vec<Target> {
    let forest = &view.world.forest;
    let mut sources = Vec::new();
    let mut below = preemption.head.node;
    for ancestor in forest.ancestors(below) {
        if !forest.within_nominal(view.usage, below, preemption.needed) {
            break;
        }
        collect_subtree(view, preemption, ancestor, below, &mut sources);
        below = ancestor;
    }
    let filter = CandidateFilter::new(PreemptionPolicy::LowerPriority);
    let above_nominal = |view: &View<'_>, source| still_above_nominal(view, preemption, source);
    let mut removed = Vec::new();
    for evicted in [true, false] {
        let mut candidates = CohortCandidates::new(view, preemption, &sources, filter, evicted);
        while let Some(workload) = candidates.next(view, preemption, above_nominal) {
            if view.workload(workload).reservation().is_some_and(QuotaReservation::eviction_refused) {
                continue;
            }
            view.remove(workload);
            removed.push(Target { workload, reason: PreemptionReason::InCohortReclamation });
        }
    }
    removed
}

/// The pods of the slice that go to other nodes than it holds, if there is room for them now.
fn gained(
    view: &mut View<'_>,
    preemption: &PreemptionRequest<'_>,
    holds: &TopologyReservation,
) -> Option<Vec<PlacedPods>> {
    let placed = placement::place(view, preemption.placement?, false).ok()?;
    let gained = placed.into_iter().filter_map(|new| {
        let held = holds.pod_sets.iter().find(|held| held.pod_set == new.pod_set)?;
        Some(new.pods.without(&held.pods)).filter(|pods| !pods.places.is_empty())
    });
    Some(gained.collect())
}
