//! Exponential backoff with the reference's jitter (reference 06, 6.16 and 6.23).

use jiff::SignedDuration;

/// The jitter is at most this fraction of the wait: one part in so many.
const JITTER_PARTS: u64 = 10_000;

/// How waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// The first wait, in seconds.
    pub base_seconds: i64,
    /// The longest wait, in seconds.
    pub max_seconds: i64,
}

impl Backoff {
    /// The wait after `doublings` waits before it: twice as long each time, up to the cap, and up to 0.01 % longer.
    ///
    /// What is random in the reference follows from `seed` here: an engine that runs anew decides the same.
    pub fn wait(self, doublings: i32, seed: &str) -> SignedDuration {
        let factor = 1_i64 << u32::try_from(doublings.clamp(0, 62)).unwrap_or(62);
        let seconds = self.base_seconds.saturating_mul(factor).min(self.max_seconds).max(0);
        let milliseconds = seconds.saturating_mul(1_000);
        let share = i64::try_from(hash(seed, doublings) % JITTER_PARTS).unwrap_or(0);
        // Divided twice, so that the product cannot overflow.
        let parts = i64::try_from(JITTER_PARTS).unwrap_or(i64::MAX);
        let jitter = milliseconds / parts * share / parts;
        SignedDuration::from_millis(milliseconds.saturating_add(jitter))
    }
}

/// FNV-1a: the same on every machine.
fn hash(seed: &str, salt: i32) -> u64 {
    let bytes = seed.bytes().chain(salt.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_cap() {
        let backoff = Backoff { base_seconds: 60, max_seconds: 3_600 };
        let waits = [0, 1, 2, 6, 99].map(|n| backoff.wait(n, "a").as_secs());
        assert_eq!(waits, [60, 120, 240, 3_600, 3_600]);
    }

    #[test]
    fn the_jitter_is_small_and_spreads_workloads() {
        let backoff = Backoff { base_seconds: 36_000, max_seconds: 36_000 };
        let waits: Vec<_> = (0..50).map(|n| backoff.wait(0, &format!("uid-{n}")).as_millis()).collect();
        assert!(waits.iter().all(|w| (36_000_000..=36_003_600).contains(w)), "{waits:?}");
        let distinct: std::collections::BTreeSet<_> = waits.iter().collect();
        assert!(distinct.len() > 40, "{waits:?}");
        assert_eq!(backoff.wait(0, "uid-1"), backoff.wait(0, "uid-1"));
    }
}
