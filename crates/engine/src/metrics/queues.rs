//! The gauges of one ClusterQueue and of one LocalQueue (docs/reference/05-metrics.md).

use sluice_api::config::SourceKind;
use sluice_api::v1beta2;
use sluice_core::{Amount, Name};

use super::counts::{OfLocalQueue, OfQueue};
use super::scrape::Page;
use super::{
    ADMISSION_CYCLE_PREEMPTION_SKIPS, ADMITTED_ACTIVE_WORKLOADS, CLUSTER_QUEUE_BORROWING_LIMIT,
    CLUSTER_QUEUE_FREE_QUOTA_RATIO, CLUSTER_QUEUE_INFO, CLUSTER_QUEUE_LENDING_LIMIT,
    CLUSTER_QUEUE_NOMINAL_QUOTA, CLUSTER_QUEUE_RESOURCE_PENDING, CLUSTER_QUEUE_RESOURCE_RESERVATION,
    CLUSTER_QUEUE_RESOURCE_USAGE, CLUSTER_QUEUE_STATUS, CLUSTER_QUEUE_WEIGHTED_SHARE, FINISHED_WORKLOADS,
    Gauge, LOCAL_QUEUE_ADMISSION_FAIR_SHARING_USAGE, LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS,
    LOCAL_QUEUE_FINISHED_WORKLOADS, LOCAL_QUEUE_PENDING_WORKLOADS, LOCAL_QUEUE_RESERVING_ACTIVE_WORKLOADS,
    LOCAL_QUEUE_RESOURCE_RESERVATION, LOCAL_QUEUE_RESOURCE_USAGE, LOCAL_QUEUE_STATUS,
    LOCAL_QUEUE_UNADMITTED_WORKLOADS, RESERVING_ACTIVE_WORKLOADS, UNADMITTED_WORKLOADS, base_units,
    free_ratio, number, share,
};
use crate::engine::Engine;

impl Engine {
    /// The gauges of a ClusterQueue. `counted` is what its Workloads came to.
    pub(super) fn cluster_queue_gauges(
        &self,
        name: &Name,
        queue: &v1beta2::ClusterQueue,
        counted: OfQueue,
        out: &mut Page<'_>,
    ) {
        out.add(FINISHED_WORKLOADS, &[name], number(counted.finished));
        for ((why, cause), n) in counted.unadmitted {
            out.add(UNADMITTED_WORKLOADS, &[name, &why, &cause], number(n));
        }
        for (custom, n) in counted.admitted {
            out.add_with(ADMITTED_ACTIVE_WORKLOADS, &[name], number(n), &custom);
        }
        let skipped = self.preemption_skips.get(name).copied().unwrap_or(0);
        out.add(ADMISSION_CYCLE_PREEMPTION_SKIPS, &[name], number(skipped));
        if self.config.cluster_queue_resource_metrics {
            let mut asked = counted.asked;
            // Every queue has a series of each of its resources from its beginning.
            for resource in queue.spec.resource_groups.iter().flat_map(|group| &group.covered_resources) {
                asked.entry(Name::from(&**resource)).or_insert(Amount::ZERO);
            }
            for (resource, amount) in asked {
                let value = base_units(&resource, amount);
                out.add(CLUSTER_QUEUE_RESOURCE_PENDING, &[name, &resource], value);
            }
        }
        let Some(figures) = self.scheduler.cluster_queue_status(name) else { return };
        let cohort = queue.spec.cohort_name.as_deref().unwrap_or_default();
        self.pending_gauges(name, &figures, counted.pending, out);
        self.class_gauges(name, &figures, out);
        out.add(RESERVING_ACTIVE_WORKLOADS, &[name], number(figures.reserving));
        if !self.custom.reads(SourceKind::Workload) {
            out.add(ADMITTED_ACTIVE_WORKLOADS, &[name], number(figures.admitted));
        }
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
            out.add(CLUSTER_QUEUE_WEIGHTED_SHARE, &[name, cohort], share(figures.exact_share));
        }
        if self.config.cluster_queue_resource_metrics {
            usage_gauges(CLUSTER_QUEUE_RESOURCE_RESERVATION, [cohort, name], &figures.reservation, out);
            usage_gauges(CLUSTER_QUEUE_RESOURCE_USAGE, [cohort, name], &figures.usage, out);
            quota_gauges(cohort, name, &crate::ingest::queues::cluster_queue(queue).resource_groups, out);
        }
    }

    /// The gauges of a LocalQueue with metrics. `counted` has the sums over its Workloads.
    pub(super) fn local_queue_gauges(
        &self,
        key: &(Name, Name),
        queue: &v1beta2::LocalQueue,
        counted: OfLocalQueue,
        out: &mut Page<'_>,
    ) {
        let (namespace, name) = key;
        out.add(LOCAL_QUEUE_FINISHED_WORKLOADS, &[name, namespace], number(counted.finished));
        for ((queue, why, cause), n) in counted.unadmitted {
            let labels = [&**name, namespace, &queue, &why, &cause];
            out.add(LOCAL_QUEUE_UNADMITTED_WORKLOADS, &labels, number(n));
        }
        for (custom, n) in counted.admitted {
            out.add_with(LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS, &[name, namespace], number(n), &custom);
        }
        let Some(figures) = self.scheduler.local_queue_status(namespace, name) else { return };
        // Workloads that wait in an inactive queue are not considered.
        let looked_at = if figures.inactive.is_none() { counted.active.min(figures.pending) } else { 0 };
        let inadmissible = figures.pending - looked_at;
        out.add(LOCAL_QUEUE_PENDING_WORKLOADS, &[name, namespace, "active"], number(looked_at));
        out.add(LOCAL_QUEUE_PENDING_WORKLOADS, &[name, namespace, "inadmissible"], number(inadmissible));
        out.add(LOCAL_QUEUE_RESERVING_ACTIVE_WORKLOADS, &[name, namespace], number(figures.reserving));
        if !self.custom.reads(SourceKind::Workload) {
            out.add(LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS, &[name, namespace], number(figures.admitted));
        }
        let is = if figures.inactive.is_none() { "True" } else { "False" };
        for status in ["True", "False", "Unknown"] {
            let value = f64::from(u8::from(status == is));
            out.add(LOCAL_QUEUE_STATUS, &[name, namespace, status], value);
        }
        usage_gauges(LOCAL_QUEUE_RESOURCE_RESERVATION, [name, namespace], &figures.reservation, out);
        usage_gauges(LOCAL_QUEUE_RESOURCE_USAGE, [name, namespace], &figures.usage, out);
        if self.config.shares_admission() {
            let cluster = queue.spec.cluster_queue.as_deref().unwrap_or_default();
            let labels = [&**name, namespace, cluster];
            out.add(LOCAL_QUEUE_ADMISSION_FAIR_SHARING_USAGE, &labels, figures.fair_usage);
        }
    }

    /// The gauges of Workloads whose queue does not exist.
    pub(super) fn gauges_of_no_queue(counted: &OfQueue, out: &mut Page<'_>) {
        if counted.finished > 0 {
            out.add(FINISHED_WORKLOADS, &[""], number(counted.finished));
        }
    }
}

fn usage_gauges(
    metric: Gauge<4>,
    [first, second]: [&str; 2],
    usage: &sluice_core::FlavorUsage,
    out: &mut Page<'_>,
) {
    for (flavor, resources) in usage {
        for resource in resources {
            let labels = [first, second, &**flavor, &*resource.name];
            out.add(metric, &labels, base_units(&resource.name, resource.total));
        }
    }
}

fn quota_gauges(cohort: &str, queue: &str, groups: &[sluice_core::ResourceGroup], out: &mut Page<'_>) {
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
