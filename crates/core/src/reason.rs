//! Why a workload was not admitted: typed, and rendered to the reference's texts (docs/reference/03-conditions-events.md 3.1;
//! docs/reference/06-algorithm.md 6.5 and 6.6).

mod refusal;

use std::fmt::Write as _;
use std::sync::Arc;

use crate::{Amount, Name};

pub use self::refusal::Refusal;

/// The reason of the condition `QuotaReserved=False` (docs/reference/03-conditions-events.md 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No flavor can ever serve a pod set.
    NoMatchingFlavor,
    /// Quota is used by others.
    WaitingForQuota,
    /// More than the queue could ever have.
    ExceedsMaxQuota,
    /// No topology domain fits.
    TopologyPlacementFailed,
    /// Quota is free, but the flavor's healthy nodes have no room. Ours.
    WaitingForCapacity,
    /// Victims were chosen and have to go first.
    WaitingForPreemptedWorkloads,
    /// Admission is blocked until all admitted pods are ready.
    WaitingForPodsReady,
    /// The workload or its queue is wrong.
    Misconfigured,
    /// Its queue is stopped or inactive.
    Suspended,
    /// Not decided yet.
    PendingEvaluation,
    /// An admission gate is closed.
    AdmissionGated,
    /// Its job is on hold.
    OnHold,
    /// It is deactivated.
    Deactivated,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 13] = [
        Self::NoMatchingFlavor,
        Self::WaitingForQuota,
        Self::ExceedsMaxQuota,
        Self::TopologyPlacementFailed,
        Self::WaitingForCapacity,
        Self::WaitingForPreemptedWorkloads,
        Self::WaitingForPodsReady,
        Self::Misconfigured,
        Self::Suspended,
        Self::PendingEvaluation,
        Self::AdmissionGated,
        Self::OnHold,
        Self::Deactivated,
    ];

    /// The granular reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::NoMatchingFlavor => "NoMatchingFlavor",
            Reason::WaitingForQuota => "WaitingForQuota",
            Reason::ExceedsMaxQuota => "ExceedsMaxQuota",
            Reason::TopologyPlacementFailed => "TopologyPlacementFailed",
            Reason::WaitingForCapacity => "WaitingForCapacity",
            Reason::WaitingForPreemptedWorkloads => "WaitingForPreemptedWorkloads",
            Reason::WaitingForPodsReady => "WaitingForPodsReady",
            Reason::Misconfigured => "Misconfigured",
            Reason::Suspended => "Suspended",
            Reason::PendingEvaluation => "PendingEvaluation",
            Reason::AdmissionGated => "AdmissionGated",
            Reason::OnHold => "OnHold",
            Reason::Deactivated => "Deactivated",
        }
    }

    /// The reason written while the gate UnadmittedWorkloadsObservability is off.
    pub const fn legacy(self) -> &'static str {
        match self {
            Reason::NoMatchingFlavor
            | Reason::WaitingForQuota
            | Reason::ExceedsMaxQuota
            | Reason::TopologyPlacementFailed
            | Reason::WaitingForCapacity
            | Reason::WaitingForPreemptedWorkloads
            | Reason::PendingEvaluation => "Pending",
            Reason::WaitingForPodsReady => "Waiting",
            Reason::Misconfigured | Reason::Suspended => "Inadmissible",
            Reason::AdmissionGated => "AdmissionGated",
            Reason::OnHold => "OnHold",
            Reason::Deactivated => "Deactivated",
        }
    }

    /// The more severe of two reasons of the flavor search.
    pub(crate) fn or_worse(self, other: Self) -> Self {
        if other.severity() > self.severity() { other } else { self }
    }

    /// How severe a reason of the flavor search is (docs/reference/06-algorithm.md 6.6: `TopologyPlacementFailed < WaitingForQuota <
    /// ExceedsMaxQuota < NoMatchingFlavor`).
    pub(crate) const fn severity(self) -> u8 {
        match self {
            Reason::TopologyPlacementFailed | Reason::WaitingForCapacity => 0,
            Reason::WaitingForQuota => 1,
            Reason::ExceedsMaxQuota => 2,
            _ => 3,
        }
    }
}

/// A workload that was not admitted: the reason, the details, and what it asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Unadmitted {
    /// The reason.
    pub reason: Reason,
    /// The exact cause.
    pub detail: Detail,
    /// The total requests per pod set (`status.resourceRequests`), sorted by resource; empty where they do not matter.
    pub requests: PodSetRequests,
}

impl Unadmitted {
    /// Joined with the reasons of the search that this one continued: `None` if either is not about flavors. In a single search (one that is resumed
    /// as a whole) the least severe reason counts, as among flavors that are tried at once; if no flavor was left to try, the earlier reason stays. A
    /// delayed preemption stays in the reasons until the search begins again.
    pub(crate) fn after(&self, before: &Self, single: bool) -> Option<Self> {
        let (pod_sets, earlier) = (self.detail.refused()?, before.detail.refused()?);
        let mut all = pod_sets.clone();
        for old in earlier {
            let Some(now) = all.iter_mut().find(|now| now.name == old.name) else {
                all.push(old.clone());
                continue;
            };
            let again = |refusal: &&Refusal| now.refusals.iter().any(|new| new.is_about_the_same(refusal));
            let kept: Vec<_> = old.refusals.iter().filter(|refusal| !again(refusal)).cloned().collect();
            now.refusals.splice(..0, kept);
        }
        let milder = (single || pod_sets.is_empty()) && before.reason.severity() < self.reason.severity();
        let (reason, detail) = match (&self.detail, &before.detail) {
            (Detail::PreemptionLoop { victim, elsewhere, kind, .. }, _) => {
                let (victim, elsewhere, kind) = (victim.clone(), *elsewhere, *kind);
                (self.reason, Detail::PreemptionLoop { victim, elsewhere, kind, pod_sets: all })
            }
            (_, Detail::PreemptionLoop { victim, elsewhere, kind, .. }) => {
                let (victim, elsewhere, kind) = (victim.clone(), *elsewhere, *kind);
                (before.reason, Detail::PreemptionLoop { victim, elsewhere, kind, pod_sets: all })
            }
            _ => {
                let reason = if milder { before.reason } else { self.reason };
                (reason, Detail::Flavors { pod_sets: all, pending_preemptions: 0 })
            }
        };
        Some(Self { reason, detail, requests: self.requests.clone() })
    }
}

impl Detail {
    /// What prevented each pod set, if flavors were searched without a result.
    fn refused(&self) -> Option<&Vec<PodSetRefusal>> {
        match self {
            Self::Flavors { pod_sets, .. } | Self::PreemptionLoop { pod_sets, .. } => Some(pod_sets),
            _ => None,
        }
    }
}

/// Total requests per pod set: (pod set, (resource, amount)). Shared by all workloads of one shape.
pub type PodSetRequests = Arc<[(Name, Vec<(Name, Amount)>)]>;

/// The exact cause of a failed admission.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// Flavors were tried for each pod set.
    Flavors {
        /// The pod sets that did not simply fit.
        pod_sets: Vec<PodSetRefusal>,
        /// How many workloads were chosen as victims; 0 when there are none.
        pending_preemptions: usize,
    },
    /// An earlier head of the cycle took the capacity.
    NoLongerFits,
    /// An earlier head of the cycle took the same victims.
    OverlappingTargets,
    /// Will fit when the victims of earlier heads are gone.
    DeferredFit,
    /// `blockAdmission`: an admitted workload's pods are not ready.
    WaitingForPodsReady,
    /// The namespace does not match the ClusterQueue's selector.
    NamespaceMismatch,
    /// The workload cannot be admitted: the message.
    Invalid(String),
    /// An admission check is in Retry or Rejected.
    FailedChecks,
    /// The ClusterQueue is not active.
    QueueInactive(Name),
    /// The ClusterQueue does not exist.
    QueueMissing(Name),
    /// Not evaluated: an equivalent workload just failed for the same reason.
    Bypassed,
    /// Ours: the preemption would go round in a circle (gate `PreemptionLoopGuard`).
    PreemptionLoop {
        /// The workload that must not be evicted again.
        victim: crate::WorkloadKey,
        /// Whether it is in another namespace: then neither its name nor that of its ClusterQueue may be shown to users of this one.
        elsewhere: bool,
        /// The kind of the loop.
        kind: LoopKind,
        /// The pod sets that did not simply fit.
        pod_sets: Vec<PodSetRefusal>,
    },
}

/// What the message of [`Detail::PreemptionLoop`] has, and no other.
pub const PREEMPTION_HELD_BACK: &str = "Preemption is held back";

/// How preemption goes round in a circle, while nothing changes outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopKind {
    /// The victim evicted this workload before.
    InReturn,
    /// This workload evicted the victim twice before.
    Repeated,
}

/// What prevented one pod set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSetRefusal {
    /// The pod set.
    pub name: Name,
    /// Each refusal, in the order met.
    pub refusals: Vec<Refusal>,
}

/// What preemption would achieve for one resource of one flavor (docs/reference/06-algorithm.md 6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreemptionPossibility {
    /// No preemption is allowed here: the request exceeds nominal quota, nothing can be reclaimed below the root, and
    /// preemption while borrowing is not configured.
    NotAllowed,
    /// Another resource does not fit in this flavor, whatever is preempted.
    NotConsidered,
    /// Allowed, but no set of victims makes room.
    NoCandidates,
    /// Victims in the own queue make room.
    Preempt,
    /// Victims in other queues make room.
    Reclaim,
}

impl Unadmitted {
    /// The text of the condition, as the reference has it.
    pub fn message(&self) -> String {
        match &self.detail {
            Detail::Flavors { pod_sets, pending_preemptions: 0 } => flavors_message(pod_sets),
            Detail::Flavors { pod_sets, pending_preemptions: n } => {
                format!("{}. Pending the preemption of {n} workload(s)", flavors_message(pod_sets))
            }
            Detail::NoLongerFits => "Workload no longer fits after processing another workload".to_owned(),
            Detail::OverlappingTargets => {
                "Workload has overlapping preemption targets with another workload".to_owned()
            }
            Detail::DeferredFit => {
                "Workload has overlapping preemption targets with another workload, but will fit \
                                    after these preemptions complete"
                    .to_owned()
            }
            Detail::WaitingForPodsReady => {
                "waiting for all admitted workloads to be in PodsReady condition".to_owned()
            }
            Detail::NamespaceMismatch => "workload namespace doesn't match ClusterQueue selector".to_owned(),
            Detail::Invalid(message) => message.clone(),
            Detail::FailedChecks => "The workload has failed admission checks".to_owned(),
            Detail::QueueInactive(name) => format!("ClusterQueue {name} is inactive"),
            Detail::QueueMissing(name) => format!("ClusterQueue {name} not found"),
            Detail::Bypassed => {
                "Bypassed scheduling evaluation because an equivalent workload recently failed".to_owned()
            }
            Detail::PreemptionLoop { victim, elsewhere, kind, pod_sets } => {
                let flavors = flavors_message(pod_sets);
                let victim = if *elsewhere {
                    "a workload of another namespace".to_owned()
                } else {
                    victim.to_string()
                };
                let why = match kind {
                    LoopKind::InReturn => "which preempted this workload",
                    LoopKind::Repeated => "which this workload preempted twice",
                };
                format!(
                    "{flavors}. {PREEMPTION_HELD_BACK}: it would evict {victim}, {why}, and nothing changed since"
                )
            }
        }
    }
}

/// "couldn't assign flavors to pod set NAME: reason1, reason2", pod sets joined by "; ", reasons sorted.
fn flavors_message(pod_sets: &[PodSetRefusal]) -> String {
    let mut text = String::new();
    for (at, pod_set) in pod_sets.iter().enumerate() {
        if at > 0 {
            text.push_str("; ");
        }
        let mut reasons: Vec<String> = pod_set.refusals.iter().map(ToString::to_string).collect();
        reasons.sort_unstable();
        let _ = write!(text, "couldn't assign flavors to pod set {}: {}", pod_set.name, reasons.join(", "));
    }
    text
}

#[cfg(test)]
mod tests;
