//! The API as enforced by the API server and the webhooks: definitions, rules, conversion, configuration, the adapters' patches; and the test control
//! planes themselves, on which the other suites rely.
//!
//! Tests without a manager share two planes, a complete one and one of [`bed`], each with its own objects. Tests with a manager take turns on others,
//! because a cluster has one set of webhooks.

mod adapters;
mod bed;
mod bounds;
mod config;
mod control_plane;
mod crds;
mod generated;
mod pod_group_owners;
mod rules;
mod test_bed;
mod webhooks;
