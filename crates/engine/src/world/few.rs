//! A set that mostly has one member: a set of the standard library takes some four hundred bytes for that.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::iter::{Chain, Flatten};
use std::option;

use indexmap::map::Entry;

use crate::index_map::IndexMap;

/// One member, or more than one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Few<T> {
    One(T),
    More(BTreeSet<T>),
}

impl<T: Ord> Few<T> {
    /// Whether a value is a member.
    pub fn contains(&self, value: &T) -> bool {
        match self {
            Self::One(one) => one == value,
            Self::More(more) => more.contains(value),
        }
    }

    fn insert(&mut self, value: T) {
        if self.contains(&value) {
            return;
        }
        let mut members = match std::mem::replace(self, Self::More(BTreeSet::new())) {
            Self::One(one) => BTreeSet::from([one]),
            Self::More(more) => more,
        };
        members.insert(value);
        *self = Self::More(members);
    }

    /// Takes a member out; whether none is left.
    fn remove(&mut self, value: &T) -> bool {
        match self {
            Self::One(one) => return one == value,
            Self::More(more) => {
                more.remove(value);
                if more.len() == 1
                    && let Some(last) = more.pop_first()
                {
                    *self = Self::One(last);
                }
            }
        }
        false
    }

    /// Adds a value to those of a key.
    pub fn index<K: Eq + Hash>(map: &mut IndexMap<K, Self>, key: K, value: T) {
        match map.entry(key) {
            Entry::Occupied(mut known) => known.get_mut().insert(value),
            Entry::Vacant(new) => {
                new.insert(Self::One(value));
            }
        }
    }

    /// Removes a value from those of a key, and the key with the last one.
    pub fn unindex<K: Eq + Hash>(map: &mut IndexMap<K, Self>, key: &K, value: &T) {
        if map.get_mut(key).is_some_and(|few| few.remove(value)) {
            map.swap_remove(key);
        }
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = Chain<option::IntoIter<&'a T>, Flatten<option::IntoIter<&'a BTreeSet<T>>>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, more) = match self {
            Few::One(one) => (Some(one), None),
            Few::More(more) => (None, Some(more)),
        };
        one.into_iter().chain(more.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn members_come_and_go_as_in_a_set() {
        let (mut few, mut sets) = (IndexMap::default(), BTreeMap::<u8, BTreeSet<u8>>::new());
        // Of two keys and four members, in an order that makes each set grow and shrink.
        for step in 0..1_000_u32 {
            let random = step.wrapping_mul(2_654_435_761) >> 16;
            let (key, value) = (u8::from(random & 1 == 1), u8::try_from((random >> 1) & 3).unwrap());
            if (random >> 3) & 1 == 1 {
                Few::index(&mut few, key, value);
                sets.entry(key).or_default().insert(value);
            } else {
                Few::unindex(&mut few, &key, &value);
                if let Some(set) = sets.get_mut(&key) {
                    set.remove(&value);
                }
                sets.retain(|_, set| !set.is_empty());
            }
            let shown = |of: &Few<u8>| of.into_iter().copied().collect::<BTreeSet<u8>>();
            assert_eq!(few.iter().map(|(key, of)| (*key, shown(of))).collect::<BTreeMap<_, _>>(), sets);
            let is_one = |few: &Few<u8>| matches!(few, Few::One(_));
            assert!(few.values().all(|few| is_one(few) == (shown(few).len() == 1)), "one form");
            let same =
                |few: &Few<u8>, set: &BTreeSet<u8>| (0..4).all(|of| few.contains(&of) == set.contains(&of));
            assert!(sets.iter().all(|(key, set)| same(&few[key], set)));
        }
    }

    #[test]
    fn the_only_member_takes_no_memory_of_its_own() {
        let mut few = IndexMap::default();
        few.reserve(2);
        few.insert(0, Few::One(0_u64));
        let made = allocation_counter::measure(|| {
            Few::index(&mut few, 1, 7);
            Few::index(&mut few, 1, 7);
            Few::unindex(&mut few, &1, &7);
        });
        assert_eq!((made.count_total, few.len()), (0, 1));
    }
}
