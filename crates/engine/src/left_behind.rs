//! What is known of pods that may still use the quota of a job that is stopped, deleted or being deleted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sluice_core::{Name, WorkloadKey};

use crate::backoff::Backoff;
use crate::effect::EffectId;
use crate::retry::Retry;

/// The pause between two looks for pods, as long as there are any.
const AGAIN: Backoff = Backoff::seconds(1, 30);
/// How many looks in a row have the same pause: most pods end within seconds.
const SAME: u32 = 2;
/// The shortest time between two looks at a namespace: one look serves all of its Workloads that wait.
const AT_MOST: SignedDuration = SignedDuration::from_secs(1);

/// The pause after a look that found pods which are being deleted, after `times` in a row before it.
pub(crate) fn pause(times: u32) -> SignedDuration {
    SignedDuration::from_millis(AGAIN.doubled(times / SAME))
}

/// The pods of one Workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind {
    /// The UIDs of the jobs that are deleted or being deleted (the Workload's job, or parts of it), and of the jobs that they controlled: each pod
    /// has one of them as its controller, directly or through other pods.
    pub of: BTreeSet<Name>,
    /// Whether none exist any more.
    pub gone: bool,
    /// Since when its own job is stopped, if its pods are looked for because that job's status does not say whether they are gone.
    pub stopped: Option<Timestamp>,
    /// Since when its own job is known to be gone, or over.
    pub job_over: Option<Timestamp>,
    /// Since when pods of an existing job should have ended, if they are looked for because that took too long.
    pub overdue: Option<Timestamp>,
    /// Whether an event has reported that the pods are given less time.
    pub reported: bool,
}

/// The looks at one namespace.
#[derive(Clone, Debug)]
pub(crate) struct PodSearches {
    /// The Workloads that wait for a look.
    pub waiting: BTreeSet<WorkloadKey>,
    /// The look that has not been answered.
    pub open: Option<EffectId>,
    /// The Workloads of the look in progress, unless their pods to look for have changed since.
    pub asked: BTreeSet<WorkloadKey>,
    /// When the next look is due.
    pub next: Timestamp,
    /// When the last look was sent.
    last: Option<Timestamp>,
    /// How many in a row were in vain.
    times: u32,
    /// How they fare.
    pub retry: Retry,
}

impl PodSearches {
    pub fn new(now: Timestamp) -> Self {
        Self {
            waiting: BTreeSet::new(),
            open: None,
            asked: BTreeSet::new(),
            next: now,
            last: None,
            times: 0,
            retry: Retry::default(),
        }
    }

    /// One more Workload waits: the pauses begin again.
    pub fn joined(&mut self, now: Timestamp) {
        let soonest = self.last.and_then(|last| last.checked_add(AT_MOST).ok()).unwrap_or(now).max(now);
        self.times = 0;
        self.next = self.retry.until().filter(|until| *until > now).unwrap_or(soonest);
    }

    /// A look is sent.
    pub fn sent(&mut self, id: EffectId, now: Timestamp) {
        (self.open, self.last) = (Some(id), Some(now));
        self.asked = self.waiting.clone();
    }

    /// The look was answered: these are looked for again, with a longer pause each time.
    pub fn again(&mut self, now: Timestamp) {
        let joined_since = self.waiting.iter().any(|waits| !self.asked.contains(waits));
        if joined_since {
            return self.joined(now);
        }
        self.next = now.checked_add(pause(self.times)).unwrap_or(Timestamp::MAX);
        self.times = self.times.saturating_add(1);
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllLeft {
    /// By Workload.
    pub pods: BTreeMap<WorkloadKey, LeftBehind>,
    /// By namespace.
    pub looks: BTreeMap<Name, PodSearches>,
}

impl AllLeft {
    /// Whether there may be some of a Workload, as far as it was looked.
    pub fn waits(&self, key: &WorkloadKey) -> bool {
        self.pods.get(key).is_some_and(|left| !left.gone)
    }

    /// Forgets those of a Workload.
    pub fn forget(&mut self, key: &WorkloadKey) {
        self.pods.remove(key);
        if let Some(looks) = self.looks.get_mut(&key.namespace) {
            looks.waiting.remove(key);
            if looks.waiting.is_empty() && looks.open.is_none() {
                self.looks.remove(&key.namespace);
            }
        }
    }
}
