//! `kueue.x-k8s.io/v1beta1`: served for old manifests and clients, marked deprecated, never stored.
//!
//! Types that are the same in both versions are those of [`crate::v1beta2`].

mod admission_check;
mod cluster_queue;
mod cohort;
mod local_queue;
mod multikueue;
mod provisioning_request_config;
mod quota;
mod resource_flavor;
mod topology;
mod workload;
mod workload_priority_class;
mod workload_status;

pub use admission_check::*;
pub use cluster_queue::*;
pub use cohort::*;
pub use local_queue::*;
pub use multikueue::*;
pub use provisioning_request_config::*;
pub use quota::*;
pub use resource_flavor::*;
pub use topology::*;
pub use workload::*;
pub use workload_priority_class::*;
pub use workload_status::*;
