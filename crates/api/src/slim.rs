//! Slim watch types: of each object only what decisions need.
//!
//! They decode from the API server's JSON and drop the rest before it is stored: a Workload keeps per pod set the
//! requests, what a start changes and a stop restores, and a hash of its containers, but not the templates themselves.
//! Every type has `metadata` (with `managedFields` dropped), so that a typed watch can be built on it.
//!
//! * [`pod`]: the reduced pod template.
//! * [`bound_pod`]: the Pod.
//! * [`job_pod`]: the Pod of an elastic job, or one with a place in the topology.
//! * [`workload`]: the Workload.
//! * [`provisioning`]: the ProvisioningRequest of the cluster autoscaler.
//! * [`cluster`]: Namespace, Node, PriorityClass, RuntimeClass, LimitRange.

pub mod bound_pod;
pub mod cluster;
pub mod job_pod;
mod memo;
pub mod pod;
pub mod provisioning;
pub mod workload;

pub use bound_pod::{FAILURE_RECOVERY, Pod};
pub use cluster::{LimitItem, LimitRange, Namespace, Node, PriorityClass, RuntimeClass};
pub use job_pod::{DISRUPTION_TARGET, JobPod, PodPlacement, TOPOLOGY_ANNOTATIONS};
pub use pod::{Container, PodTemplate, Resources};
pub use provisioning::ProvisioningRequest;
pub use workload::{PodSet, Workload, WorkloadSpec};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

/// Decodes `metadata` and drops `managedFields`, the largest part that is not read.
pub(crate) fn reduced_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = ObjectMeta::deserialize(deserializer)?;
    metadata.managed_fields = None;
    Ok(metadata)
}

/// Implements `kube::Resource` (without a client) for a slim type.
macro_rules! watchable {
    ($type:ty, $kind:literal, $group:literal, $version:literal, $plural:literal, $scope:ident) => {
        impl kube::Resource for $type {
            type DynamicType = ();
            type Scope = kube::core::$scope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use watchable;
