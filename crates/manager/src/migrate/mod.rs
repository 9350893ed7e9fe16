//! `sluice migrate`: taking over a cluster whose objects Kueue wrote, and handing it back.
//!
//! `check` only reads and reports; `storage` rewrites every object in the version that its definition stores now, and then takes
//! the older versions out of the definition's `status.storedVersions`. Both run with the rights of the user who calls them: the
//! manager itself needs no right to write every object.

mod check;
pub mod command;
mod definitions;
mod objects;
mod report;
mod storage;
mod surroundings;

use kube::Client;

use crate::error_chain::Chain;

pub use check::check;
pub use definitions::{Definition, Found, definitions};
pub use report::Report;
pub use storage::{Outcome, migrate_storage};

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The API server refused or did not answer.
    #[error("{what}")]
    Api {
        /// What was tried, on what.
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
    fn api(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Api { what, source: Box::new(source) }
    }
}

/// Where the manager is, or would be.
#[derive(Clone)]
pub struct Place {
    /// The client.
    pub client: Client,
    /// The manager's namespace.
    pub namespace: String,
}

/// The HTTP code of an answer, if there was one.
fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// What an error says to a reader: the API server's message, if it answered.
fn api_message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => Chain(other).to_string(),
    }
}
