//! What a search for victims is asked for, and what all searches end with: victims that are not needed after all are given back
//! (docs/reference/06-algorithm.md 6.7).

use crate::intern::FrId;
use crate::view::{FlavorResourceQuantity, Head, Target, View};

/// A preemption to be searched.
pub(crate) struct PreemptionRequest<'a> {
    pub(crate) head: &'a Head,
    /// Everything that the head asks for.
    pub(crate) workload_usage: &'a [FlavorResourceQuantity],
    /// The pairs for which room has to be made.
    pub(crate) needed: &'a [FrId],
}

/// Gives victims back that are not needed after all: from the last but one to the first, each that leaves the head
/// fitting. [quirk] A victim that is given back is replaced by the last one, so the order is not kept.
pub(super) fn fill_back(
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
