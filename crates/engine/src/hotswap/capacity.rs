//! What the healthy nodes of a flavor have for managed work: allocatable, less the requests of pods that hold no quota.
//!
//! Where jobs take whole groups of nodes (`exclusive-topology`; one TPU slice), a group counts only if all its nodes are healthy.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::config::Hotswap;
use sluice_core::{Amount, HOSTNAME, Name, NodeGroup, NodeGroups};

use super::snapshot::{SeenNode, Snapshot, exact};

/// The groups that a label makes.
pub(crate) fn groups_by<'a>(label: &str, snapshot: &Snapshot<'a>, config: &Hotswap) -> NodeGroups<'a> {
    let value = |seen: &SeenNode<'a>| Some(seen.node.metadata.labels.as_ref()?.get(label)?.as_str());
    let members = snapshot.nodes.iter().enumerate();
    let mut members: Vec<_> = members.filter_map(|(node, seen)| Some((value(seen)?, node, seen))).collect();
    members.sort_by_key(|(value, ..)| *value);
    let groups: Vec<_> = members.chunk_by(|(a, ..), (b, ..)| a == b).collect();
    let wanted = |members: &[(&str, usize, &SeenNode<'_>)]| {
        members.first().and_then(|(.., seen)| slice_size(seen, config)).unwrap_or(1)
    };
    let is_slice = |members: &&[_]| wanted(members) > 1 && members.len() >= wanted(members);
    // Groups that are but parts of slices lack nothing: of several by one label, one at least is a slice if they are to be.
    let sized = label != HOSTNAME && (groups.len() == 1 || groups.iter().any(is_slice));
    let mut of = vec![None; snapshot.nodes.len()];
    let all = groups.iter().enumerate().map(|(at, members)| {
        for (_, node, _) in *members {
            of[*node] = Some(at);
        }
        let healthy = members.iter().all(|(.., seen)| seen.health.has_capacity());
        NodeGroup {
            value: members[0].0,
            nodes: members.iter().map(|(_, node, _)| *node).collect(),
            whole: healthy && (!sized || members.len() >= wanted(members)),
        }
    });
    NodeGroups { label: label.to_owned(), all: all.collect(), of }
}

/// How many nodes the slice of a node has: the product of its topology (`4x4`) by what one node has of it.
fn slice_size(seen: &SeenNode<'_>, config: &Hotswap) -> Option<usize> {
    let topology = seen.node.metadata.labels.as_ref()?.get(&config.slice_topology_label)?;
    let sides: Option<Vec<i128>> = topology.split('x').map(|side| side.parse().ok()).collect();
    let all = sides?.into_iter().try_fold(1_i128, i128::checked_mul)?;
    let own = seen.allocatable.get(config.slice_resource.as_str()).copied().filter(|own| *own > 0)?;
    usize::try_from(all / own).ok()
}

/// What the nodes of a flavor have.
pub(crate) struct Capacity {
    /// For each resource, in its unit.
    pub limits: Vec<(Name, Amount)>,
    /// The numbers of the Workloads whose pods are on nodes that do not count: for as long as they hold quota, what those use is in the limits.
    pub elsewhere: Vec<usize>,
}

/// The capacity of a flavor with these nodes for these resources; while the flavor has no nodes, nothing is limited by nodes. Nor is a
/// resource that none of its nodes has at all, unless it is an extended one: those come from device plugins, which register after their nodes.
///
/// What holds quota on nodes that do not count, and stays there, takes nothing of the others, although it is used: it is added; but
/// for pods that are being deleted: what comes in their place takes of the others.
/// `stays` says whether a Workload holds quota of the flavor and does so.
///
/// Nodes may be those of several flavors, and are there once: what pods take of them is not there for this flavor if their Workload does
/// not hold quota of it for that resource, which `holds` says.
pub(crate) fn of_flavor(
    snapshot: &Snapshot<'_>,
    own: &[usize],
    resources: &BTreeSet<Name>,
    groups: &[&NodeGroups<'_>],
    stays: impl Fn(usize) -> bool,
    holds: impl Fn(usize, &Name) -> bool,
) -> Capacity {
    let broken = |node: usize| groups.iter().any(|g| g.group_of(node).is_some_and(|group| !group.whole));
    let mut sums: BTreeMap<&Name, i128> = BTreeMap::new();
    // By node: whether it counts, if it is one of the flavor's.
    let mut counts = vec![None; snapshot.nodes.len()];
    for &node in own {
        let seen = &snapshot.nodes[node];
        let here = seen.health.has_capacity() && !broken(node);
        counts[node] = Some(here);
        for resource in resources {
            let amount = seen.allocatable.get(resource).copied();
            if let Some(amount) = amount.or_else(|| resource.contains('/').then_some(0)) {
                *sums.entry(resource).or_default() += if here { amount } else { 0 };
            }
        }
    }
    for seen in &snapshot.others {
        if seen.node.is_some_and(|node| counts[node] == Some(true)) {
            for (resource, amount) in &seen.pod.requests {
                if let Some(sum) = sums.get_mut(resource) {
                    *sum -= exact(*amount);
                }
            }
        }
    }
    let elsewhere = |node: Option<usize>| node.is_none_or(|node| counts[node] == Some(false));
    let mut holders = Vec::new();
    let here = |node: Option<usize>| node.is_some_and(|node| counts[node] == Some(true));
    for (at, workload) in snapshot.workloads.iter().enumerate() {
        if workload.pods.is_empty() {
            continue;
        }
        let beside: Vec<&Name> = sums.keys().copied().filter(|resource| !holds(at, resource)).collect();
        if !beside.is_empty() {
            let pods = workload.pods.iter().filter(|seen| here(seen.node));
            for (resource, amount) in pods.flat_map(|seen| &seen.pod.requests) {
                if let Some(sum) = sums.get_mut(resource).filter(|_| beside.contains(&resource)) {
                    *sum -= exact(*amount);
                }
            }
        }
        let mut away =
            workload.pods.iter().filter(|seen| !seen.pod.leaving && elsewhere(seen.node)).peekable();
        if away.peek().is_none() || !stays(at) {
            continue;
        }
        holders.push(at);
        for (resource, amount) in away.flat_map(|seen| &seen.pod.requests) {
            if let Some(sum) = sums.get_mut(resource).filter(|_| !beside.contains(&resource)) {
                *sum += exact(*amount);
            }
        }
    }
    let amount = |sum: i128| Amount(i64::try_from(sum.max(0)).unwrap_or(i64::MAX));
    let limits = sums.into_iter().map(|(resource, sum)| (Name::clone(resource), amount(sum))).collect();
    Capacity { limits, elsewhere: holders }
}
