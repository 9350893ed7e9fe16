//! ClusterQueue (docs/reference/01-api.md 1.2).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FairSharing, FairSharingStatus, ResourceGroup, StopPolicy};
use crate::kind::custom_resource;
use crate::schema::SUBDOMAIN;

custom_resource! {
    /// ClusterQueue governs a pool of resources: who may use it, how much, and in which order.
    pub struct ClusterQueue("v1beta2", "clusterqueues", ClusterResourceScope) {
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
    "rule": "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
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
    pub cohort_name: Option<String>,
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
    /// Tries several flavors of one workload at the same time (gate ConcurrentAdmission).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// The order in which a queue's workloads are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum QueueingStrategy {
    /// Strictly by priority and age: a head that does not fit blocks those behind it.
    StrictFIFO,
    /// By priority and age, but what does not fit steps aside.
    #[default]
    BestEffortFIFO,
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
    #[serde(default = "FlavorFungibilityPolicy::may_stop_search")]
    #[schemars(extend("x-default" = "MayStopSearch"))]
    pub when_can_borrow: FlavorFungibilityPolicy,
    /// When the workload fits this flavor by preempting.
    #[serde(default = "FlavorFungibilityPolicy::try_next_flavor")]
    #[schemars(extend("x-default" = "TryNextFlavor"))]
    pub when_can_preempt: FlavorFungibilityPolicy,
    /// Which of the two is better, where all flavors were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preference: Option<FlavorFungibilityPreference>,
}

/// Whether the search for a flavor continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FlavorFungibilityPolicy {
    /// Take this flavor.
    MayStopSearch,
    /// Look at the next one first.
    TryNextFlavor,
}

/// What is better: to borrow or to preempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum FlavorFungibilityPreference {
    /// Rather borrow.
    BorrowingOverPreemption,
    /// Rather preempt.
    PreemptionOverBorrowing,
}

/// Which workloads may be preempted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(self.reclaimWithinCohort == 'Never' && has(self.borrowWithinCohort) && self.borrowWithinCohort.policy != 'Never')",
    "message": "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
}]))]
pub struct ClusterQueuePreemption {
    /// Workloads of other queues of the cohort that borrow, to get back this queue's nominal quota.
    #[serde(default)]
    #[schemars(extend("x-default" = "Never"))]
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// Workloads of other queues of the cohort, while this queue itself borrows.
    #[serde(default)]
    #[schemars(extend("x-default" = {}))]
    pub borrow_within_cohort: BorrowWithinCohort,
    /// Workloads of this queue.
    #[serde(default)]
    #[schemars(extend("x-default" = "Never"))]
    pub within_cluster_queue: WithinClusterQueue,
    /// An addition to Kueue's API: switches Hotswap on for the flavors of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_out_of_cohort: Option<ReclaimOutOfCohort>,
}

/// Which borrowing workloads of the cohort may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimWithinCohort {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// All.
    Any,
}

/// Preemption in the cohort while borrowing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// Whether it is allowed.
    #[serde(default)]
    #[schemars(extend("x-default" = "Never"))]
    pub policy: BorrowWithinCohortPolicy,
    /// Only workloads of at most this priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Whether a workload that borrows may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum BorrowWithinCohortPolicy {
    /// Never.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
}

/// Which workloads of the same queue may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum WithinClusterQueue {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Those of lower priority, and newer ones of the same.
    LowerOrNewerEqualPriority,
}

/// Reclaiming from queues outside the cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimOutOfCohort {
    /// Whether it is allowed.
    #[serde(default)]
    pub enable: bool,
    /// Whether more than the nominal quota may be taken.
    #[serde(default)]
    pub reclaim_more_than_nominal_quota: bool,
}

/// The checks of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// One rule for each check.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// Which flavors a check stands before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    #[schemars(length(min = 1, max = 316))]
    pub name: String,
    /// Flavors of the queue; empty = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(max = 253), regex(pattern = SUBDOMAIN)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub on_flavors: Vec<String>,
}

/// How past usage weighs in admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// The mode.
    pub admission_mode: AdmissionMode,
}

/// Whether past usage orders the workloads of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionMode {
    /// LocalQueues that used less come first.
    UsageBasedAdmissionFairSharing,
    /// It does not.
    NoAdmissionFairSharing,
}

/// Several variants of one workload, each restricted to one flavor, try at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionPolicy {
    /// What happens after the first variant was admitted.
    pub migration: ConcurrentAdmissionMigration,
}

/// Migration between flavors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionMigration {
    /// The mode.
    #[schemars(extend("maxLength" = 253))]
    pub mode: ConcurrentAdmissionMode,
    /// Limits of the migration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Whether an admitted workload still looks for a better flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrentAdmissionMode {
    /// It does.
    TryPreferredFlavors,
    /// It stays where it was admitted first.
    RetainFirstAdmission,
}

/// Limits of the migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConcurrentAdmissionConstraints {
    /// The last flavor, in the queue's order, that is good enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub last_acceptable_flavor_name: Option<String>,
}

/// What a ClusterQueue holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// `Active`, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Quota that is reserved, by flavor in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Quota in use by admitted workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// The share, where fair sharing is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}

/// Use of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    /// By resource, in alphabetical order.
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resources: Vec<ResourceUsage>,
}

/// Use of one resource in one flavor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// All of it, including what is borrowed.
    #[serde(default = "zero")]
    pub total: Quantity,
    /// What is above the nominal quota; 0 without a cohort.
    #[serde(default = "zero")]
    pub borrowed: Quantity,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: FlavorFungibilityPolicy::MayStopSearch,
            when_can_preempt: FlavorFungibilityPolicy::TryNextFlavor,
            preference: None,
        }
    }
}

impl FlavorFungibilityPolicy {
    const fn may_stop_search() -> Self {
        Self::MayStopSearch
    }

    const fn try_next_flavor() -> Self {
        Self::TryNextFlavor
    }
}

impl Default for ResourceUsage {
    fn default() -> Self {
        Self { name: String::new(), total: zero(), borrowed: zero() }
    }
}

/// An absent amount is nothing; the empty string, `Quantity`'s own default, is not an amount at all.
pub(crate) fn zero() -> Quantity {
    Quantity("0".to_owned())
}
