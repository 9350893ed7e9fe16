//! What the search of one head works on: the world, read only, and the usage, which it may change and restores.

use crate::capacity::Capacity;
use crate::cluster_queue::ClusterQueue;
use crate::config::Config;
use crate::fair_sharing::Lendable;
use crate::forest::Forest;
use crate::intern::{FrId, Names, NodeId, QueueId, SlotId, WorkloadId};
use crate::preemption::SimulatedPreemption;
use crate::snapshot::Stats;
use crate::spec::Time;
use crate::usage::Usage;
use crate::workloads::{Workload, Workloads};

/// The world as a search sees it. Nothing is copied.
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) names: &'a Names,
    pub(crate) forest: &'a Forest,
    pub(crate) usage: &'a mut Usage,
    pub(crate) capacity: &'a Capacity,
    pub(crate) queues: &'a [ClusterQueue],
    pub(crate) workloads: &'a Workloads,
    pub(crate) lendable: &'a Lendable,
    /// Fair usage of each LocalQueue, if admission fair sharing orders any queue; otherwise empty.
    pub(crate) local_usage: &'a [f64],
    /// The running cycle: workloads chosen as victims or admitted in it are no candidates.
    pub(crate) cycle: u64,
    pub(crate) stats: &'a mut Stats,
    /// What was searched for this head and this usage already.
    pub(crate) simulated: Vec<SimulatedPreemption>,
}

/// The workload that is searched for.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) workload: WorkloadId,
    pub(crate) queue: QueueId,
    pub(crate) node: NodeId,
    pub(crate) priority: i32,
    pub(crate) order: Time,
}

/// An amount of one (flavor, resource), and the slot of the head's queue for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlavorResourceQuantity {
    pub(crate) pair: FrId,
    pub(crate) slot: SlotId,
    pub(crate) amount: i128,
}

impl View<'_> {
    /// The queue of a node index.
    pub(crate) fn queue(&self, id: QueueId) -> &ClusterQueue {
        &self.queues[id.at()]
    }

    /// A queue takes part: it is active, and not below a cycle of Cohorts.
    pub(crate) fn is_active(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        queue.is_active() && !self.forest.node(queue.node).in_cycle
    }

    /// Admission fair sharing orders this queue.
    pub(crate) fn is_ordered_by_usage(&self, id: QueueId) -> bool {
        !self.local_usage.is_empty()
            && self.queue(id).spec.as_ref().is_some_and(|spec| spec.usage_based_fair_sharing)
    }

    /// A workload.
    pub(crate) fn workload(&self, id: WorkloadId) -> &Workload {
        self.workloads.get(id)
    }

    /// Takes a workload's usage away.
    pub(crate) fn remove(&mut self, id: WorkloadId) {
        for &(_, slot, amount) in self.workloads.usage_of(id) {
            self.usage.remove(&self.forest.quota, slot, amount);
        }
    }

    /// Gives a workload its usage back.
    pub(crate) fn restore(&mut self, id: WorkloadId) {
        for &(_, slot, amount) in self.workloads.usage_of(id) {
            self.usage.add(&self.forest.quota, slot, amount);
        }
    }

    /// Whether all quantities fit now; without borrowing, if that is not allowed.
    pub(crate) fn fits(&self, quantities: &[FlavorResourceQuantity], allow_borrowing: bool) -> bool {
        let quota = &self.forest.quota;
        quantities.iter().all(|quantity| {
            (allow_borrowing || !quota.borrowing_with(self.usage, quantity.slot, quantity.amount))
                && quantity.amount <= i128::from(quota.available(self.usage, quantity.slot).get())
        })
    }
}
