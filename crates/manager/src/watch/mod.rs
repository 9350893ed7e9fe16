//! The watches.

pub mod discovery;
pub mod document;
pub mod failures;
mod items;
pub mod kinds;
pub mod known;
pub mod makers;
pub mod pods;
pub mod pump;
pub mod source;
pub mod sync;
pub mod versions;
