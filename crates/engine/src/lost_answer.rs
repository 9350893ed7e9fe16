//! What a write reports whose answer was lost: its report is made once a newer version of the Workload shows that the write was carried out, and
//! dropped if that version shows that it was not.

use sluice_api::conditions::{self, whole_seconds};
use sluice_api::v1beta2::WorkloadStatus;

use crate::effect::{Effect, Purpose};

/// A write on the status of a Workload that may have been carried out.
#[derive(Clone, Debug)]
pub(crate) struct LostAnswer {
    /// Its purpose.
    pub purpose: Purpose,
    /// The status if it was.
    pub expected: Box<WorkloadStatus>,
    /// The effects that report it.
    pub then: Vec<Effect>,
}

impl LostAnswer {
    /// Whether a status has the admission and the conditions that were written.
    pub fn is_shown_by(&self, status: &WorkloadStatus) -> bool {
        status.admission == self.expected.admission
            && self.expected.conditions.iter().all(|wanted| {
                conditions::find(&status.conditions, &wanted.type_).is_some_and(|has| {
                    (&has.status, &has.reason, &has.message)
                        == (&wanted.status, &wanted.reason, &wanted.message)
                        && whole_seconds(has.last_transition_time.0)
                            == whole_seconds(wanted.last_transition_time.0)
                })
            })
    }
}
