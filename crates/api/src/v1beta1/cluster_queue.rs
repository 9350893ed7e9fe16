//! ClusterQueue (docs/reference/01-api.md 1.2: "v1beta1 differences").

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ResourceGroup;
use crate::kind::custom_resource;
use crate::schema::SUBDOMAIN;
use crate::v1beta2::{
    ClusterQueuePreemption, FairSharing, FlavorFungibilityPreference, FlavorUsage,
    LocalQueueFairSharingStatus, QueueingStrategy, StopPolicy,
};

custom_resource! {
    /// ClusterQueue governs a pool of resources: who may use it, how much, and in which order.
    pub struct ClusterQueue("v1beta1", "clusterqueues", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: ClusterQueueSpec,
        }
        if_some {
            /// What was observed and decided.
            status: ClusterQueueStatus,
        }
    }
}

/// What a ClusterQueue offers, and to which namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.cohort) || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
    "message": "borrowingLimit must be nil when cohort is empty",
}]))]
pub struct ClusterQueueSpec {
    /// Quotas; each resource and each flavor belongs to one group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort with which unused quota is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub cohort: Option<String>,
    /// The order of admission.
    #[serde(default)]
    #[schemars(extend("x-default" = "BestEffortFIFO"))]
    pub queueing_strategy: QueueingStrategy,
    /// Which namespaces may use the queue: absent = none, empty = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// When to try the next flavor instead of borrowing or preempting in this one.
    #[serde(default)]
    #[schemars(extend("x-default" = {}))]
    pub flavor_fungibility: FlavorFungibility,
    /// Which workloads may be preempted for this queue's.
    #[serde(default)]
    #[schemars(extend("x-default" = {}))]
    pub preemption: ClusterQueuePreemption,
    /// Names of checks that stand before all flavors. v1beta2 has only the strategy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 316)))]
    pub admission_checks: Vec<String>,
    /// The checks that stand between reservation and admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Stops the queue.
    #[serde(default)]
    #[schemars(extend("x-default" = "None"))]
    pub stop_policy: StopPolicy,
    /// The queue's part in fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Switches admission fair sharing on for this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
}

/// When to try the next flavor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.preference) || (has(self.whenCanBorrow) && self.whenCanBorrow == 'TryNextFlavor' && has(self.whenCanPreempt) && self.whenCanPreempt == 'TryNextFlavor')",
    "message": "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
}]))]
pub struct FlavorFungibility {
    /// When the workload fits this flavor by borrowing.
    #[serde(default = "when_can_borrow")]
    #[schemars(extend("x-default" = "MayStopSearch"))]
    pub when_can_borrow: WhenCanBorrow,
    /// When the workload fits this flavor by preempting.
    #[serde(default = "when_can_preempt")]
    #[schemars(extend("x-default" = "TryNextFlavor"))]
    pub when_can_preempt: WhenCanPreempt,
    /// Which of the two is better, where all flavors were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<FlavorFungibilityPreference>,
}

/// Whether the search for a flavor continues where borrowing would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WhenCanBorrow {
    /// Take this flavor.
    MayStopSearch,
    /// Look at the next one first.
    TryNextFlavor,
    /// The old name of `MayStopSearch`.
    Borrow,
}

/// Whether the search for a flavor continues where preemption would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WhenCanPreempt {
    /// Take this flavor.
    MayStopSearch,
    /// Look at the next one first.
    TryNextFlavor,
    /// The old name of `MayStopSearch`.
    Preempt,
}

/// The checks of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// One rule for each check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// Which flavors a check stands before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    #[schemars(length(max = 316))]
    pub name: String,
    /// Flavors of the queue; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 253), regex(pattern = SUBDOMAIN)))]
    pub on_flavors: Vec<String>,
}

/// How past usage weighs in admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// The mode, a free string in this version.
    pub admission_mode: String,
}

/// What a ClusterQueue holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// `Active`, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions_unbounded")]
    pub conditions: Vec<Condition>,
    /// Quota that is reserved, by flavor in the order of the spec.
    #[serde(default)]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota in use by admitted workloads.
    #[serde(default)]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_usage: Vec<FlavorUsage>,
    /// Workloads that wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Workloads that hold quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Workloads that are admitted and not finished.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// Never filled any more; the visibility API has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_workloads_status: Option<ClusterQueuePendingWorkloadsStatus>,
    /// The share, where fair sharing is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// The head of the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePendingWorkloadsStatus {
    /// Pending workloads in their order.
    #[serde(rename = "clusterQueuePendingWorkload", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_queue_pending_workload: Vec<ClusterQueuePendingWorkload>,
    /// When the list changed.
    pub last_change_time: Time,
}

/// A pending workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePendingWorkload {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self { when_can_borrow: when_can_borrow(), when_can_preempt: when_can_preempt(), preference: None }
    }
}

const fn when_can_borrow() -> WhenCanBorrow {
    WhenCanBorrow::MayStopSearch
}

const fn when_can_preempt() -> WhenCanPreempt {
    WhenCanPreempt::TryNextFlavor
}
