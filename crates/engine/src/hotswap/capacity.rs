//! What the healthy nodes of a flavor have for managed work: allocatable, less the requests of pods that hold no quota.
//!
//! Where jobs take whole groups of nodes (`exclusive-topology`; one TPU slice), a group counts only if all its nodes are healthy.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use sluice_api::config::Hotswap;
use sluice_core::{Amount, Name, NodeGroup, NodeGroups};

use super::group_index::{are_sized, slice_size};
use super::snapshot::{SeenNode, SeenPod, SeenWorkload, Snapshot, exact};

/// The groups that a label makes.
pub(crate) fn groups_by<'a>(label: &str, snapshot: &Snapshot<'a>, config: &Hotswap) -> NodeGroups<'a> {
    let value = |seen: &SeenNode<'a>| Some(seen.node.metadata.labels.as_ref()?.get(label)?.as_str());
    let members = snapshot.nodes.iter().enumerate();
    let mut members: Vec<_> = members.filter_map(|(node, seen)| Some((value(seen)?, node, seen))).collect();
    members.sort_by_key(|(value, ..)| *value);
    let groups: Vec<_> = members.chunk_by(|(a, ..), (b, ..)| a == b).collect();
    let wanted = |members: &[(&str, usize, &SeenNode<'_>)]| {
        let size = members.first().and_then(|(.., seen)| slice_size(seen.node, seen.allocatable, config));
        size.unwrap_or(1)
    };
    let is_slice = |members: &&[_]| wanted(members) > 1 && members.len() >= wanted(members);
    let sized = are_sized(label, groups.len(), || groups.iter().any(is_slice));
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

/// The nodes of one flavor, and how much of them counts.
pub(crate) struct FlavorNodes<'a> {
    /// Their numbers.
    pub own: Rc<[usize]>,
    /// The resources that queues have quota of.
    pub resources: &'a BTreeSet<Name>,
    /// The groups that its jobs take as wholes.
    pub groups: Vec<&'a NodeGroups<'a>>,
}

/// What the nodes of a flavor have.
pub(crate) struct Capacity {
    /// For each resource, in its unit.
    pub limits: Vec<(Name, Amount)>,
    /// The numbers of the Workloads whose pods are on nodes that do not count: as long as they hold quota, their usage is added to the limits.
    pub elsewhere: Vec<usize>,
}

/// The capacity of a flavor while it is summed up.
struct Sum<'a> {
    sums: BTreeMap<&'a Name, i128>,
    /// By node: whether it counts, if it belongs to the flavor.
    counts: Vec<Option<bool>>,
    elsewhere: Vec<usize>,
}

impl<'a> Sum<'a> {
    fn of(snapshot: &Snapshot<'_>, flavor: &FlavorNodes<'a>) -> Self {
        let broken =
            |node: usize| flavor.groups.iter().any(|g| g.group_of(node).is_some_and(|group| !group.whole));
        let mut sum =
            Self { sums: BTreeMap::new(), counts: vec![None; snapshot.nodes.len()], elsewhere: Vec::new() };
        for &node in flavor.own.iter() {
            let seen = &snapshot.nodes[node];
            let here = seen.health.has_capacity() && !broken(node);
            sum.counts[node] = Some(here);
            for resource in flavor.resources {
                let amount = seen.allocatable.get(resource).copied();
                if let Some(amount) = amount.or_else(|| resource.contains('/').then_some(0)) {
                    *sum.sums.entry(resource).or_default() += if here { amount } else { 0 };
                }
            }
        }
        sum
    }

    fn is_here(&self, node: Option<usize>) -> bool {
        node.is_some_and(|node| self.counts[node] == Some(true))
    }

    fn is_elsewhere(&self, node: Option<usize>) -> bool {
        node.is_none_or(|node| self.counts[node] == Some(false))
    }

    /// Takes off what a pod takes that no Workload's quota is for; `of`: of these resources alone.
    fn subtract(&mut self, seen: &SeenPod<'_>, of: Option<&[&Name]>) {
        if self.is_here(seen.node) {
            for (resource, amount) in &seen.pod.requests {
                let counts = |_: &&mut i128| of.is_none_or(|of| of.contains(&resource));
                if let Some(sum) = self.sums.get_mut(resource).filter(counts) {
                    *sum -= exact(*amount);
                }
            }
        }
    }

    /// Takes in the Workload of this number. `stays`: it holds quota of the flavor and does not move.
    fn take(&mut self, at: usize, workload: &SeenWorkload<'_>, stays: bool, holds: impl Fn(&Name) -> bool) {
        let beside: Vec<&Name> = self.sums.keys().copied().filter(|resource| !holds(resource)).collect();
        for seen in workload.pods.iter().filter(|_| !beside.is_empty()) {
            self.subtract(seen, Some(&beside));
        }
        let away = |seen: &&SeenPod<'_>| !seen.pod.leaving && self.is_elsewhere(seen.node);
        let away: Vec<&SeenPod<'_>> = workload.pods.iter().filter(|_| stays).filter(away).collect();
        if away.is_empty() {
            return;
        }
        self.elsewhere.push(at);
        for (resource, amount) in away.into_iter().flat_map(|seen| &seen.pod.requests) {
            if let Some(sum) = self.sums.get_mut(resource).filter(|_| !beside.contains(&resource)) {
                *sum += exact(*amount);
            }
        }
    }

    fn into_capacity(self) -> Capacity {
        let amount = |sum: i128| Amount(i64::try_from(sum.max(0)).unwrap_or(i64::MAX));
        let limits = self.sums.into_iter().map(|(resource, sum)| (Name::clone(resource), amount(sum)));
        Capacity { limits: limits.collect(), elsewhere: self.elsewhere }
    }
}

/// Which flavors the nodes are of.
struct FlavorsOf {
    /// By node: where its flavors begin, with one more entry at the end.
    begins: Vec<usize>,
    flavors: Vec<usize>,
}

impl FlavorsOf {
    fn new(nodes: usize, flavors: &[FlavorNodes<'_>]) -> Self {
        let mut begins = vec![0; nodes + 1];
        for &node in flavors.iter().flat_map(|flavor| flavor.own.iter()) {
            begins[node + 1] += 1;
        }
        for at in 0..nodes {
            begins[at + 1] += begins[at];
        }
        let mut next = begins.clone();
        let mut all = vec![0; begins[nodes]];
        for (flavor, nodes) in flavors.iter().enumerate() {
            for &node in nodes.own.iter() {
                all[next[node]] = flavor;
                next[node] += 1;
            }
        }
        Self { begins, flavors: all }
    }

    fn of(&self, node: usize) -> &[usize] {
        &self.flavors[self.begins[node]..self.begins[node + 1]]
    }
}

/// The capacity of each flavor with nodes, for its resources; a flavor without nodes is not limited by nodes. Nor is a resource that none of its
/// nodes has, unless it is an extended one: those come from device plugins, which register after their nodes.
///
/// Workloads that hold quota on nodes that do not count, and stay there, use nothing of the other nodes although their usage counts: it is added,
/// except for pods that are being deleted, whose replacements use the other nodes. `used` returns the flavors, by position, of which a Workload holds
/// quota, and `stays` whether it does not move.
///
/// Nodes may belong to several flavors, and count once: what pods use of them is not available to a flavor unless their Workload holds quota of that
/// flavor for that resource, which `holds` returns.
///
/// All pods are visited once, however many flavors there are.
pub(crate) fn of_flavors(
    snapshot: &Snapshot<'_>,
    flavors: &[FlavorNodes<'_>],
    used: impl Fn(usize) -> Vec<usize>,
    stays: impl Fn(usize) -> bool,
    holds: impl Fn(usize, usize, &Name) -> bool,
) -> Vec<Capacity> {
    let mut sums: Vec<Sum<'_>> = flavors.iter().map(|flavor| Sum::of(snapshot, flavor)).collect();
    let flavors_of = FlavorsOf::new(snapshot.nodes.len(), flavors);
    for seen in &snapshot.others {
        for &flavor in seen.node.map_or(&[][..], |node| flavors_of.of(node)) {
            sums[flavor].subtract(seen, None);
        }
    }
    for (at, workload) in snapshot.workloads.iter().enumerate() {
        if workload.pods.is_empty() {
            continue;
        }
        let used = used(at);
        // The flavors of its nodes and of its quota: no other flavor is affected.
        let mut concerned = used.clone();
        let mut last = None;
        for node in workload.pods.iter().filter_map(|seen| seen.node) {
            if last != Some(node) {
                concerned.extend(flavors_of.of(node).iter().filter(|flavor| !used.contains(flavor)));
                last = Some(node);
            }
        }
        concerned.sort_unstable();
        concerned.dedup();
        for flavor in concerned {
            let stays = used.contains(&flavor) && stays(at);
            sums[flavor].take(at, workload, stays, |resource| holds(at, flavor, resource));
        }
    }
    sums.into_iter().map(Sum::into_capacity).collect()
}
