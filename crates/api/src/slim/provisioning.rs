//! The reduced ProvisioningRequest of the cluster autoscaler (`autoscaling.x-k8s.io`, both v1 and v1beta1).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::watchable;

/// The API group.
pub const GROUP: &str = "autoscaling.x-k8s.io";

/// A pod template by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct PodTemplateRef {
    /// The PodTemplate in the same namespace.
    #[serde(default)]
    pub name: String,
}

/// Pods of one template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningPodSet {
    /// The template.
    #[serde(default)]
    pub pod_template_ref: PodTemplateRef,
    /// How many pods.
    #[serde(default)]
    pub count: i32,
}

/// The request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestSpec {
    /// The class that must provide the nodes.
    #[serde(default)]
    pub provisioning_class_name: String,
    /// The parameters of the class.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// The pods that need room.
    #[serde(default)]
    pub pod_sets: Vec<ProvisioningPodSet>,
}

/// A condition, as far as it is read; lenient, because other controllers write it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ForeignCondition {
    /// Its type.
    #[serde(rename = "type", default)]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// Why, for machines.
    #[serde(default)]
    pub reason: String,
    /// Why, for people.
    #[serde(default)]
    pub message: String,
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestStatus {
    /// Accepted, Provisioned, Failed, BookingExpired, CapacityRevoked.
    #[serde(default)]
    pub conditions: Vec<ForeignCondition>,
    /// The class's details about the nodes.
    #[serde(default)]
    pub provisioning_class_details: BTreeMap<String, String>,
}

/// A request for nodes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ProvisioningRequest {
    /// Group and version that it was read in, for owner references; empty when the answer did not say.
    #[serde(rename = "apiVersion", default)]
    pub api_version: String,
    /// Name, owners.
    #[serde(deserialize_with = "super::reduced_metadata")]
    pub metadata: ObjectMeta,
    /// The request.
    #[serde(default)]
    pub spec: ProvisioningRequestSpec,
    /// The result.
    #[serde(default)]
    pub status: ProvisioningRequestStatus,
}

watchable!(
    ProvisioningRequest,
    "ProvisioningRequest",
    "autoscaling.x-k8s.io",
    "v1",
    "provisioningrequests",
    NamespaceResourceScope
);
