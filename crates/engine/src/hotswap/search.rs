//! The search for nodes, and for victims where there are none: for each displaced Workload in turn.
//!
//! A cycle looks at so many nodes and Workloads at most ([`crate::EngineConfig::hotswap_steps`]), and one placement more: those whose turn does
//! not come go on in the cycles that follow, where those before them without a result are not searched again. Those with one take the nodes that
//! were found for them again until they run, which is no search ([`super::found`]). A quarter of the steps is for that: the rest is left to the
//! first search of a cycle, so that there is an end. Where so many wait to run that it is not enough, the others wait for them.
//! Moves beyond what one cycle evicts are planned for those that follow ([`super::planned`]).
//! What is found is the same as without the limits, except for a search that alone is longer than that rest: it finds nothing.

use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_core::{Candidate, Candidates, Choice, FreeCapacity, Name};

use super::brake;
use super::decide::uses;
use super::decide::{Action, Evaluation};
use super::displaced::{DisplacedWorkload, Stage};
use super::found::FoundRoom;
use super::needs;
use super::planned::Move;
use super::quota::{QuotaInUse, QuotaToBe};
use super::scope::Scope;
use super::snapshot::Snapshot;
use super::state::NotMoved;
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
    place: FoundRoom,
}

/// The result of a search.
enum SearchOutcome {
    Found(Found),
    Nothing,
    Cut,
}

/// The Workloads that move or make room, by their numbers.
pub(super) struct Gone(Vec<bool>);

impl Gone {
    /// None yet.
    pub fn of(snapshot: &Snapshot<'_>) -> Self {
        Self(vec![false; snapshot.workloads.len()])
    }

    /// Whether this one does.
    pub fn contains(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|gone| *gone)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter(|(_, gone)| **gone).map(|(at, _)| at)
    }
}

/// All that the searches of one look share.
pub(super) struct Search<'s, 'a> {
    engine: &'a Engine,
    scope: &'s Scope,
    snapshot: &'s Snapshot<'a>,
    /// What is free now; what is found is taken of it.
    room: FreeCapacity<'a>,
    held: OnceCell<QuotaInUse>,
    quota: OnceCell<QuotaToBe<'a>>,
    /// The Workloads that may have to go, once a search needs them.
    candidates: OnceCell<Candidates<'a>>,
    brakes: RefCell<BTreeMap<Name, bool>>,
    gone: Gone,
    /// Until so many steps the searches of this cycle go on.
    most: u64,
    /// Until so many, what was found before is taken again.
    most_again: u64,
    /// The highest priority of those that search: only Workloads below it make room.
    highest: i32,
}

impl<'s, 'a> Search<'s, 'a> {
    /// A search with this much room, for displaced Workloads of which none has a higher priority than this.
    pub fn new(
        engine: &'a Engine,
        scope: &'s Scope,
        snapshot: &'s Snapshot<'a>,
        room: FreeCapacity<'a>,
        highest: i32,
    ) -> Self {
        let left = |most: u64| room.steps().saturating_add(most.saturating_sub(engine.hotswap.steps));
        let (most, most_again) = (left(engine.config.hotswap_steps), left(engine.config.hotswap_steps / 4));
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
            most,
            most_again,
            highest,
        }
    }

    /// Finds nodes for each displaced Workload in turn, and victims where there are none. Gives those that move or make room.
    pub fn moves(mut self, displaced: &[DisplacedWorkload<'a>], evaluation: &mut Evaluation) -> Gone {
        let began = self.room.steps();
        let mut cut = false;
        for one in displaced {
            if self.gone.contains(one.at) {
                continue;
            }
            let nodes = || match &one.stage {
                Stage::Running(nodes) => nodes.iter().map(|node| (*node).to_owned()).collect(),
                Stage::Evicted => Vec::new(),
            };
            let running = one.stage != Stage::Evicted;
            let list = |why| Action::List { key: one.key.clone(), nodes: nodes(), why: Some(why) };
            if let Some(why) = &one.barred {
                evaluation.actions.push(list(NotMoved::Barred(why.clone())));
                continue;
            }
            if running && one.choices.first().is_some_and(|held| self.brake_holds(held)) {
                evaluation.actions.push(list(NotMoved::Brake));
                continue;
            }
            let outcome = if evaluation.tried.contains(one.key) {
                SearchOutcome::Nothing
            } else if cut {
                // It would take the room of one before it.
                SearchOutcome::Cut
            } else {
                self.outcome(one, &mut evaluation.searched)
            };
            let Found { choice, victims, place } = match outcome {
                SearchOutcome::Found(found) => found,
                SearchOutcome::Nothing | SearchOutcome::Cut => {
                    if matches!(outcome, SearchOutcome::Cut) {
                        cut = true;
                        evaluation
                            .found
                            .extend(self.before(one).map(|found| (one.key.clone(), found.clone())));
                        evaluation.postponed.insert(one.key.clone());
                    } else {
                        evaluation.tried.insert(one.key.clone());
                    }
                    if !running {
                        // It still goes first, and keeps what it could use.
                        let needs =
                            one.choices.first().map(|choice| choice.claim.clone()).unwrap_or_default();
                        evaluation.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
                    } else if matches!(outcome, SearchOutcome::Nothing) {
                        let quota = one.choices.iter().any(|way| self.comes_back(one, way, &[]));
                        let placed = self.room.take_failure().map(|failure| failure.message());
                        evaluation.actions.push(list(if quota {
                            NotMoved::NoRoom(placed)
                        } else {
                            NotMoved::NoQuota
                        }));
                    }
                    continue;
                }
            };
            evaluation.found.insert(one.key.clone(), place);
            for victim in &victims {
                self.go(*victim);
            }
            if running {
                self.go(one.at);
            }
            if running || !victims.is_empty() {
                let victims = victims.iter().map(|at| self.snapshot.workloads[*at].key.clone()).collect();
                let one = Move { key: one.key.clone(), nodes: nodes(), victims };
                evaluation.actions.push(Action::Move(one));
            }
            let needs = one.choices[choice].claim.clone();
            evaluation.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
        }
        evaluation.steps = self.room.steps() - began;
        self.gone
    }

    /// The room that was found for one at the last look, if it waits to run there.
    fn before(&self, one: &DisplacedWorkload<'_>) -> Option<&'a FoundRoom> {
        self.engine.hotswap.found.get(one.key).filter(|_| one.stage == Stage::Evicted)
    }

    /// Takes the room again that was found for one before, or searches some. `searched` is whether this look has searched any.
    fn outcome(&mut self, one: &DisplacedWorkload<'a>, searched: &mut bool) -> SearchOutcome {
        let before = self.before(one);
        if self.room.steps() > if before.is_some() { self.most_again } else { self.most } {
            return SearchOutcome::Cut;
        }
        if let Some(place) = before
            && let Some(choice) = place.take_again(&one.choices, &mut self.room, self.snapshot)
        {
            self.room.keep();
            return SearchOutcome::Found(Found { choice, victims: Vec::new(), place: place.clone() });
        }
        let first = !std::mem::replace(searched, true) && self.engine.hotswap.steps == 0;
        match self.search(one, one.stage != Stage::Evicted) {
            // It would have no more in the next cycle.
            SearchOutcome::Cut if first => SearchOutcome::Nothing,
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

    /// Looks for nodes of one, and for victims; takes the room of what it finds.
    fn search(&mut self, one: &DisplacedWorkload<'a>, running: bool) -> SearchOutcome {
        let mark = self.room.mark();
        self.room.take_failure();
        if !self.snapshot.workloads[one.at].leaves {
            self.room.release(one.at);
        }
        let outcome = match self.spare(one, running) {
            Some(found) => SearchOutcome::Found(found),
            None => self.with_victims(one),
        };
        match outcome {
            SearchOutcome::Found(_) => self.room.keep(),
            SearchOutcome::Nothing | SearchOutcome::Cut => self.room.undo(mark),
        }
        outcome
    }

    /// The first flavors on whose nodes a displaced Workload fits as they are. One that runs goes to other flavors than its own only
    /// within nominal quota: otherwise it would wait for quota afterwards.
    fn spare(&mut self, one: &DisplacedWorkload<'a>, running: bool) -> Option<Found> {
        for (choice, way) in one.choices.iter().enumerate() {
            if running && choice > 0 && !self.within_nominal(one, way) {
                continue;
            }
            let mark = self.room.mark();
            if self.room.place(one.key, &way.needs) && self.comes_back(one, way, &[]) {
                let place = FoundRoom::of(way, &self.room, mark, self.snapshot);
                return Some(Found { choice, victims: Vec::new(), place });
            }
            self.room.undo(mark);
        }
        None
    }

    /// The same after others made room: on the flavors that it holds if it runs, else on the first where that is enough.
    fn with_victims(&mut self, one: &DisplacedWorkload<'a>) -> SearchOutcome {
        let ways = if one.stage == Stage::Evicted { one.choices.len() } else { 1 };
        for (choice, way) in one.choices.iter().enumerate().take(ways) {
            if self.brake_holds(way) {
                continue;
            }
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
            let chosen = self.room.make_way(one.key, &way.needs, lower, self.most);
            match chosen {
                Choice::Victims(victims) => {
                    let before = self.room.mark();
                    if self.room.place(one.key, &way.needs) && self.comes_back(one, way, &victims) {
                        let place = FoundRoom::of(way, &self.room, before, self.snapshot);
                        return SearchOutcome::Found(Found { choice, victims, place });
                    }
                }
                Choice::None => {}
                Choice::Cut => return SearchOutcome::Cut,
            }
            self.room.undo(mark);
        }
        SearchOutcome::Nothing
    }

    /// Whether quota will not keep a displaced Workload out once these made room. One that was evicted has its turn with
    /// quota whenever that is free.
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
    // What a queue borrows is what those hold of it that would go first, without those that leave anyway.
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

/// What matters of a Workload that may have to go. `roots` has the ClusterQueues that were seen with the Cohorts at the top of their trees.
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
