//! Which Workloads are displaced: JobSets whose pods sit on unhealthy nodes while what remains of their nodes cannot hold them, and
//! those that were evicted for that and do not run again yet. (Plain Jobs replace pods by themselves.)

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_core::{Name, WorkloadKey};

use super::free_capacity::FreeCapacity;
use super::health::Health;
use super::needs::Choice;
use super::pod::Pod;
use super::scope::Scope;
use super::snapshot::{Snapshot, holds};
use crate::engine::Engine;
use crate::ingest::workload::{effective_count, effective_priority, is, on_hold, queue_order, reserved};
use crate::world::{Decision, WorkloadEntry};

/// The order in which displaced Workloads are handled: priority, place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    priority: Reverse<i32>,
    queued: Timestamp,
    uid: Name,
}

/// How far its move is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It holds its place, and these nodes are lost.
    Running(BTreeSet<String>),
    /// It was evicted and has not run again.
    Evicted,
}

/// One displaced Workload.
#[derive(Clone, Debug)]
pub(crate) struct DisplacedWorkload<'a> {
    /// Its place in that order.
    pub order: Order,
    /// The Workload.
    pub key: WorkloadKey,
    /// Its effective priority.
    pub priority: i32,
    /// Its ClusterQueue.
    pub queue: Name,
    /// The flavors that it could have: those that it holds, or those that its queue has; never empty while it runs.
    pub choices: Vec<Choice<'a>>,
    /// How far its move is.
    pub stage: Stage,
    /// Why its queue could not admit it again, if it runs.
    pub barred: Option<String>,
}

/// Whether a Workload was evicted, or will be as soon as that can be written, and still holds its quota.
pub(crate) fn leaves(entry: &WorkloadEntry) -> bool {
    holds(entry) && (is(entry.status(), Type::Evicted) || matches!(entry.decision, Some(Decision::Evict(..))))
}

/// Whether its last eviction was for failing nodes and it has not run since, or it will be evicted for them as soon as that can be
/// written.
pub(super) fn for_nodes(entry: &WorkloadEntry) -> bool {
    let evicted = conditions::find(&entry.status().conditions, Type::Evicted.as_str());
    evicted.is_some_and(|c| c.status == "True" && c.reason == reason::NODE_FAILURES)
        || matches!(&entry.decision, Some(Decision::Evict(why, _)) if why.reason == reason::NODE_FAILURES)
}

impl Engine {
    /// Whether as many pods of a Workload as are still to run are there to stay.
    pub(super) fn is_complete(
        &self,
        key: &WorkloadKey,
        entry: &WorkloadEntry,
        snapshot: &Snapshot<'_>,
    ) -> bool {
        let counts = entry.object.spec.pod_sets.iter();
        let wanted: i64 = counts.map(|set| effective_count(set, entry.status(), &self.config)).sum();
        let here = snapshot.of_workload.get(key).into_iter().flatten().filter(|pod| !pod.leaving).count();
        i64::try_from(here).unwrap_or(i64::MAX) >= wanted
    }

    /// The nodes of a running Workload that are lost: the unhealthy ones of its pods; and while some pods are missing, those that its
    /// pods leave or left, and those in its status, if nothing can come back to them. A cordon alone does not make the pods on a node lost.
    pub(super) fn lost_nodes(
        &self,
        key: &WorkloadKey,
        entry: &WorkloadEntry,
        snapshot: &Snapshot<'_>,
    ) -> BTreeSet<String> {
        let pods = || snapshot.of_workload.get(key).into_iter().flatten();
        let stay = || pods().filter(|pod| !pod.leaving);
        let expected = |pod: &Pod| self.node_expected_until(pod).is_some_and(|until| until > self.now);
        let unhealthy = |pod: &&&Pod| snapshot.health(&pod.node) == Health::Unhealthy && !expected(pod);
        let mut lost: BTreeSet<&str> = stay().filter(unhealthy).map(|pod| &*pod.node).collect();
        if !self.is_complete(key, entry, snapshot) {
            let on: BTreeSet<&str> = stay().map(|pod| &*pod.node).collect();
            let leaving = pods().filter(|pod| pod.leaving).map(|pod| &*pod.node);
            let left = snapshot.left.get(key).into_iter().copied().flatten().map(|node| &**node);
            let listed = entry.status().unhealthy_nodes.iter().map(|node| node.name.as_str());
            let before = leaving.chain(left).chain(listed);
            lost.extend(before.filter(|node| snapshot.health(node).is_closed() && !on.contains(node)));
        }
        lost.into_iter().map(str::to_owned).collect()
    }

    /// Whether pods of a Workload are assigned to any of these nodes: they go to no other one, whatever room there is.
    fn has_assigned_any(&self, key: &WorkloadKey, nodes: &BTreeSet<String>) -> bool {
        self.assigned.has_hosts(key)
            && nodes.iter().any(|node| self.is_assigned(key, &Name::from(node.as_str())))
    }

    /// The ClusterQueue of a Workload: the one whose quota it holds, else the one in which it waits.
    pub(super) fn queue_for(&self, key: &WorkloadKey, entry: &WorkloadEntry) -> Option<Name> {
        let admission = entry.status().admission.as_ref().filter(|_| reserved(entry.status()));
        admission
            .map(|a| Name::from(a.cluster_queue.as_str()))
            .or_else(|| self.world.cluster_queue_of(key, &entry.object))
    }

    /// A Workload, if it is displaced. `room` is without those that leave.
    fn displaced<'a>(
        &self,
        key: &WorkloadKey,
        entry: &WorkloadEntry,
        scope: &Scope,
        snapshot: &Snapshot<'a>,
        room: &mut FreeCapacity<'a>,
    ) -> Option<DisplacedWorkload<'a>> {
        let (object, status) = (&entry.object, entry.status());
        let idle = !object.spec.active
            || object.metadata.deletion_timestamp.is_some()
            || is(status, Type::Finished)
            || !snapshot.has_jobset(key)
            // Topology-aware scheduling finds other nodes for single pods, if there are any.
            || self.may_replace_nodes(key);
        if idle {
            return None;
        }
        let queue = self.queue_for(key, entry).filter(|queue| scope.queues.contains_key(queue))?;
        let stage = if for_nodes(entry) {
            Stage::Evicted
        } else if is(status, Type::Admitted) && holds(entry) && !leaves(entry) {
            Stage::Running(self.lost_nodes(key, entry, snapshot))
        } else {
            return None;
        };
        if stage == Stage::Running(BTreeSet::new()) {
            return None;
        }
        if stage == Stage::Evicted && (on_hold(status) || self.trouble(key).is_some()) {
            return None;
        }
        let mut choices = self.options(key, entry, &queue, scope, snapshot);
        if stage == Stage::Evicted {
            choices.retain(|choice| choice.within_quota);
        }
        if choices.is_empty() {
            return None;
        }
        if let Stage::Running(lost) = &stage
            && !self.has_assigned_any(key, lost)
        {
            let held = choices.first()?;
            let remain =
                snapshot.nodes_of(key).into_iter().filter(|n| snapshot.health(n) != Health::Unhealthy);
            let remain: BTreeSet<&str> = remain.collect();
            let mark = room.mark();
            room.release(key);
            let holds = room.place(&held.needs, Some(&remain));
            room.undo(mark);
            if holds {
                return None;
            }
        }
        // A Workload that its queue could not admit again gains nothing by an eviction, and no other Workload makes room for it.
        let barred = if stage == Stage::Evicted { None } else { self.trouble(key).map(|(_, why)| why) };
        let priority = effective_priority(object, &self.config);
        let queued = queue_order(object, status, &self.config);
        let order = Order { priority: Reverse(priority), queued, uid: entry.uid() };
        Some(DisplacedWorkload { order, key: key.clone(), priority, queue, choices, stage, barred })
    }

    /// All displaced Workloads, in their order.
    pub(super) fn all_displaced<'a>(
        &self,
        scope: &Scope,
        snapshot: &Snapshot<'a>,
        room: &mut FreeCapacity<'a>,
    ) -> Vec<DisplacedWorkload<'a>> {
        let workloads = self.world.workloads.iter();
        let mut all = Vec::new();
        for (key, entry) in workloads {
            all.extend(self.displaced(key, entry, scope, snapshot, room));
        }
        all.sort_by(|a, b| a.order.cmp(&b.order));
        all
    }
}
