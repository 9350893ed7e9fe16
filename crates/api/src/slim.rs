//! Slim watch types: only the parts of objects that decisions need.
//!
//! They decode from the API server's JSON and drop the rest before it is stored. A Workload keeps for each pod set the requests, the fields that a
//! start changes and a stop restores, and a hash of its containers, but not the templates themselves. Every type has `metadata` (with `managedFields`
//! dropped), so that a typed watch can use it.
//!
//! * [`raw`]: an object as JSON, for the kinds that are read as such.
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
pub mod raw;
pub mod workload;

pub use bound_pod::{FAILURE_RECOVERY, Pod};
pub use cluster::{LimitItem, LimitRange, Namespace, Node, PriorityClass, RuntimeClass};
pub use job_pod::{DISRUPTION_TARGET, JobPod, PodPlacement, TOPOLOGY_ANNOTATIONS};
pub use pod::{Container, PodTemplate, Resources};
pub use provisioning::ProvisioningRequest;
pub use raw::{AnyJson, Raw, is_too_deep};
pub use workload::{PodSet, Workload, WorkloadRest, WorkloadSpec};

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// Decodes `metadata` except for `managedFields`, the largest unused part, which is skipped.
pub(crate) fn reduced_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        annotations: Option<BTreeMap<String, String>>,
        creation_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        deletion_timestamp: Option<Time>,
        finalizers: Option<Vec<String>>,
        generate_name: Option<String>,
        generation: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        name: Option<String>,
        namespace: Option<String>,
        owner_references: Option<Vec<OwnerReference>>,
        resource_version: Option<String>,
        self_link: Option<String>,
        uid: Option<String>,
    }
    let read = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        annotations: read.annotations,
        creation_timestamp: read.creation_timestamp,
        deletion_grace_period_seconds: read.deletion_grace_period_seconds,
        deletion_timestamp: read.deletion_timestamp,
        finalizers: read.finalizers,
        generate_name: read.generate_name,
        generation: read.generation,
        labels: read.labels,
        managed_fields: None,
        name: read.name,
        namespace: read.namespace,
        owner_references: read.owner_references,
        resource_version: read.resource_version,
        self_link: read.self_link,
        uid: read.uid,
    })
}

/// An object of Kubernetes' own types, with its metadata reduced.
#[derive(Deserialize)]
pub(crate) struct Parts<Spec, Status> {
    #[serde(default, deserialize_with = "reduced_metadata")]
    pub metadata: ObjectMeta,
    pub spec: Option<Spec>,
    pub status: Option<Status>,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn managed_fields_are_not_even_decoded_and_all_else_is() {
        let owner = json!({"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "o", "controller": true});
        let mut metadata = json!({
            "annotations": {"a": "1"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 30,
            "deletionTimestamp": "2026-01-02T00:00:00Z",
            "finalizers": ["f"],
            "generateName": "w-",
            "generation": 3,
            "labels": {"l": "1"},
            "name": "w-1",
            "namespace": "ns",
            "ownerReferences": [owner],
            "resourceVersion": "7",
            "selfLink": "/w",
            "uid": "u",
        });
        let whole: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
        assert_eq!(serde_json::to_value(&whole).unwrap(), metadata, "these are all fields");
        metadata["managedFields"] = json!("no list of entries");
        assert_eq!(reduced_metadata(&metadata).unwrap(), whole);
        let object = json!({"metadata": metadata});
        serde_json::from_value::<Workload>(object.clone()).unwrap();
        serde_json::from_value::<Pod>(object.clone()).unwrap();
        serde_json::from_value::<JobPod>(object.clone()).unwrap();
        serde_json::from_value::<Namespace>(object.clone()).unwrap();
        serde_json::from_value::<Node>(object).unwrap();
    }
}
