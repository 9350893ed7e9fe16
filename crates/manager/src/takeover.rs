//! Between winning the lease and deciding: Sluice's own kinds, jobs, and pods that the manager ungates are listed again.
//!
//! The former leader may have admitted, started or stopped a job a moment ago, and watches may be seconds behind. A leader that does not know that
//! would give the same quota, or the same nodes, away again, start a job that was just stopped, or free the quota of one that was just started. With
//! older versions of queues than the former leader had, it would undo decisions: for example revoke the admission of a running job whose queue has
//! dropped a check. Lists that begin after the lease was won have it all.
//!
//! The former leader knew from the answers to its writes which pods of elastic jobs, and of jobs with a topology assignment, it had ungated: a leader
//! that takes them for gated would ungate others in their places. Nodes, other pods and ProvisioningRequests are written by other programs, and are
//! no older than they may be for any leader at any time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::input::Kind;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use crate::watch::kinds;

/// How long a takeover waits for jobs of a kind that cannot be listed (for example because its conversion webhook is broken), or for pods.
const PATIENCE: Duration = Duration::from_secs(30);

/// By watched kind: the number of the last list that was delivered.
type Delivered = BTreeMap<Kind, u64>;

/// Whether objects of a kind are listed again: those that a leader's decisions write, or depend on.
pub fn concerns(kind: Kind) -> bool {
    kinds::OWN.contains(&kind) || matches!(kind, Kind::Job(_) | Kind::JobPod)
}

/// The leader's side: requests lists, and is notified when they are complete.
#[derive(Debug)]
pub struct Takeover {
    asked: watch::Sender<u64>,
    delivered: watch::Receiver<Delivered>,
    /// The last that it has learned of.
    known: u64,
    /// When they were asked for.
    since: Instant,
}

/// The side of the watches.
#[derive(Clone, Debug)]
pub struct Lists {
    asked: watch::Receiver<u64>,
    delivered: Arc<watch::Sender<Delivered>>,
}

/// Both sides.
pub fn pair() -> (Takeover, Lists) {
    let (asked, asks) = watch::channel(0);
    let (lists, delivered) = watch::channel(Delivered::new());
    (
        Takeover { asked, delivered, known: 0, since: Instant::now() },
        Lists { asked: asks, delivered: Arc::new(lists) },
    )
}

impl Takeover {
    /// Requests lists that begin from now on; earlier ones do not count any more.
    pub fn ask(&mut self) {
        self.since = Instant::now();
        self.asked.send_modify(|turn| *turn += 1);
    }

    /// Waits until the lists that were last requested have been delivered, once; for jobs at most half a minute.
    pub async fn caught_up(&mut self) {
        loop {
            let turn = *self.asked.borrow();
            let deadline = self.since + PATIENCE;
            let late = Instant::now() >= deadline;
            if turn > self.known && is_complete(&self.delivered.borrow_and_update(), turn, late) {
                if !is_complete(&self.delivered.borrow(), turn, false) {
                    warn!("not all jobs could be listed: deciding with what the watches have shown");
                }
                self.known = turn;
                return;
            }
            let changed = self.delivered.changed();
            let changed = if late || turn == self.known {
                changed.await
            } else {
                timeout_at(deadline, changed).await.unwrap_or(Ok(()))
            };
            if changed.is_err() {
                // No watch lists any more: they will never come.
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Whether every watched kind was listed for a turn, or all but jobs if it is `late`. A kind of jobs that does not exist is not watched; Sluice's own
/// kinds always are.
fn is_complete(delivered: &Delivered, turn: u64, late: bool) -> bool {
    let own = kinds::OWN.iter().all(|kind| delivered.get(kind) == Some(&turn));
    own && (late || delivered.values().all(|last| *last == turn))
}

impl Lists {
    /// A kind is watched from now on.
    pub fn begin(&self, kind: Kind) {
        if concerns(kind) {
            self.delivered.send_modify(|all| *all.entry(kind).or_default() = 0);
        }
    }

    /// A kind is not watched any more.
    pub fn end(&self, kind: Kind) {
        self.delivered.send_if_modified(|all| all.remove(&kind).is_some());
    }

    /// The number of the last request: a list that begins now belongs to it.
    pub fn turn(&mut self) -> u64 {
        *self.asked.borrow_and_update()
    }

    /// Waits until other lists are asked for.
    pub async fn asked(&mut self) {
        if self.asked.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The list of a kind with that number was delivered.
    pub fn delivered(&self, kind: Kind, turn: u64) {
        self.delivered.send_if_modified(|all| match all.get_mut(&kind) {
            Some(last) if *last < turn => {
                *last = turn;
                true
            }
            _ => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use sluice_api::job::JobKind;

    const JOBS: Kind = Kind::Job(JobKind::JOB);

    fn is_there(takeover: &mut Takeover) -> bool {
        takeover.caught_up().now_or_never().is_some()
    }

    fn deliver_own(lists: &Lists, turn: u64) {
        for kind in kinds::OWN {
            lists.delivered(kind, turn);
        }
    }

    #[tokio::test]
    async fn only_a_list_that_began_after_the_last_question_is_the_answer() {
        let (mut takeover, mut lists) = pair();
        for kind in kinds::OWN {
            lists.begin(kind);
        }
        deliver_own(&lists, lists.clone().turn());
        assert!(!is_there(&mut takeover), "no lists were asked for");
        assert!(lists.asked().now_or_never().is_none());

        takeover.ask();
        assert!(lists.asked().now_or_never().is_some());
        deliver_own(&lists, 0);
        assert!(!is_there(&mut takeover), "those had begun before");
        let first = lists.turn();
        takeover.ask();
        deliver_own(&lists, first);
        assert!(!is_there(&mut takeover), "another term has begun since");
        let second = lists.turn();
        deliver_own(&lists, second);
        assert!(is_there(&mut takeover));
        deliver_own(&lists, second);
        assert!(!is_there(&mut takeover), "once is enough");
    }

    #[tokio::test]
    async fn all_kinds_that_exist_are_listed_and_no_others_waited_for() {
        let (mut takeover, mut lists) = pair();
        takeover.ask();
        let turn = lists.turn();
        lists.begin(Kind::Node);
        lists.begin(JOBS);
        lists.delivered(JOBS, turn);
        assert!(!is_there(&mut takeover), "the watches of our own kinds have not begun");
        for kind in kinds::OWN {
            lists.begin(kind);
        }
        lists.begin(Kind::Job(JobKind::JOB_SET));
        deliver_own(&lists, turn);
        assert!(!is_there(&mut takeover), "JobSets are not listed");
        lists.end(Kind::Job(JobKind::JOB_SET));
        assert!(is_there(&mut takeover), "they do not exist any more");
        lists.begin(Kind::JobPod);
        takeover.ask();
        let turn = lists.turn();
        deliver_own(&lists, turn);
        lists.delivered(JOBS, turn);
        assert!(!is_there(&mut takeover), "it is not known which pods the former leader released");
        lists.delivered(Kind::JobPod, turn);
        assert!(is_there(&mut takeover));
    }

    #[test]
    fn jobs_that_cannot_be_listed_do_not_hold_up_a_takeover_for_good() {
        let mut delivered: Delivered = kinds::OWN.into_iter().map(|kind| (kind, 1)).collect();
        delivered.insert(JOBS, 0);
        assert!(!is_complete(&delivered, 1, false));
        assert!(is_complete(&delivered, 1, true));
        for kind in kinds::OWN {
            let mut delivered = delivered.clone();
            delivered.insert(kind, 0);
            assert!(!is_complete(&delivered, 1, true), "without {} nothing is decided", kind.as_str());
        }
    }
}
