//! Workload: what is asked for (docs/reference/01-api.md 1.4: "v1beta1 differences"). Its status is in `workload_status`.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::WorkloadStatus;
use crate::kind::custom_resource;
use crate::schema::{LABEL, SUBDOMAIN};

custom_resource! {
    /// Workload is a unit of admission: all its pods start, or none.
    #[schemars(extend("x-kubernetes-validations" = rules()))]
    pub struct Workload("v1beta1", "workloads", NamespaceResourceScope) {
        always {
            /// What is asked for.
            #[serde(default)]
            spec: WorkloadSpec,
        }
        if_some {
            /// The state, which the manager writes.
            status: WorkloadStatus,
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.priorityClassName) || has(self.priority)",
    "message": "priority should not be nil when priorityClassName is set",
}]))]
pub struct WorkloadSpec {
    /// The groups of equal pods; fixed once quota is reserved.
    #[schemars(
        length(min = 1, max = 18),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub queue_name: Option<String>,
    /// The class that `priority` comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub priority_class_name: Option<String>,
    /// The kind of that class.
    #[serde(default)]
    #[schemars(extend(
        "x-default" = "",
        "enum" = ["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""]
    ))]
    pub priority_class_source: String,
    /// Higher goes first; absent = 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// False: never admit, and evict if running. Absent = true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = true))]
    pub active: Option<bool>,
    /// How many seconds it may be admitted before it is deactivated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
}

/// A group of equal pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.minCount) || self.minCount <= self.count",
    "message": "minCount should be positive and less or equal to count",
}]))]
pub struct PodSet {
    /// Unique in the workload.
    #[serde(default = "crate::v1beta2::main")]
    #[schemars(length(max = 63), regex(pattern = LABEL), extend("x-default" = "main"))]
    pub name: String,
    /// The pod. Of its metadata, only labels and annotations are kept.
    #[schemars(extend("x-pod-template" = true))]
    pub template: PodTemplateSpec,
    /// How many pods.
    #[schemars(range(min = 0), extend("x-default" = 1))]
    pub count: i32,
    /// With fewer than this many it makes no sense to start (gate PartialAdmission); absent = `count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_count: Option<i32>,
    /// Where the pods should be, in the topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

/// Where pods should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetTopologyRequest {
    /// All in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// If possible in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Anywhere, but with an assignment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// The label that holds a pod's index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// The label that holds the index of a pod's group, where a pod set is made of several jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// The number of such groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Pod sets of one name get the same flavor and stay together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// Every slice of `podSetSliceSize` pods in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods in a slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
}

/// The rules that need spec and status together, and the state before (docs/reference/01-api.md 1.4).
fn rules() -> Vec<Value> {
    use crate::schema::{rule, unchanged, while_both, while_true};
    let reserved = while_true("self", "QuotaReserved");
    let was_reserved = while_true("oldSelf", "QuotaReserved");
    let immutable = |field: &str| format!("{field} is immutable while workload quota reserved");
    vec![
        rule(
            &format!(
                "!({reserved}) || !has(self.status.admission) || size(self.spec.podSets) == size(self.status.admission.podSetAssignments)"
            ),
            "podSetAssignments must have the same number of podSets as the spec",
        ),
        rule(
            &format!("!({was_reserved}) || {}", unchanged("spec.priorityClassSource")),
            &immutable("priorityClassSource"),
        ),
        // Another WorkloadPriorityClass may be chosen at any time: that changes the order of the queue, not the pods.
        rule(
            &format!(
                "!({was_reserved}) || !has(self.spec.priorityClassSource) || self.spec.priorityClassSource != 'scheduling.k8s.io/priorityclass' || {}",
                unchanged("spec.priorityClassName")
            ),
            &immutable("priorityClassName"),
        ),
        rule(&while_both("QuotaReserved", &unchanged("spec.queueName")), &immutable("queueName")),
        rule(
            &while_both("Admitted", &unchanged("spec.maximumExecutionTimeSeconds")),
            &immutable("maximumExecutionTimeSeconds"),
        ),
    ]
}
