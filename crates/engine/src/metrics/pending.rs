//! The gauges of what waits: by LocalQueue, by resource, and what the last cycle skipped (reference 05).

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::{Amount, Detail, EntryReport, Name, Outcome};

use super::{
    ADMISSION_CYCLE_PREEMPTION_SKIPS, CLUSTER_QUEUE_RESOURCE_PENDING, LOCAL_QUEUE_PENDING_WORKLOADS,
    PREEMPTION_TARGET_RECOMPUTATIONS_TOTAL, Snapshot, base_units, number,
};
use crate::engine::Engine;
use crate::ingest::workload::{self as ingested, is, reserved};
use crate::outbox::observe;
use sluice_api::conditions::WorkloadCondition as Type;

impl Engine {
    /// Waiting workloads of each LocalQueue: those that are looked at, and those that are parked.
    pub(super) fn local_pending_gauges(&self, out: &mut Snapshot) {
        let mut active: BTreeMap<(Name, Name), usize> = BTreeMap::new();
        for name in self.world.cluster_queues.keys() {
            let Some(figures) = self.scheduler.cluster_queue_status(name) else { continue };
            // Putting a queue in order costs more than counting it: only where that tells something.
            if figures.pending_active == 0 {
                continue;
            }
            for place in self.scheduler.positions(name).into_iter().filter(|place| place.active) {
                *active.entry((Arc::clone(&place.key.namespace), place.local_queue)).or_default() += 1;
            }
        }
        for ((namespace, name), queue) in &self.world.local_queues {
            if !self.is_measured(queue) {
                continue;
            }
            let Some(figures) = self.scheduler.local_queue_status(namespace, name) else { continue };
            let looked_at = active.get(&(Arc::clone(namespace), Arc::clone(name))).copied().unwrap_or(0);
            let parked = figures.pending.saturating_sub(looked_at);
            out.add(LOCAL_QUEUE_PENDING_WORKLOADS, &[name, namespace, "active"], number(looked_at));
            out.add(LOCAL_QUEUE_PENDING_WORKLOADS, &[name, namespace, "inadmissible"], number(parked));
        }
    }

    /// What the waiting workloads of each ClusterQueue ask for.
    pub(super) fn pending_resource_gauges(&self, out: &mut Snapshot) {
        let mut asked: BTreeMap<(Name, Name), Amount> = BTreeMap::new();
        for (key, entry) in &self.world.workloads {
            let (object, status) = (&entry.object, &entry.object.status);
            if is(status, Type::Finished) || reserved(status) || !object.spec.active {
                continue;
            }
            let Some(queue) = self.world.cluster_queue_of(key, object) else { continue };
            let around = self.world.around(&key.namespace, &self.config);
            let (sets, _) = ingested::pod_sets(object, status, around, &self.config);
            for set in sets {
                for (resource, per_pod) in set.requests {
                    let total = asked.entry((Arc::clone(&queue), resource)).or_insert(Amount::ZERO);
                    *total = total.add(per_pod.saturating_mul(set.count));
                }
            }
        }
        for ((queue, resource), amount) in asked {
            out.add(CLUSTER_QUEUE_RESOURCE_PENDING, &[&queue, &resource], base_units(&resource, amount));
        }
    }

    /// Notes which heads of a cycle preempt nobody although victims were chosen for them, because others took those or
    /// the room beside them; and what those did instead whose victims others took.
    pub(crate) fn count_skips(&mut self, entries: &[EntryReport]) {
        self.preemption_skips.clear();
        for entry in entries {
            let detail = match &entry.outcome {
                Outcome::Unadmitted(why) => Some(&why.detail),
                _ => None,
            };
            let queue = &entry.cluster_queue;
            let crowded_out = detail == Some(&Detail::NoLongerFits) && entry.has_targets;
            if crowded_out || detail == Some(&Detail::OverlappingTargets) {
                *self.preemption_skips.entry(Arc::clone(queue)).or_default() += 1;
            }
            let result = match detail {
                Some(Detail::OverlappingTargets) => "skipped",
                Some(Detail::DeferredFit) => "deferred_fit",
                _ if entry.new_targets => "new_targets",
                _ => continue,
            };
            self.outbox.push(observe(PREEMPTION_TARGET_RECOMPUTATIONS_TOTAL, &[queue, result], 1.0));
        }
    }

    /// What the last cycle skipped.
    pub(super) fn skip_gauges(&self, out: &mut Snapshot) {
        for name in self.world.cluster_queues.keys() {
            let skipped = self.preemption_skips.get(name).copied().unwrap_or(0);
            out.add(ADMISSION_CYCLE_PREEMPTION_SKIPS, &[name], number(skipped));
        }
    }
}
