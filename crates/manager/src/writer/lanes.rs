//! Which write may be sent next: one at a time per object, in order; writes that jobs wait for before those that only report on them; within a class,
//! objects in the order in which they became ready.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::class::Class;

/// While more important writes wait, one of a class below [`Class::Admissions`] is sent this often, so that none waits for good. That delays a more
/// important write by at most one request every tenth of a second.
pub const TURN: Duration = Duration::from_millis(100);
/// At least this number of the more important ones is sent before that: if few writes may be sent per second, most of them are these. And so many are
/// sent at most between two of [`Class::Admissions`]: jobs that start and stop all the time must not keep others from quota.
const BETWEEN: u32 = 3;

/// A key of queued items.
pub trait Key: Ord + Clone {
    /// Keys that are passed over together.
    type Group: Ord + Clone + std::fmt::Debug;

    /// Its group.
    fn group(&self) -> Self::Group;
}

/// The keys of a lane with an item that waits, in order. What is passed over costs a look for each group, not for each key.
#[derive(Debug)]
struct Ready<K: Key> {
    /// By group, each key with its number.
    groups: BTreeMap<K::Group, VecDeque<(u64, K)>>,
    /// The groups by the number of their first key.
    order: BTreeMap<u64, K::Group>,
    len: usize,
}

impl<K: Key> Default for Ready<K> {
    fn default() -> Self {
        Self { groups: BTreeMap::new(), order: BTreeMap::new(), len: 0 }
    }
}

impl<K: Key> Ready<K> {
    /// Adds a key behind all others. Numbers rise.
    fn push(&mut self, number: u64, key: K) {
        let group = key.group();
        let keys = self.groups.entry(group.clone()).or_default();
        if keys.is_empty() {
            self.order.insert(number, group);
        }
        keys.push_back((number, key));
        self.len += 1;
    }

    /// The number of the first key of a group that is not skipped.
    fn next(&self, passes_over: impl Fn(&K::Group) -> bool) -> Option<u64> {
        self.order.iter().find(|(_, group)| !passes_over(group)).map(|(number, _)| *number)
    }

    /// Takes the first key of a group by its number.
    fn take(&mut self, number: u64) -> Option<K> {
        let group = self.order.get(&number)?.clone();
        self.remove(&group, 0)
    }

    /// The first matching key, by its group and its position there.
    fn find(&self, is_meant: impl Fn(&K) -> bool) -> Option<(K::Group, usize)> {
        self.groups.iter().find_map(|(group, keys)| {
            let at = keys.iter().position(|(_, key)| is_meant(key))?;
            Some((group.clone(), at))
        })
    }

    fn remove(&mut self, group: &K::Group, at: usize) -> Option<K> {
        let keys = self.groups.get_mut(group)?;
        let (number, key) = keys.remove(at)?;
        self.len -= 1;
        if at == 0 {
            self.order.remove(&number);
            if let Some((first, _)) = keys.front() {
                self.order.insert(*first, group.clone());
            }
        }
        if keys.is_empty() {
            self.groups.remove(group);
        }
        Some(key)
    }

    fn into_keys(self) -> impl Iterator<Item = K> {
        self.groups.into_values().flatten().map(|(_, key)| key)
    }
}

/// Queues of items by key; at most one item per key is in progress at a time.
#[derive(Debug)]
pub struct Lanes<K: Key, T> {
    /// Exists while an item of the key is waiting or out.
    by_key: BTreeMap<K, VecDeque<(Class, T)>>,
    /// Keys with an item waiting and none out, by the lane of that item.
    ready: [Ready<K>; Class::ALL.len()],
    /// The number of the next key that becomes ready.
    number: u64,
    /// When the last item was sent before more important ones, and from which lane.
    turn: (Duration, usize),
    /// How many went since, up to [`BETWEEN`].
    between: u32,
    /// How many went while one of [`Class::Admissions`] waited, since the last of these.
    before_admission: u32,
}

impl<K: Key, T> Default for Lanes<K, T> {
    fn default() -> Self {
        let turn = (Duration::ZERO, 0);
        let (number, between, before_admission) = (0, BETWEEN, 0);
        Self { by_key: BTreeMap::new(), ready: Default::default(), number, turn, between, before_admission }
    }
}

impl<K: Key, T> Lanes<K, T> {
    /// Adds an item after those with the same key.
    pub fn push(&mut self, key: K, lane: Class, item: T) {
        if let Some(items) = self.by_key.get_mut(&key) {
            items.push_back((lane, item));
        } else {
            self.by_key.insert(key.clone(), VecDeque::from([(lane, item)]));
            self.is_ready(key, lane);
        }
    }

    fn is_ready(&mut self, key: K, lane: Class) {
        self.ready[lane.index()].push(self.number, key);
        self.number += 1;
    }

    /// Takes an item at a monotonic time, of a class up to `last` and of a group that is not skipped; its key gives no other item until
    /// [`Self::done`].
    pub fn pop(
        &mut self,
        now: Duration,
        last: Class,
        passes_over: impl Fn(&K::Group) -> bool,
    ) -> Option<(K, Class, T)> {
        let next: [Option<u64>; Class::ALL.len()] = std::array::from_fn(|lane| {
            let keys = self.ready[..=last.index()].get(lane)?;
            keys.next(&passes_over)
        });
        let first = next.iter().position(Option::is_some)?;
        let second = Class::Admissions.index();
        let waits = next[second].is_some();
        let is_second = waits && self.before_admission >= BETWEEN;
        let turn = if is_second { None } else { self.others_turn(first, &next, now) };
        self.between = if turn.is_some() { 0 } else { (self.between + 1).min(BETWEEN) };
        let at = if is_second { second } else { turn.unwrap_or(first) };
        self.before_admission = if waits && at != second { self.before_admission + 1 } else { 0 };
        let key = self.ready[at].take(next[at]?)?;
        let (lane, item) = self.by_key.get_mut(&key)?.pop_front()?;
        Some((key, lane, item))
    }

    /// The groups with an item of a class up to `last` that waits.
    pub fn groups(&self, last: Class) -> impl Iterator<Item = &K::Group> {
        self.ready[..=last.index()].iter().flat_map(|keys| keys.groups.keys())
    }

    /// The next lane after `first` and below admissions, in rotation, among those with a next item.
    fn others_turn(&mut self, first: usize, next: &[Option<u64>], now: Duration) -> Option<usize> {
        let (last, before) = self.turn;
        if now.saturating_sub(last) < TURN || self.between < BETWEEN {
            return None;
        }
        let above = first.max(Class::Admissions.index());
        let after = (above + 1..next.len()).filter(|at| next[*at].is_some());
        let next = after.clone().find(|at| *at > before).or_else(|| after.min())?;
        self.turn = (now, next);
        Some(next)
    }

    /// The item of `key` that was out is finished.
    pub fn done(&mut self, key: &K) {
        match self.by_key.get(key).map(VecDeque::front) {
            Some(None) => {
                self.by_key.remove(key);
            }
            Some(Some((next, _))) => {
                let next = *next;
                self.is_ready(key.clone(), next);
            }
            None => {}
        }
    }

    /// Takes the item that waits first under its key in a lane and that `is_meant` picks, without sending it.
    pub fn withdraw(&mut self, lane: Class, is_meant: impl Fn(&T) -> bool) -> Option<(K, T)> {
        let front = |key: &K| self.by_key.get(key).and_then(VecDeque::front);
        let keys = &mut self.ready[lane.index()];
        let (group, at) = keys.find(|key| front(key).is_some_and(|(_, item)| is_meant(item)))?;
        let key = keys.remove(&group, at)?;
        let (_, item) = self.by_key.get_mut(&key)?.pop_front()?;
        self.done(&key);
        Some((key, item))
    }

    /// Drops all waiting items. Those in progress stay so.
    pub fn forget_waiting(&mut self) {
        for key in self.ready.iter_mut().flat_map(|keys| std::mem::take(keys).into_keys()) {
            self.by_key.remove(&key);
        }
        self.by_key.values_mut().for_each(VecDeque::clear);
    }

    /// Whether nothing waits and nothing is out.
    pub fn is_idle(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether anything waits for its turn.
    pub fn has_waiting(&self) -> bool {
        self.ready.iter().any(|keys| keys.len > 0)
    }

    /// Whether anything of a class up to `last`, and of a group that is not skipped, does.
    pub fn has_waiting_beside(&self, last: Class, passes_over: impl Fn(&K::Group) -> bool) -> bool {
        self.ready[..=last.index()].iter().any(|keys| keys.next(&passes_over).is_some())
    }

    /// How many keys have an item that waits for its turn, by lane.
    pub fn waiting(&self) -> [usize; Class::ALL.len()] {
        self.ready.each_ref().map(|keys| keys.len)
    }

    /// How many of them are of groups that are skipped.
    pub fn skipped(&self, passes_over: impl Fn(&K::Group) -> bool) -> [usize; Class::ALL.len()] {
        self.ready.each_ref().map(|keys| {
            keys.groups.iter().filter(|(group, _)| passes_over(group)).map(|(_, keys)| keys.len()).sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Class::{Admissions, Ends, Jobs, Reports};

    const NOW: Duration = Duration::ZERO;

    /// Keys that are groups of their own.
    macro_rules! alone {
        ($($key:ty),*) => {$(
            impl Key for $key {
                type Group = Self;

                fn group(&self) -> Self {
                    *self
                }
            }
        )*};
    }

    alone!(&'static str, i32, usize);

    /// By group and name.
    impl Key for (&'static str, usize) {
        type Group = &'static str;

        fn group(&self) -> &'static str {
            self.0
        }
    }

    #[test]
    fn items_of_one_key_are_out_one_at_a_time_and_in_order() {
        let mut lanes = Lanes::default();
        for item in 1..=3 {
            lanes.push("a", Jobs, item);
        }
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Jobs, 1)));
        assert_eq!(lanes.pop(NOW, Reports, |_| false), None);
        lanes.done(&"a");
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Jobs, 2)));
        lanes.push("a", Reports, 4);
        assert_eq!(lanes.pop(NOW, Reports, |_| false), None);
        lanes.done(&"a");
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Jobs, 3)));
        lanes.done(&"a");
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Reports, 4)));
        assert!(!lanes.is_idle());
        lanes.done(&"a");
        assert!(lanes.is_idle());
    }

    #[test]
    fn a_long_queue_of_one_key_does_not_hold_the_others_back() {
        let mut lanes = Lanes::default();
        lanes.push("a", Jobs, 1);
        lanes.push("a", Jobs, 2);
        lanes.push("b", Jobs, 3);
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Jobs, 1)));
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("b", Jobs, 3)));
        lanes.done(&"a");
        lanes.push("c", Jobs, 4);
        assert_eq!(lanes.waiting(), [2, 0, 0, 0, 0]);
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Jobs, 2)));
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("c", Jobs, 4)));
    }

    #[test]
    fn the_most_important_goes_first() {
        let mut lanes = Lanes::default();
        for (at, lane) in Class::ALL.into_iter().enumerate().rev() {
            lanes.push(at, lane, ());
            lanes.push(10 + at, lane, ());
        }
        let order: Vec<_> =
            std::iter::from_fn(|| lanes.pop(NOW, Reports, |_| false).map(|(key, ..)| key)).collect();
        assert_eq!(order, [0, 10, 1, 11, 2, 12, 3, 13, 4, 14]);
    }

    #[test]
    fn the_others_have_their_turn_now_and_then_one_lane_after_the_other() {
        let mut lanes = Lanes::default();
        for key in 0..20 {
            lanes.push(key, Admissions, ());
            lanes.push(100 + key, Ends, ());
            lanes.push(200 + key, Reports, ());
        }
        let mut took = Vec::new();
        for ms in (0..400).step_by(25) {
            took.extend(lanes.pop(Duration::from_millis(ms), Reports, |_| false).map(|(_, lane, ())| lane));
        }
        let mut turns = vec![Admissions];
        for others in [Ends, Reports, Ends] {
            turns.extend([Admissions, Admissions, Admissions, others]);
        }
        turns.extend([Admissions; 3]);
        assert_eq!(took, turns);
    }

    /// How many of each lane go in this number of sends at such intervals, while very many wait in all of them.
    fn shares(sends: u32, every: Duration) -> [u32; 5] {
        let mut lanes = Lanes::default();
        for (at, lane) in Class::ALL.into_iter().enumerate() {
            for key in 0..1_000 {
                lanes.push(at * 1_000 + key, lane, ());
            }
        }
        let mut sent = [0; 5];
        for send in 1..=sends {
            let (_, lane, ()) = lanes.pop(every * send, Reports, |_| false).unwrap();
            sent[lane.index()] += 1;
        }
        sent
    }

    #[test]
    fn while_jobs_start_quota_is_given_with_each_fourth_write_however_many_are_sent() {
        let [jobs, admissions, lower @ ..] = shares(64, Duration::from_millis(60));
        assert!(admissions >= 16 && jobs >= 32, "{jobs} {admissions} {lower:?}");
        assert!(lower.iter().all(|sent| (5..=6).contains(sent)), "{lower:?}");
        let [jobs, admissions, lower @ ..] = shares(1_000, Duration::from_millis(2));
        assert!(admissions >= 250 && jobs >= 700, "{jobs} {admissions} {lower:?}");
        let lower = lower.iter().sum::<u32>();
        assert!((18..=20).contains(&lower), "{lower}: one in a tenth of a second");
    }

    #[test]
    fn where_few_may_go_in_a_second_most_of_them_are_the_important_ones() {
        let mut lanes = Lanes::default();
        for key in 0..20 {
            lanes.push(key, Jobs, ());
            lanes.push(100 + key, Reports, ());
        }
        let took =
            |second| lanes.pop(Duration::from_secs(second), Reports, |_| false).map(|(_, lane, ())| lane);
        let took: Vec<_> = (1..=8).filter_map(took).collect();
        assert_eq!(took, [Reports, Jobs, Jobs, Jobs, Reports, Jobs, Jobs, Jobs]);
    }

    #[test]
    fn what_is_withdrawn_is_not_sent_and_what_is_out_cannot_be() {
        let mut lanes = Lanes::default();
        for item in 1..=3 {
            lanes.push(item, Reports, item);
        }
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some((1, Reports, 1)));
        assert_eq!(lanes.withdraw(Reports, |item| *item == 1), None);
        assert_eq!(lanes.withdraw(Reports, |item| *item == 2), Some((2, 2)));
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some((3, Reports, 3)));
        lanes.done(&1);
        lanes.done(&3);
        assert!(lanes.is_idle());
    }

    #[test]
    fn a_report_that_is_withdrawn_lets_the_next_write_of_its_object_go() {
        let mut lanes = Lanes::default();
        lanes.push("a", Reports, 1);
        lanes.push("a", Admissions, 2);
        assert_eq!(lanes.withdraw(Reports, |item| *item == 1), Some(("a", 1)));
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Admissions, 2)));
    }

    #[test]
    fn what_is_passed_over_keeps_its_place() {
        let mut lanes = Lanes::default();
        for (key, lane) in [("a", Jobs), ("b", Jobs), ("c", Admissions)] {
            lanes.push(key, lane, ());
        }
        let passed = |lanes: &mut Lanes<&'static str, ()>, over: &[&str]| {
            lanes.pop(NOW, Reports, |key| over.contains(key)).map(|(key, ..)| key)
        };
        let over = |key: &&str| *key != "c";
        assert_eq!((lanes.waiting(), lanes.skipped(over)), ([2, 1, 0, 0, 0], [2, 0, 0, 0, 0]));
        assert!(lanes.has_waiting_beside(Admissions, over) && !lanes.has_waiting_beside(Jobs, over));
        assert_eq!(passed(&mut lanes, &["a", "b"]), Some("c"));
        assert_eq!(passed(&mut lanes, &["a"]), Some("b"));
        assert_eq!(passed(&mut lanes, &["a"]), None);
        assert_eq!(passed(&mut lanes, &[]), Some("a"));
    }

    #[test]
    fn what_is_passed_over_costs_a_look_for_each_group_and_the_others_keep_their_order() {
        let mut lanes = Lanes::default();
        for at in 0..1_000 {
            lanes.push(("hang", at), Jobs, ());
            if at % 100 == 0 {
                lanes.push((["a", "b"][at / 100 % 2], at), Jobs, ());
            }
        }
        let looks = std::cell::Cell::new(0);
        let passes = |group: &&str| {
            looks.set(looks.get() + 1);
            *group == "hang"
        };
        let order: Vec<_> =
            std::iter::from_fn(|| lanes.pop(NOW, Jobs, passes).map(|((_, at), ..)| at)).collect();
        assert_eq!(order, [0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
        assert!(looks.get() <= 3 * 11, "{} looks", looks.get());
        let all: Vec<_> =
            std::iter::from_fn(|| lanes.pop(NOW, Jobs, |_| false).map(|((_, at), ..)| at)).collect();
        assert_eq!(all, (0..1_000).collect::<Vec<_>>());
        assert_eq!(lanes.waiting(), [0; 5]);
    }

    #[test]
    fn what_waits_is_forgotten_and_what_is_out_keeps_its_lane_shut() {
        let mut lanes = Lanes::default();
        for (key, item) in [("a", 1), ("a", 2), ("b", 3)] {
            lanes.push(key, Jobs, item);
        }
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Jobs, 1)));
        lanes.forget_waiting();
        lanes.push("a", Jobs, 4);
        assert_eq!(lanes.pop(NOW, Reports, |_| false), None);
        lanes.done(&"a");
        assert_eq!(lanes.pop(NOW, Reports, |_| false), Some(("a", Jobs, 4)));
        lanes.done(&"a");
        assert!(lanes.is_idle());
    }
}
