//! The domains of a level, ordered by their capacity, so that the tightest sufficient one is found without visiting all of them.

use std::collections::BTreeSet;

use crate::topology::counts::Counts;

/// Slices, pods, rank.
type Key = (i64, i64, usize);

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
    domains: Option<BTreeSet<Key>>,
}

fn key(counts: &Counts, at: usize) -> Key {
    (counts.slices_led, counts.pods_led, at)
}

impl Tightest {
    /// Forgets all orders.
    pub(crate) fn reset(&mut self, depth: usize) {
        self.levels.clear();
        self.levels.resize_with(depth, Order::default);
    }

    /// Forgets the order of one level: its domains have other ranks.
    pub(crate) fn forget(&mut self, level: usize) {
        if let Some(order) = self.levels.get_mut(level) {
            *order = Order::default();
        }
    }

    /// What fits into a domain has changed.
    pub(crate) fn changed(&mut self, level: usize, at: usize, before: &Counts, after: &Counts) {
        if let Some(Order { domains: Some(domains), .. }) = self.levels.get_mut(level)
            && key(before, at) != key(after, at)
        {
            domains.remove(&key(before, at));
            domains.insert(key(after, at));
        }
    }

    /// Among the domains that hold this number of slices, the one that holds the fewest, then the one with the fewest pods, then the first.
    pub(crate) fn at_least(&mut self, level: usize, counts: &[Counts], slices: i64) -> Option<usize> {
        let all = || counts.iter().enumerate().map(|(at, counts)| key(counts, at));
        let Some(order) = self.levels.get_mut(level) else { return tightest(all(), slices) };
        if order.domains.is_none() {
            self.visited = self.visited.saturating_add(u64::try_from(counts.len()).unwrap_or(u64::MAX));
        }
        if order.domains.is_none() && !std::mem::replace(&mut order.asked, true) {
            return tightest(all(), slices);
        }
        let domains = order.domains.get_or_insert_with(|| all().collect());
        domains.range((slices, i64::MIN, 0)..).next().map(|key| key.2)
    }

    /// How many slices the domain with most of them holds. `None`: there is no order of this level.
    pub(crate) fn largest_room(&self, level: usize) -> Option<i64> {
        let domains = self.levels.get(level)?.domains.as_ref()?;
        Some(domains.last().map_or(0, |key| key.0))
    }

    /// The domains that hold this number of slices together, and how many slices have no room: the smallest first, or the largest first and, of those
    /// that hold the rest, the tightest. Of equal ones that with the fewest pods, then the first. `None`: there is no order of this level.
    pub(crate) fn together(&self, level: usize, slices: i64, smallest: bool) -> Option<(Vec<usize>, i64)> {
        let domains = self.levels.get(level)?.domains.as_ref()?;
        let from = |slices: i64| (slices, i64::MIN, 0);
        let (mut rest, mut taken) = (slices, Vec::new());
        if smallest {
            for &(size, _, at) in domains.range(from(1)..) {
                if rest <= 0 {
                    break;
                }
                taken.push(at);
                rest -= size.min(rest);
            }
            return Some((taken, rest));
        }
        let mut next = domains.last();
        while let Some(&(size, ..)) = next.filter(|key| key.0 > 0) {
            for &(_, _, at) in domains.range(from(size)..=(size, i64::MAX, usize::MAX)) {
                if rest <= 0 {
                    return Some((taken, rest));
                }
                // Those that were taken are as large at least.
                let tighter = domains.range(from(rest)..).next().filter(|key| key.0 < size);
                taken.push(tighter.filter(|_| rest < size).map_or(at, |key| key.2));
                rest -= size.min(rest);
            }
            next = domains.range(..from(size)).next_back();
        }
        Some((taken, rest))
    }
}

fn tightest(all: impl Iterator<Item = Key>, slices: i64) -> Option<usize> {
    all.filter(|key| key.0 >= slices).min().map(|key| key.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(slices: i64, pods: i64) -> Counts {
        Counts { slices_led: slices, pods_led: pods, ..Counts::default() }
    }

    #[test]
    fn the_order_gives_what_a_look_at_all_gives_and_follows_changes() {
        let mut level: Vec<Counts> = (0..50).map(|at| counts(at * 7 % 11, at * 3 % 5)).collect();
        let mut orders = Tightest::default();
        orders.reset(1);
        for (step, moved) in (0..50).zip(0i64..) {
            for slices in -1..12 {
                let keys = level.iter().enumerate().map(|(at, counts)| key(counts, at));
                assert_eq!(orders.at_least(0, &level, slices), tightest(keys, slices), "{step} {slices}");
            }
            let (at, after) = (step * 13 % 50, counts(moved * 5 % 12, moved * 7 % 4));
            orders.changed(0, at, &level[at], &after);
            level[at] = after;
        }
        assert!(orders.levels[0].domains.is_some());
    }

    /// The same as [`Tightest::together`], with a look at all.
    fn one_by_one(level: &[Counts], slices: i64, smallest: bool) -> (Vec<usize>, i64) {
        let mut left: Vec<Key> = level.iter().enumerate().map(|(at, counts)| key(counts, at)).collect();
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
}
