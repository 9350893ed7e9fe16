//! The gauges of Workloads that wait in a ClusterQueue, and of what the last cycle skipped (docs/reference/05-metrics.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_api::config::SourceKind;
use sluice_api::gates::Gate;
use sluice_core::{ClusterQueueStatus, Detail, EntryReport, Name, Outcome};

use super::scrape::{LIGHT, Page};
use super::{PENDING_SCHEDULING_HASHES, PENDING_WORKLOADS, PREEMPTION_TARGET_RECOMPUTATIONS_TOTAL, number};
use crate::engine::Engine;
use crate::outbox::observe;

impl Engine {
    /// Waiting workloads of a ClusterQueue, by their custom labels if there are any: then `counted` has how many are in the heap, and how many are
    /// inactive. In an inactive queue none is active.
    pub(super) fn pending_gauges(
        &self,
        name: &Name,
        figures: &ClusterQueueStatus,
        counted: BTreeMap<Vec<Arc<str>>, (usize, usize)>,
        out: &mut Page<'_>,
    ) {
        let runs = figures.inactive.is_empty();
        if !self.custom.reads(SourceKind::Workload) {
            let all = figures.pending_active + figures.pending_inadmissible;
            let active = if runs { figures.pending_active } else { 0 };
            out.add(PENDING_WORKLOADS, &[name, "active"], number(active));
            out.add(PENDING_WORKLOADS, &[name, "inadmissible"], number(all - active));
            return;
        }
        for (custom, (active, inactive)) in counted {
            let looked_at = if runs { active } else { 0 };
            out.add_with(PENDING_WORKLOADS, &[name, "active"], number(looked_at), &custom);
            out.add_with(
                PENDING_WORKLOADS,
                &[name, "inadmissible"],
                number(active + inactive - looked_at),
                &custom,
            );
        }
    }

    /// Equivalence classes of the Workloads that wait in a ClusterQueue. In an inactive queue none is active.
    pub(super) fn class_gauges(&self, name: &Name, figures: &ClusterQueueStatus, out: &mut Page<'_>) {
        if !self.config.on(Gate::SchedulingEquivalenceHashing) {
            return;
        }
        let classes = self.scheduler.pending_classes(name).unwrap_or_default();
        out.looked_at(self.scheduler.classes(name) / LIGHT);
        let runs = figures.inactive.is_empty();
        let (active, inadmissible) =
            if runs { (classes.active, classes.inadmissible) } else { (0, classes.all) };
        out.add(PENDING_SCHEDULING_HASHES, &[name, "active"], number(active));
        out.add(PENDING_SCHEDULING_HASHES, &[name, "inadmissible"], number(inadmissible));
    }

    /// Notes which heads of a cycle preempt no Workload although victims were chosen for them, because other heads took those or
    /// the room beside them; and the outcome of the heads whose victims others took.
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
}
