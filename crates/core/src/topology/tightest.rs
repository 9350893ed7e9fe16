//! The domains of a level, ordered by their capacity, so that the tightest sufficient one is found without visiting all of them.

use std::collections::BTreeSet;

use crate::topology::counts::Counts;

/// Slices, pods, rank.
type Key = (i64, i64, usize);

/// The orders of all levels. An order is made when it is needed for the second time: visiting all domains is cheaper than an order that is used once.
#[derive(Debug, Default)]
pub(crate) struct Tightest {
    levels: Vec<Order>,
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
        if order.domains.is_none() && !std::mem::replace(&mut order.asked, true) {
            return tightest(all(), slices);
        }
        let domains = order.domains.get_or_insert_with(|| all().collect());
        domains.range((slices, i64::MIN, 0)..).next().map(|key| key.2)
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
}
