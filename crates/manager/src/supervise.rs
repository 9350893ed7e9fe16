//! Tasks and threads that the process needs: if one panics, or ends before the stop signal, the process ends with its reason. A manager that
//! continued without one of them would hold the lease and not do its work.
//!
//! Everything here is started through a [`Supervisor`]; clippy refuses the plain functions (`clippy.toml`).

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tracing::error;

use crate::shutdown::Stop;

/// Starts tasks and threads. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Supervisor {
    fatal: mpsc::Sender<String>,
    stop: Stop,
}

/// How many reasons to end are kept. The first one ends the process: the others are only for the log.
const REASONS: usize = 16;

/// Where reasons to end the process go, and where they are read.
pub fn reasons() -> (mpsc::Sender<String>, mpsc::Receiver<String>) {
    mpsc::channel(REASONS)
}

impl Supervisor {
    /// `fatal` receives the reason for which the process must end; after `stop` tasks may end.
    pub fn new(fatal: mpsc::Sender<String>, stop: Stop) -> Self {
        Self { fatal, stop }
    }

    /// The same for tasks that another signal ends.
    #[must_use]
    pub fn until(&self, stop: Stop) -> Self {
        Self { fatal: self.fatal.clone(), stop }
    }

    /// Ends the process.
    pub fn fatal(&self, why: String) {
        // The receiver lives as long as the process should. If there are enough reasons, one more changes nothing.
        let _ = self.fatal.try_send(why);
    }

    /// Starts a task that continues until the stop.
    pub fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let supervisor = self.clone();
        self.spawn_finite(name, async move {
            task.await;
            supervisor.ended("task", name);
        })
    }

    /// Starts a task that may end.
    #[expect(clippy::disallowed_methods, reason = "this is what watches over it")]
    pub fn spawn_finite(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let supervisor = self.clone();
        tokio::spawn(async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                supervisor.fatal(format!("the task {name} panicked: {}", text(&*panic)));
            }
        })
    }

    /// Starts a thread that continues until the stop.
    ///
    /// # Errors
    ///
    /// If the system cannot start another thread.
    pub fn thread(
        &self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        let supervisor = self.clone();
        self.thread_finite(name, move || {
            work();
            supervisor.ended("thread", name);
        })
    }

    /// Starts a thread that may end.
    ///
    /// # Errors
    ///
    /// If the system cannot start another thread.
    #[expect(clippy::disallowed_methods, reason = "this is what watches over it")]
    pub fn thread_finite(
        &self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<thread::JoinHandle<()>> {
        let supervisor = self.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                supervisor.fatal(format!("the thread {name} panicked: {}", text(&*panic)));
            }
        })
    }

    fn ended(&self, what: &str, name: &str) {
        if !self.stop.is_stopped() {
            self.fatal(format!("the {what} {name} ended"));
        }
    }
}

/// The result of `work` on one object. It must leave nothing half done that outlives it.
///
/// # Errors
///
/// The message of the panic, if `work` panics.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text(&*panic))
}

/// Runs `work` that takes long on a thread that serves nothing else, and returns its result. The work continues if its caller does not wait any more;
/// a panic is logged even then.
///
/// # Errors
///
/// If `work` panics, or the process ends before it begins.
#[expect(clippy::disallowed_methods, reason = "a panic is logged, and is the answer")]
pub async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let watched = move || {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            error!(what, why = %text(&*panic), "a part of the manager panicked");
            resume_unwind(panic)
        })
    };
    tokio::task::spawn_blocking(watched).await
}

/// A panic's message.
pub fn text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_else(|| "panic without a message".to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::shutdown::{Stopper, pair};

    /// A supervisor, and what it would end the process with.
    pub(crate) fn supervisor() -> (Supervisor, mpsc::Receiver<String>, Stopper) {
        let (fatal, fatals) = reasons();
        let (stopper, stop) = pair();
        (Supervisor::new(fatal, stop), fatals, stopper)
    }

    #[tokio::test]
    async fn a_task_that_panics_or_ends_is_fatal() {
        let (supervisor, mut fatals, _stopper) = supervisor();
        supervisor.spawn("watch", async { panic!("a bug") });
        assert_eq!(fatals.recv().await.unwrap(), "the task watch panicked: a bug");
        supervisor.spawn("lease", async {});
        assert_eq!(fatals.recv().await.unwrap(), "the task lease ended");
        supervisor.spawn_finite("event", async { panic!("{}", 7) });
        assert_eq!(fatals.recv().await.unwrap(), "the task event panicked: 7");
    }

    #[tokio::test]
    async fn a_thread_that_panics_or_ends_is_fatal() {
        let (supervisor, mut fatals, _stopper) = supervisor();
        supervisor.thread("engine", || panic!("a bug")).unwrap();
        assert_eq!(fatals.recv().await.unwrap(), "the thread engine panicked: a bug");
        supervisor.thread("engine", || {}).unwrap();
        assert_eq!(fatals.recv().await.unwrap(), "the thread engine ended");
    }

    #[tokio::test]
    async fn a_part_that_ends_on_request_or_may_end_is_not_fatal() {
        let (supervisor, mut fatals, stopper) = supervisor();
        supervisor.spawn_finite("event", async {}).await.unwrap();
        supervisor.thread_finite("record", || {}).unwrap().join().unwrap();
        stopper.stop();
        supervisor.spawn("watch", async {}).await.unwrap();
        assert!(fatals.try_recv().is_err());
    }

    #[test]
    fn reasons_to_end_are_bounded_and_the_first_one_is_kept() {
        let (supervisor, mut fatals, _stopper) = supervisor();
        for number in 0..10 * REASONS {
            supervisor.fatal(format!("reason {number}"));
        }
        assert_eq!(fatals.len(), REASONS);
        assert_eq!(fatals.try_recv().unwrap(), "reason 0");
    }

    #[tokio::test]
    async fn a_panic_on_a_thread_of_its_own_is_an_error() {
        assert_eq!(blocking("sum", || 1 + 1).await.unwrap(), 2);
        let error = blocking("sum", || -> u8 { panic!("a bug") }).await.unwrap_err();
        assert_eq!(text(&*error.into_panic()), "a bug");
    }

    #[test]
    fn a_panic_on_one_object_is_an_answer() {
        assert_eq!(guarded(|| 1), Ok(1));
        assert_eq!(guarded(|| -> u8 { panic!("poison") }), Err("poison".to_owned()));
    }
}
