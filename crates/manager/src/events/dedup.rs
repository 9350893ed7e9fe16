//! Which events are new, and which repeat one that was sent a short while ago.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// After this pause the same event is a new one (client-go ends a series after the same time).
const SERIES: Duration = Duration::from_mins(6);
/// A series is updated at most this often.
const UPDATE: Duration = Duration::from_secs(10);

/// What to do about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventAction {
    /// Create it, under this name.
    Create(String),
    /// Say on the event that was created how often it was seen.
    Update(Update),
    /// Counted; [`Dedup::next_update`] returns it later.
    Counted,
}

/// A change of an event that was created before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The event's name.
    pub name: String,
    /// How often it was seen.
    pub count: i32,
    /// The latest note, if it is another than the event has.
    pub note: Option<String>,
    /// When it was seen last.
    pub last: Duration,
}

#[derive(Clone, Debug)]
struct Series {
    name: Box<str>,
    count: i32,
    last: Duration,
    sent_at: Duration,
    /// Whether a request of it was not answered yet. Updates wait for that: one that overtook the creation would find no event.
    under_way: bool,
    /// Whether it was counted since the last request.
    counted: bool,
    /// The hash of the latest note.
    note: u64,
    /// That note, while the event does not have it. Notes are long, and thousands of series are remembered.
    unsent: Option<Box<str>>,
}

impl Series {
    fn new(name: &str, note: u64, (last, sent_at): (Duration, Duration)) -> Self {
        let (under_way, counted) = (true, false);
        Self { name: name.into(), count: 1, last, sent_at, under_way, counted, note, unsent: None }
    }

    /// Whether an event that happened then belongs to it.
    fn goes_on(&self, happened: Duration) -> bool {
        happened.saturating_sub(self.last) < SERIES
    }

    /// When the count since the last update has to be sent.
    fn due(&self) -> Duration {
        self.sent_at.saturating_add(UPDATE)
    }

    /// The update to send now.
    fn update(&mut self, now: Duration) -> Update {
        (self.sent_at, self.under_way, self.counted) = (now, true, false);
        let note = self.unsent.take().map(String::from);
        Update { name: self.name.to_string(), count: self.count, note, last: self.last }
    }
}

/// Remembers the last events, at most `capacity` of them. Keys are cheap to clone.
#[derive(Debug)]
pub struct Dedup<K> {
    entries: BTreeMap<K, Series>,
    order: VecDeque<K>,
    /// The series with unsent counts and no request under way, by when they have to be sent.
    pending_updates: BTreeSet<(Duration, K)>,
    capacity: usize,
    /// Of notes.
    hasher: RandomState,
}

impl<K: Ord + Clone> Dedup<K> {
    /// Remembers nothing yet.
    pub fn new(capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            order: VecDeque::new(),
            pending_updates: BTreeSet::new(),
            capacity: capacity.max(1),
            hasher: RandomState::new(),
        }
    }

    /// Whether an event that happened then would be a new one.
    pub fn is_new(&self, key: &K, happened: Duration) -> bool {
        self.entries.get(key).is_none_or(|entry| !entry.goes_on(happened))
    }

    /// An event that happened at a monotonic time has to be sent `now`; `name` makes a name for a new one. Events with one key are one series,
    /// whatever their notes say: the latest note is shown.
    pub fn offer(
        &mut self,
        key: &K,
        note: &str,
        (happened, now): (Duration, Duration),
        name: impl FnOnce() -> String,
    ) -> EventAction {
        let hash = self.hasher.hash_one(note);
        if let Some(entry) = self.entries.get_mut(key) {
            if !entry.goes_on(happened) {
                self.pending_updates.remove(&(entry.due(), key.clone()));
                let name = name();
                *entry = Series::new(&name, hash, (happened, now));
                return EventAction::Create(name);
            }
            entry.last = happened;
            entry.count = entry.count.saturating_add(1);
            if entry.note != hash {
                (entry.note, entry.unsent) = (hash, Some(note.into()));
            }
            entry.counted = true;
            if entry.under_way {
                return EventAction::Counted;
            }
            if now.saturating_sub(entry.sent_at) < UPDATE {
                self.pending_updates.insert((entry.due(), key.clone()));
                return EventAction::Counted;
            }
            self.pending_updates.remove(&(entry.due(), key.clone()));
            return EventAction::Update(entry.update(now));
        }
        if self.entries.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.drop_entry(&oldest);
        }
        let name = name();
        self.entries.insert(key.clone(), Series::new(&name, hash, (happened, now)));
        self.order.push_back(key.clone());
        EventAction::Create(name)
    }

    /// When the next update has to be sent.
    pub fn next_due(&self) -> Option<Duration> {
        self.pending_updates.first().map(|(at, _)| *at)
    }

    /// The update that has been due for longest, if one is due.
    pub fn next_update(&mut self, now: Duration) -> Option<(K, Update)> {
        self.next_due().filter(|at| *at <= now)?;
        let (_, key) = self.pending_updates.pop_first()?;
        let update = self.entries.get_mut(&key)?.update(now);
        Some((key, update))
    }

    /// A request of the series was answered, or given up: what was counted meanwhile may be sent. If the event was not `recorded`, the next equal one
    /// is tried as a new one.
    pub fn answered(&mut self, key: &K, recorded: bool) {
        if !recorded {
            return self.forget(key);
        }
        let Some(entry) = self.entries.get_mut(key) else { return };
        if std::mem::take(&mut entry.under_way) && entry.counted {
            self.pending_updates.insert((entry.due(), key.clone()));
        }
    }

    fn forget(&mut self, key: &K) {
        if self.drop_entry(key) {
            self.order.retain(|other| other != key);
        }
    }

    fn drop_entry(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.pending_updates.remove(&(entry.due(), key.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(dedup: &mut Dedup<&'static str>, key: &'static str, note: &str, at_s: u64) -> EventAction {
        let at = Duration::from_secs(at_s);
        let action = dedup.offer(&key, note, (at, at), || format!("{key}.{at_s}"));
        dedup.answered(&key, true);
        action
    }

    fn offer(dedup: &mut Dedup<&'static str>, key: &'static str, at_s: u64) -> EventAction {
        noted(dedup, key, "", at_s)
    }

    fn due(dedup: &mut Dedup<&'static str>, now: Duration) -> Vec<(&'static str, Update)> {
        let next = || dedup.next_update(now).inspect(|(key, _)| dedup.answered(key, true));
        std::iter::from_fn(next).collect()
    }

    fn update(name: &str, count: i32, note: Option<&str>, last: u64) -> Update {
        let last = Duration::from_secs(last);
        Update { name: name.to_owned(), count, note: note.map(str::to_owned), last }
    }

    #[test]
    fn events_that_are_sent_late_are_series_by_the_time_when_they_happened() {
        let (mut dedup, now) = (Dedup::new(8), Duration::from_secs(1_000));
        let mut late = |happened: u64, now| {
            let action =
                dedup.offer(&"a", "", (Duration::from_secs(happened), now), || format!("a.{happened}"));
            dedup.answered(&"a", true);
            action
        };
        assert_eq!(late(0, now), EventAction::Create("a.0".to_owned()));
        assert_eq!(late(100, now), EventAction::Counted, "it was sent just now");
        assert_eq!(late(100 + 360, now), EventAction::Create("a.460".to_owned()));
        assert_eq!(late(470, now + UPDATE), EventAction::Update(update("a.460", 2, None, 470)));
    }

    #[test]
    fn a_repeated_event_becomes_a_series_that_is_rarely_sent() {
        let mut dedup = Dedup::new(8);
        assert_eq!(offer(&mut dedup, "a", 0), EventAction::Create("a.0".to_owned()));
        assert_eq!(offer(&mut dedup, "a", 1), EventAction::Counted);
        assert_eq!(offer(&mut dedup, "a", 11), EventAction::Update(update("a.0", 3, None, 11)));
        assert_eq!(offer(&mut dedup, "a", 12), EventAction::Counted);
        assert_eq!(offer(&mut dedup, "b", 12), EventAction::Create("b.12".to_owned()));
    }

    #[test]
    fn eight_victims_are_one_event_with_a_series_that_shows_the_last_of_them() {
        let mut dedup = Dedup::new(8);
        assert_eq!(
            noted(&mut dedup, "preempted", "victim 0", 0),
            EventAction::Create("preempted.0".to_owned())
        );
        for victim in 1..8 {
            let note = format!("victim {victim}");
            assert_eq!(noted(&mut dedup, "preempted", &note, 0), EventAction::Counted);
        }
        assert_eq!(dedup.next_due(), Some(UPDATE));
        assert_eq!(due(&mut dedup, Duration::from_secs(9)), []);
        let last = update("preempted.0", 8, Some("victim 7"), 0);
        assert_eq!(due(&mut dedup, UPDATE), [("preempted", last)]);
        assert_eq!(dedup.next_due(), None);
        assert_eq!(due(&mut dedup, Duration::from_secs(99)), []);
        assert_eq!(noted(&mut dedup, "preempted", "victim 7", 12), EventAction::Counted);
        assert_eq!(
            due(&mut dedup, Duration::from_secs(20)),
            [("preempted", update("preempted.0", 9, None, 12))]
        );
    }

    #[test]
    fn what_was_reported_meanwhile_is_not_reported_twice() {
        let mut dedup = Dedup::new(8);
        offer(&mut dedup, "a", 0);
        offer(&mut dedup, "a", 1);
        assert_eq!(offer(&mut dedup, "a", 11), EventAction::Update(update("a.0", 3, None, 11)));
        assert_eq!(due(&mut dedup, Duration::from_secs(30)), []);
    }

    #[test]
    fn an_update_waits_for_the_answer_to_the_request_before() {
        let mut dedup = Dedup::new(8);
        let at = Duration::from_secs;
        let noted = |dedup: &mut Dedup<&'static str>, note: &str, now: u64| {
            dedup.offer(&"a", note, (at(now), at(now)), || "a.0".to_owned())
        };
        assert_eq!(noted(&mut dedup, "first", 0), EventAction::Create("a.0".to_owned()));
        assert_eq!(noted(&mut dedup, "second", 11), EventAction::Counted, "the event may not exist yet");
        assert_eq!((dedup.next_due(), dedup.next_update(at(30))), (None, None));
        dedup.answered(&"a", true);
        assert_eq!(dedup.next_due(), Some(UPDATE), "long ago");
        assert_eq!(dedup.next_update(at(30)), Some(("a", update("a.0", 2, Some("second"), 11))));
        assert_eq!(
            noted(&mut dedup, "third", 41),
            EventAction::Counted,
            "a lower count may come after a higher one"
        );
        dedup.answered(&"a", true);
        assert_eq!(dedup.next_update(at(41)), Some(("a", update("a.0", 3, Some("third"), 41))));
        dedup.answered(&"a", true);
        assert_eq!(dedup.next_due(), None, "nothing was counted meanwhile");
        assert_eq!(noted(&mut dedup, "third", 51), EventAction::Update(update("a.0", 4, None, 51)));
    }

    #[test]
    fn after_a_long_pause_the_event_is_new() {
        let mut dedup = Dedup::new(8);
        offer(&mut dedup, "a", 0);
        assert_eq!(offer(&mut dedup, "a", 400), EventAction::Create("a.400".to_owned()));
    }

    #[test]
    fn a_note_is_kept_until_it_is_sent() {
        let mut dedup = Dedup::new(8);
        let kept = |dedup: &Dedup<&str>| dedup.entries["a"].unsent.clone();
        noted(&mut dedup, "a", "first", 0);
        noted(&mut dedup, "a", "first", 1);
        assert_eq!(kept(&dedup), None, "the event has it");
        noted(&mut dedup, "a", "second", 2);
        assert_eq!(kept(&dedup).as_deref(), Some("second"));
        assert_eq!(due(&mut dedup, UPDATE), [("a", update("a.0", 3, Some("second"), 2))]);
        assert_eq!(kept(&dedup), None);
        assert_eq!(noted(&mut dedup, "a", "first", 11), EventAction::Counted);
        let again = update("a.0", 4, Some("first"), 11);
        assert_eq!(due(&mut dedup, Duration::from_secs(20)), [("a", again)]);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let mut dedup = Dedup::new(2);
        for key in ["a", "b", "c"] {
            offer(&mut dedup, key, 0);
            for _ in 0..3 {
                offer(&mut dedup, key, 0);
            }
        }
        assert_eq!((dedup.entries.len(), dedup.order.len(), dedup.pending_updates.len()), (2, 2, 2));
        assert_eq!(due(&mut dedup, UPDATE).len(), 2, "what was forgotten is not reported");
        assert_eq!(offer(&mut dedup, "c", 11), EventAction::Counted);
        assert_eq!(offer(&mut dedup, "a", 11), EventAction::Create("a.11".to_owned()));
    }

    #[test]
    fn a_failed_creation_is_tried_as_new() {
        let mut dedup = Dedup::new(2);
        offer(&mut dedup, "a", 0);
        offer(&mut dedup, "a", 0);
        dedup.answered(&"a", false);
        assert_eq!(dedup.next_due(), None);
        assert_eq!(offer(&mut dedup, "a", 1), EventAction::Create("a.1".to_owned()));
        assert_eq!(dedup.order.len(), 1);
    }
}
