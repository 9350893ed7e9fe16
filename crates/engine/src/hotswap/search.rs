//! The search for nodes, and for victims where there are none: for each displaced Workload in turn.
//!
//! A cycle looks at so many nodes and Workloads at most ([`crate::EngineConfig::hotswap_steps`]): those whose turn does not come go
//! on in the cycles that follow, where those before them for whom nothing was found are not searched for again. What is found is the
//! same as if there were no end, but for a search that alone is longer than all that a cycle may do: it finds nothing.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_core::{Name, WorkloadKey};

use super::brake;
use super::decide::{Action, Look, Stranded};
use super::displaced::{Displaced, Stage, leaves};
use super::needs;
use super::quota::Held;
use super::room::{Probe, Room};
use super::scene::{Scene, holds};
use super::scope::Scope;
use super::victims::{Candidate, Choice, Ground, Nearness, choose};
use crate::engine::Engine;
use crate::ingest::workload::effective_priority;

/// A Workload on nodes that may have to go.
struct Holder<'a> {
    key: &'a WorkloadKey,
    priority: i32,
    queue: Name,
    /// The Cohort at the top of its tree.
    root: Option<Name>,
    flavors: BTreeSet<&'a str>,
    nodes: BTreeSet<&'a str>,
    reserved_at: Reverse<Timestamp>,
    uid: Name,
}

/// Where a displaced Workload goes.
struct Found {
    /// Which of its choices.
    choice: usize,
    /// Who goes before.
    victims: Vec<WorkloadKey>,
}

/// What a search came to.
enum Outcome {
    Found(Found),
    Nothing,
    Cut,
}

/// All that the searches of one look share.
pub(super) struct Search<'s, 'a> {
    engine: &'a Engine,
    scope: &'s Scope,
    scene: &'s Scene<'a>,
    /// What is free now; what is found is taken of it.
    room: Room<'a>,
    held: Held,
    leaving: Vec<&'a WorkloadKey>,
    holders: Vec<Holder<'a>>,
    brakes: RefCell<BTreeMap<Name, bool>>,
    /// Who moves or makes way.
    gone: BTreeSet<WorkloadKey>,
    /// Steps that the searches of this cycle may make.
    most: u64,
}

/// The ground of one search for victims.
struct Trial<'r, 'n, 'a> {
    room: &'r mut Room<'a>,
    probe: Probe<'n, 'a>,
    most: u64,
}

impl Ground for Trial<'_, '_, '_> {
    fn release(&mut self, key: &WorkloadKey) {
        self.room.release(key);
        self.probe.changed(self.room, key);
    }

    fn take(&mut self, key: &WorkloadKey) {
        self.room.take(key);
        self.probe.changed(self.room, key);
    }

    fn fits(&mut self) -> bool {
        self.probe.fits(self.room)
    }

    fn goes_on(&self) -> bool {
        self.room.steps() <= self.most
    }
}

impl<'s, 'a> Search<'s, 'a> {
    /// A search with this much room.
    pub fn new(engine: &'a Engine, scope: &'s Scope, scene: &'s Scene<'a>, room: Room<'a>) -> Self {
        let holders = scene.of_workload.keys().filter_map(|key| holder(engine, scene, key)).collect();
        let left = engine.config.hotswap_steps.saturating_sub(engine.hotswap.steps);
        let most = room.steps().saturating_add(left);
        Self {
            engine,
            scope,
            scene,
            room,
            held: engine.held(),
            leaving: engine.leaving_for_good(),
            holders,
            brakes: RefCell::default(),
            gone: BTreeSet::new(),
            most,
        }
    }

    /// Finds nodes for each displaced Workload in turn, and victims where there are none. Gives those that move.
    pub fn moves(mut self, displaced: &[Displaced<'a>], look: &mut Look) -> BTreeSet<WorkloadKey> {
        let began = self.room.steps();
        // The first search of a cycle has its turn in any case.
        let mut fresh = self.engine.hotswap.steps == 0;
        for one in displaced {
            if self.gone.contains(&one.key) {
                continue;
            }
            let nodes: Vec<String> = match &one.stage {
                Stage::Running(nodes) => nodes.iter().cloned().collect(),
                Stage::Evicted => Vec::new(),
            };
            let running = one.stage != Stage::Evicted;
            let list = |why| Action::List { key: one.key.clone(), nodes: nodes.clone(), why: Some(why) };
            if let Some(why) = &one.barred {
                look.actions.push(list(Stranded::Barred(why.clone())));
                continue;
            }
            if running && one.choices.first().is_some_and(|held| self.brake_holds(held)) {
                look.actions.push(list(Stranded::Brake));
                continue;
            }
            let outcome = if look.tried.contains(&one.key) {
                Outcome::Nothing
            } else if !fresh && self.room.steps() > self.most {
                Outcome::Cut
            } else {
                self.search(one, running, &mut fresh)
            };
            let Found { choice, victims } = match outcome {
                Outcome::Found(found) => found,
                Outcome::Nothing | Outcome::Cut => {
                    if matches!(outcome, Outcome::Cut) {
                        look.postponed.insert(one.key.clone());
                    } else {
                        look.tried.insert(one.key.clone());
                    }
                    if !running {
                        // It goes first all the same, and keeps what it could use.
                        let needs =
                            one.choices.first().map(|choice| choice.claim.clone()).unwrap_or_default();
                        look.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
                    } else if matches!(outcome, Outcome::Nothing) {
                        let quota = one.choices.iter().any(|way| self.comes_back(one, way, &[]));
                        look.actions.push(list(if quota { Stranded::NoRoom } else { Stranded::NoQuota }));
                    }
                    continue;
                }
            };
            self.gone.extend(victims.iter().cloned());
            if running {
                self.gone.insert(one.key.clone());
            }
            if running || !victims.is_empty() {
                look.actions.push(Action::Move { key: one.key.clone(), nodes, victims });
            }
            let needs = one.choices[choice].claim.clone();
            look.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
        }
        look.steps = self.room.steps() - began;
        self.gone
    }

    /// Looks for nodes of one, and for victims; takes the room of what it finds.
    fn search(&mut self, one: &Displaced<'a>, running: bool, fresh: &mut bool) -> Outcome {
        let mark = self.room.mark();
        if !leaves(&self.engine.world.workloads[&one.key]) {
            self.room.release(&one.key);
        }
        let outcome = match self.spare(one, running) {
            Some(found) => Outcome::Found(found),
            None => self.with_victims(one),
        };
        let first = std::mem::take(fresh);
        match outcome {
            Outcome::Found(_) => self.room.keep(),
            Outcome::Nothing | Outcome::Cut => self.room.undo(mark),
        }
        // Who had all that a cycle may do would have no more in the next one.
        if first && matches!(outcome, Outcome::Cut) { Outcome::Nothing } else { outcome }
    }

    /// The first flavors on whose nodes a displaced Workload fits as they are. One that runs goes to other flavors than its own only
    /// within nominal quota: else it would wait for quota afterwards.
    fn spare(&mut self, one: &Displaced<'a>, running: bool) -> Option<Found> {
        for (choice, way) in one.choices.iter().enumerate() {
            let within = || self.engine.within_nominal(&one.queue, &one.key, &way.claim, &self.held);
            if running && choice > 0 && !within() {
                continue;
            }
            let mark = self.room.mark();
            if self.room.place(&way.needs, None) && self.comes_back(one, way, &[]) {
                return Some(Found { choice, victims: Vec::new() });
            }
            self.room.undo(mark);
        }
        None
    }

    /// The same once others made way: on the flavors that it holds if it runs, else on the first where that is enough.
    fn with_victims(&mut self, one: &Displaced<'a>) -> Outcome {
        let most = if one.stage == Stage::Evicted { one.choices.len() } else { 1 };
        for (choice, way) in one.choices.iter().enumerate().take(most) {
            if self.brake_holds(way) {
                continue;
            }
            let candidates = self.candidates(one, way);
            self.room.count(self.holders.len());
            let mark = self.room.mark();
            let probe = Probe::of(&mut self.room, &way.needs);
            let mut trial = Trial { room: &mut self.room, probe, most: self.most };
            match choose(candidates, &mut trial) {
                Choice::Victims(victims) => {
                    if self.room.place(&way.needs, None) && self.comes_back(one, way, &victims) {
                        return Outcome::Found(Found { choice, victims });
                    }
                }
                Choice::None => {}
                Choice::Cut => return Outcome::Cut,
            }
            self.room.undo(mark);
        }
        Outcome::Nothing
    }

    /// Whether quota will not be what keeps a displaced Workload out once these made way. One that was evicted has its turn with
    /// quota whenever that is free.
    fn comes_back(&self, one: &Displaced<'_>, way: &needs::Choice<'_>, victims: &[WorkloadKey]) -> bool {
        let engine = self.engine;
        one.stage == Stage::Evicted
            || engine.will_hold(&one.queue, &one.key, &way.claim, victims, &self.leaving)
    }

    /// Whether too many of the nodes look bad that a displaced Workload's flavors have, those included that are gone from under
    /// their pods.
    fn brake_holds(&self, way: &needs::Choice<'_>) -> bool {
        way.flavors.values().any(|flavor| {
            if let Some(known) = self.brakes.borrow().get(flavor) {
                return *known;
            }
            let holds = self.brake_of(flavor);
            self.brakes.borrow_mut().insert(Name::clone(flavor), holds);
            holds
        })
    }

    fn brake_of(&self, flavor: &Name) -> bool {
        let (engine, scene) = (self.engine, self.scene);
        let Some(object) = engine.world.flavors.get(flavor) else { return false };
        let (mut all, mut bad) = (0, 0);
        for (_, seen) in scene.of_flavor(&object.spec.node_labels) {
            all += 1;
            bad += usize::from(seen.health.looks_bad());
        }
        let users = scene.of_workload.iter().filter(|(key, _)| engine.uses(key, flavor));
        let gone: BTreeSet<&str> = users
            .flat_map(|(_, pods)| pods)
            .map(|pod| &*pod.node)
            .filter(|node| !scene.nodes.contains_key(node))
            .collect();
        brake::holds(bad + gone.len(), all + gone.len(), engine.config.hotswap.max_unhealthy_percent)
    }

    /// The Workloads that may have to go for a displaced one.
    fn candidates(&self, one: &Displaced<'_>, way: &needs::Choice<'_>) -> Vec<Candidate> {
        let engine = self.engine;
        let usable = |node: &&str| way.needs.iter().any(|set| set.nodes.contains(*node));
        let beyond = self.scope.queues.get(&one.queue).copied().unwrap_or(false)
            || engine.within_nominal(&one.queue, &one.key, &way.claim, &self.held);
        let own_root = engine.cohorts_above(&one.queue).pop();
        let lower = self.holders.iter().filter(|holder| {
            holder.priority < one.priority
                && *holder.key != one.key
                && !self.gone.contains(holder.key)
                && way.flavors.values().any(|flavor| holder.flavors.contains(&**flavor))
                && holder.nodes.iter().any(usable)
        });
        lower
            .filter_map(|holder| {
                let nearness = if holder.queue == one.queue {
                    Nearness::OwnQueue
                } else if own_root.is_some() && holder.root == own_root {
                    Nearness::Cohort
                } else {
                    Nearness::Elsewhere
                };
                (nearness == Nearness::OwnQueue || beyond).then(|| Candidate {
                    nearness,
                    priority: holder.priority,
                    reserved_at: holder.reserved_at,
                    uid: holder.uid.to_string(),
                    key: holder.key.clone(),
                })
            })
            .collect()
    }
}

/// What matters of a Workload that may have to go.
fn holder<'a>(engine: &'a Engine, scene: &Scene<'a>, key: &'a WorkloadKey) -> Option<Holder<'a>> {
    let entry = engine.world.workloads.get(key).filter(|entry| holds(entry) && !leaves(entry))?;
    let queue = engine.queue_for(key, entry)?;
    let reserved = conditions::true_since(&entry.status().conditions, Type::QuotaReserved.as_str());
    let sets = entry.status().admission.iter().flat_map(|a| &a.pod_set_assignments);
    Some(Holder {
        key,
        priority: effective_priority(&entry.object, &engine.config),
        root: engine.cohorts_above(&queue).pop(),
        queue,
        flavors: sets.flat_map(|set| set.flavors.values()).map(String::as_str).collect(),
        nodes: scene.nodes_of(key),
        reserved_at: Reverse(reserved.unwrap_or(engine.now)),
        uid: entry.uid(),
    })
}
