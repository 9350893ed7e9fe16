//! What the healthy nodes of a flavor have for managed work: allocatable, less the requests of pods that hold no quota.
//!
//! Where jobs take whole groups of nodes, a group counts only if all its nodes are healthy.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use smallvec::SmallVec;

use crate::capacity_search::{NodeGroups, PodRequests};
use crate::scheduler::claims::exact;
use crate::{Amount, Name};

/// A pod of which it is known where it runs.
#[derive(Debug, Clone, Copy)]
pub struct PodOnNode<'a> {
    /// The number of its node, if that exists.
    pub node: Option<usize>,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// What it uses of its node.
    pub requests: &'a PodRequests,
}

/// The nodes with the pods on them, and what the workloads of these pods hold. Nodes and workloads have numbers, from 0; flavors have the positions
/// that [`capacity_of_flavors`] gives them.
pub trait CapacityFacts {
    /// How many nodes there are.
    fn nodes(&self) -> usize;

    /// What a node has for pods: cpu in milli-CPU, everything else in whole units.
    fn allocatable(&self, node: usize) -> &BTreeMap<Name, i128>;

    /// Whether a node counts.
    fn has_capacity(&self, node: usize) -> bool;

    /// The pods of no workload.
    fn other_pods(&self) -> impl Iterator<Item = PodOnNode<'_>>;

    /// How many workloads there are.
    fn workloads(&self) -> usize;

    /// The pods of a workload.
    fn pods(&self, workload: usize) -> impl Iterator<Item = PodOnNode<'_>>;

    /// The flavors of which a workload holds quota; maybe several times.
    fn flavors(&self, workload: usize) -> impl Iterator<Item = usize>;

    /// Whether a workload holds quota of a flavor for a resource.
    fn holds(&self, workload: usize, flavor: usize, resource: &Name) -> bool;

    /// Whether a workload does not move.
    fn stays(&self, workload: usize) -> bool;
}

/// The nodes of one flavor, and how much of them counts.
#[derive(Debug, Clone)]
pub struct FlavorNodes<'a> {
    /// Their numbers.
    pub own: Rc<[usize]>,
    /// The resources that queues have quota of.
    pub resources: &'a BTreeSet<Name>,
    /// The groups that its jobs take as wholes.
    pub groups: Vec<&'a NodeGroups<'a>>,
}

/// What the nodes of a flavor have for managed work, by limited resource: cpu in milli-CPU, everything else in whole units. It is exact, and below
/// zero where pods that hold no quota take more than the nodes that count have, so that pods can come and go without a new sum over all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapacitySums(Vec<(Name, i128)>);

impl CapacitySums {
    /// Adds to what there is of a resource: what a pod gives back, or, below zero, what it takes. Returns whether the resource is limited.
    pub fn add(&mut self, resource: &str, amount: i128) -> bool {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(resource));
        if let Ok(at) = at {
            self.0[at].1 += amount;
        }
        at.is_ok()
    }

    /// The limit of each resource, in the order of names: at least zero.
    pub fn limits(&self) -> Vec<(Name, Amount)> {
        let amount = |sum: i128| Amount(i64::try_from(sum.max(0)).unwrap_or(i64::MAX));
        self.0.iter().map(|(resource, sum)| (Name::clone(resource), amount(*sum))).collect()
    }
}

/// What the nodes of a flavor have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlavorCapacity {
    /// For each resource.
    pub sums: CapacitySums,
    /// The numbers of the workloads whose pods are on nodes that do not count: as long as they hold quota, their usage is added to the limits.
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
    fn of(facts: &impl CapacityFacts, flavor: &FlavorNodes<'a>) -> Self {
        let broken =
            |node: usize| flavor.groups.iter().any(|g| g.group_of(node).is_some_and(|group| !group.whole));
        let mut sum =
            Self { sums: BTreeMap::new(), counts: vec![None; facts.nodes()], elsewhere: Vec::new() };
        for &node in flavor.own.iter() {
            let here = facts.has_capacity(node) && !broken(node);
            sum.counts[node] = Some(here);
            let allocatable = facts.allocatable(node);
            for resource in flavor.resources {
                let amount = allocatable.get(resource).copied();
                if let Some(amount) = amount.or_else(|| resource.contains('/').then_some(0)) {
                    *sum.sums.entry(resource).or_default() += if here { amount } else { 0 };
                }
            }
        }
        sum
    }

    /// Subtracts what a pod takes that no workload's quota is for; `of`: of these resources alone.
    fn subtract(&mut self, pod: PodOnNode<'_>, of: Option<&[&Name]>) {
        if pod.node.is_some_and(|node| self.counts[node] == Some(true)) {
            for (resource, amount) in pod.requests {
                let counts = |_: &&mut i128| of.is_none_or(|of| of.contains(&resource));
                if let Some(sum) = self.sums.get_mut(resource).filter(counts) {
                    *sum -= exact(*amount);
                }
            }
        }
    }

    /// Takes in a workload, for the flavor at this position. `stays`: it holds quota of the flavor and does not move.
    fn take(&mut self, facts: &impl CapacityFacts, (workload, flavor): (usize, usize), stays: bool) {
        let beside = self.sums.keys().copied().filter(|resource| !facts.holds(workload, flavor, resource));
        let beside: Vec<&Name> = beside.collect();
        if !beside.is_empty() {
            for pod in facts.pods(workload) {
                self.subtract(pod, Some(&beside));
            }
        }
        if !stays {
            return;
        }
        let Self { sums, counts, elsewhere } = self;
        let is_elsewhere = |node: Option<usize>| node.is_none_or(|node| counts[node] == Some(false));
        let away = facts.pods(workload).filter(|pod| !pod.leaving && is_elsewhere(pod.node));
        let mut away = away.peekable();
        if away.peek().is_none() {
            return;
        }
        elsewhere.push(workload);
        for (resource, amount) in away.flat_map(|pod| pod.requests) {
            if let Some(sum) = sums.get_mut(resource).filter(|_| !beside.contains(&resource)) {
                *sum += exact(*amount);
            }
        }
    }

    fn into_capacity(self) -> FlavorCapacity {
        let sums = self.sums.into_iter().map(|(resource, sum)| (Name::clone(resource), sum));
        FlavorCapacity { sums: CapacitySums(sums.collect()), elsewhere: self.elsewhere }
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
/// except for pods that are being deleted, whose replacements use the other nodes.
///
/// Nodes may belong to several flavors, and count once: what pods use of them is not available to a flavor unless their workload holds quota of that
/// flavor for that resource.
///
/// All pods are visited once, however many flavors there are.
pub fn capacity_of_flavors(facts: &impl CapacityFacts, flavors: &[FlavorNodes<'_>]) -> Vec<FlavorCapacity> {
    let mut sums: Vec<Sum<'_>> = flavors.iter().map(|flavor| Sum::of(facts, flavor)).collect();
    let flavors_of = FlavorsOf::new(facts.nodes(), flavors);
    for pod in facts.other_pods() {
        for &flavor in pod.node.map_or(&[][..], |node| flavors_of.of(node)) {
            sums[flavor].subtract(pod, None);
        }
    }
    for workload in 0..facts.workloads() {
        let mut pods = facts.pods(workload).peekable();
        if pods.peek().is_none() {
            continue;
        }
        let used: SmallVec<[usize; 4]> = facts.flavors(workload).collect();
        // The flavors of its nodes and of its quota: no other flavor is affected.
        let mut concerned = used.clone();
        let mut last = None;
        for node in pods.filter_map(|pod| pod.node) {
            if last != Some(node) {
                concerned.extend(flavors_of.of(node).iter().copied().filter(|flavor| !used.contains(flavor)));
                last = Some(node);
            }
        }
        concerned.sort_unstable();
        concerned.dedup();
        for flavor in concerned {
            let stays = used.contains(&flavor) && facts.stays(workload);
            sums[flavor].take(facts, (workload, flavor), stays);
        }
    }
    sums.into_iter().map(Sum::into_capacity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_below_zero_is_kept_until_enough_is_given_back() {
        let mut sums = CapacitySums(vec![("cpu".into(), 4_000), ("gpu".into(), 2)]);
        let gpu = |sums: &CapacitySums| sums.limits()[1].1;
        assert!(sums.add("gpu", -5));
        assert_eq!(gpu(&sums), Amount::ZERO);
        assert!(sums.add("gpu", 2));
        assert_eq!(gpu(&sums), Amount::ZERO);
        assert!(sums.add("gpu", 3));
        assert_eq!(sums.limits(), [(Name::from("cpu"), Amount(4_000)), (Name::from("gpu"), Amount(2))]);
        assert!(!sums.add("memory", 1), "no node has any");
    }
}
