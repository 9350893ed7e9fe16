//! Common parts of the test suites on control planes.

pub mod amounts;
pub mod book;
pub mod history;
pub mod place;
pub mod queues;
pub mod reviewed;
pub mod rights;
pub mod soak;
pub mod story;
