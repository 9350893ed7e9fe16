//! A ClusterQueue at run time: its compiled resource groups, the workloads that hold its quota, and those that wait for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::Name;
use crate::intern::{FlavorId, FrId, LocalId, Names, NodeId, ResourceId};
use crate::preemption::CandidateKey;
use crate::queue::PendingQueue;
use crate::quota::QuotaLimits;
use crate::report::InactiveCause;
use crate::spec::{ClusterQueueSpec, PreemptionPolicy, ResourceGroup};

/// A resource group with names resolved.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) covered: Vec<ResourceId>,
    pub(crate) flavors: Vec<FlavorId>,
    /// The pair of each flavor (outer) and covered resource (inner).
    pub(crate) pairs: Vec<Vec<FrId>>,
}

/// Compiles resource groups. A resource that a former group covers is left out of later ones.
pub(crate) fn compile_groups(
    names: &mut Names,
    groups: &[ResourceGroup],
) -> (Vec<Group>, BTreeMap<FrId, QuotaLimits>) {
    let mut limits = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut compiled = Vec::with_capacity(groups.len());
    for group in groups {
        let covered: Vec<ResourceId> =
            group.covered.iter().map(|name| names.resource(name)).filter(|&id| seen.insert(id)).collect();
        let flavors: Vec<FlavorId> = group.flavors.iter().map(|flavor| names.flavor(&flavor.name)).collect();
        let mut pairs = Vec::with_capacity(flavors.len());
        for (&flavor, quotas) in flavors.iter().zip(&group.flavors) {
            let row: Vec<FrId> = covered.iter().map(|&resource| names.pair(flavor, resource)).collect();
            for (&pair, &resource) in row.iter().zip(&covered) {
                let name = names.resource_name(resource);
                let quota = quotas.resources.iter().find(|quota| quota.name == *name);
                limits.entry(pair).or_insert(quota.map_or(QuotaLimits::NONE, |quota| QuotaLimits {
                    nominal: quota.nominal,
                    borrow: quota.borrowing_limit,
                    lend: quota.lending_limit,
                }));
            }
            pairs.push(row);
        }
        compiled.push(Group { covered, flavors, pairs });
    }
    (compiled, limits)
}

/// A ClusterQueue.
#[derive(Debug, Clone)]
pub(crate) struct ClusterQueue {
    pub(crate) name: Name,
    pub(crate) node: NodeId,
    /// The spec; none while the object does not exist and only workloads or LocalQueues refer to it.
    pub(crate) spec: Option<ClusterQueueSpec>,
    pub(crate) groups: Vec<Group>,
    pub(crate) inactive: Vec<InactiveCause>,
    /// Raised by whatever makes a compiled plan stale: spec, flavors.
    pub(crate) version: u64,
    pub(crate) pending: PendingQueue,
    /// The LocalQueues that point to it.
    pub(crate) locals: BTreeSet<LocalId>,
    /// The root of the tree with which its inadmissible workloads are flushed, if it has any.
    pub(crate) flushed_with: Option<NodeId>,
    pub(crate) reservations: Reservations,
    /// Used by admitted workloads.
    pub(crate) admitted_usage: BTreeMap<FrId, i128>,
    pub(crate) admitted: usize,
}

/// The workloads that hold a queue's quota, in candidate order (reference 06, 6.7 "Ordering"), kept as they change.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reservations {
    /// Evicted, and still holding.
    pub(crate) evicted: BTreeSet<CandidateKey>,
    /// All others.
    pub(crate) running: BTreeSet<CandidateKey>,
}

impl Reservations {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.evicted.len() + self.running.len()
    }
}

impl ClusterQueue {
    /// A queue without an object.
    pub(crate) fn new(name: Name, node: NodeId) -> Self {
        Self {
            name,
            node,
            spec: None,
            groups: Vec::new(),
            inactive: Vec::new(),
            version: 0,
            pending: PendingQueue::default(),
            locals: BTreeSet::new(),
            flushed_with: None,
            reservations: Reservations::default(),
            admitted_usage: BTreeMap::new(),
            admitted: 0,
        }
    }

    /// It exists and nothing is in its way.
    pub(crate) fn is_active(&self) -> bool {
        self.spec.is_some() && self.inactive.is_empty()
    }

    /// The group that covers a resource, and the resource's place in it.
    pub(crate) fn group_of(&self, resource: ResourceId) -> Option<(usize, usize)> {
        self.groups.iter().enumerate().find_map(|(at, group)| {
            group.covered.iter().position(|&covered| covered == resource).map(|column| (at, column))
        })
    }

    /// `preemption.withinClusterQueue`.
    pub(crate) fn within_policy(&self) -> PreemptionPolicy {
        self.spec.as_ref().map_or(PreemptionPolicy::Never, |spec| spec.preemption.within_cluster_queue)
    }

    /// `preemption.reclaimWithinCohort`.
    pub(crate) fn reclaim_policy(&self) -> PreemptionPolicy {
        self.spec.as_ref().map_or(PreemptionPolicy::Never, |spec| spec.preemption.reclaim_within_cohort)
    }
}
