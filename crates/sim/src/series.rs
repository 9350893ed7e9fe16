//! Usage and quota over time, as steps.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::Record;

/// A ClusterQueue (or Cohort), a flavor, a resource.
pub type SlotKey = (Arc<str>, Arc<str>, Arc<str>);

/// From a time on. Amounts as in [`crate::Holding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Milliseconds from the beginning.
    pub at: i64,
    /// The usage.
    pub used: i64,
    /// Its nominal quota.
    pub nominal: i64,
}

impl Point {
    /// The usage beyond the nominal quota.
    pub fn borrowed(&self) -> i64 {
        self.used.saturating_sub(self.nominal).max(0)
    }
}

/// The steps of every slot that had quota or usage, from 0 to `end`.
pub fn steps(record: &Record, end: i64) -> BTreeMap<SlotKey, Vec<Point>> {
    let mut deltas: BTreeMap<SlotKey, BTreeMap<i64, (i64, Option<i64>)>> = BTreeMap::new();
    let mut known: BTreeMap<Arc<str>, Vec<SlotKey>> = BTreeMap::new();
    for change in &record.quotas {
        // Quota that a node no longer has is removed.
        for key in known.remove(&change.node).unwrap_or_default() {
            deltas.entry(key).or_default().entry(change.at).or_default().1 = Some(0);
        }
        for quota in &change.nominal {
            let key = (Arc::clone(&change.node), Arc::clone(&quota.flavor), Arc::clone(&quota.resource));
            known.entry(Arc::clone(&change.node)).or_default().push(key.clone());
            deltas.entry(key).or_default().entry(change.at).or_default().1 = Some(quota.amount);
        }
    }
    for hold in record.jobs.iter().flat_map(|job| &job.holds) {
        for holding in hold.holdings.iter() {
            let key = (Arc::clone(&hold.queue), Arc::clone(&holding.flavor), Arc::clone(&holding.resource));
            let slot = deltas.entry(key).or_default();
            slot.entry(hold.from).or_default().0 += holding.amount;
            if let Some(to) = hold.to {
                slot.entry(to).or_default().0 -= holding.amount;
            }
        }
    }
    deltas.into_iter().map(|(key, changes)| (key, walk(&changes, end))).collect()
}

fn walk(changes: &BTreeMap<i64, (i64, Option<i64>)>, end: i64) -> Vec<Point> {
    let mut points = vec![Point { at: 0, used: 0, nominal: 0 }];
    for (&at, &(delta, nominal)) in changes {
        let last = points[points.len() - 1];
        let at = at.clamp(0, end);
        let next = Point { at, used: last.used + delta, nominal: nominal.unwrap_or(last.nominal) };
        if last.at == at {
            points.pop();
        }
        points.push(next);
    }
    points
}

/// Each step with how long it lasts, in milliseconds.
pub fn lasting(points: &[Point], end: i64) -> impl Iterator<Item = (Point, i64)> + '_ {
    points.iter().enumerate().map(move |(i, point)| {
        let until = points.get(i + 1).map_or(end, |next| next.at);
        (*point, (until - point.at).max(0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_at_one_time_is_one_step() {
        let changes = BTreeMap::from([(0, (2, Some(4))), (10, (-2, None)), (20, (5, Some(3)))]);
        let points = walk(&changes, 30);
        let shown: Vec<_> =
            lasting(&points, 30).map(|(p, ms)| (p.used, p.nominal, p.borrowed(), ms)).collect();
        assert_eq!(shown, [(2, 4, 0, 10), (0, 4, 0, 10), (5, 3, 2, 10)]);
    }
}
