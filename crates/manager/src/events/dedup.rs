//! Which events are new, and which repeat one that was sent a short while ago.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// After this pause the same event is a new one (client-go ends a series after the same time).
const SERIES: Duration = Duration::from_mins(6);
/// A series is updated at most this often.
const UPDATE: Duration = Duration::from_secs(10);

/// What to do about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Create it, under this name.
    Create(String),
    /// Say on the named event that it was seen `count` times.
    Update {
        /// The event's name.
        name: String,
        /// How often it was seen.
        count: i32,
    },
    /// Counted; to be told later, if it goes on.
    Counted,
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    count: i32,
    last: Duration,
    told: Duration,
}

/// Remembers the last events, at most `capacity` of them.
#[derive(Debug)]
pub struct Dedup<K> {
    entries: BTreeMap<K, Entry>,
    order: VecDeque<K>,
    capacity: usize,
}

impl<K: Ord + Clone> Dedup<K> {
    /// Remembers nothing yet.
    pub fn new(capacity: usize) -> Self {
        Self { entries: BTreeMap::new(), order: VecDeque::new(), capacity: capacity.max(1) }
    }

    /// An event occurs at monotonic time `now`; `name` makes a name for a new one.
    pub fn offer(&mut self, key: &K, now: Duration, name: impl FnOnce() -> String) -> Decision {
        if let Some(entry) = self.entries.get_mut(key) {
            let fresh = now.saturating_sub(entry.last) < SERIES;
            entry.last = now;
            if !fresh {
                *entry = Entry { name: name(), count: 1, last: now, told: now };
                return Decision::Create(entry.name.clone());
            }
            entry.count = entry.count.saturating_add(1);
            if now.saturating_sub(entry.told) < UPDATE {
                return Decision::Counted;
            }
            entry.told = now;
            return Decision::Update { name: entry.name.clone(), count: entry.count };
        }
        if self.entries.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.entries.remove(&oldest);
        }
        let name = name();
        self.entries.insert(key.clone(), Entry { name: name.clone(), count: 1, last: now, told: now });
        self.order.push_back(key.clone());
        Decision::Create(name)
    }

    /// The event could not be created: the next one like it is tried as new.
    pub fn forget(&mut self, key: &K) {
        if self.entries.remove(key).is_some() {
            self.order.retain(|other| other != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(dedup: &mut Dedup<&'static str>, key: &'static str, at_s: u64) -> Decision {
        dedup.offer(&key, Duration::from_secs(at_s), || format!("{key}.{at_s}"))
    }

    #[test]
    fn a_repeated_event_becomes_a_series_that_is_told_seldom() {
        let mut dedup = Dedup::new(8);
        assert_eq!(offer(&mut dedup, "a", 0), Decision::Create("a.0".to_owned()));
        assert_eq!(offer(&mut dedup, "a", 1), Decision::Counted);
        assert_eq!(offer(&mut dedup, "a", 11), Decision::Update { name: "a.0".to_owned(), count: 3 });
        assert_eq!(offer(&mut dedup, "a", 12), Decision::Counted);
        assert_eq!(offer(&mut dedup, "b", 12), Decision::Create("b.12".to_owned()));
    }

    #[test]
    fn after_a_long_pause_the_event_is_new() {
        let mut dedup = Dedup::new(8);
        offer(&mut dedup, "a", 0);
        assert_eq!(offer(&mut dedup, "a", 400), Decision::Create("a.400".to_owned()));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let mut dedup = Dedup::new(2);
        for key in ["a", "b", "c"] {
            offer(&mut dedup, key, 0);
        }
        assert_eq!(dedup.entries.len(), 2);
        assert_eq!(dedup.order.len(), 2);
        assert_eq!(offer(&mut dedup, "c", 1), Decision::Counted);
        assert_eq!(offer(&mut dedup, "a", 1), Decision::Create("a.1".to_owned()));
    }

    #[test]
    fn a_failed_creation_is_tried_as_new() {
        let mut dedup = Dedup::new(2);
        offer(&mut dedup, "a", 0);
        dedup.forget(&"a");
        assert_eq!(offer(&mut dedup, "a", 1), Decision::Create("a.1".to_owned()));
        assert_eq!(dedup.order.len(), 1);
    }
}
