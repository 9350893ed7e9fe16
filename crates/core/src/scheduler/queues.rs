//! Changes of Cohorts, ClusterQueues and LocalQueues.

use std::collections::BTreeMap;

use super::Scheduler;
use crate::Name;
use crate::cluster_queue::ClusterQueue;
use crate::intern::{LocalId, PODS, QueueId};
use crate::local_queue::LocalQueue;
use crate::resource_group::compile_groups;
use crate::spec::{ClusterQueueSpec, CohortSpec, LocalQueueSpec};
use crate::tables::put;

impl Scheduler {
    /// Adds or replaces a Cohort.
    pub fn set_cohort(&mut self, spec: CohortSpec) {
        self.sweep_if_due();
        let (_, limits) = compile_groups(&mut self.world.names, &spec.resource_groups);
        let id = self.world.forest.ensure_cohort(&spec.name);
        let parent = spec.parent.map(|parent| self.world.forest.ensure_cohort(&parent));
        let weight = spec.fair_weight.as_f64();
        if self.world.forest.is_declared(id, weight, &limits, parent) {
            return;
        }
        self.sweeps.replaced(self.world.forest.node(id).exists);
        self.outside_change_anywhere();
        self.world.forest.set(id, true, weight, limits);
        self.world.forest.set_parent(id, parent);
        self.changes.nodes.mark(id.at());
    }

    /// Removes a Cohort; it stays as an implicit one while it is referenced.
    pub fn remove_cohort(&mut self, name: &str) {
        let Some(id) = self.world.forest.cohort(name) else { return };
        self.sweeps.removed();
        self.outside_change_anywhere();
        self.world.forest.set(id, false, 1.0, BTreeMap::new());
        self.world.forest.set_parent(id, None);
        self.changes.nodes.mark(id.at());
    }

    /// The row of a ClusterQueue, made without an object if there is none.
    pub(crate) fn ensure_queue(&mut self, name: &Name) -> QueueId {
        if let Some(&id) = self.world.queue_index.get(name) {
            return id;
        }
        let id = self.world.free_queues.pop().unwrap_or_else(|| QueueId::new(self.world.queues.len()));
        let node = self.world.forest.add_queue(name.clone(), id);
        put(&mut self.world.queues, id.at(), ClusterQueue::new(name.clone(), node));
        self.world.queue_index.insert(name.clone(), id);
        id
    }

    /// Adds or replaces a ClusterQueue.
    pub fn set_cluster_queue(&mut self, spec: ClusterQueueSpec) {
        self.sweep_if_due();
        let id = self.ensure_queue(&spec.name);
        if self.world.queues[id.at()].spec.as_ref() == Some(&spec) {
            return;
        }
        self.sweeps.replaced(self.world.queues[id.at()].spec.is_some());
        self.outside_change_anywhere();
        let (groups, limits) = compile_groups(&mut self.world.names, &spec.resource_groups);
        let pods = Name::from(PODS);
        if groups
            .iter()
            .any(|group| group.covered.iter().any(|&id| *self.world.names.resource_name(id) == pods))
        {
            self.world.pods = Some(self.world.names.resource(&pods));
        }
        let node = self.world.queues[id.at()].node;
        let quota_changed = self.world.queues[id.at()].spec.as_ref().is_none_or(|old| {
            old.resource_groups != spec.resource_groups
                || old.cohort != spec.cohort
                || old.fair_weight != spec.fair_weight
        });
        // A change of policies alone changes nothing in the tree.
        if quota_changed {
            let parent = spec.cohort.as_ref().map(|cohort| self.world.forest.ensure_cohort(cohort));
            self.world.forest.set(node, true, spec.fair_weight.as_f64(), limits);
            self.world.forest.set_parent(node, parent);
        }
        let queue = &mut self.world.queues[id.at()];
        self.world.referring_queues.replace(id, (&queue.groups, queue.spec.as_ref()), (&groups, Some(&spec)));
        let lanes_change = queue.spec.as_ref().is_none_or(|old| {
            old.usage_based_fair_sharing != spec.usage_based_fair_sharing
                || old.namespace_selector != spec.namespace_selector
                || old.strategy != spec.strategy
        });
        queue.groups = groups;
        queue.version += 1;
        queue.spec = Some(spec);
        self.update_activity(id);
        self.agenda.flush_later.insert(id);
        if lanes_change {
            self.requeue_queue(id);
        }
    }

    /// Removes a ClusterQueue. What its workloads hold stays with them.
    pub fn remove_cluster_queue(&mut self, name: &str) {
        let Some(&id) = self.world.queue_index.get(name) else { return };
        if self.world.queues[id.at()].spec.is_none() {
            return;
        }
        self.sweeps.removed();
        self.outside_change_anywhere();
        let node = self.world.queues[id.at()].node;
        self.world.forest.set(node, false, 1.0, BTreeMap::new());
        self.world.forest.set_parent(node, None);
        let queue = &mut self.world.queues[id.at()];
        self.world.referring_queues.replace(id, (&queue.groups, queue.spec.as_ref()), (&[], None));
        queue.spec = None;
        queue.groups = Vec::new();
        queue.version += 1;
        // Without a spec nothing but priority and age orders the queue.
        let (locals, preemptor) = (queue.locals.clone(), queue.pending.preemptor());
        for local in locals {
            self.usage_moved(local);
        }
        if let Some(preemptor) = preemptor {
            self.moved(preemptor);
        }
        self.update_activity(id);
    }

    /// The row of a LocalQueue, made without an object if there is none.
    pub(crate) fn ensure_local(&mut self, namespace: &Name, name: &Name) -> LocalId {
        let key = (namespace.clone(), name.clone());
        if let Some(&id) = self.world.local_index.get(&key) {
            return id;
        }
        let id = self.world.free_locals.pop().unwrap_or_else(|| LocalId::new(self.world.locals.len()));
        put(&mut self.world.locals, id.at(), LocalQueue::new(namespace.clone(), name.clone()));
        self.world.local_index.insert(key, id);
        self.world.namespace_locals.entry(namespace.clone()).or_default().push(id);
        id
    }

    /// Adds or replaces a LocalQueue.
    pub fn set_local_queue(&mut self, spec: LocalQueueSpec) {
        self.sweep_if_due();
        let id = self.ensure_local(&spec.namespace, &spec.name);
        let queue = self.ensure_queue(&spec.cluster_queue);
        let local = &self.world.locals[id.at()];
        let same_target = local.spec.as_ref().is_some_and(|old| {
            (&old.cluster_queue, old.stop_policy, old.terminating)
                == (&spec.cluster_queue, spec.stop_policy, spec.terminating)
        });
        if local.spec.is_none() {
            let seed: Vec<_> =
                spec.consumed.iter().map(|(name, value)| (self.world.names.resource(name), *value)).collect();
            self.world.locals[id.at()].ledger.seed(seed);
            self.begin_samples(id);
        }
        if let Some(old) = self.world.locals[id.at()].queue.filter(|old| *old != queue) {
            self.sweeps.removed();
            self.world.queues[old.at()].locals.remove(&id);
        }
        self.world.queues[queue.at()].locals.insert(id);
        let local = &mut self.world.locals[id.at()];
        local.queue = Some(queue);
        local.spec = Some(spec);
        self.changes.locals.mark(id.at());
        self.usage_moved(id);
        if !same_target {
            self.outside_change_anywhere();
            self.requeue_members(id);
        }
    }

    /// Removes a LocalQueue.
    pub fn remove_local_queue(&mut self, namespace: &str, name: &str) {
        let key = (Name::from(namespace), Name::from(name));
        let Some(&id) = self.world.local_index.get(&key) else { return };
        if self.world.locals[id.at()].spec.take().is_some() {
            self.sweeps.removed();
            if let Some(queue) = self.world.locals[id.at()].queue.take() {
                self.world.queues[queue.at()].locals.remove(&id);
            }
            self.end_samples(id);
            self.outside_change_anywhere();
            self.requeue_members(id);
        }
    }
}
