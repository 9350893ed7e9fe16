//! One refusal of a flavor or resource.

use std::fmt::{self, Display};
use std::sync::Arc;

use sluice_quantity::quantity_of;

use super::PreemptionPossibility;
use crate::spec::Taint;
use crate::topology::PlacementFailure;
use crate::{Amount, Name};

/// One refusal: a resource or flavor, and the rule that refused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The ClusterQueue does not cover the resource.
    ResourceUnavailable {
        /// The resource.
        resource: Name,
        /// How much was asked for.
        needed: Amount,
    },
    /// The ResourceFlavor does not exist.
    FlavorNotFound {
        /// The flavor.
        flavor: Name,
    },
    /// The flavor has a taint that is not tolerated.
    UntoleratedTaint {
        /// The flavor.
        flavor: Name,
        /// The taint.
        taint: Taint,
    },
    /// The flavor's labels do not match node selector or affinity.
    NodeAffinity {
        /// The flavor.
        flavor: Name,
    },
    /// The replaced slice of the elastic job has another flavor (docs/reference/06-algorithm.md 6.26).
    OtherFlavor {
        /// The flavor.
        flavor: Name,
        /// The flavor of the slice.
        assigned: Name,
    },
    /// More than the queue could ever have.
    ExceedsMaxQuota {
        /// The flavor.
        flavor: Name,
        /// The resource.
        resource: Name,
        /// Usage by pod sets considered before.
        previous: Amount,
        /// The request of this pod set.
        needed: Amount,
        /// The most that the queue could have, with everything that it may borrow.
        max: Amount,
    },
    /// Others use the quota.
    InsufficientQuota {
        /// The flavor.
        flavor: Name,
        /// The resource.
        resource: Name,
        /// Needed by this and earlier pod sets.
        needed: Amount,
        /// Available now.
        free: Amount,
        /// Missing.
        missing: Amount,
        /// The queue's own nominal quota.
        nominal: Amount,
        /// How much it may borrow beyond that.
        borrowable: Amount,
        /// What preemption for this resource alone would achieve.
        preemption: PreemptionPossibility,
    },
    /// A topology is requested, and the flavor has none.
    WithoutTopology {
        /// The flavor.
        flavor: Name,
    },
    /// The flavor's Topology is not known.
    TopologyUnknown {
        /// The flavor.
        flavor: Name,
    },
    /// The flavor's topology has no such level.
    LevelMissing {
        /// The flavor.
        flavor: Name,
    },
    /// The flavor has a topology, and none is requested.
    OnlyTopology {
        /// The flavor.
        flavor: Name,
    },
    /// The flavor has a topology, and nothing holds the pods back until they have their nodes. Ours.
    Ungated {
        /// The flavor.
        flavor: Name,
    },
    /// The resources of the pod set have several flavors with a topology.
    SeveralTopologies {
        /// The flavors.
        flavors: Vec<Name>,
    },
    /// The pod set asks for nodes by topology, and none of its resources has a flavor with one.
    NoTopology,
    /// Quota is free or may become so, but the nodes have no place for the pods.
    NoPlacement {
        /// The flavor.
        flavor: Name,
        /// Why they were not placed.
        failure: Arc<PlacementFailure>,
        /// The pod sets of the workload that got nodes before them, and their flavors: what these take is not free.
        placed: Vec<(Name, Name)>,
    },
    /// Quota is free, but the flavor's healthy nodes have no room. Ours.
    InsufficientCapacity {
        /// The flavor.
        flavor: Name,
        /// The resource.
        resource: Name,
        /// Needed by this and earlier pod sets.
        needed: Amount,
        /// What is free for it on the nodes.
        free: Amount,
        /// Missing.
        missing: Amount,
    },
}

impl Refusal {
    /// Whether both refuse the same flavor (or none), for the same resource (or for all).
    pub(super) fn is_about_the_same(&self, other: &Self) -> bool {
        self.about() == other.about()
    }

    fn about(&self) -> (Option<&Name>, Option<&Name>) {
        match self {
            Self::ResourceUnavailable { resource, .. } => (None, Some(resource)),
            Self::FlavorNotFound { flavor }
            | Self::UntoleratedTaint { flavor, .. }
            | Self::NodeAffinity { flavor }
            | Self::WithoutTopology { flavor }
            | Self::TopologyUnknown { flavor }
            | Self::LevelMissing { flavor }
            | Self::OnlyTopology { flavor }
            | Self::Ungated { flavor }
            | Self::NoPlacement { flavor, .. }
            | Self::OtherFlavor { flavor, .. } => (Some(flavor), None),
            Self::SeveralTopologies { .. } | Self::NoTopology => (None, None),
            Self::ExceedsMaxQuota { flavor, resource, .. }
            | Self::InsufficientQuota { flavor, resource, .. }
            | Self::InsufficientCapacity { flavor, resource, .. } => (Some(flavor), Some(resource)),
        }
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::ResourceUnavailable { resource, .. } => {
                write!(f, "resource {resource} unavailable in ClusterQueue")
            }
            Refusal::FlavorNotFound { flavor } => write!(f, "flavor {flavor} not found"),
            Refusal::UntoleratedTaint { flavor, taint } => {
                write!(f, "untolerated taint {taint} in flavor {flavor}")
            }
            Refusal::NodeAffinity { flavor } => write!(f, "flavor {flavor} doesn't match node affinity"),
            Refusal::OtherFlavor { flavor, assigned } => write!(
                f,
                "could not assign {flavor} flavor since the original workload is assigned: {assigned}"
            ),
            Refusal::ExceedsMaxQuota { flavor, resource, previous, needed, max } => write!(
                f,
                "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({}) + \
                 current podset request ({}) > maximum capacity ({})",
                quantity_of(resource, *previous),
                quantity_of(resource, *needed),
                quantity_of(resource, *max),
            ),
            Refusal::InsufficientQuota { flavor, resource, missing, .. } => write!(
                f,
                "insufficient unused quota for {resource} in flavor {flavor}, {} more needed",
                quantity_of(resource, *missing)
            ),
            Refusal::WithoutTopology { flavor } => {
                write!(f, "Flavor \"{flavor}\" does not support TopologyAwareScheduling")
            }
            Refusal::TopologyUnknown { flavor } => {
                write!(f, "Flavor \"{flavor}\" information missing in TAS cache")
            }
            Refusal::LevelMissing { flavor } => {
                write!(f, "Flavor \"{flavor}\" does not contain the requested level")
            }
            Refusal::OnlyTopology { flavor } => {
                write!(f, "Flavor \"{flavor}\" supports only TopologyAwareScheduling")
            }
            Refusal::Ungated { flavor } => write!(
                f,
                "Flavor \"{flavor}\" supports only TopologyAwareScheduling, and no scheduling gate can hold the pods back"
            ),
            Refusal::SeveralTopologies { flavors } => {
                write!(f, "more than one flavor assigned: {}", flavors.join(", "))
            }
            Refusal::NoTopology => f.write_str("no TAS flavor assigned"),
            Refusal::NoPlacement { failure, .. } => f.write_str(&failure.message()),
            Refusal::InsufficientCapacity { flavor, resource, missing, .. } => write!(
                f,
                "insufficient capacity of healthy nodes for {resource} in flavor {flavor}, {} more needed",
                quantity_of(resource, *missing)
            ),
        }
    }
}

/// A taint as Kubernetes' Go code prints the struct, which is what the reference's message contains.
impl Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} {} {} <nil>}}", self.key, self.value, self.effect.as_str())
    }
}
