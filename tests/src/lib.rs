//! What the suites on the control plane share.

pub mod amounts;
pub mod history;
pub mod place;
pub mod queues;
pub mod soak;
pub mod story;
