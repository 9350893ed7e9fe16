//! Which write may be sent next: one at a time per object, in order; what jobs wait for before what only reports on them; among
//! equals, objects in the order in which they became ready.

use std::collections::{BTreeMap, VecDeque};

/// How soon an item is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A job waits for it.
    Urgent,
    /// It reports what happened: it can wait while the API server is busy, but never for good.
    Background,
}

/// Items at once of [`Class::Background`]; one of them goes even when others are waiting that are urgent.
const BACKGROUND: usize = 8;

/// Queues of items by key; at most one item per key is out at a time.
#[derive(Debug)]
pub struct Lanes<K, T> {
    /// A lane exists while an item of it is waiting or out.
    by_key: BTreeMap<K, VecDeque<(Class, T)>>,
    /// Lanes with an item waiting and none out, by the class of that item.
    urgent: VecDeque<K>,
    background: VecDeque<K>,
    /// How many items of [`Class::Background`] are out.
    background_out: usize,
}

impl<K: Ord + Clone, T> Default for Lanes<K, T> {
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            urgent: VecDeque::new(),
            background: VecDeque::new(),
            background_out: 0,
        }
    }
}

impl<K: Ord + Clone, T> Lanes<K, T> {
    /// Adds an item behind those of the same key.
    pub fn push(&mut self, key: K, class: Class, item: T) {
        if let Some(lane) = self.by_key.get_mut(&key) {
            lane.push_back((class, item));
        } else {
            self.by_key.insert(key.clone(), VecDeque::from([(class, item)]));
            self.ready(class).push_back(key);
        }
    }

    fn ready(&mut self, class: Class) -> &mut VecDeque<K> {
        match class {
            Class::Urgent => &mut self.urgent,
            Class::Background => &mut self.background,
        }
    }

    /// Takes an item out; its key gives no other until [`Self::done`].
    pub fn pop(&mut self) -> Option<(K, Class, T)> {
        let first = if self.background_out == 0 { Class::Background } else { Class::Urgent };
        let key = match self.ready(first).pop_front().or_else(|| self.urgent.pop_front()) {
            Some(key) => key,
            None if self.background_out < BACKGROUND => self.background.pop_front()?,
            None => return None,
        };
        let (class, item) = self.by_key.get_mut(&key)?.pop_front()?;
        self.background_out += usize::from(class == Class::Background);
        Some((key, class, item))
    }

    /// The item of `key` that was out, of that class, is finished.
    pub fn done(&mut self, key: &K, class: Class) {
        self.background_out -= usize::from(class == Class::Background);
        match self.by_key.get(key).map(VecDeque::front) {
            Some(None) => {
                self.by_key.remove(key);
            }
            Some(Some((next, _))) => {
                let next = *next;
                self.ready(next).push_back(key.clone());
            }
            None => {}
        }
    }

    /// Whether nothing waits and nothing is out.
    pub fn is_idle(&self) -> bool {
        self.by_key.is_empty()
    }

    /// How many items wait.
    pub fn waiting(&self) -> usize {
        self.by_key.values().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::{Background, Urgent};

    #[test]
    fn items_of_one_key_are_out_one_at_a_time_and_in_order() {
        let mut lanes = Lanes::default();
        for item in 1..=3 {
            lanes.push("a", Urgent, item);
        }
        assert_eq!(lanes.pop(), Some(("a", Urgent, 1)));
        assert_eq!(lanes.pop(), None);
        lanes.done(&"a", Urgent);
        assert_eq!(lanes.pop(), Some(("a", Urgent, 2)));
        lanes.push("a", Background, 4);
        assert_eq!(lanes.pop(), None);
        lanes.done(&"a", Urgent);
        assert_eq!(lanes.pop(), Some(("a", Urgent, 3)));
        lanes.done(&"a", Urgent);
        assert_eq!(lanes.pop(), Some(("a", Background, 4)));
        assert!(!lanes.is_idle());
        lanes.done(&"a", Background);
        assert!(lanes.is_idle());
    }

    #[test]
    fn a_long_lane_does_not_hold_the_others_back() {
        let mut lanes = Lanes::default();
        lanes.push("a", Urgent, 1);
        lanes.push("a", Urgent, 2);
        lanes.push("b", Urgent, 3);
        assert_eq!(lanes.pop(), Some(("a", Urgent, 1)));
        assert_eq!(lanes.pop(), Some(("b", Urgent, 3)));
        lanes.done(&"a", Urgent);
        lanes.push("c", Urgent, 4);
        assert_eq!(lanes.waiting(), 2);
        assert_eq!(lanes.pop(), Some(("a", Urgent, 2)));
        assert_eq!(lanes.pop(), Some(("c", Urgent, 4)));
    }

    #[test]
    fn what_is_urgent_passes_but_one_of_the_others_always_goes() {
        let mut lanes = Lanes::default();
        for key in 0..20 {
            lanes.push(key, Background, ());
            lanes.push(100 + key, Urgent, ());
        }
        assert_eq!(lanes.pop(), Some((0, Background, ())));
        for key in 100..120 {
            assert_eq!(lanes.pop(), Some((key, Urgent, ())));
        }
        let more = std::iter::from_fn(|| lanes.pop()).count();
        assert_eq!(more, BACKGROUND - 1, "and no more than so many at once");
        lanes.push(200, Urgent, ());
        lanes.done(&0, Background);
        assert_eq!(lanes.pop(), Some((200, Urgent, ())));
        assert_eq!(lanes.pop(), Some((8, Background, ())));
    }
}
