//! Step curves, with no more steps than are visible.

use std::collections::BTreeMap;

use sluice_sim::series::Point;
use sluice_sim::{HoldEnd, JobRecord};

/// The most steps of one curve.
const MOST_POINTS: usize = 400;

/// A step, and how much of what is used is borrowed.
pub(super) type Step = (Point, i64);

/// The steps of one slot.
pub(super) fn own_steps(points: &[Point]) -> Vec<Step> {
    points.iter().map(|point| (*point, point.borrowed())).collect()
}

/// How many of these jobs wait.
pub(super) fn waiting<'a>(jobs: impl Iterator<Item = &'a JobRecord>) -> Vec<Step> {
    let mut moves: BTreeMap<i64, i64> = BTreeMap::from([(0, 0)]);
    for job in jobs {
        *moves.entry(job.submitted).or_default() += 1;
        for hold in &job.holds {
            *moves.entry(hold.from).or_default() -= 1;
            if let Some(to) = hold.to.filter(|_| hold.end != HoldEnd::Finished) {
                *moves.entry(to).or_default() += 1;
            }
        }
        let Some(gone) = job.finished.or(job.deleted) else { continue };
        // Quota may be released after the job has ended. A job whose last hold is open, or ended with the job, does not wait.
        let since = match job.holds.last() {
            None => Some(job.submitted),
            Some(hold) => hold.to.filter(|_| hold.end != HoldEnd::Finished),
        };
        if let Some(since) = since {
            *moves.entry(gone.max(since)).or_default() -= 1;
        }
    }
    let mut count = 0;
    let step = |(at, delta): (i64, i64)| {
        count += delta;
        (Point { at, used: count, nominal: 0 }, 0)
    };
    moves.into_iter().map(step).collect()
}

/// At most this many steps: the highest of each section.
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
    use sluice_sim::{Hold, Kind};

    use super::*;

    fn job(
        deleted: Option<i64>,
        finished: Option<i64>,
        hold: Option<(i64, Option<i64>, HoldEnd)>,
    ) -> JobRecord {
        let hold = hold.map(|(from, to, end)| Hold {
            from,
            admitted: Some(from),
            evicted: None,
            to,
            end,
            queue: "q".into(),
            holdings: [].into(),
        });
        JobRecord {
            kind: Kind::Workload,
            namespace: "t".into(),
            name: "j".into(),
            local_queue: "main".into(),
            cluster_queue: None,
            priority: 0,
            submitted: 1,
            admitted: None,
            finished,
            success: true,
            deleted,
            managed: true,
            holds: hold.into_iter().collect(),
            preempted: 0,
            preempts: 0,
            lost: 0,
            deactivated: false,
            waits_for: None,
        }
    }

    #[test]
    fn a_job_waits_until_it_holds_quota_ends_or_is_deleted() {
        let depth = |job: JobRecord| -> Vec<_> {
            waiting([job].iter()).into_iter().map(|(point, _)| (point.at, point.used)).collect()
        };
        assert_eq!(depth(job(None, None, None)), [(0, 0), (1, 1)]);
        assert_eq!(depth(job(Some(4), None, None)), [(0, 0), (1, 1), (4, 0)]);
        let finished = depth(job(None, Some(9), Some((3, Some(9), HoldEnd::Finished))));
        assert_eq!(finished, [(0, 0), (1, 1), (3, 0)]);
        let evicted = depth(job(None, None, Some((3, Some(5), HoldEnd::Evicted))));
        assert_eq!(evicted, [(0, 0), (1, 1), (3, 0), (5, 1)]);
        let deleted = depth(job(Some(5), None, Some((3, Some(6), HoldEnd::Evicted))));
        assert_eq!(deleted, [(0, 0), (1, 1), (3, 0), (6, 0)]);
        let going = depth(job(Some(5), None, Some((3, None, HoldEnd::Open))));
        assert_eq!(going, [(0, 0), (1, 1), (3, 0)]);
    }

    #[test]
    fn long_curves_keep_their_peaks() {
        let step = |at| (Point { at, used: if at == 5003 { 9 } else { 1 }, nominal: 2 }, 0);
        let steps: Vec<_> = (0..10_000).map(step).collect();
        let thin = thinned(&steps, 10_000);
        assert!(thin.len() <= MOST_POINTS + 1);
        assert_eq!(thin.iter().map(|(p, _)| p.used).max(), Some(9));
    }
}
