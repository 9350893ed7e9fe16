//! What a Workload keeps of the reports why it waits.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::conditions::{self, WorkloadCondition as Type};

use crate::unreported::{PendingMessage, ReasonReport};
use crate::world::WorkloadEntry;

impl WorkloadEntry {
    /// The condition in its status that says why it waits, if there is one.
    pub(crate) fn written_reason(&self) -> Option<&Condition> {
        conditions::find(&self.object.status.conditions, Type::QuotaReserved.as_str())
            .filter(|known| known.status == "False")
    }

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
