//! What an explanation reads from the API server, within bounds of time and memory. The answer names what was not read in time, or refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use sluice_api::job::JobKind;
use sluice_client::bounded::{self, Budget, Unread};
use sluice_client::error_chain::Chain;
use sluice_sim::explain::Subject;
use sluice_sim::live::{self, Extent, Keep, Listed, Live};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::SHARED;
use super::slots::Slots;

/// Reading, altogether.
const READING: Duration = Duration::from_secs(20);
/// The memory for the objects that one explanation of a small cohort reads, in bytes: some hundred Workloads and their jobs.
pub(super) const SMALL_BYTES: usize = 8 << 20;
/// And for one of a large cohort, if there is enough memory.
pub(super) const MOST_BYTES: usize = 512 << 20;

/// The reads of one explanation.
pub(super) struct Reads {
    client: Client,
    budget: Budget,
    began: Instant,
    within: Duration,
    /// Its time limit while others wait for these slots.
    shared: Duration,
    slots: Arc<Slots>,
    spent: AtomicBool,
}

impl Reads {
    /// Starts now, with this memory in bytes.
    pub fn new(client: Client, bytes: usize, slots: Arc<Slots>) -> Self {
        Self::within(client, READING, bytes, slots)
    }

    /// With this time limit.
    fn within(client: Client, within: Duration, bytes: usize, slots: Arc<Slots>) -> Self {
        let (budget, began) = (Budget::new(bytes), Instant::now());
        Self { client, budget, began, within, shared: SHARED, slots, spent: AtomicBool::new(false) }
    }

    /// Whether there was more than the memory holds.
    pub fn is_spent(&self) -> bool {
        self.spent.load(Ordering::Relaxed)
    }

    /// How many bytes more it may hold.
    pub fn left(&self) -> usize {
        self.budget.left()
    }

    /// Returns once it has taken as long as it may while others wait, and another waits.
    async fn crowded(&self) {
        sleep_until(self.began + self.shared).await;
        self.slots.until_others_wait().await;
    }

    async fn list(&self, place: String, query: String, most: usize, keep: Keep) -> Listed {
        let reading =
            bounded::objects(&self.client, &place, &query, most, &self.budget, |object| keep(object));
        let reading = async {
            tokio::select! {
                part = timeout_at(self.began + self.within, reading) => part.map_err(|_| self.within),
                () = self.crowded() => Err(self.shared),
            }
        };
        let part = match reading.await {
            Ok(part) => part,
            Err(within) => {
                let why = format!("the objects could not be read within {within:?}");
                return Listed { unread: Some(why), ..Listed::default() };
            }
        };
        if matches!(part.unread, Some(Unread::Spent(_))) {
            self.spent.store(true, Ordering::Relaxed);
        }
        let unread = part.unread.map(|why| Chain(&why).to_string());
        Listed { found: part.found, more: part.more, unread }
    }

    /// The object of the question, from the API server; or why it cannot be read.
    pub async fn subject(
        &self,
        namespace: &str,
        workload: Option<&str>,
        job: Option<(JobKind, &str)>,
    ) -> Result<Subject, String> {
        live::subject(namespace, workload, job, |place, query, most, keep| {
            self.list(place, query, most, keep)
        })
        .await
    }

    /// The world around it.
    pub async fn world(&self, extent: Extent<'_>, kinds: &[JobKind]) -> Live {
        let list = |place: String, query: &'static str, keep: Keep| async move {
            Ok::<_, std::convert::Infallible>(self.list(place, query.to_owned(), usize::MAX, keep).await)
        };
        let Ok(live) = live::read(extent, kinds, list).await;
        live
    }
}

#[cfg(test)]
mod tests;
