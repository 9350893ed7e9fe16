//! Who has to go so that a displaced Workload finds nodes: lower priority, on nodes that it can use; its own ClusterQueue first,
//! then its cohort, then others; in each the order of reference 06, 6.7, and filled back as there.

use std::cmp::Reverse;

use jiff::Timestamp;
use sluice_core::WorkloadKey;

/// How near a candidate's queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Nearness {
    /// The same ClusterQueue.
    OwnQueue,
    /// The same cohort tree.
    Cohort,
    /// Neither.
    Elsewhere,
}

/// A candidate; the order is that in which they go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// How near.
    pub nearness: Nearness,
    /// Its effective priority: lower first.
    pub priority: i32,
    /// When it reserved its quota: the most recent first.
    pub reserved_at: Reverse<Timestamp>,
    /// Its UID.
    pub uid: String,
    /// The Workload.
    pub key: WorkloadKey,
}

/// The candidates whose going makes room, none of them needless; `None` if all together do not. `fits` says whether there is
/// room once these are gone.
pub(crate) fn choose(
    mut candidates: Vec<Candidate>,
    fits: impl Fn(&[WorkloadKey]) -> bool,
) -> Option<Vec<WorkloadKey>> {
    candidates.sort();
    let mut gone = Vec::new();
    let mut enough = false;
    for candidate in candidates {
        gone.push(candidate.key);
        if fits(&gone) {
            enough = true;
            break;
        }
    }
    if !enough {
        return None;
    }
    for at in (0..gone.len().saturating_sub(1)).rev() {
        let stays = gone.remove(at);
        if !fits(&gone) {
            gone.insert(at, stays);
        }
    }
    Some(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, nearness: Nearness, priority: i32, reserved: i64) -> Candidate {
        Candidate {
            nearness,
            priority,
            reserved_at: Reverse(Timestamp::from_second(reserved).unwrap()),
            uid: name.to_owned(),
            key: WorkloadKey::new("ns", name),
        }
    }

    fn chosen(candidates: Vec<Candidate>, fits: impl Fn(&[&str]) -> bool) -> Option<Vec<String>> {
        let names = |keys: &[WorkloadKey]| keys.iter().map(|k| k.name.to_string()).collect::<Vec<_>>();
        let fits = |gone: &[WorkloadKey]| fits(&names(gone).iter().map(String::as_str).collect::<Vec<_>>());
        choose(candidates, fits).map(|keys| names(&keys))
    }

    #[test]
    fn nearer_then_lower_then_younger_goes_first() {
        let all = vec![
            candidate("far", Nearness::Elsewhere, 0, 9),
            candidate("near", Nearness::OwnQueue, 5, 1),
            candidate("old", Nearness::Cohort, 1, 1),
            candidate("young", Nearness::Cohort, 1, 2),
        ];
        let order = chosen(all, |gone| gone.len() == 4).unwrap();
        assert_eq!(order, ["near", "young", "old", "far"]);
    }

    #[test]
    fn who_is_not_needed_is_given_back() {
        let all =
            vec![candidate("small", Nearness::OwnQueue, 0, 1), candidate("big", Nearness::OwnQueue, 1, 1)];
        assert_eq!(chosen(all.clone(), |gone| gone.contains(&"big")).unwrap(), ["big"]);
        assert_eq!(chosen(all, |_| false), None);
        assert_eq!(chosen(Vec::new(), |_| true), None);
    }
}
