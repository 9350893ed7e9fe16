//! Weights and shares of fair sharing (docs/reference/01-api.md 1.2, 1.3, 1.7).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node's part in fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// The share is divided by this; 0 means that whatever is borrowed counts as an infinite share. Absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = 1))]
    pub weight: Option<Quantity>,
}

/// The share of a ClusterQueue or Cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// Largest quotient of borrowed over lendable, ×1000, over the weight; rounded up.
    pub weighted_share: i64,
}

/// The share of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueFairSharingStatus {
    /// As for a ClusterQueue.
    pub weighted_share: i64,
    /// Past usage, as admission fair sharing counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// The decayed consumption of a LocalQueue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Consumption by resource, halved every half-life.
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// When it was last computed.
    pub last_update: Time,
}
