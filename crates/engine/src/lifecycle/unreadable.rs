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

/// Whether a running job can be read except for its status: it runs on, and its pods are compared with the admitted ones, like those of any other
/// job. This does not apply to an object in whose place pods wait: each of its pods waits for admission itself.
pub(super) fn runs_as_it_says(view: &JobView) -> bool {
    view.status_unread && !view.suspended && !view.job.kind.gathers_pods()
}

impl JobEntry {
    /// Keeps the last readable version of a running job, when its next version cannot be read.
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
    /// A job with the pod sets that it was started with, although it cannot be read any more: without them a stop would not remove what the start
    /// injected. A manager that has not seen it before takes them from the Workload.
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
        // For a replaced slice not everything is known any more.
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

    /// Handles a job that cannot be read. A waiting job loses its Workload. A running job is stopped if its controller follows changes of its spec.
    pub(super) fn unreadable(&mut self, key: &JobKey, view: &Arc<JobView>, trouble: &str) {
        let runs = !view.suspended && view.template.is_none();
        if !runs {
            return self.lost_pods(key, view);
        }
        if key.kind.gathers_pods() || !key.kind.integration().follows_changes {
            return self.end_unread_run(key, view);
        }
        // Running may make it unreadable: it would be started and stopped endlessly.
        let now = self.now;
        if let Some(entry) = self.world.jobs.get_mut(key)
            && entry.held_until(now).is_none()
        {
            // Once may be a mistake of its user, who corrects it.
            let past = entry.trouble.get_or_insert_default();
            let again = past.other_pods.is_some();
            let error = if again { WriteError::Unstartable } else { WriteError::Transient };
            let error = error(trouble.to_owned());
            past.other_pods.get_or_insert_default().failed(Purpose::StopJob, &error, now);
        }
        self.halt(key, view);
    }

    /// Jobs that start no pods other than the admitted ones, whatever their spec says now, run on: objects in whose place pods wait, and kinds whose
    /// controllers follow no change. They are stopped when their Workload is evicted or deleted.
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
