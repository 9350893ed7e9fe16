//! The order of candidates, and the preempted ones, compared with a plain implementation of the rules.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::super::candidates::{Candidate, Candidates};
use super::*;
use crate::WorkloadKey;
use crate::intern::NodeId;
use crate::spec::Time;

/// Whose queue the search is for.
const QUEUE: &str = "q";
/// The root of its cohort tree.
const ROOT: NodeId = NodeId(1);
/// The root of another one.
const OTHER_ROOT: NodeId = NodeId(2);

/// Another queue in its cohort tree.
const NEAR: &str = "near";
/// A queue in another tree.
const FAR: &str = "far";
/// A queue without a cohort.
const ALONE: &str = "alone";

/// How near a candidate's queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Proximity {
    /// In the cohort, on what is lent to its queue.
    Lent,
    OwnQueue,
    Cohort,
    /// On what is lent to its queue in another cohort.
    LentElsewhere,
    Elsewhere,
}

type Spec = (WorkloadKey, Proximity, i32, i64);

fn candidate(name: &str, proximity: Proximity, priority: i32, reserved: i64) -> Spec {
    (WorkloadKey::new("ns", name), proximity, priority, reserved)
}

fn candidates(all: &[Spec], root: Option<NodeId>) -> Candidates<'_> {
    let made = all.iter().enumerate().map(|(at, (key, proximity, priority, reserved))| Candidate {
        at,
        key,
        priority: *priority,
        reserved_at: Time::from_seconds(*reserved),
        uid: &key.name,
        queue: match proximity {
            Proximity::OwnQueue => QUEUE,
            Proximity::Lent | Proximity::Cohort => NEAR,
            Proximity::LentElsewhere => FAR,
            Proximity::Elsewhere => ALONE,
        },
        flavors: Vec::new(),
    });
    let root_of = |queue: &str| match queue {
        ALONE => None,
        FAR => Some(OTHER_ROOT),
        _ => root,
    };
    let lent = |at: usize| matches!(all[at].1, Proximity::Lent | Proximity::LentElsewhere);
    Candidates::new(made.collect(), root_of, |one| lent(one.at))
}

/// A ground of names, on which a condition says what fits; a limited number of questions is answered.
struct Names<'k, F> {
    gone: Vec<&'k str>,
    fits: F,
    questions: usize,
    dear: bool,
}

impl<'k, F: Fn(&[&str]) -> bool> Ground for Names<'k, F> {
    type Key = &'k str;

    fn release(&mut self, key: &'k str) {
        self.gone.push(key);
    }

    fn take(&mut self, key: &'k str) {
        self.gone.retain(|name| *name != key);
    }

    fn fits(&mut self) -> bool {
        self.questions -= 1;
        (self.fits)(&self.gone)
    }

    fn goes_on(&self) -> bool {
        self.questions > 0
    }

    fn is_dear(&self) -> bool {
        self.dear
    }
}

/// One after the other goes until that is enough; then each but the last comes back, from the last to the first, if it can.
fn naive(all: &[&str], fits: impl Fn(&[&str]) -> bool) -> Option<Vec<String>> {
    let enough = (1..=all.len()).find(|first| fits(&all[..*first]))?;
    let mut gone = all[..enough].to_vec();
    for at in (0..enough - 1).rev() {
        let mut without = gone.clone();
        without.remove(at);
        if fits(&without) {
            gone = without;
        }
    }
    Some(gone.into_iter().map(str::to_owned).collect())
}

fn search(all: &[Spec], questions: usize, fits: impl Fn(&[&str]) -> bool) -> Choice<&str> {
    let made = candidates(all, Some(ROOT));
    let keys = made.below(100, QUEUE, Some(ROOT), true).map(|one| &*one.key.name);
    choose(keys, &mut Names { gone: Vec::new(), fits, questions, dear: false })
}

fn chosen(all: &[Spec], fits: impl Fn(&[&str]) -> bool) -> Option<Vec<String>> {
    match search(all, 100, fits) {
        Choice::Victims(names) => Some(names.into_iter().map(str::to_owned).collect()),
        Choice::None => None,
        Choice::Cut => panic!("the search ends"),
    }
}

proptest! {
    #[test]
    fn the_victims_are_those_of_a_naive_search_and_few_questions_are_asked_of_a_dear_ground(
        frees in prop::collection::vec((0..3_usize, 0..5_i64), 1..200),
        wanted in 1..80_i64,
        dear in any::<bool>(),
    ) {
        let names: Vec<String> = (0..frees.len()).map(|at| format!("c{at:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let fits = |gone: &[&str]| {
            let mut free = [0; 3];
            for (_, (domain, amount)) in names.iter().zip(&frees).filter(|(name, _)| gone.contains(name)) {
                free[*domain] += amount;
            }
            free.iter().any(|free| *free >= wanted)
        };
        let mut ground = Names { gone: Vec::new(), fits, questions: 100_000, dear };
        let chosen = match choose(names.iter().copied(), &mut ground) {
            Choice::Victims(names) => Some(names.into_iter().map(str::to_owned).collect::<Vec<_>>()),
            Choice::None => None,
            Choice::Cut => panic!("the search ends"),
        };
        let victims = chosen.as_ref().map_or(0, Vec::len);
        if chosen.is_some() {
            let mut gone: Vec<String> = ground.gone.iter().map(|name| (*name).to_owned()).collect();
            gone.sort();
            prop_assert_eq!(chosen.as_ref(), Some(&gone), "the ground is as it was chosen");
        }
        prop_assert_eq!(chosen, naive(&names, fits));
        let asked = 100_000 - ground.questions;
        prop_assert!(!dear || asked <= 16 * (victims + 2), "{} questions for {} victims", asked, victims);
    }

    #[test]
    fn candidates_come_in_the_order_of_proximity_priority_age_and_uid(
        all in prop::collection::btree_map("[a-f]{1,2}", (0..5_usize, 0..4_i32, 0..3_i64), 0..20),
        priority in 0..5_i32,
        (rooted, beyond) in (any::<bool>(), any::<bool>()),
    ) {
        let near = [
            Proximity::Lent, Proximity::OwnQueue, Proximity::Cohort, Proximity::LentElsewhere, Proximity::Elsewhere,
        ];
        let all = all.iter().map(|(name, (p, priority, at))| candidate(name, near[*p], *priority, *at));
        let all: Vec<Spec> = all.collect();
        let mut wanted: Vec<_> = all.iter().filter_map(|(key, proximity, its, at)| {
            // Without a root of its own the queue has no cohort.
            let elsewhere = matches!(proximity, Proximity::Lent | Proximity::Cohort) && !rooted;
            let proximity = if elsewhere { Proximity::Elsewhere } else { *proximity };
            let goes = *its < priority && (beyond || proximity == Proximity::OwnQueue);
            goes.then_some((proximity, *its, Reverse(*at), key))
        }).collect();
        wanted.sort();
        let made = candidates(&all, rooted.then_some(ROOT));
        let found = made.below(priority, QUEUE, rooted.then_some(ROOT), beyond);
        let found: Vec<_> = found.map(|one| one.key).collect();
        prop_assert_eq!(found, wanted.into_iter().map(|(_, _, _, key)| key).collect::<Vec<_>>());
    }
}

#[test]
fn a_victim_is_no_candidate_any_more_wherever_it_stood() {
    let all: Vec<_> = (0..6).map(|n| candidate(&format!("c{n}"), Proximity::Cohort, n, 1)).collect();
    let mut made = candidates(&all, Some(ROOT));
    for (leaves, left) in
        [(2, vec![0, 1, 3, 4, 5]), (0, vec![1, 3, 4, 5]), (1, vec![3, 4, 5]), (9, vec![3, 4, 5])]
    {
        made.remove(leaves);
        let found = made.below(100, QUEUE, Some(ROOT), true).map(|one| one.priority);
        assert_eq!(found.collect::<Vec<_>>(), left);
        let found = made.below(100, NEAR, None, false).map(|one| one.priority);
        assert_eq!(found.collect::<Vec<_>>(), left);
    }
}

#[test]
fn a_search_without_end_is_cut() {
    let all: Vec<_> = (0..9).map(|n| candidate(&format!("c{n}"), Proximity::OwnQueue, n, 1)).collect();
    assert_eq!(search(&all, 8, |_| false), Choice::Cut);
    assert_eq!(search(&all, 10, |gone| gone.len() == 9), Choice::Cut, "while it gives back");
    assert_eq!(search(&all, 10, |_| false), Choice::None);
}

#[test]
fn nearer_then_lower_then_younger_goes_first() {
    let all = vec![
        candidate("far", Proximity::Elsewhere, 0, 9),
        candidate("near", Proximity::OwnQueue, 5, 1),
        candidate("old", Proximity::Cohort, 1, 1),
        candidate("young", Proximity::Cohort, 1, 2),
    ];
    let order = chosen(&all, |gone| gone.len() == 4).unwrap();
    assert_eq!(order, ["near", "young", "old", "far"]);
}

#[test]
fn what_is_lent_comes_back_first() {
    let all = vec![
        candidate("far", Proximity::Elsewhere, 0, 9),
        candidate("near", Proximity::OwnQueue, 0, 1),
        candidate("cohort", Proximity::Cohort, 0, 1),
        candidate("lent", Proximity::Lent, 1, 1),
        candidate("far and lent", Proximity::LentElsewhere, 1, 2),
    ];
    let order = chosen(&all, |gone| gone.len() == 5).unwrap();
    assert_eq!(order, ["lent", "near", "cohort", "far and lent", "far"]);
}

#[test]
fn a_victim_that_is_not_needed_is_given_back() {
    let all =
        vec![candidate("small", Proximity::OwnQueue, 0, 1), candidate("big", Proximity::OwnQueue, 1, 1)];
    assert_eq!(chosen(&all, |gone| gone.contains(&"big")).unwrap(), ["big"]);
    assert_eq!(chosen(&all, |_| false), None);
    assert_eq!(chosen(&[], |_| true), None);
}
