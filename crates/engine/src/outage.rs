//! Writes that failed because the API server was away. Once it answers again, what they hold back does not wait for the end of its pauses: these may be
//! a minute long, in which stopped jobs run on, and quota that is free is not given away.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use crate::effect::EffectId;
use crate::engine::{Alarm, Engine};
use crate::input::{Kind, Object, ObjectRef, WriteError};
use crate::world::{JobKey, WorkloadEntry};

/// For each answer so many pauses end early. Each gives rise to another write: their number doubles, and an API server that has just come back does
/// not get all at once.
const ENDED: usize = 2;

/// What pauses after a failure of the API server, with the last write that was handed out before the failure. What is gone since stays until an
/// answer comes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outage {
    last: BTreeMap<Alarm, EffectId>,
    /// The same, the oldest write first.
    by_write: BTreeSet<(EffectId, Alarm)>,
}

impl Outage {
    /// One whose pause may end, as that write was handed out after it failed.
    fn next(&mut self, answered: EffectId) -> Option<Alarm> {
        self.by_write.first().filter(|(last, _)| *last < answered)?;
        let (_, alarm) = self.by_write.pop_first()?;
        self.last.remove(&alarm);
        Some(alarm)
    }

    fn note(&mut self, alarm: Alarm, last: EffectId) {
        if let Some(before) = self.last.insert(alarm.clone(), last) {
            self.by_write.remove(&(before, alarm.clone()));
        }
        self.by_write.insert((last, alarm));
    }
}

/// Whether it is the API server's answer to the request itself.
fn answers(result: &Result<Option<Object>, WriteError>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => {
            matches!(error, WriteError::Conflict(_) | WriteError::NotFound(_) | WriteError::AlreadyExists(_))
        }
    }
}

impl Engine {
    /// A write failed, and what is woken then pauses.
    pub(crate) fn note_outage(&mut self, error: &WriteError, alarm: impl FnOnce() -> Alarm) {
        if matches!(error, WriteError::Transient(_)) {
            self.outage.note(alarm(), self.outbox.last());
        }
    }

    /// A write was answered.
    pub(crate) fn outage_ends(&mut self, id: EffectId, result: &Result<Option<Object>, WriteError>) {
        if !answers(result) {
            return;
        }
        let mut left = ENDED;
        while left > 0
            && let Some(alarm) = self.outage.next(id)
        {
            left -= usize::from(self.ends_pause(alarm));
        }
    }

    /// Ends a pause, and looks at what paused; whether there was one.
    fn ends_pause(&mut self, alarm: Alarm) -> bool {
        let now = self.now;
        let ended = match &alarm {
            Alarm::Workload(key) => {
                self.world.workloads.get_mut(key).is_some_and(|entry| entry.ends_pauses(now))
            }
            Alarm::Job(key) => self.ends_pauses_of_job(key),
            Alarm::Object(object) if object.kind == Kind::Namespace => {
                return self.ends_pause_of_left(object);
            }
            Alarm::Object(object) if object.kind == Kind::JobPod => {
                return self.ends_pause_of_job_pod(object);
            }
            Alarm::Object(object) => {
                self.statuses.get_mut(object).is_some_and(|entry| entry.retry.ends_pause(now))
            }
            Alarm::Hotswap | Alarm::Capacity | Alarm::Place(_) | Alarm::Reasons | Alarm::Aside(_) => false,
        };
        if ended {
            self.wake(alarm);
        }
        ended
    }

    /// Of a job, of its pods, and of the looks for pods that it left.
    fn ends_pauses_of_job(&mut self, key: &JobKey) -> bool {
        let now = self.now;
        let pods = self.world.pod_jobs.get_mut(key).into_iter();
        let fares = pods.flat_map(|job| job.fares.values_mut());
        let mut ended = fares.filter_map(|fare| fare.retry.ends_pause(now).then_some(())).count() > 0;
        let Some(entry) = self.world.jobs.get_mut(key) else { return ended };
        ended |= entry.retry.ends_pause(now);
        if let Some(known) = entry.unheeded.as_mut()
            && known.retry.ends_pause(now)
        {
            (known.next, ended) = (now, true);
        }
        let outlived = entry.trouble.as_mut().and_then(|trouble| trouble.outlived.as_mut());
        if let Some(known) = outlived
            && known.retry.ends_pause(now)
        {
            (known.next, ended) = (now, true);
        }
        ended
    }

    /// Of the looks for the pods of jobs that are gone.
    fn ends_pause_of_left(&mut self, namespace: &ObjectRef) -> bool {
        let Some(looks) = self.left.looks.get_mut(&namespace.name) else { return false };
        if !looks.retry.ends_pause(self.now) {
            return false;
        }
        looks.next = self.now;
        self.dirty.workloads.extend(looks.waiting.iter().cloned());
        true
    }
}

impl WorkloadEntry {
    fn ends_pauses(&mut self, now: Timestamp) -> bool {
        let reports = self.reports.ends_pause(now);
        self.retry.ends_pause(now) || reports
    }
}
