//! A map that records which keys changed: a copy is updated without a look at the rest.

use std::collections::BTreeMap;

/// If more than this number of changes, and more than half as many as there are entries, were not fetched, everything counts as changed.
const FEW: usize = 64;

/// The map. Values are cheap to clone.
#[derive(Debug)]
pub struct Tracked<K, V> {
    now: BTreeMap<K, V>,
    /// The current values of the keys that changed since the last fetch; `None` if everything counts as changed.
    changed: Option<BTreeMap<K, Option<V>>>,
}

/// The changes.
#[derive(Debug)]
pub enum News<K, V> {
    /// Everything.
    All(BTreeMap<K, V>),
    /// These came, are otherwise, or went.
    Some(BTreeMap<K, Option<V>>),
}

impl<K: Ord, V> News<K, V> {
    /// Brings a copy up to date.
    pub fn carry_into(self, copy: &mut BTreeMap<K, V>) {
        match self {
            Self::All(all) => *copy = all,
            Self::Some(some) => {
                for (key, value) in some {
                    match value {
                        Some(value) => copy.insert(key, value),
                        None => copy.remove(&key),
                    };
                }
            }
        }
    }
}

impl<K, V> Default for Tracked<K, V> {
    fn default() -> Self {
        Self { now: BTreeMap::new(), changed: None }
    }
}

impl<K: Ord + Clone, V: Clone + PartialEq> Tracked<K, V> {
    /// The current entries.
    pub const fn now(&self) -> &BTreeMap<K, V> {
        &self.now
    }

    fn note(&mut self, key: K, value: Option<V>) {
        let Some(changed) = &mut self.changed else { return };
        changed.insert(key, value);
        if changed.len() > FEW + self.now.len() / 2 {
            self.changed = None;
        }
    }

    /// Sets an entry; returns whether it differs from the old one.
    pub fn put(&mut self, key: K, value: V) -> bool {
        if self.now.get(&key) == Some(&value) {
            return false;
        }
        self.note(key.clone(), Some(value.clone()));
        self.now.insert(key, value);
        true
    }

    /// Removes an entry; returns whether it existed.
    pub fn remove(&mut self, key: &K) -> bool {
        let was = self.now.remove(key).is_some();
        if was {
            self.note(key.clone(), None);
        }
        was
    }

    /// Leaves what is still there; whether anything went.
    pub fn keep(&mut self, is_there: impl Fn(&K) -> bool) -> bool {
        let gone: Vec<_> = self.now.keys().filter(|key| !is_there(key)).cloned().collect();
        for key in &gone {
            self.remove(key);
        }
        !gone.is_empty()
    }

    /// The changes since the last call.
    pub fn take_news(&mut self) -> News<K, V> {
        let changed = self.changed.replace(BTreeMap::new());
        changed.map_or_else(|| News::All(self.now.clone()), News::Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_gets_all_news_is_the_same() {
        let (mut map, mut copy) = (Tracked::<u32, u32>::default(), BTreeMap::new());
        map.put(1, 10);
        for round in 0..50 {
            assert!(map.put(round * 7 % 20, round));
            assert!(!map.put(round * 7 % 20, round), "the same again");
            let gone = map.now().contains_key(&(round % 11));
            assert_eq!(map.remove(&(round % 11)), gone);
            if round % 3 == 0 {
                map.take_news().carry_into(&mut copy);
                assert_eq!(copy, *map.now(), "round {round}");
            }
        }
        assert!(map.keep(|key| *key < 9) && !map.keep(|key| *key < 9));
        map.take_news().carry_into(&mut copy);
        assert_eq!(copy, *map.now());
    }

    #[test]
    fn news_are_what_changed_and_never_much_more_than_the_map() {
        let mut map = Tracked::<usize, usize>::default();
        (0..1_000).for_each(|key| assert!(map.put(key, 0)));
        assert!(matches!(map.take_news(), News::All(_)), "none of it was taken");
        map.put(7, 1);
        map.remove(&8);
        let News::Some(some) = map.take_news() else { unreachable!("two of a thousand") };
        assert_eq!(some, BTreeMap::from([(7, Some(1)), (8, None)]));
        // Nothing is fetched for a long time.
        for round in 0..10_000 {
            map.put(1_000 + round, 0);
            map.remove(&(1_000 + round));
            assert!(map.changed.as_ref().is_none_or(|changed| changed.len() <= FEW + 500));
        }
        assert!(matches!(map.take_news(), News::All(_)));
    }
}
