//! Which Workloads are displaced: JobSets with pods on unhealthy nodes whose other nodes cannot hold these pods, and JobSets that were evicted for
//! that and do not run again yet. (Plain Jobs replace pods by themselves.)

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_core::{DisplacedWorkload, Name, NodeSet, WorkloadKey};

use super::free_capacity::LazyCapacity;
use super::health::Health;
use super::pod::Pod;
use super::scope::Scope;
use super::snapshot::{SeenWorkload, Snapshot};
use crate::engine::Engine;
use crate::ingest::workload::{
    effective_count, effective_priority, is, on_hold, queue_order, reserved, was_evicted_for_nodes,
};
use crate::world::WorkloadEntry;

/// The order in which displaced Workloads are handled: priority, place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Order {
    priority: Reverse<i32>,
    queued: Timestamp,
    uid: Name,
}

/// The lost nodes of a displaced Workload that runs; none if it was evicted already.
pub(super) type LostNodes<'a> = BTreeSet<&'a str>;

/// Whether its last eviction was for failing nodes and it has not run since, or it will be evicted for them as soon as that can be
/// written.
pub(super) fn for_nodes(entry: &WorkloadEntry) -> bool {
    was_evicted_for_nodes(entry.status()) || entry.is_evicted_for_nodes()
}

impl Engine {
    /// Whether all pods of a Workload that are still to run exist and are not being deleted.
    pub(super) fn is_complete(&self, workload: &SeenWorkload<'_>) -> bool {
        let (sets, status) = (workload.entry.object.spec.pod_sets.iter(), workload.entry.status());
        let wanted: i64 = sets.map(|set| effective_count(set, status, &self.config)).sum();
        let here = workload.pods.iter().filter(|seen| !seen.pod.leaving).count();
        i64::try_from(here).unwrap_or(i64::MAX) >= wanted
    }

    /// The lost nodes of a running Workload: the unhealthy nodes of its pods; and while some pods are missing, the nodes that its pods leave or left,
    /// and those in its status, if no pod can come back to them. A cordon alone does not make the pods on a node lost.
    pub(super) fn lost_nodes<'a>(
        &'a self,
        workload: &SeenWorkload<'a>,
        snapshot: &Snapshot<'a>,
    ) -> BTreeSet<&'a str> {
        let stay = || workload.pods.iter().filter(|seen| !seen.pod.leaving);
        let expected = |pod: &Pod| self.node_expected_until(pod).is_some_and(|until| until > self.now);
        let unhealthy =
            stay().filter(|seen| snapshot.health_at(seen.node) == Health::Unhealthy && !expected(seen.pod));
        let mut lost: BTreeSet<&str> = unhealthy.map(|seen| &*seen.pod.node).collect();
        if !self.is_complete(workload) {
            let on: BTreeSet<&str> = stay().map(|seen| &*seen.pod.node).collect();
            let leaving = workload.pods.iter().filter(|seen| seen.pod.leaving).map(|seen| &*seen.pod.node);
            let left = self.hotswap.left.get(workload.key).into_iter().flatten().map(|node| &**node);
            let listed = workload.entry.status().unhealthy_nodes.iter().map(|node| node.name.as_str());
            let before = leaving.chain(left).chain(listed);
            lost.extend(before.filter(|node| snapshot.health(node).is_closed() && !on.contains(node)));
        }
        lost
    }

    /// Whether pods of a Workload are assigned to any of these nodes: they go to no other node, whatever room there is.
    fn has_assigned_any(&self, key: &WorkloadKey, nodes: &BTreeSet<&str>) -> bool {
        self.assigned.has_hosts(key) && nodes.iter().any(|node| self.is_assigned(key, &Name::from(*node)))
    }

    /// The ClusterQueue of a Workload: whose quota it holds, else in which it waits.
    pub(crate) fn queue_for(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Option<Name> {
        self.queue_name_for(key, entry).map(Name::from)
    }

    /// Its name.
    pub(super) fn queue_name_for<'a>(
        &'a self,
        key: &WorkloadKey,
        entry: &'a WorkloadEntry,
    ) -> Option<&'a str> {
        let admission = entry.status().admission.as_ref().filter(|_| reserved(entry.status()));
        admission
            .map(|a| a.cluster_queue.as_str())
            .or_else(|| self.world.cluster_queue_name_of(key, &entry.object))
    }

    /// A Workload by its number, if it is displaced.
    fn displaced<'a>(
        &'a self,
        at: usize,
        scope: &Scope,
        snapshot: &Snapshot<'a>,
        room: &mut LazyCapacity<'_, 'a>,
    ) -> Option<(Order, LostNodes<'a>, DisplacedWorkload<'a>)> {
        let workload = &snapshot.workloads[at];
        let (key, entry) = (workload.key, workload.entry);
        let (object, status) = (&entry.object, entry.status());
        let idle = !object.spec.active
            || object.metadata.deletion_timestamp.is_some()
            || !workload.has_jobset()
            || is(status, Type::Finished)
            // Topology-aware scheduling replaces the nodes of single pods, if there are any: Hotswap acts once that has failed. Workloads that it
            // evicts instead need other nodes, too.
            || !for_nodes(entry)
                && self.may_replace_nodes(key)
                && self.leaves_by_itself(key, &self.lost_nodes(workload, snapshot));
        if idle {
            return None;
        }
        let is_evicted = for_nodes(entry);
        let lost = if is_evicted {
            LostNodes::new()
        } else if workload.holds && !workload.leaves && is(status, Type::Admitted) {
            self.lost_nodes(workload, snapshot)
        } else {
            return None;
        };
        if !is_evicted && lost.is_empty() {
            return None;
        }
        let queue = self.queue_name_for(key, entry)?;
        let (queue, &beyond_nominal) = scope.queues.get_key_value(queue)?;
        // The full check of a Workload is made only if something may be wrong.
        let trouble = || self.trouble_but_for(key, self.asks_rightly(workload, snapshot));
        if is_evicted && (on_hold(status) || trouble().is_some()) {
            return None;
        }
        let choices = self.options(workload, (&**queue, is_evicted), scope, snapshot);
        if choices.is_empty() {
            return None;
        }
        if !is_evicted && !self.has_assigned_any(key, &lost) {
            let held = choices.first()?;
            let remain = workload.pods.iter().filter_map(|seen| seen.node);
            let remain = remain.filter(|node| snapshot.nodes[*node].health != Health::Unhealthy);
            let remain: NodeSet = remain.collect();
            if room.get().holds_on(at, &held.needs, &remain) {
                return None;
            }
        }
        // A Workload that its queue could not admit again gains nothing by an eviction, and no other Workload makes room for it.
        let barred = if is_evicted { None } else { trouble().map(|(_, why)| why) };
        let priority = effective_priority(object, &self.config);
        let queued = queue_order(object, status, &self.config);
        let order = Order { priority: Reverse(priority), queued, uid: entry.uid() };
        let queue = Name::clone(queue);
        let displaced =
            DisplacedWorkload { at, key, priority, queue, beyond_nominal, is_evicted, choices, barred };
        Some((order, lost, displaced))
    }

    /// All displaced Workloads in their order, and the lost nodes of each.
    pub(super) fn all_displaced<'a>(
        &'a self,
        scope: &Scope,
        snapshot: &Snapshot<'a>,
        room: &mut LazyCapacity<'_, 'a>,
    ) -> (Vec<DisplacedWorkload<'a>>, Vec<LostNodes<'a>>) {
        let all = 0..snapshot.workloads.len();
        let mut all: Vec<_> = all.filter_map(|at| self.displaced(at, scope, snapshot, room)).collect();
        all.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        all.into_iter().map(|(_, lost, displaced)| (displaced, lost)).unzip()
    }
}
