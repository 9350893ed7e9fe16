//! A workload's whole life, one module per protocol (docs/reference/06-algorithm.md 6.10 and 6.16–6.20).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "../model/mod.rs"]
mod model;

mod activity;
mod answered;
mod attempts;
mod budget;
mod checks;
mod children;
mod contract;
mod custom_labels;
mod elastic;
mod elastic_ray;
mod external;
mod failure_recovery;
mod found_again;
mod gate_removal;
mod gated_pods;
mod gather;
mod gathered_pods;
mod group_quota;
mod grouped_pods;
mod journal;
mod kinds;
mod kueues;
mod left_queue;
mod memory;
mod metrics;
mod moved;
mod moved_slices;
mod parity;
mod partly_done;
mod parts;
mod plain_pods;
mod pod_groups;
mod pod_scale;
mod pods;
mod positions;
mod provisioning;
mod queues;
mod ray;
mod readiness;
mod reasons;
mod refused_starts;
mod refused_stops;
mod reported;
mod requests;
mod restart;
mod retention;
mod runs_again;
mod series;
mod shares;
mod shares_of_parts;
mod sources;
mod templates;
mod topology;
mod topology_claims;
mod topology_failures;
mod topology_pods;
mod unadmitted;
mod unheeded;
mod unreadable;
mod waiting;
mod wrapped;
