//! The workloads that the core knows, by dense index.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::index_map::IndexMap;
use smallvec::SmallVec;

use crate::Name;
use crate::cluster_queue::CandidateKey;
use crate::intern::{ClassId, FlavorId, FrId, LocalId, QueueId, ShapeId, SlotId, WorkloadId};
use crate::last_assignment::LastAssignment;
use crate::queue::OrderKey;
use crate::reason::Unadmitted;
use crate::spec::Time;
use crate::topology::{PlacedPods, SharedAssignment};
use crate::workload::{ReplacedSlice, TopologyState, WorkloadKey};

/// Usage of a workload: pair, slot of the queue whose quota it is, amount. A pair of which it needs nothing is included: the workload uses that
/// flavor nevertheless, and is a candidate for preemptors that need it.
pub(crate) type ReservedUsage = SmallVec<[(FrId, SlotId, i128); 1]>;

/// One workload.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) key: WorkloadKey,
    pub(crate) uid: Name,
    pub(crate) local: LocalId,
    pub(crate) priority: i32,
    pub(crate) created: Time,
    pub(crate) order: Time,
    pub(crate) generation: i64,
    pub(crate) gated: bool,
    /// The slice that it takes over from.
    pub(crate) replaces: Option<Arc<ReplacedSlice>>,
    pub(crate) shape: ShapeId,
    pub(crate) place: Place,
    /// Where its flavor scan stopped.
    pub(crate) last_assignment: Option<Box<LastAssignment>>,
    /// How many cycles in a row left its scan unfinished.
    pub(crate) scans: u8,
    /// When last tried it kept quota from others that it did not get: the quota that it waits for, or reserved.
    pub(crate) keeps_capacity: bool,
    /// Why it was not admitted when last tried.
    pub(crate) decision: Option<Arc<Unadmitted>>,
    /// The last cycle that chose it as a victim or admitted it, in the rest of which no other head may take it.
    pub(crate) taken_in_cycle: u64,
    /// It was preempted and still holds quota; or it was preempted until it left, and nothing has happened to it since.
    pub(crate) preempted: bool,
}

/// The place of a workload: exactly one of these.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// In no queue, because of its own state.
    Inactive,
    /// Waits for quota.
    Pending(Box<Waiting>),
    /// Holds quota.
    QuotaReserved(Box<QuotaReservation>),
}

/// The data of a waiting workload.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Waiting {
    pub(crate) requeue_at: Option<Time>,
    pub(crate) keeps_place: bool,
    pub(crate) requeued_false: bool,
    pub(crate) failed_checks: bool,
    pub(crate) invalid: Option<String>,
    /// The queue and class that it waits in; none while its LocalQueue or ClusterQueue is missing or stopped.
    pub(crate) at: Option<(QueueId, ClassId)>,
}

/// The quota of a workload.
#[derive(Debug, Clone)]
pub(crate) struct QuotaReservation {
    pub(crate) queue: QueueId,
    pub(crate) usage: ReservedUsage,
    pub(crate) reserved_at: Time,
    pub(crate) admitted: bool,
    pub(crate) evicted: bool,
    pub(crate) pods_ready: bool,
    /// `None` if no pod set has a flavor with a topology.
    pub(crate) topology: Option<Box<TopologyReservation>>,
}

impl QuotaReservation {
    /// Its nodes do not come back soon: see [`TopologyState::eviction_refused`].
    pub(crate) fn eviction_refused(&self) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.state.eviction_refused)
    }
}

/// The nodes of a workload.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct TopologyReservation {
    pub(crate) pod_sets: Vec<PodSetNodes>,
    pub(crate) state: TopologyState,
    /// The usage of places that its pods leave because of a second pass: used until the workload is updated with its new places.
    pub(crate) leaving: Vec<PlacedPods>,
}

/// Where the pods of one pod set are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PodSetNodes {
    /// The place of the pod set in its workload.
    pub(crate) pod_set: usize,
    pub(crate) flavor: FlavorId,
    /// How many pods it has.
    pub(crate) count: i64,
    /// `None` while the request is delayed.
    pub(crate) assignment: Option<SharedAssignment>,
    /// Their usage of their places; empty while the request is delayed.
    pub(crate) pods: PlacedPods,
}

impl TopologyReservation {
    /// `None` if no pod set has nodes, or waits for some.
    pub(crate) fn of(pod_sets: Vec<PodSetNodes>, state: TopologyState) -> Option<Box<Self>> {
        (!pod_sets.is_empty()).then(|| Box::new(Self { pod_sets, state, leaving: Vec::new() }))
    }

    /// The usage of all its places by its pods.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &PlacedPods> {
        self.pod_sets.iter().map(|nodes| &nodes.pods).chain(&self.leaving)
    }

    /// The unhealthy nodes that its pods are assigned to.
    pub(crate) fn unhealthy_in_use(&self) -> Vec<Name> {
        let used = |node: &&Name| {
            let mut assignments = self.pod_sets.iter().filter_map(|nodes| nodes.assignment.as_ref());
            assignments.any(|assignment| assignment.uses_any(std::slice::from_ref(*node)))
        };
        self.state.unhealthy_nodes.iter().filter(used).cloned().collect()
    }

    /// Some pods are assigned to an unhealthy node.
    pub(crate) fn uses_unhealthy_node(&self) -> bool {
        !self.state.unhealthy_nodes.is_empty() && !self.unhealthy_in_use().is_empty()
    }

    /// Some pod set waits for its nodes.
    pub(crate) fn is_delayed(&self) -> bool {
        self.pod_sets.iter().any(|nodes| nodes.assignment.is_none())
    }
}

impl QuotaReservation {
    /// The counted usage of quota, without zeros.
    pub(crate) fn charged(&self) -> impl Iterator<Item = (FrId, SlotId, i128)> + '_ {
        self.usage.iter().copied().filter(|&(_, _, amount)| amount > 0)
    }
}

impl Workload {
    /// Its quota, if it holds any.
    pub(crate) fn reservation(&self) -> Option<&QuotaReservation> {
        match &self.place {
            Place::QuotaReserved(reservation) => Some(reservation),
            _ => None,
        }
    }

    /// The data of its waiting, if it waits.
    pub(crate) fn waiting(&self) -> Option<&Waiting> {
        match &self.place {
            Place::Pending(waiting) => Some(waiting),
            _ => None,
        }
    }
}

/// All workloads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workloads {
    rows: Vec<Option<Workload>>,
    free: Vec<WorkloadId>,
    index: IndexMap<WorkloadKey, WorkloadId>,
}

impl Workloads {
    /// The id of a workload.
    pub(crate) fn find(&self, key: &WorkloadKey) -> Option<WorkloadId> {
        self.index.get(key).copied()
    }

    /// A workload by id.
    pub(crate) fn get(&self, id: WorkloadId) -> &Workload {
        self.rows[id.at()].as_ref().expect("an id is used only while its workload is known")
    }

    /// A workload by id, if the id is still in use.
    pub(crate) fn try_get(&self, id: WorkloadId) -> Option<&Workload> {
        self.rows.get(id.at()).and_then(Option::as_ref)
    }

    /// A workload by id.
    pub(crate) fn get_mut(&mut self, id: WorkloadId) -> &mut Workload {
        self.rows[id.at()].as_mut().expect("an id is used only while its workload is known")
    }

    /// Adds a workload that does not exist yet.
    pub(crate) fn insert(&mut self, workload: Workload) -> WorkloadId {
        let key = workload.key.clone();
        let id = if let Some(id) = self.free.pop() {
            self.rows[id.at()] = Some(workload);
            id
        } else {
            self.rows.push(Some(workload));
            WorkloadId::new(self.rows.len() - 1)
        };
        self.index.insert(key, id);
        id
    }

    /// Forgets a workload.
    pub(crate) fn remove(&mut self, id: WorkloadId) {
        if let Some(workload) = self.rows[id.at()].take() {
            self.index.swap_remove(&workload.key);
            self.free.push(id);
        }
    }

    /// The usage of a workload; empty without quota.
    pub(crate) fn usage_of(&self, id: WorkloadId) -> &[(FrId, SlotId, i128)] {
        self.get(id).reservation().map_or(&[], |reservation| &reservation.usage)
    }

    /// The usage of nodes by the pods of all workloads.
    pub(crate) fn all_pods(&self) -> impl Iterator<Item = &PlacedPods> {
        self.iter().flat_map(|(id, _)| self.pods_of(id))
    }

    /// The usage of nodes by the pods of a workload.
    pub(crate) fn pods_of(&self, id: WorkloadId) -> impl Iterator<Item = &PlacedPods> {
        let topology = self.get(id).reservation().and_then(|reservation| reservation.topology.as_deref());
        topology.into_iter().flat_map(TopologyReservation::pods)
    }

    /// The order of a workload among those of equal priority.
    pub(crate) fn order_key(&self, id: WorkloadId) -> OrderKey {
        let workload = self.get(id);
        OrderKey { order: workload.order, uid: workload.uid.clone(), id }
    }

    /// The place of a workload among the candidates of its queue.
    pub(crate) fn candidate_key(&self, id: WorkloadId, reserved_at: Time) -> CandidateKey {
        let workload = self.get(id);
        CandidateKey {
            priority: workload.priority,
            reserved_at: Reverse(reserved_at),
            uid: workload.uid.clone(),
            id,
        }
    }

    /// All workloads, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        self.rows
            .iter()
            .enumerate()
            .filter_map(|(at, row)| row.as_ref().map(|row| (WorkloadId::new(at), row)))
    }
}
