//! The reference's jitter of a backoff (docs/reference/06-algorithm.md 6.16 and 6.23).

use jiff::SignedDuration;
pub use sluice_core::Backoff;

/// The jitter is at most the wait divided by this number.
const JITTER_PARTS: u64 = 10_000;

/// The wait after `doublings` waits before it, up to 0.01 % longer. What is random in the reference follows from `seed` here: an engine that runs
/// again decides the same.
pub(crate) fn jittered(backoff: Backoff, doublings: i32, seed: &str) -> SignedDuration {
    let milliseconds = backoff.doubled(u32::try_from(doublings).unwrap_or(0));
    let share = i64::try_from(hash(seed, doublings) % JITTER_PARTS).unwrap_or(0);
    // Divided twice, so that the product cannot overflow.
    let parts = i64::try_from(JITTER_PARTS).unwrap_or(i64::MAX);
    let jitter = milliseconds / parts * share / parts;
    SignedDuration::from_millis(milliseconds.saturating_add(jitter))
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
    fn a_wait_doubles_up_to_its_cap() {
        let backoff = Backoff::seconds(60, 3_600);
        let waits = [-1, 0, 1, 2, 6, 99].map(|doublings| jittered(backoff, doublings, "a").as_secs());
        assert_eq!(waits, [60, 60, 120, 240, 3_600, 3_600]);
    }

    #[test]
    fn the_jitter_is_small_and_spreads_workloads() {
        let backoff = Backoff::seconds(36_000, 36_000);
        let waits: Vec<_> = (0..50).map(|n| jittered(backoff, 0, &format!("uid-{n}")).as_millis()).collect();
        assert!(waits.iter().all(|w| (36_000_000..=36_003_600).contains(w)), "{waits:?}");
        let distinct: std::collections::BTreeSet<_> = waits.iter().collect();
        assert!(distinct.len() > 40, "{waits:?}");
        assert_eq!(jittered(backoff, 0, "uid-1"), jittered(backoff, 0, "uid-1"));
    }
}
