//! What the suites on the control plane share.

pub mod story;
