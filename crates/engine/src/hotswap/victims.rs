//! Which Workloads have to go so that a displaced one finds nodes: lower priority, on nodes that it can use; its own ClusterQueue first,
//! then its cohort, then others; in each the order of docs/reference/06-algorithm.md 6.7, and filled back as there.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_core::{Name, WorkloadKey};

/// A Workload on nodes that may have to go.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    /// The number of the Workload.
    pub at: usize,
    /// Its name.
    pub key: &'a WorkloadKey,
    /// Its effective priority: lower first.
    pub priority: i32,
    /// When it reserved its quota: the most recent first.
    pub reserved_at: Reverse<Timestamp>,
    /// Its UID.
    pub uid: &'a str,
    /// Its ClusterQueue.
    pub queue: Name,
    /// The Cohort at the top of its tree.
    pub root: Option<Name>,
    /// The flavors that it holds.
    pub flavors: Vec<&'a str>,
}

/// All Workloads that may have to go, in their order. It is made once: most searches look at the first few only.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    all: Vec<Candidate<'a>>,
    /// By position: whether it goes already.
    gone: Vec<bool>,
    /// By the number of a Workload: its position.
    positions: BTreeMap<usize, usize>,
    everywhere: Line,
    of_queue: BTreeMap<Name, Line>,
    of_root: BTreeMap<Name, Line>,
}

/// Some of the candidates in their order.
#[derive(Debug, Default)]
struct Line {
    at: Vec<usize>,
    /// All before this one are gone.
    first: usize,
}

impl Line {
    /// Those that may not be gone.
    fn rest(&self) -> &[usize] {
        self.at.get(self.first..).unwrap_or_default()
    }

    fn pass_over(&mut self, gone: &[bool]) {
        self.first += self.rest().iter().take_while(|at| gone[**at]).count();
    }
}

impl<'a> Candidates<'a> {
    /// These.
    pub fn new(mut all: Vec<Candidate<'a>>) -> Self {
        all.sort_by_key(|one| (one.priority, one.reserved_at, one.uid, one.key));
        let (mut of_queue, mut of_root) = (BTreeMap::<_, Line>::new(), BTreeMap::<_, Line>::new());
        for (at, one) in all.iter().enumerate() {
            of_queue.entry(Name::clone(&one.queue)).or_default().at.push(at);
            if let Some(root) = &one.root {
                of_root.entry(Name::clone(root)).or_default().at.push(at);
            }
        }
        Self {
            gone: vec![false; all.len()],
            positions: all.iter().enumerate().map(|(at, one)| (one.at, at)).collect(),
            everywhere: Line { at: (0..all.len()).collect(), first: 0 },
            all,
            of_queue,
            of_root,
        }
    }

    /// One goes, if it is a candidate: it is no candidate any more.
    pub fn leave(&mut self, workload: usize) {
        let Some(&at) = self.positions.get(&workload) else { return };
        self.gone[at] = true;
        let one = &self.all[at];
        self.everywhere.pass_over(&self.gone);
        if let Some(line) = self.of_queue.get_mut(&one.queue) {
            line.pass_over(&self.gone);
        }
        if let Some(line) = one.root.as_ref().and_then(|root| self.of_root.get_mut(root)) {
            line.pass_over(&self.gone);
        }
    }

    /// Those that go for work of this priority in this queue, below this root, in the order in which they do: the same ClusterQueue, then the
    /// same cohort tree, then the others. `beyond` says whether other queues make room as well.
    pub fn below<'s>(
        &'s self,
        priority: i32,
        queue: &'s Name,
        root: Option<&'s Name>,
        beyond: bool,
    ) -> impl Iterator<Item = &'s Candidate<'a>> {
        let lower = move |one: &&Candidate<'a>| one.priority < priority;
        let these = move |line: Option<&'s Line>| {
            let rest = line.map(Line::rest).unwrap_or_default().iter();
            rest.filter(|at| !self.gone[**at]).map(|at| &self.all[*at])
        };
        let root = root.filter(|_| beyond);
        let own = these(self.of_queue.get(queue)).take_while(lower);
        let cohort = these(root.and_then(|root| self.of_root.get(root))).take_while(lower);
        let others = these(Some(&self.everywhere).filter(|_| beyond)).take_while(lower);
        own.chain(cohort.filter(move |one| one.queue != *queue)).chain(
            others.filter(move |one| one.queue != *queue && (root.is_none() || one.root.as_ref() != root)),
        )
    }
}

/// Where candidates go and come back.
pub(crate) trait Ground {
    /// What names a candidate.
    type Key: Copy;
    /// A candidate goes.
    fn release(&mut self, key: Self::Key);
    /// A candidate that went stays after all.
    fn take(&mut self, key: Self::Key);
    /// Whether there is room now.
    fn fits(&mut self) -> bool;
    /// Whether the search may go on.
    fn goes_on(&self) -> bool;
    /// Whether to ask [`Ground::fits`] takes much longer than to let a candidate go.
    fn is_dear(&self) -> bool {
        false
    }
}

/// The result of a search for victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice<K> {
    /// These go; they are gone from the ground.
    Victims(Vec<K>),
    /// All together do not make room.
    None,
    /// The search was cut short.
    Cut,
}

/// The candidates whose going makes room, none of them needless: the first ones that are enough, less those that can stay after all,
/// from the last but one to the first.
///
/// That more room is never worse is relied upon to ask less often: of a ground that is dear to ask, candidates go in numbers that
/// double, and those that can stay do so many at a time. What is chosen was asked for as it is.
pub(crate) fn choose<G: Ground>(
    candidates: impl IntoIterator<Item = G::Key>,
    ground: &mut G,
) -> Choice<G::Key> {
    let found = match enough(candidates, ground) {
        Ok(Some(gone)) => give_back(gone, ground),
        Ok(None) => return Choice::None,
        Err(Cut) => Err(Cut),
    };
    found.map_or(Choice::Cut, Choice::Victims)
}

/// The search may not go on.
struct Cut;

fn go_on(ground: &impl Ground) -> Result<(), Cut> {
    if ground.goes_on() { Ok(()) } else { Err(Cut) }
}

/// The first candidates that are enough; they are gone.
fn enough<G: Ground>(
    candidates: impl IntoIterator<Item = G::Key>,
    ground: &mut G,
) -> Result<Option<Vec<G::Key>>, Cut> {
    let mut candidates = candidates.into_iter();
    let mut gone = Vec::new();
    // So many are too few.
    let mut few;
    let mut more = 1;
    loop {
        few = gone.len();
        for candidate in candidates.by_ref().take(more) {
            go_on(ground)?;
            ground.release(candidate);
            gone.push(candidate);
        }
        if gone.len() == few {
            return Ok(None);
        }
        if ground.fits() {
            break;
        }
        more = if ground.is_dear() { gone.len() } else { 1 };
    }
    // How many of them are enough.
    let mut some = gone.len();
    let mut at = some;
    while some - few > 1 {
        go_on(ground)?;
        let half = few + (some - few) / 2;
        shift(ground, &gone, at, half);
        at = half;
        if ground.fits() {
            some = half;
        } else {
            few = half;
        }
    }
    shift(ground, &gone, at, some);
    gone.truncate(some);
    Ok(Some(gone))
}

/// So many of those that went are gone afterwards, instead of `from`.
fn shift<G: Ground>(ground: &mut G, gone: &[G::Key], from: usize, to: usize) {
    for key in gone.get(to..from).unwrap_or_default().iter().rev() {
        ground.take(*key);
    }
    for key in gone.get(from..to).unwrap_or_default() {
        ground.release(*key);
    }
}

/// Those that have to go; the others are there again. The last one has to in any case.
fn give_back<G: Ground>(gone: Vec<G::Key>, ground: &mut G) -> Result<Vec<G::Key>, Cut> {
    let mut needed = vec![true; gone.len()];
    // What is still to be tried, the last first.
    let mut blocks = Vec::new();
    blocks.push(0..gone.len().saturating_sub(1));
    while let Some(block) = blocks.pop().filter(|block| !block.is_empty()) {
        go_on(ground)?;
        for key in gone[block.clone()].iter().rev() {
            ground.take(*key);
        }
        if ground.fits() {
            needed[block].fill(false);
            continue;
        }
        for key in &gone[block.clone()] {
            ground.release(*key);
        }
        if block.len() > 1 {
            let half = block.start + block.len() / 2;
            blocks.extend([block.start..half, half..block.end]);
        }
    }
    Ok(gone.into_iter().zip(needed).filter_map(|(key, needed)| needed.then_some(key)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whose queue the search is for.
    const QUEUE: &str = "q";
    /// The root of its cohort tree.
    const ROOT: &str = "r";

    /// How near a candidate's queue is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    enum Proximity {
        OwnQueue,
        Cohort,
        Elsewhere,
    }

    type Spec = (WorkloadKey, Proximity, i32, i64);

    fn candidate(name: &str, proximity: Proximity, priority: i32, reserved: i64) -> Spec {
        (WorkloadKey::new("ns", name), proximity, priority, reserved)
    }

    fn candidates<'a>(all: &'a [Spec], root: Option<&str>) -> Candidates<'a> {
        let made = all.iter().enumerate().map(|(at, (key, proximity, priority, reserved))| Candidate {
            at,
            key,
            priority: *priority,
            reserved_at: Reverse(Timestamp::from_second(*reserved).unwrap()),
            uid: &key.name,
            queue: Name::from(if *proximity == Proximity::OwnQueue { QUEUE } else { "other" }),
            root: if *proximity == Proximity::Elsewhere { None } else { root.map(Name::from) },
            flavors: Vec::new(),
        });
        Candidates::new(made.collect())
    }

    /// A ground of names, on which a condition says what fits; so many questions are answered.
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
        let (queue, root) = (Name::from(QUEUE), Name::from(ROOT));
        let keys = made.below(100, &queue, Some(&root), true).map(|one| &*one.key.name);
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
        fn who_goes_is_who_a_naive_search_chooses_and_few_questions_are_asked_of_a_dear_ground(
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
            all in prop::collection::btree_map("[a-f]{1,2}", (0..3_usize, 0..4_i32, 0..3_i64), 0..20),
            priority in 0..5_i32,
            (rooted, beyond) in (any::<bool>(), any::<bool>()),
        ) {
            let near = [Proximity::OwnQueue, Proximity::Cohort, Proximity::Elsewhere];
            let all = all.iter().map(|(name, (p, priority, at))| candidate(name, near[*p], *priority, *at));
            let all: Vec<Spec> = all.collect();
            let mut wanted: Vec<_> = all.iter().filter_map(|(key, proximity, its, at)| {
                // Without a root of its own the queue has no cohort.
                let elsewhere = *proximity != Proximity::OwnQueue && !rooted;
                let proximity = if elsewhere { Proximity::Elsewhere } else { *proximity };
                let goes = *its < priority && (beyond || proximity == Proximity::OwnQueue);
                goes.then_some((proximity, *its, Reverse(*at), key))
            }).collect();
            wanted.sort();
            let made = candidates(&all, rooted.then_some(ROOT));
            let (queue, root) = (Name::from(QUEUE), Name::from(ROOT));
            let found = made.below(priority, &queue, rooted.then_some(&root), beyond);
            let found: Vec<_> = found.map(|one| one.key).collect();
            prop_assert_eq!(found, wanted.into_iter().map(|(_, _, _, key)| key).collect::<Vec<_>>());
        }
    }

    #[test]
    fn who_goes_is_no_candidate_any_more_wherever_it_stood() {
        let all: Vec<_> = (0..6).map(|n| candidate(&format!("c{n}"), Proximity::Cohort, n, 1)).collect();
        let mut made = candidates(&all, Some(ROOT));
        let (queue, root) = (Name::from(QUEUE), Name::from(ROOT));
        for (leaves, left) in
            [(2, vec![0, 1, 3, 4, 5]), (0, vec![1, 3, 4, 5]), (1, vec![3, 4, 5]), (9, vec![3, 4, 5])]
        {
            made.leave(leaves);
            let found = made.below(100, &queue, Some(&root), true).map(|one| one.priority);
            assert_eq!(found.collect::<Vec<_>>(), left);
            let other = Name::from("other");
            let found = made.below(100, &other, None, false).map(|one| one.priority);
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
    fn who_is_not_needed_is_given_back() {
        let all =
            vec![candidate("small", Proximity::OwnQueue, 0, 1), candidate("big", Proximity::OwnQueue, 1, 1)];
        assert_eq!(chosen(&all, |gone| gone.contains(&"big")).unwrap(), ["big"]);
        assert_eq!(chosen(&all, |_| false), None);
        assert_eq!(chosen(&[], |_| true), None);
    }
}
