//! How many writes are in flight: as many as the API server handles without slowing down.
//!
//! Latencies are averaged in windows. The shortest average is that of an idle API server; a longer one says how many of the requests in flight only
//! wait (as in TCP Vegas). A few waiting requests keep the server busy, more only delay all of them. Now and then the limit is lowered for one
//! window, so that the shortest average stays current.

use std::time::{Duration, Instant};

/// The least and the most in flight.
const BOUNDS: (f64, f64) = (2.0, 64.0);
/// The limit at the beginning.
const FIRST: f64 = 8.0;
/// With fewer that only wait, the limit goes up; with more, it goes down.
const WAITING: (f64, f64) = (3.0, 6.0);
/// Answers in a window.
const WINDOW: u32 = 16;
/// Windows between two looks at the shortest mean.
const WINDOWS: u32 = 200;
/// The limit is multiplied by this after a refusal for too many requests.
const REFUSED: f64 = 0.75;
/// The shortest time between two reductions because of refusals.
const AGAIN: Duration = Duration::from_secs(1);

/// The limit.
#[derive(Clone, Debug)]
pub struct Limit {
    allowed: f64,
    /// The shortest mean latency, in seconds.
    shortest: Option<f64>,
    /// Answers of this window, the sum of their latencies in seconds, and the most that were in flight.
    window: (u32, f64, usize),
    windows: u32,
    /// Whether this window looks at the shortest mean.
    probes: bool,
    /// Whether the server refused a request in this window.
    refused: bool,
    /// When the limit went down for a refusal.
    lowered: Option<Instant>,
}

impl Default for Limit {
    fn default() -> Self {
        let window = (0, 0.0, 0);
        let (probes, refused, lowered) = (false, false, None);
        Self { allowed: FIRST, shortest: None, window, windows: 0, probes, refused, lowered }
    }
}

impl Limit {
    /// How many may be in flight.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the bounds")]
    pub fn get(&self) -> usize {
        let now = if self.probes { (self.allowed / 4.0).max(BOUNDS.0) } else { self.allowed };
        now as usize
    }

    /// A request was answered after `latency`, while this number was in flight.
    pub fn answered(&mut self, latency: Duration, in_flight: usize) {
        // Requests that were sent before the limit was lowered for measuring do not show the shortest latency.
        if self.probes && in_flight > self.get() {
            return;
        }
        let (count, sum, most) = &mut self.window;
        *count += 1;
        *sum += latency.as_secs_f64();
        *most = in_flight.max(*most);
        if *count >= WINDOW {
            self.close();
        }
    }

    /// The server refused a request because it has too many. Of several at once the first counts; a server that continues refusing gets fewer and fewer
    /// requests, even if it answers none.
    pub fn refused(&mut self, now: Instant) {
        self.refused = true;
        if self.lowered.is_none_or(|at| now.saturating_duration_since(at) >= AGAIN) {
            self.lowered = Some(now);
            self.allowed = (self.allowed * REFUSED).max(BOUNDS.0);
        }
    }

    fn close(&mut self) {
        let (count, sum, most) = std::mem::take(&mut self.window);
        let mean = (sum / f64::from(count)).max(f64::EPSILON);
        let refused = std::mem::take(&mut self.refused);
        if std::mem::take(&mut self.probes) {
            self.shortest = Some(mean);
            return;
        }
        let shortest = self.shortest.map_or(mean, |shortest| shortest.min(mean));
        self.shortest = Some(shortest);
        self.windows += 1;
        if self.windows >= WINDOWS {
            (self.windows, self.probes) = (0, true);
        }
        let most = f64::from(u32::try_from(most).unwrap_or(u32::MAX));
        let waiting = most.min(self.allowed) * (1.0 - shortest / mean);
        // If the limit is not reached, it is not known whether a higher one would help.
        let step = if waiting > WAITING.1 {
            -(self.allowed / 8.0).max(1.0)
        } else if waiting < WAITING.0 && !refused && most * 2.0 >= self.allowed {
            if waiting < 1.0 { (self.allowed / 4.0).max(1.0) } else { 1.0 }
        } else {
            0.0
        };
        self.allowed = (self.allowed + step).clamp(BOUNDS.0, BOUNDS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that works on `knee` requests at once, each for `service_ms`, and receives as many as the limit allows.
    fn play(limit: &mut Limit, knee: usize, service_ms: f64, answers: usize) -> usize {
        for _ in 0..answers {
            let in_flight = limit.get();
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let slower = (in_flight as f64 / knee as f64).max(1.0);
            limit.answered(Duration::from_secs_f64(service_ms * slower / 1e3), in_flight);
        }
        limit.get()
    }

    #[test]
    fn it_stays_a_few_above_the_knee() {
        for knee in [2, 4, 8, 16, 32] {
            let mut limit = Limit::default();
            let found = play(&mut limit, knee, 6.0, 8_000);
            assert!((knee..=knee + 10).contains(&found), "knee {knee}: {found}");
        }
    }

    #[test]
    fn a_server_that_does_not_get_slower_is_used_up_to_the_bound() {
        assert_eq!(play(&mut Limit::default(), 1_000, 6.0, 1_000), 64);
    }

    #[test]
    fn it_falls_when_latency_rises_and_recovers() {
        let mut limit = Limit::default();
        assert!(play(&mut limit, 32, 6.0, 4_000) >= 32);
        let fallen = play(&mut limit, 2, 6.0, 1_000);
        assert!((2..=12).contains(&fallen), "{fallen}");
        let back = play(&mut limit, 32, 6.0, 8_000);
        assert!(back >= 32, "{back}");
    }

    #[test]
    fn writes_that_take_longer_at_all_are_the_new_measure_after_a_while() {
        let mut limit = Limit::default();
        play(&mut limit, 1_000, 6.0, 1_000);
        assert!(play(&mut limit, 1_000, 24.0, 1_000) < 16, "it looks like a crowd at first");
        assert_eq!(play(&mut limit, 1_000, 24.0, 8_000), 64);
    }

    #[test]
    fn refusals_and_crowds_lead_no_lower_than_the_bound() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        for second in 0..100 {
            limit.refused(now + AGAIN * second);
            play(&mut limit, 1, 6.0, 16);
        }
        assert!((2..=8).contains(&limit.get()), "{}", limit.get());
    }

    #[test]
    fn refusals_count_once_in_a_second_whether_or_not_anything_is_answered() {
        let (mut limit, now) = (Limit::default(), Instant::now());
        for (ms, allowed) in
            [(0, 6), (1, 6), (999, 6), (1_000, 4), (1_500, 4), (2_000, 3), (3_000, 2), (9_000, 2)]
        {
            limit.refused(now + Duration::from_millis(ms));
            assert_eq!(limit.get(), allowed, "{ms}");
        }
        // The limit does not rise in a window with a refusal, and is not lowered twice for one.
        play(&mut limit, 1_000, 6.0, 16);
        limit.refused(now + Duration::from_millis(9_500));
        assert_eq!(limit.get(), 2);
    }

    #[test]
    fn a_limit_that_is_not_reached_stays() {
        let mut limit = Limit::default();
        for _ in 0..1_000 {
            limit.answered(Duration::from_millis(6), 1);
        }
        limit.answered(Duration::from_millis(6), 1);
        assert_eq!(limit.allowed.to_string(), "8");
    }
}
