//! A Workload's past from the journal, if there is a journal.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sluice_api::journal::WorkloadLine;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::journal::Reader;
use crate::supervise::blocking;

/// The timeout for waiting for the previous request, and for reading.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the journal for one Workload at a time.
#[derive(Debug)]
pub struct Past {
    reader: Reader,
    one: Arc<Semaphore>,
}

impl Past {
    /// Of this journal.
    pub fn new(reader: Reader) -> Self {
        Self { reader, one: Arc::new(Semaphore::new(1)) }
    }

    /// The lines about the Workload of this UID, which was made then; nothing if they cannot be read in time.
    pub async fn of(&self, uid: &str, since: Timestamp) -> Vec<WorkloadLine> {
        let (reader, uid) = (self.reader.clone(), uid.to_owned());
        read_in_turn(&self.one, TIMEOUT, move || reader.about(&uid, since)).await
    }
}

/// What is read, when it is the turn of this read; nothing if that takes longer than the timeout, or fails.
async fn read_in_turn(
    one: &Arc<Semaphore>,
    timeout: Duration,
    read: impl FnOnce() -> io::Result<Vec<WorkloadLine>> + Send + 'static,
) -> Vec<WorkloadLine> {
    let reading = async {
        let turn = Arc::clone(one).acquire_owned().await;
        // The thread keeps its turn until it is done, which may be long after the timeout: no read can be cancelled.
        let reading = move || {
            let _turn = turn;
            read()
        };
        blocking("reading the journal", reading).await
    };
    match tokio::time::timeout(timeout, reading).await {
        Ok(Ok(Ok(lines))) => lines,
        Ok(Ok(Err(error))) => {
            warn!(%error, "the dashboard cannot read the journal");
            Vec::new()
        }
        Ok(Err(panic)) => {
            warn!(%panic, "reading the journal for the dashboard ended abnormally");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_read_that_hangs_keeps_the_only_turn() {
        let one = Arc::new(Semaphore::new(1));
        let (end, ended) = mpsc::channel::<()>();
        let hangs = move || {
            assert!(ended.recv().is_err());
            Ok(Vec::new())
        };
        // Each timeout passes at once: the first read has begun by then, the second waits.
        read_in_turn(&one, Duration::ZERO, hangs).await;
        let began = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&began);
        let second = move || {
            begins.store(true, Ordering::Relaxed);
            Ok(Vec::new())
        };
        read_in_turn(&one, Duration::ZERO, second).await;
        assert_eq!(one.available_permits(), 0);
        drop(end);
        // The turn comes back with the end of the first read.
        let turn = one.acquire().await;
        assert!(turn.is_ok() && !began.load(Ordering::Relaxed), "two reads at once");
    }
}
