//! Topologies, nodes, topology requests and assignments as the core takes them (docs/reference/06-algorithm.md 6.11–6.15, 6.21).

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::conversion::topology;
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_api::v1beta2::{self, CheckState, DelayedTopologyRequestState, WorkloadStatus};
use sluice_core::{
    Amount, AssignedDomain, Name, NodeSpec, RequestedLevel, SharedAssignment, SliceLayer, TopologyAssignment,
    TopologyRequest, TopologySpec, TopologyState,
};

use super::name;
use super::requests::{Surroundings, per_pod};
use super::scheduling::{pairs, taints};
use super::workload::is;
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
        usable: node.ready == Some(true) && !node.unschedulable,
    }
}

/// What a pod set asks of a topology, if it asks for anything. Labels of indices alone ask for nothing.
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
    let mut slices: Vec<SliceLayer> = layers.map(|one| layer(&one.topology, one.size)).collect();
    if slices.is_empty()
        && let Some(level) = &api.pod_set_slice_required_topology
    {
        slices.push(layer(level, api.pod_set_slice_size.unwrap_or(0)));
    }
    Some(TopologyRequest { level, slices })
}

/// The pod sets that get the same flavors, and are placed together.
pub(crate) fn group(set: &slim::PodSet, config: &EngineConfig) -> Option<Name> {
    let api = set.topology_request.as_deref().filter(|_| config.on(Gate::TopologyAwareScheduling))?;
    api.pod_set_group_name.as_deref().map(name)
}

/// What each pod takes of its node, where that is not `requests`: without what counts for quotas only.
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

/// An assignment; one that cannot be read is none.
pub(crate) fn assignment(api: &v1beta2::PodSetAssignment) -> Option<SharedAssignment> {
    let rows = topology::decode(api.topology_assignment.as_ref()?).ok()?;
    let domain = |row: sluice_api::v1beta1::TopologyDomainAssignment| AssignedDomain {
        values: row.values.iter().map(|value| name(value)).collect(),
        count: row.count.into(),
    };
    Some(Arc::new(TopologyAssignment {
        levels: rows.levels.iter().map(|level| name(level)).collect(),
        domains: rows.domains.into_iter().map(domain).collect(),
    }))
}

/// An assignment as the API has it. `by_prefix`: gate TASAssignmentsEncodingByHostnamePrefix.
pub(crate) fn written(assignment: &TopologyAssignment, by_prefix: bool) -> Option<v1beta2::TopologyAssignment> {
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

/// Whether the assignment of a pod set comes later.
pub(crate) fn is_delayed(api: &v1beta2::PodSetAssignment) -> bool {
    api.delayed_topology_request == Some(DelayedTopologyRequestState::Pending)
}

/// What the topology assignment of a Workload that holds quota depends on.
pub(crate) fn state(object: &slim::Workload, status: &WorkloadStatus, config: &EngineConfig) -> TopologyState {
    let checks = &status.admission_checks;
    let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
    let of_pod = matches!(owners, [owner] if owner.kind == "Pod" && owner.api_version == "v1");
    TopologyState {
        checks_ready: !checks.is_empty() && checks.iter().all(|check| check.state == CheckState::Ready),
        unhealthy_nodes: status.unhealthy_nodes.iter().map(|node| name(&node.name)).collect(),
        pinned: of_pod && config.on(Gate::SkipReassignmentForPodOwnedWorkloads),
    }
}

/// Whether a Workload holds quota with nodes.
pub(crate) fn holds_nodes(status: &WorkloadStatus) -> bool {
    let assigned = |set: &v1beta2::PodSetAssignment| set.topology_assignment.is_some();
    is(status, Type::QuotaReserved)
        && status.admission.as_ref().is_some_and(|admission| admission.pod_set_assignments.iter().any(assigned))
}
