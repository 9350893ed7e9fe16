//! The table of feature gates (docs/reference/02-feature-gates.md).

/// How far a capability is developed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Off unless asked for; may change.
    Alpha,
    /// Tried, usually on.
    Beta,
    /// Always as its default says: it cannot be set to anything else.
    Locked,
    /// Goes away.
    Deprecated,
}

impl Stage {
    /// The stage's name, as Kubernetes' help texts have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Locked => "GA",
            Self::Deprecated => "DEPRECATED",
        }
    }
}

macro_rules! gates {
    ($($name:ident: $stage:ident, $default:literal, $since:literal, [$($parent:expr),*], $purpose:literal;)*) => {
        /// A feature gate of Kueue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Gate {
            $(#[doc = $purpose] $name,)*
        }

        impl Gate {
            /// Every gate, in the order of the reference.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The gate's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The stage in force.
            pub const fn stage(self) -> Stage {
                match self { $(Self::$name => Stage::$stage,)* }
            }

            /// Whether it is on by default.
            pub const fn default_on(self) -> bool {
                match self { $(Self::$name => $default,)* }
            }

            /// Kueue's release in which the current default began.
            pub const fn since(self) -> &'static str {
                match self { $(Self::$name => $since,)* }
            }

            /// What it is for, in a few words.
            pub const fn purpose(self) -> &'static str {
                match self { $(Self::$name => $purpose,)* }
            }

            /// The gates without which it cannot be on.
            pub const fn parents(self) -> &'static [Self] {
                match self { $(Self::$name => &[$($parent),*],)* }
            }
        }
    };
}

gates! {
    PartialAdmission: Beta, true, "0.5", [], "admit fewer pods than asked for (minCount)";
    FlavorFungibility: Beta, true, "0.5", [], "choose between flavors by the queue's policy";
    VisibilityOnDemand: Beta, true, "0.9", [], "serve pending workloads and their positions";
    DisableWaitForPodsReady: Alpha, false, "0.19", [], "do not wait for pods to be ready";
    PrioritySortingWithinCohort: Beta, true, "0.6", [], "order entries of a cohort by priority";
    FairSharingPreemptWithinNominal: Beta, true, "0.17", [], "preempt within nominal quota regardless of shares";
    FairSharingPrioritizeNonBorrowing: Beta, true, "0.17", [], "the tournament prefers queues that do not borrow";
    MultiKueue: Beta, true, "0.9", [], "run jobs on other clusters";
    TopologyAwareScheduling: Beta, true, "0.14", [], "place pods by the topology of the nodes";
    LocalQueueMetrics: Beta, true, "0.17", [], "metrics per LocalQueue";
    TASProfileMixed: Beta, true, "0.15", [], "least free capacity for unconstrained placement";
    AdmissionFairSharing: Beta, true, "0.15", [], "order workloads by the past usage of their LocalQueue";
    TASFailedNodeReplacement: Beta, true, "0.14", [Gate::TopologyAwareScheduling], "replace a failed node in a topology assignment";
    TASFailedNodeReplacementFailFast: Beta, true, "0.14", [Gate::TASFailedNodeReplacement], "evict at once when no replacement node is found";
    TASReplaceNodeOnPodTermination: Beta, true, "0.14", [Gate::TASFailedNodeReplacement], "replace a not-ready node when its pods terminate";
    TASReplaceNodeDueToNotReadyOverFixedTime: Deprecated, false, "0.19", [], "replace a node that is not ready for 30 s";
    TASReplaceNodeOnNodeTaints: Beta, true, "0.17", [], "replace a node that becomes tainted";
    SkipReassignmentForPodOwnedWorkloads: Beta, true, "0.19", [], "do not replace nodes of workloads that pods own";
    TASBalancedPlacement: Alpha, false, "0.15", [], "spread pods evenly over domains";
    TASAssignmentsEncodingByHostnamePrefix: Beta, true, "0.19", [], "shorter encoding of topology assignments";
    TASMultiLayerTopology: Beta, true, "0.19", [], "several layers of topology slices";
    TASRespectNodeAffinityPreferred: Alpha, false, "0.18", [], "preferred node affinity orders domains";
    TASHandleOverlappingFlavors: Beta, true, "0.18", [], "nodes that belong to several topology flavors";
    TASRecomputeAssignmentWithinSchedulingCycle: Beta, true, "0.19", [], "recompute placements inside a cycle";
    TASCacheNodeMatchResults: Beta, true, "0.19", [], "cache the matching of nodes";
    TASCachingRemainingResources: Beta, true, "0.19", [], "cache remaining resources of domains";
    TASCacheTopologyTree: Beta, true, "0.20", [], "cache the topology tree";
    VectorizedResourceRequests: Beta, true, "0.19", [], "requests as vectors";
    SchedulerLibraryIntegration: Alpha, false, "0.19", [], "node fit by the scheduler's library";
    TASValidateWorkloadSliceSize: Beta, true, "0.20", [], "check slice sizes of Workloads";
    ElasticJobsViaWorkloadSlices: Beta, true, "0.18", [], "batch Jobs and the kinds of Ray that change size while they run";
    ElasticJobsViaWorkloadSlicesWithTAS: Alpha, false, "0.17", [Gate::ElasticJobsViaWorkloadSlices, Gate::TopologyAwareScheduling], "elastic jobs with topology";
    ManagedJobsNamespaceSelectorAlwaysRespected: Locked, true, "0.19", [], "the namespace selector holds for every job";
    KueueDRAIntegration: Beta, true, "0.18", [], "quota for dynamic resource allocation";
    KueueDRAIntegrationExtendedResource: Beta, true, "0.19", [], "extended resources backed by device classes";
    KueueDRAIntegrationPartitionableDevices: Beta, true, "0.19", [], "partitionable devices";
    KueueDRAIntegrationConsumableCapacity: Alpha, false, "0.19", [], "devices with consumable capacity";
    KueueDRARejectWorkloadsWhenDRADisabled: Beta, true, "0.18", [], "refuse workloads with resource claims when DRA is off";
    QuotaCheckStrategy: Beta, true, "0.19", [], "resources.quotaCheckStrategy";
    MultiKueueAdaptersForCustomJobs: Beta, true, "0.15", [], "MultiKueue for external frameworks";
    MultiKueueKubeConfigPathValidation: Beta, true, "0.20", [], "kubeconfig paths only below the known folder";
    MultiKueueClusterProfile: Alpha, false, "0.15", [], "clusters by ClusterProfile";
    MultiKueueOrchestratedPreemption: Alpha, false, "0.17", [], "preempt in one worker cluster at a time";
    MultiKueueIncrementalDispatcherConfig: Beta, true, "0.19", [], "step size of the incremental dispatcher";
    MultiKueueIncrementalDispatcherRespectConfigOrder: Beta, true, "0.19", [], "clusters in the configured order";
    MultiKueueManagerQuotaAutomation: Alpha, false, "0.18", [], "quota of the manager from its workers";
    MultiKueueRemoteSpecSync: Beta, true, "0.20", [], "synchronise specs to worker clusters";
    WorkloadRequestUseMergePatch: Alpha, false, "0.14", [], "merge patch instead of server-side apply";
    ReclaimablePods: Beta, true, "0.15", [], "release the quota of pods that ended";
    FailureRecoveryPolicy: Alpha, false, "0.15", [], "force-delete pods that are stuck on lost nodes";
    TLSOptions: Locked, true, "0.20", [], "tls section of the configuration";
    RemoveFinalizersWithStrictPatch: Beta, true, "0.17", [], "finalizers are removed with the resource version checked";
    AssignQueueLabelsForPods: Beta, true, "0.17", [], "queue labels on started pods";
    SchedulingEquivalenceHashing: Beta, true, "0.18", [], "schedule Workloads of equal shape as one equivalence class";
    CustomMetricLabels: Alpha, false, "0.17", [], "metrics.customLabels";
    SparkApplicationIntegration: Alpha, false, "0.17", [], "SparkApplication jobs";
    PriorityBoost: Alpha, false, "0.17", [], "priority-boost annotation";
    AdmissionGatedBy: Beta, true, "0.19", [], "admission-gated-by annotation";
    ShortWorkloadNames: Alpha, false, "0.17", [], "Workload names of at most 63 characters";
    FastQuotaReleaseInPodIntegration: Alpha, false, "0.17", [], "deleted pods release quota at once";
    RejectUpdatesToCQWithInvalidOnFlavors: Alpha, false, "0.18", [], "strict onFlavors on updates";
    FinishOrphanedWorkloads: Beta, true, "0.18", [], "finish Workloads whose owner is gone";
    ConcurrentAdmission: Alpha, false, "0.18", [], "try several flavors at the same time";
    MetricForWorkloadCreationLatency: Beta, true, "0.18", [], "metric of the time to create a Workload";
    WorkloadIdentifierAnnotations: Beta, true, "0.18", [], "long workload and group names in annotations";
    WorkloadPriorityClassDefaulting: Beta, true, "0.20", [], "the WorkloadPriorityClass named default";
    MetricsForCohorts: Beta, true, "0.18", [], "metrics per Cohort";
    CleanupProvisioningRequestsOnEviction: Beta, true, "0.19", [], "delete ProvisioningRequests on eviction";
    UnadmittedWorkloadsObservability: Beta, true, "0.19", [], "fine-grained reasons of QuotaReserved=False";
    UnadmittedWorkloadsExplicitStatus: Beta, false, "0.19", [], "conditions on creation of a Workload";
    DeferRayServiceFinalizationForRedisCleanup: Beta, true, "0.19", [], "finish a RayService after its Redis cleanup";
    WorkloadValidateResourcesAreNonNegative: Beta, true, "0.20", [], "refuse negative resources";
    WorkloadValidationForPodSetMetadata: Beta, true, "0.20", [], "check labels and annotations of pod sets";
    PrioritizePreemptorWorkloads: Alpha, false, "0.20", [], "order preemptors before other Workloads";
    LWSImmutableGroupSize: Beta, true, "0.20", [], "the size of a LeaderWorkerSet's group is fixed";
    FlavorFungibilityPreserveScanProgress: Beta, true, "0.20", [Gate::FlavorFungibility], "resume the scan of flavors where it stopped";
    SkipAncestorCheckForDeletedWorkloads: Beta, true, "0.20", [], "no ancestor look-up for deleted workloads";
    RecomputeAssignmentUponPreemptionTargetsOverlap: Beta, true, "0.20", [], "recompute when victims overlap inside a cycle";
    PodIntegrationValidateGroupOwner: Beta, true, "0.18", [], "group Workloads must be marked as such";
    ValidateRayAndSparkJobUpdates: Beta, true, "0.18", [], "check updates of Ray and Spark jobs";
    // Ours: there is none of them in Kueue (tests/compat/deviations.md).
    PreemptionLoopGuard: Beta, true, "0.19", [], "end preemption loops that no outside change ends";
    Hotswap: Beta, true, "0.19", [], "move jobs off failing nodes, and evict lower priorities to make room";
    HotswapSlices: Beta, true, "0.19", [Gate::Hotswap, Gate::TASFailedNodeReplacement], "move the slice that lost its node before the whole job";
    RequeueReclaimersOnBorrowing: Beta, true, "0.19", [], "requeue Workloads that may reclaim quota when others begin to borrow";
    AdmitOnlyFreeQuota: Beta, true, "0.19", [], "count the quota of a preempted Workload as free only when its pods are gone";
    TASKeepWholeDomains: Alpha, false, "0.19", [], "of equal domains take the one that leaves larger domains whole";
}

/// Gates that Kueue has removed since its release 0.5; older configurations still name them (docs/reference/02-feature-gates.md). They are accepted
/// with a warning and have no effect.
pub const REMOVED: &[&str] = &[
    "AdmissionCheckValidationRules",
    "ConfigurableResourceTransformations",
    "DRAExtendedResources",
    "DynamicResourceAllocation",
    "ExposeFlavorsInLocalQueue",
    "FlavorFungibilityImplicitPreferenceDefault",
    "HierarchicalCohorts",
    "KeepQuotaForProvReqRetry",
    "LendingLimit",
    "LocalQueueDefaulting",
    "ManagedJobsNamespaceSelector",
    "MultiKueueAllowInsecureKubeconfigs",
    "MultiKueueBatchJobWithManagedBy",
    "MultiKueueRedoAdmissionOnEvictionInWorker",
    "MultiKueueWaitForWorkloadAdmitted",
    "MultiplePreemptions",
    "ObjectRetentionPolicies",
    "PropagateBatchJobLabelsToWorkload",
    "ProvisioningACC",
    "QueueVisibility",
    "SanitizePodSets",
    "SchedulerLongRequeueInterval",
    "SchedulerTimestampPreemptionBuffer",
    "SkipFinalizersForPodsSuspendedByParent",
    "TASProfileLeastFreeCapacity",
    "TASProfileMostFreeCapacity",
    "WorkloadResourceRequestsSummary",
];

/// Those of them whose capability stayed: it is always on.
pub const ALWAYS_ON: &[&str] = &[
    "ConfigurableResourceTransformations",
    "HierarchicalCohorts",
    "LendingLimit",
    "LocalQueueDefaulting",
    "ManagedJobsNamespaceSelector",
    "MultiplePreemptions",
    "ObjectRetentionPolicies",
    "PropagateBatchJobLabelsToWorkload",
    "ProvisioningACC",
    "SanitizePodSets",
    "SkipFinalizersForPodsSuspendedByParent",
    "WorkloadResourceRequestsSummary",
];

impl Gate {
    /// The gate of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|gate| gate.name() == name)
    }

    /// Whether Sluice has the capability that the gate switches.
    pub const fn built(self) -> bool {
        !matches!(
            self,
            Self::ConcurrentAdmission
                | Self::KueueDRAIntegration
                | Self::KueueDRAIntegrationConsumableCapacity
                | Self::KueueDRAIntegrationExtendedResource
                | Self::KueueDRAIntegrationPartitionableDevices
                | Self::MultiKueue
                | Self::MultiKueueAdaptersForCustomJobs
                | Self::MultiKueueClusterProfile
                | Self::MultiKueueIncrementalDispatcherConfig
                | Self::MultiKueueIncrementalDispatcherRespectConfigOrder
                | Self::MultiKueueKubeConfigPathValidation
                | Self::MultiKueueManagerQuotaAutomation
                | Self::MultiKueueOrchestratedPreemption
                | Self::MultiKueueRemoteSpecSync
                | Self::SchedulerLibraryIntegration
                | Self::TASCacheNodeMatchResults
                | Self::TASCacheTopologyTree
                | Self::TASCachingRemainingResources
                | Self::VectorizedResourceRequests
                | Self::WorkloadRequestUseMergePatch
        )
    }
}
