//! Until when a leader may write, by its own clock.
//!
//! A process that was suspended does not know that another replica leads: what it had decided, and what it decides before it has read the lease, must
//! not be written. Its clock continues while it is suspended, so that it needs no answer from the API server for that.

use std::time::Instant;

use tokio::sync::watch;

/// Until when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// It does not lead.
    #[default]
    Past,
    /// The lease must be renewed by then; other replicas respect it for longer.
    At(Instant),
    /// It needs no lease.
    Always,
}

impl Until {
    fn is_open(self, now: Instant) -> bool {
        match self {
            Self::Past => false,
            Self::At(end) => now < end,
            Self::Always => true,
        }
    }
}

/// The side of writers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Deadline(watch::Receiver<Until>);

/// The election's side, and the side of writers.
pub fn pair() -> (watch::Sender<Until>, Deadline) {
    let (until, deadline) = watch::channel(Until::Past);
    (until, Deadline(deadline))
}

impl Deadline {
    /// A deadline that never comes.
    #[cfg(test)]
    pub fn never() -> Self {
        let (until, deadline) = pair();
        until.send_replace(Until::Always);
        deadline
    }

    /// Waits until it is ahead: at once, after a renewal that was late, or never, if the lease is lost.
    pub async fn ahead(&self) {
        let mut until = self.0.clone();
        while !until.borrow_and_update().is_open(Instant::now()) {
            if until.changed().await.is_err() {
                // The election is over, and its last deadline has passed.
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_has_passed_is_open_again_only_when_the_lease_is_renewed() {
        let (until, deadline) = pair();
        let is_ahead = || deadline.ahead().now_or_never().is_some();
        assert!(!is_ahead(), "it does not lead");
        until.send_replace(Until::At(Instant::now() + Duration::from_mins(1)));
        assert!(is_ahead());
        until.send_replace(Until::At(Instant::now()));
        assert!(!is_ahead(), "nothing but the clock says so");
        until.send_replace(Until::Always);
        assert!(is_ahead());
        drop(until);
        assert!(is_ahead(), "without a need for a lease there is no election");
        let (until, deadline) = pair();
        until.send_replace(Until::At(Instant::now()));
        drop(until);
        assert!(deadline.ahead().now_or_never().is_none());
    }
}
