//! The scheduler: everything that the core knows, and the doors for flavors, cohorts, queues, namespaces and checks.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;

use crate::Name;
use crate::capacity::Capacity;
use crate::changed::ChangedSet;
use crate::cluster_queue::{ClusterQueue, compile_groups};
use crate::config::Config;
use crate::intern::{ClassId, FrId, LocalId, Names, NodeId, QueueId, ResourceId, WorkloadId};
use crate::kept_out::KeptOut;
use crate::local_queue::LocalQueue;
use crate::loop_guard::LoopGuard;
use crate::referring_queues::ReferringQueues;
use crate::report::Changed;
use crate::second_pass::SecondPassQueue;
use crate::shape::Shapes;
use crate::snapshot::Stats;
use crate::spec::{CheckSpec, ClusterQueueSpec, CohortSpec, FlavorSpec, LocalQueueSpec, Time};
use crate::sweep::{Sweeps, put};
use crate::tree::Tree;
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
    pub(crate) free_queues: Vec<QueueId>,
    pub(crate) queue_index: IndexMap<Name, QueueId>,
    pub(crate) locals: Vec<LocalQueue>,
    pub(crate) free_locals: Vec<LocalId>,
    pub(crate) local_index: IndexMap<(Name, Name), LocalId>,
    /// Which queues name a flavor or a check.
    pub(crate) referring_queues: ReferringQueues,
    pub(crate) namespace_locals: IndexMap<Name, Vec<LocalId>>,
    pub(crate) shapes: Shapes,
    pub(crate) workloads: Workloads,
    /// The resource `pods`, once some queue covers it.
    pub(crate) pods: Option<ResourceId>,
    /// Queues with something in the heap.
    pub(crate) ready: BTreeSet<QueueId>,
    /// Queues with inadmissible workloads, by the root of their tree.
    pub(crate) inadmissible: BTreeSet<(NodeId, QueueId)>,
    /// Queues to flush when the trees are up to date.
    pub(crate) flush_later: BTreeSet<QueueId>,
    /// Pairs that a queue or Cohort of a tree began to borrow, until the queues that may reclaim them were flushed.
    pub(crate) began_to_borrow: BTreeSet<(NodeId, FrId)>,
    /// Inadmissible workloads that others keep from quota.
    pub(crate) kept_out: KeptOut,
    /// Backoffs.
    pub(crate) wakeups: BTreeSet<(Time, WorkloadId)>,
    pub(crate) second_passes: SecondPassQueue,
    /// When the usage of each LocalQueue is sampled next.
    pub(crate) samples: BTreeSet<(Time, LocalId)>,
    /// The head that waits until all pods are ready (`blockAdmission`): it goes before all others then.
    pub(crate) blocked: Option<WorkloadId>,
    /// Workloads that hold quota and whose pods are not ready.
    pub(crate) unready: usize,
    /// Which workload evicted which since the last change from outside.
    pub(crate) loops: LoopGuard,
    pub(crate) stats: Stats,
    pub(crate) changed_queues: ChangedSet,
    pub(crate) changed_locals: ChangedSet,
    pub(crate) changed_nodes: ChangedSet,
    /// When dead rows are looked for.
    pub(crate) sweeps: Sweeps,
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
            free_queues: Vec::new(),
            queue_index: IndexMap::new(),
            locals: Vec::new(),
            free_locals: Vec::new(),
            local_index: IndexMap::new(),
            referring_queues: ReferringQueues::default(),
            namespace_locals: IndexMap::new(),
            shapes: Shapes::default(),
            workloads: Workloads::default(),
            pods: None,
            ready: BTreeSet::new(),
            inadmissible: BTreeSet::new(),
            flush_later: BTreeSet::new(),
            began_to_borrow: BTreeSet::new(),
            kept_out: KeptOut::default(),
            wakeups: BTreeSet::new(),
            second_passes: SecondPassQueue::default(),
            samples: BTreeSet::new(),
            blocked: None,
            unready: 0,
            loops: LoopGuard::default(),
            stats: Stats::default(),
            changed_queues: ChangedSet::default(),
            changed_locals: ChangedSet::default(),
            changed_nodes: ChangedSet::default(),
            sweeps: Sweeps::default(),
        }
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds or replaces a ResourceFlavor.
    pub fn set_flavor(&mut self, spec: FlavorSpec) {
        self.sweep_if_due();
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
            self.sweeps.removed();
            self.flavor_changed(id);
        }
    }

    fn flavor_changed(&mut self, flavor: crate::intern::FlavorId) {
        self.touch_queues(self.referring_queues.of_flavor(flavor).collect());
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
            let flavors = self.flavors.iter().flatten();
            let named = flavors.filter(|flavor| flavor.topology.as_ref() == Some(name));
            let named = named.filter_map(|flavor| self.names.find_flavor(&flavor.name));
            self.touch_queues(named.flat_map(|flavor| self.referring_queues.of_flavor(flavor)).collect());
        }
    }

    fn check_changed(&mut self, name: &str) {
        self.touch_queues(self.referring_queues.of_check(name).collect());
    }

    /// Brings the queues that something concerns up to date with it.
    fn touch_queues(&mut self, concerned: BTreeSet<QueueId>) {
        self.loops.outside_change_anywhere();
        for id in concerned {
            self.queues[id.at()].version += 1;
            self.update_activity(id);
            self.flush_later.insert(id);
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
        self.sweep_if_due();
        let (_, limits) = compile_groups(&mut self.names, &spec.resource_groups);
        let id = self.tree.forest.ensure_cohort(&spec.name);
        let parent = spec.parent.map(|parent| self.tree.forest.ensure_cohort(&parent));
        let weight = spec.fair_weight.as_f64();
        if self.tree.forest.is_declared(id, weight, &limits, parent) {
            return;
        }
        self.sweeps.replaced(self.tree.forest.node(id).exists);
        self.loops.outside_change_anywhere();
        self.tree.forest.set(id, true, weight, limits);
        self.tree.forest.set_parent(id, parent);
        self.changed_nodes.mark(id.at());
    }

    /// Removes a Cohort; it stays as an implicit one while something refers to it.
    pub fn remove_cohort(&mut self, name: &str) {
        let Some(id) = self.tree.forest.cohort(name) else { return };
        self.sweeps.removed();
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
        let id = self.free_queues.pop().unwrap_or_else(|| QueueId::new(self.queues.len()));
        let node = self.tree.forest.add_queue(name.clone(), id);
        put(&mut self.queues, id.at(), ClusterQueue::new(name.clone(), node));
        self.queue_index.insert(name.clone(), id);
        id
    }

    /// Adds or replaces a ClusterQueue.
    pub fn set_cluster_queue(&mut self, spec: ClusterQueueSpec) {
        self.sweep_if_due();
        let id = self.ensure_queue(&spec.name);
        if self.queues[id.at()].spec.as_ref() == Some(&spec) {
            return;
        }
        self.sweeps.replaced(self.queues[id.at()].spec.is_some());
        self.loops.outside_change_anywhere();
        let (groups, limits) = compile_groups(&mut self.names, &spec.resource_groups);
        let pods = Name::from(crate::plan::PODS);
        if groups.iter().any(|group| group.covered.iter().any(|&id| *self.names.resource_name(id) == pods)) {
            self.pods = Some(self.names.resource(&pods));
        }
        let node = self.queues[id.at()].node;
        let quota_changed = self.queues[id.at()].spec.as_ref().is_none_or(|old| {
            old.resource_groups != spec.resource_groups
                || old.cohort != spec.cohort
                || old.fair_weight != spec.fair_weight
        });
        // A change of policies alone changes nothing in the tree.
        if quota_changed {
            let parent = spec.cohort.as_ref().map(|cohort| self.tree.forest.ensure_cohort(cohort));
            self.tree.forest.set(node, true, spec.fair_weight.as_f64(), limits);
            self.tree.forest.set_parent(node, parent);
        }
        let queue = &mut self.queues[id.at()];
        self.referring_queues.replace(id, (&queue.groups, queue.spec.as_ref()), (&groups, Some(&spec)));
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
        self.sweeps.removed();
        self.loops.outside_change_anywhere();
        let node = self.queues[id.at()].node;
        self.tree.forest.set(node, false, 1.0, BTreeMap::new());
        self.tree.forest.set_parent(node, None);
        let queue = &mut self.queues[id.at()];
        self.referring_queues.replace(id, (&queue.groups, queue.spec.as_ref()), (&[], None));
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
        let id = self.free_locals.pop().unwrap_or_else(|| LocalId::new(self.locals.len()));
        put(&mut self.locals, id.at(), LocalQueue::new(namespace.clone(), name.clone()));
        self.local_index.insert(key, id);
        self.namespace_locals.entry(namespace.clone()).or_default().push(id);
        id
    }

    /// Adds or replaces a LocalQueue.
    pub fn set_local_queue(&mut self, spec: LocalQueueSpec) {
        self.sweep_if_due();
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
            self.begin_samples(id);
        }
        if let Some(old) = self.locals[id.at()].queue.filter(|old| *old != queue) {
            self.sweeps.removed();
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
        if self.locals[id.at()].spec.take().is_some() {
            self.sweeps.removed();
            if let Some(queue) = self.locals[id.at()].queue.take() {
                self.queues[queue.at()].locals.remove(&id);
            }
            self.end_samples(id);
            self.loops.outside_change_anywhere();
            self.requeue_members(id);
        }
    }

    /// Keeps the lists of queues with heads and with inadmissible workloads.
    pub(crate) fn sync_ready(&mut self, id: QueueId) {
        let queue = &self.queues[id.at()];
        if queue.is_active() && queue.pending.active() > 0 {
            self.ready.insert(id);
        } else {
            self.ready.remove(&id);
        }
        let root = queue.pending.has_inadmissible().then(|| self.tree.forest.node(queue.node).root);
        if queue.flushed_with != root {
            if let Some(old) = queue.flushed_with {
                self.inadmissible.remove(&(old, id));
            }
            self.inadmissible.extend(root.map(|root| (root, id)));
            self.queues[id.at()].flushed_with = root;
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
            self.stats.rebuilt_nodes += members.len() as u64;
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

    /// Puts what is inadmissible in the queues of a tree back into their heaps (reference 06, 6.4 "Flush").
    pub(crate) fn flush_tree(&mut self, root: NodeId) {
        let queues: Vec<QueueId> = self
            .inadmissible
            .range((root, QueueId(0))..=(root, QueueId(u32::MAX)))
            .map(|&(_, id)| id)
            .collect();
        for id in queues {
            self.flush_queue(id);
        }
    }

    /// Puts what is inadmissible in a queue back into its heap.
    pub(crate) fn flush_queue(&mut self, id: QueueId) {
        for shape in self.queues[id.at()].pending.flush() {
            self.shapes.release(shape);
        }
        self.sync_ready(id);
    }

    /// A workload left a class: if it was the last, the class goes, or is remembered because its class failed.
    pub(crate) fn left_class(&mut self, id: QueueId, class: ClassId) {
        if let Some(shape) = self.queues[id.at()].pending.drop_if_empty(class) {
            self.shapes.retain(shape);
        }
        self.sync_ready(id);
    }

    /// The objects with status figures that changed since the last call.
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
                // The node of a ClusterQueue that is forgotten has no name.
                changed.cohorts.extend(Some(node.name.clone()).filter(|name| !name.is_empty()));
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
