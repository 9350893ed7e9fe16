//! How well a flavor fits a request, and which of two flavors is preferred (docs/reference/06-algorithm.md 6.6 "Granular mode").

use crate::report::FlavorMode;
use crate::spec::{Fungibility, FungibilityPolicy, FungibilityPreference, WhenCanPreempt};

/// Mode and borrowing height of a flavor, or of one resource of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GranularMode {
    pub(super) mode: FlavorMode,
    pub(super) height: u32,
}

impl GranularMode {
    pub(super) const WORST: GranularMode = GranularMode { mode: FlavorMode::NoFit, height: 0 };
    pub(super) const BEST: GranularMode = GranularMode { mode: FlavorMode::Fit, height: 0 };

    /// Whether this is preferred to the other. Not to fit is worst, no candidates is next; between the others, and
    /// between equals of those, the preference decides what is compared first. [quirk] `BorrowingOverPreemption`
    /// compares the mode first, which prefers to borrow; the API's description reads the other way round.
    pub(super) fn preferred_to(self, other: GranularMode, fungibility: Fungibility) -> bool {
        let class = |granular: GranularMode| granular.mode.min(FlavorMode::Preempt);
        if class(self) != class(other) {
            return class(self) > class(other);
        }
        match fungibility.preference {
            Some(FungibilityPreference::PreemptionOverBorrowing) => {
                (other.height, self.mode) > (self.height, other.mode)
            }
            _ => (self.mode, other.height) > (other.mode, self.height),
        }
    }

    /// Whether to consider the next flavor although this one would fit.
    pub(super) fn try_next(self, fungibility: Fungibility) -> bool {
        match self.mode {
            FlavorMode::NoFit | FlavorMode::NoPreemptionCandidates => true,
            FlavorMode::Preempt | FlavorMode::Reclaim
                if fungibility.when_can_preempt == WhenCanPreempt::TryNextFlavor =>
            {
                true
            }
            _ => self.height > 0 && fungibility.when_can_borrow == FungibilityPolicy::TryNextFlavor,
        }
    }
}
