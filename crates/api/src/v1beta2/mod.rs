//! `kueue.x-k8s.io/v1beta2`: the stored version, and the one that everything inside Sluice speaks.

mod admission_check;
mod cluster_queue;
mod cohort;
mod fair_sharing;
mod local_queue;
mod multikueue;
mod provisioning_request_config;
mod quota;
mod resource_flavor;
mod topology;
mod topology_assignment;
mod workload;
mod workload_priority_class;
mod workload_status;

pub use admission_check::*;
pub use cluster_queue::*;
pub use cohort::*;
pub use fair_sharing::*;
pub use local_queue::*;
pub use multikueue::*;
pub use provisioning_request_config::*;
pub use quota::*;
pub use resource_flavor::*;
pub use topology::*;
pub use topology_assignment::*;
pub(crate) use workload::main;
pub use workload::*;
pub use workload_priority_class::*;
pub use workload_status::*;
