//! Topologies, nodes, topology requests and assignments as input of the core (docs/reference/06-algorithm.md 6.11–6.15, 6.21).

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sluice_api::conversion::topology::{self, TopologyError};
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::slim;
use sluice_api::v1beta2::{self, CheckState, DelayedTopologyRequestState, WorkloadStatus};
use sluice_core::{
    Amount, AssignedDomain, Name, NodeSpec, RequestedLevel, SharedAssignment, SliceLayer, SliceMoves,
    TopologyAssignment, TopologyRequest, TopologySpec, TopologyState,
};

use super::name;
use super::requests::{Surroundings, per_pod};
use super::scheduling::{pairs, taints};
use super::workload::reserved;
use crate::config::{EngineConfig, ResourceConfig};
use crate::hotswap::pod::Allocatable;

/// A Topology.
pub(crate) fn spec(topology: &v1beta2::Topology) -> TopologySpec {
    TopologySpec {
        name: name(topology.metadata.name.as_deref().unwrap_or_default()),
        levels: topology.spec.levels.iter().map(|level| name(&level.node_label)).collect(),
    }
}

/// A Node, with what it has for pods.
pub(crate) fn node(node: &slim::Node, allocatable: &Allocatable) -> NodeSpec {
    let amount = |amount: i128| Amount(i64::try_from(amount).unwrap_or(i64::MAX));
    NodeSpec {
        name: name(node.metadata.name.as_deref().unwrap_or_default()),
        labels: node.metadata.labels.as_ref().map(pairs).unwrap_or_default(),
        taints: taints(&node.taints),
        allocatable: allocatable.iter().map(|(resource, is)| (Name::clone(resource), amount(*is))).collect(),
        usable: is_usable(node),
    }
}

/// Whether a Node takes pods.
pub(crate) fn is_usable(node: &slim::Node) -> bool {
    node.ready == Some(true) && !node.unschedulable
}

/// What a pod set requests of a topology, if it requests anything. Labels of indices alone request nothing.
pub(crate) fn request(set: &slim::PodSet, config: &EngineConfig) -> Option<TopologyRequest> {
    let api = set.topology_request.as_deref().filter(|_| config.on(Gate::TopologyAwareScheduling))?;
    if !api.is_explicit() {
        return None;
    }
    let level = match (&api.required, &api.preferred) {
        (Some(level), _) => RequestedLevel::Required(name(level)),
        (None, Some(level)) => RequestedLevel::Preferred(name(level)),
        (None, None) => RequestedLevel::Unconstrained,
    };
    let layer = |level: &str, size: i32| SliceLayer { level: name(level), size: size.into() };
    let layers = api.podset_slice_required_topology_constraints.iter();
    let layers = layers.filter(|_| config.on(Gate::TASMultiLayerTopology));
    let mut slices: Vec<SliceLayer> = layers.map(|one| layer(&one.topology, one.size)).collect();
    if slices.is_empty()
        && let Some(level) = &api.pod_set_slice_required_topology
    {
        slices.push(layer(level, api.pod_set_slice_size.unwrap_or(0)));
    }
    Some(TopologyRequest { level, slices })
}

/// The pod sets of a Workload whose pods no gate can hold back until they have their nodes: by the declaration of the kind of its job.
pub(crate) fn ungated(object: &slim::Workload) -> &'static [&'static str] {
    let mut owners = object.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    let declared = |owner: &OwnerReference| {
        let mut declared = JobKind::all().iter().filter(|kind| kind.is_declared());
        declared.find(|kind| kind.is_named_by(&owner.api_version, &owner.kind))
    };
    controller.and_then(declared).map_or(&[], |kind| kind.integration().ungated)
}

/// The pod sets that get the same flavors, and are placed together.
pub(crate) fn group(set: &slim::PodSet, config: &EngineConfig) -> Option<Name> {
    let api = set.topology_request.as_deref().filter(|_| config.on(Gate::TopologyAwareScheduling))?;
    api.pod_set_group_name.as_deref().map(name)
}

/// What each pod uses of its node, if that differs from `requests`: without what counts for quotas only.
pub(crate) fn node_requests(
    set: &slim::PodSet,
    requests: &[(Name, Amount)],
    around: Surroundings<'_>,
    config: &EngineConfig,
) -> Option<Vec<(Name, Amount)>> {
    if !config.on(Gate::TopologyAwareScheduling) {
        return None;
    }
    let plain = ResourceConfig::default();
    if *around.resources == plain {
        return None;
    }
    let (own, _) = per_pod(&set.template, "", Surroundings { resources: &plain, ..around });
    (own != requests).then_some(own)
}

/// The assignments of all pod sets, by position.
fn assigned(status: &WorkloadStatus) -> impl Iterator<Item = Option<&v1beta2::TopologyAssignment>> {
    let sets = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    sets.map(|set| set.topology_assignment.as_ref())
}

/// Whether the pods of two states of a Workload are assigned to the same domains.
pub(crate) fn same_assignments(a: &slim::Workload, b: &slim::Workload) -> bool {
    let counts =
        |object: &slim::Workload| -> Vec<i32> { object.spec.pod_sets.iter().map(|set| set.count).collect() };
    assigned(&a.status).eq(assigned(&b.status))
        && (assigned(&a.status).all(|api| api.is_none()) || counts(a) == counts(b))
}

/// The assignments of all pod sets, by position, and what is wrong with the first that cannot be read: it is taken for none.
pub(crate) fn assignments(object: &slim::Workload) -> (Vec<Option<SharedAssignment>>, Option<String>) {
    let status = &object.status;
    if assigned(status).all(|api| api.is_none()) {
        return (Vec::new(), None);
    }
    let mut left = topology::MAX_DOMAINS;
    let mut wrong = None;
    let read = |(at, api): (usize, Option<&v1beta2::TopologyAssignment>)| {
        let most = object.spec.pod_sets.get(at).map_or(i64::MAX, |set| set.count.into());
        match assignment(api?, &mut left) {
            Ok(assignment) => Some(at_most(assignment, most)),
            Err(why) => {
                wrong.get_or_insert(why);
                None
            }
        }
    };
    (assigned(status).enumerate().map(read).collect(), wrong)
}

/// An assignment cut to this number of pods: a slice that became smaller gives up its last domains (docs/reference/06-algorithm.md 6.21).
fn at_most(assignment: SharedAssignment, most: i64) -> SharedAssignment {
    let total = assignment.domains.iter().fold(0, |total: i64, domain| total.saturating_add(domain.count));
    if total <= most {
        return assignment;
    }
    let mut left = most.max(0);
    let mut fewer = TopologyAssignment::clone(&assignment);
    for domain in &mut fewer.domains {
        domain.count = domain.count.min(left);
        left -= domain.count;
    }
    fewer.domains.retain(|domain| domain.count > 0);
    Arc::new(fewer)
}

/// An assignment; its domains are subtracted from `left`.
fn assignment(api: &v1beta2::TopologyAssignment, left: &mut usize) -> Result<SharedAssignment, String> {
    let rows = topology::decode(api).map_err(|error| error.to_string())?;
    *left = left.checked_sub(rows.domains.len()).ok_or_else(|| TopologyError::TooLarge.to_string())?;
    if let Some(row) = rows.domains.iter().find(|row| row.count < 0) {
        return Err(format!("{} pods in a domain", row.count));
    }
    let domain = |row: sluice_api::v1beta1::TopologyDomainAssignment| AssignedDomain {
        values: row.values.iter().map(|value| name(value)).collect(),
        count: row.count.into(),
    };
    Ok(Arc::new(TopologyAssignment {
        levels: rows.levels.iter().map(|level| name(level)).collect(),
        domains: rows.domains.into_iter().map(domain).collect(),
    }))
}

/// An assignment as the API has it. `by_prefix`: gate TASAssignmentsEncodingByHostnamePrefix.
pub(crate) fn written(
    assignment: &TopologyAssignment,
    by_prefix: bool,
) -> Option<v1beta2::TopologyAssignment> {
    let row = |domain: &AssignedDomain| sluice_api::v1beta1::TopologyDomainAssignment {
        values: domain.values.iter().map(ToString::to_string).collect(),
        count: i32::try_from(domain.count).unwrap_or(i32::MAX),
    };
    let rows = sluice_api::v1beta1::TopologyAssignment {
        levels: assignment.levels.iter().map(ToString::to_string).collect(),
        domains: assignment.domains.iter().map(row).collect(),
    };
    topology::encode(&rows, by_prefix).ok()
}

/// What checks add to the pods of a pod set, once it has nodes or waits for some.
pub(crate) fn updates<'a>(
    set: &'a slim::PodSet,
    status: &'a WorkloadStatus,
    config: &EngineConfig,
) -> impl Iterator<Item = &'a v1beta2::PodSetUpdate> {
    let places = config.on(Gate::TopologyAwareScheduling) && reserved(status);
    let admission = status.admission.as_ref().filter(|_| places);
    let sets = admission.map(|admission| &admission.pod_set_assignments[..]).unwrap_or_default();
    let concerned = |set: &v1beta2::PodSetAssignment| set.topology_assignment.is_some() || is_delayed(set);
    let checks: &[_] = if sets.iter().any(concerned) { &status.admission_checks } else { &[] };
    checks.iter().flat_map(|check| &check.pod_set_updates).filter(|update| update.name == set.name)
}

/// Whether the assignment of a pod set comes later.
pub(crate) fn is_delayed(api: &v1beta2::PodSetAssignment) -> bool {
    api.delayed_topology_request == Some(DelayedTopologyRequestState::Pending)
}

/// What the topology assignment of a Workload that holds quota depends on.
pub(crate) fn state(
    object: &slim::Workload,
    status: &WorkloadStatus,
    config: &EngineConfig,
) -> TopologyState {
    let checks = &status.admission_checks;
    TopologyState {
        checks_ready: !checks.is_empty() && checks.iter().all(|check| check.state == CheckState::Ready),
        unhealthy_nodes: status.unhealthy_nodes.iter().map(|node| name(&node.name)).collect(),
        pinned: is_of_pod(object) && config.on(Gate::SkipReassignmentForPodOwnedWorkloads),
        slice_moves: SliceMoves::Off,
        eviction_refused: false,
    }
}

/// Whether a single pod owns a Workload: nothing makes another pod in its place.
pub(crate) fn is_of_pod(object: &slim::Workload) -> bool {
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    matches!(owners, [owner] if owner.kind == "Pod" && owner.api_version == "v1")
}
