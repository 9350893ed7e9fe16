//! Questions about the whole world, which are answered page by page: in between the engine goes on.

use std::time::Duration;

use super::{Command, Handle};

/// For so long pages are turned before the engine looks at its inputs again: as many as fit, and one at least. The longest page of the largest
/// world may take longer; it goes alone then.
pub(super) const TURN: Duration = Duration::from_millis(2);

/// Objects and series that are looked at for one page.
pub const PAGE: usize = 250;

/// A question that is answered page by page.
pub(super) struct Pages<M> {
    /// Turns the next page; whether the question is answered.
    turn: Box<dyn FnMut(&mut M) -> bool + Send>,
    /// How long its longest page took.
    longest: Duration,
}

impl<M> Pages<M> {
    /// Whether another page probably ends within the turn, of which so much has passed.
    pub(super) fn fit(&self, passed: Duration) -> bool {
        passed.is_zero() || passed + self.longest < TURN
    }

    /// Turns the next page, which began when so much of the turn had passed; whether the question is answered. `elapsed` says how much has.
    pub(super) fn turn(&mut self, machine: &mut M, passed: Duration, elapsed: impl Fn() -> Duration) -> bool {
        let answered = (self.turn)(machine);
        self.longest = self.longest.max(elapsed().saturating_sub(passed));
        answered
    }
}

impl<M> Handle<M> {
    /// Asks the engine page by page: `page` adds the next page to `answer` and says whether it was the last. Nothing when the thread has
    /// ended. With nothing to wait for the answer any more, no more pages are turned.
    pub async fn pages<T: Send + 'static>(
        &self,
        answer: T,
        mut page: impl FnMut(&mut T, &mut M) -> bool + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut open = Some((answer, sender));
        let turn = move |machine: &mut M| {
            let Some((answer, _)) = open.as_mut().filter(|(_, sender)| !sender.is_closed()) else {
                return true;
            };
            if !page(answer, machine) {
                return false;
            }
            if let Some((answer, sender)) = open.take() {
                // It may have been given up in this moment.
                let _ = sender.send(answer);
            }
            true
        };
        self.send(Command::Pages(Pages { turn: Box::new(turn), longest: Duration::ZERO }));
        receiver.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn no_page_begins_that_would_end_after_the_turn_and_one_is_turned_in_any_case() {
        const MILLISECOND: Duration = Duration::from_millis(1);
        for (page, turned) in [(TURN / 10, 9), (TURN / 2, 1), (TURN * 2, 1)] {
            let clock = Cell::new(Duration::ZERO);
            // Its longest page is known.
            let mut pages = Pages { turn: Box::new(|&mut ()| false), longest: page };
            let mut turns = 0;
            while pages.fit(clock.get()) {
                let passed = clock.get();
                clock.set(passed + page);
                assert!(!pages.turn(&mut (), passed, || clock.get()));
                turns += 1;
            }
            assert_eq!(turns, turned, "{page:?}");
            assert!(clock.get() <= TURN.max(page));
            assert_eq!(pages.longest, page);
            clock.set(MILLISECOND * 10);
            pages.turn(&mut (), MILLISECOND * 4, || clock.get());
            assert_eq!(pages.longest, (MILLISECOND * 6).max(page));
        }
    }
}
