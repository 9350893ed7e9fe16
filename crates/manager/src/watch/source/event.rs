//! What a source has found.

use super::heard::Seen;

/// Why there is no event. The next call continues: with the same watch, another one, or a list.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The list was refused, or not answered.
    #[error("listing")]
    List(#[source] kube::Error),
    /// The watch was refused, or not answered.
    #[error("watching")]
    Watch(#[source] kube::Error),
    /// The answer ended, or stopped, before its end.
    #[error("the answer broke off")]
    Broken(#[source] std::io::Error),
    /// The API server ended the watch.
    #[error("the watch ended: {message} ({code})")]
    Ended {
        /// The HTTP code; 410 means that changes were missed.
        code: u64,
        /// Why.
        message: String,
    },
    /// The answer is malformed.
    #[error("the answer cannot be read")]
    Malformed(#[source] serde_json::Error),
    /// The answer does not say at which version it is.
    #[error("the answer has no resourceVersion")]
    NoVersion,
}

impl Error {
    /// Whether the kind does not exist.
    pub fn is_not_found(&self) -> bool {
        let (Self::List(source) | Self::Watch(source)) = self else { return false };
        matches!(source, kube::Error::Api(status) if status.code == 404)
    }

    /// Whether everything is listed again because changes were missed, which is no error.
    pub fn is_desync(&self) -> bool {
        match self {
            Self::Ended { code, .. } => *code == 410,
            Self::Watch(kube::Error::Api(status)) => status.code == 410,
            _ => false,
        }
    }

    /// Whether the API server itself refuses the watch: for another reason than that it has too many requests, which passes.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Ended { code, .. } => *code != 429,
            Self::Watch(kube::Error::Api(status)) => status.code != 429,
            _ => false,
        }
    }
}

/// An event of a source.
#[derive(Debug)]
pub enum Event {
    /// A list begins.
    Init,
    /// An object of it.
    InitApply(Seen),
    /// The list is complete, as of this version.
    InitDone(u64),
    /// An object was made or has changed.
    Apply(Seen),
    /// An object was deleted; this was its last state.
    Delete(Seen),
}

impl Event {
    /// Whether it shows that the API server answers: that a list begins is said before anything is asked.
    pub const fn is_success(&self) -> bool {
        !matches!(self, Self::Init)
    }
}
