//! CPU time of this thread: the cost of some work, independent of the machine's other load.
//!
//! The figures of Kueue's core are CPU time as well (of its process in cycles). The core has one thread and never waits, so on an idle machine CPU
//! time equals wall-clock time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Runs from its creation.
#[derive(Debug)]
pub struct Stopwatch(Duration);

impl Stopwatch {
    /// Starts.
    pub fn start() -> Self {
        Self(now())
    }

    /// CPU time since the start.
    pub fn elapsed(&self) -> Duration {
        now().saturating_sub(self.0)
    }
}

/// CPU time of this thread so far.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_and_waiting_does_not() {
        let watch = Stopwatch::start();
        let mut sum = 0_u64;
        while watch.elapsed() < Duration::from_millis(1) {
            sum = std::hint::black_box(sum + 1);
        }
        let worked = watch.elapsed();
        assert!(worked >= Duration::from_millis(1));
        let wall = std::time::Instant::now();
        std::thread::park_timeout(Duration::from_millis(20));
        let waited = wall.elapsed();
        assert!(watch.elapsed() < worked + waited, "stopped for {waited:?}");
    }
}
