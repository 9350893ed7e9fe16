//! What is still to be reported of a Workload that waits.

use std::sync::Arc;

use jiff::Timestamp;
use sluice_core::Unadmitted;

use crate::effect::Event;

/// What is known of the reports why a Workload waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReasonReport {
    /// When the reason was last written, or was found when we began to lead.
    pub message_at: Option<Timestamp>,
    /// The reason is not written yet.
    pub unreported: Option<Unreported>,
    /// A warning that is sent later, and when.
    pub owed: Option<(Timestamp, Box<Event>)>,
    /// The reason, while it cannot be written, or need not yet.
    pub pending_message: Option<PendingMessage>,
}

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
