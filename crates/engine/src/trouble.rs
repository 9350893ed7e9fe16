//! What is kept of a job that has a problem.

use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::job::JobView;
use sluice_api::v1beta2::ReclaimablePod;

use crate::retry::Retry;
use crate::unheeded::Outlived;
use crate::unstoppable::Unstoppable;

/// What went wrong with a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// How often it ran, or was about to run, with other pods than were admitted, or could not be read while it ran.
    pub other_pods: Option<Retry>,
    /// The failed attempts to suspend it, or a part of it.
    pub unstoppable: Unstoppable,
    /// A pod names it as its controller that was created while it waited.
    pub stray: bool,
    /// Since when it has had more pods than it holds quota for.
    pub beyond_since: Option<Timestamp>,
    /// Since when it has run more pods that it makes itself than quota is held for.
    pub made_beyond_since: Option<Timestamp>,
    /// What is known of pods that may continue after its end.
    pub outlived: Option<Outlived>,
    /// What was left of its Workload's `status.reclaimablePods` when pod sets were last taken off, and when that was.
    pub reclaimed: Option<(Vec<ReclaimablePod>, Timestamp)>,
    /// Its last readable version, if it runs and cannot be read any more.
    pub readable: Option<Arc<JobView>>,
}
