//! How many events are sent: in total, and for each object, so that one object with a recurring problem does not take the events of all others.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_engine::input::ObjectRef;

use super::queue::Importance;
use crate::writer::pace::Bucket;

/// Events per second, and at once after a pause. One costs the API server about a millisecond.
const ALL: (f64, u32) = (200.0, 1_000);
/// Events of one object at once after a pause, as in client-go; and then per second.
const BURST: f64 = 25.0;
const PER_SECOND: f64 = 1.0;

/// The remaining tokens.
#[derive(Debug)]
pub struct Rates {
    all: Bucket,
    /// Of each object that has had events a short while ago: the tokens that were left then.
    objects: BTreeMap<ObjectRef, (f64, Duration)>,
    capacity: usize,
}

/// How many tokens of an object are reserved for more important events.
const fn kept(importance: Importance) -> f64 {
    match importance {
        Importance::Waits => 10.0,
        Importance::Step => 5.0,
        Importance::Trouble => 0.0,
    }
}

fn left((tokens, at): (f64, Duration), now: Duration) -> f64 {
    (tokens + now.saturating_sub(at).as_secs_f64() * PER_SECOND).min(BURST)
}

impl Rates {
    /// All that may be at once, for at most `capacity` objects.
    pub fn new(capacity: usize) -> Self {
        Self { all: Bucket::new(ALL.0, ALL.1), objects: BTreeMap::new(), capacity }
    }

    /// Takes the slot of one event at a monotonic time; returns how long it waits.
    pub fn wait(&mut self, now: Duration) -> Duration {
        self.all.take(now)
    }

    /// Whether an event that happened then may be sent beside the others of its object.
    pub fn allow(&mut self, object: &ObjectRef, importance: Importance, happened: Duration) -> bool {
        let tokens = self.objects.get(object).map_or(BURST, |known| left(*known, happened));
        if tokens < kept(importance) + 1.0 {
            return false;
        }
        if !self.objects.contains_key(object) && self.objects.len() >= self.capacity {
            self.objects.retain(|_, known| left(*known, happened) < BURST);
            if self.objects.len() >= self.capacity {
                self.objects.clear();
            }
        }
        self.objects.insert(object.clone(), (tokens - 1.0, happened));
        true
    }
}

#[cfg(test)]
mod tests {
    use sluice_engine::input::Kind;

    use super::*;

    fn object(at: usize) -> ObjectRef {
        ObjectRef::namespaced(Kind::Workload, "ns", format!("w{at}").as_str())
    }

    #[test]
    fn of_one_object_the_least_important_are_dropped_first_and_others_are_not_concerned() {
        let mut rates = Rates::new(8);
        let mut allowed = |at: usize, importance, second| {
            let at = object(at);
            (0..100).filter(|_| rates.allow(&at, importance, Duration::from_secs(second))).count()
        };
        assert_eq!(allowed(0, Importance::Waits, 0), 15);
        assert_eq!(allowed(0, Importance::Step, 0), 5);
        assert_eq!(allowed(0, Importance::Trouble, 0), 5);
        assert_eq!(allowed(1, Importance::Trouble, 0), 25);
        assert_eq!(allowed(0, Importance::Trouble, 3), 3, "one in a second");
        assert_eq!(allowed(0, Importance::Step, 8), 0);
        assert_eq!(allowed(0, Importance::Waits, 60), 15);
    }

    #[test]
    fn all_together_are_bounded_in_a_second_after_those_at_once() {
        let mut rates = Rates::new(8);
        let waits: Vec<_> = (0..1_200).map(|_| rates.wait(Duration::ZERO)).collect();
        assert!(waits[..1_000].iter().all(Duration::is_zero));
        assert_eq!(waits[1_199], Duration::from_secs(1));
    }

    #[test]
    fn the_number_of_known_objects_is_limited() {
        let mut rates = Rates::new(8);
        for at in 0..100 {
            assert!(rates.allow(&object(at), Importance::Waits, Duration::ZERO));
            assert!(rates.objects.len() <= 8);
        }
        assert!(rates.allow(&object(100), Importance::Waits, Duration::from_mins(1)));
        for at in 200..208 {
            rates.allow(&object(at), Importance::Waits, Duration::from_mins(2));
        }
        assert_eq!(rates.objects.len(), 8, "those that had a pause were forgotten");
    }
}
