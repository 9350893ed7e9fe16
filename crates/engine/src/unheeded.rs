//! What is known of a stop that the controller may not have carried out, and of ended jobs whose pods may continue.

use jiff::{SignedDuration, Timestamp};

use crate::backoff::Backoff;
use crate::left_behind;
use crate::retry::Retry;

/// How long a controller has to show that it has seen a stop: about the longest time for which quota is kept for a silent controller, and the default
/// grace period of pods.
pub(crate) const PATIENCE_SECONDS: i64 = 30;
/// The pause before the next look, as long as there are pods.
const AGAIN: Backoff = Backoff::seconds(10, 300);

/// What is known of a stop that may not have been carried out.
#[derive(Clone, Debug)]
pub(crate) struct Unheeded {
    /// When it is looked at next.
    pub(crate) next: Timestamp,
    /// Whether the job was touched.
    pub(crate) touched: bool,
    /// How often it was looked at in vain.
    times: u32,
    /// Whether the last look found pods that are not being deleted.
    pub(crate) left: bool,
    /// How looking fares.
    pub(crate) retry: Retry,
}

impl Unheeded {
    /// From now on.
    pub(crate) fn since(now: Timestamp) -> Self {
        Self {
            next: now.checked_add(SignedDuration::from_secs(PATIENCE_SECONDS)).unwrap_or(Timestamp::MAX),
            touched: false,
            times: 0,
            left: false,
            retry: Retry::default(),
        }
    }

    /// Looks again, later each time.
    pub(crate) fn again(&mut self, now: Timestamp) {
        let wait = SignedDuration::from_millis(AGAIN.doubled(self.times));
        self.next = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.times = self.times.saturating_add(1);
    }
}

/// What is known of pods that may continue after their job has ended.
#[derive(Clone, Debug)]
pub(crate) struct Outlived {
    /// When it is looked at next.
    pub(crate) next: Timestamp,
    /// Until when they may end by themselves.
    pub(crate) until: Timestamp,
    /// How often it was looked at in vain.
    times: u32,
    /// How often in a row all that was left was being deleted.
    leaving: u32,
    /// Whether its running pods are being deleted.
    ends: bool,
    /// Whether there are none.
    pub(crate) is_over: bool,
    /// How looking fares.
    pub(crate) retry: Retry,
}

impl Outlived {
    /// From now on.
    pub(crate) fn since(now: Timestamp) -> Self {
        let patience = SignedDuration::from_secs(PATIENCE_SECONDS);
        let until = now.checked_add(patience).unwrap_or(Timestamp::MAX);
        Self { next: now, until, times: 0, leaving: 0, ends: false, is_over: false, retry: Retry::default() }
    }

    /// Looks again, later each time, and at the end of their time. Pods that are all being deleted are soon gone, as those of a stop are.
    pub(crate) fn again(&mut self, going_on: u32, now: Timestamp) {
        if self.until <= now && !std::mem::replace(&mut self.ends, true) {
            // They should be gone soon.
            self.times = 0;
        }
        let wait = if going_on == 0 {
            self.leaving = self.leaving.saturating_add(1);
            left_behind::pause(self.leaving - 1)
        } else {
            self.leaving = 0;
            self.times = self.times.saturating_add(1);
            SignedDuration::from_millis(AGAIN.doubled(self.times - 1))
        };
        let next = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        self.next = if self.until > now { next.min(self.until) } else { next };
        self.retry = Retry::default();
    }
}
