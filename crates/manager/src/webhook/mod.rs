//! Admission and conversion webhooks.

pub mod bounds;
mod detached;
pub mod facts;
mod forged;
pub mod measured;
pub mod owners;
pub mod review;
pub mod reviewer;
pub mod server;
pub mod threads;
pub mod users;
