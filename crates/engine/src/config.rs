//! What the engine takes from the configuration file (reference 01, 1.12) and the feature gates.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobKind;
use sluice_core as core;
use sluice_quantity::Quantity;

/// The engine's configuration.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The feature gates.
    pub gates: Gates,
    /// `manageJobsWithoutQueueName`.
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector`; `None` selects every namespace.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// The job kinds in `integrations.frameworks`.
    pub frameworks: BTreeSet<JobKind>,
    /// `integrations.labelKeysToCopy`.
    pub label_keys_to_copy: Vec<String>,
    /// `waitForPodsReady`; `None` is off.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// `fairSharing`; `None` is off.
    pub fair_sharing: Option<core::FairSharing>,
    /// `admissionFairSharing`; `None` is off.
    pub admission_fair_sharing: Option<core::AdmissionFairSharing>,
    /// `resources`.
    pub resources: ResourceConfig,
    /// `objectRetentionPolicies.workloads.afterFinished`, in seconds; `None` keeps them for good.
    pub retention_after_finished_seconds: Option<i64>,
    /// `objectRetentionPolicies.workloads.afterDeactivatedByKueue`, in seconds; `None` keeps them for good.
    pub retention_after_deactivated_seconds: Option<i64>,
    /// `metrics.enableClusterQueueResources`.
    pub cluster_queue_resource_metrics: bool,
    /// `metrics.localQueueMetrics.enable`.
    pub local_queue_metrics: bool,
    /// A status whose figures changed is written at most this often per queue, in milliseconds.
    pub status_interval_ms: i64,
    /// A message whose numbers alone changed is written at most this often per workload, in seconds.
    pub message_interval_seconds: i64,
    /// Honours the annotation `sluice.dev/inject-panic` (tests only).
    pub inject_panics: bool,
}

/// `waitForPodsReady` (reference 06, 6.16); times in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForPodsReady {
    /// From admission until the pods must be ready.
    pub timeout_seconds: i64,
    /// From the first failure until all are ready again; `None` is without limit.
    pub recovery_timeout_seconds: Option<i64>,
    /// Admit nothing while an admitted workload is not ready.
    pub block_admission: bool,
    /// Order an evicted workload by its eviction, not by its creation.
    pub order_by_eviction: bool,
    /// How often it is put back before it is deactivated; `None` is for ever.
    pub backoff_limit_count: Option<i32>,
    /// The first backoff.
    pub backoff_base_seconds: i64,
    /// The longest backoff.
    pub backoff_max_seconds: i64,
}

/// `resources` (reference 06, 6.2).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceConfig {
    /// `excludeResourcePrefixes`.
    pub exclude_prefixes: Vec<String>,
    /// `quotaCheckStrategy: IgnoreUndeclared`.
    pub ignore_undeclared: bool,
    /// `transformations`, by input.
    pub transformations: BTreeMap<String, Transformation>,
}

/// One entry of `resources.transformations`.
#[derive(Clone, Debug, PartialEq)]
pub struct Transformation {
    /// Whether the input stays (`Retain`).
    pub retain: bool,
    /// The resource whose quantity is a further factor.
    pub multiply_by: Option<String>,
    /// What one unit of the input becomes.
    pub outputs: BTreeMap<String, Quantity>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            gates: Gates::default(),
            manage_jobs_without_queue_name: false,
            managed_jobs_namespace_selector: None,
            frameworks: JobKind::ALL.into_iter().collect(),
            label_keys_to_copy: Vec::new(),
            wait_for_pods_ready: None,
            fair_sharing: None,
            admission_fair_sharing: None,
            resources: ResourceConfig::default(),
            retention_after_finished_seconds: None,
            retention_after_deactivated_seconds: None,
            cluster_queue_resource_metrics: false,
            local_queue_metrics: true,
            status_interval_ms: 1_000,
            message_interval_seconds: 30,
            inject_panics: false,
        }
    }
}

impl EngineConfig {
    /// Whether a gate is on.
    pub(crate) fn on(&self, gate: Gate) -> bool {
        self.gates.enabled(gate)
    }

    /// What the core takes from it.
    pub(crate) fn core(&self) -> core::Config {
        core::Config {
            gates: core::Gates {
                partial_admission: self.on(Gate::PartialAdmission),
                flavor_fungibility: self.on(Gate::FlavorFungibility),
                flavor_fungibility_preserve_scan_progress: self
                    .on(Gate::FlavorFungibilityPreserveScanProgress),
                priority_sorting_within_cohort: self.on(Gate::PrioritySortingWithinCohort),
                fair_sharing_preempt_within_nominal: self.on(Gate::FairSharingPreemptWithinNominal),
                fair_sharing_prioritize_non_borrowing: self.on(Gate::FairSharingPrioritizeNonBorrowing),
                admission_fair_sharing: self.on(Gate::AdmissionFairSharing),
                scheduling_equivalence_hashing: self.on(Gate::SchedulingEquivalenceHashing),
                prioritize_preemptor_workloads: self.on(Gate::PrioritizePreemptorWorkloads),
                recompute_assignment_upon_preemption_targets_overlap: self
                    .on(Gate::RecomputeAssignmentUponPreemptionTargetsOverlap),
                quota_check_strategy: self.on(Gate::QuotaCheckStrategy),
                preemption_loop_guard: true,
            },
            fair_sharing: self.fair_sharing.clone(),
            admission_fair_sharing: self.admission_fair_sharing.clone(),
            ignore_undeclared: self.resources.ignore_undeclared && self.on(Gate::QuotaCheckStrategy),
            block_admission: self.wait_for_pods_ready.as_ref().is_some_and(|w| w.block_admission),
        }
    }
}
