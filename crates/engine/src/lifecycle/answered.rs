//! Whether the controller of a stopped job has answered the stop.
//!
//! A Job's status says how many pods run as its controller saw it last. The controller makes pods before it writes that, so that a Job that
//! is stopped right after it was started has pods, and its status says that none is active. The condition `Suspended` tells the two apart:
//! the controller writes it `False` together with the first pods, and `True` together with the number that is left once it has deleted
//! them. `True` from before the last start is no answer.
//!
//! What remains: a job that was started before its controller had ever looked at it has no such condition, and one that was stopped within
//! its first second is not told from one before its start after all replicas began anew, which keeps its quota for [`patience`].

use jiff::{SignedDuration, Timestamp};
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::job::JobView;

use crate::engine::Engine;
use crate::world::{JobEntry, JobKey};

/// How long quota is kept at least for a stopped job whose controller says nothing.
const PATIENCE: SignedDuration = SignedDuration::from_secs(5);
/// How much longer for each pod: kube-controller-manager makes 20 a second by default.
const PER_POD: SignedDuration = SignedDuration::from_millis(50);
/// How long at most: it makes at most 500 pods in a round, after which it sees that they are not wanted.
const LONGEST: SignedDuration = SignedDuration::from_secs(30);

/// How long quota is kept for a stopped job whose controller says nothing: as long as a Job controller may make pods without looking again.
/// A job without a controller must not hold quota for good.
fn patience(view: &JobView) -> SignedDuration {
    let pods = i32::try_from(view.total_count()).unwrap_or(i32::MAX);
    PER_POD
        .checked_mul(pods)
        .and_then(|longer| longer.checked_add(PATIENCE))
        .map_or(LONGEST, |wait| wait.min(LONGEST))
}

/// What the controller of a job has shown of having seen its last start and stop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SeenByController {
    /// It has said that the job runs, since that was last started.
    runs: bool,
    /// When the job was first seen suspended, if it is.
    suspended_from: Option<Timestamp>,
}

impl SeenByController {
    /// With the next state of a job, after what was known, and whether it was suspended.
    pub fn next(before: Option<(Self, bool)>, view: &JobView, now: Timestamp) -> Self {
        let (known, was_suspended) = before.unwrap_or_default();
        let starts = was_suspended && !view.suspended;
        let runs = view.active || view.suspended_condition.is_some_and(|(suspended, _)| !suspended);
        Self {
            runs: runs || (known.runs && !starts),
            suspended_from: view.suspended.then(|| known.suspended_from.unwrap_or(now)),
        }
    }
}

impl JobEntry {
    /// Whether the job's controller has not answered its stop yet. Its quota was given at that time.
    fn is_unanswered(&self, admitted: Timestamp) -> bool {
        // One that nobody has changed since it was made has never been started.
        self.view.generation > 1
            && self
                .view
                .suspended_condition
                .is_some_and(|(suspended, since)| !suspended || !(self.seen.runs || since > admitted))
    }

    /// Whether this part of a stopped job may still make pods.
    fn goes_on(&self, admitted: Timestamp) -> bool {
        let over = self.view.finished.is_some() || self.view.deleting;
        !over && (!self.view.suspended || self.is_unanswered(admitted))
    }
}

impl Engine {
    /// Until when a stopped job, or one that it controls, may have pods that its status does not show yet.
    pub(super) fn unanswered_until(&self, key: &JobKey) -> Option<Timestamp> {
        let entry = self.world.jobs.get(key).filter(|entry| entry.view.finished.is_none())?;
        let until = entry.seen.suspended_from?.checked_add(patience(&entry.view)).ok()?;
        if until <= self.now {
            return None;
        }
        let uid = &entry.view.job.uid;
        let admitted = |workload: &_| {
            let workload = self.world.workloads.get(workload)?;
            conditions::true_since(&workload.status().conditions, Type::Admitted.as_str())
        };
        let admitted = self.world.owned(uid).iter().filter_map(admitted).max()?;
        let unanswered =
            entry.is_unanswered(admitted) || self.children(key, uid).any(|child| child.goes_on(admitted));
        unanswered.then_some(until)
    }

    /// The jobs that a job controls. One elsewhere only claims to be one.
    pub(super) fn children<'a>(&'a self, key: &'a JobKey, uid: &str) -> impl Iterator<Item = &'a JobEntry> {
        let children = self.world.children.get(uid).into_iter().flatten();
        children
            .filter(|child| child.namespace == key.namespace)
            .filter_map(|child| self.world.jobs.get(child))
    }
}
