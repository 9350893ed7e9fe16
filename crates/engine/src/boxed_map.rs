//! A sorted map of large values.

use std::borrow::Borrow;
use std::collections::{BTreeMap, btree_map};
use std::ops::{Bound, Index, RangeBounds};

/// A sorted map whose values are in memory of their own: a node of a B-tree has room for eleven entries, of which half are used when keys
/// come in order, so that large values cost twice their size.
#[derive(Clone, Debug)]
pub(crate) struct BoxedMap<K, V>(BTreeMap<K, Box<V>>);

impl<K, V> Default for BoxedMap<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V> BoxedMap<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        self.0.insert(key, Box::new(value));
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key).map(|value| *value)
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key).map(Box::as_ref)
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key).map(Box::as_mut)
    }

    pub fn get_key_value(&self, key: &K) -> Option<(&K, &V)> {
        self.0.get_key_value(key).map(|(key, value)| (key, &**value))
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn keys(&self) -> btree_map::Keys<'_, K, Box<V>> {
        self.0.keys()
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.0.values().map(Box::as_ref)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut().map(Box::as_mut)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, &**value))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (key, &mut **value))
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
        self.0.range(range).map(|(key, value)| (key, &**value))
    }
}

impl<K: Ord, V> Index<&K> for BoxedMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        &self.0[key]
    }
}
