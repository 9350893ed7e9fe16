//! A workload's whole life, one module per protocol (reference 06, 6.10 and 6.16–6.20).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "../model/mod.rs"]
mod model;

mod activity;
mod checks;
mod contract;
mod failure_recovery;
mod metrics;
mod pods;
mod provisioning;
mod queues;
mod readiness;
mod reasons;
mod requests;
mod restart;
mod retention;
mod sources;
mod told;
mod waiting;
