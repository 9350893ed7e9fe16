//! What the search of one head works on: the world, read only, and the usage, which it may change and restores.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::capacity::Kept;
use crate::cluster_queue::ClusterQueue;
use crate::intern::{FrId, NodeId, QueueId, SlotId, WorkloadId};
use crate::quota::{Quota, clamp};
use crate::reason::Refusal;
use crate::report::PreemptionReason;
use crate::spec::Time;
use crate::stats::Stats;
use crate::topology::{NodeUsage, TopologyMark};
use crate::usage::{Mark, Usage};
use crate::workloads::Workload;
use crate::world::World;

/// The world as a search sees it. Nothing is copied.
pub(crate) struct View<'a> {
    pub(crate) world: &'a World,
    /// Usage of quota, which is as before once the search has ended.
    pub(crate) usage: &'a mut Usage,
    /// Usage of nodes, likewise.
    pub(crate) nodes: &'a mut NodeUsage,
    /// The usage of pairs whose physical capacity is limited.
    pub(crate) capacity_used: &'a BTreeMap<FrId, i128>,
    /// Fair usage of each LocalQueue, if admission fair sharing orders any queue; otherwise empty.
    pub(crate) local_usage: &'a [f64],
    /// The running cycle: workloads chosen as victims or admitted in it are no candidates.
    pub(crate) cycle: u64,
    pub(crate) stats: &'a mut Stats,
    /// The slice that the head takes over from, whose usage is taken away already: it is no candidate.
    pub(crate) replaced: Option<WorkloadId>,
    /// Earlier results for this head and this usage.
    pub(crate) simulated: Vec<SimulatedPreemption>,
    /// What is kept for displaced workloads before a head, computed on demand.
    kept: OnceCell<(WorkloadId, Kept)>,
}

/// The workload of the search.
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

/// A victim and why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) workload: WorkloadId,
    pub(crate) reason: PreemptionReason,
}

/// The result of one search, kept while the world does not change: the flavor search asks for each resource alone, and if there is one resource only,
/// the final search is the same.
#[derive(Debug)]
pub(crate) struct SimulatedPreemption {
    pub(crate) quantity: FlavorResourceQuantity,
    pub(crate) targets: Vec<Target>,
}

/// A point to roll back to.
#[must_use]
pub(crate) struct ViewMark {
    usage: Mark,
    nodes: TopologyMark,
}

/// Whether all quantities fit now.
pub(crate) fn fit(quota: &Quota, usage: &Usage, quantities: &[FlavorResourceQuantity]) -> bool {
    let available = |slot| i128::from(quota.available(usage, slot).get());
    quantities.iter().all(|quantity| quantity.amount <= available(quantity.slot))
}

impl<'a> View<'a> {
    /// A search in the `cycle` on this usage. `local_usage`: see [`View::local_usage`].
    pub(crate) fn new(
        world: &'a World,
        (usage, nodes, capacity_used): (&'a mut Usage, &'a mut NodeUsage, &'a BTreeMap<FrId, i128>),
        (cycle, stats): (u64, &'a mut Stats),
        local_usage: &'a [f64],
    ) -> Self {
        let simulated = Vec::new();
        Self {
            world,
            usage,
            nodes,
            capacity_used,
            local_usage,
            cycle,
            stats,
            replaced: None,
            simulated,
            kept: OnceCell::new(),
        }
    }
}

impl View<'_> {
    /// Starts to try something with quota and nodes; ends with [`View::rollback`].
    pub(crate) fn mark(&mut self) -> ViewMark {
        ViewMark { usage: self.usage.mark(), nodes: self.nodes.mark() }
    }

    /// Takes back everything since the mark.
    pub(crate) fn rollback(&mut self, mark: &ViewMark) {
        self.usage.rollback(&mark.usage);
        self.nodes.rollback(&mark.nodes);
    }

    /// The queue of a node index.
    pub(crate) fn queue(&self, id: QueueId) -> &ClusterQueue {
        &self.world.queues[id.at()]
    }

    /// A queue takes part: it is active, and not below a cycle of Cohorts.
    pub(crate) fn is_active(&self, id: QueueId) -> bool {
        let queue = self.queue(id);
        queue.is_active() && !self.world.forest.node(queue.node).in_cycle
    }

    /// Admission fair sharing orders this queue.
    pub(crate) fn is_ordered_by_usage(&self, id: QueueId) -> bool {
        !self.local_usage.is_empty()
            && self.queue(id).spec.as_ref().is_some_and(|spec| spec.usage_based_fair_sharing)
    }

    /// A workload.
    pub(crate) fn workload(&self, id: WorkloadId) -> &Workload {
        self.world.workloads.get(id)
    }

    /// Takes a workload's usage away.
    pub(crate) fn remove(&mut self, id: WorkloadId) {
        for &(_, slot, amount) in self.world.workloads.usage_of(id) {
            self.usage.remove(&self.world.forest.quota, slot, amount);
        }
        for pods in self.world.workloads.pods_of(id) {
            self.nodes.remove(pods);
        }
    }

    /// Gives a workload its usage back.
    pub(crate) fn restore(&mut self, id: WorkloadId) {
        for &(_, slot, amount) in self.world.workloads.usage_of(id) {
            self.usage.add(&self.world.forest.quota, slot, amount);
        }
        for pods in self.world.workloads.pods_of(id) {
            self.nodes.add(pods);
        }
    }

    /// Whether all quantities fit now; without borrowing, if that is not allowed.
    pub(crate) fn fits(&self, quantities: &[FlavorResourceQuantity], allow_borrowing: bool) -> bool {
        let borrows = |quantity: &FlavorResourceQuantity| {
            self.world.forest.quota.borrowing_with(self.usage, quantity.slot, quantity.amount)
        };
        (allow_borrowing || !quantities.iter().any(borrows))
            && fit(&self.world.forest.quota, self.usage, quantities)
    }

    /// Why physical capacity is not enough for a head that needs `wanted` of a pair, with `freed` given back by its victims.
    pub(crate) fn lacks_capacity(
        &self,
        head: WorkloadId,
        pair: FrId,
        wanted: i128,
        freed: i128,
    ) -> Option<Refusal> {
        if !self.world.capacity.limits_any() {
            return None;
        }
        let world = self.world;
        let kept = || world.capacity.kept_for_displaced(head, &world.workloads, &world.queues);
        let (of, known) = self.kept.get_or_init(|| (head, kept()));
        let others = (*of != head).then(kept);
        let left = world.capacity.left(self.capacity_used, pair, others.as_ref().unwrap_or(known))? + freed;
        if wanted <= left {
            return None;
        }
        let (flavor, resource) = self.world.names.flavor_and_resource(pair);
        Some(Refusal::InsufficientCapacity {
            flavor: self.world.names.flavor_name(flavor).clone(),
            resource: self.world.names.resource_name(resource).clone(),
            needed: clamp(wanted),
            free: clamp(left.max(0)),
            missing: clamp(wanted - left.max(0)),
        })
    }

    /// The usage of a pair that a workload gives back when it is removed.
    pub(crate) fn usage_of_pair(&self, id: WorkloadId, pair: FrId) -> i128 {
        self.world.workloads.usage_of(id).iter().filter(|usage| usage.0 == pair).map(|usage| usage.2).sum()
    }

    /// Why the first of the quantities that exceeds physical capacity still does so without these workloads.
    pub(crate) fn first_lack(
        &self,
        head: WorkloadId,
        quantities: &[FlavorResourceQuantity],
        gone: &[WorkloadId],
    ) -> Option<Refusal> {
        quantities.iter().find_map(|quantity| {
            if !self.world.capacity.limits(quantity.pair) {
                return None;
            }
            let freed = gone.iter().map(|&id| self.usage_of_pair(id, quantity.pair)).sum();
            self.lacks_capacity(head, quantity.pair, quantity.amount, freed)
        })
    }
}
