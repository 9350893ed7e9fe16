//! What is known of pods that may still use the quota of a job that is deleted or being deleted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sluice_core::{Name, WorkloadKey};

use crate::backoff::Backoff;
use crate::effect::EffectId;
use crate::retry::Retry;

/// How long until they are looked for again, as long as there are any.
const AGAIN: Backoff = Backoff::seconds(1, 30);
/// So many looks in a row have the same pause: most pods end within seconds.
const SAME: u32 = 2;
/// A namespace is looked at no more often than that: one look is for all of its Workloads that wait.
const AT_MOST: SignedDuration = SignedDuration::from_secs(1);

/// The pods of one Workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind {
    /// The UIDs of the jobs that go, or are gone, its own or parts of that, and of those that they controlled: each pod has one of them as its
    /// controller, or a pod that has.
    pub of: BTreeSet<Name>,
    /// Whether none are there any more.
    pub gone: bool,
    /// Since when its own job is known to be gone, or over.
    pub job_over: Option<Timestamp>,
    /// Since when those of a job that is there were to end, if they are looked for because that took too long.
    pub overdue: Option<Timestamp>,
    /// Whether an event has reported that the pods are given less time.
    pub told: bool,
}

/// The looks at one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Looks {
    /// The Workloads that wait for one.
    pub waiting: BTreeSet<WorkloadKey>,
    /// The look that has not been answered.
    pub open: Option<EffectId>,
    /// For which Workloads it is, unless there is more to be looked for by now.
    pub asked: BTreeSet<WorkloadKey>,
    /// When the next one is due.
    pub next: Timestamp,
    /// When the last one was sent.
    last: Option<Timestamp>,
    /// How many in a row were in vain.
    times: u32,
    /// How they fare.
    pub retry: Retry,
}

impl Looks {
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

    /// One more Workload waits: it is looked soon again.
    pub fn joined(&mut self, now: Timestamp) {
        let soonest = self.last.and_then(|last| last.checked_add(AT_MOST).ok()).unwrap_or(now).max(now);
        self.times = 0;
        self.next = self.retry.until.filter(|until| *until > now).unwrap_or(soonest);
    }

    /// A look is sent.
    pub fn sent(&mut self, id: EffectId, now: Timestamp) {
        (self.open, self.last) = (Some(id), Some(now));
        self.asked = self.waiting.clone();
    }

    /// It was answered: these are looked for again, later each time.
    pub fn again(&mut self, now: Timestamp) {
        let joined_since = self.waiting.iter().any(|waits| !self.asked.contains(waits));
        if joined_since {
            return self.joined(now);
        }
        let wait = SignedDuration::from_millis(AGAIN.doubled(self.times / SAME));
        self.next = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.times = self.times.saturating_add(1);
    }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllLeft {
    /// By Workload.
    pub pods: BTreeMap<WorkloadKey, LeftBehind>,
    /// By namespace.
    pub looks: BTreeMap<Name, Looks>,
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
