//! A job that has left its queue is no longer managed. It keeps its quota until it has stopped or ended, so that nothing runs on quota that is given
//! to others.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::JobView;
use sluice_core::WorkloadKey;

use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::world::JobKey;

impl Engine {
    /// Cleans up after a job that has left its queue: a Workload with quota is deleted when the job ends, a waiting one at once.
    pub(super) fn leave_queue(&mut self, key: &JobKey, view: &Arc<JobView>) {
        self.slim_unmanaged(key);
        let mut unfinished = self.world.owned(&view.job.uid);
        unfinished.retain(|w: &WorkloadKey| !is(self.world.workloads[w].status(), Type::Finished));
        if unfinished.is_empty() || view.suspended && view.finished.is_none() {
            return self.remove_former_workloads(key, view);
        }
        let is_prebuilt = view.prebuilt_workload.is_some();
        for workload in unfinished {
            let entry = &self.world.workloads[&workload];
            if entry.open.is_some() || entry.decision.is_some() || entry.retry.waits(self.now) {
                continue;
            }
            let (status, leaves) = (entry.status(), entry.object.metadata.deletion_timestamp.is_some());
            let holds = reserved(status);
            if let Some(end) = &view.finished {
                self.job_finished(key, view, &workload, end);
            } else if holds && leaves {
                self.workload_leaves(key, view, &workload);
            } else if holds && is(status, Type::Evicted) {
                self.end_eviction(key, view, &workload);
            } else if !holds && !is_prebuilt {
                self.delete_workload(&workload, Vec::new());
            }
            if self.world.jobs.get(key).is_none_or(|job| job.open.is_some()) {
                return;
            }
        }
    }

    /// Deletes the former Workloads of a suspended job that is no longer managed or cannot be read, so that nothing holds quota for it. Quota that
    /// its pods still use is kept until they are gone.
    pub(crate) fn remove_former_workloads(&mut self, key: &JobKey, view: &Arc<JobView>) {
        let owned = self.world.owned(&view.job.uid);
        if owned.is_empty() || !view.suspended || self.is_active(key) {
            return;
        }
        for workload in owned {
            if view.prebuilt_workload.is_some() {
                self.end_prebuilt(key, view, &workload);
            } else {
                self.delete_workload(&workload, Vec::new());
            }
        }
    }

    /// The same for a prebuilt Workload, which is not deleted. If the job's template may exist and is not kept, the Workload only gives its quota
    /// back if it is evicted.
    pub(super) fn end_prebuilt(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let waits = entry.open.is_some() || entry.decision.is_some() || entry.retry.waits(self.now);
        if waits || is(entry.status(), Type::Finished) {
            return;
        }
        if entry.object.metadata.deletion_timestamp.is_some() {
            return self.drop_finalizer(workload);
        }
        let template = view.template.as_ref().filter(|_| view.invalid.is_some());
        if template.is_some_and(|used| self.world.templates.may_lack(&used.object)) {
            return self.end_eviction(key, view, workload);
        }
        self.finish_out_of_sync(workload);
    }
}
