//! Every metric that the engine knows: its name, its labels, and its help text.

/// How a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Prometheus' default buckets.
    HistogramDefault,
    /// docs/reference/05-metrics.md: 1, 2.5, 5, 10, … doubling, 14 bounds.
    Histogram14,
    /// The same with 16 bounds.
    Histogram16,
    /// 0.01 doubling, 11 bounds.
    HistogramLatency,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, for people: the doc comment of its constant, and the HELP text of a scrape.
    pub help: &'static str,
    /// How it counts.
    pub kind: MetricKind,
    /// Its labels besides `replica_role`, in the order of the values.
    pub labels: &'static [&'static str],
}

/// A counter or histogram with `N` labels: any other number of values does not compile.
#[derive(Clone, Copy, Debug)]
pub struct Moved<const N: usize> {
    /// Its name.
    pub name: &'static str,
}

/// A gauge with `N` labels.
#[derive(Clone, Copy, Debug)]
pub struct Gauge<const N: usize> {
    /// Its name.
    pub name: &'static str,
}

impl<const N: usize> Moved<N> {
    const fn of(name: &'static str) -> Self {
        Self { name }
    }
}

impl<const N: usize> Gauge<N> {
    const fn of(name: &'static str) -> Self {
        Self { name }
    }
}

/// The type of a metric's handle.
macro_rules! handle {
    (Gauge $labels:tt) => { Gauge<{ const LABELS: &[&str] = &$labels; LABELS.len() }> };
    ($kind:ident $labels:tt) => { Moved<{ const LABELS: &[&str] = &$labels; LABELS.len() }> };
}

macro_rules! metrics {
    ($(#[doc = $help:literal] $constant:ident = $name:literal $kind:ident $labels:tt;)*) => {
        $(#[doc = $help] pub const $constant: handle!($kind $labels) =
            <handle!($kind $labels)>::of($name);)*

        /// The names of the metrics.
        pub mod names {
            $(#[doc = $help] pub const $constant: &str = $name;)*
        }

        /// Every metric that the engine knows.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            help: $help.trim_ascii(),
            kind: MetricKind::$kind,
            labels: &$labels,
        }),*];
    };
}

metrics! {
    /// Scheduling cycles that tried at least one workload, by result: success if a workload was admitted or preempted one, else inadmissible.
    ADMISSION_ATTEMPTS_TOTAL = "kueue_admission_attempts_total" Counter ["result"];
    /// How long a scheduling cycle took, in seconds, without the writes that follow from it.
    ADMISSION_ATTEMPT_DURATION_SECONDS = "kueue_admission_attempt_duration_seconds" HistogramDefault ["result"];
    /// Workloads that found workloads to preempt in the last cycle and did not preempt them, because another one took those or the room beside them.
    ADMISSION_CYCLE_PREEMPTION_SKIPS = "kueue_admission_cycle_preemption_skips" Gauge ["cluster_queue"];
    /// Workloads whose preemption targets another workload of the cycle took, by what followed: new_targets, deferred_fit or skipped.
    PREEMPTION_TARGET_RECOMPUTATIONS_TOTAL = "kueue_preemption_target_recomputations_total" Counter ["cluster_queue", "result"];
    /// Workloads that got a quota reservation in a ClusterQueue.
    QUOTA_RESERVED_WORKLOADS_TOTAL = "kueue_quota_reserved_workloads_total" Counter ["cluster_queue", "priority_class"];
    /// Workloads of a LocalQueue that got a quota reservation.
    LOCAL_QUEUE_QUOTA_RESERVED_WORKLOADS_TOTAL = "kueue_local_queue_quota_reserved_workloads_total" Counter ["name", "namespace", "priority_class"];
    /// Seconds from the creation of a workload, or from its last requeue, to its quota reservation.
    QUOTA_RESERVED_WAIT_TIME_SECONDS = "kueue_quota_reserved_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// Seconds from the creation of a workload, or from its last requeue, to its quota reservation, by LocalQueue.
    LOCAL_QUEUE_QUOTA_RESERVED_WAIT_TIME_SECONDS = "kueue_local_queue_quota_reserved_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// Workloads that a ClusterQueue admitted.
    ADMITTED_WORKLOADS_TOTAL = "kueue_admitted_workloads_total" Counter ["cluster_queue", "priority_class"];
    /// Workloads of a LocalQueue that were admitted.
    LOCAL_QUEUE_ADMITTED_WORKLOADS_TOTAL = "kueue_local_queue_admitted_workloads_total" Counter ["name", "namespace", "priority_class"];
    /// Seconds from the creation of a workload, or from its last requeue, to its admission.
    ADMISSION_WAIT_TIME_SECONDS = "kueue_admission_wait_time_seconds" Histogram16 ["cluster_queue", "priority_class"];
    /// Seconds from the creation of a workload, or from its last requeue, to its admission, by LocalQueue.
    LOCAL_QUEUE_ADMISSION_WAIT_TIME_SECONDS = "kueue_local_queue_admission_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// Seconds from the quota reservation of a workload with admission checks to its admission.
    ADMISSION_CHECKS_WAIT_TIME_SECONDS = "kueue_admission_checks_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// Seconds from the quota reservation of a workload with admission checks to its admission, by LocalQueue.
    LOCAL_QUEUE_ADMISSION_CHECKS_WAIT_TIME_SECONDS = "kueue_local_queue_admission_checks_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// Seconds from the creation of a workload, or from its last requeue, until all its pods are ready for the first time.
    READY_WAIT_TIME_SECONDS = "kueue_ready_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// Seconds from the creation of a workload, or from its last requeue, until all its pods are ready for the first time, by LocalQueue.
    LOCAL_QUEUE_READY_WAIT_TIME_SECONDS = "kueue_local_queue_ready_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// Seconds from the admission of a workload until all its pods are ready for the first time.
    ADMITTED_UNTIL_READY_WAIT_TIME_SECONDS = "kueue_admitted_until_ready_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// Seconds from the admission of a workload until all its pods are ready for the first time, by LocalQueue.
    LOCAL_QUEUE_ADMITTED_UNTIL_READY_WAIT_TIME_SECONDS = "kueue_local_queue_admitted_until_ready_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// Seconds from the readiness of a workload's pods to its eviction, by the eviction's reason and cause.
    PODS_READY_TO_EVICTED_TIME_SECONDS = "kueue_pods_ready_to_evicted_time_seconds" Histogram14 ["cluster_queue", "reason", "underlying_cause"];
    /// Seconds from the readiness of a workload's pods to its eviction, by LocalQueue and by the eviction's reason and cause: work that may be lost.
    LOCAL_QUEUE_PODS_READY_TO_EVICTED_TIME_SECONDS = "sluice_local_queue_pods_ready_to_evicted_time_seconds" Histogram14 ["name", "namespace", "reason", "underlying_cause"];
    /// Evictions of workloads of a ClusterQueue, by reason and cause.
    EVICTED_WORKLOADS_TOTAL = "kueue_evicted_workloads_total" Counter ["cluster_queue", "reason", "underlying_cause", "priority_class"];
    /// Evictions of workloads of a LocalQueue, by reason and cause.
    LOCAL_QUEUE_EVICTED_WORKLOADS_TOTAL = "kueue_local_queue_evicted_workloads_total" Counter ["name", "namespace", "reason", "underlying_cause", "priority_class"];
    /// Workloads that were evicted at least once, by reason and cause: each workload counts once for each of these.
    EVICTED_WORKLOADS_ONCE_TOTAL = "kueue_evicted_workloads_once_total" Counter ["cluster_queue", "reason", "underlying_cause", "priority_class"];
    /// Workloads that were preempted, by the ClusterQueue that preempts and the reason.
    PREEMPTED_WORKLOADS_TOTAL = "kueue_preempted_workloads_total" Counter ["preempting_cluster_queue", "reason"];
    /// Slices of elastic jobs of a ClusterQueue that another slice took over from.
    REPLACED_WORKLOAD_SLICES_TOTAL = "kueue_replaced_workload_slices_total" Counter ["cluster_queue"];
    /// Seconds from the eviction of a workload until its quota is free.
    WORKLOAD_EVICTION_LATENCY_SECONDS = "kueue_workload_eviction_latency_seconds" Histogram14 ["cluster_queue", "reason"];
    /// Workloads of a ClusterQueue that finished.
    FINISHED_WORKLOADS_TOTAL = "kueue_finished_workloads_total" Counter ["cluster_queue", "priority_class"];
    /// Workloads of a LocalQueue that finished.
    LOCAL_QUEUE_FINISHED_WORKLOADS_TOTAL = "kueue_local_queue_finished_workloads_total" Counter ["name", "namespace", "priority_class"];
    /// Seconds that a workload was admitted until it finished, over all its admissions.
    EXECUTION_TIME_SECONDS = "kueue_execution_time_seconds" Histogram16 ["cluster_queue", "priority_class"];
    /// Seconds that a workload was admitted until it finished, over all its admissions, by LocalQueue.
    LOCAL_QUEUE_EXECUTION_TIME_SECONDS = "kueue_local_queue_execution_time_seconds" Histogram16 ["name", "namespace", "priority_class"];
    /// Seconds from the creation of a job to the creation of its Workload, by the kind of the job.
    WORKLOAD_CREATION_LATENCY = "kueue_workload_creation_latency_seconds" HistogramLatency ["job_kind"];
    /// Seconds from the admission of a workload until a scheduling gate is off a pod of it, by the name of the gate, and by whether the pod is one of a group.
    POD_SCHEDULING_GATE_REMOVAL_SECONDS = "kueue_pod_scheduling_gate_removal_seconds" HistogramDefault ["name", "cluster_queue", "is_group"];
    /// Workloads that were admitted by a ClusterQueue below a Cohort. Absent without the gate MetricsForCohorts.
    COHORT_SUBTREE_ADMITTED_WORKLOADS_TOTAL = "kueue_cohort_subtree_admitted_workloads_total" Counter ["cohort", "priority_class"];
    /// Workloads that wait in a ClusterQueue: active ones are tried in the next cycles, inadmissible ones after a change that could help them.
    PENDING_WORKLOADS = "kueue_pending_workloads" Gauge ["cluster_queue", "status"];
    /// Equivalence classes of the workloads that wait in a ClusterQueue, by status: workloads of one class ask for the same. Absent without the gate SchedulingEquivalenceHashing.
    PENDING_SCHEDULING_HASHES = "kueue_pending_scheduling_hashes" Gauge ["cluster_queue", "status"];
    /// Workloads that wait in a LocalQueue: active ones are tried in the next cycles, inadmissible ones after a change that could help them.
    LOCAL_QUEUE_PENDING_WORKLOADS = "kueue_local_queue_pending_workloads" Gauge ["name", "namespace", "status"];
    /// Finished workloads of a ClusterQueue that have not been deleted.
    FINISHED_WORKLOADS = "kueue_finished_workloads" Gauge ["cluster_queue"];
    /// Finished workloads of a LocalQueue that have not been deleted.
    LOCAL_QUEUE_FINISHED_WORKLOADS = "kueue_local_queue_finished_workloads" Gauge ["name", "namespace"];
    /// Workloads that hold quota of a ClusterQueue, admitted or not.
    RESERVING_ACTIVE_WORKLOADS = "kueue_reserving_active_workloads" Gauge ["cluster_queue"];
    /// Workloads of a LocalQueue that hold quota, admitted or not.
    LOCAL_QUEUE_RESERVING_ACTIVE_WORKLOADS = "kueue_local_queue_reserving_active_workloads" Gauge ["name", "namespace"];
    /// Workloads of a ClusterQueue that are admitted and not finished.
    ADMITTED_ACTIVE_WORKLOADS = "kueue_admitted_active_workloads" Gauge ["cluster_queue"];
    /// Workloads of a LocalQueue that are admitted and not finished.
    LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS = "kueue_local_queue_admitted_active_workloads" Gauge ["name", "namespace"];
    /// 1 for the status that a ClusterQueue has, else 0: active, pending (it cannot admit) or terminating.
    CLUSTER_QUEUE_STATUS = "kueue_cluster_queue_status" Gauge ["cluster_queue", "status"];
    /// 1 for the value that the condition Active of a LocalQueue has, else 0.
    LOCAL_QUEUE_STATUS = "kueue_local_queue_status" Gauge ["name", "namespace", "active"];
    /// Workloads of a ClusterQueue that are not admitted, by the reason of their condition Admitted and the reason of QuotaReserved. Absent without the gate UnadmittedWorkloadsObservability.
    UNADMITTED_WORKLOADS = "kueue_unadmitted_workloads" Gauge ["cluster_queue", "reason", "underlying_cause"];
    /// Workloads of a LocalQueue that are not admitted, by the reason of their condition Admitted and the reason of QuotaReserved. Absent without the gate UnadmittedWorkloadsObservability.
    LOCAL_QUEUE_UNADMITTED_WORKLOADS = "kueue_local_queue_unadmitted_workloads" Gauge ["name", "namespace", "cluster_queue", "reason", "underlying_cause"];
    /// Quota of a ClusterQueue that workloads hold, admitted or not, by flavor and resource.
    CLUSTER_QUEUE_RESOURCE_RESERVATION = "kueue_cluster_queue_resource_reservation" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// Quota of a ClusterQueue that admitted workloads hold, by flavor and resource.
    CLUSTER_QUEUE_RESOURCE_USAGE = "kueue_cluster_queue_resource_usage" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// What the workloads that wait in a ClusterQueue ask for, by resource.
    CLUSTER_QUEUE_RESOURCE_PENDING = "kueue_cluster_queue_resource_pending" Gauge ["cluster_queue", "resource"];
    /// Nominal quota of a ClusterQueue, by flavor and resource.
    CLUSTER_QUEUE_NOMINAL_QUOTA = "kueue_cluster_queue_nominal_quota" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// How much more than its nominal quota a ClusterQueue may use, by flavor and resource; +Inf without a limit.
    CLUSTER_QUEUE_BORROWING_LIMIT = "kueue_cluster_queue_borrowing_limit" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// How much of its nominal quota others may use, by flavor and resource; +Inf without a limit.
    CLUSTER_QUEUE_LENDING_LIMIT = "kueue_cluster_queue_lending_limit" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// Share of a ClusterQueue for fair sharing: its largest use above nominal quota, per mille of what the Cohort lends, divided by its weight; NaN if it borrows with weight 0.
    CLUSTER_QUEUE_WEIGHTED_SHARE = "kueue_cluster_queue_weighted_share" Gauge ["cluster_queue", "cohort"];
    /// Quota that workloads of a LocalQueue hold, admitted or not, by flavor and resource.
    LOCAL_QUEUE_RESOURCE_RESERVATION = "kueue_local_queue_resource_reservation" Gauge ["name", "namespace", "flavor", "resource"];
    /// Quota that admitted workloads of a LocalQueue hold, by flavor and resource.
    LOCAL_QUEUE_RESOURCE_USAGE = "kueue_local_queue_resource_usage" Gauge ["name", "namespace", "flavor", "resource"];
    /// Past usage of a LocalQueue, by which admission fair sharing orders the LocalQueues of a ClusterQueue.
    LOCAL_QUEUE_ADMISSION_FAIR_SHARING_USAGE = "kueue_local_queue_admission_fair_sharing_usage" Gauge ["name", "namespace", "cluster_queue"];
    /// Share of a Cohort for fair sharing: its largest use above its quota, per mille of what its parent lends, divided by its weight; NaN if it borrows with weight 0. Absent without the gate MetricsForCohorts.
    COHORT_WEIGHTED_SHARE = "kueue_cohort_weighted_share" Gauge ["cohort"];
    /// Quota of a Cohort with all that the ClusterQueues and Cohorts below it share, by flavor and resource. Absent without the gate MetricsForCohorts.
    COHORT_SUBTREE_QUOTA = "kueue_cohort_subtree_quota" Gauge ["cohort", "flavor", "resource"];
    /// Quota that workloads of all ClusterQueues below a Cohort hold, by flavor and resource. Absent without the gate MetricsForCohorts.
    COHORT_SUBTREE_RESOURCE_RESERVATIONS = "kueue_cohort_subtree_resource_reservations" Gauge ["cohort", "flavor", "resource"];
    /// Workloads of all ClusterQueues below a Cohort that are admitted and not finished. Absent without the gate MetricsForCohorts.
    COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS = "kueue_cohort_subtree_admitted_active_workloads" Gauge ["cohort"];
    /// Quota held below a Cohort that counts against kueue_cohort_subtree_quota, by flavor and resource: reservations without what a lending limit keeps in a ClusterQueue. Absent without the gate MetricsForCohorts.
    COHORT_SUBTREE_USAGE = "sluice_cohort_subtree_usage" Gauge ["cohort", "flavor", "resource"];
    /// Always 1; the labels name the parent and the root of a Cohort. Absent without the gate MetricsForCohorts.
    COHORT_INFO = "kueue_cohort_info" Gauge ["cohort", "parent_cohort", "root_cohort"];
    /// Part of its quota, with what it may borrow, that a ClusterQueue has free, from 0 to 1, for the resource with the least free.
    CLUSTER_QUEUE_FREE_QUOTA_RATIO = "sluice_cluster_queue_free_quota_ratio" Gauge ["cluster_queue"];
    /// Always 1; the labels name the parent and the root Cohort of a ClusterQueue.
    CLUSTER_QUEUE_INFO = "kueue_cluster_queue_info" Gauge ["cluster_queue", "parent_cohort", "root_cohort"];
    /// Pods that fit into one domain of a topology level of a flavor now: as many as the domain with the most room takes, if each takes `per_pod` of the extended resource and nothing else, and tolerates no taints but that of the resource and those that the flavor tolerates.
    TOPOLOGY_LARGEST_FIT = "sluice_topology_largest_fit" Gauge ["topology", "flavor", "level", "resource", "per_pod"];
    /// The same for pods as they wait, by all that each of them takes of its node (`shape`, as `cpu=4,memory=16Gi`): for each flavor the eight shapes of which most pods wait in its queues. Only nodes count that these pods select and whose taints they tolerate; if Workloads of the shape differ in that, the largest group of them decides.
    TOPOLOGY_LARGEST_FIT_OF_SHAPE = "sluice_topology_largest_fit_of_shape" Gauge ["topology", "flavor", "level", "shape"];
    /// Objects that made the engine fail and are left out until they change.
    OBJECTS_SET_ASIDE = "sluice_objects_set_aside" Gauge [];
}
