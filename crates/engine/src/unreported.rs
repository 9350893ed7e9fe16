//! What is still to be reported of a Workload that waits.

use std::sync::Arc;

use jiff::Timestamp;
use sluice_core::Unadmitted;

/// Why a Workload waits, to be reported later.
#[derive(Clone, Debug)]
pub(crate) struct PendingMessage {
    pub why: Arc<Unadmitted>,
    /// Whether it is an event, too.
    pub with_event: bool,
    /// Whether a closed gate keeps it from preempting others, which is not reported either.
    pub gated: bool,
}

/// A delayed reason for waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreported {
    /// When there was something new to write.
    pub since: Timestamp,
    /// When it is looked at again.
    pub wake_at: Option<Timestamp>,
}
