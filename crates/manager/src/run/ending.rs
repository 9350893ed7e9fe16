//! What the process does while its parts run, and the order in which it stops them.

use std::time::Duration;

use sluice_engine::input::Input;
use tokio::sync::watch;
use tokio::task::JoinError;
use tracing::{error, info, warn};

use super::Running;
use crate::lease::Standing;
use crate::metrics::registry::Role;
use crate::shutdown::Stopper;
use crate::signals::Signals;
use crate::supervise::blocking;

/// Writes are sent for this long after SIGTERM.
const DRAIN: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(5) };
/// How long everything else may take after that.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long giving the lease back may take. Tests want to see that it is given back, however busy the machine is.
const RELEASE: Duration = if cfg!(test) { Duration::from_mins(1) } else { PATIENCE };

impl Running {
    pub(super) async fn until_the_end(mut self, stopper: Stopper) -> anyhow::Result<u8> {
        match self.ending().await? {
            Ending::Asked => {
                self.stop_gracefully(stopper).await;
                Ok(0)
            }
            Ending::Fatal(why) => {
                error!(%why, "ending");
                self.give_up().await;
                Ok(1)
            }
        }
    }

    /// Does what the election and the lists ask for, until there is a reason to end.
    pub(super) async fn ending(&mut self) -> anyhow::Result<Ending> {
        let mut signals = Signals::new()?;
        loop {
            tokio::select! {
                name = signals.next() => {
                    info!(signal = name, "stopping");
                    return Ok(Ending::Asked);
                }
                Ok(()) = self.standing.changed() => self.standing_changed(),
                () = self.takeover.caught_up() => self.lead(),
                Some((why, answer)) = self.losses.recv() => {
                    self.step_down(&why).await;
                    // The election waits for this.
                    let _ = answer.send(());
                }
                // The election continues until the stop signal, which was not given yet.
                ended = &mut self.election => return Ok(Ending::Fatal(self.why_the_election_ended(ended))),
                Some(why) = self.fatal.recv() => return Ok(Ending::Fatal(why)),
            }
        }
    }

    /// A panic in it was reported before it ended.
    fn why_the_election_ended(&mut self, ended: Result<(), JoinError>) -> String {
        self.fatal.try_recv().unwrap_or_else(|_| match ended {
            Ok(()) => "the election ended".to_owned(),
            Err(error) => format!("the election failed: {error}"),
        })
    }

    fn standing_changed(&mut self) {
        if *self.standing.borrow_and_update() == Standing::Leading {
            if self.elected {
                self.registry.set_role(Role::Leader);
            }
            self.takeover.ask();
        }
    }

    /// The former leader's writes are known.
    fn lead(&self) {
        if lists_are_of_this_term(&self.standing) {
            self.engine.input(Input::Leader(true));
        }
    }

    /// Another replica may lead from now on: what is not written yet must not be. Everything is listed again, and the process
    /// stays: it answers webhooks, and leads again when it holds the lease again.
    async fn step_down(&mut self, why: &str) {
        error!(%why, "leadership is lost: following from now on");
        // A list in progress belongs to a term that is over.
        self.takeover.ask();
        // This also covers what the engine still emits before it steps down, however late that is.
        self.writer.abandon();
        self.engine.step_down();
        let _ = tokio::time::timeout(self.patience, self.engine.ask(|_| ())).await;
        self.registry.set_role(Role::Follower);
    }

    /// A part of the process is dead: nothing more is decided or sent. Once all that was sent is answered, the lease is given back at once.
    pub(super) async fn give_up(self) {
        self.engine.step_down();
        let _ = tokio::time::timeout(self.patience, self.engine.ask(|_| ())).await;
        self.writer.forget_waiting();
        if !self.writer.clone().is_quiet(self.patience).await {
            warn!("a write is still in progress: the lease is not released, and expires by itself");
            self.writer.abandon();
            return;
        }
        self.release.stop();
        if !self.election.is_finished() {
            let _ = tokio::time::timeout(RELEASE, self.election).await;
        }
    }

    /// Stops deciding, lets what was decided be written, gives the lease back, and only then closes the servers. What could not be sent in time is
    /// left to the next leader, which decides it again. With a write that was not answered the lease is kept until it expires: that write may come
    /// late, and the next leader must not have decided by then.
    pub(super) async fn stop_gracefully(self, stopper: Stopper) {
        self.engine.input(Input::Leader(false));
        // Once this is answered the writer has what the engine emitted before.
        let _ = tokio::time::timeout(self.patience, self.engine.ask(|_| ())).await;
        let mut answered = self.writer.clone().drain(DRAIN).await;
        if !answered {
            self.writer.forget_waiting();
            answered = self.writer.clone().drain(self.patience).await;
        }
        if answered {
            self.release.stop();
            let _ = tokio::time::timeout(RELEASE, self.election).await;
        } else {
            warn!("not all writes were answered in time: the lease is not released, and expires by itself");
            self.writer.abandon();
            self.election.abort();
        }
        stopper.stop();
        self.engine.stop();
        let engine_thread = self.engine_thread;
        let joined = blocking("the wait for the engine", move || engine_thread.join());
        let _ = tokio::time::timeout(self.patience, joined).await;
        let _ = tokio::time::timeout(self.patience, futures::future::join_all(self.last)).await;
        let _ = tokio::time::timeout(Duration::from_millis(500), self.events).await;
        for task in self.tasks {
            let _ = tokio::time::timeout(Duration::from_millis(500), task).await;
        }
        info!("stopped");
    }
}

/// Whether this replica leads, and lists were asked for since it began to. Those that came in the moment in which it won the lease were asked for
/// when it lost it: another replica may have led since.
fn lists_are_of_this_term(standing: &watch::Receiver<Standing>) -> bool {
    let standing = standing.borrow();
    *standing == Standing::Leading && !standing.has_changed()
}

/// Why the process ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By a signal.
    Asked,
    /// A part of it is dead.
    Fatal(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_term_before_are_not_enough_to_lead() {
        let waiting = || Standing::Waiting { rival: None, detail: String::new() };
        let (standing, mut seen) = watch::channel(waiting());
        assert!(!lists_are_of_this_term(&seen));
        for _ in 0..2 {
            standing.send_replace(Standing::Leading);
            assert!(!lists_are_of_this_term(&seen), "none were asked for yet");
            seen.borrow_and_update();
            assert!(lists_are_of_this_term(&seen));
            standing.send_replace(waiting());
            assert!(!lists_are_of_this_term(&seen));
        }
    }
}
