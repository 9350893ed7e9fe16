//! LocalQueue (docs/reference/01-api.md 1.3).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cluster_queue::zero;
use super::{FairSharing, LocalQueueFairSharingStatus, StopPolicy};
use crate::kind::custom_resource;
use crate::schema::SUBDOMAIN;

custom_resource! {
    /// LocalQueue is a namespace's door to a ClusterQueue.
    pub struct LocalQueue("v1beta2", "localqueues", NamespaceResourceScope) {
        always {
            /// What the user wants.
            #[serde(default)]
            spec: LocalQueueSpec,
        }
        if_some {
            /// What was observed and decided.
            status: LocalQueueStatus,
        }
    }
}

/// Where the workloads of a namespace go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    /// The ClusterQueue; cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 253),
        regex(pattern = SUBDOMAIN),
        extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "field is immutable"}])
    )]
    pub cluster_queue: Option<String>,
    /// Stops the queue.
    #[serde(default)]
    #[schemars(extend("x-default" = "None"))]
    pub stop_policy: StopPolicy,
    /// The weight in admission fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What a LocalQueue holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// `Active`, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Workloads that wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Workloads that hold quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Workloads that are admitted and not finished.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// Quota that is reserved, by flavor in the order of the ClusterQueue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_reservation: Vec<LocalQueueFlavorUsage>,
    /// Quota in use by admitted workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_usage: Vec<LocalQueueFlavorUsage>,
    /// The share, where admission fair sharing is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// Use of one flavor by one LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFlavorUsage {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    /// By resource, in alphabetical order.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resources: Vec<LocalQueueResourceUsage>,
}

/// Use of one resource in one flavor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// The amount.
    #[serde(default = "zero")]
    pub total: Quantity,
}

impl Default for LocalQueueResourceUsage {
    fn default() -> Self {
        Self { name: String::new(), total: zero() }
    }
}
