//! Answers that are remembered for a while, bounded in number and bytes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Answers that are remembered: a bound, for floods of questions.
const MOST: usize = 2048;
/// The bytes of questions and answers together.
const BYTES: usize = 8 << 20;

struct Entry<V> {
    value: V,
    /// A flood of other entries does not push it out.
    valued: bool,
    bytes: usize,
    since: Instant,
}

/// Answers by question.
pub(super) struct Known<V> {
    entries: BTreeMap<String, Entry<V>>,
    bytes: usize,
    remember: Duration,
}

impl<V: Clone> Known<V> {
    pub(super) fn new(remember: Duration) -> Self {
        Self { entries: BTreeMap::new(), bytes: 0, remember }
    }

    pub(super) fn get(&self, key: &str, now: Instant) -> Option<V> {
        let entry = self.entries.get(key)?;
        (now.saturating_duration_since(entry.since) < self.remember).then(|| entry.value.clone())
    }

    /// Whether the last answer was of value, however long ago it was.
    pub(super) fn valued(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.valued)
    }

    /// Remembers an answer of this size.
    pub(super) fn put(&mut self, key: &str, value: V, bytes: usize, valued: bool, now: Instant) {
        let bytes = bytes.saturating_add(key.len());
        let remember = self.remember;
        let is_fresh = |entry: &Entry<V>| now.saturating_duration_since(entry.since) < remember;
        // Entries of authenticated users are not pushed out by a flood of unknown ones.
        if self.is_full(bytes) {
            self.retain(|entry| entry.valued || is_fresh(entry));
        }
        if self.is_full(bytes) {
            self.retain(|entry| entry.valued);
        }
        if self.is_full(bytes) {
            self.retain(is_fresh);
        }
        if self.is_full(bytes) {
            self.retain(|_| false);
        }
        if bytes > BYTES {
            return;
        }
        let old = self.entries.insert(key.to_owned(), Entry { value, valued, bytes, since: now });
        self.bytes = (self.bytes - old.map_or(0, |old| old.bytes)).saturating_add(bytes);
    }

    fn is_full(&self, more: usize) -> bool {
        self.entries.len() >= MOST || self.bytes.saturating_add(more) > BYTES
    }

    fn retain(&mut self, keep: impl Fn(&Entry<V>) -> bool) {
        self.entries.retain(|_, entry| keep(entry));
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMEMBER: Duration = Duration::from_mins(1);

    #[test]
    fn answers_are_remembered_for_a_while_and_within_bounds() {
        let (mut known, now) = (Known::new(REMEMBER), Instant::now());
        for n in 0..MOST {
            known.put(&n.to_string(), true, 0, true, now);
        }
        assert_eq!(known.get("0", now), Some(true));
        assert_eq!(known.get("0", now + REMEMBER), None);
        known.put("one more", false, 0, false, now);
        assert!(known.entries.len() <= MOST);
        assert_eq!(known.get("one more", now), Some(false));
    }

    #[test]
    fn large_questions_are_bounded_in_bytes() {
        let (mut known, now) = (Known::new(REMEMBER), Instant::now());
        for n in 0..1000 {
            known.put(&format!("{n}{}", "x".repeat(30 << 10)), true, 0, true, now);
            assert!(known.bytes <= BYTES);
        }
        assert_eq!(known.bytes, known.entries.keys().map(String::len).sum::<usize>());
        known.put(&"y".repeat(BYTES + 1), true, 0, true, now);
        assert!(known.bytes <= BYTES);
    }

    #[test]
    fn a_flood_of_strangers_forgets_no_known_user() {
        let (mut known, now) = (Known::new(REMEMBER), Instant::now());
        known.put("prometheus", true, 0, true, now);
        for n in 0..5 * MOST {
            known.put(&n.to_string(), false, 0, false, now);
        }
        assert_eq!(known.get("prometheus", now), Some(true));
        // Not even when its entry is due for renewal.
        let later = now + REMEMBER;
        for n in 0..5 * MOST {
            known.put(&format!("later {n}"), false, 0, false, later);
        }
        assert_eq!((known.get("prometheus", later), known.valued("prometheus")), (None, true));
        assert!(!known.valued("later 1"));
    }
}
