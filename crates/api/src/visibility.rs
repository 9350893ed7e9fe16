//! The group `visibility.kueue.x-k8s.io`, which an aggregated API serves (docs/reference/01-api.md 1.11). Both versions are alike.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::{Deserialize, Serialize};

/// The API group.
pub const GROUP: &str = "visibility.kueue.x-k8s.io";
/// Its versions, the preferred one first.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The kind of [`PendingWorkloadsSummary`].
pub const SUMMARY: &str = "PendingWorkloadsSummary";
/// Items in an answer, unless it is asked for another number.
pub const DEFAULT_LIMIT: usize = 1000;
/// Items in an answer at most.
pub const MAX_LIMIT: usize = 100_000;

/// The Workloads that wait in a queue, in its order: the body of `…/pendingworkloads`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkloadsSummary {
    /// [`SUMMARY`].
    pub kind: String,
    /// Group and version.
    pub api_version: String,
    /// Has nothing in it.
    #[serde(default)]
    pub metadata: Empty,
    /// The Workloads, the head first.
    #[serde(default)]
    pub items: Vec<PendingWorkload>,
}

/// An object without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// A Workload that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingWorkload {
    /// Its name, and where it comes from.
    pub metadata: PendingMetadata,
    /// Its priority.
    pub priority: i32,
    /// The LocalQueue that it waits in.
    pub local_queue_name: String,
    /// Its place in the ClusterQueue, from 0.
    pub position_in_cluster_queue: u32,
    /// Its place in the LocalQueue, from 0.
    pub position_in_local_queue: u32,
}

/// What of a Workload's metadata is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingMetadata {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    /// Its job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}
