//! Handles the answers of writes.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::WorkloadKey;

use crate::effect::{EffectId, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::{is, reserved};
use crate::input::{Kind, Object, ObjectRef, WriteError};
use crate::lost_answer::LostAnswer;
use crate::metrics;
use crate::outbox::{Open, observe};
use crate::pod_jobs::index::pod_key;
use crate::retry::Retry;
use crate::unreported::PendingMessage;
use crate::unstoppable::Restores;
use crate::version::is_overtaken;
use crate::world::{Decision, job_key, workload_ref};

/// Whether the object is known, and not in a newer version.
fn current(known: Option<&ObjectMeta>, answer: &ObjectMeta) -> bool {
    known.is_some() && !is_overtaken(known, answer)
}

impl Engine {
    /// A write was answered.
    pub(crate) fn answered(&mut self, id: EffectId, result: Result<Option<Object>, WriteError>) {
        let Some(open) = self.outbox.close(id) else { return };
        self.outage_ends(id, &result);
        let result = self.if_kept(&open, result);
        if open.purpose == Purpose::SuspendJob && self.aside_answered(id, &open, &result) {
            return;
        }
        if let Some(gate) = open.gate.as_ref().filter(|_| result.is_ok()) {
            let waited = metrics::seconds_between(gate.since, self.now);
            let seen = observe(metrics::POD_SCHEDULING_GATE_REMOVAL_SECONDS, &gate.labels(), waited);
            self.outbox.push(seen);
        }
        if open.job.is_none() && pod_key(&open.object).is_some() {
            return self.pod_answered(id, open, result);
        }
        if open.object.kind == Kind::JobPod {
            if result.is_ok() {
                self.outbox.extend(open.then.clone());
            }
            return self.job_pod_answered(id, &open, result);
        }
        if open.purpose == Purpose::EndPods && open.object.kind == Kind::Namespace {
            return self.looked_for_left(id, &open, result);
        }
        if open.purpose == Purpose::EndPods {
            return self.looked_for_pods(id, &open, result);
        }
        if open.purpose == Purpose::ReleaseFinished {
            self.released_finished();
        }
        if matches!(open.purpose, Purpose::Pend | Purpose::Bypassed) {
            self.report_answered();
        }
        if open.purpose == Purpose::Reclaim && result.is_err() {
            self.reclaimable_not_taken(&workload_key(&open.object));
        }
        if open.purpose == Purpose::StartJob
            && let Some(job) = job_key(&open.object).and_then(|key| self.world.jobs.get(&key))
        {
            // Decisions about its Workload waited for this answer.
            let uid = std::sync::Arc::clone(&job.view.job.uid);
            self.dirty.workloads.extend(self.world.owned(&uid));
            if result.is_ok() {
                self.attempt_job_started(&uid);
            }
        }
        match result {
            Ok(object) => self.succeeded(id, open, object),
            Err(WriteError::Withdrawn) => {
                self.end_wait(id, &open);
                self.touch(&open.object);
            }
            Err(error) => self.failed(id, &open, &error),
        }
    }

    /// Ends the waiting for a write on its object, and gives how its writes fare.
    fn end_wait(&mut self, id: EffectId, open: &Open) -> Option<&mut Retry> {
        let waits_for = self.open_of(open)?;
        if *waits_for != Some(id) {
            return None;
        }
        *waits_for = None;
        if open.job.is_none() && open.object.kind == Kind::Workload {
            self.world.assume_nothing(&workload_key(&open.object));
        }
        self.retry_of(open)
    }

    /// The write that an object, or the job that it is made for, waits for.
    fn open_of(&mut self, open: &Open) -> Option<&mut Option<EffectId>> {
        if let Some(key) = open.job.clone().or_else(|| job_key(&open.object)) {
            return Some(&mut self.world.jobs.get_mut(&key)?.open);
        }
        match open.object.kind {
            Kind::Workload => Some(&mut self.world.workloads.get_mut(&workload_key(&open.object))?.open),
            _ => Some(&mut self.statuses.get_mut(&open.object)?.open),
        }
    }

    /// How the writes fare that a write belongs to.
    pub(crate) fn retry_of(&mut self, open: &Open) -> Option<&mut Retry> {
        if open.job.is_none() && pod_key(&open.object).is_some() {
            return self.retry_of_pod(open);
        }
        if let Some(key) = open.job.clone().or_else(|| job_key(&open.object)) {
            return Some(&mut self.world.jobs.get_mut(&key)?.retry);
        }
        match open.object.kind {
            Kind::Workload => {
                let entry = self.world.workloads.get_mut(&workload_key(&open.object))?;
                if open.purpose.is_report() {
                    return Some(&mut entry.reports);
                }
                Some(&mut entry.retry)
            }
            Kind::JobPod => self.retry_of_job_pod(open),
            _ => Some(&mut self.statuses.get_mut(&open.object)?.retry),
        }
    }

    fn succeeded(&mut self, id: EffectId, open: Open, object: Option<Object>) {
        if let Some(retry) = self.end_wait(id, &open) {
            retry.succeeded(open.purpose);
            self.made_for_workload(&open);
        }
        if open.purpose != Purpose::Read
            && open.object.kind == Kind::Workload
            && let Some(entry) = self.world.workloads.get_mut(&workload_key(&open.object))
        {
            // This write reports it.
            entry.lost_answer = None;
            // It is in another state: what could not be reported before does not hold back what is to be reported now.
            if !open.purpose.is_report() {
                entry.reports = Retry::default();
            }
        }
        if let Some(object) = object
            && self.is_current(&open, &object)
        {
            self.observe_object(object);
        }
        if open.purpose == Purpose::StartJob
            && let Some(entry) = job_key(&open.object).and_then(|key| self.world.jobs.get_mut(&key))
        {
            entry.restores = Restores::default();
        }
        if open.purpose == Purpose::SuspendJob
            && let Some(entry) = job_key(&open.object).and_then(|key| self.world.jobs.get_mut(&key))
        {
            entry.suspend_is_not_refused();
        }
        if open.purpose == Purpose::ReserveQuota
            && let Some(entry) = self.world.workloads.get_mut(&workload_key(&open.object))
        {
            entry.unchecked = false;
        }
        if open.object.kind == Kind::Workload
            && let Some(entry) = self.world.workloads.get_mut(&workload_key(&open.object))
        {
            entry.inherited = false;
        }
        if open.purpose == Purpose::Read && open.object.kind == Kind::Workload {
            self.settle_reservation(&workload_key(&open.object));
        }
        if open.purpose == Purpose::Read
            && let Some(entry) = job_key(&open.object).and_then(|key| self.world.jobs.get_mut(&key))
            && std::mem::take(&mut entry.uncertain)
            && !entry.view.suspended
        {
            entry.retry.succeeded(Purpose::StartJob);
        }
        self.note_deletion(&open);
        if open.purpose == Purpose::DeletePod {
            // If a finalizer still holds it, its watch shows that.
            self.forget_terminating(&open.object);
        }
        if open.purpose == Purpose::UpdateChild {
            self.touch_parent(&open.object);
        }
        self.outbox.extend(open.then);
        if let Some(Decision::Evict(_, more)) = open.decision.map(|decision| *decision) {
            self.outbox.extend(more);
        }
        self.touch(&open.object);
        if let Some(job) = open.job {
            self.dirty.jobs.insert(job);
        }
    }

    /// Whether an answer is about an object that still exists, and no newer version of it was seen meanwhile, so that neither a deleted object nor an
    /// older version comes back. Jobs and Workloads compare their versions themselves.
    pub(crate) fn is_current(&self, open: &Open, object: &Object) -> bool {
        match object {
            Object::Workload(w) if !open.finds => {
                let entry = self.world.workloads.get(&workload_key(&open.object));
                entry.is_some_and(|e| e.object.metadata.uid == w.metadata.uid)
            }
            Object::Job(view) => {
                let entry = job_key(&open.object).and_then(|k| self.world.jobs.get(&k));
                entry.is_some_and(|e| e.view.job.uid == view.job.uid)
            }
            Object::QueuedPod(member) => {
                self.world.member(&open.object).is_some_and(|(_, known)| known.uid == member.uid)
            }
            Object::ClusterQueue(queue) => current(
                self.world.cluster_queues.get(&open.object.name).map(|q| &q.metadata),
                &queue.metadata,
            ),
            Object::ResourceFlavor(flavor) => {
                current(self.world.flavors.get(&open.object.name).map(|f| &f.metadata), &flavor.metadata)
            }
            Object::AdmissionCheck(check) => {
                current(self.world.checks.get(&open.object.name).map(|c| &c.metadata), &check.metadata)
            }
            Object::Topology(topology) => {
                current(self.world.topologies.get(&open.object.name).map(|t| &t.metadata), &topology.metadata)
            }
            Object::Cohort(cohort) => {
                current(self.world.cohorts.get(&open.object.name).map(|c| &c.metadata), &cohort.metadata)
            }
            Object::LocalQueue(queue) => {
                let key = (Arc::clone(&open.object.namespace), Arc::clone(&open.object.name));
                current(self.world.local_queues.get(&key).map(|q| &q.metadata), &queue.metadata)
            }
            _ => true,
        }
    }

    /// Reconciles the job that waits for a write on a job that it controls.
    fn touch_parent(&mut self, child: &ObjectRef) {
        if let Some(entry) = job_key(child).and_then(|key| self.world.jobs.get(&key)) {
            self.dirty.jobs.extend(self.above(&entry.view));
        }
    }

    fn failed(&mut self, id: EffectId, open: &Open, error: &WriteError) {
        let (now, about_known) = (self.now, self.is_about_known(open));
        let expected = self.expected_of(id, open);
        let retry =
            self.end_wait(id, open).map(|retry| (retry.failed(open.purpose, error, now), retry.is_lost()));
        let (until, lost) = retry.unzip();
        let job = job_key(&open.object).filter(|_| about_known);
        if let Some(entry) = job.and_then(|key| self.world.jobs.get_mut(&key)) {
            entry.stop_failed = matches!(open.purpose, Purpose::StopJob | Purpose::SuspendJob);
            if open.purpose == Purpose::SuspendJob {
                entry.suspend_failed(error);
            }
            // A refused deletion is no reason not to try the other way again.
            if open.purpose == Purpose::DeleteChild && matches!(error, WriteError::Refused(_)) {
                entry.suspend_is_not_refused();
            }
            if open.purpose == Purpose::StopJob && matches!(error, WriteError::Refused(_)) {
                entry.stop_refused();
            }
            if entry.stop_failed && entry.retry.is_refused() {
                // No slice counts on the nodes of its Workload.
                let uid = Arc::clone(&entry.view.job.uid);
                self.dirty.workloads.extend(self.world.owned(&uid));
            }
        }
        let usual = match error {
            WriteError::Conflict(_) => true,
            // It was deleted meanwhile.
            WriteError::NotFound(_) => !creates(open),
            _ => false,
        };
        let level = if usual { Level::Debug } else { Level::Warn };
        self.outbox.push(self.log(
            level,
            "write failed",
            &[("object", &open.object), ("purpose", &open.purpose), ("error", error)],
        ));
        if open.object.kind == Kind::Workload && open.job.is_none() && about_known {
            self.workload_write_failed(open, error, expected.as_deref());
        }
        if let Some(expected) = expected.filter(|_| error.is_transient()) {
            self.answer_lost(open, expected);
        }
        self.not_made(open, error);
        self.report_failure(open, error);
        if open.purpose == Purpose::StartJob
            && error.is_transient()
            && let Some(entry) = job_key(&open.object).and_then(|key| self.world.jobs.get_mut(&key))
        {
            entry.uncertain = true;
        }
        if matches!(open.purpose, Purpose::DeleteChild | Purpose::UpdateChild | Purpose::ReplacePart) {
            self.touch_parent(&open.object);
        }
        match error {
            WriteError::NotFound(_) if creates(open) => {}
            // Another object may have its name by now.
            WriteError::NotFound(_) if open.job.is_none() && !about_known => {}
            WriteError::NotFound(_) if open.job.is_none() => self.forget_object(&open.object, None),
            WriteError::Refused(why) if open.purpose == Purpose::StartJob => {
                if let Some(key) = job_key(&open.object) {
                    self.start_refused(&key, why);
                }
            }
            WriteError::Unstartable(why) => {
                if let Some(key) = job_key(&open.object) {
                    self.unstartable(&key, why);
                }
            }
            WriteError::AlreadyExists(_)
                if matches!(open.purpose, Purpose::CreateWorkload | Purpose::CreateRequest) =>
            {
                let id = self.read_again(&open.object);
                if lost == Some(true) {
                    self.outbox.finds(id);
                }
            }
            _ => {}
        }
        if let Some(until) = until {
            let alarm = match (&open.job, open.object.kind) {
                (Some(job), _) => Alarm::Job(job.clone()),
                (None, Kind::Workload) => Alarm::Workload(workload_key(&open.object)),
                (None, Kind::Job(_)) => match job_key(&open.object) {
                    Some(key) => Alarm::Job(key),
                    None => return,
                },
                (None, _) => Alarm::Object(open.object.clone()),
            };
            self.note_outage(error, || alarm.clone());
            self.wake_at(until, alarm);
        }
        self.touch(&open.object);
    }

    /// Takes back what was assumed, or keeps the decision to write it again.
    fn workload_write_failed(&mut self, open: &Open, error: &WriteError, expected: Option<&WorkloadStatus>) {
        let key = workload_key(&open.object);
        let uncertain = error.is_transient() || matches!(error, WriteError::Conflict(_));
        if matches!(open.decision.as_deref(), Some(Decision::Reserve { .. }))
            && matches!(error, WriteError::Conflict(_))
            && let Some(entry) = self.world.workloads.get_mut(&key)
        {
            // If it holds quota, another client has written that.
            entry.unchecked = true;
        }
        match open.decision.as_deref() {
            // The reservation may have been written, now or before: no other Workload gets the quota before that is known.
            Some(Decision::Reserve { .. }) if uncertain => self.look_again(&key),
            // The same is true of the nodes. If the assignment was not written, it is made again for the current Workload, unless that has another
            // admission.
            Some(place @ Decision::Place(..)) if uncertain => {
                if let Some(entry) = self.world.workloads.get_mut(&key) {
                    entry.decision.get_or_insert_with(|| Box::new(place.clone()));
                }
                self.look_again(&key);
            }
            Some(Decision::Reserve { .. }) => {
                self.reservation_failed(&key);
                self.request_cycle();
            }
            Some(evict @ Decision::Evict(..)) => {
                if let Some(entry) = self.world.workloads.get_mut(&key)
                    && entry.decision.is_none()
                    && !matches!(error, WriteError::NotFound(_))
                {
                    entry.decision = Some(Box::new(evict.clone()));
                    self.world.watch_held(&key);
                }
            }
            None if matches!(open.purpose, Purpose::Pend | Purpose::Bypassed) => {
                let why = self.scheduler.last_decision(&key).cloned();
                let Some(entry) = self.world.workloads.get_mut(&key).filter(|entry| entry.decision.is_none())
                else {
                    return;
                };
                let blocked = |status: &WorkloadStatus| is(status, Type::BlockedOnPreemptionGates);
                let gated = expected.is_some_and(blocked) && !blocked(&entry.object.status);
                // A later one is newer.
                if let Some(why) = why.filter(|_| entry.pending_message().is_none()) {
                    // Equivalent Workloads get no event of their own.
                    let with_event = open.purpose == Purpose::Pend;
                    let pending = PendingMessage { why: Arc::new(why), with_event, gated };
                    entry.reason_mut().pending_message = Some(pending);
                }
            }
            // The core finds nodes again for the current Workload.
            Some(Decision::Place(..)) | None => {}
        }
    }

    /// The status that a write on a Workload makes, if it is the one that the Workload waits for.
    fn expected_of(&self, id: EffectId, open: &Open) -> Option<Box<WorkloadStatus>> {
        if open.object.kind != Kind::Workload || open.job.is_some() {
            return None;
        }
        let entry = self.world.workloads.get(&workload_key(&open.object))?;
        entry.assumed.clone().filter(|_| entry.open == Some(id))
    }

    /// A write on a Workload was not answered.
    fn answer_lost(&mut self, open: &Open, expected: Box<WorkloadStatus>) {
        let mut then = open.then.clone();
        if let Some(Decision::Evict(_, more)) = open.decision.as_deref() {
            then.extend(more.iter().cloned());
        }
        let entry = self.world.workloads.get_mut(&workload_key(&open.object));
        let Some(entry) = entry.filter(|_| !then.is_empty()) else { return };
        let lost = LostAnswer { purpose: open.purpose, expected, then };
        if lost.is_shown_by(&entry.object.status) {
            // Its watch was first.
            entry.retry.succeeded(lost.purpose);
            self.outbox.extend(lost.then);
        } else {
            entry.lost_answer = Some(Box::new(lost));
        }
    }

    /// A newer version of a Workload was seen.
    pub(crate) fn settle_lost_answer(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        if let Some(lost) = entry.lost_answer.take().filter(|lost| lost.is_shown_by(&entry.object.status)) {
            // What follows from it does not wait until it would be tried again, nor for looks that failed meanwhile.
            entry.retry.succeeded(lost.purpose);
            self.outbox.extend(lost.then);
        }
    }

    /// Asks what became of a reservation.
    pub(crate) fn look_again(&mut self, key: &WorkloadKey) {
        let id = self.outbox.write(workload_ref(key), Purpose::Read, Write::Read, Vec::new());
        if let Some(entry) = self.world.workloads.get_mut(key) {
            entry.open = Some(id);
            entry.uncertain = true;
        }
    }

    /// The object was read again because it was not known what became of a reservation, or of its nodes.
    fn settle_reservation(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get_mut(key).filter(|entry| entry.open.is_none()) else {
            return;
        };
        if std::mem::take(&mut entry.uncertain) {
            if entry.decision.is_none() {
                // Its nodes are written, or will not be.
                entry.retry.succeeded(Purpose::Place);
            }
            if reserved(&entry.object.status) {
                entry.retry.succeeded(Purpose::ReserveQuota);
            } else {
                self.reservation_failed(key);
            }
            self.sync_core(key);
            self.request_cycle();
        }
    }

    /// Marks the object of a write and what hangs on it.
    fn touch(&mut self, object: &ObjectRef) {
        match object.kind {
            Kind::Workload => self.touch_workload(&workload_key(object)),
            Kind::Job(_) => self.dirty.jobs.extend(job_key(object)),
            _ => self.dirty.mark(object.clone()),
        }
    }
}

/// Whether a write creates an object: then "not found" is about another object.
pub(crate) fn creates(open: &Open) -> bool {
    matches!(open.purpose, Purpose::CreateWorkload | Purpose::CreateTemplate | Purpose::CreateRequest)
}

/// The key of a reference to a Workload.
pub(crate) fn workload_key(object: &ObjectRef) -> WorkloadKey {
    WorkloadKey::new(Arc::clone(&object.namespace), Arc::clone(&object.name))
}
