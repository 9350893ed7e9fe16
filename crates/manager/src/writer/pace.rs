//! How fast requests go out (`clientConnection.qps` and `burst`) and when a failed one is tried again.

use std::time::Duration;

use sluice_engine::Backoff;

/// A token bucket over a clock that the caller gives.
#[derive(Debug)]
pub struct Bucket {
    /// Tokens per second; not positive means no limit.
    qps: f64,
    burst: f64,
    tokens: f64,
    last: Duration,
}

impl Bucket {
    /// A full bucket. A `qps` of 0 or less means no limit.
    pub fn new(qps: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self { qps, burst, tokens: burst, last: Duration::ZERO }
    }

    /// Takes a token at time `now` (monotonic, since any fixed point); says how long to wait before using it.
    pub fn take(&mut self, now: Duration) -> Duration {
        if self.qps <= 0.0 {
            return Duration::ZERO;
        }
        let passed = now.saturating_sub(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.tokens = (self.tokens + passed * self.qps).min(self.burst) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        // The configuration's bounds keep far from what a Duration cannot say.
        Duration::try_from_secs_f64(-self.tokens / self.qps).unwrap_or(Duration::MAX)
    }

    /// Whether a request waits for a token.
    #[cfg(test)]
    pub fn is_used_up(&self) -> bool {
        self.tokens < 0.0
    }
}

/// How often one write is sent before the engine receives the failure.
pub const ATTEMPTS: u32 = 5;

/// The longest pause: the engine hears of longer outages, and of a server that asks to wait longer.
pub const LONGEST: Duration = Duration::from_secs(5);

/// The pause before attempt `next` (2 is the first retry): 100 ms doubling to 5 s, shortened by up to a fifth by `jitter`,
/// but never shorter than what the server asks for.
pub fn pause(next: u32, retry_after: Option<Duration>, jitter: u64) -> Duration {
    const BACKOFF: Backoff = Backoff::millis(100, 5_000);
    let doubled = BACKOFF.doubled(next.saturating_sub(2));
    let doubled = Duration::from_millis(u64::try_from(doubled).unwrap_or_default());
    let fifth = u64::try_from(doubled.as_micros() / 5).unwrap_or(u64::MAX).max(1);
    let jittered = doubled.saturating_sub(Duration::from_micros(jitter % fifth));
    retry_after.unwrap_or_default().max(jittered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_holds() {
        let mut bucket = Bucket::new(10.0, 3);
        let at = Duration::from_secs(7);
        for _ in 0..3 {
            assert_eq!(bucket.take(at), Duration::ZERO);
        }
        assert_eq!(bucket.take(at), Duration::from_millis(100));
        assert_eq!(bucket.take(at), Duration::from_millis(200));
    }

    #[test]
    fn tokens_come_back_with_time_up_to_the_burst() {
        let mut bucket = Bucket::new(10.0, 2);
        bucket.take(Duration::ZERO);
        bucket.take(Duration::ZERO);
        assert_eq!(bucket.take(Duration::from_mins(1)), Duration::ZERO);
        assert_eq!(bucket.take(Duration::from_mins(1)), Duration::ZERO);
        assert!(bucket.take(Duration::from_mins(1)) > Duration::ZERO);
    }

    #[test]
    fn no_rate_means_no_limit() {
        let mut bucket = Bucket::new(0.0, 1);
        assert!((0..1000).all(|_| bucket.take(Duration::ZERO).is_zero()));
    }

    #[test]
    fn no_rate_is_too_large_or_too_small_to_count_with() {
        for qps in [f64::MIN_POSITIVE, 1e-30, 1e30, f64::MAX, f64::INFINITY, f64::NAN] {
            let mut bucket = Bucket::new(qps, u32::MAX);
            for second in 0..3 {
                bucket.take(Duration::from_secs(second));
                bucket.take(Duration::MAX);
            }
            let mut bucket = Bucket::new(qps, 0);
            let waits: Vec<_> = (0..3).map(|_| bucket.take(Duration::ZERO)).collect();
            assert_eq!(waits[0], Duration::ZERO, "{qps}");
            assert!(qps.is_nan() || waits[1] <= waits[2], "{qps}: {waits:?}");
        }
    }

    #[test]
    fn pauses_double_and_are_bounded() {
        assert_eq!(pause(2, None, 0), Duration::from_millis(100));
        assert_eq!(pause(4, None, 0), Duration::from_millis(400));
        assert_eq!(pause(40, None, 0), Duration::from_secs(5));
        assert!(pause(2, None, u64::MAX) > Duration::from_millis(79));
    }

    #[test]
    fn what_the_server_asks_for_is_kept() {
        assert_eq!(pause(2, Some(Duration::from_secs(1)), 0), Duration::from_secs(1));
        assert_eq!(pause(4, Some(Duration::ZERO), 0), Duration::from_millis(400));
    }
}
