//! The scheduler: everything that the core knows, and the doors for flavors, cohorts, queues, namespaces and checks.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use crate::Name;
use crate::capacity::Capacity;
use crate::changed::Marks;
use crate::cluster_queue::{ClusterQueue, compile_groups};
use crate::config::Config;
use crate::fair_sharing::Lendable;
use crate::forest::Forest;
use crate::intern::{LocalId, Names, NodeId, QueueId, ResourceId, WorkloadId};
use crate::local_queue::LocalQueue;
use crate::loop_guard::LoopGuard;
use crate::report::Changed;
use crate::second_pass::SecondPassQueue;
use crate::shape::Shapes;
use crate::snapshot::Stats;
use crate::spec::{CheckSpec, ClusterQueueSpec, CohortSpec, FlavorSpec, LocalQueueSpec, Time};
use crate::usage::Usage;
use crate::workloads::Workloads;

/// The state of the world and the algorithm over it.
#[derive(Debug, Clone)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) cycle: u64,
    pub(crate) names: Names,
    /// By [`crate::intern::FlavorId`].
    pub(crate) flavors: Vec<Option<FlavorSpec>>,
    pub(crate) checks: BTreeMap<Name, CheckSpec>,
    /// Topologies that exist.
    pub(crate) topologies: BTreeSet<Name>,
    pub(crate) namespaces: IndexMap<Name, Vec<(Name, Name)>>,
    pub(crate) tree: Tree,
    /// Limits across all queues.
    pub(crate) capacity: Capacity,
    pub(crate) queues: Vec<ClusterQueue>,
    pub(crate) queue_index: IndexMap<Name, QueueId>,
    pub(crate) locals: Vec<LocalQueue>,
    pub(crate) local_index: IndexMap<(Name, Name), LocalId>,
    namespace_locals: IndexMap<Name, Vec<LocalId>>,
    pub(crate) shapes: Shapes,
    pub(crate) workloads: Workloads,
    /// The resource `pods`, once some queue covers it.
    pub(crate) pods: Option<ResourceId>,
    /// Queues with something in the heap.
    pub(crate) ready: BTreeSet<QueueId>,
    /// Queues with something parked, by the root of their tree.
    pub(crate) parked: BTreeSet<(NodeId, QueueId)>,
    /// Queues to flush when the trees are up to date.
    pub(crate) flush_later: BTreeSet<QueueId>,
    /// Backoffs.
    pub(crate) wakeups: BTreeSet<(Time, WorkloadId)>,
    pub(crate) second_passes: SecondPassQueue,
    /// Workloads that hold quota and whose pods are not ready.
    pub(crate) unready: usize,
    /// Who evicted whom since something happened outside.
    pub(crate) loops: LoopGuard,
    pub(crate) stats: Stats,
    pub(crate) changed_queues: Marks,
    pub(crate) changed_locals: Marks,
    pub(crate) changed_nodes: Marks,
}

/// The forest with its numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    pub(crate) forest: Forest,
    pub(crate) usage: Usage,
    pub(crate) lendable: Lendable,
}

impl Tree {
    /// Brings the numbers up to date; returns the roots of the trees that changed.
    pub(crate) fn refresh(&mut self, names: &Names) -> Vec<NodeId> {
        let roots = self.forest.refresh(&mut self.usage);
        for &root in &roots {
            self.lendable.rebuild(&self.forest, names, root);
        }
        roots
    }
}

impl Scheduler {
    /// An empty world.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            cycle: 0,
            names: Names::default(),
            flavors: Vec::new(),
            checks: BTreeMap::new(),
            topologies: BTreeSet::new(),
            namespaces: IndexMap::new(),
            tree: Tree::default(),
            capacity: Capacity::default(),
            queues: Vec::new(),
            queue_index: IndexMap::new(),
            locals: Vec::new(),
            local_index: IndexMap::new(),
            namespace_locals: IndexMap::new(),
            shapes: Shapes::default(),
            workloads: Workloads::default(),
            pods: None,
            ready: BTreeSet::new(),
            parked: BTreeSet::new(),
            flush_later: BTreeSet::new(),
            wakeups: BTreeSet::new(),
            second_passes: SecondPassQueue::default(),
            unready: 0,
            loops: LoopGuard::default(),
            stats: Stats::default(),
            changed_queues: Marks::default(),
            changed_locals: Marks::default(),
            changed_nodes: Marks::default(),
        }
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds or replaces a ResourceFlavor.
    pub fn set_flavor(&mut self, spec: FlavorSpec) {
        let id = self.names.flavor(&spec.name);
        if self.flavors.len() <= id.at() {
            self.flavors.resize(id.at() + 1, None);
        }
        if self.flavors[id.at()].as_ref() == Some(&spec) {
            return;
        }
        self.flavors[id.at()] = Some(spec);
        self.flavor_changed(id);
    }

    /// Removes a ResourceFlavor.
    pub fn remove_flavor(&mut self, name: &str) {
        let Some(id) = self.names.find_flavor(name) else { return };
        if self.flavors.get_mut(id.at()).and_then(Option::take).is_some() {
            self.flavor_changed(id);
        }
    }

    fn flavor_changed(&mut self, flavor: crate::intern::FlavorId) {
        self.touch_queues(|queue| queue.groups.iter().any(|group| group.flavors.contains(&flavor)));
    }

    /// Adds an AdmissionCheck or changes whether it is active.
    pub fn set_check(&mut self, name: &Name, check: impl Into<CheckSpec>) {
        let check = check.into();
        if self.checks.insert(name.clone(), check) != Some(check) {
            self.check_changed(name);
        }
    }

    /// Removes an AdmissionCheck.
    pub fn remove_check(&mut self, name: &str) {
        if self.checks.remove(name).is_some() {
            self.check_changed(name);
        }
    }

    /// Adds a Topology, or removes it.
    pub fn set_topology(&mut self, name: &Name, exists: bool) {
        let changed =
            if exists { self.topologies.insert(name.clone()) } else { self.topologies.remove(name) };
        if changed {
            let named: BTreeSet<_> = self
                .flavors
                .iter()
                .flatten()
                .filter(|flavor| flavor.topology.as_ref() == Some(name))
                .filter_map(|flavor| self.names.find_flavor(&flavor.name))
                .collect();
            self.touch_queues(|queue| {
                queue.groups.iter().flat_map(|group| &group.flavors).any(|flavor| named.contains(flavor))
            });
        }
    }

    fn check_changed(&mut self, name: &str) {
        self.touch_queues(|queue| {
            queue
                .spec
                .as_ref()
                .is_some_and(|spec| spec.admission_checks.iter().any(|rule| &*rule.name == name))
        });
    }

    /// Brings the queues that something concerns up to date with it.
    fn touch_queues(&mut self, concerns: impl Fn(&ClusterQueue) -> bool) {
        self.loops.outside_change_anywhere();
        for at in 0..self.queues.len() {
            if concerns(&self.queues[at]) {
                self.queues[at].version += 1;
                self.update_activity(QueueId::new(at));
                self.flush_later.insert(QueueId::new(at));
            }
        }
    }

    /// Adds a namespace or replaces its labels.
    pub fn set_namespace(&mut self, name: &Name, labels: Vec<(Name, Name)>) {
        if self.namespaces.insert(name.clone(), labels.clone()) != Some(labels) {
            self.namespace_changed(name);
        }
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        if self.namespaces.swap_remove(name).is_some() {
            self.namespace_changed(name);
        }
    }

    /// Workloads that were held because of their namespace are tried again.
    fn namespace_changed(&mut self, name: &str) {
        self.loops.outside_change_anywhere();
        for id in self.namespace_locals.get(name).cloned().unwrap_or_default() {
            self.requeue_members(id);
        }
    }

    /// Adds or replaces a Cohort.
    pub fn set_cohort(&mut self, spec: CohortSpec) {
        let (_, limits) = compile_groups(&mut self.names, &spec.resource_groups);
        let id = self.tree.forest.ensure_cohort(&spec.name);
        let parent = spec.parent.map(|parent| self.tree.forest.ensure_cohort(&parent));
        let weight = spec.fair_weight.as_f64();
        if self.tree.forest.is_declared(id, weight, &limits, parent) {
            return;
        }
        self.loops.outside_change_anywhere();
        self.tree.forest.set(id, true, weight, limits);
        self.tree.forest.set_parent(id, parent);
        self.changed_nodes.mark(id.at());
    }

    /// Removes a Cohort; it stays as an implicit one while something refers to it.
    pub fn remove_cohort(&mut self, name: &str) {
        let Some(id) = self.tree.forest.cohort(name) else { return };
        self.loops.outside_change_anywhere();
        self.tree.forest.set(id, false, 1.0, BTreeMap::new());
        self.tree.forest.set_parent(id, None);
        self.changed_nodes.mark(id.at());
    }

    /// The row of a ClusterQueue, made without an object if there is none.
    pub(crate) fn ensure_queue(&mut self, name: &Name) -> QueueId {
        if let Some(&id) = self.queue_index.get(name) {
            return id;
        }
        let id = QueueId::new(self.queues.len());
        let node = self.tree.forest.add_queue(name.clone(), id);
        self.queues.push(ClusterQueue::new(name.clone(), node));
        self.queue_index.insert(name.clone(), id);
        id
    }

    /// Adds or replaces a ClusterQueue.
    pub fn set_cluster_queue(&mut self, spec: ClusterQueueSpec) {
        let id = self.ensure_queue(&spec.name);
        if self.queues[id.at()].spec.as_ref() == Some(&spec) {
            return;
        }
        self.loops.outside_change_anywhere();
        let (groups, limits) = compile_groups(&mut self.names, &spec.resource_groups);
        let parent = spec.cohort.as_ref().map(|cohort| self.tree.forest.ensure_cohort(cohort));
        let pods = Name::from(crate::plan::PODS);
        if groups.iter().any(|group| group.covered.iter().any(|&id| *self.names.resource_name(id) == pods)) {
            self.pods = Some(self.names.resource(&pods));
        }
        let node = self.queues[id.at()].node;
        self.tree.forest.set(node, true, spec.fair_weight.as_f64(), limits);
        self.tree.forest.set_parent(node, parent);
        let queue = &mut self.queues[id.at()];
        let lanes_change = queue.spec.as_ref().is_none_or(|old| {
            old.usage_based_fair_sharing != spec.usage_based_fair_sharing
                || old.namespace_selector != spec.namespace_selector
                || old.strategy != spec.strategy
        });
        queue.groups = groups;
        queue.version += 1;
        queue.spec = Some(spec);
        self.update_activity(id);
        self.flush_later.insert(id);
        if lanes_change {
            self.requeue_queue(id);
        }
    }

    /// Removes a ClusterQueue. What its workloads hold stays with them.
    pub fn remove_cluster_queue(&mut self, name: &str) {
        let Some(&id) = self.queue_index.get(name) else { return };
        if self.queues[id.at()].spec.is_none() {
            return;
        }
        self.loops.outside_change_anywhere();
        let node = self.queues[id.at()].node;
        self.tree.forest.set(node, false, 1.0, BTreeMap::new());
        self.tree.forest.set_parent(node, None);
        let queue = &mut self.queues[id.at()];
        queue.spec = None;
        queue.groups = Vec::new();
        queue.version += 1;
        self.update_activity(id);
    }

    /// The row of a LocalQueue, made without an object if there is none.
    pub(crate) fn ensure_local(&mut self, namespace: &Name, name: &Name) -> LocalId {
        let key = (namespace.clone(), name.clone());
        if let Some(&id) = self.local_index.get(&key) {
            return id;
        }
        let id = LocalId::new(self.locals.len());
        self.locals.push(LocalQueue::new(namespace.clone(), name.clone()));
        self.local_index.insert(key, id);
        self.namespace_locals.entry(namespace.clone()).or_default().push(id);
        id
    }

    /// Adds or replaces a LocalQueue.
    pub fn set_local_queue(&mut self, spec: LocalQueueSpec) {
        let id = self.ensure_local(&spec.namespace, &spec.name);
        let queue = self.ensure_queue(&spec.cluster_queue);
        let local = &self.locals[id.at()];
        let same_target = local.spec.as_ref().is_some_and(|old| {
            (&old.cluster_queue, old.stop_policy, old.terminating)
                == (&spec.cluster_queue, spec.stop_policy, spec.terminating)
        });
        if local.spec.is_none() {
            let seed: Vec<_> =
                spec.consumed.iter().map(|(name, value)| (self.names.resource(name), *value)).collect();
            self.locals[id.at()].ledger.seed(seed);
        }
        if let Some(old) = self.locals[id.at()].queue {
            self.queues[old.at()].locals.remove(&id);
        }
        self.queues[queue.at()].locals.insert(id);
        let local = &mut self.locals[id.at()];
        local.queue = Some(queue);
        local.spec = Some(spec);
        self.changed_locals.mark(id.at());
        if !same_target {
            self.loops.outside_change_anywhere();
            self.requeue_members(id);
        }
    }

    /// Removes a LocalQueue.
    pub fn remove_local_queue(&mut self, namespace: &str, name: &str) {
        let key = (Name::from(namespace), Name::from(name));
        let Some(&id) = self.local_index.get(&key) else { return };
        let local = &mut self.locals[id.at()];
        if local.spec.take().is_some() {
            if let Some(queue) = local.queue.take() {
                self.queues[queue.at()].locals.remove(&id);
            }
            local.ledger = crate::admission_fair_sharing::Ledger::default();
            self.loops.outside_change_anywhere();
            self.requeue_members(id);
        }
    }

    /// Keeps the lists of queues with heads and with parked workloads.
    pub(crate) fn sync_ready(&mut self, id: QueueId) {
        let queue = &self.queues[id.at()];
        if queue.is_active() && queue.pending.active() > 0 {
            self.ready.insert(id);
        } else {
            self.ready.remove(&id);
        }
        let root = queue.pending.has_parked().then(|| self.tree.forest.node(queue.node).root);
        if queue.parked_under != root {
            if let Some(old) = queue.parked_under {
                self.parked.remove(&(old, id));
            }
            self.parked.extend(root.map(|root| (root, id)));
            self.queues[id.at()].parked_under = root;
        }
        self.changed_queues.mark(id.at());
    }

    /// Brings the trees up to date after changes of specs, and flushes the queues of those that changed.
    pub(crate) fn refresh(&mut self) {
        if !self.tree.forest.is_stale() && self.flush_later.is_empty() {
            return;
        }
        let roots = self.tree.refresh(&self.names);
        let mut flush: BTreeSet<NodeId> = roots.iter().copied().collect();
        for root in roots {
            let members: Vec<NodeId> = self.tree.forest.members(root).to_vec();
            for node in members {
                self.changed_nodes.mark(node.at());
                let Some(id) = self.tree.forest.node(node).queue else { continue };
                self.queues[id.at()].version += 1;
                self.sync_ready(id);
            }
        }
        for id in std::mem::take(&mut self.flush_later) {
            flush.insert(self.tree.forest.node(self.queues[id.at()].node).root);
        }
        for root in flush {
            self.flush_tree(root);
        }
    }

    /// Puts what is parked in the queues of a tree back into their heaps (reference 06, 6.4 "Flush").
    pub(crate) fn flush_tree(&mut self, root: NodeId) {
        let parked: Vec<QueueId> =
            self.parked.range((root, QueueId(0))..=(root, QueueId(u32::MAX))).map(|&(_, id)| id).collect();
        for id in parked {
            self.queues[id.at()].pending.flush();
            self.sync_ready(id);
        }
    }

    /// Whose status figures changed since the last call.
    pub fn take_changed(&mut self) -> Changed {
        self.refresh();
        let mut changed = Changed::default();
        for at in self.changed_queues.take() {
            if self.queues[at].spec.is_some() {
                changed.cluster_queues.push(self.queues[at].name.clone());
            }
        }
        for at in self.changed_locals.take() {
            let local = &self.locals[at];
            if local.spec.is_some() {
                changed.local_queues.push((local.namespace.clone(), local.name.clone()));
            }
        }
        for at in self.changed_nodes.take() {
            let node = self.tree.forest.node(NodeId::new(at));
            if node.queue.is_none() {
                changed.cohorts.push(node.name.clone());
            } else if let Some(queue) = node.queue.filter(|queue| self.queues[queue.at()].spec.is_some()) {
                changed.cluster_queues.push(self.queues[queue.at()].name.clone());
            }
        }
        changed.cluster_queues.sort();
        changed.cluster_queues.dedup();
        changed.local_queues.sort();
        changed.cohorts.sort();
        changed
    }
}
