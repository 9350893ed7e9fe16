//! JobSet: its real controller with its own CustomResourceDefinition and webhooks, built from a pinned Go module, and the parts of its API that tests
//! use.

mod controller;
mod types;

pub use controller::{Controller, crd, install_crd};
pub use types::{JobSet, JobSetSpec, JobSetStatus, ReplicatedJob, ReplicatedJobStatus};

/// Names the node label of which each child Job gets a value exclusively.
pub const EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// The label with the name of the JobSet on its Jobs and their pods.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
