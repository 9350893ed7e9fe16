//! Writes that fail: when they are retried, and what is reported about them.

use jiff::{SignedDuration, Timestamp};

use crate::backoff::Backoff;
use crate::effect::Purpose;
use crate::input::WriteError;

/// After this time without a failure the next one counts as the first.
const FORGOTTEN: SignedDuration = SignedDuration::from_mins(10);

/// The longest pause that a server may ask for, in seconds.
const ASKED: i64 = 60;

/// The pauses after so many failures in a row are short: they do not end early.
const SHORT: u16 = 3;

/// So many pauses of a row end early at most. An API server that comes back may be away again a moment later, and more than once; what still fails
/// while others succeed has a trouble of its own.
const EARLY: u8 = 3;

/// How often in a row the API server refuses a start before the job is evicted, or a stop before a part of another job is deleted: 15 s, in which an
/// API server that has just started learns of rights and webhooks.
pub(crate) const REFUSALS: u8 = 3;

/// The retry state of writes on one object: nothing while none fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retry(Option<Box<Failed>>);

/// What is known of a row of failures.
#[derive(Clone, Debug, Default)]
struct Failed {
    /// Failures in a row.
    failures: u16,
    /// How many of the last writes, in a row and with one purpose, the API server has refused.
    refusals: u8,
    /// Not before this time.
    until: Option<Timestamp>,
    /// The last failure was a conflict: a newer version of the object ends the wait.
    conflict: bool,
    /// The failed write may have been carried out: its answer was lost, and what it created may now be in the way.
    lost: bool,
    /// The API server has been away for a while, or seems to have been.
    away: bool,
    /// How many pauses of this row of failures ended early, as the API server answered other writes.
    early: u8,
    /// The purpose of the last failed write: only its success ends the row. None while only looks at the object have failed: then any success
    /// ends the row.
    purpose: Option<Purpose>,
    /// The text of the last event about it.
    reported: Option<String>,
}

impl Retry {
    /// Whether the last write failed, or one before that is still to be tried again.
    pub fn has_failed(&self) -> bool {
        self.0.is_some()
    }

    /// Not before this time.
    pub fn until(&self) -> Option<Timestamp> {
        self.0.as_ref()?.until
    }

    /// Whether writes must still wait.
    pub fn waits(&self, now: Timestamp) -> bool {
        self.until().is_some_and(|until| until > now)
    }

    /// The next write need not wait.
    pub fn end_wait(&mut self) {
        if let Some(failed) = &mut self.0 {
            failed.until = None;
        }
    }

    /// Whether the API server refuses what is tried, and not just for a moment.
    pub fn is_refused(&self) -> bool {
        self.0.as_ref().is_some_and(|failed| failed.refusals >= REFUSALS)
    }

    /// Whether the failed write may have been carried out.
    pub fn is_lost(&self) -> bool {
        self.0.as_ref().is_some_and(|failed| failed.lost)
    }

    /// Counts a failure and says until when to wait.
    pub fn failed(&mut self, purpose: Purpose, error: &WriteError, now: Timestamp) -> Timestamp {
        self.0.get_or_insert_default().add(purpose, error, now)
    }

    /// A write succeeded. If another one failed before, that is no reason to retry the other one at once: the two might alternate endlessly.
    pub fn succeeded(&mut self, purpose: Purpose) {
        // A look at an object says nothing about writes on it: it is never the purpose of a row.
        self.0.take_if(|failed| failed.purpose.is_none_or(|failed| failed == purpose));
    }

    /// A newer version of the object was seen.
    pub fn seen_newer(&mut self) {
        if let Some(failed) = self.0.as_mut().filter(|failed| failed.conflict) {
            failed.until = None;
        }
    }

    /// The API server answers others. Whether that ends a pause. The pauses after it begin with the last short one: the server may not have come back
    /// for good yet.
    pub fn ends_pause(&mut self, now: Timestamp) -> bool {
        let waits = self.waits(now);
        let Some(failed) = self.0.as_mut().filter(|failed| failed.away && waits) else { return false };
        (failed.until, failed.away) = (Some(now), false);
        (failed.failures, failed.early) = (SHORT - 1, failed.early + 1);
        true
    }

    /// Whether to report the last failure, as `note`: a refusal at once, a failure that may pass by itself only if it lasts; each text once.
    pub fn should_report(&mut self, error: &WriteError, note: &str) -> bool {
        let patience = match error {
            WriteError::Refused(_) | WriteError::NotFound(_) => 1,
            WriteError::AlreadyExists(_) | WriteError::Transient(_) | WriteError::Later { .. } => 3,
            WriteError::Conflict(_) => 8,
            WriteError::Unstartable(_)
            | WriteError::PodsLeft { .. }
            | WriteError::PodsRemain(_)
            | WriteError::Withdrawn => return false,
        };
        let Some(failed) = self.0.as_mut().filter(|failed| failed.failures >= patience) else {
            return false;
        };
        let is_new = failed.reported.as_deref() != Some(note);
        if is_new {
            failed.reported = Some(note.to_owned());
        }
        is_new
    }
}

impl Failed {
    /// Counts a failure and says until when to wait.
    fn add(&mut self, purpose: Purpose, error: &WriteError, now: Timestamp) -> Timestamp {
        let backoff = match error {
            WriteError::Conflict(_) | WriteError::Withdrawn => Backoff::millis(50, 60_000),
            WriteError::Transient(_)
            | WriteError::Later { .. }
            | WriteError::NotFound(_)
            | WriteError::PodsLeft { .. }
            | WriteError::PodsRemain(_) => Backoff::seconds(1, 60),
            // An API server that has just started refuses until it knows the roles. What became of a write is asked again soon: all else waits for it.
            WriteError::Refused(_) if purpose == Purpose::Read => Backoff::seconds(1, 300),
            WriteError::AlreadyExists(_) | WriteError::Refused(_) | WriteError::Unstartable(_) => {
                Backoff::seconds(5, 300)
            }
        };
        if self.until.is_some_and(|until| now.duration_since(until) > FORGOTTEN) {
            (self.failures, self.refusals, self.early, self.purpose) = (0, 0, 0, None);
        }
        let asked = match error {
            WriteError::Later { seconds, .. } => i64::try_from(*seconds).unwrap_or(ASKED).min(ASKED),
            _ => 0,
        };
        let wait = backoff.doubled(self.failures.into()).max(asked.saturating_mul(1_000));
        let until = now.checked_add(SignedDuration::from_millis(wait)).unwrap_or(now);
        self.failures = self.failures.saturating_add(1);
        self.conflict = matches!(error, WriteError::Conflict(_));
        self.away = matches!(error, WriteError::Transient(_)) && self.early < EARLY && self.failures > SHORT;
        self.until = Some(until);
        // A failed look says nothing about the write whose result it was to show.
        if purpose != Purpose::Read {
            let before = if self.purpose == Some(purpose) { self.refusals } else { 0 };
            let refused = matches!(error, WriteError::Refused(_));
            self.refusals = if refused { before.saturating_add(1) } else { 0 };
            self.lost = error.is_transient() || self.lost && matches!(error, WriteError::AlreadyExists(_));
            self.purpose = Some(purpose);
        }
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::UNIX_EPOCH;

    fn refused() -> WriteError {
        WriteError::Refused("no".to_owned())
    }

    #[test]
    fn the_success_of_another_write_does_not_end_the_row() {
        let mut retry = Retry::default();
        let mut now = T0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let until = retry.failed(Purpose::ReserveQuota, &refused(), now);
            waits.push(until.duration_since(now).as_secs());
            now = until;
            retry.succeeded(Purpose::Pend);
            retry.succeeded(Purpose::Read);
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        retry.succeeded(Purpose::ReserveQuota);
        assert!(!retry.has_failed());
        retry.failed(Purpose::Pend, &refused(), now);
        retry.failed(Purpose::Pend, &refused(), now);
        let later = now.checked_add(SignedDuration::from_hours(1)).unwrap();
        let until = retry.failed(Purpose::Pend, &refused(), later);
        assert_eq!(until.duration_since(later).as_secs(), 5, "that was long ago");
    }

    #[test]
    fn a_refused_look_at_an_object_is_repeated_soon() {
        let mut retry = Retry::default();
        let mut now =
            retry.failed(Purpose::Evict, &WriteError::Transient("the connection was cut".to_owned()), T0);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let until = retry.failed(Purpose::Read, &refused(), now);
            waits.push(until.duration_since(now).as_secs());
            now = until;
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300]);
    }

    #[test]
    fn a_row_with_failed_looks_ends_with_the_write_that_failed_before_them() {
        let mut retry = Retry::default();
        retry.failed(Purpose::Evict, &WriteError::Transient("the connection was cut".to_owned()), T0);
        for _ in 0..REFUSALS {
            retry.failed(Purpose::Read, &refused(), T0);
        }
        assert!(retry.is_lost() && !retry.is_refused(), "only the looks are refused");
        retry.succeeded(Purpose::Read);
        retry.succeeded(Purpose::Pend);
        assert!(retry.has_failed());
        retry.succeeded(Purpose::Evict);
        assert!(!retry.has_failed());
        retry.failed(Purpose::Read, &refused(), T0);
        retry.succeeded(Purpose::Read);
        assert!(!retry.has_failed(), "nothing else has failed");
    }

    #[test]
    fn refusals_are_counted_that_follow_each_other() {
        let mut retry = Retry::default();
        let (conflict, refused) = (WriteError::Conflict("meanwhile".to_owned()), refused());
        let mut refusals = |purpose, error| {
            retry.failed(purpose, error, T0);
            retry.0.as_ref().unwrap().refusals
        };
        assert_eq!(refusals(Purpose::StartJob, &conflict), 0);
        assert_eq!(refusals(Purpose::StartJob, &refused), 1);
        assert_eq!(refusals(Purpose::StartJob, &refused), 2);
        assert_eq!(refusals(Purpose::StopJob, &refused), 1, "of another write");
        assert_eq!(refusals(Purpose::StopJob, &conflict), 0);
        assert_eq!(retry.0.as_ref().unwrap().failures, 5);
        retry.failed(Purpose::StopJob, &refused, T0);
        let later = T0.checked_add(SignedDuration::from_hours(1)).unwrap();
        retry.failed(Purpose::StopJob, &refused, later);
        assert_eq!(retry.0.unwrap().refusals, 1, "the one before was long ago");
    }

    #[test]
    fn a_server_that_goes_away_again_is_tried_soon_and_a_trouble_of_its_own_is_not_for_ever() {
        let down = WriteError::Transient("down".to_owned());
        let mut retry = Retry::default();
        let mut now = T0;
        let mut waits = Vec::new();
        for _ in 0..15 {
            let until = retry.failed(Purpose::StopJob, &down, now);
            waits.push(until.duration_since(now).as_secs());
            // Others are answered a second later, each time.
            now = now.checked_add(SignedDuration::from_secs(1)).unwrap();
            if !retry.ends_pause(now) {
                now = until;
            }
        }
        assert_eq!(waits, [1, 2, 4, 8, 4, 8, 4, 8, 4, 8, 16, 32, 60, 60, 60]);
        assert!(retry.should_report(&down, "it lasts"));
        retry.succeeded(Purpose::StopJob);
        assert!(!retry.has_failed() && !retry.waits(now));
    }

    #[test]
    fn the_server_is_not_asked_before_the_time_that_it_wants_up_to_a_minute() {
        let mut retry = Retry::default();
        let mut now = T0;
        for (seconds, waits) in [(30, 30), (0, 2), (3, 4), (600, 60), (u64::MAX, 60), (1, 32)] {
            let later = WriteError::Later { why: "too many requests".to_owned(), seconds };
            let until = retry.failed(Purpose::StartJob, &later, now);
            assert_eq!(until.duration_since(now).as_secs(), waits);
            retry.seen_newer();
            assert!(retry.waits(now), "nothing else ends that");
            now = until;
        }
    }

    #[test]
    fn each_text_is_reported_once_and_what_passes_by_itself_only_when_it_lasts() {
        let mut retry = Retry::default();
        retry.failed(Purpose::Pend, &refused(), T0);
        assert!(retry.should_report(&refused(), "a"));
        assert!(!retry.should_report(&refused(), "a"));
        assert!(retry.should_report(&refused(), "b"));
        let conflict = WriteError::Conflict("meanwhile".to_owned());
        assert!(!retry.should_report(&conflict, "c"));
        for _ in 0..10 {
            retry.failed(Purpose::Pend, &conflict, T0);
        }
        assert!(retry.should_report(&conflict, "c"));
    }
}
