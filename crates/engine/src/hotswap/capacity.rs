//! What the healthy nodes of a flavor have for managed work: allocatable, less the requests of pods that hold no quota.
//!
//! Where jobs take whole groups of nodes (`exclusive-topology`; one TPU slice), a group counts only if all its nodes are healthy.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::config::Hotswap;
use sluice_core::{Amount, Name, WorkloadKey};

use super::snapshot::{SeenNode, Snapshot, exact};

/// The label that tells nodes from each other: each group by it is one node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The groups of nodes by the values of one label, and which of them are whole.
#[derive(Debug, Default)]
pub(crate) struct Groups<'a> {
    /// By value: the nodes.
    pub nodes: BTreeMap<&'a str, Vec<&'a str>>,
    /// By node: the value.
    pub of: BTreeMap<&'a str, &'a str>,
    /// The groups of which every node has capacity, and none is missing.
    pub whole: BTreeSet<&'a str>,
}

impl<'a> Groups<'a> {
    /// The groups that a label makes.
    pub fn by(key: &str, snapshot: &Snapshot<'a>, config: &Hotswap) -> Self {
        let value = |seen: &SeenNode<'a>| Some(seen.node.metadata.labels.as_ref()?.get(key)?.as_str());
        let members = snapshot.nodes.iter().filter_map(|(name, seen)| Some((value(seen)?, *name, seen)));
        let mut members: Vec<_> = members.collect();
        let of = members.iter().map(|(value, name, _)| (*name, *value)).collect();
        members.sort_by_key(|(value, ..)| *value);
        let groups: Vec<_> = members.chunk_by(|(a, ..), (b, ..)| a == b).collect();
        let wanted = |members: &[(&str, &str, &SeenNode<'_>)]| {
            members.first().and_then(|(.., seen)| slice_size(seen, config)).unwrap_or(1)
        };
        let is_slice = |members: &&[_]| wanted(members) > 1 && members.len() >= wanted(members);
        // Groups that are but parts of slices lack nothing: of several by one label, one at least is a slice if they are to be.
        let sized = key != HOSTNAME && (groups.len() == 1 || groups.iter().any(is_slice));
        let whole = groups.iter().filter(|members| {
            let healthy = members.iter().all(|(.., seen)| seen.health.has_capacity());
            healthy && (!sized || members.len() >= wanted(members))
        });
        let names = |members: &[(&'a str, &'a str, _)]| members.iter().map(|(_, name, _)| *name).collect();
        Self {
            nodes: groups.iter().map(|members| (members[0].0, names(members))).collect(),
            of,
            whole: whole.map(|members| members[0].0).collect(),
        }
    }
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
pub(crate) struct Capacity<'a> {
    /// For each resource, in its unit.
    pub limits: Vec<(Name, Amount)>,
    /// The Workloads whose pods are on nodes that do not count: for as long as they hold quota, what those use is in the limits.
    pub elsewhere: BTreeSet<&'a WorkloadKey>,
}

/// The capacity of a flavor for these resources; while the flavor has no nodes, nothing is limited by nodes. Nor is a resource that
/// none of its nodes has at all, unless it is an extended one: those come from device plugins, which register after their nodes.
///
/// What holds quota on nodes that do not count, and stays there, takes nothing of the others, although it is used: it is added; but
/// for pods that are being deleted: what comes in their place takes of the others.
/// `stays` says whether a Workload holds quota of the flavor and does so.
pub(crate) fn of_flavor<'a>(
    snapshot: &Snapshot<'a>,
    labels: &BTreeMap<String, String>,
    resources: &BTreeSet<Name>,
    groups: &[&Groups<'_>],
    stays: impl Fn(&WorkloadKey) -> bool,
) -> Capacity<'a> {
    let broken: BTreeSet<&str> = groups
        .iter()
        .flat_map(|g| g.nodes.iter().filter(|(value, _)| !g.whole.contains(*value)).flat_map(|(_, all)| all))
        .copied()
        .collect();
    let mut sums: BTreeMap<&Name, i128> = BTreeMap::new();
    let mut counted = Vec::new();
    for (name, seen) in snapshot.of_flavor(labels) {
        let counts = seen.health.has_capacity() && !broken.contains(name);
        if counts {
            counted.push(name);
        }
        for resource in resources {
            let amount = seen.allocatable.get(resource).copied();
            if let Some(amount) = amount.or_else(|| resource.contains('/').then_some(0)) {
                *sums.entry(resource).or_default() += if counts { amount } else { 0 };
            }
        }
    }
    let counted: BTreeSet<&str> = counted.into_iter().collect();
    for pod in snapshot.others.iter().filter(|pod| counted.contains(&*pod.node)) {
        for (resource, amount) in &pod.requests {
            if let Some(sum) = sums.get_mut(resource) {
                *sum -= exact(*amount);
            }
        }
    }
    let own: BTreeSet<&str> = snapshot.of_flavor(labels).map(|(name, _)| name).collect();
    let elsewhere =
        |node: &str| !counted.contains(node) && (own.contains(node) || !snapshot.nodes.contains_key(node));
    let mut holders = BTreeSet::new();
    for (key, pods) in &snapshot.of_workload {
        let away: Vec<_> = pods.iter().filter(|pod| !pod.leaving && elsewhere(&pod.node)).collect();
        if away.is_empty() || !stays(key) {
            continue;
        }
        holders.insert(*key);
        for pod in away {
            for (resource, amount) in &pod.requests {
                if let Some(sum) = sums.get_mut(resource) {
                    *sum += exact(*amount);
                }
            }
        }
    }
    let amount = |sum: i128| Amount(i64::try_from(sum.max(0)).unwrap_or(i64::MAX));
    let limits = sums.into_iter().map(|(resource, sum)| (Name::clone(resource), amount(sum))).collect();
    Capacity { limits, elsewhere: holders }
}
