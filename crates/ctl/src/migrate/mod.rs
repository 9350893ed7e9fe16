//! `sluice migrate`: taking over a cluster whose objects Kueue wrote, and handing it back.
//!
//! `check` only reads and reports; `storage` rewrites every object in the version that its definition stores now, and then takes
//! the older versions out of the definition's `status.storedVersions`. Both run with the rights of the user who calls them: the
//! manager itself needs no right to write every object.

mod check;
pub mod command;
mod definitions;
mod error;
mod objects;
mod report;
mod running;
mod storage;
mod surroundings;

pub use check::check;
pub use definitions::{Definition, Found, definitions};
pub use error::MigrateError;
#[cfg(test)]
pub(crate) use objects::Tally;
pub use report::Report;
pub use storage::{Outcome, migrate_storage};
pub use surroundings::Place;
