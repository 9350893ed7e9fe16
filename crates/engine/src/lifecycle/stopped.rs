//! How a workload's run ends: evicted, deleted, finished, or never started (docs/reference/06-algorithm.md 6.17 and 6.19).

use std::sync::Arc;

use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::job::{JobFinished, JobView};
use sluice_core::WorkloadKey;

use super::infos::restore_infos;
use super::transition;
use crate::answers::workload_key;
use crate::effect::{Level, Purpose};
use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::outbox::{About, normal, warning};
use crate::pod_jobs::index::PodJob;
use crate::world::{JobKey, workload_ref};

impl Engine {
    /// An evicted workload: its job stops, and when none of its pods is active any more the quota is given back.
    pub(crate) fn end_eviction(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        let entry = &self.world.workloads[workload];
        let evicted = conditions::find(&entry.status().conditions, Type::Evicted.as_str()).cloned();
        let Some(evicted) = evicted else { return };
        if !view.suspended || view.stopping {
            let infos = restore_infos(&entry.object);
            return self.stop_job(key, view, infos, &evicted.message, &[]);
        }
        if !reserved(entry.status()) {
            return;
        }
        if self.is_active(key) && self.keeps_until_overdue(key, &view.job.uid, workload) {
            return;
        }
        self.release_evicted(workload, &evicted.reason);
    }

    /// None of the pods of an evicted Workload is active any more.
    fn release_evicted(&mut self, workload: &WorkloadKey, why: &str) {
        self.left.forget(workload);
        let entry = &self.world.workloads[workload];
        let queue = entry.status().admission.as_ref().map(|a| a.cluster_queue.clone()).unwrap_or_default();
        let mut next = entry.status().clone();
        transition::release(&mut next, self.at(&entry.object));
        let then = vec![self.log(
            Level::Info,
            "quota released",
            &[("workload", workload), ("queue", &queue), ("reason", &why)],
        )];
        self.write_status(workload, Purpose::ReleaseQuota, next, then);
    }

    /// A Workload with quota whose job is left out, because it made the engine panic: once that is evicted and has stopped, or is over, its pods are
    /// looked for, and when there are none the quota is given back. Returns whether nothing else is to be done.
    pub(super) fn end_left_out(&mut self, workload: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[workload];
        let Some(job) = self.left_out(entry).and_then(|aside| aside.job.as_ref()) else { return false };
        let evicted = conditions::find(&entry.status().conditions, Type::Evicted.as_str());
        let evicted = evicted.filter(|evicted| evicted.status == "True" && job.seems_stopped());
        let evicted = evicted.map(|evicted| evicted.reason.clone());
        let view = Arc::clone(&job.view);
        if view.finished.is_none() && evicted.is_none() {
            return false;
        }
        if self.keeps_for_left(workload) {
            // The pause of an evicted one may end meanwhile.
            return view.finished.is_some();
        }
        if let Some(finished) = &view.finished {
            self.declare_finished(&JobKey::of(&view.job), &view, workload, finished);
        } else {
            self.release_evicted(workload, &evicted.unwrap_or_default());
        }
        true
    }

    /// A Workload is being deleted: its job stops, then it loses our finalizer.
    pub(crate) fn workload_leaves(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        if self.world.pod_jobs.contains_key(key) && self.stop_pods(key, view, "Workload is deleted") {
            return;
        }
        let running = view.finished.is_none();
        if running && (!view.suspended || view.stopping) {
            let infos = restore_infos(&self.world.workloads[workload].object);
            return self.stop_job(key, view, infos, "Workload is deleted", &[]);
        }
        if !self.has_pods_after_end(key, view) || !self.keeps_until_overdue(key, &view.job.uid, workload) {
            self.drop_finalizer(workload);
        }
    }

    /// Whether pods of a stopped or ended job may still run: its status shows some, or its controller leaves them running.
    fn has_pods_after_end(&mut self, key: &JobKey, view: &JobView) -> bool {
        self.is_active(key) || view.finished.is_some() && self.is_outlived(key, view)
    }

    /// A finished Workload: a job that continues without a Workload is stopped; one that Kueue deactivated may be deleted.
    pub(crate) fn after_finish(&mut self, key: &JobKey, view: &Arc<JobView>, workload: &WorkloadKey) {
        if self.release_pods(key) {
            return;
        }
        let entry = &self.world.workloads[workload];
        let why =
            conditions::find(&entry.status().conditions, Type::Finished.as_str()).map(|c| c.reason.as_str());
        let stray = matches!(why, Some(reason::OUT_OF_SYNC | reason::FAILED_TO_START));
        if stray && view.finished.is_none() && !view.suspended {
            let infos = restore_infos(&entry.object);
            return self.stop_job(
                key,
                view,
                infos,
                "No matching Workload; restoring pod templates according to existent Workload",
                &[],
            );
        }
        if entry.object.metadata.deletion_timestamp.is_some() {
            self.drop_finalizer(workload);
        } else if stray {
            // Nothing has to be restored from it any more.
            self.dirty.workloads.insert(workload.clone());
        } else if view.finished.is_some() && view.ending && view.stopping {
            // A job that completed before its stop was complete keeps nothing of the stop either. Its quota is free by now, whatever the outcome.
            self.let_end(key, view);
        }
    }

    /// A job ended: so does its Workload, and with it the reservation, once its pods are gone.
    pub(crate) fn job_finished(
        &mut self,
        key: &JobKey,
        view: &JobView,
        workload: &WorkloadKey,
        finished: &JobFinished,
    ) {
        if self.has_pods_after_end(key, view) && self.keeps_until_overdue(key, &view.job.uid, workload) {
            return;
        }
        self.declare_finished(key, view, workload, finished);
    }

    /// A job ended, and none of its pods is active any more.
    fn declare_finished(
        &mut self,
        key: &JobKey,
        view: &JobView,
        workload: &WorkloadKey,
        finished: &JobFinished,
    ) {
        let entry = &self.world.workloads[workload];
        let why = if finished.success { reason::SUCCEEDED } else { reason::FAILED };
        let mut next = entry.status().clone();
        transition::finish(&mut next, why, &finished.message, self.at(&entry.object));
        let queue = next.admission.as_ref().map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        let note = format!("Workload '{workload}' is declared finished");
        let then = vec![
            normal(self.about_job(key, view), "FinishedWorkload", note),
            self.log(
                Level::Info,
                "workload finished",
                &[("workload", workload), ("queue", &queue), ("reason", &why)],
            ),
        ];
        self.write_status(workload, Purpose::Finish, next, then);
    }

    /// The API server refuses the start of a job, as a policy or another webhook may have it: its quota is not held for good. It is tried again
    /// later each time, when it has quota again.
    pub(crate) fn start_refused(&mut self, key: &JobKey, why: &str) {
        let refused = self.world.jobs.get(key).is_some_and(|entry| entry.retry.is_refused());
        if refused
            && self.evict_unstarted(key, why)
            && let Some(entry) = self.world.jobs.get_mut(key)
        {
            // It waits for quota from now on.
            entry.retry.end_wait();
        }
    }

    /// The same for one of the pods of a job, even if other pods run: a part of the pods is of no use.
    pub(crate) fn pod_start_refused(&mut self, key: &JobKey, pod: &str, why: &str) {
        let fare = |job: &PodJob| job.fares.get(pod).is_some_and(|fare| fare.retry.is_refused());
        if self.world.pod_jobs.get(key).is_some_and(fare)
            && self.evict_unstarted(key, why)
            && let Some(job) = self.world.pod_jobs.get_mut(key)
        {
            for fare in job.fares.values_mut().filter(|fare| fare.retry.is_refused()) {
                fare.retry.end_wait();
            }
        }
    }

    /// Evicts a job that cannot be started; says whether it did.
    pub(super) fn evict_unstarted(&mut self, key: &JobKey, why: &str) -> bool {
        let Some(entry) = self.world.jobs.get(key) else { return false };
        let owned = self.world.owned(&entry.view.job.uid);
        owned.iter().any(|workload| self.evict_refused(workload, why))
    }

    /// Evicts a Workload whose job cannot be started, if it is admitted and nothing is under way with it; says whether it did.
    pub(super) fn evict_refused(&mut self, workload: &WorkloadKey, why: &str) -> bool {
        let entry = &self.world.workloads[workload];
        let status = entry.status();
        let is_free = entry.open.is_none() && entry.decision.is_none();
        let holds = is(status, Type::Admitted) && !is(status, Type::Finished) && !is(status, Type::Evicted);
        if is_free && holds {
            let message = format!("The start of the job is refused: {why}");
            self.evict_for_a_while(workload, reason::FAILED_TO_START, message);
        }
        is_free && holds
    }

    /// The start patch of a job cannot be made: its workload has failed (docs/reference/03-conditions-events.md, `FailedToStart`).
    pub(crate) fn unstartable(&mut self, key: &JobKey, why: &str) {
        let Some(entry) = self.world.jobs.get(key) else { return };
        let uid = Arc::clone(&entry.view.job.uid);
        let owned = self.world.owned(&uid);
        // A replaced slice does not count.
        let runs = |workload: &&WorkloadKey| {
            let status = self.world.workloads[*workload].status();
            is(status, Type::Admitted) && !is(status, Type::Finished)
        };
        let Some(workload) = owned.iter().find(runs) else { return };
        let entry = &self.world.workloads[workload];
        if entry.open.is_some() {
            return;
        }
        let mut next = entry.status().clone();
        transition::finish(&mut next, reason::FAILED_TO_START, why, self.at(&entry.object));
        let reported = vec![
            warning(
                About::new(&workload_ref(workload), &entry.uid(), key.kind.integration().reporter),
                reason::FAILED_TO_START,
                why,
            ),
            self.log(Level::Warn, "job cannot be started", &[("job", &key.object()), ("why", &why)]),
        ];
        let workload = workload_key(&workload_ref(workload));
        self.write_status(&workload, Purpose::Finish, next, reported);
    }
}
