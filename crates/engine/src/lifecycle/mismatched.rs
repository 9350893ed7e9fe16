//! A job whose Workload does not describe it, or for which no Workload can be made.

use std::sync::Arc;

use sluice_api::job::JobView;
use sluice_core::WorkloadKey;

use super::infos::restore_infos;
use super::matching::OwnWorkload;
use crate::effect::EventType;
use crate::engine::Engine;
use crate::ingest::workload::reserved;
use crate::outbox::normal;
use crate::world::JobKey;

impl Engine {
    /// A job's only Workload does not describe it: it is updated if it holds nothing, and otherwise goes once the job is stopped. Says whether
    /// it stays for now.
    pub(super) fn keeps_mismatched(&mut self, key: &JobKey, view: &Arc<JobView>, only: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[only];
        if view.suspended && !view.stopping && !reserved(entry.status()) {
            if !entry.retry.waits(self.now) {
                self.update_workload(key, view, only);
            }
            return true;
        }
        // The templates are restored from the Workload that no longer matches, before it goes.
        if !view.suspended && view.finished.is_none() {
            let note = "No matching Workload; restoring pod templates according to existent Workload";
            let infos = restore_infos(&entry.object);
            self.stop_job(key, view, infos, note, &[]);
            return true;
        }
        self.is_active(key)
    }

    /// The same for the slice of an elastic job.
    pub(super) fn mismatched(
        &mut self,
        key: &JobKey,
        view: &Arc<JobView>,
        workload: &WorkloadKey,
    ) -> OwnWorkload {
        if !self.keeps_mismatched(key, view, workload) {
            let note = format!("Deleted not matching Workload: {workload}");
            let reported = normal(self.about_job(key, view), "DeletedWorkload", note);
            self.delete_workload(workload, vec![reported]);
        }
        OwnWorkload::Wait
    }

    /// Reports that no Workload can be made of a job.
    pub(super) fn report_uncomposed(&mut self, key: &JobKey, view: &JobView, trouble: &str) {
        let class = view.workload_priority_class.is_some();
        let why = if class { "WorkloadPriorityClassNotFound" } else { "ErrWorkloadCompose" };
        self.report_job(key, view, EventType::Warning, why, trouble);
    }

    /// A job that names a queue in a namespace whose jobs are not managed stays suspended, and gets no Workload.
    pub(super) fn report_unmanaged_namespace(&mut self, key: &JobKey, view: &JobView) {
        let namespace = &view.job.namespace;
        if self.world.namespaces.contains_key(namespace) {
            let note = format!(
                "The job stays suspended: managedJobsNamespaceSelector does not select the namespace {namespace}"
            );
            self.report_job(key, view, EventType::Warning, "ErrWorkloadCompose", &note);
        }
    }
}
