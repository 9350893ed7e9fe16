//! How many statuses are written per second, of all queues and Cohorts together.

use jiff::{SignedDuration, Timestamp};

/// Slots at equal distances; those of the last second may still be taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    next: Option<Timestamp>,
}

impl Budget {
    /// Takes a slot: the time from which it may be used. `per_second` of 0 means no limit. Each of the `waiting` writes makes the distance longer by
    /// a millisecond, up to four times as long: a status that is written later has the numbers of more changes.
    pub fn take(&mut self, now: Timestamp, per_second: u32, waiting: u32) -> Timestamp {
        let Some(step) = 1_000_i64.checked_div(i64::from(per_second)) else { return now };
        let step = SignedDuration::from_millis(step + (3 * step).min(i64::from(waiting)));
        let slot = self.slot(now, step);
        self.next = slot.checked_add(step).ok();
        slot.max(now)
    }

    /// Takes a slot that may be used now.
    ///
    /// # Errors
    ///
    /// If there is none: the time of the next one, which is not taken.
    pub fn take_now(&mut self, now: Timestamp, per_second: u32) -> Result<(), Timestamp> {
        let Some(step) = 1_000_i64.checked_div(i64::from(per_second)) else { return Ok(()) };
        let step = SignedDuration::from_millis(step);
        let slot = self.slot(now, step);
        if slot > now {
            return Err(slot);
        }
        self.next = slot.checked_add(step).ok();
        Ok(())
    }

    /// The next slot at such a distance.
    fn slot(&self, now: Timestamp, step: SignedDuration) -> Timestamp {
        let second = SignedDuration::from_secs(1).saturating_sub(step).max(SignedDuration::ZERO);
        let earliest = now.checked_sub(second).unwrap_or(now);
        self.next.map_or(earliest, |next| next.max(earliest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + ms).unwrap()
    }

    #[test]
    fn a_second_of_slots_at_once_and_then_one_after_the_other() {
        let mut budget = Budget::default();
        for _ in 0..20 {
            assert_eq!(budget.take(at(0), 20, 0), at(0));
        }
        assert_eq!(budget.take(at(0), 20, 0), at(50));
        assert_eq!(budget.take(at(10), 20, 0), at(100));
        assert_eq!(budget.take(at(60_000), 20, 0), at(60_000));
    }

    #[test]
    fn slots_are_farther_apart_while_writes_wait_and_at_most_four_times_as_far() {
        for (waiting, apart) in [(16, 66), (50, 100), (150, 200), (100_000, 200)] {
            let mut budget = Budget::default();
            let slots: Vec<_> = (0..40).map(|_| budget.take(at(0), 20, waiting)).collect();
            assert_eq!(slots[39].duration_since(slots[38]).as_millis(), apart, "{waiting} wait");
        }
    }

    #[test]
    fn a_slot_that_comes_later_is_not_taken() {
        let mut budget = Budget::default();
        assert!((0..25).all(|_| budget.take_now(at(0), 25).is_ok()));
        assert_eq!(budget.take_now(at(0), 25), Err(at(40)));
        assert_eq!(budget.take_now(at(0), 25), Err(at(40)));
        assert_eq!(budget.take_now(at(40), 25), Ok(()));
        assert_eq!(budget.take_now(at(41), 25), Err(at(80)));
    }

    #[test]
    fn the_first_slot_is_free_however_far_they_are_apart() {
        let mut budget = Budget::default();
        let slots: Vec<_> = (0..3).map(|_| budget.take(at(0), 1, 100_000)).collect();
        assert_eq!(slots, [at(0), at(4_000), at(8_000)]);
    }

    #[test]
    fn no_budget_is_no_limit() {
        let mut budget = Budget::default();
        assert!((0..1_000).all(|_| budget.take(at(7), 0, 9) == at(7)));
    }
}
