//! Questions about the whole world, which are answered page by page: in between the engine continues.

use std::time::Duration;

use super::{Command, Handle};

/// For how long pages are computed before the engine looks at its inputs again: as many as fit, and at least one. The longest page of the largest
/// world may take longer; it is then computed alone.
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
    /// Whether another page probably ends within the turn, of which this much has passed.
    pub(super) fn fit(&self, passed: Duration) -> bool {
        passed.is_zero() || passed + self.longest < TURN
    }

    /// Computes the next page, which begins when this much of the turn has passed; returns whether the question is answered. `elapsed` returns how
    /// much has passed.
    pub(super) fn turn(&mut self, machine: &mut M, passed: Duration, elapsed: impl Fn() -> Duration) -> bool {
        let answered = (self.turn)(machine);
        self.longest = self.longest.max(elapsed().saturating_sub(passed));
        answered
    }
}

impl<M> Handle<M> {
    /// Asks the engine page by page: `page` adds the next page to `answer` and returns whether it was the last. `None` if the thread has ended. If
    /// the caller does not wait any more, no more pages are computed.
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
                // The caller may have given up in this moment.
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
