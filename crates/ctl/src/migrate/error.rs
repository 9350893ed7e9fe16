//! The errors of a migration, and their messages.

use sluice_client::error_chain::{Chain, message};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The API server refused or did not answer.
    #[error("{what}")]
    Api {
        /// The operation and its object.
        what: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// The list of a kind changed faster than it could be read.
    #[error("the list of {plural} expired {times} times while it was read")]
    Expired {
        /// The kind.
        plural: String,
        /// How often reading was begun again.
        times: u32,
    },
}

impl MigrateError {
    pub(super) fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api { what, source: Box::new(source) }
    }
}

/// The HTTP code of an answer, if there was one.
pub(super) fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The message for the user: the API server's, if it answered.
pub(super) fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => message(status),
        other => Chain(other).to_string(),
    }
}
