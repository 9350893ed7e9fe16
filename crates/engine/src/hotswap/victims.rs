//! Which Workloads have to go so that a displaced one finds nodes: lower priority, on nodes that it can use; its own ClusterQueue first,
//! then its cohort, then others; in each the order of docs/reference/06-algorithm.md 6.7, and filled back as there.

use std::cmp::Reverse;

use jiff::Timestamp;
use sluice_core::WorkloadKey;

/// How near a candidate's queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proximity {
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
    pub proximity: Proximity,
    /// Its effective priority: lower first.
    pub priority: i32,
    /// When it reserved its quota: the most recent first.
    pub reserved_at: Reverse<Timestamp>,
    /// Its UID.
    pub uid: String,
    /// The Workload.
    pub key: WorkloadKey,
}

/// Where candidates go and come back.
pub(crate) trait Ground {
    /// A candidate goes.
    fn release(&mut self, key: &WorkloadKey);
    /// A candidate that went stays after all.
    fn take(&mut self, key: &WorkloadKey);
    /// Whether there is room now.
    fn fits(&mut self) -> bool;
    /// Whether the search may go on.
    fn goes_on(&self) -> bool;
}

/// The result of a search for victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// These go; they are gone from the ground.
    Victims(Vec<WorkloadKey>),
    /// All together do not make room.
    None,
    /// The search was cut short.
    Cut,
}

/// The candidates whose going makes room, none of them needless.
pub(crate) fn choose(mut candidates: Vec<Candidate>, ground: &mut impl Ground) -> Choice {
    candidates.sort();
    let mut gone = Vec::new();
    let mut enough = false;
    for candidate in candidates {
        if !ground.goes_on() {
            return Choice::Cut;
        }
        ground.release(&candidate.key);
        gone.push(candidate.key);
        if ground.fits() {
            enough = true;
            break;
        }
    }
    if !enough {
        return Choice::None;
    }
    for at in (0..gone.len().saturating_sub(1)).rev() {
        if !ground.goes_on() {
            return Choice::Cut;
        }
        ground.take(&gone[at]);
        if ground.fits() {
            gone.remove(at);
        } else {
            ground.release(&gone[at]);
        }
    }
    Choice::Victims(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, proximity: Proximity, priority: i32, reserved: i64) -> Candidate {
        Candidate {
            proximity,
            priority,
            reserved_at: Reverse(Timestamp::from_second(reserved).unwrap()),
            uid: name.to_owned(),
            key: WorkloadKey::new("ns", name),
        }
    }

    /// A ground of names, on which a condition says what fits; so many questions are answered.
    struct Names<F> {
        gone: Vec<String>,
        fits: F,
        questions: usize,
    }

    impl<F: Fn(&[&str]) -> bool> Ground for Names<F> {
        fn release(&mut self, key: &WorkloadKey) {
            self.gone.push(key.name.to_string());
        }

        fn take(&mut self, key: &WorkloadKey) {
            self.gone.retain(|name| **name != *key.name);
        }

        fn fits(&mut self) -> bool {
            self.questions -= 1;
            (self.fits)(&self.gone.iter().map(String::as_str).collect::<Vec<_>>())
        }

        fn goes_on(&self) -> bool {
            self.questions > 0
        }
    }

    fn search(candidates: Vec<Candidate>, questions: usize, fits: impl Fn(&[&str]) -> bool) -> Choice {
        choose(candidates, &mut Names { gone: Vec::new(), fits, questions })
    }

    fn chosen(candidates: Vec<Candidate>, fits: impl Fn(&[&str]) -> bool) -> Option<Vec<String>> {
        match search(candidates, 100, fits) {
            Choice::Victims(keys) => Some(keys.iter().map(|key| key.name.to_string()).collect()),
            Choice::None => None,
            Choice::Cut => panic!("the search ends"),
        }
    }

    #[test]
    fn a_search_without_end_is_cut() {
        let all: Vec<_> = (0..9).map(|n| candidate(&format!("c{n}"), Proximity::OwnQueue, n, 1)).collect();
        assert_eq!(search(all.clone(), 8, |_| false), Choice::Cut);
        assert_eq!(search(all.clone(), 10, |gone| gone.len() == 9), Choice::Cut, "while it gives back");
        assert_eq!(search(all, 10, |_| false), Choice::None);
    }

    #[test]
    fn nearer_then_lower_then_younger_goes_first() {
        let all = vec![
            candidate("far", Proximity::Elsewhere, 0, 9),
            candidate("near", Proximity::OwnQueue, 5, 1),
            candidate("old", Proximity::Cohort, 1, 1),
            candidate("young", Proximity::Cohort, 1, 2),
        ];
        let order = chosen(all, |gone| gone.len() == 4).unwrap();
        assert_eq!(order, ["near", "young", "old", "far"]);
    }

    #[test]
    fn who_is_not_needed_is_given_back() {
        let all =
            vec![candidate("small", Proximity::OwnQueue, 0, 1), candidate("big", Proximity::OwnQueue, 1, 1)];
        assert_eq!(chosen(all.clone(), |gone| gone.contains(&"big")).unwrap(), ["big"]);
        assert_eq!(chosen(all, |_| false), None);
        assert_eq!(chosen(Vec::new(), |_| true), None);
    }
}
