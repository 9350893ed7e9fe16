//! The parts of the engine that can be turned off one by one, so that another program does their work.
//!
//! A part that is off still sees and keeps everything; only its writes and its events are left out.

use crate::input::Kind;

/// A part that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Workloads: activity, priority, checks, stopped queues, timeouts, retention, orphans.
    Workload,
    /// Status and finalizers of ClusterQueues.
    ClusterQueue,
    /// Status of LocalQueues.
    LocalQueue,
    /// Status of Cohorts.
    Cohort,
    /// Finalizers of ResourceFlavors.
    ResourceFlavor,
    /// Finalizers of AdmissionChecks.
    AdmissionCheck,
    /// Finalizers of Topologies.
    Topology,
    /// Pods that cannot end on lost nodes (gate FailureRecoveryPolicy).
    PodTermination,
}

impl Part {
    /// Every part.
    pub const ALL: [Self; 8] = [
        Self::Workload,
        Self::ClusterQueue,
        Self::LocalQueue,
        Self::Cohort,
        Self::ResourceFlavor,
        Self::AdmissionCheck,
        Self::Topology,
        Self::PodTermination,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::ClusterQueue => "clusterqueue",
            Self::LocalQueue => "localqueue",
            Self::Cohort => "cohort",
            Self::ResourceFlavor => "flavor",
            Self::AdmissionCheck => "check",
            Self::Topology => "topology",
            Self::PodTermination => "pod-termination",
        }
    }

    /// The part that maintains status and finalizers of a kind.
    pub(crate) const fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::ClusterQueue => Some(Self::ClusterQueue),
            Kind::LocalQueue => Some(Self::LocalQueue),
            Kind::Cohort => Some(Self::Cohort),
            Kind::ResourceFlavor => Some(Self::ResourceFlavor),
            Kind::AdmissionCheck => Some(Self::AdmissionCheck),
            Kind::Topology => Some(Self::Topology),
            Kind::Pod => Some(Self::PodTermination),
            _ => None,
        }
    }
}
