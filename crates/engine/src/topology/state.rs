//! What is kept about nodes.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::slim;
use sluice_core::{Amount, HOSTNAME, Name, WorkloadKey};

use super::seating::Seating;
use crate::hotswap::pod::PodKey;
use crate::index_map::IndexMap;

/// Amounts by resource; `pods` counts pods.
pub(super) type Taken = BTreeMap<Name, i128>;

/// The nodes as the core has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopologyNodes {
    /// The core has the nodes.
    pub(super) used: bool,
    /// What pods use of each node that no topology assignment has.
    pub(super) taken: IndexMap<Name, Taken>,
    /// These pods: their nodes, and what each takes.
    pub(super) counted: IndexMap<PodKey, (Name, Vec<(Name, Amount)>)>,
    /// Nodes whose usage differs from what the core has.
    pub(super) changed: BTreeSet<Name>,
    /// Workloads that hold nodes, by the name with which their pods refer to them: slices of one job share it.
    pub(super) holding: BTreeMap<WorkloadKey, BTreeSet<WorkloadKey>>,
    held: BTreeMap<WorkloadKey, Holder>,
    pub(super) hosts: Hosts,
    /// Which pods are where they were assigned.
    pub(super) seating: Seating,
}

/// A Workload that holds nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// The name with which its pods refer to it.
    pub(super) home: WorkloadKey,
    /// What each pod of its pod sets takes, by their places in the Workload, without `pods`.
    pub(super) each: Vec<(usize, Vec<(Name, Amount)>)>,
}

/// Nodes by hostname, which assignments use. It is a label, and usually the node's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hosts {
    nodes: IndexMap<Name, BTreeSet<Name>>,
    of: IndexMap<Name, Name>,
}

impl Hosts {
    /// Takes the hostname of a node; says whether it had another one.
    pub(super) fn put(&mut self, name: &Name, node: &slim::Node) -> bool {
        let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(HOSTNAME));
        let other = label.filter(|label| ***label != **name);
        let host = other.map_or_else(|| Name::clone(name), |label| Name::from(label.as_str()));
        if self.of.get(name) == Some(&host) {
            return false;
        }
        self.take(name);
        self.nodes.entry(Name::clone(&host)).or_default().insert(Name::clone(name));
        self.of.insert(Name::clone(name), host);
        true
    }

    pub(super) fn take(&mut self, name: &Name) {
        let Some(host) = self.of.swap_remove(name) else { return };
        if let Some(nodes) = self.nodes.get_mut(&host) {
            nodes.remove(name);
            if nodes.is_empty() {
                self.nodes.swap_remove(&host);
            }
        }
    }
}

impl TopologyNodes {
    /// Whether all nodes, and what is on them, were seen, and matter.
    pub(crate) fn knows_nodes(&self) -> bool {
        self.used
    }

    /// Counts what a pod takes of its node beyond what a topology assignment has for it.
    pub(super) fn count(&mut self, key: PodKey, node: &Name, requests: Vec<(Name, Amount)>) {
        add(&mut self.taken, node, &requests);
        self.changed.insert(Name::clone(node));
        self.counted.insert(key, (Name::clone(node), requests));
    }

    pub(super) fn uncount(&mut self, key: &PodKey) {
        let Some((node, requests)) = self.counted.swap_remove(key) else { return };
        if let Some(of_node) = self.taken.get_mut(&node) {
            for (resource, amount) in &requests {
                if let Some(taken) = of_node.get_mut(resource) {
                    *taken -= i128::from(amount.get());
                }
            }
            of_node.retain(|_, taken| *taken != 0);
            if of_node.is_empty() {
                self.taken.swap_remove(&node);
            }
        }
        self.changed.insert(node);
    }

    /// The pods that the core counts one by one, in any order, with their nodes, and what they take that no topology assignment has.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (&PodKey, &Name, &[(Name, Amount)])> {
        self.counted.iter().map(|(key, (node, requests))| (key, node, &**requests))
    }

    /// The names of the nodes with a hostname: normally one.
    pub(super) fn of_host(&self, host: &str) -> impl Iterator<Item = &Name> {
        self.hosts.nodes.get(host).into_iter().flatten()
    }

    /// The hostname of a node.
    pub(super) fn host_of(&self, node: &str) -> Option<&Name> {
        self.hosts.of.get(node)
    }

    /// The name with which the pods of a Workload refer to it, if it holds nodes.
    pub(super) fn home_of(&self, key: &WorkloadKey) -> Option<WorkloadKey> {
        self.held.get(key).map(|held| held.home.clone())
    }

    /// What each pod takes, by pod set, if the Workload holds nodes.
    pub(super) fn each(&self, key: &WorkloadKey) -> &[(usize, Vec<(Name, Amount)>)] {
        self.held.get(key).map(|held| &*held.each).unwrap_or_default()
    }

    /// The same of one pod set.
    pub(super) fn each_of(&self, key: &WorkloadKey, pod_set: usize) -> &[(Name, Amount)] {
        let each = self.each(key).iter().find(|(at, _)| *at == pod_set);
        each.map(|(_, each)| &**each).unwrap_or_default()
    }

    /// Records what a Workload holds. Returns the names for which anything changed.
    pub(super) fn note(&mut self, key: &WorkloadKey, held: Option<Holder>) -> Vec<WorkloadKey> {
        if self.held.get(key) == held.as_ref() {
            return Vec::new();
        }
        let mut changed = Vec::new();
        if let Some(Holder { home, .. }) = self.held.remove(key) {
            if let Some(keys) = self.holding.get_mut(&home) {
                keys.remove(key);
                if keys.is_empty() {
                    self.holding.remove(&home);
                }
            }
            changed.push(home);
        }
        if let Some(held) = held {
            self.holding.entry(held.home.clone()).or_default().insert(key.clone());
            changed.push(held.home.clone());
            self.held.insert(key.clone(), held);
        }
        changed
    }
}

/// A pod takes its part of a node.
pub(super) fn add(taken: &mut IndexMap<Name, Taken>, node: &Name, requests: &[(Name, Amount)]) {
    let of_node = taken.entry(Name::clone(node)).or_default();
    for (resource, amount) in requests {
        *of_node.entry(Name::clone(resource)).or_default() += i128::from(amount.get());
    }
}
