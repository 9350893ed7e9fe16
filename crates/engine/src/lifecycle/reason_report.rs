//! What a Workload keeps of the reports why it waits.

use crate::unreported::{PendingMessage, ReasonReport};
use crate::world::WorkloadEntry;

impl WorkloadEntry {
    /// What is known of the reports why it waits, to be changed.
    pub(crate) fn reason_mut(&mut self) -> &mut ReasonReport {
        self.reason.get_or_insert_default()
    }

    /// Why it waits, while that cannot be written, or need not yet.
    pub(crate) fn pending_message(&self) -> Option<&PendingMessage> {
        self.reason.as_ref()?.pending_message.as_ref()
    }

    /// Drops the pending reason: it is out of date, or is being written.
    pub(crate) fn forget_message(&mut self) {
        if let Some(reason) = &mut self.reason {
            reason.pending_message = None;
        }
    }

    /// Forgets when the reason was written: the condition says something else now.
    pub(crate) fn forget_written_reason(&mut self) {
        self.reason.take_if(|reason| {
            reason.message_at = None;
            reason.unreported.is_none() && reason.owed.is_none() && reason.pending_message.is_none()
        });
    }
}
