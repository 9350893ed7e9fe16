//! What is known of jobs that the API server refuses to suspend, or to stop as a whole.

use jiff::Timestamp;

use crate::effect::Purpose;
use crate::input::WriteError;
use crate::retry::Retry;

/// What a stop restores of a job: less if the API server refuses more, until the job is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Restores {
    /// Its templates and its number of pods.
    #[default]
    All,
    /// Its templates.
    Templates,
    /// Nothing: it is only suspended.
    Nothing,
}

impl Restores {
    /// The next that is less.
    pub(crate) fn less(self) -> Self {
        match self {
            Self::All => Self::Templates,
            Self::Templates | Self::Nothing => Self::Nothing,
        }
    }
}

/// How stopping a job, or its parts, was refused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unstoppable {
    /// How often in a row the API server refused to suspend the job.
    pub(crate) refused: u32,
    /// When a part of it was deleted last because it could not be suspended.
    deleted: Option<Timestamp>,
    /// How long parts that were made since then are left.
    retry: Retry,
}

impl Unstoppable {
    /// A part that was created at `created` has to be deleted. Returns until when it stays, if others were deleted before it was created.
    pub(crate) fn delete(&mut self, created: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let Some(until) = self.retry.until().filter(|until| *until > now) else {
            self.retry.failed(Purpose::DeleteChild, &WriteError::Refused(String::new()), now);
            self.deleted = Some(now);
            return None;
        };
        // Times of creation count whole seconds.
        self.deleted.is_some_and(|deleted| created.as_second() >= deleted.as_second()).then_some(until)
    }
}
