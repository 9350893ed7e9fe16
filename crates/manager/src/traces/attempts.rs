//! The attempts in progress, each with the exact times of what was seen. Their number is bounded; for an attempt that was dropped the objects have
//! the times in whole seconds.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use sluice_api::v1beta2::CheckState;
use sluice_engine::attempt::{AttemptStep, CheckSeen, End, Ending, FINER, Progress, Step};
use sluice_engine::{Name, WorkloadKey};

/// The highest number of attempts that are kept: those of the Workloads that were queued last.
const MOST: usize = 16_384;
/// Checks of an attempt that are looked at.
const MOST_CHECKS: usize = 16;
/// The longest text about the flavors that were considered, in bytes.
const MOST_TEXT: usize = 1024;

/// The cycle that decided to reserve quota.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// When it began.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// Its number since the process began.
    pub cycle: u64,
    /// How many heads of queues it had.
    pub heads: usize,
    /// The flavors that were considered, in words.
    pub considered: String,
}

/// The exact times of one attempt.
#[derive(Clone, Debug, Default)]
struct Marks {
    attempt: u32,
    queued: Option<Timestamp>,
    decided: Option<Decided>,
    written: Option<Timestamp>,
    checks: Vec<CheckSeen>,
    admitted: Option<Timestamp>,
    /// How far it was when it was seen last, if it is admitted and ends with the start of its job.
    starting: Option<Box<Progress>>,
    job_started: Option<Timestamp>,
    /// Its order by age among the others.
    turn: u64,
}

/// An ended attempt, with all its times.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The Workload.
    pub workload: WorkloadKey,
    /// Its UID.
    pub uid: Name,
    /// Its number, from 1.
    pub number: u32,
    /// Its progress according to the objects.
    pub progress: Progress,
    /// When it was queued; `None` if that was before this process began, and not for the first time.
    pub queued: Option<Timestamp>,
    /// The cycle that decided to reserve quota, if it was this process's.
    pub decided: Option<Decided>,
    /// When the reservation was written.
    pub written: Option<Timestamp>,
    /// The states of its checks, each with when it came.
    pub checks: Vec<CheckSeen>,
    /// When its admission was written.
    pub admitted: Option<Timestamp>,
    /// When the write that starts its job was answered.
    pub job_started: Option<Timestamp>,
    /// How it ended.
    pub end: End,
}

/// The attempts that are under way.
#[derive(Debug)]
pub struct Attempts {
    most: usize,
    marks: HashMap<Name, Marks>,
    by_age: BTreeMap<u64, Name>,
    turn: u64,
}

impl Default for Attempts {
    fn default() -> Self {
        Self::new(MOST)
    }
}

/// The exact time, if something was seen shortly after a time in whole seconds.
fn finer(stated: Timestamp, seen: Timestamp) -> Timestamp {
    if seen.duration_since(stated).abs() < FINER { seen } else { stated }
}

impl Marks {
    /// Notes what is new in a status.
    fn note(&mut self, progress: &Progress, seen: Timestamp) {
        if let Some(queued) = progress.queued {
            self.queued.get_or_insert_with(|| finer(queued, seen));
        }
        // An eviction resets the checks in the same write: what they were before is what counts.
        if progress.end.as_ref().is_some_and(|end| end.how == Ending::Evicted) {
            return;
        }
        let Some(reserved) = progress.reserved else {
            (self.written, self.admitted, self.starting) = (None, None, None);
            self.checks.clear();
            return;
        };
        self.written.get_or_insert_with(|| finer(reserved, seen));
        self.checks.retain(|known| progress.checks.iter().any(|check| check.name == known.name));
        for check in progress.checks.iter().take(MOST_CHECKS) {
            let since = finer(check.since, seen);
            match self.checks.iter_mut().find(|known| known.name == check.name) {
                Some(known) if known.state == check.state => {}
                Some(known) => (known.state, known.since) = (check.state, since),
                None => self.checks.push(CheckSeen { since, ..check.clone() }),
            }
        }
        if let Some(admitted) = progress.admitted {
            self.admitted.get_or_insert_with(|| finer(admitted, seen));
            if !progress.waits_for_pods {
                self.starting = Some(Box::new(progress.clone()));
            }
        }
    }
}

impl Attempts {
    /// Keeps this number of attempts.
    pub fn new(most: usize) -> Self {
        Self { most, marks: HashMap::new(), by_age: BTreeMap::new(), turn: 0 }
    }

    /// Takes one step; `took` is the duration of the cycle that it came from. Returns the attempt, if this step ends it.
    pub fn take(&mut self, step: AttemptStep, took: Duration) -> Option<Attempt> {
        let AttemptStep { at, workload, uid, attempt: number, step } = step;
        let (progress, end) = match step {
            Step::Decided { cycle, heads, mut considered } => {
                considered.truncate(considered.floor_char_boundary(MOST_TEXT));
                self.marks(&uid, number).decided = Some(Decided { at, took, cycle, heads, considered });
                return None;
            }
            Step::JobStarted => {
                let marks = self.marks.get_mut(&uid).filter(|marks| marks.attempt == number)?;
                marks.job_started.get_or_insert(at);
                let progress = marks.starting.take()?;
                let reason = String::new();
                (*progress, End { at, how: Ending::Started, reason })
            }
            Step::Seen(progress) => {
                let end = progress.end.clone();
                let marks = self.marks(&uid, number);
                marks.note(&progress, at);
                let mut end = end?;
                end.at = finer(end.at, at);
                (*progress, end)
            }
        };
        let marks = self.forget(&uid).unwrap_or_default();
        let checks = if marks.checks.is_empty() { progress.checks.clone() } else { marks.checks };
        Some(Attempt {
            workload,
            uid,
            number,
            queued: marks.queued.or(progress.queued),
            decided: marks.decided,
            written: marks.written.or(progress.reserved),
            checks,
            admitted: marks.admitted.or(progress.admitted),
            job_started: marks.job_started,
            progress,
            end,
        })
    }

    /// The marks of an attempt; new ones if those are of another attempt.
    fn marks(&mut self, uid: &Name, attempt: u32) -> &mut Marks {
        if self.marks.get(uid).is_none_or(|marks| marks.attempt != attempt) {
            self.forget(uid);
            if self.marks.len() >= self.most
                && let Some((_, oldest)) = self.by_age.pop_first()
            {
                self.marks.remove(&oldest);
            }
            self.turn += 1;
            self.by_age.insert(self.turn, Name::clone(uid));
            self.marks.insert(Name::clone(uid), Marks { attempt, turn: self.turn, ..Marks::default() });
        }
        self.marks.entry(Name::clone(uid)).or_default()
    }

    fn forget(&mut self, uid: &Name) -> Option<Marks> {
        let marks = self.marks.remove(uid)?;
        self.by_age.remove(&marks.turn);
        Some(marks)
    }

    /// How many are kept in mind.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.marks.len()
    }
}

/// Whether a state is the last one of a check.
pub(super) fn is_decided(state: CheckState) -> bool {
    state != CheckState::Pending
}
