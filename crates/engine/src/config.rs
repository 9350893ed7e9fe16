//! What the engine takes from the configuration file (docs/reference/01-api.md 1.12) and the feature gates.

mod delay;
mod gather;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice_api::config as file;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobKind;
use sluice_core as core;
use sluice_quantity::Quantity;

use crate::effect::Level;

pub use delay::StatusDelay;
pub use gather::Gather;
pub use parts::Part;

/// Nodes and Workloads that one cycle looks at to find room for displaced work: at less than a microsecond each, at most 20 milliseconds in one go.
/// If hundreds of node pools fail at once it is a fraction of that.
const HOTSWAP_STEPS: u64 = 20_000;

/// See [`EngineConfig::status_interval_ms`].
const STATUS_INTERVAL_MS: i64 = 1_000;

/// See [`EngineConfig::statuses_per_second`].
const STATUSES_PER_SECOND: u32 = 20;

/// See [`EngineConfig::most_reservations`]: the writer's highest number of writes in flight.
const MOST_RESERVATIONS: usize = 64;

/// See [`EngineConfig::message_interval_seconds`].
const MESSAGE_INTERVAL_SECONDS: i64 = 300;

/// The engine's configuration.
#[expect(clippy::struct_excessive_bools, reason = "a set of independent switches")]
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The feature gates.
    pub gates: Gates,
    /// `manageJobsWithoutQueueName`.
    pub manage_jobs_without_queue_name: bool,
    /// `managedJobsNamespaceSelector`; `None` selects every namespace.
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    /// The job kinds in `integrations.frameworks` whose objects are jobs, and the kinds that these imply.
    pub frameworks: BTreeSet<JobKind>,
    /// The kinds in `integrations.externalFrameworks`: jobs below their objects run on the Workloads of these.
    pub external: BTreeSet<JobKind>,
    /// Whether only those pods are queued that another object suspends (docs/reference/07-integrations.md 7.1 "Implied").
    pub implied_pods: bool,
    /// `integrations.labelKeysToCopy`.
    pub label_keys_to_copy: Vec<String>,
    /// Annotations that a Workload gets from its job at creation, as custom labels of metrics are read from them.
    pub annotation_keys_to_copy: Vec<String>,
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
    /// `metrics.customLabels`; empty while their gate is off.
    pub custom_labels: Vec<file::CustomLabel>,
    /// `metrics.localQueueMetrics`.
    pub local_queue_metrics: file::LocalQueueMetrics,
    /// A status whose figures changed is written at most this often per queue, in milliseconds.
    pub status_interval_ms: i64,
    /// The highest number of statuses per second, of all queues and Cohorts together, in which only numbers changed. 0: no limit.
    pub statuses_per_second: u32,
    /// How long a workload waits until the reason for its waiting is written.
    pub status_delay: StatusDelay,
    /// `scheduler.gatherFor`: how long a cycle waits for more of the changes that caused it.
    pub gather: Gather,
    /// `scheduler.maxTerminationGracePeriod`: how long pods may take to end when their quota is to be given back; `None`: no limit.
    pub longest_termination: Option<SignedDuration>,
    /// Whether lines for a journal are made.
    pub journal: bool,
    /// Whether steps of attempts are handed out for traces.
    pub tracing: bool,
    /// While this many reservations of quota are being written, there is no cycle: the order may change until they can be sent.
    pub most_reservations: usize,
    /// The shortest time, in seconds, between two messages about what a workload waits for, while others use what it needs.
    pub message_interval_seconds: i64,
    /// Whether it reserves quota, admits and preempts; off, another scheduler does that.
    pub scheduling: bool,
    /// Whether it is the controller of provisioning checks; off, another controller answers for them.
    pub provisioning: bool,
    /// The parts that are left out: another controller does their work.
    pub without: BTreeSet<Part>,
    /// `provisioningRequests.oldPodAnnotations`: pods get the older pair of annotations, too.
    pub old_provisioning_annotations: bool,
    /// `hotswap`: which nodes count as failing.
    pub hotswap: file::Hotswap,
    /// How many steps a cycle makes at most to find room for displaced work, plus those of one placement; the search continues in the next cycle. A
    /// step is a node that pods are put on, a Workload that is evicted, or sixteen nodes, domains or Workloads that are only compared, or nodes and pods that
    /// are passed over.
    pub hotswap_steps: u64,
    /// Honours the annotation `sluice.dev/inject-panic` (tests only).
    pub inject_panics: bool,
    /// The least important log lines that are wanted. Others have no fields.
    pub log_level: Level,
}

/// `waitForPodsReady` (docs/reference/06-algorithm.md 6.16); times in seconds.
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

/// `resources` (docs/reference/06-algorithm.md 6.2).
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
            frameworks: JobKind::jobs().collect(),
            external: BTreeSet::new(),
            implied_pods: false,
            label_keys_to_copy: Vec::new(),
            annotation_keys_to_copy: Vec::new(),
            wait_for_pods_ready: None,
            fair_sharing: None,
            admission_fair_sharing: None,
            resources: ResourceConfig::default(),
            retention_after_finished_seconds: None,
            retention_after_deactivated_seconds: None,
            cluster_queue_resource_metrics: false,
            custom_labels: Vec::new(),
            local_queue_metrics: file::LocalQueueMetrics { enable: true, local_queue_selector: None },
            status_interval_ms: STATUS_INTERVAL_MS,
            statuses_per_second: 0,
            status_delay: StatusDelay::NONE,
            gather: Gather::NONE,
            journal: false,
            tracing: false,
            longest_termination: None,
            most_reservations: usize::MAX,
            message_interval_seconds: MESSAGE_INTERVAL_SECONDS,
            scheduling: true,
            provisioning: false,
            without: BTreeSet::new(),
            old_provisioning_annotations: false,
            hotswap: file::Hotswap::default(),
            hotswap_steps: HOTSWAP_STEPS,
            inject_panics: false,
            log_level: Level::Debug,
        }
    }
}

impl From<&file::Configuration> for EngineConfig {
    /// Every section and every field of the file is named, here and below: a new field does not compile until it is named here, whether the engine
    /// uses it or not.
    fn from(file: &file::Configuration) -> Self {
        let file::Configuration {
            gates,
            manage_jobs_without_queue_name,
            managed_jobs_namespace_selector,
            integrations,
            wait_for_pods_ready,
            fair_sharing,
            admission_fair_sharing,
            resources,
            object_retention_policies: file::ObjectRetentionPolicies { workloads: retention },
            provisioning_requests: file::ProvisioningRequests { old_pod_annotations },
            hotswap,
            scheduler: file::Scheduler { gather_for, max_termination_grace_period },
            journal: file::Journal { directory: journal, max_file_size: _, max_total_size: _, store: _ },
            tracing:
                file::Tracing {
                    endpoint: tracing,
                    ca_file: _,
                    headers_file: _,
                    sample_ratio: _,
                    max_queue_size: _,
                },
            metrics,
            // The manager's alone.
            namespace: _,
            webhook: _,
            health: _,
            pprof_bind_address: _,
            leader_election: _,
            controller: _,
            tls: _,
            internal_cert_management: _,
            client_connection: _,
            multi_kueue: _,
            visibility_server: _,
            // As written in the file; `gates` has the resulting values.
            feature_gates: _,
            dashboard: _,
        } = file;
        let file::Integrations {
            frameworks: _,
            declared: _,
            // By name; the kinds are asked for below.
            external_frameworks: _,
            label_keys_to_copy,
            pod_options: _,
        } = integrations;
        let kinds = integrations.job_kinds().into_iter();
        let file::Metrics {
            bind_address: _,
            enable_cluster_queue_resources,
            custom_labels,
            local_queue_metrics,
        } = metrics;
        let file::LocalQueueMetrics { enable, local_queue_selector } = local_queue_metrics;
        let file::WorkloadRetentionPolicy { after_finished, after_deactivated_by_kueue } =
            retention.clone().unwrap_or_default();
        let seconds = |d: file::Duration| d.as_secs_up();
        let custom_labels = Some(custom_labels)
            .filter(|_| gates.enabled(Gate::CustomMetricLabels))
            .cloned()
            .unwrap_or_default();
        let mut label_keys_to_copy = label_keys_to_copy.clone();
        let mut annotation_keys_to_copy = Vec::new();
        // A Workload that is made for a job has the job's labels that metrics use.
        for entry in custom_labels.iter().filter(|entry| entry.source_kind == file::SourceKind::Workload) {
            match (&entry.source_annotation_key, &entry.source_label_key) {
                // Sluice's own annotations are not set this way.
                (Some(key), _) if key.contains("kueue.x-k8s.io/") || key.starts_with("sluice.dev/") => {}
                (Some(key), _) => annotation_keys_to_copy.push(key.clone()),
                (None, Some(key)) => label_keys_to_copy.push(key.clone()),
                (None, None) => label_keys_to_copy.push(entry.name.clone()),
            }
        }
        Self {
            gates: *gates,
            manage_jobs_without_queue_name: *manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: Some(managed_jobs_namespace_selector.clone()),
            frameworks: kinds.filter(|kind| !kind.integration().pods_are_jobs).collect(),
            external: integrations.external_kinds(),
            implied_pods: integrations.implies_pods(),
            label_keys_to_copy,
            annotation_keys_to_copy,
            wait_for_pods_ready: wait_for_pods_ready
                .as_ref()
                .filter(|_| !gates.enabled(Gate::DisableWaitForPodsReady))
                .map(WaitForPodsReady::from),
            fair_sharing: fair_sharing.as_ref().map(self::fair_sharing),
            admission_fair_sharing: admission_fair_sharing.as_ref().map(self::admission_fair_sharing),
            resources: ResourceConfig::from(resources),
            retention_after_finished_seconds: after_finished.map(seconds),
            retention_after_deactivated_seconds: after_deactivated_by_kueue.map(seconds),
            old_provisioning_annotations: *old_pod_annotations,
            hotswap: hotswap.clone(),
            cluster_queue_resource_metrics: *enable_cluster_queue_resources,
            custom_labels,
            local_queue_metrics: file::LocalQueueMetrics {
                enable: *enable && gates.enabled(Gate::LocalQueueMetrics),
                local_queue_selector: local_queue_selector.clone(),
            },
            // Not in the file; the simulator and tests set it.
            status_interval_ms: STATUS_INTERVAL_MS,
            statuses_per_second: STATUSES_PER_SECOND,
            status_delay: StatusDelay::ADAPTIVE,
            journal: !journal.is_empty(),
            tracing: !tracing.is_empty(),
            gather: Gather::of(SignedDuration::from_nanos(gather_for.as_nanos())),
            longest_termination: Some(SignedDuration::from_nanos(max_termination_grace_period.as_nanos()))
                .filter(jiff::SignedDuration::is_positive),
            most_reservations: MOST_RESERVATIONS,
            message_interval_seconds: MESSAGE_INTERVAL_SECONDS,
            scheduling: true,
            provisioning: false,
            without: BTreeSet::new(),
            hotswap_steps: HOTSWAP_STEPS,
            inject_panics: false,
            log_level: Level::Debug,
        }
    }
}

impl From<&file::WaitForPodsReady> for WaitForPodsReady {
    fn from(file: &file::WaitForPodsReady) -> Self {
        let file::WaitForPodsReady { timeout, block_admission, recovery_timeout, requeuing_strategy } = file;
        let file::RequeuingStrategy {
            timestamp,
            backoff_limit_count,
            backoff_base_seconds,
            backoff_max_seconds,
        } = requeuing_strategy;
        Self {
            // Below a second, it is a timeout like any other: zero alone means none.
            timeout_seconds: timeout.as_secs_up(),
            recovery_timeout_seconds: Some(recovery_timeout.as_secs_up()).filter(|s| *s > 0),
            block_admission: *block_admission,
            order_by_eviction: *timestamp == file::RequeuingTimestamp::Eviction,
            backoff_limit_count: *backoff_limit_count,
            backoff_base_seconds: i64::from(*backoff_base_seconds),
            backoff_max_seconds: i64::from(*backoff_max_seconds),
        }
    }
}

impl From<&file::Resources> for ResourceConfig {
    fn from(file: &file::Resources) -> Self {
        let file::Resources { exclude_resource_prefixes, quota_check_strategy, transformations } = file;
        let rule = |rule: &file::Transformation| {
            let file::Transformation { input, strategy, multiply_by, outputs } = rule;
            let rule = Transformation {
                retain: *strategy == file::TransformationStrategy::Retain,
                multiply_by: multiply_by.clone(),
                outputs: outputs.clone(),
            };
            (input.clone(), rule)
        };
        Self {
            exclude_prefixes: exclude_resource_prefixes.clone(),
            ignore_undeclared: *quota_check_strategy == file::QuotaCheckStrategy::IgnoreUndeclared,
            transformations: transformations.iter().map(rule).collect(),
        }
    }
}

fn fair_sharing(file: &file::FairSharing) -> core::FairSharing {
    let file::FairSharing { preemption_strategies } = file;
    let strategy = |s: &file::PreemptionStrategy| match s {
        file::PreemptionStrategy::LessThanOrEqualToFinalShare => {
            core::FairStrategy::LessThanOrEqualToFinalShare
        }
        file::PreemptionStrategy::LessThanInitialShare => core::FairStrategy::LessThanInitialShare,
    };
    core::FairSharing { strategies: preemption_strategies.iter().map(strategy).collect() }
}

fn admission_fair_sharing(file: &file::AdmissionFairSharing) -> core::AdmissionFairSharing {
    let file::AdmissionFairSharing { usage_half_life_time, usage_sampling_interval, resource_weights } = file;
    core::AdmissionFairSharing {
        half_life_seconds: usage_half_life_time.as_secs_up(),
        sampling_interval_seconds: usage_sampling_interval.as_secs_up(),
        resource_weights: resource_weights.iter().map(|(r, w)| (r.as_str().into(), *w)).collect(),
    }
}

impl EngineConfig {
    /// Whether a gate is on.
    pub(crate) fn on(&self, gate: Gate) -> bool {
        self.gates.enabled(gate)
    }

    /// Whether jobs of a kind are known: managed kinds, and kinds that their controllers make.
    pub(crate) fn knows(&self, kind: JobKind) -> bool {
        self.frameworks.contains(&kind)
            || self.frameworks.iter().any(|above| above.descendants().contains(&kind))
    }

    /// Whether a part runs.
    pub(crate) fn runs(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }

    /// Whether the usage of LocalQueues is kept (docs/reference/06-algorithm.md 6.9).
    pub(crate) fn shares_admission(&self) -> bool {
        self.admission_fair_sharing.is_some() && self.on(Gate::AdmissionFairSharing)
    }

    /// The part that the core uses.
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
                tas_profile_mixed: self.on(Gate::TASProfileMixed),
                tas_balanced_placement: self.on(Gate::TASBalancedPlacement),
                tas_multi_layer_topology: self.on(Gate::TASMultiLayerTopology),
                tas_respect_node_affinity_preferred: self.on(Gate::TASRespectNodeAffinityPreferred),
                tas_keep_whole_domains: self.on(Gate::TASKeepWholeDomains),
                tas_handle_overlapping_flavors: self.on(Gate::TASHandleOverlappingFlavors),
                tas_recompute_assignment_within_scheduling_cycle: self
                    .on(Gate::TASRecomputeAssignmentWithinSchedulingCycle),
                tas_failed_node_replacement: self.on(Gate::TASFailedNodeReplacement),
                tas_failed_node_replacement_fail_fast: self.on(Gate::TASFailedNodeReplacementFailFast),
                elastic_jobs_via_workload_slices_with_tas: self.on(Gate::ElasticJobsViaWorkloadSlicesWithTAS),
                preemption_loop_guard: self.on(Gate::PreemptionLoopGuard),
                requeue_reclaimers_on_borrowing: self.on(Gate::RequeueReclaimersOnBorrowing),
                admit_only_free_quota: self.on(Gate::AdmitOnlyFreeQuota),
            },
            fair_sharing: self.fair_sharing.clone(),
            admission_fair_sharing: self.admission_fair_sharing.clone(),
            ignore_undeclared: self.resources.ignore_undeclared && self.on(Gate::QuotaCheckStrategy),
            block_admission: self.wait_for_pods_ready.as_ref().is_some_and(|w| w.block_admission),
        }
    }
}
