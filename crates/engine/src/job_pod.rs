//! Pods of elastic jobs, as they are kept.

use sluice_api::slim;

use crate::effect::EffectId;
use crate::retry::Retry;

/// A pod of an elastic job, and what is under way with it.
#[derive(Clone, Debug)]
pub(crate) struct JobPod {
    /// As it was seen last.
    pub pod: slim::JobPod,
    /// The write that has not been answered.
    pub open: Option<EffectId>,
    /// How its writes fare.
    pub retry: Retry,
}

impl JobPod {
    /// Whether it may be scheduled, or will be.
    pub fn is_free(&self) -> bool {
        !self.pod.ended && (self.open.is_some() || !self.pod.is_gated())
    }

    /// Whether it waits to be let be scheduled.
    pub fn is_waiting(&self) -> bool {
        let leaves = self.pod.metadata.deletion_timestamp.is_some();
        !self.pod.ended && !leaves && self.open.is_none() && self.pod.is_gated()
    }
}
