//! Hotswap on a cluster in memory: what happens to JobSets when the nodes under them fail.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail the test")]

#[path = "../model/mod.rs"]
mod model;

mod bed;
mod brakes;
mod cohort;
mod configured;
mod drain;
mod flavors;
mod kept_capacity;
mod long;
mod looks;
mod maintenance;
mod many_evictions;
mod mass;
mod node_events;
mod page;
mod planned;
mod refused;
mod restart;
mod rules;
mod runtime_class;
mod slices;
mod takeover;
mod topology;
mod unseen;
