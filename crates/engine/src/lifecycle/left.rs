//! A job that has left its queue is not managed any more. Until it has stopped or ended it keeps the quota that it holds: nothing runs on what others
//! may get.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::JobView;
use sluice_core::WorkloadKey;

use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::world::JobKey;

impl Engine {
    /// What is left of a job that has left its queue: a Workload that holds quota goes with what runs, one that waits goes at once.
    pub(super) fn leave_queue(&mut self, key: &JobKey, view: &Arc<JobView>) {
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
}
