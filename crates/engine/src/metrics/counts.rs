//! What is counted over the Workloads for the gauges (docs/reference/05-metrics.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::config::SourceKind;
use sluice_api::gates::Gate;
use sluice_api::v1beta2;
use sluice_core::{Amount, Name, WorkloadKey};

use crate::engine::Engine;
use crate::ingest::workload::{self as ingested, is, reserved};
use crate::world::WorkloadEntry;

/// The values of the custom labels of a Workload.
type Labels = Vec<Arc<str>>;

/// Sums over the Workloads of a ClusterQueue.
#[derive(Clone, Debug, Default)]
pub(super) struct OfQueue {
    pub finished: usize,
    /// By reason and underlying cause.
    pub unadmitted: BTreeMap<(String, String), usize>,
    /// The requests of those that wait, by resource.
    pub asked: BTreeMap<Name, Amount>,
    /// If Workloads have custom labels: how many are in the heap, and how many are inactive.
    pub pending: BTreeMap<Labels, (usize, usize)>,
    /// The same for admitted Workloads.
    pub admitted: BTreeMap<Labels, usize>,
}

/// Sums over the Workloads of a LocalQueue.
#[derive(Clone, Debug, Default)]
pub(super) struct OfLocalQueue {
    pub finished: usize,
    /// By ClusterQueue, reason and underlying cause.
    pub unadmitted: BTreeMap<(Name, String, String), usize>,
    /// The number in the heap.
    pub active: usize,
    /// Where Workloads have custom labels.
    pub admitted: BTreeMap<Labels, usize>,
}

/// Sums over the Workloads that were visited so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub queues: BTreeMap<Name, OfQueue>,
    pub local_queues: BTreeMap<(Name, Name), OfLocalQueue>,
}

impl Engine {
    /// Counts one Workload.
    pub(super) fn count_workload(&self, key: &WorkloadKey, entry: &WorkloadEntry, counts: &mut Counts) {
        let (object, status) = (&entry.object, &entry.object.status);
        let labelled = self.custom.reads(SourceKind::Workload);
        let custom = || self.custom.of_workload(object);
        let local = (Arc::clone(&key.namespace), Name::from(object.spec.queue_name.as_str()));
        let holder = status.admission.as_ref().map(|a| Name::from(a.cluster_queue.as_str()));
        let queue = holder.clone().or_else(|| self.world.cluster_queue_of(key, object)).unwrap_or_default();
        let of_local = counts.local_queues.entry(local).or_default();
        let of_queue = counts.queues.entry(Name::clone(&queue)).or_default();
        if is(status, Type::Finished) {
            of_local.finished += 1;
            of_queue.finished += 1;
            return;
        }
        if is(status, Type::Admitted) {
            if labelled && holder.is_some() {
                *of_local.admitted.entry(custom()).or_default() += 1;
                *of_queue.admitted.entry(custom()).or_default() += 1;
            }
        } else if self.config.on(Gate::UnadmittedWorkloadsObservability)
            && object.metadata.deletion_timestamp.is_none()
            && !queue.is_empty()
        {
            let (why, cause) = unadmitted_reason(status);
            *of_local.unadmitted.entry((queue, why.clone(), cause.clone())).or_default() += 1;
            *of_queue.unadmitted.entry((why, cause)).or_default() += 1;
        }
        if let Some((queue, active)) = self.scheduler.waits_in(key) {
            of_local.active += usize::from(active);
            let of_queue = counts.queues.entry(Name::clone(queue)).or_default();
            if labelled {
                let (in_heap, inactive) = of_queue.pending.entry(custom()).or_default();
                *if active { in_heap } else { inactive } += 1;
            }
            if self.config.cluster_queue_resource_metrics {
                self.add_requests(key, entry, &mut of_queue.asked);
            }
        }
    }

    fn add_requests(&self, key: &WorkloadKey, entry: &WorkloadEntry, asked: &mut BTreeMap<Name, Amount>) {
        let around = self.world.around(&key.namespace, &self.config);
        let (sets, _) = ingested::pod_sets(&entry.object, &entry.object.status, around, &self.config);
        for set in sets {
            for (resource, per_pod) in set.requests {
                let total = asked.entry(resource).or_insert(Amount::ZERO);
                *total = total.add(per_pod.saturating_mul(set.count));
            }
        }
    }
}

/// Why a workload is not admitted: the reasons of the conditions Admitted and QuotaReserved (docs/reference/05-metrics.md).
fn unadmitted_reason(status: &v1beta2::WorkloadStatus) -> (String, String) {
    let reason_of =
        |type_: Type| conditions::find(&status.conditions, type_.as_str()).map(|c| c.reason.clone());
    let why = reason_of(Type::Admitted).unwrap_or_else(|| reason::NO_RESERVATION.to_owned());
    if reserved(status) {
        return (why, String::new());
    }
    (why, reason_of(Type::QuotaReserved).unwrap_or_else(|| reason::PENDING_EVALUATION.to_owned()))
}
