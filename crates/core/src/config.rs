//! The configuration of a Scheduler: gates, fair sharing, admission fair sharing.

use crate::Name;

/// Everything the core takes from the configuration file (docs/reference/01-api.md 1.12, docs/reference/02-feature-gates.md).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// Feature gates that the core reads.
    pub gates: Gates,
    /// Fair sharing between ClusterQueues; `None` is classical preemption and ordering.
    pub fair_sharing: Option<FairSharing>,
    /// Fair sharing between the LocalQueues of one ClusterQueue; `None` is off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// `quotaCheckStrategy: IgnoreUndeclared`: a resource that a ClusterQueue does not cover needs no quota
    /// (docs/reference/06-algorithm.md 6.2).
    pub ignore_undeclared: bool,
    /// `waitForPodsReady.blockAdmission`: admit nothing while an admitted workload's pods are not ready
    /// (docs/reference/06-algorithm.md 6.16).
    pub block_admission: bool,
}

/// The feature gates that the core reads, named as in docs/reference/02-feature-gates.md in snake case. The default is upstream's; two are ours.
#[expect(clippy::struct_excessive_bools, reason = "a set of independent switches")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    /// `PartialAdmission`: honour `minCount`.
    pub partial_admission: bool,
    /// `FlavorFungibility`: honour `flavorFungibility` and resume the flavor scan.
    pub flavor_fungibility: bool,
    /// `FlavorFungibilityPreserveScanProgress`: keep the scan's progress for one cycle even if quota changed.
    pub flavor_fungibility_preserve_scan_progress: bool,
    /// `PrioritySortingWithinCohort`: priority decides between the heads of a cohort.
    pub priority_sorting_within_cohort: bool,
    /// `FairSharingPreemptWithinNominal`: a preemptor within its nominal quota reclaims without comparing shares.
    pub fair_sharing_preempt_within_nominal: bool,
    /// `FairSharingPrioritizeNonBorrowing`: the tournament prefers heads that do not borrow.
    pub fair_sharing_prioritize_non_borrowing: bool,
    /// `AdmissionFairSharing`: order a ClusterQueue by the usage of its LocalQueues.
    pub admission_fair_sharing: bool,
    /// `SchedulingEquivalenceHashing`: one negative answer for all workloads of equal shape.
    pub scheduling_equivalence_hashing: bool,
    /// `PrioritizePreemptorWorkloads`: remembered preemptors first.
    pub prioritize_preemptor_workloads: bool,
    /// `RecomputeAssignmentUponPreemptionTargetsOverlap`: try again when another head took the victims.
    pub recompute_assignment_upon_preemption_targets_overlap: bool,
    /// `TASProfileMixed`: pods that ask for no level go to the smallest domains that hold them (LeastFreeCapacity).
    pub tas_profile_mixed: bool,
    /// `TASBalancedPlacement`: `preferred` spreads pods evenly over as few domains as possible.
    pub tas_balanced_placement: bool,
    /// `TASMultiLayerTopology`: honour all layers of slices instead of the outermost alone.
    pub tas_multi_layer_topology: bool,
    /// `TASRespectNodeAffinityPreferred`: preferred node affinity decides between domains.
    pub tas_respect_node_affinity_preferred: bool,
    /// `TASKeepWholeDomains` (ours): of domains that are alike those that leave larger ones whole are taken.
    pub tas_keep_whole_domains: bool,
    /// `TASHandleOverlappingFlavors`: what a node's pods use counts for all flavors that the node belongs to.
    pub tas_handle_overlapping_flavors: bool,
    /// `ElasticJobsViaWorkloadSlicesWithTAS`: a slice of an elastic job keeps the places of the one that it replaces.
    pub elastic_jobs_via_workload_slices_with_tas: bool,
    /// `QuotaCheckStrategy`: honour `quotaCheckStrategy`.
    pub quota_check_strategy: bool,
    /// `TASRecomputeAssignmentWithinSchedulingCycle`: look for other nodes if another head took those of an entry.
    pub tas_recompute_assignment_within_scheduling_cycle: bool,
    /// `TASFailedNodeReplacement`: look for other nodes for pods whose node failed.
    pub tas_failed_node_replacement: bool,
    /// `TASFailedNodeReplacementFailFast`: evict a workload for whose failed node there is no other at once.
    pub tas_failed_node_replacement_fail_fast: bool,
    /// Ours, `PreemptionLoopGuard`: end preemption that goes round in circles without a change from outside.
    pub preemption_loop_guard: bool,
    /// Ours, `RequeueReclaimersOnBorrowing`: inadmissible workloads that may reclaim are tried again when others begin to borrow.
    pub requeue_reclaimers_on_borrowing: bool,
    /// Ours, `AdmitOnlyFreeQuota`: the quota of a victim is not free for other heads before the victim is gone.
    pub admit_only_free_quota: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            partial_admission: true,
            flavor_fungibility: true,
            flavor_fungibility_preserve_scan_progress: true,
            priority_sorting_within_cohort: true,
            fair_sharing_preempt_within_nominal: true,
            fair_sharing_prioritize_non_borrowing: true,
            admission_fair_sharing: true,
            scheduling_equivalence_hashing: true,
            prioritize_preemptor_workloads: false,
            recompute_assignment_upon_preemption_targets_overlap: true,
            tas_profile_mixed: true,
            tas_balanced_placement: false,
            tas_multi_layer_topology: true,
            tas_respect_node_affinity_preferred: false,
            tas_keep_whole_domains: false,
            tas_handle_overlapping_flavors: true,
            elastic_jobs_via_workload_slices_with_tas: false,
            quota_check_strategy: true,
            tas_recompute_assignment_within_scheduling_cycle: true,
            tas_failed_node_replacement: true,
            tas_failed_node_replacement_fail_fast: true,
            preemption_loop_guard: true,
            requeue_reclaimers_on_borrowing: true,
            admit_only_free_quota: true,
        }
    }
}

/// `fairSharing` of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FairSharing {
    /// The preemption strategies in the order to try them; empty means upstream's default, both.
    pub strategies: Vec<FairStrategy>,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self {
            strategies: vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare],
        }
    }
}

/// When fair sharing may preempt a workload of another queue (docs/reference/06-algorithm.md 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FairStrategy {
    /// The preemptor's new share is at most the target's share after the removal.
    LessThanOrEqualToFinalShare,
    /// The preemptor's new share is below the target's share before the removal.
    LessThanInitialShare,
}

/// `admissionFairSharing` of the configuration file (docs/reference/06-algorithm.md 6.9).
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionFairSharing {
    /// `usageHalfLifeTime` in seconds; 0 forgets all history.
    pub half_life_seconds: i64,
    /// `usageSamplingInterval` in seconds.
    pub sampling_interval_seconds: i64,
    /// `resourceWeights`; a resource that is not listed weighs 1.
    pub resource_weights: Vec<(Name, f64)>,
}
