//! Writes that pause before a retry, or wait in turn: they give their slots to others. Starts, stops and admissions have one again before
//! new writes.

use std::sync::atomic::Ordering;

use super::Traffic;

/// A pausing write gives its slot to another one.
#[derive(Debug)]
pub struct Pausing {
    traffic: Traffic,
    is_over: bool,
}

impl Pausing {
    /// A write pauses.
    pub(super) fn begin(traffic: Traffic) -> Self {
        traffic.0.pausing.send_modify(|pausing| *pausing += 1);
        Self { traffic, is_over: false }
    }

    /// The write has a slot again, if one is free; whether it has.
    pub fn ends(&mut self) -> bool {
        self.ends_beside(0)
    }

    /// The same for a lesser write: it leaves the slots to the starts, stops and admissions that wait for one.
    pub fn ends_beside_others(&mut self) -> bool {
        self.ends_beside(self.traffic.returning())
    }

    /// The write has a slot again, if one is free beside so many.
    fn ends_beside(&mut self, others: usize) -> bool {
        let (shared, limit) = (&self.traffic.0, self.traffic.limit());
        let elsewhere = shared.hanging.load(Ordering::Relaxed);
        let begun = *shared.begun.borrow();
        // Those whose pauses end at the same time come one after the other.
        self.is_over = self.is_over
            || shared.pausing.send_if_modified(|pausing| {
                let is_free = begun.saturating_sub(*pausing + elsewhere) + others < limit;
                *pausing -= usize::from(is_free);
                is_free
            });
        self.is_over
    }

    /// Waits until the write has a slot again. Those that wait for one have the next ones, in order: no new write takes them.
    pub async fn finds_slot(&mut self) {
        let returning = Returning::begin(self.traffic.clone());
        let shared = &returning.0.0;
        let _first = shared.returns.lock().await;
        let mut looks = shared.begun.subscribe();
        while !self.ends() {
            // The sender lives as long as `self`.
            let _ = looks.changed().await;
        }
    }
}

/// A write waits for a slot after its pause.
struct Returning(Traffic);

impl Returning {
    fn begin(traffic: Traffic) -> Self {
        traffic.0.returning.fetch_add(1, Ordering::Relaxed);
        Self(traffic)
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        let shared = &self.0.0;
        shared.returning.fetch_sub(1, Ordering::Relaxed);
        // New writes may have a slot more.
        shared.pausing.send_modify(|_| {});
    }
}

impl Drop for Pausing {
    fn drop(&mut self) {
        if !self.is_over {
            self.traffic.0.pausing.send_modify(|pausing| *pausing -= 1);
        }
    }
}

/// A write that waits in turn gives its slot to another one, too.
#[derive(Debug)]
pub struct InTurn(Pausing);

impl InTurn {
    /// Such a write pauses, and is counted already.
    pub(super) const fn new(pausing: Pausing) -> Self {
        Self(pausing)
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        self.0.traffic.0.in_turn.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::super::Numbers;
    use super::*;

    #[test]
    fn what_pauses_comes_back_to_free_slots_alone() {
        let traffic = Traffic::default();
        let mut pausing: Vec<_> = (0..20).map(|_| traffic.pause()).collect();
        // Of 8 slots 3 are in use, and another write hangs elsewhere.
        traffic.set(&Numbers { begun: 24, in_flight: 4, hanging: 1, ..Numbers::default() });
        let back = pausing.iter_mut().map(Pausing::ends).filter(|back| *back).count();
        assert_eq!((back, *traffic.pausing().borrow()), (5, 15));
        assert!(pausing[0].ends(), "it has its slot");
        assert!(!pausing[5].ends());
        drop(pausing);
        assert_eq!(*traffic.pausing().borrow(), 0);
    }

    #[test]
    fn a_lesser_write_leaves_the_next_slot_to_one_that_waits_for_it() {
        let traffic = Traffic::default();
        let (mut start, mut lesser) = (traffic.pause(), traffic.pause());
        let in_use = |slots: usize| {
            let begun = slots + *traffic.pausing().borrow();
            traffic.set(&Numbers { begun, in_flight: slots, ..Numbers::default() });
        };
        in_use(8);
        let mut waiting = Box::pin(start.finds_slot());
        assert_eq!(waiting.as_mut().now_or_never(), None, "8 may be in flight");
        in_use(7);
        assert!(!lesser.ends_beside_others());
        in_use(6);
        assert!(lesser.ends_beside_others(), "one is free beside it");
        assert_eq!(waiting.as_mut().now_or_never(), Some(()));
    }

    #[test]
    fn those_that_wait_for_a_slot_after_their_pauses_have_the_next_ones_in_order() {
        let traffic = Traffic::default();
        let mut pausing: [Pausing; 3] = std::array::from_fn(|_| traffic.pause());
        let in_use = |slots: usize| {
            let begun = slots + *traffic.pausing().borrow();
            traffic.set(&Numbers { begun, in_flight: slots, ..Numbers::default() });
        };
        in_use(8);
        {
            let mut waiting = pausing.each_mut().map(|one| Some(Box::pin(one.finds_slot())));
            let mut back = |at: usize| {
                let done = waiting[at].as_mut().is_some_and(|one| one.as_mut().now_or_never().is_some());
                if done {
                    waiting[at] = None;
                }
                done
            };
            assert_eq!(
                ([0, 1, 2].map(&mut back), traffic.returning()),
                ([false; 3], 3),
                "8 may be in flight"
            );
            in_use(7);
            assert_eq!(([0, 1, 2].map(&mut back), traffic.returning()), ([true, false, false], 2));
            waiting[1] = None;
            assert_eq!(traffic.returning(), 1, "one waits no longer");
            in_use(6);
            let third = waiting[2].as_mut().and_then(|one| one.as_mut().now_or_never());
            assert_eq!((third, traffic.returning()), (Some(()), 0));
        }
        drop(pausing);
        assert_eq!(*traffic.pausing().borrow(), 0);
    }
}
