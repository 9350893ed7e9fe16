//! Everything that is watched.

pub mod discovery;
pub mod document;
pub mod kinds;
pub mod pods;
pub mod pump;
pub mod sync;
pub mod versions;
