//! The threads of the webhooks' server. Reviews wait for nothing else that the manager does, such as explanations, scrapes and lists of objects, and
//! renewing the lease waits for no review.
//!
//! A small review is worked on by the thread that received it: the largest of them is weighed and read in a fifth of a millisecond, which is less than
//! another thread may take to wake. Large ones have a few threads, so that they leave processors to the others; and the heads of those that had no turn
//! have one, as their answers come late as it is.

use std::io;
use std::panic::resume_unwind;

use tokio::runtime::{Builder, Runtime};

/// The threads that receive, work on small reviews, and send.
const RECEIVING: usize = 2;
/// The threads that look at heads.
pub const HEADS: usize = 1;

/// How many large reviews are worked on at once: one for each processor, and two at least, so that the largest does not keep all others waiting.
pub fn large() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(2, 8)
}

/// A runtime for one server; ends when dropped.
#[derive(Debug)]
pub struct Threads(Option<Runtime>);

impl Threads {
    /// Starts them.
    ///
    /// # Errors
    ///
    /// If the system cannot start another thread.
    pub fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(RECEIVING).max_blocking_threads(large() + HEADS);
        builder.thread_name("webhooks").enable_all().build().map(|runtime| Self(Some(runtime)))
    }

    /// Serves on them to the end.
    ///
    /// # Panics
    ///
    /// If `serving` does.
    pub async fn run(self, serving: impl Future<Output = ()> + Send + 'static) {
        let Some(runtime) = &self.0 else { return };
        if let Err(why) = runtime.spawn(serving).await
            && let Ok(panic) = why.try_into_panic()
        {
            resume_unwind(panic);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Where tasks run, nothing may wait for threads.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
