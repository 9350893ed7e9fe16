//! The time that the engine receives. If the machine's clock is set back, the engine's time continues; otherwise nothing that waits would happen until
//! the machine's clock has caught up.

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// A clock that never goes back and never stands still.
pub(super) struct Clock {
    /// The machine's clock.
    wall: Box<dyn Fn() -> Timestamp + Send>,
    /// The last returned time.
    last: Timestamp,
    /// When that was.
    at: Instant,
}

impl Clock {
    /// A clock that follows the machine's unless that is behind.
    pub(super) fn new(wall: impl Fn() -> Timestamp + Send + 'static) -> Self {
        Self { last: wall(), at: Instant::now(), wall: Box::new(wall) }
    }

    /// The time now.
    pub(super) fn now(&mut self) -> Timestamp {
        // In this order: a pause between the two must not put it ahead of the machine's for good.
        let (wall, at) = ((self.wall)(), Instant::now());
        let passed = at.duration_since(self.at);
        let on_time = self.last.checked_add(passed).unwrap_or(self.last);
        // The machine's clock was set back: it is caught up with at half the speed, so that times that others write mean the same again.
        let goes = if wall < on_time { self.last.checked_add(passed / 2).unwrap_or(self.last) } else { wall };
        (self.last, self.at) = (goes.max(wall), at);
        self.last
    }

    /// How long it is until then: twice the time shown while the machine's clock catches up.
    pub(super) fn until(&mut self, at: Timestamp) -> Duration {
        let now = self.now();
        let between =
            |from: Timestamp, to: Timestamp| Duration::try_from(to.duration_since(from)).unwrap_or_default();
        let (left, ahead) = (between(now, at), between((self.wall)(), now));
        left.saturating_add(left.min(ahead))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A machine's clock that a test sets.
    #[derive(Clone)]
    pub(crate) struct Wall(Arc<Mutex<Timestamp>>);

    impl Wall {
        /// It shows a fixed time.
        pub(crate) fn at(time: Timestamp) -> Self {
            Self(Arc::new(Mutex::new(time)))
        }

        /// Sets it.
        pub(crate) fn set(&self, time: Timestamp) {
            *self.0.lock().unwrap() = time;
        }

        /// The clock that follows it.
        pub(crate) fn clock(&self) -> Clock {
            let wall = self.clone();
            Clock::new(move || *wall.0.lock().unwrap())
        }
    }

    #[test]
    fn it_follows_the_machines_clock_forth_but_not_back() {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        let (wall, later) = (Wall::at(start), start + Duration::from_hours(2));
        let mut clock = wall.clock();
        assert!(clock.now() >= start);
        wall.set(later);
        let set_forth = clock.now();
        assert!(set_forth >= later);
        wall.set(start);
        let set_back = clock.now();
        assert!(set_back > set_forth, "it continues");
        let hour = Duration::from_hours(1);
        let about = |left: Duration, hours: u32| left.abs_diff(hours * hour) < Duration::from_mins(1);
        assert!(about(clock.until(set_back + hour), 2), "at half the speed");
        assert!(about(clock.until(set_back + 3 * hour), 5), "until the other has caught up");
        assert_eq!(clock.until(start), Duration::ZERO);
        // Until then it continues at half the speed.
        let began = Instant::now();
        let from = clock.now();
        while began.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        let gone = Duration::try_from(clock.now().duration_since(from)).unwrap();
        assert!(gone < began.elapsed(), "{gone:?}");
    }
}
