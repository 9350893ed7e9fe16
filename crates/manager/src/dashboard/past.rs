//! A Workload's past from the journal, if there is a journal.

use std::time::Duration;

use jiff::Timestamp;
use sluice_api::journal::WorkloadLine;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::journal::Reader;

/// The timeout for waiting for the previous request, and for reading.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the journal for one Workload at a time.
#[derive(Debug)]
pub struct Past {
    reader: Reader,
    one: Semaphore,
}

impl Past {
    /// Of this journal.
    pub fn new(reader: Reader) -> Self {
        Self { reader, one: Semaphore::new(1) }
    }

    /// The lines about the Workload of this UID, which was made then; nothing if they cannot be read in time.
    pub async fn of(&self, uid: &str, since: Timestamp) -> Vec<WorkloadLine> {
        let (reader, uid) = (self.reader.clone(), uid.to_owned());
        let reading = async {
            let _one = self.one.acquire().await;
            tokio::task::spawn_blocking(move || reader.about(&uid, since)).await
        };
        match tokio::time::timeout(TIMEOUT, reading).await {
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
}
