//! Whether the controller of a stopped job has answered the stop.
//!
//! A Job's status has the number of pods as its controller saw it last. The controller makes pods before it writes that, so that a Job that is
//! stopped right after its start has pods while its status says that none is active. The condition `Suspended` distinguishes the two: the controller
//! writes it `False` together with the first pods, and `True` together with the remaining number once it has deleted them. `True` from before the
//! last start, or from before the eviction that led to the stop, is no answer.
//!
//! A kind without that condition answers by showing pods since the start, and then none; or by `status.observedGeneration`, if its controllers write
//! that. A job that shows neither keeps its quota for a while.
//!
//! If a Job is started and stopped before its controller has written its status, neither shows: the controller makes the pods from what it saw last,
//! its status write conflicts with the stop, and `True` stays as it was before the start. If the status of a stopped Job does not change for a
//! second, its condition is therefore set to `False`. The controller sets it to `True` the next time it has looked at the Job and deleted all pods
//! that it knows of, including those that it made before. The JobSet controller does the same, once it has suspended the Jobs of a JobSet; if it is
//! far behind, it first resumes them, as it saw the JobSet then.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_core::Name;

use crate::effect::{Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::world::{JobEntry, JobKey};

/// How long quota is kept at least for a stopped job whose controller says nothing.
const PATIENCE: SignedDuration = SignedDuration::from_secs(5);
/// How much longer for each pod: kube-controller-manager makes 20 a second by default.
const PER_POD: SignedDuration = SignedDuration::from_millis(50);
/// How long at most: it makes at most 500 pods in a round, after which it sees that they are not wanted.
const LONGEST: SignedDuration = SignedDuration::from_secs(30);

/// How long quota is kept for a Job whose controller was asked: it comes back to a Job at least once a minute.
const ASKED: SignedDuration = SignedDuration::from_secs(120);
/// How long the controller of a stopped Job may say nothing before it is asked.
const SILENCE: SignedDuration = SignedDuration::from_secs(1);

impl JobEntry {
    /// Whether it belongs to its kind's own controller, not to another that `spec.managedBy` names.
    fn has_own_controller(&self) -> bool {
        let managed_by = self.view.managed_by.as_deref();
        managed_by.is_none() || managed_by == self.view.job.kind.integration().managed_by
    }

    /// Whether its controller is known to answer whether it has seen a stop.
    fn can_be_asked(&self) -> bool {
        self.view.job.kind.integration().confirms_stops && self.has_own_controller()
    }

    /// Whether its controller is known to come back to it until its pods are gone.
    pub(super) fn is_enforced(&self) -> bool {
        self.view.job.kind.integration().enforces_stops && self.has_own_controller()
    }

    /// How long quota is kept while the controller is silent: as long as a controller may make pods without looking again. A job without a controller
    /// must not hold quota for good.
    fn patience(&self) -> SignedDuration {
        if self.can_be_asked() {
            return ASKED;
        }
        let pods = i32::try_from(self.view.total_count()).unwrap_or(i32::MAX);
        PER_POD
            .checked_mul(pods)
            .and_then(|longer| longer.checked_add(PATIENCE))
            .map_or(LONGEST, |wait| wait.min(LONGEST))
    }

    /// Whether the job's controller has not answered its stop yet. Its quota was given, or the decision to take it made, at that time.
    fn is_unanswered(&self, decided: Timestamp) -> bool {
        // A job that was not changed since its creation has never been started.
        self.view.generation > 1
            && match self.view.suspended_condition {
                Some((suspended, since)) => {
                    let is_later = since > decided && self.seen.stale != Some(since);
                    !suspended || !(self.seen.runs || is_later)
                }
                // Its controller has no such condition, or had not looked at the job when it was started.
                None => !(self.seen.runs || self.saw_generation()),
            }
    }

    /// Whether its controller has acted on the current version of the job, for kinds whose controllers report that.
    pub(super) fn saw_generation(&self) -> bool {
        let observed = self.view.observed_generation;
        self.view.job.kind.integration().observes_generation
            && observed.is_some_and(|observed| observed >= self.view.generation)
    }

    /// When the controller of this part of a stopped job is asked whether it has seen the stop.
    fn is_asked_at(&self, decided: Timestamp) -> Option<Timestamp> {
        let view = &self.view;
        let asked = view.suspended_condition.is_some_and(|(suspended, _)| !suspended);
        let is_stopped = view.suspended && view.finished.is_none() && !view.deleting && !view.ending;
        let asks = self.can_be_asked() && is_stopped && !asked && self.is_unanswered(decided);
        // Its times are whole seconds: an answer in the second of the decision does not count, and is not requested again at once.
        let said = view.suspended_condition.map_or(Timestamp::MIN, |(_, since)| since);
        asks.then_some(self.seen.suspended_from?.max(said).checked_add(SILENCE).ok()?)
    }

    /// Whether this part of a stopped job may still make pods.
    fn goes_on(&self, decided: Timestamp) -> bool {
        let over = self.view.finished.is_some() || self.view.deleting;
        !over && (!self.view.suspended || self.is_unanswered(decided))
    }
}

impl Engine {
    /// Until when a stopped job, or a job that it controls, may have pods that its status does not show yet. Silent controllers are asked.
    pub(super) fn unanswered_until(&mut self, key: &JobKey) -> Option<Timestamp> {
        let entry = self.world.jobs.get(key).filter(|entry| entry.view.finished.is_none())?;
        let stopped = entry.seen.suspended_from?;
        let uid = &entry.view.job.uid;
        let decided = |workload: &_| {
            let conditions = &self.world.workloads.get(workload)?.status().conditions;
            let admitted = conditions::true_since(conditions, Type::Admitted.as_str())?;
            let evicted = conditions::true_since(conditions, Type::Evicted.as_str());
            Some(evicted.map_or(admitted, |evicted| evicted.max(admitted)))
        };
        let decided = self.world.owned(uid).iter().filter_map(decided).max()?;
        let own = entry.is_unanswered(decided).then_some(entry);
        let parts = self.children(key, uid).filter(|child| child.goes_on(decided));
        // Each is waited for as long as its own kind takes: the Jobs of a JobSet longer than the JobSet. All times count from the stop of the
        // controlling job, so that Jobs that are created later and claim to be its own do not hold its quota for good.
        let waited_for = own.into_iter().chain(parts).filter_map(|entry| {
            let until = stopped.checked_add(entry.patience()).ok()?;
            (until > self.now).then_some((entry, until))
        });
        let waited_for: Vec<_> = waited_for.collect();
        let until = waited_for.iter().map(|(_, until)| *until).max()?;
        let asked = waited_for
            .into_iter()
            .filter_map(|(entry, _)| Some((JobKey::of(&entry.view.job), entry.is_asked_at(decided)?)));
        let next = asked.collect::<Vec<_>>().into_iter().filter_map(|(job, at)| self.ask(&job, at)).min();
        if let Some(next) = next {
            self.wake_at(next, Alarm::Job(key.clone()));
        }
        Some(until)
    }

    /// Asks the controller of a stopped Job, if it is time. Gives when to come back otherwise.
    fn ask(&mut self, key: &JobKey, at: Timestamp) -> Option<Timestamp> {
        if at > self.now {
            return Some(at);
        }
        let now = self.now;
        let entry = self.world.jobs.get_mut(key)?;
        if entry.open.is_some() || entry.retry.waits(now) {
            return now.checked_add(SILENCE).ok();
        }
        let write = Write::AskController { view: Arc::clone(&entry.view), at: now };
        entry.open = Some(self.outbox.write(key.object(), Purpose::AskController, write, Vec::new()));
        None
    }

    /// The jobs that a job controls, and those below a part that runs its pod sets. Jobs in other namespaces only claim to be parts.
    pub(crate) fn children<'a>(&'a self, key: &'a JobKey, uid: &str) -> impl Iterator<Item = &'a JobEntry> {
        let of = move |uid: &str| self.children_of(&key.namespace, uid);
        of(uid).flat_map(move |entry| {
            let played = key.kind.is_played_by(entry.view.job.kind);
            let below = played.then(|| of(&entry.view.job.uid)).into_iter().flatten();
            std::iter::once(entry).chain(below)
        })
    }

    /// The jobs that this one controls.
    pub(super) fn children_of<'a>(
        &'a self,
        namespace: &'a Name,
        uid: &str,
    ) -> impl Iterator<Item = &'a JobEntry> + use<'a> {
        let children = self.world.children.get(uid).into_iter().flatten();
        children
            .filter(move |child| child.namespace == *namespace)
            .filter_map(|child| self.world.jobs.get(child))
    }
}
