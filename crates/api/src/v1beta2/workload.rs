//! Workload: what is asked for (docs/reference/01-api.md 1.4). Its status is in `workload_status`.

use std::sync::Arc;

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
    pub struct Workload("v1beta2", "workloads", NamespaceResourceScope) {
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
    "rule": "!has(self.priorityClassRef) || has(self.priority)",
    "message": "priority should not be nil when priorityClassRef is set",
}]))]
pub struct WorkloadSpec {
    /// The groups of equal pods; fixed once quota is reserved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    pub priority_class_ref: Option<PriorityClassRef>,
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
    /// While one of these is closed, the workload may not preempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub preemption_gates: Vec<PreemptionGate>,
}

/// A priority class of either kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
        "message": "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
    },
    {
        "rule": "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'",
        "message": "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
    },
]))]
pub struct PriorityClassRef {
    /// The class's API group.
    #[schemars(extend("enum" = ["kueue.x-k8s.io", "scheduling.k8s.io"]))]
    pub group: String,
    /// The class's kind.
    #[schemars(extend("enum" = ["WorkloadPriorityClass", "PriorityClass"]))]
    pub kind: String,
    /// The class's name.
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
}

/// A group of equal pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.minCount) || self.minCount <= self.count",
    "message": "minCount should be positive and less or equal to count",
}]))]
pub struct PodSet {
    /// Unique in the workload.
    #[serde(default = "main")]
    #[schemars(length(max = 63), regex(pattern = LABEL), extend("x-default" = "main"))]
    pub name: String,
    /// The pod. Of its metadata, only labels and annotations are kept.
    #[schemars(extend("x-pod-template" = true))]
    pub template: Arc<PodTemplateSpec>,
    /// How many pods.
    #[serde(default = "one")]
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
    #[schemars(length(max = 63))]
    pub required: Option<String>,
    /// If possible in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub preferred: Option<String>,
    /// Anywhere, but with an assignment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// The label that holds a pod's index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub pod_index_label: Option<String>,
    /// The label that holds the index of a pod's group, where a pod set is made of several jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub sub_group_index_label: Option<String>,
    /// The number of such groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sub_group_count: Option<i32>,
    /// Pod sets of one name get the same flavor and stay together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub pod_set_group_name: Option<String>,
    /// Every slice of `podSetSliceSize` pods in one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods in a slice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pod_set_slice_size: Option<i32>,
    /// Slices within slices, from the widest.
    #[serde(
        default,
        rename = "podsetSliceRequiredTopologyConstraints",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 3), extend("x-kubernetes-list-type" = "atomic"))]
    pub podset_slice_required_topology_constraints: Vec<PodsetSliceRequiredTopologyConstraint>,
}

impl PodSetTopologyRequest {
    /// Whether anything is asked of the topology: how pods are numbered alone asks nothing (docs/reference/06-algorithm.md 6.11).
    pub fn is_explicit(&self) -> bool {
        self.required.is_some()
            || self.preferred.is_some()
            || self.unconstrained.is_some()
            || self.pod_set_slice_required_topology.is_some()
            || self.pod_set_slice_size.is_some()
            || !self.podset_slice_required_topology_constraints.is_empty()
    }
}

/// One layer of slices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodsetSliceRequiredTopologyConstraint {
    /// The level.
    #[schemars(length(min = 1, max = 63))]
    pub topology: String,
    /// Pods in a slice.
    #[schemars(range(min = 1))]
    pub size: i32,
}

/// A gate that must be opened before the workload may preempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// Unique in the workload.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

/// The rules that need spec and status together, and the state before (docs/reference/01-api.md 1.4).
fn rules() -> Vec<Value> {
    use crate::schema::{rule, unchanged, while_both, while_true};
    let reserved = while_true("self", "QuotaReserved");
    let was_reserved = while_true("oldSelf", "QuotaReserved");
    let immutable = |field: &str| format!("{field} is immutable while workload quota reserved");
    let same_ref = |condition: &str, test: &str| {
        format!(
            "!({was_reserved}) || !has(self.spec.priorityClassRef) || !has(oldSelf.spec.priorityClassRef){condition} || {test}"
        )
    };
    vec![
        rule(
            &format!(
                "!({reserved}) || !has(self.status.admission) || !has(self.spec.podSets) || !has(self.status.admission.podSetAssignments) || size(self.spec.podSets) == size(self.status.admission.podSetAssignments)"
            ),
            "podSetAssignments must have the same number of podSets as the spec",
        ),
        rule(
            &format!(
                "!({was_reserved}) || has(oldSelf.spec.priorityClassRef) == has(self.spec.priorityClassRef)"
            ),
            &immutable("priorityClassRef"),
        ),
        rule(
            &same_ref("", "oldSelf.spec.priorityClassRef.group == self.spec.priorityClassRef.group"),
            &immutable("priorityClassRef.group"),
        ),
        rule(
            &same_ref("", "oldSelf.spec.priorityClassRef.kind == self.spec.priorityClassRef.kind"),
            &immutable("priorityClassRef.kind"),
        ),
        // Another WorkloadPriorityClass may be chosen at any time: that changes the order of the queue, not the pods.
        rule(
            &same_ref(
                " || self.spec.priorityClassRef.kind != 'PriorityClass'",
                "oldSelf.spec.priorityClassRef.name == self.spec.priorityClassRef.name",
            ),
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        ),
        rule(&while_both("QuotaReserved", &unchanged("spec.queueName")), &immutable("queueName")),
        rule(
            &while_both("Admitted", &unchanged("spec.maximumExecutionTimeSeconds")),
            &immutable("maximumExecutionTimeSeconds"),
        ),
    ]
}

impl WorkloadSpec {
    /// Whether the workload may be admitted at all.
    pub fn is_active(&self) -> bool {
        self.active.unwrap_or(true)
    }
}

impl Default for PodSet {
    fn default() -> Self {
        Self { name: main(), template: Arc::default(), count: one(), min_count: None, topology_request: None }
    }
}

/// The name of a pod set that has none.
pub(crate) fn main() -> String {
    "main".to_owned()
}

const fn one() -> i32 {
    1
}
