//! Admission and conversion webhooks.

pub mod facts;
pub mod review;
pub mod reviewer;
pub mod server;
