//! Topology in the flavor search: which flavors a pod set may use, and whether its pods get nodes in the assigned flavors
//! (docs/reference/06-algorithm.md 6.11).

use smallvec::SmallVec;

use super::assignment::{Assignment, FlavorAttempt, Mode};
use crate::Name;
use crate::intern::FlavorId;
use crate::placement::{self, GroupToPlace, MemberToPlace, Unplaced, WorkloadToPlace};
use crate::plan::{Plan, PlanGroup};
use crate::reason::{Reason, Refusal};
use crate::report::FlavorMode;
use crate::spec::CheckController;
use crate::topology::PlacedPods;
use crate::view::{Head, View};
use crate::workload::PodSetSpec;
use crate::workloads::PodSetNodes;

/// Where a pod set's pods go.
enum Nodes {
    /// None of its flavors has a topology.
    None,
    Placed(FlavorId),
    /// Once its checks are ready.
    Delayed(FlavorId),
}

/// The pods of an assignment to place, and those to place only once the checks are ready; or the position of the group whose flavors exclude each
/// other, and why.
pub(crate) fn to_place<'a>(
    view: &View<'a>,
    head: &Head,
    plan: &Plan,
    assignment: &Assignment,
) -> Result<(WorkloadToPlace<'a>, Vec<PodSetNodes>), (usize, Refusal)> {
    let shape = view.workload(head.workload).shape;
    let mut to_place = WorkloadToPlace {
        pod_sets: pod_sets(view, head),
        shape: Some(&**view.world.shapes.get(shape)),
        ..WorkloadToPlace::default()
    };
    let mut delayed = Vec::new();
    if !uses_topology(view, head, assignment) {
        return Ok((to_place, delayed));
    }
    for (at, group) in plan.groups.iter().enumerate() {
        match nodes_of(view, head, group, assignment).map_err(|refusal| (at, refusal))? {
            Nodes::None => {}
            Nodes::Placed(flavor) => {
                let member = |&pod_set: &usize| {
                    let previous = previous(view, pod_set);
                    MemberToPlace { pod_set, count: assignment.count(pod_set), previous, beside: None }
                };
                let members: SmallVec<[_; 2]> =
                    group.members.iter().map(member).filter(|member| member.count > 0).collect();
                if !members.is_empty() {
                    to_place.groups.push(GroupToPlace { flavor, members });
                }
            }
            Nodes::Delayed(flavor) => delayed.extend(group.members.iter().map(|&pod_set| PodSetNodes {
                pod_set,
                flavor,
                count: assignment.count(pod_set),
                assignment: None,
                pods: PlacedPods::default(),
            })),
        }
    }
    Ok((to_place, delayed))
}

/// Whether any flavor of an assignment has a topology, or any pod set asks for one.
fn uses_topology(view: &View<'_>, head: &Head, assignment: &Assignment) -> bool {
    assignment.flavors.iter().any(|assigned| has_topology(view, assigned.flavor))
        || pod_sets(view, head).iter().any(|pod_set| pod_set.topology.is_some())
}

fn pod_sets<'a>(view: &View<'a>, head: &Head) -> &'a [PodSetSpec] {
    view.world.shapes.pod_sets(view.workload(head.workload).shape)
}

fn has_topology(view: &View<'_>, flavor: FlavorId) -> bool {
    let spec = view.world.flavors.get(flavor.at()).and_then(Option::as_ref);
    spec.is_some_and(|spec| spec.topology.is_some())
}

/// The only flavor with a topology that the pod sets of a group have. If they ask for one, they must have it.
fn nodes_of(
    view: &View<'_>,
    head: &Head,
    group: &PlanGroup,
    assignment: &Assignment,
) -> Result<Nodes, Refusal> {
    let of_group = assignment.flavors.iter().filter(|assigned| group.members.contains(&assigned.pod_set));
    let mut flavors: SmallVec<[FlavorId; 2]> =
        of_group.map(|assigned| assigned.flavor).filter(|&flavor| has_topology(view, flavor)).collect();
    flavors.sort_unstable();
    flavors.dedup();
    match flavors[..] {
        [] => {
            let pod_sets = pod_sets(view, head);
            let asks = |&at: &usize| pod_sets[at].topology.is_some() && assignment.count(at) > 0;
            if group.members.iter().any(asks) { Err(Refusal::NoTopology) } else { Ok(Nodes::None) }
        }
        [flavor] if is_delayed(view, head, flavor) => Ok(Nodes::Delayed(flavor)),
        [flavor] => Ok(Nodes::Placed(flavor)),
        _ => {
            let mut names: Vec<Name> =
                flavors.iter().map(|&flavor| view.world.names.flavor_name(flavor).clone()).collect();
            names.sort();
            Err(Refusal::SeveralTopologies { flavors: names })
        }
    }
}

/// Nodes are looked for only once another cluster or an autoscaler has answered.
fn is_delayed(view: &View<'_>, head: &Head, flavor: FlavorId) -> bool {
    let rules = view.queue(head.queue).spec.iter().flat_map(|spec| &spec.admission_checks);
    rules.into_iter().any(|rule| match view.world.checks.get(&rule.name).map(|check| check.controller) {
        Some(CheckController::MultiKueue) => true,
        Some(CheckController::ProvisioningRequest) => {
            rule.on_flavors.is_empty() || rule.on_flavors.contains(view.world.names.flavor_name(flavor))
        }
        _ => false,
    })
}

/// Where the pods of the slice are that the head takes over from.
fn previous(view: &View<'_>, pod_set: usize) -> Option<crate::topology::SharedAssignment> {
    if !view.world.config.gates.elastic_jobs_via_workload_slices_with_tas {
        return None;
    }
    let reservation = view.workload(view.replaced?).reservation()?;
    let nodes = reservation.topology.as_ref()?.pod_sets.iter().find(|nodes| nodes.pod_set == pod_set)?;
    nodes.assignment.clone()
}

/// Looks for nodes in the assigned flavors. If nodes are short, they may be found after preemption, or never if even empty nodes are not enough.
pub(super) fn place(view: &mut View<'_>, head: &Head, plan: &Plan, assignment: &mut Assignment) {
    if assignment.mode == Mode::NoFit || !uses_topology(view, head, assignment) {
        return;
    }
    let (to_place, delayed) = match to_place(view, head, plan, assignment) {
        Ok(found) => found,
        Err((group, refusal)) => {
            refuse(assignment, group, None, FlavorMode::NoFit, refusal);
            assignment.mode = Mode::NoFit;
            return;
        }
    };
    assignment.nodes = delayed;
    if to_place.groups.is_empty() {
        return;
    }
    if assignment.mode == Mode::Fit {
        match placement::place(view, &to_place, false) {
            Ok(nodes) => {
                assignment.nodes.extend(nodes);
                return;
            }
            Err(unplaced) => {
                note(view, plan, assignment, FlavorMode::Preempt, (&to_place, &unplaced));
                assignment.mode = Mode::Preempt;
            }
        }
    }
    match placement::place(view, &to_place, true) {
        Ok(nodes) => {
            let placed = |pod_set| nodes.iter().any(|of| of.pod_set == pod_set);
            for assigned in assignment.flavors.iter_mut().filter(|assigned| placed(assigned.pod_set)) {
                assigned.mode = assigned.mode.min(FlavorMode::Preempt);
            }
            assignment.nodes.extend(nodes);
        }
        Err(unplaced) => {
            assignment.attempts.retain(|attempt| !attempt.is_about_nodes());
            note(view, plan, assignment, FlavorMode::NoFit, (&to_place, &unplaced));
            assignment.mode = Mode::NoFit;
        }
    }
}

/// Notes why a group gets no nodes.
fn note(
    view: &View<'_>,
    plan: &Plan,
    assignment: &mut Assignment,
    mode: FlavorMode,
    (to_place, unplaced): (&WorkloadToPlace<'_>, &Unplaced),
) {
    let (group, flavor_name) =
        (&to_place.groups[unplaced.group], |id| view.world.names.flavor_name(id).clone());
    let first = group.members.first().map_or(0, |member| member.pod_set);
    let at = plan.groups.iter().position(|of| of.members.contains(&first)).unwrap_or(0);
    let refusal = Refusal::NoPlacement {
        flavor: flavor_name(group.flavor),
        failure: unplaced.failure.clone().into(),
        placed: to_place.groups[..unplaced.group]
            .iter()
            .flat_map(|of| of.members.iter().map(|member| (member.pod_set, of.flavor)))
            .map(|(pod_set, flavor)| (to_place.pod_sets[pod_set].name.clone(), flavor_name(flavor)))
            .collect(),
    };
    refuse(assignment, at, Some(group.flavor), mode, refusal);
}

fn refuse(
    assignment: &mut Assignment,
    group: usize,
    flavor: Option<FlavorId>,
    mode: FlavorMode,
    refusal: Refusal,
) {
    assignment.attempts.push(FlavorAttempt {
        group,
        block: FlavorAttempt::NODES,
        flavor,
        mode,
        height: 0,
        refusals: SmallVec::from_iter([refusal]),
        reason: Reason::TopologyPlacementFailed,
        counts: true,
    });
}
