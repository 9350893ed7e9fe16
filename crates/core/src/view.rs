//! What the search of one head works on: the world, read only, and the usage, which it may change and restores.

use std::collections::BTreeMap;

use crate::Name;
use crate::capacity::Capacity;
use crate::cluster_queue::ClusterQueue;
use crate::config::Config;
use crate::fair_sharing::Lendable;
use crate::forest::Forest;
use crate::intern::{FrId, Names, NodeId, QueueId, SlotId, WorkloadId};
use crate::quota::{Quota, clamp};
use crate::reason::Refusal;
use crate::report::PreemptionReason;
use crate::shape::Shapes;
use crate::spec::{CheckSpec, FlavorSpec, Time};
use crate::stats::Stats;
use crate::topology::{Topologies, TopologyMark};
use crate::usage::{Mark, Usage};
use crate::workloads::{Workload, Workloads};

/// The world as a search sees it. Nothing is copied.
pub(crate) struct View<'a> {
    pub(crate) config: &'a Config,
    pub(crate) names: &'a Names,
    pub(crate) forest: &'a Forest,
    pub(crate) usage: &'a mut Usage,
    /// Nodes, and what is used of them.
    pub(crate) topology: &'a mut Topologies,
    /// By [`crate::intern::FlavorId`].
    pub(crate) flavors: &'a [Option<FlavorSpec>],
    pub(crate) shapes: &'a Shapes,
    pub(crate) checks: &'a BTreeMap<Name, CheckSpec>,
    pub(crate) capacity: &'a Capacity,
    pub(crate) queues: &'a [ClusterQueue],
    pub(crate) workloads: &'a Workloads,
    pub(crate) lendable: &'a Lendable,
    /// Fair usage of each LocalQueue, if admission fair sharing orders any queue; otherwise empty.
    pub(crate) local_usage: &'a [f64],
    /// The running cycle: workloads chosen as victims or admitted in it are no candidates.
    pub(crate) cycle: u64,
    pub(crate) stats: &'a mut Stats,
    /// The slice that the head takes over from, whose usage is taken away already: it is no candidate.
    pub(crate) replaced: Option<WorkloadId>,
    /// What was searched for this head and this usage already.
    pub(crate) simulated: Vec<SimulatedPreemption>,
}

/// What a search sees of a scheduler; a macro, so that the borrow checker sees which fields it takes.
macro_rules! view {
    ($self:ident, $local_usage:expr) => {
        $crate::view::View {
            config: &$self.config,
            names: &$self.names,
            forest: &$self.tree.forest,
            usage: &mut $self.tree.usage,
            topology: &mut $self.topology,
            flavors: &$self.flavors,
            shapes: &$self.shapes,
            checks: &$self.checks,
            lendable: &$self.tree.lendable,
            capacity: &$self.capacity,
            queues: &$self.queues,
            workloads: &$self.workloads,
            local_usage: $local_usage,
            cycle: $self.cycle,
            stats: &mut $self.stats,
            replaced: None,
            simulated: Vec::new(),
        }
    };
}
pub(crate) use view;

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

/// A victim and why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) workload: WorkloadId,
    pub(crate) reason: PreemptionReason,
}

/// What one search found, kept while the world stays as it is: the flavor search asks for each resource alone, and
/// where there is one resource only, what is asked for in the end is the same.
#[derive(Debug)]
pub(crate) struct SimulatedPreemption {
    pub(crate) quantity: FlavorResourceQuantity,
    pub(crate) targets: Vec<Target>,
}

/// A point to roll back to.
#[must_use]
pub(crate) struct ViewMark {
    usage: Mark,
    topology: TopologyMark,
}

/// Whether all quantities fit now.
pub(crate) fn fit(quota: &Quota, usage: &Usage, quantities: &[FlavorResourceQuantity]) -> bool {
    let available = |slot| i128::from(quota.available(usage, slot).get());
    quantities.iter().all(|quantity| quantity.amount <= available(quantity.slot))
}

impl View<'_> {
    /// Starts to try something with quota and nodes; ends with [`View::rollback`].
    pub(crate) fn mark(&mut self) -> ViewMark {
        ViewMark { usage: self.usage.mark(), topology: self.topology.mark() }
    }

    /// Takes back everything since the mark.
    pub(crate) fn rollback(&mut self, mark: &ViewMark) {
        self.usage.rollback(&mark.usage);
        self.topology.rollback(&mark.topology);
    }

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
        for pods in self.workloads.pods_of(id) {
            self.topology.remove(pods);
        }
    }

    /// Gives a workload its usage back.
    pub(crate) fn restore(&mut self, id: WorkloadId) {
        for &(_, slot, amount) in self.workloads.usage_of(id) {
            self.usage.add(&self.forest.quota, slot, amount);
        }
        for pods in self.workloads.pods_of(id) {
            self.topology.add(pods);
        }
    }

    /// Whether all quantities fit now; without borrowing, if that is not allowed.
    pub(crate) fn fits(&self, quantities: &[FlavorResourceQuantity], allow_borrowing: bool) -> bool {
        let borrows = |quantity: &FlavorResourceQuantity| {
            self.forest.quota.borrowing_with(self.usage, quantity.slot, quantity.amount)
        };
        (allow_borrowing || !quantities.iter().any(borrows))
            && fit(&self.forest.quota, self.usage, quantities)
    }

    /// What physical capacity has against a head that needs `wanted` of a pair, with `freed` given back by its victims.
    pub(crate) fn lacks_capacity(
        &self,
        head: WorkloadId,
        pair: FrId,
        wanted: i128,
        freed: i128,
    ) -> Option<Refusal> {
        if !self.capacity.limits_any() {
            return None;
        }
        let left = self.capacity.left(pair, head, self.workloads, self.queues)? + freed;
        if wanted <= left {
            return None;
        }
        let (flavor, resource) = self.names.flavor_and_resource(pair);
        Some(Refusal::InsufficientCapacity {
            flavor: self.names.flavor_name(flavor).clone(),
            resource: self.names.resource_name(resource).clone(),
            needed: clamp(wanted),
            free: clamp(left.max(0)),
            missing: clamp(wanted - left.max(0)),
        })
    }

    /// What a workload gives back of a pair when it goes.
    pub(crate) fn usage_of_pair(&self, id: WorkloadId, pair: FrId) -> i128 {
        self.workloads.usage_of(id).iter().filter(|usage| usage.0 == pair).map(|usage| usage.2).sum()
    }

    /// Why the first of the quantities that exceeds physical capacity does so once these workloads are gone.
    pub(crate) fn first_lack(
        &self,
        head: WorkloadId,
        quantities: &[FlavorResourceQuantity],
        gone: &[WorkloadId],
    ) -> Option<Refusal> {
        quantities.iter().find_map(|quantity| {
            if !self.capacity.limits(quantity.pair) {
                return None;
            }
            let freed = gone.iter().map(|&id| self.usage_of_pair(id, quantity.pair)).sum();
            self.lacks_capacity(head, quantity.pair, quantity.amount, freed)
        })
    }
}
