//! The Sluice manager: everything that talks to the outside.
//!
//! It passes the API server's objects to the engine (a pure state machine on its own thread), carries out the engine's effects, and serves webhooks,
//! metrics and health. It must never contain an admission decision: those are made in `core` and `engine`.
//!
//! Invariants:
//! * only the leader's effects are written, and none once another replica may hold the lease, by its own clock;
//! * followers keep the engine up to date, and know all earlier writes when they begin to decide;
//! * writes of one object are in order, and a status is never sent once there is a newer one;
//! * the answer of every write goes back to the engine, so that it does not wait for the watch;
//! * one object that is malformed or makes the engine panic never stops the others.

pub mod access;
pub mod api_call;
pub mod args;
pub mod certs;
pub mod controllers;
pub mod dashboard;
mod engine_machine;
pub mod engine_thread;
pub mod events;
pub mod explain;
#[cfg(test)]
mod fake_api;
pub mod health;
pub mod intake;
pub mod journal;
pub mod lease;
pub mod listen;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod outlet;
pub mod percent;
mod probe;
pub mod random;
pub mod record;
mod rights;
mod roots;
pub mod run;
pub mod serve;
pub mod shutdown;
mod signals;
pub mod supervise;
pub mod takeover;
pub mod traces;
pub mod visibility;
pub mod watch;
pub mod watches;
pub mod webhook;
pub mod writer;
