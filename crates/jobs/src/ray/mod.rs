//! The adapters of Ray's kinds (docs/reference/07-integrations.md 7.1 and 7.2). Each has the spec of a cluster: a RayCluster is one, a RayJob
//! has one made for its work, and a RayService keeps one that serves.

mod adapter;
mod cluster;
mod kinds;
mod rules;

pub(crate) use kinds::{RAY_CLUSTER, RAY_JOB, RAY_SERVICE};
