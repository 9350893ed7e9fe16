//! The domains of a level, ordered by their capacity, so that the tightest sufficient one is found without visiting all of them.

use std::collections::BTreeSet;

use crate::topology::counts::Counts;

/// Slices, pods, rank.
type Ranked = (i64, i64, usize);
/// Slices, pods, number.
type Key = (i64, i64, u64);

/// How far apart the numbers of domains are at first: so many that come between two others find one between theirs.
const GAP: u64 = 1 << 32;

/// The orders of all levels. An order is made when it is needed for the second time: visiting all domains is cheaper than an order that is used once.
#[derive(Debug, Default)]
pub(crate) struct Tightest {
    levels: Vec<Order>,
    /// How many domains were visited: to make an order, or because there was none.
    pub(crate) visited: u64,
}

#[derive(Debug, Default)]
struct Order {
    asked: bool,
    domains: Option<Domains>,
}

/// The domains of a level in order. A domain that comes or goes changes the ranks of those behind it, but not their numbers.
#[derive(Debug)]
struct Domains {
    keys: BTreeSet<Key>,
    /// By rank, their numbers, which grow with it. Empty: those that they had at first.
    numbers: Vec<u64>,
}

fn ranked(counts: &Counts, at: usize) -> Ranked {
    (counts.slices_led, counts.pods_led, at)
}

fn numbered(counts: &Counts, number: u64) -> Key {
    (counts.slices_led, counts.pods_led, number)
}

/// The number of a domain at first.
fn first_number(at: usize) -> u64 {
    u64::try_from(at).unwrap_or(u64::MAX).saturating_mul(GAP).saturating_add(GAP / 2)
}

impl Domains {
    fn of(counts: &[Counts]) -> Self {
        let keys = counts.iter().enumerate().map(|(at, counts)| numbered(counts, first_number(at)));
        Self { keys: keys.collect(), numbers: Vec::new() }
    }

    fn number(&self, at: usize) -> u64 {
        self.numbers.get(at).copied().unwrap_or_else(|| first_number(at))
    }

    fn rank(&self, key: &Key) -> usize {
        if self.numbers.is_empty() {
            usize::try_from(key.2 / GAP).unwrap_or(usize::MAX)
        } else {
            self.numbers.partition_point(|number| *number < key.2)
        }
    }

    fn keep_numbers(&mut self) {
        if self.numbers.is_empty() {
            self.numbers = (0..self.keys.len()).map(first_number).collect();
        }
    }

    /// A domain comes, into which nothing fits yet. False: its neighbours' numbers leave none between them.
    fn insert(&mut self, at: usize) -> bool {
        self.keep_numbers();
        let before = at.checked_sub(1).map_or(0, |before| self.numbers[before]);
        let after = self.numbers.get(at).copied().unwrap_or_else(|| before.saturating_add(2 * GAP));
        let number = before + (after - before) / 2;
        if number == before {
            return false;
        }
        self.numbers.insert(at, number);
        self.keys.insert(numbered(&Counts::default(), number))
    }

    /// A domain goes, into which so much fits.
    fn remove(&mut self, at: usize, counts: &Counts) {
        self.keep_numbers();
        let number = self.numbers.remove(at);
        self.keys.remove(&numbered(counts, number));
    }
}

impl Tightest {
    /// Forgets all orders.
    pub(crate) fn reset(&mut self, depth: usize) {
        self.levels.clear();
        self.levels.resize_with(depth, Order::default);
    }

    /// A domain comes, into which nothing fits yet.
    pub(crate) fn insert(&mut self, level: usize, at: usize) {
        if let Some(order) = self.levels.get_mut(level)
            && order.domains.as_mut().is_some_and(|domains| !domains.insert(at))
        {
            order.domains = None;
        }
    }

    /// A domain goes, into which so much fits.
    pub(crate) fn remove(&mut self, level: usize, at: usize, counts: &Counts) {
        if let Some(Order { domains: Some(domains), .. }) = self.levels.get_mut(level) {
            domains.remove(at, counts);
        }
    }

    /// What fits into a domain has changed.
    pub(crate) fn changed(&mut self, level: usize, at: usize, before: &Counts, after: &Counts) {
        if let Some(Order { domains: Some(domains), .. }) = self.levels.get_mut(level)
            && ranked(before, at) != ranked(after, at)
        {
            let number = domains.number(at);
            domains.keys.remove(&numbered(before, number));
            domains.keys.insert(numbered(after, number));
        }
    }

    /// Among the domains that hold this number of slices, the one that holds the fewest, then the one with the fewest pods, then the first.
    pub(crate) fn at_least(&mut self, level: usize, counts: &[Counts], slices: i64) -> Option<usize> {
        let all = || counts.iter().enumerate().map(|(at, counts)| ranked(counts, at));
        let Some(order) = self.levels.get_mut(level) else { return tightest(all(), slices) };
        if order.domains.is_none() {
            self.visited = self.visited.saturating_add(u64::try_from(counts.len()).unwrap_or(u64::MAX));
        }
        if order.domains.is_none() && !std::mem::replace(&mut order.asked, true) {
            return tightest(all(), slices);
        }
        let domains = order.domains.get_or_insert_with(|| Domains::of(counts));
        domains.keys.range((slices, i64::MIN, 0)..).next().map(|key| domains.rank(key))
    }

    /// How many slices the domain with most of them holds. `None`: there is no order of this level.
    pub(crate) fn largest_room(&self, level: usize) -> Option<i64> {
        let domains = self.levels.get(level)?.domains.as_ref()?;
        Some(domains.keys.last().map_or(0, |key| key.0))
    }

    /// The domains that hold this number of slices together, and how many slices have no room: the smallest first, or the largest first and, of those
    /// that hold the rest, the tightest. Of equal ones that with the fewest pods, then the first. `None`: there is no order of this level.
    pub(crate) fn together(&self, level: usize, slices: i64, smallest: bool) -> Option<(Vec<usize>, i64)> {
        let domains = self.levels.get(level)?.domains.as_ref()?;
        let (keys, from) = (&domains.keys, |slices: i64| (slices, i64::MIN, 0));
        let (mut rest, mut taken) = (slices, Vec::new());
        if smallest {
            for key in keys.range(from(1)..) {
                if rest <= 0 {
                    break;
                }
                taken.push(domains.rank(key));
                rest -= key.0.min(rest);
            }
            return Some((taken, rest));
        }
        let mut next = keys.last();
        while let Some(&(size, ..)) = next.filter(|key| key.0 > 0) {
            for key in keys.range(from(size)..=(size, i64::MAX, u64::MAX)) {
                if rest <= 0 {
                    return Some((taken, rest));
                }
                // Those that were taken are as large at least.
                let tighter = keys.range(from(rest)..).next().filter(|key| key.0 < size);
                taken.push(domains.rank(tighter.filter(|_| rest < size).unwrap_or(key)));
                rest -= size.min(rest);
            }
            next = keys.range(..from(size)).next_back();
        }
        Some((taken, rest))
    }
}

fn tightest(all: impl Iterator<Item = Ranked>, slices: i64) -> Option<usize> {
    all.filter(|key| key.0 >= slices).min().map(|key| key.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(slices: i64, pods: i64) -> Counts {
        Counts { slices_led: slices, pods_led: pods, ..Counts::default() }
    }

    /// The same as [`Tightest::at_least`], with a look at all.
    fn by_look(level: &[Counts], slices: i64) -> Option<usize> {
        tightest(level.iter().enumerate().map(|(at, counts)| ranked(counts, at)), slices)
    }

    #[test]
    fn the_order_gives_what_a_look_at_all_gives_and_follows_changes() {
        let mut level: Vec<Counts> = (0..50).map(|at| counts(at * 7 % 11, at * 3 % 5)).collect();
        let mut orders = Tightest::default();
        orders.reset(1);
        for (step, moved) in (0..50).zip(0i64..) {
            for slices in -1..12 {
                assert_eq!(orders.at_least(0, &level, slices), by_look(&level, slices), "{step} {slices}");
            }
            let (at, after) = (step * 13 % 50, counts(moved * 5 % 12, moved * 7 % 4));
            orders.changed(0, at, &level[at], &after);
            level[at] = after;
        }
        assert!(orders.levels[0].domains.is_some());
    }

    /// The same as [`Tightest::together`], with a look at all.
    fn one_by_one(level: &[Counts], slices: i64, smallest: bool) -> (Vec<usize>, i64) {
        let all = level.iter().enumerate().map(|(at, counts)| ranked(counts, at));
        let mut left: Vec<Ranked> = all.collect();
        left.retain(|key| key.0 > 0);
        left.sort_by_key(|key| (if smallest { key.0 } else { -key.0 }, key.1, key.2));
        let (mut rest, mut taken) = (slices, Vec::new());
        while rest > 0 && !left.is_empty() {
            let holds = |at: &usize| left[*at].0 >= rest;
            let tight = (0..left.len()).filter(holds).min_by_key(|&at| left[at]);
            let next = left.remove(tight.filter(|_| !smallest && holds(&0)).unwrap_or(0));
            rest -= next.0.min(rest);
            taken.push(next.2);
        }
        (taken, rest)
    }

    #[test]
    fn domains_that_hold_slices_together_are_those_that_a_look_at_all_gives() {
        for size in 2..12 {
            let level: Vec<Counts> = (0..40).map(|at| counts(at * 7 % size, at * 5 % 9)).collect();
            let mut orders = Tightest::default();
            orders.reset(1);
            assert_eq!(orders.together(0, 1, false), None, "there is no order yet");
            for _ in 0..2 {
                orders.at_least(0, &level, 1);
            }
            for (slices, smallest) in (0..230).flat_map(|slices| [(slices, false), (slices, true)]) {
                let expected = one_by_one(&level, slices, smallest);
                assert_eq!(
                    orders.together(0, slices, smallest),
                    Some(expected),
                    "{size} {slices} {smallest}"
                );
            }
        }
    }

    /// A level of 50 domains, put in order.
    fn in_order() -> (Vec<Counts>, Tightest) {
        let level: Vec<Counts> = (0..50).map(|at| counts(at * 7 % 11, at * 3 % 5)).collect();
        let mut orders = Tightest::default();
        orders.reset(1);
        for _ in 0..2 {
            orders.at_least(0, &level, 1);
        }
        (level, orders)
    }

    #[test]
    fn domains_come_and_go_between_others_without_a_look_at_those() {
        let (mut level, mut orders) = in_order();
        let visited = orders.visited;
        for (step, moved) in (0..300).zip(0i64..) {
            if step % 3 == 2 {
                let at = step * 11 % level.len();
                let gone = level.remove(at);
                orders.remove(0, at, &gone);
            } else {
                let (at, after) = (step * 17 % (level.len() + 1), counts(moved * 5 % 12, moved * 7 % 4));
                level.insert(at, Counts::default());
                orders.insert(0, at);
                orders.changed(0, at, &level[at], &after);
                level[at] = after;
            }
            for slices in -1..12 {
                assert_eq!(orders.at_least(0, &level, slices), by_look(&level, slices), "{step} {slices}");
            }
            for (slices, smallest) in [(7, false), (7, true), (90, false), (90, true)] {
                let expected = one_by_one(&level, slices, smallest);
                assert_eq!(orders.together(0, slices, smallest), Some(expected), "{step} {slices}");
            }
        }
        assert_eq!(orders.visited, visited);
    }

    #[test]
    fn where_too_many_domains_come_between_two_others_all_are_put_in_order_again() {
        let (mut level, mut orders) = in_order();
        let visited = orders.visited;
        for step in 0..100 {
            level.insert(1, Counts::default());
            orders.insert(0, 1);
            assert_eq!(orders.at_least(0, &level, 1), by_look(&level, 1), "{step}");
        }
        assert!(orders.visited > visited && orders.visited < visited + 10 * 150);
        for at in (0..level.len()).rev() {
            let gone = level.remove(at);
            orders.remove(0, at, &gone);
        }
        assert_eq!(orders.at_least(0, &level, 0), None);
        for at in 0..3 {
            level.insert(at, Counts::default());
            orders.insert(0, at);
            assert_eq!(orders.at_least(0, &level, 0), Some(0), "{at}");
        }
    }
}
