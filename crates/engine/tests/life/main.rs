//! A workload's whole life, one module per protocol (reference 06, 6.10 and 6.16–6.20).

#[path = "../model/mod.rs"]
mod model;

mod checks;
mod metrics;
mod provisioning;
mod queues;
mod readiness;
mod requests;
mod restart;
mod retention;
mod sources;
