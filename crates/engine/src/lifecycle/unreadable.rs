//! A job that cannot be read, or no longer: it is not known which pods it has.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::JobView;

use crate::effect::{EventType, Purpose};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::input::WriteError;
use crate::lifecycle::infos::add;
use crate::templates::pod_sets_of;
use crate::world::{JobEntry, JobKey, WorkloadEntry};

/// Why a job that can be read again is not queued at once.
const HELD: &str = "The job could not be read while it ran: it is queued again after a while";

/// Whether it is not known what pods a job has.
fn is_unread(view: &JobView) -> bool {
    view.invalid.is_some() && view.pod_sets.is_empty()
}

/// Whether a job runs of which all is known but its status: it runs on, and its pods are compared with those that were admitted, as those of any
/// other job. An object in whose place pods wait is none: each of its pods waits for an admission itself.
pub(super) fn runs_as_it_says(view: &JobView) -> bool {
    view.status_unread && !view.suspended && !view.job.kind.gathers_pods()
}

impl JobEntry {
    /// Keeps as what a job that runs was read last, once it cannot be read any more, which is its next state.
    pub(crate) fn keep_readable(&mut self, next: &JobView) {
        if !is_unread(next) {
            if let Some(trouble) = &mut self.trouble {
                trouble.readable = None;
            }
        } else if !self.view.suspended && !is_unread(&self.view) {
            self.trouble.get_or_insert_default().readable = Some(Arc::clone(&self.view));
        }
    }
}

impl Engine {
    /// A job with the pod sets that it was started with, although it cannot be read any more: without them a stop would leave there what the start put
    /// in. A manager that has not seen it before takes them from the Workload.
    pub(super) fn as_started(&self, key: &JobKey, view: &Arc<JobView>) -> Arc<JobView> {
        if !is_unread(view) {
            return Arc::clone(view);
        }
        let mut next = JobView::clone(view);
        let kept = self.world.jobs.get(key).and_then(|entry| entry.trouble.as_ref()?.readable.as_ref());
        if let Some(kept) = kept {
            next.pod_sets.clone_from(&kept.pod_sets);
            return Arc::new(next);
        }
        let owned = self.world.owned(&view.job.uid);
        let mut entries = owned.iter().map(|workload| &self.world.workloads[workload]);
        // Of a slice that was replaced not all is known any more.
        let started = |entry: &&WorkloadEntry| {
            entry.status().admission.is_some() && !is(entry.status(), Type::Finished)
        };
        if let Some(entry) = entries.find(started) {
            next.pod_sets = pod_sets_of(&entry.object);
            let added = self.start_infos(&entry.object, entry.status(), &next);
            for (set, info) in next.pod_sets.iter_mut().zip(&added) {
                add(&mut set.scheduling, &info.scheduling);
            }
        }
        Arc::new(next)
    }

    /// What becomes of a job that cannot be read. One that waits loses its Workload. One whose controller follows what it says by now is stopped.
    pub(super) fn unreadable(&mut self, key: &JobKey, view: &Arc<JobView>, trouble: &str) {
        let runs = !view.suspended && view.template.is_none();
        if !runs {
            return self.lost_pods(key, view);
        }
        if key.kind.gathers_pods() || !key.kind.integration().follows_changes {
            return self.end_unread_run(key, view);
        }
        // It may be its run that makes it so: it would be started and stopped for ever.
        let now = self.now;
        if let Some(entry) = self.world.jobs.get_mut(key)
            && entry.held_until(now).is_none()
        {
            // Once is a mistake of its user, who mends it.
            let past = entry.trouble.get_or_insert_default();
            let again = past.other_pods.is_some();
            let error = if again { WriteError::Unstartable } else { WriteError::Transient };
            let error = error(trouble.to_owned());
            past.other_pods.get_or_insert_default().failed(Purpose::StopJob, &error, now);
        }
        self.halt(key, view);
    }

    /// Where no pods start but those that were admitted, whatever the object says by now, they run on: pods that wait in its place, and those of kinds
    /// whose controllers follow no change. They are stopped when their Workload is evicted, or goes.
    fn end_unread_run(&mut self, key: &JobKey, view: &Arc<JobView>) {
        for workload in self.world.owned(&view.job.uid) {
            let entry = &self.world.workloads[&workload];
            if entry.open.is_some() || entry.decision.is_some() || entry.retry.waits(self.now) {
                continue;
            }
            if entry.object.metadata.deletion_timestamp.is_some() {
                return self.workload_leaves(key, view, &workload);
            }
            if is(entry.status(), Type::Evicted) {
                return self.end_eviction(key, view, &workload);
            }
        }
    }

    /// Whether a job that can be read again is not queued yet.
    pub(super) fn is_held_unqueued(&mut self, key: &JobKey, view: &JobView) -> bool {
        let held = self.world.jobs.get(key).and_then(|entry| entry.held_until(self.now));
        let Some(until) = held.filter(|_| view.template.is_none()) else { return false };
        self.report_job(key, view, EventType::Warning, "ErrWorkloadCompose", HELD);
        self.wake_at(until, Alarm::Job(key.clone()));
        true
    }
}
