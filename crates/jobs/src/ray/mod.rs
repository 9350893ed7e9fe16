//! What the adapters of Ray's kinds have in common (docs/reference/07-integrations.md 7.1 and 7.2). Each has the spec of a cluster: a RayCluster is
//! one, a RayJob has one made for its work, and a RayService keeps one that serves.

mod adapter;
mod cluster;
mod rules;
mod status;
mod worker;

pub(crate) use adapter::{Ray, Submission, Variant};
pub(crate) use status::{READY, condition, is, name, ready_pods};

#[cfg(test)]
mod tests;
