//! One evaluation: from nodes and pods to limits for the core, and to evictions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_api::job::JobView;
use sluice_core::{
    CapacitySums, DisplacedOutcome, DisplacedSearch, DisplacedWorkload, FlavorNodes, FreeCapacity,
    HotswapDecisions, Name, NodeGroups, NotMoved, SearchSteps, WorkloadKey, capacity_of_flavors,
};

use super::capacity::SeenCapacity;
use super::displaced::LostNodes;
use super::exclusive::{exclusive_in, exclusive_labels, takes_groups};
use super::facts::Facts;
use super::free_capacity::LazyCapacity;
use super::health::Health;
use super::needs::given;
use super::node_groups::groups_by;
use super::planned::Move;
use super::scope::Scope;
use super::snapshot::{SeenPod, SeenWorkload, Snapshot};
use super::state::NodesToAvoid;
use crate::engine::{Alarm, Engine};
use crate::input::Kind;
use crate::world::WorkloadEntry;

/// What to do with a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It moves to other nodes after these victims were evicted.
    Move(Move),
    /// These are its lost nodes, and why nothing is done.
    List { key: WorkloadKey, nodes: Vec<String>, why: Option<NotMoved> },
}

/// The result of one evaluation of the nodes.
#[derive(Debug, Default)]
pub(super) struct Evaluation {
    /// By flavor: what follows for the limits.
    capacity: BTreeMap<Name, CapacitySums>,
    /// What the core decided about the displaced Workloads.
    decisions: HotswapDecisions,
    actions: Vec<Action>,
    /// What the look has passed over, and the nodes and Workloads that its search has looked at.
    steps: u64,
    /// Whether it asked for what is free on the nodes: a Workload is displaced, or has lost nodes and may fit on those that it has left.
    needs_room: bool,
    /// How many Workloads the look has visited.
    visited: u64,
    /// The labels of nodes by which displaced pods and the core select them; none if no nodes were looked for.
    selected_by: Option<BTreeSet<String>>,
    /// Which nodes new work is steered away from.
    nodes_to_avoid: NodesToAvoid,
    /// The queues whose JobSets take whole groups of nodes.
    users: BTreeSet<(Name, String)>,
    /// When a node's wavering ends.
    wake: Option<Timestamp>,
    degraded: bool,
    /// The Workloads whose every change matters at once.
    concerned: BTreeSet<WorkloadKey>,
    /// The Workloads with pods that leave, or on nodes that are not healthy.
    unsettled: BTreeSet<WorkloadKey>,
    /// The nodes that pods left, of the Workloads that still miss pods.
    left: BTreeMap<WorkloadKey, BTreeSet<Name>>,
    /// The nodes of flavors in scope that are about to go, although they are ready.
    departing: BTreeSet<Name>,
}

impl Engine {
    /// Looks at everything, and does what follows.
    pub(super) fn evaluate_nodes(&mut self) {
        let scope = Scope::of(&self.world, &self.config);
        if scope.flavors.is_empty() && self.hotswap.flavors.is_empty() {
            self.hotswap.nodes_to_avoid = NodesToAvoid::default().into();
            self.hotswap.outdated = None;
            self.hotswap.left.clear();
            self.hotswap.capacity = None;
            self.close_departing(BTreeSet::new());
            return;
        }
        self.forget_stale_asks();
        self.world.watch_less();
        let mut evaluation = self.evaluate(&scope);
        self.world.claims_are_as_seen = true;
        self.work.hotswap_workloads += evaluation.visited;
        self.work.hotswap_rooms += u64::from(evaluation.needs_room);
        self.hotswap.needs_room = evaluation.needs_room;
        self.hotswap.selected_by = evaluation.selected_by.take();
        let all_listed = self.listed.contains(&Kind::Pod) && self.listed.contains(&Kind::Node);
        if !all_listed {
            // Not everything was seen yet: no Workload is admitted to these nodes, and none is evicted.
            evaluation.actions.clear();
        }
        if let Some(at) = evaluation.wake {
            self.wake_at(at, Alarm::Hotswap);
        }
        self.hotswap.degraded = evaluation.degraded;
        self.hotswap.concerned = evaluation.concerned;
        self.hotswap.unsettled = evaluation.unsettled;
        self.hotswap.left = evaluation.left;
        self.close_departing(evaluation.departing);
        if self.hotswap.users != evaluation.users {
            self.hotswap.users.clone_from(&evaluation.users);
            self.index_groups();
        }
        let nodes_to_avoid = NodesToAvoid { users: evaluation.users, ..evaluation.nodes_to_avoid };
        self.hotswap.nodes_to_avoid = nodes_to_avoid.into();
        self.hotswap.outdated = None;
        let before = std::mem::take(&mut self.hotswap.flavors);
        for flavor in before.keys().filter(|flavor| !scope.flavors.contains_key(*flavor)) {
            if self.scheduler.set_capacity(flavor, &[]) {
                self.request_cycle();
            }
        }
        self.set_capacity(evaluation.capacity, all_listed);
        self.hotswap.flavors = scope.flavors;
        let decisions = evaluation.decisions;
        if self.scheduler.set_displaced(&decisions.displaced) {
            self.request_cycle();
        }
        let lists = evaluation.actions.iter().filter_map(|action| match action {
            Action::List { key, nodes, .. } if !nodes.is_empty() => Some(key),
            _ => None,
        });
        let lists: BTreeSet<&WorkloadKey> = lists.chain(&decisions.postponed).collect();
        self.hotswap.reported.retain(|key, _| lists.contains(key));
        let whole = self.hotswap.steps == 0;
        self.hotswap.steps += evaluation.steps;
        self.work.hotswap_steps += evaluation.steps;
        self.hotswap.results.replace(decisions.results, &decisions.postponed);
        self.hotswap.resumes = if decisions.postponed.is_empty() {
            std::mem::take(&mut self.hotswap.again)
        } else {
            // If the Workloads that wait to run take all of a cycle, the searches wait until some of them run.
            decisions.searched || !whole
        };
        self.begin_moves(evaluation.actions, evaluation.steps);
    }

    fn evaluate(&self, scope: &Scope) -> Evaluation {
        let snapshot = Snapshot::of(self, self.now);
        let users = self.users_seen(&snapshot);
        let labels = self.exclusive_labels(scope, &users);
        let groups = self.groups(&labels, &snapshot);
        let announced = &self.config.hotswap.maintenance_time_label;
        let flavors = scope.flavors.keys().cloned();
        let mut evaluation = Evaluation {
            nodes_to_avoid: NodesToAvoid::of(&self.world, &snapshot, flavors, &labels, &groups, announced),
            users,
            steps: snapshot.steps(),
            visited: u64::try_from(snapshot.workloads.len()).unwrap_or(u64::MAX),
            ..Evaluation::default()
        };
        let misses = |key: &WorkloadKey| {
            let workload = snapshot.number(self, key).map(|at| &snapshot.workloads[at]);
            workload.is_some_and(|one| one.holds && !one.leaves && !self.is_complete(one))
        };
        // A pod can come back to a healthy node.
        for (key, nodes) in self.hotswap.left.iter().filter(|(key, _)| misses(key)) {
            let bad = nodes.iter().filter(|node| snapshot.health(node) != Health::Healthy);
            evaluation.left.insert(key.clone(), bad.cloned().collect());
        }
        let unsettles =
            |seen: &SeenPod<'_>| seen.pod.leaving || snapshot.health_at(seen.node) != Health::Healthy;
        let of_it = snapshot.workloads.iter().filter(|one| one.pods.iter().any(unsettles));
        evaluation.unsettled = of_it.map(|one| one.key.clone()).collect();
        let leaving = snapshot.workloads.iter().enumerate().filter(|(_, one)| one.leaves);
        let leaving: Vec<_> = leaving.map(|(at, _)| at).collect();
        let mut room = LazyCapacity::new(self, &snapshot, &groups, &leaving);
        let (displaced, lost) = self.all_displaced(scope, &snapshot, &mut room);
        if !displaced.is_empty() {
            evaluation.degraded = true;
            let leaving = leaving.iter().map(|at| snapshot.workloads[*at].key);
            evaluation.concerned.extend(displaced.iter().map(|one| one.key).chain(leaving).cloned());
        }
        evaluation.needs_room = room.is_made() || !displaced.is_empty();
        if displaced.is_empty() {
            evaluation.steps += room.steps();
        } else {
            self.take_promised(&displaced, scope, &snapshot, room.get());
            let mut choices = displaced.iter().flat_map(|one| &one.choices).flat_map(|way| &way.needs);
            if choices.any(|set| set.assigned.is_some()) {
                self.assign_nodes_of(room.get(), &snapshot, &leaving);
            }
            room.get().keep();
            evaluation.steps += room.steps();
            let steps = SearchSteps {
                limit: self.config.hotswap_steps,
                earlier: self.hotswap.steps,
                taken: evaluation.steps,
            };
            let facts = Facts { engine: self, scope, snapshot: &snapshot };
            let free = (room.into_room(), &*leaving);
            let mut decisions =
                DisplacedSearch::new(&facts, free, steps, &self.hotswap.results).run(&displaced);
            evaluation.steps += decisions.steps;
            for (at, outcome) in std::mem::take(&mut decisions.outcomes) {
                evaluation.actions.push(action(&displaced[at], &lost[at], outcome, &snapshot));
            }
            evaluation.concerned.extend(decisions.gone.iter().map(|at| snapshot.workloads[*at].key.clone()));
            evaluation.decisions = decisions;
        }
        self.list_lost(&displaced, scope, &snapshot, &mut evaluation);
        evaluation.selected_by = snapshot.selected_by();
        if let Some(labels) = &mut evaluation.selected_by {
            // The domains that the core assigns.
            let levels = self.world.topologies.values().flat_map(|topology| &topology.spec.levels);
            labels.extend(levels.map(|level| level.node_label.clone()));
        }
        self.limit(scope, &snapshot, &labels, &groups, &mut evaluation);
        evaluation
    }

    /// The capacity of each flavor, and how its nodes are.
    fn limit(
        &self,
        scope: &Scope,
        snapshot: &Snapshot<'_>,
        labels: &BTreeMap<Name, BTreeSet<String>>,
        groups: &[NodeGroups<'_>],
        evaluation: &mut Evaluation,
    ) {
        // The same is true of pods whose node was deleted.
        let mut pods = snapshot.workloads.iter().flat_map(|one| &one.pods);
        evaluation.degraded |= pods.any(|seen| seen.node.is_none());
        let mut moves = vec![false; snapshot.workloads.len()];
        for one in &evaluation.decisions.displaced {
            if let Some(at) = snapshot.number(self, &one.key) {
                moves[at] = true;
            }
        }
        let (names, flavors) = self.flavor_nodes(scope, snapshot, labels, groups);
        // What runs on the rest of a broken group adds to the limit as long as it runs there.
        let mut taken = flavors.iter().flat_map(|flavor| &flavor.groups).flat_map(|of| &of.all);
        evaluation.degraded |= taken.any(|group| !group.whole);
        let seen = SeenCapacity { snapshot, flavors: &names, moves: &moves };
        let capacities = capacity_of_flavors(&seen, &flavors);
        for ((flavor, nodes), capacity) in names.iter().zip(&flavors).zip(capacities) {
            evaluation.capacity.insert(Name::clone(flavor), capacity.sums);
            let elsewhere = capacity.elsewhere.into_iter().map(|at| snapshot.workloads[at].key.clone());
            evaluation.concerned.extend(elsewhere);
            for seen in nodes.own.iter().map(|node| &snapshot.nodes[*node]) {
                evaluation.degraded |= seen.health != Health::Healthy;
                if let Health::Wavering { until, .. } = seen.health {
                    evaluation.wake = Some(evaluation.wake.map_or(until, |at| at.min(until)));
                }
                if seen.health == Health::Unhealthy && seen.node.ready == Some(true) {
                    evaluation.departing.insert(Name::from(seen.name));
                }
            }
        }
    }

    /// The flavors in scope that exist, with their nodes and with those of these groups that their jobs take as wholes by these labels.
    pub(super) fn flavor_nodes<'s>(
        &self,
        scope: &'s Scope,
        snapshot: &Snapshot<'_>,
        labels: &BTreeMap<Name, BTreeSet<String>>,
        groups: &'s [NodeGroups<'s>],
    ) -> (Vec<&'s Name>, Vec<FlavorNodes<'s>>) {
        let known = scope
            .flavors
            .iter()
            .filter_map(|(flavor, resources)| Some((flavor, resources, self.world.flavors.get(flavor)?)));
        let (mut names, mut flavors) = (Vec::new(), Vec::new());
        for (flavor, resources, object) in known {
            let labels = labels.get(flavor);
            let taken = |of: &&NodeGroups<'_>| labels.is_some_and(|labels| labels.contains(&of.label));
            let groups: Vec<_> = groups.iter().filter(taken).collect();
            let own = snapshot.of_flavor(flavor, &object.spec.node_labels);
            names.push(flavor);
            flavors.push(FlavorNodes { own, resources, groups });
        }
        (names, flavors)
    }

    /// Takes the room of the Workloads whose pods do not exist yet: it is promised to them.
    fn take_promised<'a>(
        &'a self,
        displaced: &[DisplacedWorkload<'a>],
        scope: &Scope,
        snapshot: &Snapshot<'a>,
        room: &mut FreeCapacity<'a>,
    ) {
        let cared_for: BTreeSet<usize> = displaced.iter().map(|one| one.at).collect();
        for (at, one) in snapshot.workloads.iter().enumerate() {
            if !one.holds || one.leaves || !one.pods.is_empty() || cared_for.contains(&at) {
                continue;
            }
            let Some(flavors) = given(one.entry, scope) else { continue };
            room.reserve(&self.needs(one, &flavors, snapshot).sets);
        }
    }

    /// The groups that these labels make.
    pub(super) fn groups<'a>(
        &self,
        labels: &BTreeMap<Name, BTreeSet<String>>,
        snapshot: &Snapshot<'a>,
    ) -> Vec<NodeGroups<'a>> {
        let labels: BTreeSet<&String> = labels.values().flatten().collect();
        labels.into_iter().map(|label| groups_by(label, snapshot, &self.config.hotswap)).collect()
    }

    /// The ClusterQueues with JobSets that run or wait and take whole groups of nodes, and the labels that make those.
    pub(super) fn users_seen(&self, snapshot: &Snapshot<'_>) -> BTreeSet<(Name, String)> {
        let jobsets = snapshot.workloads.iter().filter_map(|one| Some((one.key, one.entry, one.jobset?)));
        let mut users = self.exclusive_users(jobsets);
        users.extend(self.users_to_come());
        users
    }

    /// Of these Workloads, the ClusterQueues with JobSets that take whole groups of nodes, and the labels that make those.
    pub(super) fn exclusive_users<'a>(
        &'a self,
        jobsets: impl Iterator<Item = (&'a WorkloadKey, &'a WorkloadEntry, &'a JobView)>,
    ) -> BTreeSet<(Name, String)> {
        // Many share a queue and a label, most of them consecutive.
        let mut users = BTreeSet::new();
        let mut last = ("", "");
        for (key, entry, view) in jobsets.filter(|(.., view)| takes_groups(view)) {
            if conditions::is_true(&entry.status().conditions, Type::Finished.as_str()) {
                continue;
            }
            let Some(queue) = self.queue_name_for(key, entry) else { continue };
            for label in exclusive_labels(view) {
                if last != (queue, label) {
                    users.insert((Name::from(queue), label.to_owned()));
                    last = (queue, label);
                }
            }
        }
        users
    }

    /// The same of the Workloads that wait.
    fn users_to_come(&self) -> impl Iterator<Item = (Name, String)> {
        self.world.watched.awaited().filter_map(|(queue, label)| {
            let queue = self.world.local_queues.get(queue)?.spec.cluster_queue.as_deref()?;
            Some((Name::from(queue), label.clone()))
        })
    }

    /// The same for one Workload.
    pub(super) fn exclusive_use(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Vec<(Name, String)> {
        let labels = self.world.jobset_of(key, entry).map(exclusive_in).unwrap_or_default();
        let queue = if labels.is_empty() { None } else { self.queue_for(key, entry) };
        let labels = labels.iter();
        queue
            .into_iter()
            .flat_map(|q| labels.clone().map(move |l| (Name::clone(&q), (*l).to_owned())))
            .collect()
    }

    /// By flavor in scope: the labels by which JobSets of its queues take whole groups.
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

    /// Updates the lists of lost nodes of the Workloads that stay.
    fn list_lost(
        &self,
        displaced: &[DisplacedWorkload<'_>],
        scope: &Scope,
        snapshot: &Snapshot<'_>,
        evaluation: &mut Evaluation,
    ) {
        let displaced_at: BTreeSet<usize> = displaced.iter().map(|one| one.at).collect();
        let mut lists = Vec::new();
        for (at, one) in snapshot.workloads.iter().enumerate() {
            let moves = displaced_at.contains(&at) || evaluation.decisions.gone.contains(&at);
            let passed = !one.holds || one.leaves || moves;
            // Topology-aware scheduling maintains the list of Workloads whose nodes it replaces.
            if passed || self.replaces_nodes(one.key) {
                continue;
            }
            let nodes =
                if self.is_managed(one, scope) { self.lost_nodes(one, snapshot) } else { BTreeSet::new() };
            if !nodes.is_empty() || !one.entry.status().unhealthy_nodes.is_empty() {
                evaluation.concerned.insert(one.key.clone());
                let nodes = nodes.into_iter().map(str::to_owned).collect();
                lists.push(Action::List { key: one.key.clone(), nodes, why: None });
            }
        }
        evaluation.degraded |= !lists.is_empty();
        evaluation.actions.extend(lists);
    }

    /// Whether a Workload has a JobSet that is not over, and a queue for which Hotswap acts.
    fn is_managed(&self, workload: &SeenWorkload<'_>, scope: &Scope) -> bool {
        let queue = || self.queue_name_for(workload.key, workload.entry);
        workload.has_jobset() && queue().is_some_and(|queue| scope.queues.contains_key(queue))
    }
}

/// What follows for a displaced Workload that lost these nodes.
fn action(
    one: &DisplacedWorkload<'_>,
    lost: &LostNodes<'_>,
    outcome: DisplacedOutcome,
    snapshot: &Snapshot<'_>,
) -> Action {
    let key = one.key.clone();
    let nodes = lost.iter().map(|node| (*node).to_owned()).collect();
    match outcome {
        DisplacedOutcome::Moves(victims) => {
            let victims = victims.into_iter().map(|at| snapshot.workloads[at].key.clone()).collect();
            Action::Move(Move { key, nodes, victims })
        }
        DisplacedOutcome::Stays(why) => Action::List { key, nodes, why: Some(why) },
    }
}
