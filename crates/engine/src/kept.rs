//! Whether the API server keeps what it accepts. It says that a write succeeded although a schema prunes the field, or a policy sets it back:
//! the next look would send the same again, at once and for ever.

use crate::effect::{Purpose, Write};
use crate::engine::Engine;
use crate::input::{Object, WriteError};
use crate::outbox::Open;

/// What a write is to make of a job, as far as the job shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It runs.
    Started,
    /// It is suspended; something of its stop may remain to be done.
    Suspended,
    /// It is suspended, and nothing of its stop remains.
    Stopped,
}

impl Wanted {
    /// What this write is to do.
    pub(crate) fn of(purpose: Purpose, write: &Write) -> Option<Self> {
        match write {
            Write::StartJob { .. } => Some(Self::Started),
            Write::Pod(_) if purpose == Purpose::StartJob => Some(Self::Started),
            // That puts right what an earlier stop left, whatever the job is then.
            Write::StopJob { view, .. } if view.ending => None,
            Write::StopJob { view, .. } if view.stopping => Some(Self::Stopped),
            Write::StopJob { .. } | Write::SuspendJob { .. } => Some(Self::Suspended),
            _ => None,
        }
    }

    /// What an object that a write succeeded on lacks of it.
    fn lacking(self, object: &Object) -> Option<&'static str> {
        let (suspended, stopping) = match object {
            Object::Job(view) => (view.suspended, view.stopping),
            Object::QueuedPod(member) => (member.gated, false),
            _ => return None,
        };
        match self {
            Self::Started if suspended || stopping => {
                Some("the write was accepted, and not kept: it is still suspended")
            }
            Self::Suspended if !(suspended || stopping) => {
                Some("the write was accepted, and not kept: it is not suspended")
            }
            Self::Stopped if !suspended => {
                Some("the write was accepted, and not kept: what was added for its start is still there")
            }
            _ => None,
        }
    }
}

impl Engine {
    /// The answer of a write, which failed if the object is not as that was to make it: what it is instead is taken in.
    pub(crate) fn if_kept(
        &mut self,
        open: &Open,
        result: Result<Option<Object>, WriteError>,
    ) -> Result<Option<Object>, WriteError> {
        let object = match result {
            Ok(Some(object)) => object,
            other => return other,
        };
        let Some(why) = open.wanted.and_then(|wanted| wanted.lacking(&object)) else {
            return Ok(Some(object));
        };
        if self.is_current(open, &object) {
            self.observe_object(object);
        }
        Err(WriteError::Refused(why.to_owned()))
    }
}
