//! How long a cycle waits for more of the changes that caused it.

use jiff::SignedDuration;

/// The time between a reason for a cycle and the cycle: what comes meanwhile is decided on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// While no write waits, in microseconds.
    pub shortest_us: i64,
    /// Added for each waiting write that is sent before those of the decision, in microseconds.
    pub per_write_us: i64,
    /// How much longer at most, however many wait, in microseconds.
    pub most_us: i64,
}

impl Gather {
    /// Cycles follow at once.
    pub const NONE: Self = Self { shortest_us: 0, per_write_us: 0, most_us: 0 };

    /// This long while the API server is idle; longer while writes wait that would be sent before those of the decision.
    pub fn of(shortest: SignedDuration) -> Self {
        let shortest_us = i64::try_from(shortest.as_micros()).unwrap_or(i64::MAX);
        if shortest_us == 0 { Self::NONE } else { Self { shortest_us, per_write_us: 500, most_us: 50_000 } }
    }

    /// The time while this number of writes waits that are sent before those of the decision.
    pub fn while_waiting(self, writes: u32) -> SignedDuration {
        let more = self.per_write_us.saturating_mul(i64::from(writes)).min(self.most_us);
        SignedDuration::from_micros(self.shortest_us.saturating_add(more))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_with_what_waits_up_to_its_bound() {
        let gather = Gather::of(SignedDuration::from_millis(3));
        let us = |writes| gather.while_waiting(writes).as_micros();
        assert_eq!([0, 16, 100, u32::MAX].map(us), [3_000, 11_000, 53_000, 53_000]);
        assert_eq!(Gather::of(SignedDuration::ZERO).while_waiting(100), SignedDuration::ZERO);
    }
}
