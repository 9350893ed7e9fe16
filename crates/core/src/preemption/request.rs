//! The request of a search for victims, and the end of all searches: unneeded victims are removed (docs/reference/06-algorithm.md 6.7).

use crate::intern::FrId;
use crate::placement::{self, WorkloadToPlace};
use crate::view::{FlavorResourceQuantity, Head, Target, View};

/// A preemption to be searched.
pub(crate) struct PreemptionRequest<'a> {
    pub(crate) head: &'a Head,
    /// Everything that the head asks for.
    pub(crate) workload_usage: &'a [FlavorResourceQuantity],
    /// The pairs for which room has to be made.
    pub(crate) needed: &'a [FrId],
    /// The pods that nodes have to be found for.
    pub(crate) placement: Option<&'a WorkloadToPlace<'a>>,
}

/// Whether the head fits with the victims so far: into the quota, and its pods onto nodes.
pub(super) fn fits(view: &mut View<'_>, preemption: &PreemptionRequest<'_>, allow_borrowing: bool) -> bool {
    view.fits(preemption.workload_usage, allow_borrowing)
        && preemption.placement.is_none_or(|to_place| placement::place(view, to_place, false).is_ok())
}

/// Removes unneeded victims: from the last but one to the first, each without which the head still fits. [quirk] The last victim takes the place of a
/// removed one, so the order changes.
pub(super) fn fill_back(
    view: &mut View<'_>,
    preemption: &PreemptionRequest<'_>,
    allow_borrowing: bool,
    targets: &mut Vec<Target>,
) {
    for at in (0..targets.len().saturating_sub(1)).rev() {
        let workload = targets[at].workload;
        view.restore(workload);
        if fits(view, preemption, allow_borrowing) {
            targets.swap_remove(at);
        } else {
            view.remove(workload);
        }
    }
}
