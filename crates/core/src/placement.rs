//! Nodes for the pods of a workload: what has to be placed, and the placement of all of it (docs/reference/06-algorithm.md 6.12).

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::Name;
use crate::intern::FlavorId;
use crate::shape::Shape;
use crate::topology::{
    PlacedPods, Placement, PlacementFailure, PlacementRequest, PodSetToPlace, SharedAssignment, SliceMoves,
};
use crate::view::View;
use crate::workload::PodSetSpec;
use crate::workloads::PodSetNodes;

/// All pods to place of one workload.
#[derive(Debug, Default)]
pub(crate) struct WorkloadToPlace<'a> {
    /// Of the workload's shape.
    pub(crate) pod_sets: &'a [PodSetSpec],
    pub(crate) shape: Option<&'a Shape>,
    /// Placed one after the other.
    pub(crate) groups: Vec<GroupToPlace>,
    /// Nodes that may not be used.
    pub(crate) lost: &'a [Name],
    /// Whether slices may move.
    pub(crate) slice_moves: SliceMoves,
}

/// Pod sets that are placed together.
#[derive(Debug)]
pub(crate) struct GroupToPlace {
    pub(crate) flavor: FlavorId,
    pub(crate) members: SmallVec<[MemberToPlace; 2]>,
}

/// One pod set of a group.
#[derive(Debug)]
pub(crate) struct MemberToPlace {
    /// The place of the pod set in its workload.
    pub(crate) pod_set: usize,
    /// How many pods.
    pub(crate) count: i64,
    /// Where its pods are, if some have to stay.
    pub(crate) previous: Option<SharedAssignment>,
    /// Where the pods of the other pod set of its group are.
    pub(crate) beside: Option<SharedAssignment>,
}

/// Pod sets in the groups in which they are placed, each with its flavor; without those that have no pods.
pub(crate) fn grouped(
    pod_sets: impl Iterator<Item = (FlavorId, MemberToPlace)>,
    specs: &[PodSetSpec],
) -> Vec<GroupToPlace> {
    let mut groups: Vec<GroupToPlace> = Vec::new();
    let mut by_name: BTreeMap<&Name, usize> = BTreeMap::new();
    for (flavor, member) in pod_sets.filter(|(_, member)| member.count > 0) {
        let name = specs.get(member.pod_set).and_then(|spec| spec.group.as_ref());
        if let Some(&at) = name.and_then(|name| by_name.get(name)) {
            groups[at].members.push(member);
        } else {
            by_name.extend(name.map(|name| (name, groups.len())));
            groups.push(GroupToPlace { flavor, members: SmallVec::from_iter([member]) });
        }
    }
    groups
}

/// The pods that could not be placed.
#[derive(Debug)]
pub(crate) struct Unplaced {
    /// The place of the group among those to place.
    pub(crate) group: usize,
    pub(crate) failure: PlacementFailure,
}

/// Places everything, or nothing. `empty`: as if no workload used any node.
pub(crate) fn place(
    view: &mut View<'_>,
    to_place: &WorkloadToPlace<'_>,
    empty: bool,
) -> Result<Vec<PodSetNodes>, Unplaced> {
    let View { world, nodes, stats, .. } = view;
    place_groups(to_place, empty, |flavor, request| {
        stats.placements += 1;
        world.topology.place(nodes, flavor, request, &world.names, &world.config)
    })
}

/// The same with the placement of one group's pod sets.
pub(crate) fn place_groups(
    to_place: &WorkloadToPlace<'_>,
    empty: bool,
    mut place: impl FnMut(FlavorId, &PlacementRequest<'_>) -> Result<Placement, PlacementFailure>,
) -> Result<Vec<PodSetNodes>, Unplaced> {
    let mut placed: Vec<PodSetNodes> = Vec::new();
    let mut assumed: Vec<PlacedPods> = Vec::new();
    let Some(shape) = to_place.shape else { return Ok(placed) };
    for (at, group) in to_place.groups.iter().enumerate() {
        let pod_sets = group.members.iter().map(|member| PodSetToPlace {
            spec: &to_place.pod_sets[member.pod_set],
            request: to_place.pod_sets[member.pod_set].topology.as_ref(),
            per_pod: &shape.pod_sets[member.pod_set].node_requests,
            count: member.count,
            previous: member.previous.as_ref(),
            beside: member.beside.as_ref(),
        });
        let request = PlacementRequest {
            pod_sets: pod_sets.collect(),
            empty,
            assumed: &assumed,
            lost: to_place.lost,
            slice_moves: &to_place.slice_moves,
        };
        let found = place(group.flavor, &request);
        drop(request);
        let found = found.map_err(|failure| Unplaced { group: at, failure })?;
        for (member, placement) in group.members.iter().zip(found) {
            if at + 1 < to_place.groups.len() {
                assumed.push(placement.taken().clone());
            }
            placed.push(PodSetNodes {
                pod_set: member.pod_set,
                flavor: group.flavor,
                count: member.count,
                assignment: Some(placement.assignment),
                pods: placement.pods,
            });
        }
    }
    Ok(placed)
}
