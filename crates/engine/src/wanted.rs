//! What a job should be after a write, so that the answer shows whether it was kept.

use crate::effect::{Purpose, Write};
use crate::input::Object;

/// The state of a job after a write, as far as the job shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It runs.
    Started,
    /// It is suspended; a part of its stop may remain to be done.
    Suspended,
    /// It is suspended, and no part of its stop remains.
    Stopped,
}

impl Wanted {
    /// The state after this write.
    pub(crate) fn of(purpose: Purpose, write: &Write) -> Option<Self> {
        match write {
            Write::StartJob { .. } => Some(Self::Started),
            Write::Pod(_) if purpose == Purpose::StartJob => Some(Self::Started),
            // Such a write cleans up after an earlier stop, whatever the state of the job is.
            Write::StopJob { view, .. } if view.ending => None,
            Write::StopJob { view, .. } | Write::SuspendJob { view } if view.stopping => Some(Self::Stopped),
            Write::StopJob { .. } | Write::SuspendJob { .. } => Some(Self::Suspended),
            _ => None,
        }
    }

    /// What an object lacks on which a write succeeded.
    pub fn lacking(self, object: &Object) -> Option<&'static str> {
        let (suspended, stopping) = match object {
            Object::Job(view) => (view.suspended, view.stopping),
            Object::QueuedPod(member) => (member.gated, false),
            _ => return None,
        };
        match self {
            Self::Started if suspended || stopping => {
                Some("the API server accepted the write but did not store it: it is still suspended")
            }
            Self::Suspended if !(suspended || stopping) => {
                Some("the API server accepted the write but did not store it: it is not suspended")
            }
            Self::Stopped if !suspended => Some(
                "the API server accepted the write but did not store it: what admission added is still there",
            ),
            _ => None,
        }
    }
}
