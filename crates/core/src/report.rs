//! Outputs: the decisions of one cycle, and status numbers.

use std::fmt::{self, Display};
use std::sync::Arc;

use crate::reason::{Refusal, Unadmitted};
use crate::spec::Time;
use crate::topology::SharedAssignment;
use crate::workload::{Admission, WorkloadKey};
use crate::{Amount, Name};

/// The outcome of one cycle.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CycleReport {
    /// The number of the cycle, from 1.
    pub cycle: u64,
    /// Each head in the order processed.
    pub entries: Vec<EntryReport>,
    /// Workloads that became inadmissible without evaluation because an equivalent one failed. A workload is listed again only when the reason
    /// changed.
    pub bypassed: Vec<(WorkloadKey, Arc<Unadmitted>)>,
    /// Something was admitted or newly evicted. Otherwise the next cycle will decide the same unless something changes
    /// (or a flavor scan is under way: see `scanning`).
    pub progress: bool,
    /// A head went back to its queue to try further flavors, or slices have not been searched nodes for yet: the next cycle may decide differently.
    pub scanning: bool,
}

/// The outcome for one head.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryReport {
    /// The workload.
    pub key: WorkloadKey,
    /// Its UID.
    pub uid: Name,
    /// The ClusterQueue that it was the head of.
    pub cluster_queue: Name,
    /// The decision.
    pub outcome: Outcome,
    /// Its victims differ from the nominated ones, because an earlier head of the cycle took some of those.
    pub new_targets: bool,
    /// Victims were chosen for it, whatever became of it.
    pub has_targets: bool,
}

/// The decision about a head.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It holds quota now (assumed until the write comes back).
    Admitted {
        /// Its admission.
        admission: Admission,
        /// The admission checks that apply to it, sorted.
        required_checks: Vec<Name>,
        /// The other considered flavors: rendered as the suffix of the QuotaReserved event.
        considered: Considered,
    },
    /// Victims were chosen; it waits for them in its queue.
    Preempting {
        /// The victims, evicted (assumed) from now on.
        victims: Vec<Victim>,
        /// The condition to write meanwhile.
        why: Arc<Unadmitted>,
    },
    /// Not admitted.
    Unadmitted(Arc<Unadmitted>),
    /// Not admitted because it needs a preemption and its preemption gate is closed: the condition
    /// BlockedOnPreemptionGates applies.
    PreemptionGated(Arc<Unadmitted>),
    /// It held quota before the cycle and had another pass: the current nodes of pod sets whose nodes changed, or why there are none yet (event
    /// SecondPassFailed; it is tried again). Its quota is unchanged.
    SecondPass(Result<Vec<(Name, SharedAssignment)>, String>),
    /// The same after a node without a replacement was lost: slices moved as a whole.
    SlicesMoved(SlicesMoved),
    /// Only nodes that are lent out in the cohort have room for its slice: these victims borrow them, and it waits until they are gone.
    SliceReclaims(Vec<Victim>),
    /// There are no other nodes for the pods on these unhealthy ones: it has to be evicted (docs/reference/06-algorithm.md 6.14). And why its slice
    /// could not move, if slices may ([`crate::SliceMoves`]).
    NodesNotReplaced(Vec<Name>, Option<String>),
}

/// Slices that moved because of a lost node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicesMoved {
    /// The nodes that the pod sets concerned have now.
    pub nodes: Vec<(Name, SharedAssignment)>,
    /// The lost nodes.
    pub lost: Vec<Name>,
    /// How many pods leave nodes that are not lost.
    pub pods: i64,
    /// The nodes that pods go to.
    pub to: Vec<Name>,
}

/// A workload chosen to make room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victim {
    /// The workload.
    pub key: WorkloadKey,
    /// Its UID.
    pub uid: Name,
    /// The ClusterQueue whose quota it holds.
    pub cluster_queue: Name,
    /// Why it was chosen.
    pub reason: PreemptionReason,
    /// `/root/…/queue` of the preemptor.
    pub preemptor_path: Name,
    /// `/root/…/queue` of the victim.
    pub preemptee_path: Name,
    /// It was already evicted before this cycle and is still stopping: nothing has to be written for it.
    pub already_evicted: bool,
}

/// Why a victim was chosen (docs/reference/03-conditions-events.md 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionReason {
    /// By priority within the ClusterQueue.
    InClusterQueue,
    /// Reclaimed within the cohort.
    InCohortReclamation,
    /// By fair sharing.
    InCohortFairSharing,
    /// Reclaimed while borrowing.
    InCohortReclaimWhileBorrowing,
}

impl PreemptionReason {
    /// The reason of the condition Preempted.
    pub const fn as_str(self) -> &'static str {
        match self {
            PreemptionReason::InClusterQueue => "InClusterQueue",
            PreemptionReason::InCohortReclamation => "InCohortReclamation",
            PreemptionReason::InCohortFairSharing => "InCohortFairSharing",
            PreemptionReason::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }

    /// The words in the preemption sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            PreemptionReason::InClusterQueue => "prioritization in the ClusterQueue",
            PreemptionReason::InCohortReclamation => "reclamation within the cohort",
            PreemptionReason::InCohortFairSharing => "Fair Sharing within the cohort",
            PreemptionReason::InCohortReclaimWhileBorrowing => {
                "reclamation within the cohort while borrowing"
            }
        }
    }
}

/// The flavors considered for an admitted workload that did not plainly fit without borrowing (docs/reference/03-conditions-events.md 3.3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Considered {
    /// Per pod set: its name and the flavors.
    pub pod_sets: Vec<(Name, Vec<ConsideredFlavor>)>,
}

/// One flavor that was considered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsideredFlavor {
    /// The flavor.
    pub flavor: Name,
    /// Its mode.
    pub mode: FlavorMode,
    /// How high in the cohort tree the borrowing would reach; 0 is no borrowing.
    pub borrow: u32,
    /// Why it did not fit.
    pub refusals: Vec<Refusal>,
}

/// The mode of a flavor, worst first (docs/reference/06-algorithm.md 6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlavorMode {
    /// It cannot serve the request now.
    NoFit,
    /// A preemption is allowed, but there are no candidates.
    NoPreemptionCandidates,
    /// After a preemption that includes the own queue.
    Preempt,
    /// After a preemption in other queues only.
    Reclaim,
    /// At once.
    Fit,
}

impl FlavorMode {
    /// The mode as the event prints it (docs/reference/11-observed.md 11.3), with a word of its own for a preemption in other queues only.
    pub const fn as_str(self) -> &'static str {
        match self {
            FlavorMode::NoFit => "NoFit",
            FlavorMode::NoPreemptionCandidates => "preemptionMode=NoCandidates",
            FlavorMode::Preempt => "preemptionMode=Preempt",
            FlavorMode::Reclaim => "preemptionMode=Reclaim",
            FlavorMode::Fit => "Fit",
        }
    }
}

/// The text behind "; Flavors considered: "; empty if no flavor was considered.
impl Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, flavors)) in self.pod_sets.iter().enumerate() {
            write!(f, "{}{name}: ", if at > 0 { " | " } else { "" })?;
            for (at, flavor) in flavors.iter().enumerate() {
                let separator = if at > 0 { ", " } else { "" };
                write!(f, "{separator}{}({}", flavor.flavor, flavor.mode.as_str())?;
                if flavor.borrow > 0 {
                    write!(f, ";borrow={}", flavor.borrow)?;
                }
                let mut reasons: Vec<String> = flavor.refusals.iter().map(ToString::to_string).collect();
                reasons.sort_unstable();
                for reason in reasons {
                    write!(f, ";{reason}")?;
                }
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}

/// Names of objects with status figures that changed since the last call of `take_changed`, each sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changed {
    /// ClusterQueues.
    pub cluster_queues: Vec<Name>,
    /// LocalQueues: (namespace, name).
    pub local_queues: Vec<(Name, Name)>,
    /// Cohorts.
    pub cohorts: Vec<Name>,
}

/// One part of the reason why a ClusterQueue is not active (docs/reference/03-conditions-events.md 3.2), in the reference's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InactiveCause {
    /// It is being deleted.
    Terminating,
    /// Its `stopPolicy` is set.
    Stopped,
    /// ResourceFlavors that do not exist.
    FlavorNotFound(Vec<Name>),
    /// AdmissionChecks that do not exist.
    AdmissionCheckNotFound(Vec<Name>),
    /// AdmissionChecks that are not active.
    AdmissionCheckInactive(Vec<Name>),
    /// More than one AdmissionCheck sends workloads to other clusters.
    MultipleMultiKueueAdmissionChecks(Vec<Name>),
    /// AdmissionChecks that send workloads to other clusters are for some flavors only.
    MultiKueueAdmissionCheckAppliedPerFlavor(Vec<Name>),
    /// AdmissionChecks that send workloads to other clusters, beside those that request nodes here.
    MultiKueueWithProvisioningRequest(Vec<Name>, Vec<Name>),
    /// A flavor's Topology does not exist.
    TopologyNotFound {
        /// The flavor.
        flavor: Name,
        /// The Topology that it names.
        topology: Name,
    },
    /// It is under a cycle of these Cohorts.
    CohortCycle(Vec<Name>),
}

impl InactiveCause {
    /// The reason of the condition Active.
    pub const fn reason(&self) -> &'static str {
        match self {
            InactiveCause::Terminating => "Terminating",
            InactiveCause::Stopped => "Stopped",
            InactiveCause::FlavorNotFound(_) => "FlavorNotFound",
            InactiveCause::AdmissionCheckNotFound(_) => "AdmissionCheckNotFound",
            InactiveCause::AdmissionCheckInactive(_) => "AdmissionCheckInactive",
            InactiveCause::MultipleMultiKueueAdmissionChecks(_) => "MultipleMultiKueueAdmissionChecks",
            InactiveCause::MultiKueueAdmissionCheckAppliedPerFlavor(_) => {
                "MultiKueueAdmissionCheckAppliedPerFlavor"
            }
            InactiveCause::MultiKueueWithProvisioningRequest(..) => "MultiKueueWithProvisioningRequest",
            InactiveCause::TopologyNotFound { .. } => "TopologyNotFound",
            InactiveCause::CohortCycle(_) => "CohortCycle",
        }
    }

    /// The part of the condition's message.
    pub fn message(&self) -> String {
        match self {
            InactiveCause::Terminating => "clusterQueue is terminating".to_owned(),
            InactiveCause::Stopped => "is stopped".to_owned(),
            InactiveCause::FlavorNotFound(names) => {
                format!("references missing ResourceFlavor(s): {}", names.join(","))
            }
            InactiveCause::AdmissionCheckNotFound(names) => {
                format!("references missing AdmissionCheck(s): {}", names.join(","))
            }
            InactiveCause::AdmissionCheckInactive(names) => {
                format!("references inactive AdmissionCheck(s): {}", names.join(","))
            }
            InactiveCause::MultipleMultiKueueAdmissionChecks(names) => format!(
                "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {}",
                names.join(",")
            ),
            InactiveCause::MultiKueueAdmissionCheckAppliedPerFlavor(names) => {
                format!("Cannot specify MultiKueue AdmissionCheck per flavor, found: {}", names.join(","))
            }
            InactiveCause::MultiKueueWithProvisioningRequest(elsewhere, here) => format!(
                "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: {}, {}",
                elsewhere.join(","),
                here.join(",")
            ),
            InactiveCause::TopologyNotFound { flavor, topology } => {
                format!("there is no Topology {topology:?} for TAS flavor {flavor:?}")
            }
            InactiveCause::CohortCycle(names) => format!("is under a cycle of Cohorts: {}", names.join(",")),
        }
    }
}

/// The usage of one flavor-resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceUsage {
    /// The resource.
    pub name: Name,
    /// Used in total. cpu in milli-CPU, everything else in whole units.
    pub total: Amount,
    /// Used beyond nominal quota.
    pub borrowed: Amount,
}

/// Usage per flavor, in the order of the spec.
pub type FlavorUsage = Vec<(Name, Vec<ResourceUsage>)>;

/// The status figures of a ClusterQueue.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterQueueStatus {
    /// Why it is not active; empty means active.
    pub inactive: Vec<InactiveCause>,
    /// Reserved by workloads that hold quota.
    pub reservation: FlavorUsage,
    /// Used by admitted workloads.
    pub usage: FlavorUsage,
    /// Pending workloads in the heap.
    pub pending_active: usize,
    /// Pending workloads that are inadmissible.
    pub pending_inadmissible: usize,
    /// Workloads that hold quota.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// The dominant resource share by weight, rounded up; `i64::MAX` for infinite (docs/reference/06-algorithm.md 6.8).
    pub weighted_share: i64,
    /// The same, not rounded.
    pub exact_share: f64,
}

/// The status figures of a LocalQueue.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalQueueStatus {
    /// Why it is not active; `None` means active.
    pub inactive: Option<LocalQueueInactive>,
    /// Reserved by workloads that hold quota; `borrowed` is always zero.
    pub reservation: FlavorUsage,
    /// Used by admitted workloads.
    pub usage: FlavorUsage,
    /// Pending workloads.
    pub pending: usize,
    /// Workloads that hold quota.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// Consumed usage of admission fair sharing per resource; cpu in cores, everything else in whole units.
    pub consumed: Vec<(Name, f64)>,
    /// When `consumed` was last brought up to date.
    pub consumed_at: Option<Time>,
    /// Usage weighted and divided by the queue's weight, penalties included: what orders it (docs/reference/06-algorithm.md 6.9).
    pub fair_usage: f64,
}

/// Why a LocalQueue is not active (docs/reference/03-conditions-events.md 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalQueueInactive {
    /// Its `stopPolicy` is set.
    Stopped,
    /// Its ClusterQueue does not exist.
    ClusterQueueDoesNotExist,
    /// Its ClusterQueue is not active.
    ClusterQueueIsInactive,
}

/// The status figures of a Cohort.
#[derive(Debug, Clone, PartialEq)]
pub struct CohortStatus {
    /// The dominant resource share by weight, rounded up; `i64::MAX` for infinite.
    pub weighted_share: i64,
    /// The same, not rounded.
    pub exact_share: f64,
    /// Quota of the whole subtree and usage that reaches this level: (flavor, resource, quota, usage).
    pub subtree: Vec<(Name, Name, Amount, Amount)>,
    /// It is in, or below, a cycle of Cohorts.
    pub in_cycle: bool,
}

/// How many equivalence classes of Workloads wait in a ClusterQueue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PendingClasses {
    /// Those with a member in the heap.
    pub active: usize,
    /// Those with an inadmissible member.
    pub inadmissible: usize,
    /// Those with any: a class may have both.
    pub all: usize,
}

/// One line of a queue's order, as the visibility API lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingPosition {
    /// The workload.
    pub key: WorkloadKey,
    /// Its LocalQueue.
    pub local_queue: Name,
    /// Its ClusterQueue.
    pub cluster_queue: Name,
    /// Effective priority.
    pub priority: i32,
    /// Creation time.
    pub created: Time,
    /// Place in the ClusterQueue, from 0.
    pub in_cluster_queue: usize,
    /// Place in the LocalQueue, from 0.
    pub in_local_queue: usize,
    /// In the heap; otherwise inadmissible.
    pub active: bool,
}
