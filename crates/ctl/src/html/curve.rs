//! Curves of steps, with no more of them than can be seen.

use sluice_sim::series::Point;

/// The most steps of one curve.
const MOST_POINTS: usize = 400;

/// A step, and how much of what is used is borrowed.
pub(super) type Step = (Point, i64);

/// The steps of one slot.
pub(super) fn own_steps(points: &[Point]) -> Vec<Step> {
    points.iter().map(|point| (*point, point.borrowed())).collect()
}

/// At most so many steps: of each stretch the highest.
pub(super) fn thinned(steps: &[Step], end: i64) -> Vec<Step> {
    if steps.len() <= MOST_POINTS {
        return steps.to_vec();
    }
    let stretch = (end / i64::try_from(MOST_POINTS).unwrap_or(1)).max(1);
    let mut thin: Vec<Step> = Vec::new();
    for (point, borrowed) in steps {
        let at = point.at / stretch * stretch;
        match thin.last_mut() {
            Some((last, last_borrowed)) if last.at == at => {
                if point.used >= last.used {
                    (last.used, *last_borrowed) = (point.used, *borrowed);
                }
                last.nominal = point.nominal;
            }
            _ => thin.push((Point { at, ..*point }, *borrowed)),
        }
    }
    thin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_curves_keep_their_peaks() {
        let step = |at| (Point { at, used: if at == 5003 { 9 } else { 1 }, nominal: 2 }, 0);
        let steps: Vec<_> = (0..10_000).map(step).collect();
        let thin = thinned(&steps, 10_000);
        assert!(thin.len() <= MOST_POINTS + 1);
        assert_eq!(thin.iter().map(|(p, _)| p.used).max(), Some(9));
    }
}
