//! One look: from nodes and pods to limits for the core, and to evictions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_core::{Amount, Name, WorkloadKey};

use super::brake;
use super::capacity::{self, Groups};
use super::displaced::{Displaced, Stage, leaves};
use super::health::Health;
use super::needs::{Choice, given};
use super::outlook::Outlook;
use super::room::Room;
use super::scene::{Scene, holds};
use super::scope::Scope;
use super::victims::{Candidate, Nearness, choose};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::effective_priority;
use crate::input::Kind;
use crate::world::WorkloadEntry;

/// Why a displaced Workload stays where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stranded {
    /// Too many nodes look bad.
    Brake,
    /// No healthy nodes are free for it, nor would be without others.
    NoRoom,
    /// Its queue would not have the quota for it again.
    NoQuota,
    /// Its queue would not take it back, and why.
    Barred(String),
}

/// What is to be done about a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It goes elsewhere, after these went.
    Move { key: WorkloadKey, nodes: Vec<String>, victims: Vec<WorkloadKey> },
    /// These are its lost nodes, and why nothing is done.
    List { key: WorkloadKey, nodes: Vec<String>, why: Option<Stranded> },
}

/// What one look came to.
#[derive(Debug, Default)]
struct Look {
    /// By flavor: the limits.
    capacity: BTreeMap<Name, Vec<(Name, Amount)>>,
    /// Whose room is kept, in turn.
    displaced: Vec<sluice_core::Displaced>,
    actions: Vec<Action>,
    /// Which nodes new work is steered away from.
    outlook: Outlook,
    /// Whose JobSets take whole groups of nodes.
    users: BTreeSet<(Name, String)>,
    /// When a node's wavering ends.
    wake: Option<Timestamp>,
    uneasy: bool,
    /// Whose every change matters at once.
    concerned: BTreeSet<WorkloadKey>,
    /// The nodes that pods left, of those who still miss some.
    left: BTreeMap<WorkloadKey, BTreeSet<Name>>,
}

/// Where a displaced Workload goes.
struct Found<'a> {
    /// Which of its choices.
    choice: usize,
    /// Who goes before.
    victims: Vec<WorkloadKey>,
    /// What is free then.
    after: Room<'a>,
}

impl Engine {
    /// Looks at everything, and does what follows.
    pub(super) fn look_at_nodes(&mut self) {
        let scope = Scope::of(&self.world, &self.config);
        if scope.flavors.is_empty() && self.hotswap.flavors.is_empty() {
            self.hotswap.outlook = Outlook::default();
            self.hotswap.left.clear();
            return;
        }
        let mut look = self.look(&scope);
        if !self.listed.contains(&Kind::Pod) || !self.listed.contains(&Kind::Node) {
            // Not everything was seen: nobody comes, and nobody goes.
            look.actions.clear();
            for (_, limit) in look.capacity.values_mut().flatten() {
                *limit = Amount::ZERO;
            }
        }
        if let Some(at) = look.wake {
            self.wake_at(at, Alarm::Hotswap);
        }
        self.hotswap.uneasy = look.uneasy;
        self.hotswap.concerned = look.concerned;
        self.hotswap.left = look.left;
        self.hotswap.outlook = look.outlook;
        self.hotswap.users = look.users;
        let before = std::mem::take(&mut self.hotswap.flavors);
        for flavor in before.iter().filter(|flavor| !scope.flavors.contains_key(*flavor)) {
            if self.scheduler.set_capacity(flavor, &[]) {
                self.stir();
            }
        }
        for (flavor, limits) in &look.capacity {
            if self.scheduler.set_capacity(flavor, limits) {
                self.stir();
            }
        }
        self.hotswap.flavors = scope.flavors.into_keys().collect();
        if self.scheduler.set_displaced(&look.displaced) {
            self.stir();
        }
        let lists = look.actions.iter().filter_map(|action| match action {
            Action::List { key, nodes, .. } if !nodes.is_empty() => Some(key),
            _ => None,
        });
        let lists: BTreeSet<&WorkloadKey> = lists.collect();
        self.hotswap.told.retain(|key, _| lists.contains(key));
        for action in look.actions {
            self.act(action);
        }
    }

    fn look(&self, scope: &Scope) -> Look {
        let scene = Scene::of(self, self.now);
        let users = self.exclusive_users();
        let labels = self.exclusive_labels(scope, &users);
        let groups = self.groups(&labels, &scene);
        let announced = &self.config.hotswap.maintenance_time_label;
        let flavors = scope.flavors.keys().cloned();
        let mut look = Look {
            outlook: Outlook::of(&self.world, &scene, flavors, &labels, &groups, announced),
            users,
            ..Look::default()
        };
        let exclusive = |key: &WorkloadKey| {
            self.world.workloads.get(key).map(|entry| self.exclusive_of(entry)).unwrap_or_default()
        };
        let misses = |key: &WorkloadKey| {
            let entry = self.world.workloads.get(key);
            entry.is_some_and(|e| holds(e) && !leaves(e) && !self.is_complete(key, e, &scene))
        };
        // To a healthy node a pod can come back.
        for (key, nodes) in self.hotswap.left.iter().filter(|(key, _)| misses(key)) {
            let bad = nodes.iter().filter(|node| scene.health(node) != Health::Healthy);
            look.left.insert(key.clone(), bad.cloned().collect());
        }
        let mut room = Room::of(&scene, &groups, exclusive);
        let leaving = self.world.workloads.iter().filter(|(_, entry)| leaves(entry)).map(|(key, _)| key);
        let leaving: Vec<_> = leaving.collect();
        for key in &leaving {
            room.release(key);
        }
        let displaced = self.all_displaced(scope, &scene, &room);
        if !displaced.is_empty() {
            look.uneasy = true;
            look.concerned.extend(displaced.iter().map(|one| &one.key).chain(leaving).cloned());
        }
        self.take_promised(&displaced, scope, &scene, &mut room);
        let moved = self.moves(&displaced, scope, &scene, room, &mut look);
        look.concerned.extend(moved.iter().cloned());
        self.list_lost(&displaced, &moved, scope, &scene, &mut look);
        self.limit(scope, &scene, &labels, &groups, &mut look);
        look
    }

    /// The capacity of each flavor, and how its nodes are.
    fn limit(
        &self,
        scope: &Scope,
        scene: &Scene<'_>,
        labels: &BTreeMap<Name, BTreeSet<String>>,
        groups: &BTreeMap<String, Groups<'_>>,
        look: &mut Look,
    ) {
        // The same holds of nodes that are gone from under it.
        let mut pods = scene.of_workload.values().flatten();
        look.uneasy |= pods.any(|pod| !scene.nodes.contains_key(&*pod.node));
        let moves: BTreeSet<&WorkloadKey> = look.displaced.iter().map(|one| &one.key).collect();
        for (flavor, resources) in &scope.flavors {
            let Some(object) = self.world.flavors.get(flavor) else { continue };
            let own = labels.get(flavor).into_iter().flatten().filter_map(|label| groups.get(label));
            let own: Vec<_> = own.collect();
            // What runs on the rest of a broken group adds to the limit for as long as it runs there.
            look.uneasy |=
                own.iter().any(|groups| groups.nodes.keys().any(|group| !groups.whole.contains(group)));
            let stays = |key: &WorkloadKey| self.uses(key, flavor) && !moves.contains(key);
            let capacity = capacity::of_flavor(scene, &object.spec.node_labels, resources, &own, stays);
            look.capacity.insert(Name::clone(flavor), capacity.limits);
            look.concerned.extend(capacity.elsewhere.into_iter().cloned());
            for (_, seen) in scene.of_flavor(&object.spec.node_labels) {
                look.uneasy |= seen.health != Health::Healthy;
                if let Health::Wavering { until, .. } = seen.health {
                    look.wake = Some(look.wake.map_or(until, |at| at.min(until)));
                }
            }
        }
    }

    /// Takes the room of those whose pods have not come yet: it is promised.
    fn take_promised<'a>(
        &self,
        displaced: &[Displaced<'a>],
        scope: &Scope,
        scene: &Scene<'a>,
        room: &mut Room<'a>,
    ) {
        if displaced.is_empty() {
            return;
        }
        let cared_for: BTreeSet<&WorkloadKey> = displaced.iter().map(|one| &one.key).collect();
        for (key, entry) in &self.world.workloads {
            let here = scene.of_workload.contains_key(key);
            if here || !holds(entry) || leaves(entry) || cared_for.contains(key) {
                continue;
            }
            let Some(admission) = &entry.status().admission else { continue };
            let flavors = given(admission, scope);
            room.place(&self.needs(entry, &flavors, scene), None);
        }
    }

    /// The groups that these labels make.
    pub(super) fn groups<'a>(
        &self,
        labels: &BTreeMap<Name, BTreeSet<String>>,
        scene: &Scene<'a>,
    ) -> BTreeMap<String, Groups<'a>> {
        let labels: BTreeSet<&String> = labels.values().flatten().collect();
        let groups = |label: &String| Groups::by(label, scene, &self.config.hotswap);
        labels.into_iter().map(|label| (label.clone(), groups(label))).collect()
    }

    /// The ClusterQueues with JobSets that take whole groups of nodes, and the labels that make those.
    pub(super) fn exclusive_users(&self) -> BTreeSet<(Name, String)> {
        let all = self.world.workloads.iter();
        let unfinished =
            all.filter(|(_, e)| !conditions::is_true(&e.status().conditions, Type::Finished.as_str()));
        unfinished.flat_map(|(key, entry)| self.exclusive_use(key, entry)).collect()
    }

    /// The same of one Workload.
    pub(super) fn exclusive_use(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Vec<(Name, String)> {
        let labels = self.exclusive_of(entry);
        let queue = if labels.is_empty() { None } else { self.queue_for(key, entry) };
        queue.into_iter().flat_map(|q| labels.iter().map(move |l| (Name::clone(&q), l.clone()))).collect()
    }

    /// By flavor in scope: the labels by which the JobSets of its queues take whole groups.
    pub(super) fn exclusive_labels(
        &self,
        scope: &Scope,
        users: &BTreeSet<(Name, String)>,
    ) -> BTreeMap<Name, BTreeSet<String>> {
        let mut labels: BTreeMap<Name, BTreeSet<String>> = BTreeMap::new();
        for (queue, label) in users {
            let queue = self.world.cluster_queues.get(queue);
            let flavors = queue.into_iter().flat_map(|q| &q.spec.resource_groups).flat_map(|g| &g.flavors);
            for flavor in flavors.filter_map(|f| scope.flavors.get_key_value(f.name.as_str())) {
                labels.entry(Name::clone(flavor.0)).or_default().insert(label.clone());
            }
        }
        labels
    }

    fn exclusive_of(&self, entry: &WorkloadEntry) -> BTreeSet<String> {
        let sets = self.jobset_of(entry).map(|view| &view.pod_sets[..]).unwrap_or_default();
        sets.iter().filter_map(|set| Some(set.exclusive_topology.as_ref()?.key.clone())).collect()
    }

    /// Finds nodes for each displaced Workload in turn, and victims where there are none. Gives those that move.
    fn moves<'a>(
        &self,
        displaced: &[Displaced<'a>],
        scope: &Scope,
        scene: &Scene<'a>,
        mut room: Room<'a>,
        look: &mut Look,
    ) -> BTreeSet<WorkloadKey> {
        let mut gone: BTreeSet<WorkloadKey> = BTreeSet::new();
        for one in displaced {
            if gone.contains(&one.key) {
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
            if running && one.choices.first().is_some_and(|held| self.brake_holds(held, scene)) {
                look.actions.push(list(Stranded::Brake));
                continue;
            }
            let mut free = room.clone();
            if !leaves(&self.world.workloads[&one.key]) {
                free.release(&one.key);
            }
            let found = self.spare(one, &free).or_else(|| self.with_victims(one, scope, scene, &free, &gone));
            let Some(Found { choice, victims, after }) = found else {
                if running {
                    let quota = one.choices.iter().any(|way| self.comes_back(one, way, &[]));
                    look.actions.push(list(if quota { Stranded::NoRoom } else { Stranded::NoQuota }));
                } else {
                    // It goes first all the same, and keeps what it could use.
                    let needs = one.choices.first().map(|choice| choice.claim.clone()).unwrap_or_default();
                    look.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
                }
                continue;
            };
            room = after;
            gone.extend(victims.iter().cloned());
            if running {
                gone.insert(one.key.clone());
            }
            if running || !victims.is_empty() {
                look.actions.push(Action::Move { key: one.key.clone(), nodes, victims });
            }
            let needs = one.choices[choice].claim.clone();
            look.displaced.push(sluice_core::Displaced { key: one.key.clone(), needs });
        }
        gone
    }

    /// The first flavors on whose nodes a displaced Workload fits as they are. One that runs goes to other flavors than its own only
    /// within nominal quota: else it would wait for quota afterwards.
    fn spare<'a>(&self, one: &Displaced<'a>, free: &Room<'a>) -> Option<Found<'a>> {
        let running = one.stage != Stage::Evicted;
        one.choices.iter().enumerate().find_map(|(choice, way)| {
            if running && choice > 0 && !self.within_nominal(&one.queue, &one.key, &way.claim) {
                return None;
            }
            let mut after = free.clone();
            let fits = after.place(&way.needs, None) && self.comes_back(one, way, &[]);
            fits.then_some(Found { choice, victims: Vec::new(), after })
        })
    }

    /// The same once others made way: on the flavors that it holds if it runs, else on the first where that is enough.
    fn with_victims<'a>(
        &self,
        one: &Displaced<'a>,
        scope: &Scope,
        scene: &Scene<'a>,
        free: &Room<'a>,
        gone: &BTreeSet<WorkloadKey>,
    ) -> Option<Found<'a>> {
        let most = if one.stage == Stage::Evicted { one.choices.len() } else { 1 };
        one.choices.iter().enumerate().take(most).find_map(|(choice, way)| {
            if self.brake_holds(way, scene) {
                return None;
            }
            let without = |victims: &[WorkloadKey]| {
                let mut trial = free.clone();
                for key in victims {
                    trial.release(key);
                }
                trial.place(&way.needs, None).then_some(trial)
            };
            let candidates = self.candidates(one, way, scope, scene, gone);
            let victims = choose(candidates, |victims| without(victims).is_some())?;
            let after = without(&victims).filter(|_| self.comes_back(one, way, &victims))?;
            Some(Found { choice, victims, after })
        })
    }

    /// Whether quota will not be what keeps a displaced Workload out once these made way. One that was evicted has its turn with
    /// quota whenever that is free.
    fn comes_back(&self, one: &Displaced<'_>, way: &Choice<'_>, victims: &[WorkloadKey]) -> bool {
        one.stage == Stage::Evicted || self.will_hold(&one.queue, &one.key, &way.claim, victims)
    }

    /// Whether too many of the nodes look bad that a displaced Workload's flavors have, those included that are gone from under
    /// their pods.
    fn brake_holds(&self, way: &Choice<'_>, scene: &Scene<'_>) -> bool {
        way.flavors.values().any(|flavor| {
            let Some(object) = self.world.flavors.get(flavor) else { return false };
            let of_flavor = scene.of_flavor(&object.spec.node_labels);
            let (mut all, mut bad) = (0, 0);
            for (_, seen) in of_flavor {
                all += 1;
                bad += usize::from(seen.health.looks_bad());
            }
            let users = scene.of_workload.iter().filter(|(key, _)| self.uses(key, flavor));
            let gone: BTreeSet<&str> = users
                .flat_map(|(_, pods)| pods)
                .map(|pod| &*pod.node)
                .filter(|node| !scene.nodes.contains_key(node))
                .collect();
            brake::holds(bad + gone.len(), all + gone.len(), self.config.hotswap.max_unhealthy_percent)
        })
    }

    /// Whether a Workload holds quota of a flavor.
    fn uses(&self, key: &WorkloadKey, flavor: &str) -> bool {
        let admission = self.world.workloads.get(key).and_then(|e| e.status().admission.as_ref());
        let mut sets = admission.into_iter().flat_map(|a| &a.pod_set_assignments);
        sets.any(|set| set.flavors.values().any(|f| f == flavor))
    }

    /// Who may have to go for a displaced Workload.
    fn candidates(
        &self,
        one: &Displaced<'_>,
        way: &Choice<'_>,
        scope: &Scope,
        scene: &Scene<'_>,
        gone: &BTreeSet<WorkloadKey>,
    ) -> Vec<Candidate> {
        let usable: BTreeSet<&str> = way.needs.iter().flat_map(|set| &set.nodes).copied().collect();
        let beyond = scope.queues.get(&one.queue).copied().unwrap_or(false)
            || self.within_nominal(&one.queue, &one.key, &way.claim);
        let own_root = self.cohorts_above(&one.queue).pop();
        let mut candidates = Vec::new();
        for (key, entry) in &self.world.workloads {
            let priority = effective_priority(&entry.object, &self.config);
            let stays = *key == one.key
                || !holds(entry)
                || leaves(entry)
                || gone.contains(key)
                || priority >= one.priority
                || !way.flavors.values().any(|flavor| self.uses(key, flavor))
                || scene.nodes_of(key).is_disjoint(&usable);
            if stays {
                continue;
            }
            let Some(queue) = self.queue_for(key, entry) else { continue };
            let nearness = if queue == one.queue {
                Nearness::OwnQueue
            } else if own_root.is_some() && self.cohorts_above(&queue).pop() == own_root {
                Nearness::Cohort
            } else {
                Nearness::Elsewhere
            };
            if nearness != Nearness::OwnQueue && !beyond {
                continue;
            }
            let reserved = conditions::true_since(&entry.status().conditions, Type::QuotaReserved.as_str());
            candidates.push(Candidate {
                nearness,
                priority,
                reserved_at: Reverse(reserved.unwrap_or(self.now)),
                uid: entry.uid().to_string(),
                key: key.clone(),
            });
        }
        candidates
    }

    /// Keeps the lists of lost nodes of those that stay where they are.
    fn list_lost(
        &self,
        displaced: &[Displaced<'_>],
        moved: &BTreeSet<WorkloadKey>,
        scope: &Scope,
        scene: &Scene<'_>,
        look: &mut Look,
    ) {
        let stranded: BTreeSet<&WorkloadKey> = displaced.iter().map(|one| &one.key).collect();
        let mut lists = Vec::new();
        for (key, entry) in &self.world.workloads {
            if stranded.contains(key) || moved.contains(key) || !holds(entry) || leaves(entry) {
                continue;
            }
            let managed = self.has_jobset(entry)
                && self.queue_for(key, entry).is_some_and(|queue| scope.queues.contains_key(&queue));
            let nodes = if managed { self.lost_nodes(key, entry, scene) } else { BTreeSet::new() };
            if !nodes.is_empty() || !entry.status().unhealthy_nodes.is_empty() {
                look.concerned.insert(key.clone());
                lists.push(Action::List { key: key.clone(), nodes: nodes.into_iter().collect(), why: None });
            }
        }
        look.uneasy |= !lists.is_empty();
        look.actions.extend(lists);
    }
}
