//! How many writes are in flight: as many as the API server handles without slowing down.
//!
//! Latencies are averaged in windows. The shortest average is that of an idle API server; a longer one says how many of the requests in flight only
//! wait (as in TCP Vegas). A few waiting requests keep the server busy, more only delay all of them. Now and then the limit is lowered for one
//! window, so that the shortest average stays current.
//!
//! Refusals lower the limit, too. A row of them is an outage: once it is over, all but its first reduction is undone in a few steps.

use std::time::{Duration, Instant};

/// The most in flight.
pub const HIGHEST: usize = 64;
/// The least and the most in flight.
#[expect(clippy::cast_precision_loss, reason = "a small number")]
const BOUNDS: (f64, f64) = (2.0, HIGHEST as f64);
/// The limit at the beginning.
const FIRST: f64 = 8.0;
/// With fewer that only wait, the limit goes up; with more, it goes down.
const WAITING: (f64, f64) = (3.0, 6.0);
/// Answers in a window, and in a step of the recovery.
const WINDOW: u32 = 16;
/// If answers are few, these make a step of the recovery after [`STEP`], and a look at the shortest mean after [`PROBE`].
const FEW: u32 = 2;
/// The time of a step of the recovery with few answers.
const STEP: Duration = Duration::from_millis(500);
/// Windows between two looks at the shortest mean.
const WINDOWS: u32 = 200;
/// The longest time for such a look, in which few may be in flight.
const PROBE: Duration = Duration::from_secs(1);
/// The limit is multiplied by this after a refusal for too many requests.
const REFUSED: f64 = 0.75;
/// The shortest time between two reductions because of refusals, and from the last refusal until the limit rises again.
const AGAIN: Duration = Duration::from_secs(1);
/// Refusals with less time between two are one row.
const ROW: Duration = Duration::from_secs(2);

/// The limit.
#[derive(Clone, Debug)]
pub struct Limit {
    allowed: f64,
    /// The shortest mean latency, in seconds.
    shortest: Option<f64>,
    /// The mean latency of the last window, in seconds.
    mean: Option<f64>,
    /// Answers of this window, the sum of their latencies in seconds, and the most that were in flight.
    window: (u32, f64, usize),
    windows: u32,
    /// Since when this window looks at the shortest mean, if it does.
    probes: Option<Instant>,
    /// When the server refused a request last.
    refused: Option<Instant>,
    /// When the limit went down for a refusal.
    lowered: Option<Instant>,
    recovery: Option<Recovery>,
}

/// The way back after a row of refusals.
#[derive(Clone, Debug)]
struct Recovery {
    /// It ends with this limit.
    to: f64,
    /// Answers since the last step.
    answers: u32,
    /// When that was, or the last refusal.
    since: Instant,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            allowed: FIRST,
            shortest: None,
            mean: None,
            window: (0, 0.0, 0),
            windows: 0,
            probes: None,
            refused: None,
            lowered: None,
            recovery: None,
        }
    }
}

impl Limit {
    /// How many may be in flight.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the bounds")]
    pub fn get(&self) -> usize {
        let now = if self.probes.is_some() { (self.allowed / 4.0).max(BOUNDS.0) } else { self.allowed };
        now as usize
    }

    /// The mean latency of the last answers; zero before there were enough.
    pub fn mean(&self) -> Duration {
        Duration::try_from_secs_f64(self.mean.unwrap_or_default()).unwrap_or_default()
    }

    /// A request was answered at this time after `latency`, while this number was in flight.
    pub fn answered(&mut self, now: Instant, latency: Duration, in_flight: usize) {
        self.recover(now);
        let is_over = self.probes.map(|since| now.saturating_duration_since(since) >= PROBE);
        if is_over.is_some() && in_flight > self.get() {
            // Requests that were sent before the limit was lowered for measuring do not show the shortest latency.
            if is_over == Some(false) {
                return;
            }
            (self.probes, self.window) = (None, (0, 0.0, 0));
        }
        let (count, sum, most) = &mut self.window;
        *count += 1;
        *sum += latency.as_secs_f64();
        *most = in_flight.max(*most);
        if *count >= WINDOW || self.probes.is_some() && is_over == Some(true) && *count >= FEW {
            self.close(now);
        }
    }

    /// The server answered a request, whatever came of that: it is there again.
    pub fn heard(&mut self, now: Instant) {
        self.recover(now);
        // A look at the shortest mean ends, also if nothing can be measured any more.
        if self.probes.is_some_and(|since| now.saturating_duration_since(since) >= PROBE) {
            if self.window.0 >= FEW {
                self.close(now);
            } else {
                (self.probes, self.window) = (None, (0, 0.0, 0));
            }
        }
    }

    fn recover(&mut self, now: Instant) {
        let is_quiet = self.is_quiet(now);
        let Some(Recovery { to, answers, since }) = &mut self.recovery else { return };
        *answers += 1;
        let passed = now.saturating_duration_since(*since);
        if !is_quiet || *answers < WINDOW && (*answers < FEW || passed < STEP) {
            return;
        }
        (*answers, *since) = (0, now);
        let higher = (self.allowed + (self.allowed / 2.0).max(1.0)).min(*to);
        self.allowed = self.allowed.max(higher);
        if self.allowed >= *to {
            self.recovery = None;
        }
    }

    /// Whether the last refusal was some time ago.
    fn is_quiet(&self, now: Instant) -> bool {
        self.refused.is_none_or(|at| now.saturating_duration_since(at) >= AGAIN)
    }

    /// The server refused a request because it has too many. Of several at once the first counts; a server that continues refusing gets fewer and fewer
    /// requests, even if it answers none.
    pub fn refused(&mut self, now: Instant) {
        let in_row = self.refused.is_some_and(|at| now.saturating_duration_since(at) < ROW);
        self.refused = Some(now);
        if self.probes.take().is_some() {
            self.window = (0, 0.0, 0);
        }
        if self.lowered.is_none_or(|at| now.saturating_duration_since(at) >= AGAIN) {
            self.lowered = Some(now);
            self.allowed = (self.allowed * REFUSED).max(BOUNDS.0);
        }
        // A row that begins before the last one was made up for says that its end was too high.
        let before = self.recovery.take().map(|last| if in_row { last.to } else { last.to * REFUSED });
        let to = before.map_or(self.allowed, |to| to.max(self.allowed));
        self.recovery = Some(Recovery { to, answers: 0, since: now });
    }

    fn close(&mut self, now: Instant) {
        let (count, sum, most) = std::mem::take(&mut self.window);
        let mean = (sum / f64::from(count)).max(f64::EPSILON);
        self.mean = Some(mean);
        if self.probes.take().is_some() {
            self.shortest = Some(mean);
            return;
        }
        let shortest = self.shortest.map_or(mean, |shortest| shortest.min(mean));
        self.shortest = Some(shortest);
        self.windows += 1;
        if self.windows >= WINDOWS {
            (self.windows, self.probes) = (0, Some(now));
        }
        let most = f64::from(u32::try_from(most).unwrap_or(u32::MAX));
        let waiting = most.min(self.allowed) * (1.0 - shortest / mean);
        let may_rise = self.is_quiet(now) && self.recovery.is_none();
        // If the limit is not reached, it is not known whether a higher one would help.
        let step = if waiting > WAITING.1 {
            self.recovery = None;
            -(self.allowed / 8.0).max(1.0)
        } else if waiting < WAITING.0 && may_rise && most * 2.0 >= self.allowed {
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
    struct Server {
        limit: Limit,
        now: Instant,
    }

    impl Server {
        fn new() -> Self {
            Self { limit: Limit::default(), now: Instant::now() }
        }

        fn play(&mut self, knee: usize, service_ms: f64, answers: usize) -> usize {
            for _ in 0..answers {
                let in_flight = self.limit.get();
                #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                let (flying, knee) = (in_flight as f64, knee as f64);
                let latency = service_ms * (flying / knee).max(1.0) / 1e3;
                self.now += Duration::from_secs_f64(latency / flying);
                self.limit.answered(self.now, Duration::from_secs_f64(latency), in_flight);
            }
            self.limit.get()
        }
    }

    #[test]
    fn it_stays_a_few_above_the_knee() {
        for knee in [2, 4, 8, 16, 32] {
            let found = Server::new().play(knee, 6.0, 8_000);
            assert!((knee..=knee + 10).contains(&found), "knee {knee}: {found}");
        }
    }

    #[test]
    fn a_server_that_does_not_get_slower_is_used_up_to_the_bound() {
        assert_eq!(Server::new().play(1_000, 6.0, 1_000), 64);
    }

    #[test]
    fn it_falls_when_latency_rises_and_recovers() {
        let mut server = Server::new();
        assert!(server.play(32, 6.0, 4_000) >= 32);
        let fallen = server.play(2, 6.0, 1_000);
        assert!((2..=12).contains(&fallen), "{fallen}");
        let back = server.play(32, 6.0, 8_000);
        assert!(back >= 32, "{back}");
    }

    #[test]
    fn writes_that_take_longer_at_all_are_the_new_measure_after_a_while() {
        let mut server = Server::new();
        server.play(1_000, 6.0, 1_000);
        assert!(server.play(1_000, 24.0, 1_000) < 16, "it looks like a crowd at first");
        assert_eq!(server.play(1_000, 24.0, 8_000), 64);
    }

    #[test]
    fn refusals_and_crowds_lead_no_lower_than_the_bound() {
        let mut server = Server::new();
        let began = server.now;
        for second in 0..100 {
            server.now = server.now.max(began + AGAIN * second);
            server.limit.refused(server.now);
            server.play(1, 6.0, 16);
        }
        assert!((2..=8).contains(&server.limit.get()), "{}", server.limit.get());
    }

    #[test]
    fn refusals_count_once_in_a_second_whether_or_not_anything_is_answered() {
        let mut server = Server::new();
        let began = server.now;
        for (ms, allowed) in
            [(0, 6), (1, 6), (999, 6), (1_000, 4), (1_500, 4), (2_000, 3), (3_000, 2), (9_000, 2)]
        {
            server.now = began + Duration::from_millis(ms);
            server.limit.refused(server.now);
            assert_eq!(server.limit.get(), allowed, "{ms}");
        }
        // The limit does not rise soon after a refusal, and is not lowered twice for one.
        server.play(1_000, 6.0, 16);
        server.limit.refused(began + Duration::from_millis(9_500));
        assert_eq!(server.limit.get(), 2);
    }

    /// A limit after an outage in which the server refused for five seconds, and when that was.
    fn after_an_outage() -> (Limit, Instant) {
        let (mut limit, mut now) = (Limit::default(), Instant::now());
        for _ in 0..5 {
            now += AGAIN;
            limit.refused(now);
        }
        assert_eq!(limit.get(), 2);
        (limit, now)
    }

    #[test]
    fn after_a_row_of_refusals_the_limit_comes_back_within_seconds_however_few_the_answers() {
        let (mut limit, over) = after_an_outage();
        for half in 1..=20 {
            limit.answered(over + STEP * half, Duration::from_millis(50), 2);
        }
        assert_eq!(limit.get(), 6, "as after one refusal");
        // Objects that are missing or were changed are answers, too.
        let (mut limit, over) = after_an_outage();
        for half in 1..=20 {
            limit.heard(over + STEP * half);
        }
        assert_eq!(limit.get(), 6);
    }

    #[test]
    fn many_answers_bring_the_limit_back_at_once_and_not_beyond_what_it_was() {
        let mut server = Server::new();
        assert_eq!(server.play(1_000, 6.0, 1_000), 64);
        let began = server.now;
        for second in 0..20 {
            server.limit.refused(began + AGAIN * second);
        }
        server.now = began + AGAIN * 20;
        assert_eq!(server.limit.get(), 2);
        // The first step was due.
        assert_eq!(server.play(1_000, 6.0, 2 + 16 * 7), 48);
        server.limit.refused(server.now);
        assert_eq!(server.limit.get(), 36);
        server.now += AGAIN;
        assert_eq!(server.play(1_000, 6.0, 4), 36, "one refusal is no outage");
    }

    #[test]
    fn a_row_of_refusals_soon_after_another_one_ends_lower() {
        let (mut limit, mut now) = after_an_outage();
        now += ROW;
        limit.refused(now);
        for half in 1..=40 {
            limit.heard(now + STEP * half);
        }
        assert_eq!(limit.get(), 4);
    }

    #[test]
    fn a_look_at_the_shortest_mean_ends_after_a_second_whatever_is_in_flight() {
        let looking = || {
            let mut server = Server::new();
            while server.limit.probes.is_none() {
                server.play(1_000, 6.0, 1);
            }
            let few = server.limit.get();
            assert!(few < 64, "{few}");
            (server, few)
        };
        let (Server { mut limit, now }, few) = looking();
        // An outage, in which all slots were given to others: none of the answers was measured with few in flight.
        for half in 1..=2 {
            limit.answered(now + STEP * half, Duration::from_millis(6), few + 1);
        }
        assert_eq!(limit.get(), 64);
        // There is not enough to do: what was measured counts.
        let (Server { mut limit, now }, few) = looking();
        for half in 1..=2 {
            limit.answered(now + STEP * half, Duration::from_millis(24), few);
        }
        assert_eq!((limit.get(), limit.mean()), (64, Duration::from_millis(24)));
        // All else is missing or was changed meanwhile.
        let (Server { mut limit, now }, few) = looking();
        limit.heard(now + STEP);
        assert_eq!(limit.get(), few);
        limit.heard(now + STEP * 2);
        assert_eq!(limit.get(), 64);
        // It is refused.
        let (Server { mut limit, now }, _) = looking();
        limit.refused(now);
        assert_eq!(limit.get(), 48);
    }

    #[test]
    fn a_limit_that_is_not_reached_stays() {
        let (mut limit, mut now) = (Limit::default(), Instant::now());
        for _ in 0..1_001 {
            now += Duration::from_millis(6);
            limit.answered(now, Duration::from_millis(6), 1);
        }
        assert_eq!(limit.allowed.to_string(), "8");
    }
}
