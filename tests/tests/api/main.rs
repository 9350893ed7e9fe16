//! The API as the API server and the webhooks keep it: definitions, rules, conversion, configuration, the adapters' patches; and the test bed
//! itself, on which the other suites rely.
//!
//! Tests without a manager share two planes, a complete one and that of [`bed`], each with objects of its own. A test with a manager has a plane to
//! itself, because a cluster has one set of webhooks.

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
