//! What one placement is asked for, and what comes of it.

use smallvec::SmallVec;

use crate::Name;
use crate::intern::{PlaceId, ResourceId};
use crate::topology::spec::{SharedAssignment, SliceMoves, TopologyRequest};
use crate::workload::PodSetSpec;

/// The pod sets that are placed together: one, or a group of two of which the smaller one is the leader with one pod.
#[derive(Debug)]
pub(crate) struct PlacementRequest<'a> {
    pub(crate) pod_sets: SmallVec<[PodSetToPlace<'a>; 2]>,
    /// As if no workload used anything; what other pods use counts.
    pub(crate) empty: bool,
    /// The usage of earlier pod sets of the same workload.
    pub(crate) assumed: &'a [PlacedPods],
    /// Nodes that may not be used.
    pub(crate) lost: &'a [Name],
    /// Whether slices may move if there is no other node for the pods of a lost one.
    pub(crate) slice_moves: &'a SliceMoves,
}

/// One pod set to be placed.
#[derive(Debug)]
pub(crate) struct PodSetToPlace<'a> {
    /// Selectors, affinity and tolerations are taken from here.
    pub(crate) spec: &'a PodSetSpec,
    /// Its request; `None` means any nodes, like `unconstrained`.
    pub(crate) request: Option<&'a TopologyRequest>,
    /// The usage of a node by each pod, without `pods`: every pod uses one. cpu in milli-CPU.
    pub(crate) per_pod: &'a [(ResourceId, i64)],
    /// How many pods.
    pub(crate) count: i64,
    /// With lost nodes: where its pods are now; they stay except those on lost nodes (docs/reference/06-algorithm.md 6.14), and count as used all the
    /// time. Without: where the pods of the replaced slice are (docs/reference/06-algorithm.md 6.12 "Elastic"); they must not count as used.
    pub(crate) previous: Option<&'a SharedAssignment>,
    /// With lost nodes: where the pods of the other pod set of its group are. If none of its own stay, it stays with those.
    pub(crate) beside: Option<&'a SharedAssignment>,
}

impl<'a> PodSetToPlace<'a> {
    /// A pod set of which no pods are anywhere yet.
    pub(crate) fn alone(
        spec: &'a PodSetSpec,
        request: Option<&'a TopologyRequest>,
        per_pod: &'a [(ResourceId, i64)],
        count: i64,
    ) -> Self {
        Self { spec, request, per_pod, count, previous: None, beside: None }
    }
}

/// Pods in places: the usage of the nodes of one flavor by a workload, or by an earlier pod set of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PlacedPods {
    /// The places, and how many pods each takes.
    pub(crate) places: Vec<(PlaceId, i64)>,
    /// The usage of each pod, without `pods`.
    pub(crate) per_pod: SmallVec<[(ResourceId, i64); 2]>,
}

impl PlacedPods {
    /// The pods that are elsewhere in the other assignment of the same pods: at each place as many as are missing there.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let has =
            |place| other.places.iter().filter(|(at, _)| *at == place).map(|(_, count)| count).sum::<i64>();
        let places = self.places.iter().map(|&(place, count)| (place, count.saturating_sub(has(place))));
        Self { places: places.filter(|(_, count)| *count > 0).collect(), per_pod: self.per_pod.clone() }
    }
}

/// The placement of one pod set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodSetPlacement {
    /// As the API has it.
    pub(crate) assignment: SharedAssignment,
    /// The same by id, with the usage of each pod.
    pub(crate) pods: PlacedPods,
    /// With lost nodes: those of them that go to other nodes. All others are counted as used already.
    pub(crate) moved: Option<PlacedPods>,
}

impl PodSetPlacement {
    /// What is used besides all that was before.
    pub(crate) fn taken(&self) -> &PlacedPods {
        self.moved.as_ref().unwrap_or(&self.pods)
    }
}

/// The places of the pod sets of one request, in its order.
pub(crate) type Placement = SmallVec<[PodSetPlacement; 2]>;

/// Why there is no placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementFailure {
    /// The Topology's name.
    pub topology: Name,
    /// How many pods or slices fit, of how many.
    pub fit: PlacementFit,
    /// Why nodes were left out.
    pub excluded: Exclusions,
}

/// How much of a request fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacementFit {
    /// This number of pods out of all, in the domain with most room.
    Pods {
        /// How many fit.
        fit: i64,
        /// How many are asked for.
        wanted: i64,
    },
    /// This number of slices out of all.
    Slices {
        /// How many fit.
        fit: i64,
        /// How many are asked for.
        wanted: i64,
    },
    /// With layers of slices: for each layer (level, how many fit, how many are asked for).
    Layers(Vec<(Name, i64, i64)>),
    /// Pods that have to stay, or a lost node, make it impossible: the message.
    Other(String),
    /// There is no other node for the pods of a lost node, and their slice could not move either, if slices may ([`SliceMoves`]).
    Unmoved(Box<UnmovedSlice>),
}

/// Pods of a lost node for which there is no other node, and whose slice cannot move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmovedSlice {
    /// How many of the pods of the lost node fit.
    pub fit: PlacementFit,
    /// Why the slice cannot move.
    pub why: Box<str>,
}

impl PlacementFailure {
    /// Why the slice that lost a node could not move either, where slices may.
    pub(crate) fn slice(&self) -> Option<&str> {
        if let PlacementFit::Unmoved(slice) = &self.fit { Some(&slice.why) } else { None }
    }
}

/// How many nodes were left out, by why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exclusions {
    /// All nodes of the flavor; 0: nothing is said about them.
    pub nodes: u32,
    /// Required node affinity does not match.
    pub affinity: u32,
    /// The node selector does not match.
    pub node_selector: u32,
    /// A resource has no room for one pod: (resource, nodes), sorted.
    pub resources: Vec<(Name, u32)>,
    /// A taint is not tolerated: (`key=value:effect`, nodes), sorted.
    pub taints: Vec<(String, u32)>,
    /// The domain was not to be used.
    pub domain: u32,
}
