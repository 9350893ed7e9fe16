//! Workloads as plain data: the input of the core about each of them.

use crate::spec::{Expression, Time, Toleration};
use crate::topology::{SharedAssignment, SliceMoves, TopologyRequest};
use crate::{Amount, Name};

/// A workload's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
}

impl WorkloadKey {
    /// The key `namespace/name`.
    pub fn new(namespace: impl Into<Name>, name: impl Into<Name>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One workload as the core sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadSpec {
    /// Its namespace and name.
    pub key: WorkloadKey,
    /// Its UID: the last tie-break of every order.
    pub uid: Name,
    /// `spec.queueName`, in its namespace.
    pub local_queue: Name,
    /// Effective priority: `spec.priority` and the boost (docs/reference/06-algorithm.md 6.4).
    pub priority: i32,
    /// Creation time.
    pub created: Time,
    /// The queue-order timestamp (docs/reference/06-algorithm.md 6.4).
    pub queue_order: Time,
    /// `metadata.generation`.
    pub generation: i64,
    /// Its pod sets, with effective counts.
    pub pod_sets: Vec<PodSetSpec>,
    /// Where it stands.
    pub state: WorkloadState,
    /// A preemption gate is closed: it may not preempt.
    pub preemption_gated: bool,
    /// The slice of an elastic job that it takes over from.
    pub replaces: Option<ReplacedSlice>,
}

/// The slice of an elastic job that another one replaces: its pods continue, so that only the additional needs of the new slice have to be found, in the
/// same flavors (docs/reference/06-algorithm.md 6.26).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplacedSlice {
    /// The workload that is replaced.
    pub key: WorkloadKey,
    /// The flavors that its pods run in: for each pod set (resource, flavor).
    pub flavors: Vec<(Name, Vec<(Name, Name)>)>,
}

impl ReplacedSlice {
    /// The flavor that a resource of a pod set has.
    pub(crate) fn flavor_of(&self, pod_set: &str, resource: &str) -> Option<&Name> {
        let (_, flavors) = self.flavors.iter().find(|(name, _)| **name == *pod_set)?;
        flavors.iter().find(|(name, _)| **name == *resource).map(|(_, flavor)| flavor)
    }
}

/// One pod set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSetSpec {
    /// Its name.
    pub name: Name,
    /// Effective count: the spec's, less what is reclaimable.
    pub count: i64,
    /// `minCount`: how few pods are acceptable.
    pub min_count: Option<i64>,
    /// Requests per pod, sorted by resource. cpu in milli-CPU, everything else in whole units.
    pub requests: Vec<(Name, Amount)>,
    /// `nodeSelector` of the pod template.
    pub node_selector: Vec<(Name, Name)>,
    /// Required node affinity: the terms, one of which must hold.
    pub affinity: Vec<AffinityTerm>,
    /// Preferred node affinity: the terms, each with its weight (gate TASRespectNodeAffinityPreferred).
    pub preferred_affinity: Vec<PreferredTerm>,
    /// Tolerations of the pod template.
    pub tolerations: Vec<Toleration>,
    /// `topologyRequest.podSetGroupName`: pod sets of one group get the same flavors.
    pub group: Option<Name>,
    /// `topologyRequest`, if it asks for a topology.
    pub topology: Option<TopologyRequest>,
    /// Whether nothing holds its pods back until nodes are chosen for them: then it gets no flavor with a topology.
    pub ungated: bool,
    /// The usage of a node by each pod, if it differs from that of the quota: the requests of the pod spec itself, sorted by resource. cpu in
    /// milli-CPU, everything else in whole units.
    pub node_requests: Option<Vec<(Name, Amount)>>,
    /// A hash of everything else in the pod template that matters to scheduling.
    pub shape: u64,
}

impl PodSetSpec {
    /// One pod that requests nothing, selects nothing and tolerates nothing.
    pub fn plain(name: Name) -> Self {
        Self {
            name,
            count: 1,
            min_count: None,
            requests: Vec::new(),
            node_selector: Vec::new(),
            affinity: Vec::new(),
            preferred_affinity: Vec::new(),
            tolerations: Vec::new(),
            group: None,
            topology: None,
            ungated: false,
            node_requests: None,
            shape: 0,
        }
    }
}

/// One term of a preferred node affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PreferredTerm {
    /// How much a node's score rises if the term matches: 1 to 100, but that is not checked everywhere.
    pub weight: i32,
    /// The preferred term.
    pub term: AffinityTerm,
}

/// One term of a required node affinity: all expressions must hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct AffinityTerm {
    /// `matchExpressions`.
    pub expressions: Vec<Expression>,
    /// `matchFields`, which select nodes for topology-aware scheduling; flavors have no fields.
    pub fields: Vec<Expression>,
}

/// Where a workload stands.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkloadState {
    /// In no queue: gated, inactive, on hold, finished …
    Inactive,
    /// Waits for quota.
    Pending {
        /// `requeueState.requeueAt`, or while writes on it fail, when the next one is tried: not before this.
        requeue_at: Option<Time>,
        /// It waits until then in its place, as only its writes have to wait: in a StrictFIFO queue nothing behind it is looked at.
        keeps_place: bool,
        /// The condition Requeued is False: not before it flips.
        requeued_false: bool,
        /// It has an admission check in Retry or Rejected.
        failed_checks: bool,
        /// It cannot be admitted (requests above limits, LimitRange, …): the message.
        invalid: Option<String>,
    },
    /// Holds quota.
    Reserved {
        /// Its admission.
        admission: Admission,
        /// When QuotaReserved turned True.
        reserved_at: Time,
        /// The condition Admitted is True.
        admitted: bool,
        /// The condition Evicted is True, and the quota is not released yet.
        evicted: bool,
        /// The condition PodsReady is True (only `blockAdmission` asks).
        pods_ready: bool,
        /// What its topology assignment depends on.
        topology: TopologyState,
    },
}

impl WorkloadState {
    /// Waits for quota, with nothing in its way.
    pub const PENDING: WorkloadState = WorkloadState::Pending {
        requeue_at: None,
        keeps_place: false,
        requeued_false: false,
        failed_checks: false,
        invalid: None,
    };
}

/// What a workload with quota still needs of topology (docs/reference/06-algorithm.md 6.14 and 6.15).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyState {
    /// It has admission checks, and all are Ready: a delayed topology request is due.
    pub checks_ready: bool,
    /// `status.unhealthyNodes`.
    pub unhealthy_nodes: Vec<Name>,
    /// It keeps its nodes whatever happens to them: a pod that owns its Workload cannot move once its gate was removed.
    pub pinned: bool,
    /// Whether its slices may move where a lost node has no replacement.
    pub slice_moves: SliceMoves,
    /// The API server refuses its eviction, or the end of its job, again and again: no slice counts on its nodes.
    pub eviction_refused: bool,
}

/// The admission of a workload: `status.admission`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The ClusterQueue whose quota it is.
    pub cluster_queue: Name,
    /// The assignment of each pod set, in the workload's order.
    pub pod_sets: Vec<PodSetAssignment>,
}

impl Admission {
    /// Some pod set has nodes, or waits for them.
    pub fn has_nodes(&self) -> bool {
        self.pod_sets.iter().any(|pod_set| pod_set.topology.is_some() || pod_set.topology_delayed)
    }
}

/// The assignment of one pod set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// The pod set.
    pub name: Name,
    /// The flavor of each resource that needs quota, sorted by resource: (resource, flavor).
    pub flavors: Vec<(Name, Name)>,
    /// Totals, per-pod requests × count, sorted by resource. cpu in milli-CPU, everything else in whole units.
    pub usage: Vec<(Name, Amount)>,
    /// How many pods.
    pub count: i64,
    /// Where the pods go, for flavors with a topology.
    pub topology: Option<SharedAssignment>,
    /// `delayedTopologyRequest: Pending`: where the pods go is decided once the checks are ready.
    pub topology_delayed: bool,
}
