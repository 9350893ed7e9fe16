//! Whether the API server has more important writes of ours to carry out for much of the time.

use std::time::Instant;

/// What was so this long ago counts a third, in seconds.
const SPAN: f64 = 1.0;
/// Busy from this share of the time on, and no more below the other.
const SHARE: (f64, f64) = (0.3, 0.15);

/// The share of the time in which such writes were under way or waited, the last second most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    share: f64,
    /// Since when there are such writes, or none.
    since: Option<(Instant, bool)>,
    now: bool,
}

impl Busy {
    /// From now on there are such writes, or none. Whether the API server is busy.
    pub fn note(&mut self, now: Instant, any: bool) -> bool {
        if let Some((since, any)) = self.since {
            let past = (-now.saturating_duration_since(since).as_secs_f64() / SPAN).exp();
            self.share = self.share.mul_add(past, if any { 1.0 - past } else { 0.0 });
        }
        self.since = Some((now, any));
        self.now = self.share > if self.now { SHARE.1 } else { SHARE.0 };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_is_busy_while_there_are_writes_most_of_the_time() {
        let (mut busy, mut now) = (Busy::default(), Instant::now());
        // In each 10 ms there are writes for some of them.
        let mut play = |busy: &mut Busy, of_ten: u64, ms: u64| {
            let mut was = Vec::new();
            for _ in 0..ms / 10 {
                was.push(busy.note(now, true));
                was.push(busy.note(now + Duration::from_millis(of_ten), false));
                now += Duration::from_millis(10);
            }
            was
        };
        assert!(play(&mut busy, 2, 5_000).iter().all(|is| !is), "a fifth of the time");
        let more = play(&mut busy, 9, 3_000);
        assert!(!more[0] && more.ends_with(&[true; 100]), "after a while, and then all the time");
        assert!(play(&mut busy, 2, 5_000).iter().all(|is| *is), "until it is clearly less");
        assert!(play(&mut busy, 1, 3_000).ends_with(&[false; 100]));
    }

    #[test]
    fn the_last_note_holds_until_the_next_one() {
        let (mut busy, now) = (Busy::default(), Instant::now());
        assert!(!busy.note(now, true));
        assert!(busy.note(now + Duration::from_mins(1), false));
        assert!(!busy.note(now + Duration::from_mins(2), true));
    }
}
