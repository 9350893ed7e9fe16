//! A finished Workload: its finalizer is removed, and it is deleted when its retention is over (docs/reference/06-algorithm.md 6.19).

use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::labels;
use sluice_core::WorkloadKey;

use super::workload::later;
use crate::effect::Purpose;
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::outbox::{About, normal};
use crate::world::WorkloadEntry;

/// How many finalizers of finished Workloads are removed at once: a manager that starts may find thousands.
const MOST_RELEASES: usize = 16;

impl Engine {
    /// What a finished Workload needs.
    pub(super) fn reconcile_finished(&mut self, key: &WorkloadKey) {
        // Why it waited is not reported any more.
        self.reported(key);
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.reason = None;
        }
        if self.release_finished(key) {
            return;
        }
        self.retain(key);
    }

    /// Removes the finalizer of a finished Workload, once nothing has to be restored from it. Returns whether it did, or waits for that.
    fn release_finished(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let finalizers = entry.object.metadata.finalizers.as_deref().unwrap_or_default();
        let held = finalizers.iter().any(|f| f == labels::RESOURCE_IN_USE_FINALIZER);
        let stray = self.is_stray(entry) && !super::slices::is_superseded(&entry.object);
        if !held || !is(&entry.object.status, Type::Finished) || stray {
            self.unreleased.remove(key);
            return false;
        }
        if self.releasing >= MOST_RELEASES {
            self.unreleased.insert(key.clone());
            return true;
        }
        self.unreleased.remove(key);
        self.drop_finalizer_as(key, Purpose::ReleaseFinished);
        self.releasing +=
            usize::from(self.world.workloads.get(key).is_some_and(|entry| entry.open.is_some()));
        true
    }

    /// A finalizer was removed: the next one's turn.
    pub(crate) fn released_finished(&mut self) {
        self.releasing = self.releasing.saturating_sub(1);
        if let Some(next) = self.unreleased.pop_first() {
            self.dirty.workloads.insert(next);
        }
    }

    /// Whether a Workload is finished while its job may still run, so that the job is stopped and restored from it.
    fn is_stray(&self, entry: &WorkloadEntry) -> bool {
        let job = self.world.job_of(entry).and_then(|job| self.world.jobs.get(&job));
        job.is_some_and(|job| job.view.finished.is_none() && (!job.view.suspended || job.view.stopping))
            && conditions::find(&entry.object.status.conditions, Type::Finished.as_str())
                .is_some_and(|c| matches!(c.reason.as_str(), reason::OUT_OF_SYNC | reason::FAILED_TO_START))
    }

    /// Deletes a finished Workload whose retention is over.
    fn retain(&mut self, key: &WorkloadKey) {
        let Some(seconds) = self.config.retention_after_finished_seconds else { return };
        let entry = &self.world.workloads[key];
        let Some(since) = conditions::true_since(&entry.status().conditions, Type::Finished.as_str()) else {
            return;
        };
        let until = later(since, seconds);
        if until > self.now {
            return self.wake_at(until, Alarm::Workload(key.clone()));
        }
        let note = "Deleted finished workload due to elapsed retention";
        let uid = entry.uid();
        let reported = normal(About::workload(key, &uid), "Deleted", note);
        self.delete_workload(key, vec![reported]);
    }
}
