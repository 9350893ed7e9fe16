//! Workload: what became of it (docs/reference/01-api.md 1.4).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TopologyAssignment;
use super::workload::main;
use crate::schema::{LABEL, SUBDOMAIN};

/// What became of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(oldSelf.clusterName) || !has(self.clusterName) || oldSelf.clusterName == self.clusterName",
        "message": "clusterName is immutable once set",
    },
    {
        "rule": "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
        "message": "clusterName and nominatedClusterNames are mutually exclusive",
    },
]))]
pub struct WorkloadStatus {
    /// Where the workload stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The reservation of quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// When an evicted workload may try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods that no longer need their quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// The states of the admission checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What is asked for in total, while nothing is reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resource_requests: Vec<PodSetRequest>,
    /// Seconds of earlier admissions, counted against `maximumExecutionTimeSeconds`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Counts over the workload's life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Worker clusters that may take the workload (MultiKueue).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 20),
        inner(length(max = 256)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub nominated_cluster_names: Vec<String>,
    /// The worker cluster that took it (MultiKueue).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub cluster_name: Option<String>,
    /// Nodes of the assignment that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// The positions of the preemption gates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// A reservation of quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// The ClusterQueue that holds it.
    #[serde(default)]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub cluster_queue: String,
    /// One for each pod set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What a pod set got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[serde(default = "main")]
    #[schemars(length(max = 63), regex(pattern = LABEL), extend("x-default" = "main"))]
    pub name: String,
    /// The flavor of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// The amount of each resource, for all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// The number of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// The topology domains of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// The topology assignment comes later, after the admission checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = 7))]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}

/// The state of a delayed topology assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DelayedTopologyRequestState {
    /// Still to be made.
    Pending,
    /// Made.
    Ready,
}

/// When an evicted workload may try again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// How often it was requeued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods that no longer need their quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// How many pods.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// The state of one admission check of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// Name of the AdmissionCheck.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// The state.
    pub state: CheckState,
    /// When the state changed.
    pub last_transition_time: Time,
    /// Why it changed; may be empty.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// With state Retry: try again after this many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// How often the check asked for a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// What the check adds to the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18), extend("x-kubernetes-list-type" = "atomic"))]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// The state of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    /// Not decided.
    Pending,
    /// Passed.
    Ready,
    /// Failed for now: release the quota and try again.
    Retry,
    /// Failed for good: deactivate the workload.
    Rejected,
}

/// What a check adds to the pods of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetUpdate {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Node selectors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// What a pod set asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequest {
    /// Name of the pod set.
    #[schemars(length(max = 63), regex(pattern = LABEL))]
    pub name: String,
    /// The amount of each resource, for all pods together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Quantity>,
}

/// Counts over a workload's life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// Evictions by reason and cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["reason", "underlyingCause"])
    )]
    pub evictions: Vec<WorkloadSchedulingStatsEviction>,
}

/// Evictions of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSchedulingStatsEviction {
    /// The reason of the `Evicted` condition.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// What lies behind it; may be empty.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// How many.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// A node that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// Name of the node.
    #[schemars(length(max = 63))]
    pub name: String,
}

/// The position of a preemption gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// Name of the gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whether it is open.
    pub position: GatePosition,
    /// When the position changed.
    pub last_transition_time: Time,
}

/// Whether a gate is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum GatePosition {
    /// No preemption.
    Closed,
    /// Preemption is allowed.
    Open,
}

impl Default for PodSetAssignment {
    fn default() -> Self {
        Self {
            name: main(),
            flavors: BTreeMap::new(),
            resource_usage: BTreeMap::new(),
            count: None,
            topology_assignment: None,
            delayed_topology_request: None,
        }
    }
}
