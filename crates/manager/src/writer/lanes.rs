//! Which write may be sent next: one at a time per object, in order; objects in the order in which they became ready.

use std::collections::{BTreeMap, VecDeque};

/// Queues of items by key; at most one item per key is out at a time.
#[derive(Debug)]
pub struct Lanes<K, T> {
    /// A lane exists while an item of it is waiting or out.
    lanes: BTreeMap<K, VecDeque<T>>,
    /// Lanes with an item waiting and none out.
    ready: VecDeque<K>,
}

impl<K: Ord + Clone, T> Default for Lanes<K, T> {
    fn default() -> Self {
        Self { lanes: BTreeMap::new(), ready: VecDeque::new() }
    }
}

impl<K: Ord + Clone, T> Lanes<K, T> {
    /// Adds an item behind those of the same key.
    pub fn push(&mut self, key: K, item: T) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.push_back(item);
        } else {
            self.lanes.insert(key.clone(), VecDeque::from([item]));
            self.ready.push_back(key);
        }
    }

    /// Takes an item out; its key gives no other until [`Self::done`].
    pub fn pop(&mut self) -> Option<(K, T)> {
        let key = self.ready.pop_front()?;
        let item = self.lanes.get_mut(&key)?.pop_front()?;
        Some((key, item))
    }

    /// The item of `key` that was out is finished.
    pub fn done(&mut self, key: &K) {
        match self.lanes.get(key) {
            Some(lane) if lane.is_empty() => {
                self.lanes.remove(key);
            }
            Some(_) => self.ready.push_back(key.clone()),
            None => {}
        }
    }

    /// Whether nothing waits and nothing is out.
    pub fn is_idle(&self) -> bool {
        self.lanes.is_empty()
    }

    /// How many items wait.
    pub fn waiting(&self) -> usize {
        self.lanes.values().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_one_key_are_out_one_at_a_time_and_in_order() {
        let mut lanes = Lanes::default();
        for item in 1..=3 {
            lanes.push("a", item);
        }
        assert_eq!(lanes.pop(), Some(("a", 1)));
        assert_eq!(lanes.pop(), None);
        lanes.done(&"a");
        assert_eq!(lanes.pop(), Some(("a", 2)));
        lanes.push("a", 4);
        assert_eq!(lanes.pop(), None);
        lanes.done(&"a");
        assert_eq!(lanes.pop(), Some(("a", 3)));
        lanes.done(&"a");
        assert_eq!(lanes.pop(), Some(("a", 4)));
        assert!(!lanes.is_idle());
        lanes.done(&"a");
        assert!(lanes.is_idle());
    }

    #[test]
    fn a_long_lane_does_not_hold_the_others_back() {
        let mut lanes = Lanes::default();
        lanes.push("a", 1);
        lanes.push("a", 2);
        lanes.push("b", 3);
        assert_eq!(lanes.pop(), Some(("a", 1)));
        assert_eq!(lanes.pop(), Some(("b", 3)));
        lanes.done(&"a");
        lanes.push("c", 4);
        assert_eq!(lanes.waiting(), 2);
        assert_eq!(lanes.pop(), Some(("a", 2)));
        assert_eq!(lanes.pop(), Some(("c", 4)));
    }
}
