//! How long a Workload waits until the reason for that is written.

use jiff::SignedDuration;

/// The delay of a reason for waiting: short while few writes wait to be sent, longer the more there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusDelay {
    /// While no write waits, in milliseconds.
    pub shortest_ms: i64,
    /// For each write that waits, in milliseconds.
    pub per_write_ms: i64,
    /// However many wait, in milliseconds.
    pub longest_ms: i64,
}

impl StatusDelay {
    /// Reasons are written at once.
    pub const NONE: Self = Self { shortest_ms: 0, per_write_ms: 0, longest_ms: 0 };

    /// Within a second while the API server is idle: people look at once. After 10 s at most a reason is due, however many writes wait; its turn
    /// comes later if very many are.
    pub const ADAPTIVE: Self = Self { shortest_ms: 500, per_write_ms: 25, longest_ms: 10_000 };

    /// The delay while this number of writes waits.
    pub fn while_waiting(self, writes: u32) -> SignedDuration {
        let more = self.per_write_ms.saturating_mul(i64::from(writes));
        SignedDuration::from_millis(self.shortest_ms.saturating_add(more).min(self.longest_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_with_what_waits_up_to_its_bound() {
        let ms = |writes| StatusDelay::ADAPTIVE.while_waiting(writes).as_millis();
        assert_eq!([0, 1, 20, 380, 10_000, u32::MAX].map(ms), [500, 525, 1_000, 10_000, 10_000, 10_000]);
        assert_eq!(StatusDelay::NONE.while_waiting(u32::MAX), SignedDuration::ZERO);
    }
}
