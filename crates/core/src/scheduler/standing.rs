//! The places of pending workloads (docs/reference/06-algorithm.md 6.4), and the data for computing them: a long queue can be sorted elsewhere, from
//! the data of its members, which are fetched one by one.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use super::Scheduler;
use crate::Name;
use crate::intern::{QueueId, WorkloadId};
use crate::queue::{OrderKey, Placement};
use crate::report::PendingPosition;
use crate::spec::{QueueingStrategy, Time};
use crate::workload::WorkloadKey;

/// The position of a pending workload in its ClusterQueue. The lesser one is nearer to the head.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Usage of its LocalQueue where admission fair sharing orders the queue, otherwise 0.
    usage: f64,
    /// It is not the preemptor with precedence.
    later: bool,
    order: (Reverse<i32>, OrderKey),
    key: WorkloadKey,
    local_queue: Name,
    cluster_queue: Name,
    created: Time,
    active: bool,
}

impl PartialEq for Standing {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Standing {}

impl PartialOrd for Standing {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Standing {
    fn cmp(&self, other: &Self) -> Ordering {
        Self::order(self, self.usage, other, other.usage)
    }
}

impl Standing {
    /// The ClusterQueue that it waits in.
    pub fn cluster_queue(&self) -> &Name {
        &self.cluster_queue
    }

    /// The workload.
    pub fn key(&self) -> &WorkloadKey {
        &self.key
    }

    /// Its LocalQueue.
    pub fn local_queue(&self) -> &Name {
        &self.local_queue
    }

    /// Creation time.
    pub fn created(&self) -> Time {
        self.created
    }

    /// The usage of its LocalQueue, where admission fair sharing orders the queue; otherwise 0.
    pub fn usage(&self) -> f64 {
        self.usage
    }

    /// The order in one ClusterQueue, with the current usage of the LocalQueues of both.
    pub fn order(&self, usage: f64, other: &Self, usage_of_other: f64) -> Ordering {
        let by_usage = usage.total_cmp(&usage_of_other);
        by_usage.then_with(|| (self.later, &self.order).cmp(&(other.later, &other.order)))
    }

    /// The places of the pending workloads of one ClusterQueue, in its order.
    pub fn positions(mut members: Vec<Self>) -> Vec<PendingPosition> {
        members.sort_unstable();
        let mut places = BTreeMap::<(Name, Name), usize>::new();
        let numbered = members.into_iter().enumerate().map(|(at, member)| {
            let local = (member.key.namespace.clone(), member.local_queue.clone());
            let place = places.entry(local).or_default();
            let in_local_queue = *place;
            *place += 1;
            PendingPosition {
                key: member.key,
                local_queue: member.local_queue,
                cluster_queue: member.cluster_queue,
                priority: member.order.0.0,
                created: member.created,
                in_cluster_queue: at,
                in_local_queue,
                active: member.active,
            }
        });
        numbered.collect()
    }
}

impl Scheduler {
    /// Where a workload waits, if it does: its ClusterQueue, and whether it is in the heap there.
    pub fn waits_in(&self, key: &WorkloadKey) -> Option<(&Name, bool)> {
        let (queue, _, placement) = self.placement_of(self.world.workloads.find(key)?)?;
        Some((&self.world.queues[queue.at()].name, placement == Placement::Active))
    }

    /// Whether a workload waits for quota, also while its queue is missing or stopped, and its requests were valid when it was last put in.
    pub fn waits_validly(&self, key: &WorkloadKey) -> bool {
        let waiting = self.world.workloads.find(key).and_then(|id| self.world.workloads.get(id).waiting());
        waiting.is_some_and(|waiting| waiting.invalid.is_none())
    }

    /// The position of a workload, if it waits in this ClusterQueue, or in any if none is given.
    pub fn standing(&self, key: &WorkloadKey, cluster_queue: Option<&str>) -> Option<Standing> {
        let (queue, id, placement) = self.placement_of(self.world.workloads.find(key)?)?;
        let wanted = cluster_queue.is_none_or(|wanted| *self.world.queues[queue.at()].name == *wanted);
        wanted.then(|| self.standing_of(queue, id, placement))
    }

    fn placement_of(&self, id: WorkloadId) -> Option<(QueueId, WorkloadId, Placement)> {
        let (queue, class) = self.world.workloads.get(id).waiting()?.at?;
        let placement =
            self.world.queues[queue.at()].pending.placement(class, &self.world.workloads.order_key(id))?;
        Some((queue, id, placement))
    }

    fn standing_of(&self, queue: QueueId, id: WorkloadId, placement: Placement) -> Standing {
        let (row, queue) = (self.world.workloads.get(id), &self.world.queues[queue.at()]);
        let local = &self.world.locals[row.local.at()];
        let best_effort =
            queue.spec.as_ref().is_some_and(|spec| spec.strategy == QueueingStrategy::BestEffortFIFO);
        Standing {
            usage: if self.orders_by_usage(queue) { self.fair_usage(row.local) } else { 0.0 },
            later: !(best_effort && queue.pending.preemptor() == Some(id)),
            order: (Reverse(row.priority), self.world.workloads.order_key(id)),
            key: row.key.clone(),
            local_queue: local.name.clone(),
            cluster_queue: queue.name.clone(),
            created: row.created,
            active: placement == Placement::Active,
        }
    }

    /// The pending workloads of a ClusterQueue in its order, inadmissible ones included.
    pub fn positions(&self, cluster_queue: &str) -> Vec<PendingPosition> {
        let Some(&id) = self.world.queue_index.get(cluster_queue) else { return Vec::new() };
        let members = self.world.queues[id.at()].pending.iter();
        Standing::positions(
            members.map(|(_, key, placement)| self.standing_of(id, key.id, placement)).collect(),
        )
    }

    /// The place of one pending workload. Sorts its whole queue: see [`Scheduler::waits_in`].
    pub fn position(&self, key: &WorkloadKey) -> Option<PendingPosition> {
        let (queue, _) = self.waits_in(key)?;
        self.positions(queue).into_iter().find(|position| position.key == *key)
    }

    /// How many groups of equivalent workloads [`Scheduler::pending_classes`] looks at.
    pub fn classes(&self, cluster_queue: &str) -> usize {
        self.world.queue_index.get(cluster_queue).map_or(0, |id| self.world.queues[id.at()].pending.classes())
    }
}
