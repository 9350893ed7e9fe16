//! The metrics that the engine moves, and the gauges that it can read off its state (reference 05).

mod local;
mod pending;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_api::v1beta2;
use sluice_core::{Amount, Name};
use sluice_quantity::CPU;

use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};

/// How a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Prometheus' default buckets.
    HistogramDefault,
    /// Reference 05: 1, 2.5, 5, 10, … doubling, 14 bounds.
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
    /// How it counts.
    pub kind: MetricKind,
    /// Its labels besides `replica_role`, in the order in which values come.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident = $name:literal $kind:ident [$($label:literal),*];)*) => {
        $($(#[$doc])* pub const $constant: &str = $name;)*

        /// Every metric that the engine knows.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            kind: MetricKind::$kind,
            labels: &[$($label),*],
        }),*];
    };
}

metrics! {
    /// Scheduling cycles.
    ADMISSION_ATTEMPTS_TOTAL = "kueue_admission_attempts_total" Counter ["result"];
    /// How long a cycle took: measured by whoever calls it, as the engine has no clock.
    ADMISSION_ATTEMPT_DURATION_SECONDS = "kueue_admission_attempt_duration_seconds" HistogramDefault ["result"];
    /// Heads of the last cycle that preempted nobody, as others took their victims or the room beside them.
    ADMISSION_CYCLE_PREEMPTION_SKIPS = "kueue_admission_cycle_preemption_skips" Gauge ["cluster_queue"];
    /// Heads whose victims others took, by what became of them.
    PREEMPTION_TARGET_RECOMPUTATIONS_TOTAL = "kueue_preemption_target_recomputations_total" Counter ["cluster_queue", "result"];
    /// Workloads that got quota.
    QUOTA_RESERVED_WORKLOADS_TOTAL = "kueue_quota_reserved_workloads_total" Counter ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_QUOTA_RESERVED_WORKLOADS_TOTAL = "kueue_local_queue_quota_reserved_workloads_total" Counter ["name", "namespace", "priority_class"];
    /// From creation or requeue to the reservation.
    QUOTA_RESERVED_WAIT_TIME_SECONDS = "kueue_quota_reserved_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_QUOTA_RESERVED_WAIT_TIME_SECONDS = "kueue_local_queue_quota_reserved_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// Workloads that were admitted.
    ADMITTED_WORKLOADS_TOTAL = "kueue_admitted_workloads_total" Counter ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_ADMITTED_WORKLOADS_TOTAL = "kueue_local_queue_admitted_workloads_total" Counter ["name", "namespace", "priority_class"];
    /// From creation or requeue to admission.
    ADMISSION_WAIT_TIME_SECONDS = "kueue_admission_wait_time_seconds" Histogram16 ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_ADMISSION_WAIT_TIME_SECONDS = "kueue_local_queue_admission_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// From reservation to admission.
    ADMISSION_CHECKS_WAIT_TIME_SECONDS = "kueue_admission_checks_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_ADMISSION_CHECKS_WAIT_TIME_SECONDS = "kueue_local_queue_admission_checks_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// From creation or requeue until all pods are ready.
    READY_WAIT_TIME_SECONDS = "kueue_ready_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_READY_WAIT_TIME_SECONDS = "kueue_local_queue_ready_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// From admission until all pods are ready.
    ADMITTED_UNTIL_READY_WAIT_TIME_SECONDS = "kueue_admitted_until_ready_wait_time_seconds" Histogram14 ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_ADMITTED_UNTIL_READY_WAIT_TIME_SECONDS = "kueue_local_queue_admitted_until_ready_wait_time_seconds" Histogram14 ["name", "namespace", "priority_class"];
    /// From readiness to eviction.
    PODS_READY_TO_EVICTED_TIME_SECONDS = "kueue_pods_ready_to_evicted_time_seconds" Histogram14 ["cluster_queue", "reason", "underlying_cause"];
    /// Evictions.
    EVICTED_WORKLOADS_TOTAL = "kueue_evicted_workloads_total" Counter ["cluster_queue", "reason", "underlying_cause", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_EVICTED_WORKLOADS_TOTAL = "kueue_local_queue_evicted_workloads_total" Counter ["name", "namespace", "reason", "underlying_cause", "priority_class"];
    /// First evictions of their kind.
    EVICTED_WORKLOADS_ONCE_TOTAL = "kueue_evicted_workloads_once_total" Counter ["cluster_queue", "reason", "underlying_cause", "priority_class"];
    /// Preemptions.
    PREEMPTED_WORKLOADS_TOTAL = "kueue_preempted_workloads_total" Counter ["preempting_cluster_queue", "reason"];
    /// From eviction until the quota is back.
    WORKLOAD_EVICTION_LATENCY_SECONDS = "kueue_workload_eviction_latency_seconds" Histogram14 ["cluster_queue", "reason"];
    /// Workloads that finished.
    FINISHED_WORKLOADS_TOTAL = "kueue_finished_workloads_total" Counter ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_FINISHED_WORKLOADS_TOTAL = "kueue_local_queue_finished_workloads_total" Counter ["name", "namespace", "priority_class"];
    /// How long workloads ran.
    EXECUTION_TIME_SECONDS = "kueue_execution_time_seconds" Histogram16 ["cluster_queue", "priority_class"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_EXECUTION_TIME_SECONDS = "kueue_local_queue_execution_time_seconds" Histogram16 ["name", "namespace", "priority_class"];
    /// From a job's creation to its Workload's.
    WORKLOAD_CREATION_LATENCY = "kueue_workload_creation_latency_seconds" HistogramLatency ["job_kind"];
    /// Admissions in a cohort and below.
    COHORT_SUBTREE_ADMITTED_WORKLOADS_TOTAL = "kueue_cohort_subtree_admitted_workloads_total" Counter ["cohort", "priority_class"];
    /// Workloads that wait.
    PENDING_WORKLOADS = "kueue_pending_workloads" Gauge ["cluster_queue", "status"];
    /// Equivalence classes of what waits.
    PENDING_SCHEDULING_HASHES = "kueue_pending_scheduling_hashes" Gauge ["cluster_queue", "status"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_PENDING_WORKLOADS = "kueue_local_queue_pending_workloads" Gauge ["name", "namespace", "status"];
    /// Finished workloads that are kept.
    FINISHED_WORKLOADS = "kueue_finished_workloads" Gauge ["cluster_queue"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_FINISHED_WORKLOADS = "kueue_local_queue_finished_workloads" Gauge ["name", "namespace"];
    /// Workloads that hold quota.
    RESERVING_ACTIVE_WORKLOADS = "kueue_reserving_active_workloads" Gauge ["cluster_queue"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_RESERVING_ACTIVE_WORKLOADS = "kueue_local_queue_reserving_active_workloads" Gauge ["name", "namespace"];
    /// Workloads that are admitted.
    ADMITTED_ACTIVE_WORKLOADS = "kueue_admitted_active_workloads" Gauge ["cluster_queue"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS = "kueue_local_queue_admitted_active_workloads" Gauge ["name", "namespace"];
    /// 1 for the status that a ClusterQueue has.
    CLUSTER_QUEUE_STATUS = "kueue_cluster_queue_status" Gauge ["cluster_queue", "status"];
    /// 1 for the status that a LocalQueue has.
    LOCAL_QUEUE_STATUS = "kueue_local_queue_status" Gauge ["name", "namespace", "active"];
    /// Workloads that are not admitted, by reason.
    UNADMITTED_WORKLOADS = "kueue_unadmitted_workloads" Gauge ["cluster_queue", "reason", "underlying_cause"];
    /// The same by LocalQueue.
    LOCAL_QUEUE_UNADMITTED_WORKLOADS = "kueue_local_queue_unadmitted_workloads" Gauge ["name", "namespace", "cluster_queue", "reason", "underlying_cause"];
    /// Reserved quota.
    CLUSTER_QUEUE_RESOURCE_RESERVATION = "kueue_cluster_queue_resource_reservation" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// Quota of admitted workloads.
    CLUSTER_QUEUE_RESOURCE_USAGE = "kueue_cluster_queue_resource_usage" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// What waiting workloads ask for.
    CLUSTER_QUEUE_RESOURCE_PENDING = "kueue_cluster_queue_resource_pending" Gauge ["cluster_queue", "resource"];
    /// Nominal quota.
    CLUSTER_QUEUE_NOMINAL_QUOTA = "kueue_cluster_queue_nominal_quota" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// Borrowing limit.
    CLUSTER_QUEUE_BORROWING_LIMIT = "kueue_cluster_queue_borrowing_limit" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// Lending limit.
    CLUSTER_QUEUE_LENDING_LIMIT = "kueue_cluster_queue_lending_limit" Gauge ["cohort", "cluster_queue", "flavor", "resource"];
    /// Share of a ClusterQueue.
    CLUSTER_QUEUE_WEIGHTED_SHARE = "kueue_cluster_queue_weighted_share" Gauge ["cluster_queue", "cohort"];
    /// Reserved quota by LocalQueue.
    LOCAL_QUEUE_RESOURCE_RESERVATION = "kueue_local_queue_resource_reservation" Gauge ["name", "namespace", "flavor", "resource"];
    /// Quota of admitted workloads by LocalQueue.
    LOCAL_QUEUE_RESOURCE_USAGE = "kueue_local_queue_resource_usage" Gauge ["name", "namespace", "flavor", "resource"];
    /// Usage that orders LocalQueues.
    LOCAL_QUEUE_ADMISSION_FAIR_SHARING_USAGE = "kueue_local_queue_admission_fair_sharing_usage" Gauge ["name", "namespace", "cluster_queue"];
    /// Share of a Cohort.
    COHORT_WEIGHTED_SHARE = "kueue_cohort_weighted_share" Gauge ["cohort"];
    /// Quota of a Cohort and below.
    COHORT_SUBTREE_QUOTA = "kueue_cohort_subtree_quota" Gauge ["cohort", "flavor", "resource"];
    /// Reservations of a Cohort and below.
    COHORT_SUBTREE_RESOURCE_RESERVATIONS = "kueue_cohort_subtree_resource_reservations" Gauge ["cohort", "flavor", "resource"];
    /// Admitted workloads of a Cohort and below.
    COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS = "kueue_cohort_subtree_admitted_active_workloads" Gauge ["cohort"];
    /// What of a Cohort's reservations counts against its subtree quota: without what quota covers that is kept below it (ours).
    COHORT_SUBTREE_USAGE = "sluice_cohort_subtree_usage" Gauge ["cohort", "flavor", "resource"];
    /// Where a Cohort stands.
    COHORT_INFO = "kueue_cohort_info" Gauge ["cohort", "parent_cohort", "root_cohort"];
    /// The part of its quota, with what it may borrow, that a ClusterQueue may still use; of the resource of which least is left (ours).
    CLUSTER_QUEUE_FREE_QUOTA_RATIO = "sluice_cluster_queue_free_quota_ratio" Gauge ["cluster_queue"];
    /// Where a ClusterQueue stands.
    CLUSTER_QUEUE_INFO = "kueue_cluster_queue_info" Gauge ["cluster_queue", "parent_cohort", "root_cohort"];
    /// Objects that made the engine panic and are left out (ours).
    OBJECTS_SET_ASIDE = "sluice_objects_set_aside" Gauge [];
}

/// One gauge as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct GaugeValue {
    /// The metric's name.
    pub metric: &'static str,
    /// The values of its labels.
    pub labels: Vec<Arc<str>>,
    /// Its value, in base units (cpu in cores).
    pub value: f64,
}

/// Seconds between two instants; never negative.
#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
pub(crate) fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    (to.as_millisecond().saturating_sub(from.as_millisecond()).max(0) as f64) / 1_000.0
}

/// The name of a workload's priority class, empty without one.
pub(crate) fn priority_class(object: &slim::Workload) -> &str {
    object.spec.priority_class_ref.as_ref().map_or("", |c| c.name.as_str())
}

/// An amount in base units; what is without limit is infinite.
#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
fn base_units(resource: &str, amount: Amount) -> f64 {
    if amount.is_unlimited() {
        f64::INFINITY
    } else if resource == CPU {
        amount.get() as f64 / 1_000.0
    } else {
        amount.get() as f64
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
fn number(n: usize) -> f64 {
    n as f64
}

/// A share; infinite ones are not a number (reference 05).
#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
fn share(value: i64) -> f64 {
    if value == i64::MAX { f64::NAN } else { value as f64 }
}

/// The smallest free part of a resource, given what is free and what there is. Resources without quota do not count:
/// nobody who asks for them waits for others.
#[expect(clippy::cast_precision_loss, reason = "metrics are approximate")]
fn free_ratio(free: &BTreeMap<Name, (Amount, Amount)>) -> f64 {
    let parts = free
        .values()
        .filter(|(_, all)| *all > Amount::ZERO)
        .map(|(free, all)| if free.is_unlimited() { 1.0 } else { free.get() as f64 / all.get() as f64 });
    parts.reduce(f64::min).unwrap_or(0.0)
}

/// Collects gauges.
struct Snapshot(Vec<GaugeValue>);

impl Snapshot {
    fn add(&mut self, metric: &'static str, labels: &[&str], value: f64) {
        self.0.push(GaugeValue { metric, labels: labels.iter().map(|l| Arc::from(*l)).collect(), value });
    }
}

impl Engine {
    /// Every gauge as it is now. What is not in it any more has no series any more.
    pub fn metrics_snapshot(&self) -> Vec<GaugeValue> {
        let mut out = Snapshot(Vec::new());
        self.cluster_queue_gauges(&mut out);
        if self.config.local_queue_metrics.enable {
            self.local_queue_gauges(&mut out);
            self.local_pending_gauges(&mut out);
        }
        if self.config.cluster_queue_resource_metrics {
            self.pending_resource_gauges(&mut out);
        }
        if self.config.on(Gate::MetricsForCohorts) {
            self.cohort_gauges(&mut out);
        }
        self.skip_gauges(&mut out);
        self.workload_gauges(&mut out);
        out.add(OBJECTS_SET_ASIDE, &[], number(self.aside.len()));
        out.0
    }

    fn cluster_queue_gauges(&self, out: &mut Snapshot) {
        for (name, queue) in &self.world.cluster_queues {
            let Some(figures) = self.scheduler.cluster_queue_status(name) else { continue };
            let cohort = queue.spec.cohort_name.as_deref().unwrap_or_default();
            out.add(PENDING_WORKLOADS, &[name, "active"], number(figures.pending_active));
            out.add(PENDING_WORKLOADS, &[name, "inadmissible"], number(figures.pending_inadmissible));
            let (active, parked) = self.scheduler.pending_classes(name).unwrap_or_default();
            out.add(PENDING_SCHEDULING_HASHES, &[name, "active"], number(active));
            out.add(PENDING_SCHEDULING_HASHES, &[name, "inadmissible"], number(parked));
            out.add(RESERVING_ACTIVE_WORKLOADS, &[name], number(figures.reserving));
            out.add(ADMITTED_ACTIVE_WORKLOADS, &[name], number(figures.admitted));
            let is = match figures.inactive.as_slice() {
                [] => "active",
                [sluice_core::InactiveCause::Terminating, ..] => "terminating",
                _ => "pending",
            };
            for status in ["pending", "active", "terminating"] {
                out.add(CLUSTER_QUEUE_STATUS, &[name, status], f64::from(u8::from(status == is)));
            }
            out.add(CLUSTER_QUEUE_FREE_QUOTA_RATIO, &[name], free_ratio(&self.scheduler.free_quota(name)));
            let root = self.root_cohort(cohort);
            out.add(CLUSTER_QUEUE_INFO, &[name, cohort, &root], 1.0);
            if self.config.fair_sharing.is_some() {
                out.add(CLUSTER_QUEUE_WEIGHTED_SHARE, &[name, cohort], share(figures.weighted_share));
            }
            if self.config.cluster_queue_resource_metrics {
                usage_gauges(CLUSTER_QUEUE_RESOURCE_RESERVATION, &[cohort, name], &figures.reservation, out);
                usage_gauges(CLUSTER_QUEUE_RESOURCE_USAGE, &[cohort, name], &figures.usage, out);
                quota_gauges(cohort, name, &crate::ingest::queues::cluster_queue(queue).resource_groups, out);
            }
        }
    }

    fn local_queue_gauges(&self, out: &mut Snapshot) {
        for ((namespace, name), queue) in &self.world.local_queues {
            if !self.is_measured(queue) {
                continue;
            }
            let Some(figures) = self.scheduler.local_queue_status(namespace, name) else { continue };
            out.add(LOCAL_QUEUE_RESERVING_ACTIVE_WORKLOADS, &[name, namespace], number(figures.reserving));
            out.add(LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS, &[name, namespace], number(figures.admitted));
            let is = if figures.inactive.is_none() { "True" } else { "False" };
            for status in ["True", "False", "Unknown"] {
                let value = f64::from(u8::from(status == is));
                out.add(LOCAL_QUEUE_STATUS, &[name, namespace, status], value);
            }
            usage_gauges(LOCAL_QUEUE_RESOURCE_RESERVATION, &[name, namespace], &figures.reservation, out);
            usage_gauges(LOCAL_QUEUE_RESOURCE_USAGE, &[name, namespace], &figures.usage, out);
            if self.config.admission_fair_sharing.is_some() {
                let cluster = queue.spec.cluster_queue.as_deref().unwrap_or_default();
                out.add(
                    LOCAL_QUEUE_ADMISSION_FAIR_SHARING_USAGE,
                    &[name, namespace, cluster],
                    figures.fair_usage,
                );
            }
        }
    }

    fn cohort_gauges(&self, out: &mut Snapshot) {
        let mut names: Vec<Name> = self.world.cohorts.keys().cloned().collect();
        names.extend(
            self.world.cluster_queues.values().filter_map(|q| q.spec.cohort_name.as_deref().map(Name::from)),
        );
        names.extend(
            self.world.cohorts.values().filter_map(|c| c.spec.parent_name.as_deref().map(Name::from)),
        );
        names.sort_unstable();
        names.dedup();
        for name in names.iter().filter(|n| !n.is_empty()) {
            let Some(figures) = self.scheduler.cohort_status(name) else { continue };
            let parent = self.parent_cohort(name).unwrap_or_default();
            out.add(COHORT_INFO, &[name, &parent, &self.root_cohort(name)], 1.0);
            if self.config.fair_sharing.is_some() {
                out.add(COHORT_WEIGHTED_SHARE, &[name], share(figures.weighted_share));
            }
            for (flavor, resource, quota, usage) in &figures.subtree {
                out.add(COHORT_SUBTREE_QUOTA, &[name, flavor, resource], base_units(resource, *quota));
                out.add(COHORT_SUBTREE_USAGE, &[name, flavor, resource], base_units(resource, *usage));
            }
            for (flavor, resource, held) in self.scheduler.cohort_reservations(name) {
                let value = base_units(&resource, held);
                out.add(COHORT_SUBTREE_RESOURCE_RESERVATIONS, &[name, &flavor, &resource], value);
            }
            let below = self.world.cluster_queues.keys().filter(|q| self.cohorts_above(q).contains(name));
            let admitted: usize =
                below.filter_map(|q| self.scheduler.cluster_queue_status(q)).map(|s| s.admitted).sum();
            out.add(COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS, &[name], number(admitted));
        }
    }

    fn workload_gauges(&self, out: &mut Snapshot) {
        let mut finished: BTreeMap<(Name, Name, Name), usize> = BTreeMap::new();
        let mut unadmitted: BTreeMap<(Name, Name, Name, String, String), usize> = BTreeMap::new();
        for (key, entry) in &self.world.workloads {
            let status = &entry.object.status;
            let local = Name::from(entry.object.spec.queue_name.as_str());
            let held = status.admission.as_ref().map(|a| Name::from(a.cluster_queue.as_str()));
            let queue = held.or_else(|| self.world.cluster_queue_of(key, &entry.object)).unwrap_or_default();
            if is(status, Type::Finished) {
                *finished.entry((queue, local, Arc::clone(&key.namespace))).or_default() += 1;
            } else if !is(status, Type::Admitted) {
                let (why, cause) = unadmitted_reason(status);
                *unadmitted.entry((queue, local, Arc::clone(&key.namespace), why, cause)).or_default() += 1;
            }
        }
        let mut by_queue: BTreeMap<Name, usize> = BTreeMap::new();
        for ((queue, local, namespace), n) in finished {
            *by_queue.entry(queue).or_default() += n;
            if self.measures(&namespace, &local) {
                out.add(LOCAL_QUEUE_FINISHED_WORKLOADS, &[&local, &namespace], number(n));
            }
        }
        for (queue, n) in by_queue {
            out.add(FINISHED_WORKLOADS, &[&queue], number(n));
        }
        let mut by_queue: BTreeMap<(Name, String, String), usize> = BTreeMap::new();
        for ((queue, local, namespace, why, cause), n) in unadmitted {
            if self.measures(&namespace, &local) {
                let labels = [&*local, &namespace, &queue, &why, &cause];
                out.add(LOCAL_QUEUE_UNADMITTED_WORKLOADS, &labels, number(n));
            }
            *by_queue.entry((queue, why, cause)).or_default() += n;
        }
        for ((queue, why, cause), n) in by_queue {
            out.add(UNADMITTED_WORKLOADS, &[&queue, &why, &cause], number(n));
        }
    }

    /// The cohort above a cohort.
    pub(crate) fn parent_cohort(&self, name: &str) -> Option<Name> {
        self.world.cohorts.get(name)?.spec.parent_name.as_deref().filter(|p| !p.is_empty()).map(Name::from)
    }

    /// The cohort at the top; a cycle ends where it would begin again.
    fn root_cohort(&self, name: &str) -> Name {
        let mut seen = vec![Name::from(name)];
        while let Some(parent) = self.parent_cohort(&seen[seen.len() - 1])
            && !seen.contains(&parent)
        {
            seen.push(parent);
        }
        seen.pop().unwrap_or_default()
    }

    /// The cohorts above a ClusterQueue, nearest first.
    pub(crate) fn cohorts_above(&self, queue: &str) -> Vec<Name> {
        let first = self.world.cluster_queues.get(queue).and_then(|q| q.spec.cohort_name.as_deref());
        let mut above: Vec<Name> = first.filter(|c| !c.is_empty()).map(Name::from).into_iter().collect();
        while let Some(parent) = above.last().and_then(|last| self.parent_cohort(last))
            && !above.contains(&parent)
        {
            above.push(parent);
        }
        above
    }
}

/// Why a workload is not admitted: the reasons of the conditions Admitted and QuotaReserved (reference 05).
fn unadmitted_reason(status: &v1beta2::WorkloadStatus) -> (String, String) {
    let reason_of =
        |type_: Type| conditions::find(&status.conditions, type_.as_str()).map(|c| c.reason.clone());
    let why = reason_of(Type::Admitted).unwrap_or_else(|| reason::NO_RESERVATION.to_owned());
    if reserved(status) {
        return (why, String::new());
    }
    (why, reason_of(Type::QuotaReserved).unwrap_or_else(|| reason::PENDING_EVALUATION.to_owned()))
}

fn usage_gauges(metric: &'static str, head: &[&str], usage: &sluice_core::FlavorUsage, out: &mut Snapshot) {
    for (flavor, resources) in usage {
        for resource in resources {
            let labels = [head, &[flavor, &resource.name]].concat();
            out.add(metric, &labels, base_units(&resource.name, resource.total));
        }
    }
}

fn quota_gauges(cohort: &str, queue: &str, groups: &[sluice_core::ResourceGroup], out: &mut Snapshot) {
    for flavor in groups.iter().flat_map(|g| &g.flavors) {
        for quota in &flavor.resources {
            let labels = [cohort, queue, &*flavor.name, &*quota.name];
            let limit = |amount: Option<Amount>| base_units(&quota.name, amount.unwrap_or(Amount::UNLIMITED));
            out.add(CLUSTER_QUEUE_NOMINAL_QUOTA, &labels, base_units(&quota.name, quota.nominal));
            out.add(CLUSTER_QUEUE_BORROWING_LIMIT, &labels, limit(quota.borrowing_limit));
            out.add(CLUSTER_QUEUE_LENDING_LIMIT, &labels, limit(quota.lending_limit));
        }
    }
}
