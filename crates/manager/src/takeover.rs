//! What comes between winning the lease and deciding: Workloads are listed anew.
//!
//! Whoever led before may have admitted somebody a moment ago, and a watch may be seconds behind. A leader that does not know of
//! it would give the same quota, or the same nodes, away again. A list that begins after the lease was won has it all.

use std::sync::Arc;

use tokio::sync::watch;

/// The side of who leads: asks for a list, and learns that it is there.
#[derive(Debug)]
pub struct Takeover {
    asked: watch::Sender<u64>,
    listed: watch::Receiver<u64>,
}

/// The side of the watch of Workloads.
#[derive(Clone, Debug)]
pub struct Lists {
    asked: watch::Receiver<u64>,
    listed: Arc<watch::Sender<u64>>,
}

/// Both sides.
pub fn pair() -> (Takeover, Lists) {
    let (asked, asks) = watch::channel(0);
    let (lists, listed) = watch::channel(0);
    (Takeover { asked, listed }, Lists { asked: asks, listed: Arc::new(lists) })
}

impl Takeover {
    /// Asks for a list that begins from now on; those asked for before do not count any more.
    pub fn ask(&self) {
        self.asked.send_modify(|turn| *turn += 1);
    }

    /// Waits until the list that was asked for last has been delivered.
    pub async fn caught_up(&mut self) {
        while self.listed.changed().await.is_ok() {
            if *self.listed.borrow_and_update() == *self.asked.borrow() {
                return;
            }
        }
        // Nobody lists any more: it never will be.
        std::future::pending::<()>().await;
    }
}

impl Lists {
    /// The number of the list that was asked for last: one that begins now is that.
    pub fn turn(&mut self) -> u64 {
        *self.asked.borrow_and_update()
    }

    /// Waits until another list is asked for.
    pub async fn asked(&mut self) {
        if self.asked.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// The list of that number was delivered.
    pub fn delivered(&self, turn: u64) {
        self.listed.send_if_modified(|known| std::mem::replace(known, turn.max(*known)) < turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn only_a_list_that_began_after_the_last_question_is_the_answer() {
        let (mut takeover, mut lists) = pair();
        assert_eq!(lists.turn(), 0);
        lists.delivered(0);
        assert!(takeover.caught_up().now_or_never().is_none(), "nobody has asked");
        assert!(lists.asked().now_or_never().is_none());

        takeover.ask();
        assert!(lists.asked().now_or_never().is_some());
        lists.delivered(0);
        assert!(takeover.caught_up().now_or_never().is_none(), "that one had begun before");
        let first = lists.turn();
        takeover.ask();
        lists.delivered(first);
        assert!(takeover.caught_up().now_or_never().is_none(), "another term has begun since");
        let second = lists.turn();
        lists.delivered(second);
        assert!(takeover.caught_up().now_or_never().is_some());
        lists.delivered(second);
        assert!(takeover.caught_up().now_or_never().is_none(), "once is enough");
    }
}
