//! Partial admission: the largest counts at which a workload fits (docs/reference/06-algorithm.md 6.6 "Partial admission").

use smallvec::SmallVec;

use crate::shape::Shape;

/// The counts at step `step` of `total`: every reducible pod set scaled by the same share of what it may lose.
fn reduced(shape: &Shape, step: i64, total: i64) -> SmallVec<[i64; 2]> {
    shape
        .pod_sets
        .iter()
        .map(|pod_set| {
            let delta = pod_set.min_count.map_or(0, |min| pod_set.count - min);
            let cut = i128::from(delta) * i128::from(step) / i128::from(total.max(1));
            pod_set.count - i64::try_from(cut).unwrap_or(delta)
        })
        .collect()
}

/// Finds the smallest step at which `attempt` succeeds, assuming that it succeeds at every later step too. [quirk]
/// The result is the last success, and counts only if it was at the step where the search ended.
pub(crate) fn search<T>(shape: &Shape, mut attempt: impl FnMut(&[i64]) -> Option<T>) -> Option<T> {
    let total = shape
        .pod_sets
        .iter()
        .filter_map(|pod_set| Some(pod_set.count - pod_set.min_count?))
        .fold(0_i64, i64::saturating_add);
    if total == 0 {
        return None;
    }
    let (mut low, mut high) = (0, total.saturating_add(1));
    let mut last: Option<(i64, T)> = None;
    while low < high {
        let middle = low + (high - low) / 2;
        match attempt(&reduced(shape, middle, total)) {
            Some(found) => {
                last = Some((middle, found));
                high = middle;
            }
            None => low = middle + 1,
        }
    }
    last.filter(|(step, _)| *step == low).map(|(_, found)| found)
}
