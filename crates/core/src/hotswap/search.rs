//! The search for nodes, and for victims if no nodes are free: for each displaced workload in turn.
//!
//! A cycle looks at a limited number of nodes and workloads ([`SearchSteps`]), and one placement more. Workloads that it does not get to follow in the
//! next cycles, which do not repeat searches without a result. Workloads with a result are given the nodes found for them again until they run,
//! without a search ([`super::found`]). A quarter of the steps is for that, and what the caller takes before the search is limited to half: the rest is
//! left to the first search of a cycle, so that it ends. If a quarter is not enough for the workloads that wait to run, the searches wait for them.
//!
//! A search that alone takes longer than the rest continues in the next cycles, with more steps if something changes meanwhile ([`super::cut`]). The
//! result is the same as without the limits, except that a search that takes too many cycles is given up.

use std::collections::BTreeMap;

use super::cut::{CutSearch, Progress};
use super::decisions::{DisplacedOutcome, HotswapDecisions, NotMoved};
use super::displaced::{DisplacedWorkload, FlavorChoice};
use super::facts::HotswapFacts;
use super::found::FoundCapacity;
use super::quota::QuotaTrials;
use super::results::{NotFound, SearchResults};
use crate::Name;
use crate::capacity::Displaced;
use crate::capacity_search::{Answers, Candidates, Choice, FreeCapacity};
use crate::scheduler::Scheduler;

/// How many nodes and workloads the searches of one cycle look at, as [`FreeCapacity::steps`] counts them.
#[derive(Debug, Clone, Copy)]
pub struct SearchSteps {
    /// The limit for one cycle.
    pub limit: u64,
    /// How many earlier searches in this cycle have made.
    pub earlier: u64,
    /// How many the preparation of this search has taken.
    pub taken: u64,
}

/// Where a displaced workload goes.
struct Found {
    /// Which of its choices.
    choice: usize,
    /// The numbers of the workloads that are evicted before.
    victims: Vec<usize>,
    /// Where.
    place: FoundCapacity,
}

/// The result of the search for one workload.
enum SearchOutcome {
    Found(Found),
    Nothing(NotFound),
    Cut,
}

/// What the searches for all displaced workloads share.
#[derive(Debug)]
pub struct DisplacedSearch<'s, 'a, F> {
    scheduler: &'a Scheduler,
    facts: &'s F,
    /// What is free now; what is found is subtracted.
    free: FreeCapacity<'a>,
    /// The numbers of the workloads that leave their nodes already.
    leaving: &'s [usize],
    /// The limit of steps for one cycle.
    limit: u64,
    /// Whether no search was made in this cycle before.
    is_first: bool,
    /// The results of earlier searches.
    earlier: &'s SearchResults,
    quota: QuotaTrials<'a>,
    /// The workloads that may have to go, once a search needs them.
    candidates: Option<Candidates<'a>>,
    /// By flavor: whether the brake holds, once that was asked.
    brakes: BTreeMap<Name, bool>,
    /// The steps of the free capacity when the search began.
    began: u64,
    /// The number of steps up to which the searches of this cycle continue.
    most: u64,
    /// The number of steps up to which earlier results are used again.
    most_again: u64,
    /// The highest priority of the displaced workloads: only workloads below it are evicted.
    highest: i32,
    decisions: HotswapDecisions,
}

impl<'s, 'a, F: HotswapFacts<'a>> DisplacedSearch<'s, 'a, F> {
    /// A search in what is `free` without the workloads that leave already, which are those with the numbers in `leaving`, in order.
    pub fn new(
        facts: &'s F,
        (free, leaving): (FreeCapacity<'a>, &'s [usize]),
        steps: SearchSteps,
        earlier: &'s SearchResults,
    ) -> Self {
        let SearchSteps { limit, earlier: before, taken } = steps;
        let (scheduler, began) = (free.scheduler(), free.steps());
        let least = if before == 0 { limit / 2 } else { 0 };
        let most = began.saturating_add(limit.saturating_sub(before.saturating_add(taken)).max(least));
        let most_again = began.saturating_add((limit / 4).saturating_sub(before));
        Self {
            scheduler,
            facts,
            free,
            leaving,
            limit,
            is_first: before == 0,
            earlier,
            quota: QuotaTrials::new(scheduler),
            candidates: None,
            brakes: BTreeMap::new(),
            began,
            most,
            most_again,
            highest: i32::MIN,
            decisions: HotswapDecisions::default(),
        }
    }

    /// Finds nodes for each displaced workload in turn, with victims if none are free.
    pub fn run(mut self, displaced: &[DisplacedWorkload<'a>]) -> HotswapDecisions {
        self.highest = displaced.iter().map(|one| one.priority).max().unwrap_or(i32::MIN);
        self.decisions.results.tried.clone_from(&self.earlier.tried);
        let mut cut = false;
        for (position, one) in displaced.iter().enumerate() {
            if self.decisions.gone.contains(&one.at) {
                continue;
            }
            if let Some(why) = &one.barred {
                self.decide(position, DisplacedOutcome::Stays(NotMoved::Barred(why.clone())));
                continue;
            }
            if !one.is_evicted && one.choices.first().is_some_and(|held| self.brake_holds(held)) {
                self.decide(position, DisplacedOutcome::Stays(NotMoved::Brake));
                continue;
            }
            let outcome = if let Some(why) = self.decisions.results.tried.get(one.key) {
                SearchOutcome::Nothing(*why)
            } else if cut {
                // It would use the free capacity of an earlier one.
                SearchOutcome::Cut
            } else {
                self.outcome(one)
            };
            match outcome {
                SearchOutcome::Found(found) => self.moves_to(position, one, found),
                SearchOutcome::Nothing(why) => self.stays(position, one, why),
                SearchOutcome::Cut => {
                    cut = true;
                    self.waits(one);
                }
            }
        }
        self.decisions.steps = self.free.steps() - self.began;
        self.decisions
    }

    fn decide(&mut self, position: usize, outcome: DisplacedOutcome) {
        self.decisions.outcomes.push((position, outcome));
    }

    /// The workload moves to the nodes that were found for it, after the victims are evicted.
    fn moves_to(&mut self, position: usize, one: &DisplacedWorkload<'a>, found: Found) {
        let Found { choice, victims, place } = found;
        self.decisions.results.found.insert(one.key.clone(), place);
        for victim in &victims {
            self.go(*victim);
        }
        if !one.is_evicted {
            self.go(one.at);
        }
        if !one.is_evicted || !victims.is_empty() {
            self.decide(position, DisplacedOutcome::Moves(victims));
        }
        let needs = one.choices[choice].claim.clone();
        self.decisions.displaced.push(Displaced { key: one.key.clone(), needs });
    }

    /// Nothing was found for the workload.
    fn stays(&mut self, position: usize, one: &DisplacedWorkload<'a>, why: NotFound) {
        self.decisions.results.tried.insert(one.key.clone(), why);
        let placed = self.free.take_failure().map(|failure| failure.message());
        if one.is_evicted {
            // It still has precedence, and what it could use is reserved.
            let needs = one.choices.first().map(|choice| choice.claim.clone()).unwrap_or_default();
            self.decisions.displaced.push(Displaced { key: one.key.clone(), needs });
            return;
        }
        let has_quota = one.choices.iter().any(|choice| self.comes_back(one, choice, &[]));
        let why = match why {
            _ if !has_quota => NotMoved::NoQuota,
            NotFound::NoNodes => NotMoved::NoNodes(placed),
            NotFound::TooLong => NotMoved::TooLong,
        };
        self.decide(position, DisplacedOutcome::Stays(why));
    }

    /// The workload's turn comes in a later cycle.
    fn waits(&mut self, one: &DisplacedWorkload<'a>) {
        let before = self.before(one);
        self.decisions.postponed.insert(one.key.clone());
        self.decisions.results.found.extend(before.map(|found| (one.key.clone(), found.clone())));
        if one.is_evicted {
            // It still has precedence; what was found for it, or what it could use, is reserved.
            let first = || one.choices.first().map(|choice| choice.claim.clone());
            let needs = before.map(|found| found.claim.clone()).or_else(first).unwrap_or_default();
            self.decisions.displaced.push(Displaced { key: one.key.clone(), needs });
        }
    }

    /// What the last search found for the workload, if it waits to run there.
    fn before(&self, one: &DisplacedWorkload<'_>) -> Option<&'s FoundCapacity> {
        let earlier = self.earlier;
        earlier.found.get(one.key).filter(|_| one.is_evicted)
    }

    /// Uses the earlier result for the workload again, or searches.
    fn outcome(&mut self, one: &DisplacedWorkload<'a>) -> SearchOutcome {
        let before = self.before(one);
        if self.free.steps() > if before.is_some() { self.most_again } else { self.most } {
            return SearchOutcome::Cut;
        }
        if let Some(place) = before
            && let Some(choice) = place.take_again(one, &mut self.free)
        {
            self.free.keep();
            return SearchOutcome::Found(Found { choice, victims: Vec::new(), place: place.clone() });
        }
        let first = !std::mem::replace(&mut self.decisions.searched, true) && self.is_first;
        let cut = self.earlier.cut.as_ref().filter(|cut| first && cut.key == *one.key);
        let mut search = cut.cloned().unwrap_or_else(|| CutSearch::of(one.key.clone()));
        search.next_part();
        let most = self.most;
        self.most = most.saturating_add(search.length(self.limit) - self.limit);
        let outcome = self.search(one, &mut search.progress);
        self.most = most;
        match outcome {
            // The next cycle would not give it more steps.
            SearchOutcome::Cut if first && search.is_given_up() => SearchOutcome::Nothing(NotFound::TooLong),
            SearchOutcome::Cut => {
                self.decisions.results.cut = Some(search).filter(|_| first);
                SearchOutcome::Cut
            }
            outcome => outcome,
        }
    }

    /// A workload moves, or is preempted.
    fn go(&mut self, at: usize) {
        if let Some(candidates) = &mut self.candidates {
            candidates.remove(at);
        }
        self.decisions.gone.insert(at);
    }

    /// Looks for nodes of the workload, and for victims; reserves what it finds. It continues where it stopped, and always makes some progress.
    fn search(&mut self, one: &DisplacedWorkload<'a>, progress: &mut Progress) -> SearchOutcome {
        let mark = self.free.mark();
        self.free.take_failure();
        if self.leaving.binary_search(&one.at).is_err() {
            self.free.release(one.at);
        }
        let outcome = match self.spare(one, progress) {
            SearchOutcome::Nothing(_) => self.with_victims(one, progress),
            outcome => outcome,
        };
        match outcome {
            SearchOutcome::Found(_) => self.free.keep(),
            SearchOutcome::Nothing(_) | SearchOutcome::Cut => self.free.undo(mark),
        }
        outcome
    }

    /// Whether this part of a search is long enough, if it has looked at anything.
    fn ends(&self, progress: &Progress) -> bool {
        progress.went_on && self.free.steps() > self.most
    }

    /// The first flavors with enough free nodes for a displaced workload. A running workload moves to other flavors only within nominal quota:
    /// otherwise it would wait for quota afterwards.
    fn spare(&mut self, one: &DisplacedWorkload<'a>, progress: &mut Progress) -> SearchOutcome {
        for (choice, way) in one.choices.iter().enumerate().skip(progress.spares) {
            if self.ends(progress) {
                return SearchOutcome::Cut;
            }
            progress.spares = choice + 1;
            if !one.is_evicted && choice > 0 && !self.within_nominal(one, way) {
                continue;
            }
            progress.went_on = true;
            let mark = self.free.mark();
            if self.free.place(one.key, &way.needs) && self.comes_back(one, way, &[]) {
                let place = FoundCapacity::of(way, &self.free, mark);
                return SearchOutcome::Found(Found { choice, victims: Vec::new(), place });
            }
            self.free.undo(mark);
        }
        SearchOutcome::Nothing(NotFound::NoNodes)
    }

    /// The same with victims: on the flavors that it holds if it runs, else on the first flavors where that is enough.
    fn with_victims(&mut self, one: &DisplacedWorkload<'a>, progress: &mut Progress) -> SearchOutcome {
        let ways = if one.is_evicted { one.choices.len() } else { 1 };
        for (choice, way) in one.choices.iter().enumerate().take(ways).skip(progress.ways) {
            if self.ends(progress) {
                return SearchOutcome::Cut;
            }
            if !self.brake_holds(way) {
                match self.victims_for(one, (choice, way), progress) {
                    SearchOutcome::Nothing(_) => {}
                    outcome => return outcome,
                }
            }
            progress.ways = choice + 1;
            progress.answers = Answers::default();
        }
        SearchOutcome::Nothing(NotFound::NoNodes)
    }

    /// The same for one of its choices.
    fn victims_for(
        &mut self,
        one: &DisplacedWorkload<'a>,
        (choice, way): (usize, &FlavorChoice<'a>),
        progress: &mut Progress,
    ) -> SearchOutcome {
        let beyond = one.beyond_nominal || self.within_nominal(one, way);
        let root = self.scheduler.top_cohort(&one.queue);
        if self.candidates.is_none() {
            self.candidates = Some(self.all_candidates());
        }
        let facts = self.facts;
        let usable = |node: usize| way.needs.iter().any(|set| set.nodes.contains(node));
        let lower = self.candidates.iter().flat_map(|all| all.below(one.priority, &one.queue, root, beyond));
        let lower = lower.map(|candidate| {
            let counts = candidate.at != one.at
                && way.flavors.iter().flatten().any(|flavor| candidate.flavors.contains(&&**flavor))
                && facts.is_on(candidate.at, usable);
            counts.then_some(candidate.at)
        });
        let mark = self.free.mark();
        progress.went_on = true;
        match self.free.victims_for(one.key, &way.needs, lower, self.most, &mut progress.answers) {
            Choice::Victims(victims) => {
                let before = self.free.mark();
                if self.free.place(one.key, &way.needs) && self.comes_back(one, way, &victims) {
                    let place = FoundCapacity::of(way, &self.free, before);
                    return SearchOutcome::Found(Found { choice, victims, place });
                }
            }
            Choice::None => {}
            Choice::Cut => return SearchOutcome::Cut,
        }
        self.free.undo(mark);
        SearchOutcome::Nothing(NotFound::NoNodes)
    }

    /// The workloads that may have to go, without those that go already.
    fn all_candidates(&self) -> Candidates<'a> {
        let (scheduler, facts) = (self.scheduler, self.facts);
        // What a queue borrows is the usage of the workloads that would be preempted first, without those that leave anyway.
        let mut usage = scheduler.snapshot();
        for at in self.leaving {
            usage.release(scheduler, self.free.workload(*at));
        }
        let top = |queue: &str| scheduler.top_cohort(queue);
        let mut all = Candidates::new(facts.candidates(self.highest), top, |one| {
            let borrows = usage.borrows(scheduler, one.key, |flavor| facts.acts_for(flavor));
            if borrows {
                usage.release(scheduler, one.key);
            }
            borrows
        });
        for at in &self.decisions.gone {
            all.remove(*at);
        }
        all
    }

    /// Whether quota will not keep a displaced workload out once these victims are evicted. A workload that was already evicted gets its quota
    /// whenever that is free.
    fn comes_back(&mut self, one: &DisplacedWorkload<'a>, way: &FlavorChoice<'a>, victims: &[usize]) -> bool {
        if one.is_evicted {
            return true;
        }
        let (free, facts) = (&self.free, self.facts);
        let for_good = self.leaving.iter().filter(|at| facts.leaves_for_good(**at));
        let goes = victims.iter().map(|at| free.workload(*at)).chain([one.key]);
        self.quota.will_hold((&*one.queue, way.claim.as_slice()), goes, for_good.map(|at| free.workload(*at)))
    }

    /// Whether the brake holds for any flavor of a choice.
    fn brake_holds(&mut self, way: &FlavorChoice<'_>) -> bool {
        let (brakes, facts) = (&mut self.brakes, self.facts);
        way.flavors.iter().flatten().any(|flavor| {
            if let Some(known) = brakes.get(flavor) {
                return *known;
            }
            let holds = facts.brake_holds(flavor);
            brakes.insert(Name::clone(flavor), holds);
            holds
        })
    }

    fn within_nominal(&mut self, one: &DisplacedWorkload<'a>, way: &FlavorChoice<'a>) -> bool {
        self.quota.within_nominal(&one.queue, one.key, &way.claim)
    }
}
