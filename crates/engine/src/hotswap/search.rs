//! The search for nodes, and for victims if no nodes are free: for each displaced Workload in turn.
//!
//! A cycle looks at a limited number of nodes and Workloads ([`crate::EngineConfig::hotswap_steps`]), and one placement more. Workloads that it does
//! not get to follow in the next cycles, which do not repeat searches without a result. Workloads with a result are given the nodes found for them
//! again until they run, without a search ([`super::found`]). A quarter of the steps is for that, and what a look takes before its searches is
//! limited to half: the rest is left to the first search of a cycle, so that it ends. If a quarter is not enough for the Workloads that wait to run,
//! the searches wait for them.
//!
//! A search that alone takes longer than the rest continues in the next cycles, with more steps if something changes meanwhile ([`super::cut`]).
//! Moves beyond what one cycle evicts are planned for the next cycles ([`super::planned`]). The result is the same as without the limits, except that
//! a search that takes too many cycles is given up.

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_core::{Answers, Candidate, Candidates, Choice, FreeCapacity, Name};

use super::brake;
use super::cut::{CutSearch, Progress};
use super::decide::uses;
use super::decide::{Action, Evaluation};
use super::displaced::{DisplacedWorkload, Stage};
use super::found::FoundCapacity;
use super::needs;
use super::planned::Move;
use super::quota::{QuotaInUse, QuotaToBe};
use super::scope::Scope;
use super::snapshot::Snapshot;
use super::state::{NotFound, NotMoved};
use crate::engine::Engine;
use crate::ingest::time;
use crate::ingest::workload::effective_priority;

/// Where a displaced Workload goes.
struct Found {
    /// Which of its choices.
    choice: usize,
    /// The numbers of the Workloads that are evicted before.
    victims: Vec<usize>,
    /// Where.
    place: FoundCapacity,
}

/// The result of a search.
enum SearchOutcome {
    Found(Found),
    Nothing(NotFound),
    Cut,
}

/// The Workloads that move or make room, by their numbers.
pub(super) struct Gone(Vec<bool>);

impl Gone {
    /// None yet.
    pub fn of(snapshot: &Snapshot<'_>) -> Self {
        Self(vec![false; snapshot.workloads.len()])
    }

    /// Whether this Workload leaves.
    pub fn contains(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|gone| *gone)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, gone)| **gone).map(|(at, _)| at)
    }
}

/// What all searches of one look share.
pub(super) struct Search<'s, 'a> {
    engine: &'a Engine,
    scope: &'s Scope,
    snapshot: &'s Snapshot<'a>,
    /// What is free now; what is found is subtracted.
    room: FreeCapacity<'a>,
    held: OnceCell<QuotaInUse>,
    quota: OnceCell<QuotaToBe<'a>>,
    /// The Workloads that may have to go, once a search needs them.
    candidates: OnceCell<Candidates<'a>>,
    brakes: RefCell<BTreeMap<Name, bool>>,
    gone: Gone,
    /// The steps of the room when the search began.
    began: u64,
    /// The number of steps up to which the searches of this cycle continue.
    most: u64,
    /// The number of steps up to which earlier results are used again.
    most_again: u64,
    /// The highest priority of the displaced Workloads: only Workloads below it are evicted.
    highest: i32,
}

impl<'s, 'a> Search<'s, 'a> {
    /// A search in `room`, whose look took this many steps before, for displaced Workloads of at most this priority.
    pub fn new(
        engine: &'a Engine,
        scope: &'s Scope,
        snapshot: &'s Snapshot<'a>,
        (room, took): (FreeCapacity<'a>, u64),
        highest: i32,
    ) -> Self {
        let (all, had) = (engine.config.hotswap_steps, engine.hotswap.steps);
        let began = room.steps();
        let least = if had == 0 { all / 2 } else { 0 };
        let most = began.saturating_add(all.saturating_sub(had.saturating_add(took)).max(least));
        let most_again = began.saturating_add((all / 4).saturating_sub(had));
        Self {
            engine,
            scope,
            snapshot,
            room,
            held: OnceCell::new(),
            quota: OnceCell::new(),
            candidates: OnceCell::new(),
            brakes: RefCell::default(),
            gone: Gone::of(snapshot),
            began,
            most,
            most_again,
            highest,
        }
    }

    /// Finds nodes for each displaced Workload in turn, with victims if none are free. Returns the Workloads that move or are evicted.
    pub fn moves(mut self, displaced: &[DisplacedWorkload<'a>], evaluation: &mut Evaluation) -> Gone {
        let mut cut = false;
        for one in displaced {
            if self.gone.contains(one.at) {
                continue;
            }
            let running = one.stage != Stage::Evicted;
            if let Some(why) = &one.barred {
                evaluation.actions.push(list(one, NotMoved::Barred(why.clone())));
                continue;
            }
            if running && one.choices.first().is_some_and(|held| self.brake_holds(held)) {
                evaluation.actions.push(list(one, NotMoved::Brake));
                continue;
            }
            let outcome = if let Some(why) = evaluation.tried.get(one.key) {
                SearchOutcome::Nothing(*why)
            } else if cut {
                // It would use the room of an earlier one.
                SearchOutcome::Cut
            } else {
                self.outcome(one, evaluation)
            };
            match outcome {
                SearchOutcome::Found(found) => self.moves_to(one, found, evaluation),
                SearchOutcome::Nothing(why) => self.stays(one, why, evaluation),
                SearchOutcome::Cut => {
                    cut = true;
                    self.waits(one, evaluation);
                }
            }
        }
        evaluation.steps += self.room.steps() - self.began;
        self.gone
    }

    /// The Workload moves to the nodes that were found for it, after the victims are evicted.
    fn moves_to(&mut self, one: &DisplacedWorkload<'a>, found: Found, evaluation: &mut Evaluation) {
        let Found { choice, victims, place } = found;
        let running = one.stage != Stage::Evicted;
        evaluation.found.insert(one.key.clone(), place);
        for victim in &victims {
            self.go(*victim);
        }
        if running {
            self.go(one.at);
        }
        if running || !victims.is_empty() {
            let victims = victims.iter().map(|at| self.snapshot.workloads[*at].key.clone()).collect();
            evaluation.actions.push(Action::Move(Move { key: one.key.clone(), nodes: lost(one), victims }));
        }
        let needs = one.choices[choice].claim.clone();
        evaluation.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
    }

    /// Nothing was found for the Workload.
    fn stays(&mut self, one: &DisplacedWorkload<'a>, why: NotFound, evaluation: &mut Evaluation) {
        evaluation.tried.insert(one.key.clone(), why);
        let placed = self.room.take_failure().map(|failure| failure.message());
        if one.stage == Stage::Evicted {
            // It still has precedence, and what it could use is reserved.
            let needs = one.choices.first().map(|choice| choice.claim.clone()).unwrap_or_default();
            evaluation.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
            return;
        }
        let why = match why {
            _ if !one.choices.iter().any(|way| self.comes_back(one, way, &[])) => NotMoved::NoQuota,
            NotFound::NoRoom => NotMoved::NoRoom(placed),
            NotFound::TooLong => NotMoved::TooLong,
        };
        evaluation.actions.push(list(one, why));
    }

    /// The Workload's turn comes in a later cycle.
    fn waits(&self, one: &DisplacedWorkload<'a>, evaluation: &mut Evaluation) {
        evaluation.postponed.insert(one.key.clone());
        let before = self.before(one);
        evaluation.found.extend(before.map(|found| (one.key.clone(), found.clone())));
        if one.stage == Stage::Evicted {
            // It still has precedence; what was found for it, or what it could use, is reserved.
            let first = || one.choices.first().map(|choice| choice.claim.clone());
            let needs = before.map(|found| found.claim.clone()).or_else(first).unwrap_or_default();
            evaluation.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
        }
    }

    /// The room that the last look found for the Workload, if it waits to run there.
    fn before(&self, one: &DisplacedWorkload<'_>) -> Option<&'a FoundCapacity> {
        self.engine.hotswap.found.get(one.key).filter(|_| one.stage == Stage::Evicted)
    }

    /// Uses the earlier result for the Workload again, or searches.
    fn outcome(&mut self, one: &DisplacedWorkload<'a>, evaluation: &mut Evaluation) -> SearchOutcome {
        let before = self.before(one);
        if self.room.steps() > if before.is_some() { self.most_again } else { self.most } {
            return SearchOutcome::Cut;
        }
        if let Some(place) = before
            && let Some(choice) = place.take_again(one.key, &one.choices, &mut self.room, self.snapshot)
        {
            self.room.keep();
            return SearchOutcome::Found(Found { choice, victims: Vec::new(), place: place.clone() });
        }
        let first = !std::mem::replace(&mut evaluation.searched, true) && self.engine.hotswap.steps == 0;
        let cut = self.engine.hotswap.cut.as_ref().filter(|cut| first && cut.key == *one.key);
        let mut search = cut.cloned().unwrap_or_else(|| CutSearch::of(one.key.clone()));
        search.next_part();
        let most = self.most;
        let steps = self.engine.config.hotswap_steps;
        self.most = most.saturating_add(search.length(steps) - steps);
        let outcome = self.search(one, &mut search.progress);
        self.most = most;
        match outcome {
            // The next cycle would not give it more steps.
            SearchOutcome::Cut if first && search.is_given_up() => SearchOutcome::Nothing(NotFound::TooLong),
            SearchOutcome::Cut => {
                evaluation.cut = Some(search).filter(|_| first);
                SearchOutcome::Cut
            }
            outcome => outcome,
        }
    }

    /// A Workload moves or makes room.
    fn go(&mut self, at: usize) {
        if let Some(candidates) = self.candidates.get_mut() {
            candidates.remove(at);
        }
        self.gone.0[at] = true;
    }

    /// Looks for nodes of the Workload, and for victims; reserves what it finds. It continues where it stopped, and always makes some progress.
    fn search(&mut self, one: &DisplacedWorkload<'a>, progress: &mut Progress) -> SearchOutcome {
        let mark = self.room.mark();
        self.room.take_failure();
        if !self.snapshot.workloads[one.at].leaves {
            self.room.release(one.at);
        }
        let outcome = match self.spare(one, progress) {
            SearchOutcome::Nothing(_) => self.with_victims(one, progress),
            outcome => outcome,
        };
        match outcome {
            SearchOutcome::Found(_) => self.room.keep(),
            SearchOutcome::Nothing(_) | SearchOutcome::Cut => self.room.undo(mark),
        }
        outcome
    }

    /// Whether this part of a search is long enough, if it has looked at anything.
    fn ends(&self, progress: &Progress) -> bool {
        progress.went_on && self.room.steps() > self.most
    }

    /// The first flavors with enough free nodes for a displaced Workload. A running Workload moves to other flavors only within nominal quota:
    /// otherwise it would wait for quota afterwards.
    fn spare(&mut self, one: &DisplacedWorkload<'a>, progress: &mut Progress) -> SearchOutcome {
        for (choice, way) in one.choices.iter().enumerate().skip(progress.spares) {
            if self.ends(progress) {
                return SearchOutcome::Cut;
            }
            progress.spares = choice + 1;
            if one.stage != Stage::Evicted && choice > 0 && !self.within_nominal(one, way) {
                continue;
            }
            progress.went_on = true;
            let mark = self.room.mark();
            if self.room.place(one.key, &way.needs) && self.comes_back(one, way, &[]) {
                let place = FoundCapacity::of(way, &self.room, mark, self.snapshot);
                return SearchOutcome::Found(Found { choice, victims: Vec::new(), place });
            }
            self.room.undo(mark);
        }
        SearchOutcome::Nothing(NotFound::NoRoom)
    }

    /// The same with victims: on the flavors that it holds if it runs, else on the first flavors where that is enough.
    fn with_victims(&mut self, one: &DisplacedWorkload<'a>, progress: &mut Progress) -> SearchOutcome {
        let ways = if one.stage == Stage::Evicted { one.choices.len() } else { 1 };
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
        SearchOutcome::Nothing(NotFound::NoRoom)
    }

    /// The same for one of its choices.
    fn victims_for(
        &mut self,
        one: &DisplacedWorkload<'a>,
        (choice, way): (usize, &needs::Choice<'a>),
        progress: &mut Progress,
    ) -> SearchOutcome {
        let beyond =
            self.scope.queues.get(&one.queue).copied().unwrap_or(false) || self.within_nominal(one, way);
        let root = self.engine.cohorts_above(&one.queue).pop();
        let mark = self.room.mark();
        let usable = |node: usize| way.needs.iter().any(|set| set.nodes.contains(node));
        let snapshot = self.snapshot;
        let on_usable =
            |at: usize| snapshot.workloads[at].pods.iter().any(|seen| seen.node.is_some_and(usable));
        let all = self.candidates.get_or_init(|| {
            let mut all = candidates(self.engine, self.scope, self.snapshot, self.highest);
            for at in self.gone.iter() {
                all.remove(at);
            }
            all
        });
        let lower = all.below(one.priority, &one.queue, root.as_ref(), beyond).map(|candidate| {
            let counts = candidate.at != one.at
                && way.flavors.iter().flatten().any(|flavor| candidate.flavors.contains(&&**flavor))
                && on_usable(candidate.at);
            counts.then_some(candidate.at)
        });
        progress.went_on = true;
        match self.room.victims_for(one.key, &way.needs, lower, self.most, &mut progress.answers) {
            Choice::Victims(victims) => {
                let before = self.room.mark();
                if self.room.place(one.key, &way.needs) && self.comes_back(one, way, &victims) {
                    let place = FoundCapacity::of(way, &self.room, before, self.snapshot);
                    return SearchOutcome::Found(Found { choice, victims, place });
                }
            }
            Choice::None => {}
            Choice::Cut => return SearchOutcome::Cut,
        }
        self.room.undo(mark);
        SearchOutcome::Nothing(NotFound::NoRoom)
    }

    /// Whether quota will not keep a displaced Workload out once these victims are evicted. A Workload that was already evicted gets its quota
    /// whenever that is free.
    fn comes_back(&self, one: &DisplacedWorkload<'_>, way: &needs::Choice<'_>, victims: &[usize]) -> bool {
        if one.stage == Stage::Evicted {
            return true;
        }
        let workloads = &self.snapshot.workloads;
        let quota = self.quota.get_or_init(|| self.engine.quota_to_be(workloads));
        let victims = victims.iter().map(|at| workloads[*at].key);
        self.engine.will_hold(&one.queue, one.key, &way.claim, victims, quota)
    }

    /// Whether too many of the nodes look bad that a displaced Workload's flavors have, those included that are gone from under
    /// their pods.
    fn brake_holds(&self, way: &needs::Choice<'_>) -> bool {
        way.flavors.iter().flatten().any(|flavor| {
            if let Some(known) = self.brakes.borrow().get(flavor) {
                return *known;
            }
            let holds = self.brake_of(flavor);
            self.brakes.borrow_mut().insert(Name::clone(flavor), holds);
            holds
        })
    }

    fn brake_of(&self, flavor: &Name) -> bool {
        let (engine, snapshot) = (self.engine, self.snapshot);
        let Some(object) = engine.world.flavors.get(flavor) else { return false };
        let (mut all, mut bad) = (0, 0);
        for node in snapshot.of_flavor(flavor, &object.spec.node_labels).iter() {
            all += 1;
            bad += usize::from(snapshot.nodes[*node].health.looks_bad());
        }
        let left = snapshot.workloads.iter().filter_map(|one| {
            let mut left = one.pods.iter().filter(|seen| seen.node.is_none()).peekable();
            left.peek()?;
            uses(one.entry, flavor).then_some(left)
        });
        let gone: BTreeSet<&str> = left.flatten().map(|seen| &*seen.pod.node).collect();
        brake::holds(bad + gone.len(), all + gone.len(), engine.config.hotswap.max_unhealthy_percent)
    }

    fn within_nominal(&self, one: &DisplacedWorkload<'_>, way: &needs::Choice<'_>) -> bool {
        let held = self.held.get_or_init(|| self.engine.quota_in_use());
        self.engine.within_nominal(&one.queue, one.key, &way.claim, held)
    }
}

/// The lost nodes of the Workload; none if it was evicted already.
fn lost(one: &DisplacedWorkload<'_>) -> Vec<String> {
    match &one.stage {
        Stage::Running(nodes) => nodes.iter().map(|node| (*node).to_owned()).collect(),
        Stage::Evicted => Vec::new(),
    }
}

/// The Workload stays where it is.
fn list(one: &DisplacedWorkload<'_>, why: NotMoved) -> Action {
    Action::List { key: one.key.clone(), nodes: lost(one), why: Some(why) }
}

/// The Workloads that may have to go: those on nodes of the flavors in scope whose priority is below `highest`.
fn candidates<'a>(
    engine: &'a Engine,
    scope: &Scope,
    snapshot: &Snapshot<'a>,
    highest: i32,
) -> Candidates<'a> {
    let mut roots = BTreeMap::new();
    let lower = |at| candidate(engine, scope, snapshot, at, highest, &mut roots);
    let all = (0..snapshot.workloads.len()).filter_map(lower).collect();
    // What a queue borrows is the usage of the Workloads that would be preempted first, without those that leave anyway.
    let mut usage = engine.scheduler.snapshot();
    for one in snapshot.workloads.iter().filter(|one| one.leaves) {
        usage.release(&engine.scheduler, one.key);
    }
    Candidates::new(all, |one| {
        let counts = |flavor: &str| scope.flavors.contains_key(flavor);
        let borrows = usage.borrows(&engine.scheduler, one.key, counts);
        if borrows {
            usage.release(&engine.scheduler, one.key);
        }
        borrows
    })
}

/// The data of a possible victim. `roots` has the ClusterQueues that were seen, with the Cohorts at the top of their trees.
fn candidate<'a>(
    engine: &'a Engine,
    scope: &Scope,
    snapshot: &Snapshot<'a>,
    at: usize,
    highest: i32,
    roots: &mut BTreeMap<Name, Option<Name>>,
) -> Option<Candidate<'a>> {
    let workload = &snapshot.workloads[at];
    if workload.pods.is_empty() || workload.leaves {
        return None;
    }
    let (key, entry) = (workload.key, workload.entry);
    let priority = effective_priority(&entry.object, &engine.config);
    if priority >= highest {
        return None;
    }
    let sets = entry.status().admission.iter().flat_map(|a| &a.pod_set_assignments);
    let flavors: Vec<&str> = sets.flat_map(|set| set.flavors.values()).map(String::as_str).collect();
    if !flavors.iter().any(|flavor| scope.flavors.contains_key(*flavor)) {
        return None;
    }
    let queue = engine.queue_name_for(key, entry)?;
    if !roots.contains_key(queue) {
        roots.insert(Name::from(queue), engine.cohorts_above(queue).pop());
    }
    let (queue, root) = roots.get_key_value(queue)?;
    let reserved = conditions::true_since(&entry.status().conditions, Type::QuotaReserved.as_str());
    Some(Candidate {
        at,
        key,
        priority,
        root: root.clone(),
        queue: Name::clone(queue),
        flavors,
        reserved_at: Reverse(time(reserved.unwrap_or(engine.now))),
        uid: entry.object.metadata.uid.as_deref().unwrap_or_default(),
    })
}
