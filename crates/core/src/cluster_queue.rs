//! A ClusterQueue at run time: its compiled resource groups, the workloads that hold its quota, and those that wait for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::Name;
use crate::intern::{FrId, LocalId, NodeId, WorkloadId};
use crate::queue::PendingQueue;
use crate::report::InactiveCause;
use crate::resource_group::Group;
use crate::spec::{ClusterQueueSpec, PreemptionPolicy, Time};

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

/// The order of candidates within one queue: lower priority first, then the more recently reserved, then the UID (docs/reference/06-algorithm.md 6.7
/// "Ordering"; evicted ones are in a separate set and come before).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CandidateKey {
    pub(crate) priority: i32,
    pub(crate) reserved_at: Reverse<Time>,
    pub(crate) uid: Name,
    pub(crate) id: WorkloadId,
}

/// The workloads that hold a queue's quota, in candidate order (docs/reference/06-algorithm.md 6.7 "Ordering"), kept as they change.
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

    /// It exists and is not inactive for any cause.
    pub(crate) fn is_active(&self) -> bool {
        self.spec.is_some() && self.inactive.is_empty()
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
