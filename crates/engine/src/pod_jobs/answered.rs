//! The answers of writes on pods.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sluice_core::Name;

use crate::effect::{EffectId, Level, Purpose};
use crate::engine::{Alarm, Engine};
use crate::input::{Object, WriteError};
use crate::outbox::Open;
use crate::retry::Retry;
use crate::world::JobKey;

/// Retries of many pods come together: each of them alone would keep the others waiting for its answer. Milliseconds.
const STEP: i64 = 250;

/// The first step after a time.
pub(super) fn together(until: Timestamp) -> Timestamp {
    let late = until.as_millisecond().rem_euclid(STEP);
    until.checked_add(SignedDuration::from_millis(STEP - late)).unwrap_or(until)
}

impl Engine {
    /// A write on a pod was answered. If the pod is gone, only the success is reported.
    pub(crate) fn pod_answered(
        &mut self,
        id: EffectId,
        open: Open,
        result: Result<Option<Object>, WriteError>,
    ) {
        let name = &open.object.name;
        let key = self.world.job_key(&open.object);
        let job = key.as_ref().and_then(|key| self.world.pod_jobs.get_mut(key));
        // The pod may be a namesake.
        let known = job.filter(|job| job.open.get(name) == Some(&id));
        let Some((key, job)) = key.clone().zip(known) else {
            if result.is_ok() {
                self.outbox.extend(open.then);
            }
            return;
        };
        job.open.remove(name);
        if open.purpose == Purpose::StartJob
            && let Some(uid) = self.starts_no_longer(&key)
            && result.is_ok()
        {
            self.attempt_job_started(&uid);
        }
        match result {
            Ok(object) => self.pod_written(&key, open, object),
            Err(error) => self.pod_not_written(&key, &open, &error),
        }
        self.dirty.jobs.insert(key);
    }

    /// The start of one pod of a job is no longer open: it was answered, or the pod is gone. Returns the UID of the job if it was the last one:
    /// decisions about its Workload waited for that.
    pub(super) fn starts_no_longer(&mut self, key: &JobKey) -> Option<Name> {
        let job = self.world.pod_jobs.get_mut(key)?;
        job.starting -= 1;
        if job.starting > 0 {
            return None;
        }
        let uid = Arc::clone(&self.world.jobs.get(key)?.view.job.uid);
        self.dirty.workloads.extend(self.world.owned(&uid));
        Some(uid)
    }

    fn pod_written(&mut self, key: &JobKey, open: Open, object: Option<Object>) {
        let name = &open.object.name;
        let starts = matches!(&object, Some(Object::QueuedPod(member)) if !member.gated);
        if let Some(job) = self.world.pod_jobs.get_mut(key)
            && let Some(fare) = job.fares.get_mut(name)
        {
            fare.retry.succeeded(open.purpose);
            if open.purpose == Purpose::Read && std::mem::take(&mut fare.uncertain) && starts {
                fare.retry.succeeded(Purpose::StartJob);
            }
            if !fare.uncertain && !fare.retry.has_failed() {
                job.fares.remove(name);
            }
        }
        if let Some(object @ Object::QueuedPod(_)) = object
            && self.is_current(&open, &object)
        {
            self.observe_object(object);
        }
        self.outbox.extend(open.then);
    }

    fn pod_not_written(&mut self, key: &JobKey, open: &Open, error: &WriteError) {
        let usual = matches!(error, WriteError::Conflict(_) | WriteError::NotFound(_));
        let level = if usual { Level::Debug } else { Level::Warn };
        self.outbox.push(self.log(
            level,
            "write failed",
            &[("object", &open.object), ("purpose", &open.purpose), ("error", error)],
        ));
        if matches!(error, WriteError::NotFound(_)) {
            return self.forget_object(&open.object, None);
        }
        let now = self.now;
        let Some(job) = self.world.pod_jobs.get_mut(key) else { return };
        let name = &open.object.name;
        if let Some(uid) = job.pods.get(name).map(|member| member.uid.clone()) {
            job.pods.expect_no_longer(&uid);
        }
        let fare = job.fares.entry(name.clone()).or_default();
        fare.uncertain |= open.purpose == Purpose::StartJob && error.is_transient();
        let until = fare.retry.failed(open.purpose, error, now);
        if fare.retry.is_refused()
            && let Some(entry) = self.world.jobs.get(key)
        {
            // If it stops, no slice counts on the nodes of its Workload.
            let uid = Arc::clone(&entry.view.job.uid);
            self.dirty.workloads.extend(self.world.owned(&uid));
        }
        self.wake_at(together(until), Alarm::Job(key.clone()));
        self.note_outage(error, || Alarm::Job(key.clone()));
        self.report_failure(open, error);
        if open.purpose == Purpose::StartJob
            && let WriteError::Refused(why) = error
        {
            self.pod_start_refused(key, &open.object.name, why);
        }
    }

    /// The retry state of writes on a pod, if one failed.
    pub(crate) fn retry_of_pod(&mut self, open: &Open) -> Option<&mut Retry> {
        let key = self.world.job_key(&open.object)?;
        let fare = self.world.pod_jobs.get_mut(&key)?.fares.get_mut(&open.object.name)?;
        Some(&mut fare.retry)
    }
}
