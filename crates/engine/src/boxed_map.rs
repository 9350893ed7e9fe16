//! A sorted map of large values, for lookups of single keys.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::{Bound, Index, RangeBounds};

use crate::index_map::IndexMap;

/// A sorted map whose values are in memory of their own, found by hash: names of Workloads are long and begin alike, so that the way down a
/// B-tree costs a thousand instructions for each look, and a reconciled Workload is looked up forty times. The order is for pages and for
/// whole passes, which find each value by its position. Keys are cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct BoxedMap<K, V> {
    values: IndexMap<K, Box<V>>,
    order: BTreeMap<K, usize>,
}

impl<K, V> Default for BoxedMap<K, V> {
    fn default() -> Self {
        Self { values: IndexMap::default(), order: BTreeMap::new() }
    }
}

impl<K: Ord + Hash + Clone, V> BoxedMap<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        let (at, known) = self.values.insert_full(key.clone(), Box::new(value));
        if known.is_none() {
            self.order.insert(key, at);
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (at, _, value) = self.values.swap_remove_full(key)?;
        self.order.remove(key);
        // The last one took its position.
        if let Some((moved, _)) = self.values.get_index(at)
            && let Some(position) = self.order.get_mut(moved)
        {
            *position = at;
        }
        Some(*value)
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(Box::as_ref)
    }

    /// The stored key: clones of it share its memory.
    pub fn get_key_value(&self, key: &K) -> Option<(&K, &V)> {
        self.values.get_key_value(key).map(|(key, value)| (key, &**value))
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.values.get_mut(key).map(Box::as_mut)
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.values.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.order.keys()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.order.iter().map(|(key, at)| (key, &*self.values[*at]))
    }

    /// An entry with its position and the stored key.
    pub fn get_full(&self, key: &K) -> Option<(usize, &K, &V)> {
        self.values.get_full(key).map(|(position, key, value)| (position, key, &**value))
    }

    /// The position of an entry, below [`BoxedMap::len`]. It holds until the next change.
    pub fn position(&self, key: &K) -> Option<usize> {
        self.values.get_index_of(key)
    }

    /// All values, not in the order of their keys.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.values_mut().map(Box::as_mut)
    }

    /// All entries, not in the order of their keys.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.values.iter_mut().map(|(key, value)| (key, &mut **value))
    }

    /// The entries after a key, or all.
    pub fn after(&self, key: Option<&K>) -> impl Iterator<Item = (&K, &V)> {
        self.range((key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
    }

    /// The entries in a range of keys.
    pub fn range<Q: Ord + ?Sized>(&self, range: impl RangeBounds<Q>) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.order.range(range).map(|(key, at)| (key, &*self.values[*at]))
    }
}

impl<K: Eq + Hash, V> Index<&K> for BoxedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        &self.values[key]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_values_hold_the_same_keys_after_any_change() {
        let mut map = BoxedMap::default();
        for key in [3, 1, 2, 3] {
            map.insert(key, key * 10);
        }
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&1, &10), (&2, &20), (&3, &30)]);
        assert_eq!((map.remove(&2), map.remove(&2)), (Some(20), None));
        map.values_mut().for_each(|value| *value += 1);
        assert_eq!(map.after(Some(&1)).collect::<Vec<_>>(), [(&3, &31)]);
        assert_eq!((map.len(), map.keys().count()), (2, 2));
        for key in [1, 3] {
            let (position, known, value) = map.get_full(&key).unwrap();
            assert_eq!((Some(position), *known, *value), (map.position(&key), key, map[&key]));
            assert!(position < 2);
        }
        assert_eq!(map.get_full(&2), None);
    }

    #[test]
    fn each_key_has_its_value_in_the_order_whatever_came_and_went() {
        let (mut map, mut expected) = (BoxedMap::default(), BTreeMap::new());
        for step in 0..200_usize {
            let key = step * 7 % 13;
            if step.is_multiple_of(3) {
                assert_eq!(map.remove(&key), expected.remove(&key));
            } else {
                map.insert(key, step);
                expected.insert(key, step);
            }
            assert!(map.iter().eq(&expected) && map.keys().eq(expected.keys()), "{step}");
            assert!(map.range(5_usize..).eq(expected.range(5_usize..)), "{step}");
        }
    }
}
