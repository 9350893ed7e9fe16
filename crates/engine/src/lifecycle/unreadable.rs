//! A job that cannot be read, or not any more: what pods it has is not known.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::job::JobView;

use crate::effect::{EventType, Purpose};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::is;
use crate::input::WriteError;
use crate::world::JobKey;

/// Why a job that can be read again is not queued at once.
const HELD: &str = "The job could not be read while it ran: it is queued again after a while";

impl Engine {
    /// What becomes of a job that cannot be read. One that waits loses its Workload. One whose controller follows what it says by now is stopped.
    pub(super) fn unreadable(&mut self, key: &JobKey, view: &Arc<JobView>, trouble: &str) {
        let runs = !view.suspended && view.template.is_none();
        if runs && key.kind.gathers_pods() {
            return self.end_unread_pods(key, view);
        }
        if !runs || !key.kind.integration().follows_changes {
            return self.lost_pods(key, view);
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

    /// Pods that wait in the place of an object are those that were admitted, whatever it says by now: no other starts. They are stopped when
    /// their Workload is evicted, or goes.
    fn end_unread_pods(&mut self, key: &JobKey, view: &Arc<JobView>) {
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
