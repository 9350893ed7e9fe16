//! How long watches that fail wait until they ask again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_engine::Backoff;
use tokio::sync::watch;
use tokio::time::sleep;

/// The pauses after failures in a row: an API server that is back should not wait long for us.
const PAUSES: Backoff = Backoff::millis(400, 5_000);
/// A watch that is answered after this number of failures in a row shows that the API server is back. One that just breaks now and then shows nothing.
const OUTAGE: u32 = 2;

/// What all watches share: how long they pause, and that one of them is answered again. What kept it away may have kept them all.
#[derive(Clone, Debug)]
pub struct Pauses {
    lengths: Backoff,
    returns: Arc<watch::Sender<()>>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self::of(PAUSES)
    }
}

impl Pauses {
    /// Of these lengths.
    pub fn of(lengths: Backoff) -> Self {
        Self { lengths, returns: Arc::new(watch::Sender::new(())) }
    }
}

/// The failures of one watch.
#[derive(Debug)]
pub struct Failures {
    answered: Answered,
    returned: watch::Receiver<()>,
    /// Those since the last event.
    complaints: u32,
}

/// Takes in each answer of the API server to a watch.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Failures since the last answer.
    in_a_row: Arc<AtomicU32>,
    pauses: Pauses,
}

impl Answered {
    /// The API server has answered: failures start again.
    pub fn report(&self) {
        if self.in_a_row.swap(0, Ordering::Relaxed) >= OUTAGE {
            self.pauses.returns.send_replace(());
        }
    }
}

impl Failures {
    /// None yet.
    pub fn new(pauses: &Pauses) -> Self {
        let answered = Answered { in_a_row: Arc::default(), pauses: pauses.clone() };
        Self { returned: pauses.returns.subscribe(), answered, complaints: 0 }
    }

    /// What takes in each answer: that a watch is accepted, a line of it.
    pub fn answered(&self) -> Answered {
        self.answered.clone()
    }

    /// Something came that shows that the API server answers.
    pub fn succeeded(&mut self) {
        self.complaints = 0;
        self.answered.report();
    }

    /// One more. Gives how many there were since the last success: a watch that is accepted and breaks each time is worth few words.
    pub fn failed(&mut self) -> u32 {
        self.answered.in_a_row.fetch_add(1, Ordering::Relaxed);
        self.complaints = self.complaints.saturating_add(1);
        self.complaints
    }

    /// Waits until it is time to ask again: longer after each failure in a row, and no longer than after the first when another watch is answered
    /// again.
    pub async fn pause(&mut self) {
        let Self { answered: Answered { in_a_row, pauses }, returned, .. } = self;
        let before = in_a_row.load(Ordering::Relaxed).saturating_sub(1);
        let returned = async {
            // The sender is held by this one, too.
            let _ = returned.changed().await;
            sleep(pauses.lengths.pause(0)).await;
        };
        tokio::select! {
            () = sleep(pauses.lengths.pause(before)) => {}
            () = returned => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// After twenty in a row it is long.
    const LONGER: Backoff = Backoff::millis(1, 36_000_000);

    #[tokio::test]
    async fn each_answer_begins_the_pauses_again() {
        let mut failures = Failures::new(&Pauses::of(LONGER));
        let answered = failures.answered();
        for complaints in 1..60 {
            assert_eq!(failures.failed(), complaints, "since the last event");
            failures.pause().await;
            answered.report();
        }
        failures.succeeded();
        assert_eq!(failures.failed(), 1);
    }

    #[tokio::test]
    async fn a_watch_that_is_back_wakes_the_others_and_one_that_flaps_does_not() {
        let pauses = Pauses::of(LONGER);
        let [mut one, mut other] = [(); 2].map(|()| Failures::new(&pauses));
        for _ in 0..40 {
            other.failed();
        }
        one.failed();
        one.answered().report();
        assert!(!other.returned.has_changed().unwrap() && other.pause().now_or_never().is_none());
        for _ in 0..2 {
            one.failed();
        }
        one.answered().report();
        // Also while it asked, before it knows that it asked in vain.
        other.failed();
        other.pause().await;
        assert!(!other.returned.has_changed().unwrap(), "once");
    }
}
