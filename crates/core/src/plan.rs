//! The plan of a flavor search: everything about it that depends only on the workload's shape and the queue's configuration, computed once and used
//! for every attempt.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Amount;
use crate::forest::Forest;
use crate::intern::{FlavorId, FrId, Names, NodeId, ResourceId, SlotId};
use crate::matching::refuse_flavor;
use crate::reason::{PodSetRequests, Refusal};
use crate::resource_group::{Group, group_of};
use crate::shape::Shape;
use crate::spec::FlavorSpec;
use crate::topology::{RequestedLevel, Topologies, TopologyRequest};
use crate::workload::PodSetSpec;

/// How one shape is searched for in one ClusterQueue.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Pod sets that are assigned together.
    pub(crate) groups: Vec<PlanGroup>,
    /// The full counts per pod set.
    pub(crate) counts: SmallVec<[i64; 2]>,
    /// The total requests per pod set.
    pub(crate) requests: PodSetRequests,
}

/// Pod sets that get the same flavors.
#[derive(Debug)]
pub(crate) struct PlanGroup {
    /// Indices of the pod sets.
    pub(crate) members: SmallVec<[usize; 1]>,
    /// Requests that no resource group covers.
    pub(crate) uncovered: Vec<PlanRequest>,
    /// The resource groups to search, by their first resource's name.
    pub(crate) blocks: Vec<PlanBlock>,
}

/// The request of a group of pod sets for one resource.
#[derive(Debug)]
pub(crate) struct PlanRequest {
    pub(crate) resource: ResourceId,
    /// Per pod, for each member.
    pub(crate) per_pod: SmallVec<[i64; 1]>,
}

impl PlanRequest {
    /// The total of the group with these counts per pod set.
    pub(crate) fn total(&self, members: &[usize], counts: &[i64]) -> i64 {
        members.iter().zip(&self.per_pod).fold(0, |sum: i64, (&member, per_pod)| {
            sum.saturating_add(per_pod.saturating_mul(counts.get(member).copied().unwrap_or(0)))
        })
    }
}

/// One resource group of the queue, with the resources that the shape needs.
#[derive(Debug)]
pub(crate) struct PlanBlock {
    pub(crate) requests: SmallVec<[PlanRequest; 2]>,
    pub(crate) flavors: Vec<PlanFlavor>,
}

/// One flavor of a resource group.
#[derive(Debug)]
pub(crate) struct PlanFlavor {
    pub(crate) flavor: FlavorId,
    /// The pod sets may not use it, whatever the quota.
    pub(crate) refusal: Option<Refusal>,
    /// For each request.
    pub(crate) slots: SmallVec<[(FrId, SlotId); 2]>,
}

/// The inputs of a plan.
pub(crate) struct PlanInput<'a> {
    /// The node and the resource groups of the queue.
    pub(crate) node: NodeId,
    pub(crate) groups: &'a [Group],
    pub(crate) forest: &'a Forest,
    pub(crate) names: &'a Names,
    /// By [`FlavorId`].
    pub(crate) flavors: &'a [Option<FlavorSpec>],
    pub(crate) shape: &'a Shape,
    pub(crate) pod_sets: &'a [PodSetSpec],
    /// `IgnoreUndeclared`.
    pub(crate) ignore_uncovered: bool,
    /// The resource `pods`, if any queue ever covered it.
    pub(crate) pods: Option<ResourceId>,
    pub(crate) topology: &'a Topologies,
}

impl Plan {
    /// Works out the plan.
    pub(crate) fn new(input: &PlanInput<'_>) -> Arc<Plan> {
        let counts: SmallVec<[i64; 2]> = input.shape.pod_sets.iter().map(|pod_set| pod_set.count).collect();
        let requests = effective_requests(input);
        let mut groups: Vec<PlanGroup> = Vec::new();
        let mut done = vec![false; counts.len()];
        for at in 0..counts.len() {
            if std::mem::replace(&mut done[at], true) {
                continue;
            }
            let mut members: SmallVec<[usize; 1]> = SmallVec::new();
            members.push(at);
            if let Some(name) = &input.pod_sets[at].group {
                for (other, pod_set) in input.pod_sets.iter().enumerate().skip(at + 1) {
                    if pod_set.group.as_ref() == Some(name) {
                        done[other] = true;
                        members.push(other);
                    }
                }
            }
            groups.push(plan_group(input, members, &requests));
        }
        let totals: Vec<_> = requests
            .iter()
            .zip(&counts)
            .zip(input.pod_sets)
            .map(|((requests, &count), pod_set)| {
                let totals = requests
                    .iter()
                    .map(|&(id, per_pod)| {
                        (input.names.resource_name(id).clone(), Amount(per_pod.saturating_mul(count)))
                    })
                    .collect();
                (pod_set.name.clone(), totals)
            })
            .collect();
        Arc::new(Plan { groups, counts, requests: totals.into() })
    }
}

/// The requests per pod of each pod set, `pods` included if the queue covers it.
fn effective_requests(input: &PlanInput<'_>) -> Vec<Vec<(ResourceId, i64)>> {
    let pods = input.pods.filter(|&pods| group_of(input.groups, pods).is_some());
    input
        .shape
        .pod_sets
        .iter()
        .map(|pod_set| {
            let mut requests = pod_set.requests.clone();
            if let Some(pods) = pods {
                requests.retain(|&(id, _)| id != pods);
                requests.push((pods, 1));
                requests.sort_by(|a, b| input.names.resource_name(a.0).cmp(input.names.resource_name(b.0)));
            }
            requests
        })
        .collect()
}

fn plan_group(
    input: &PlanInput<'_>,
    members: SmallVec<[usize; 1]>,
    requests: &[Vec<(ResourceId, i64)>],
) -> PlanGroup {
    let mut merged: Vec<PlanRequest> = Vec::new();
    for (place, &member) in members.iter().enumerate() {
        for &(resource, per_pod) in &requests[member] {
            let at = merged.iter().position(|request| request.resource == resource).unwrap_or_else(|| {
                merged.push(PlanRequest { resource, per_pod: SmallVec::from_elem(0, members.len()) });
                merged.len() - 1
            });
            merged[at].per_pod[place] = per_pod;
        }
    }
    merged.sort_by(|a, b| input.names.resource_name(a.resource).cmp(input.names.resource_name(b.resource)));
    let mut uncovered = Vec::new();
    let mut order: Vec<usize> = Vec::new();
    let mut split: Vec<SmallVec<[(usize, PlanRequest); 2]>> = Vec::new();
    split.resize_with(input.groups.len(), SmallVec::new);
    for request in merged {
        match group_of(input.groups, request.resource) {
            Some((group, column)) => {
                if split[group].is_empty() {
                    order.push(group);
                }
                split[group].push((column, request));
            }
            None if input.ignore_uncovered => {}
            None => uncovered.push(request),
        }
    }
    let blocks = order
        .into_iter()
        .map(|group| plan_block(input, &members, group, std::mem::take(&mut split[group])))
        .collect();
    PlanGroup { members, uncovered, blocks }
}

fn plan_block(
    input: &PlanInput<'_>,
    members: &[usize],
    group: usize,
    requests: SmallVec<[(usize, PlanRequest); 2]>,
) -> PlanBlock {
    let compiled = &input.groups[group];
    let node = input.forest.node(input.node);
    let flavors = compiled
        .flavors
        .iter()
        .zip(&compiled.pairs)
        .map(|(&flavor, pairs)| PlanFlavor {
            flavor,
            refusal: match input.flavors.get(flavor.at()).and_then(Option::as_ref) {
                None => Some(Refusal::FlavorNotFound { flavor: input.names.flavor_name(flavor).clone() }),
                Some(spec) => members.iter().find_map(|&member| {
                    refuse_topology(input, compiled, (flavor, spec), member)
                        .or_else(|| refuse_flavor(spec, &input.pod_sets[member]))
                }),
            },
            slots: requests
                .iter()
                .map(|&(column, _)| {
                    let pair = pairs[column];
                    (pair, node.slot(pair).expect("a queue has a slot for each pair that its spec covers"))
                })
                .collect(),
        })
        .collect();
    PlanBlock { requests: requests.into_iter().map(|(_, request)| request).collect(), flavors }
}

/// Why a pod set may not use a flavor because of its topology, or because it has none (docs/reference/06-algorithm.md 6.11).
fn refuse_topology(
    input: &PlanInput<'_>,
    group: &Group,
    (id, flavor): (FlavorId, &FlavorSpec),
    pod_set: usize,
) -> Option<Refusal> {
    let name = || flavor.name.clone();
    let PodSetSpec { topology: request, ungated, .. } = &input.pod_sets[pod_set];
    match (request.as_ref(), &flavor.topology) {
        (Some(_), None) => {
            // A resource that is only counted, and not used of a node, may have any flavor.
            let mut own = input.shape.pod_sets[pod_set].node_requests.iter();
            let counted = !own.any(|(resource, _)| group.covered.contains(resource));
            (!counted).then(|| Refusal::WithoutTopology { flavor: name() })
        }
        (_, Some(_)) if *ungated => Some(Refusal::Ungated { flavor: name() }),
        (None, Some(_)) if !only_topologies(input) => Some(Refusal::OnlyTopology { flavor: name() }),
        (_, Some(_)) if !input.topology.knows(id) => Some(Refusal::TopologyUnknown { flavor: name() }),
        (Some(request), Some(_)) => {
            let known = levels(request).all(|level| input.topology.has_level(id, level));
            (!known).then(|| Refusal::LevelMissing { flavor: name() })
        }
        (None, _) => None,
    }
}

/// Every flavor of the queue has a topology: pod sets that ask for none get nodes all the same.
fn only_topologies(input: &PlanInput<'_>) -> bool {
    let mut flavors = input.groups.iter().flat_map(|group| &group.flavors);
    flavors.all(|flavor| {
        let spec = input.flavors.get(flavor.at()).and_then(Option::as_ref);
        spec.is_some_and(|spec| spec.topology.is_some())
    })
}

/// The levels that a request names.
fn levels(request: &TopologyRequest) -> impl Iterator<Item = &crate::Name> {
    let level = match &request.level {
        RequestedLevel::Required(level) | RequestedLevel::Preferred(level) => Some(level),
        RequestedLevel::Unconstrained => None,
    };
    level.into_iter().chain(request.slices.iter().map(|layer| &layer.level))
}
