//! Exponential backoff (docs/reference/06-algorithm.md 6.15, 6.16 and 6.23).

use std::time::Duration;

/// How waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first_ms: i64,
    longest_ms: i64,
}

impl Backoff {
    /// The first wait and the longest, in milliseconds.
    pub const fn millis(first: i64, longest: i64) -> Self {
        Self { first_ms: first, longest_ms: longest }
    }

    /// The first wait and the longest, in seconds.
    pub const fn seconds(first: i64, longest: i64) -> Self {
        Self::millis(first.saturating_mul(1_000), longest.saturating_mul(1_000))
    }

    /// The wait after `doublings` waits before it, in milliseconds: twice as long each time, up to the longest.
    pub fn doubled(self, doublings: u32) -> i64 {
        let factor = 1_i64 << doublings.min(62);
        self.first_ms.saturating_mul(factor).min(self.longest_ms).max(0)
    }

    /// The same, as a pause.
    pub fn pause(self, doublings: u32) -> Duration {
        Duration::from_millis(u64::try_from(self.doubled(doublings)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_cap() {
        let backoff = Backoff::seconds(60, 3_600);
        let waits = [0, 1, 2, 6, 99, u32::MAX].map(|doublings| backoff.doubled(doublings));
        assert_eq!(waits, [60_000, 120_000, 240_000, 3_600_000, 3_600_000, 3_600_000]);
        assert_eq!([1, 99].map(|doublings| backoff.pause(doublings).as_secs()), [120, 3_600]);
        assert_eq!(Backoff::millis(-1, 5).doubled(3), 0);
    }
}
