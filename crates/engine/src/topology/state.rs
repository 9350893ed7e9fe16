//! What is kept about nodes.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::slim;
use sluice_core::{Amount, HOSTNAME, Name, WorkloadKey};

use super::seating::Seating;
use crate::hotswap::pod::{Pod, PodKey};
use crate::index_map::IndexMap;

/// Amounts by resource; `pods` counts pods.
pub(super) type Taken = BTreeMap<Name, i128>;

/// The nodes as the core has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopologyNodes {
    /// The core has the nodes.
    pub(super) used: bool,
    /// What pods without a topology assignment use of each node.
    pub(super) taken: BTreeMap<Name, Taken>,
    /// These pods: their nodes, and what each takes.
    pub(super) counted: BTreeMap<PodKey, (Name, Vec<(Name, Amount)>)>,
    /// Nodes whose usage differs from what the core has.
    pub(super) changed: BTreeSet<Name>,
    /// Workloads that hold nodes, by the name with which their pods refer to them: slices of one job share it.
    pub(super) holding: BTreeMap<WorkloadKey, BTreeSet<WorkloadKey>>,
    /// These names.
    home_of: BTreeMap<WorkloadKey, WorkloadKey>,
    pub(super) hosts: Hosts,
    /// Which pods are where they were assigned.
    pub(super) seating: Seating,
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

    pub(super) fn count(&mut self, key: PodKey, pod: &Pod) {
        add(&mut self.taken, &pod.node, &pod.requests);
        self.changed.insert(Name::clone(&pod.node));
        self.counted.insert(key, (Name::clone(&pod.node), pod.requests.clone()));
    }

    pub(super) fn uncount(&mut self, key: &PodKey) {
        let Some((node, requests)) = self.counted.remove(key) else { return };
        if let Some(of_node) = self.taken.get_mut(&node) {
            for (resource, amount) in &requests {
                if let Some(taken) = of_node.get_mut(resource) {
                    *taken -= i128::from(amount.get());
                }
            }
            of_node.retain(|_, taken| *taken != 0);
            if of_node.is_empty() {
                self.taken.remove(&node);
            }
        }
        self.changed.insert(node);
    }

    /// The pods that the core counts one by one, as it did not place them.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &PodKey> {
        self.counted.keys()
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
        self.home_of.get(key).cloned()
    }

    /// Records the name with which the pods of a Workload refer to it, if it holds nodes. Returns the names that were added or removed.
    pub(super) fn note(&mut self, key: &WorkloadKey, home: Option<WorkloadKey>) -> Vec<WorkloadKey> {
        let before = self.home_of.get(key).cloned();
        if before == home {
            return Vec::new();
        }
        let mut changed = Vec::new();
        if let Some(old) = before {
            self.home_of.remove(key);
            if let Some(keys) = self.holding.get_mut(&old) {
                keys.remove(key);
                if keys.is_empty() {
                    self.holding.remove(&old);
                    changed.push(old);
                }
            }
        }
        if let Some(new) = home {
            self.home_of.insert(key.clone(), new.clone());
            let keys = self.holding.entry(new.clone()).or_default();
            if keys.is_empty() {
                changed.push(new);
            }
            keys.insert(key.clone());
        }
        changed
    }
}

/// A pod takes its part of a node.
pub(super) fn add(taken: &mut BTreeMap<Name, Taken>, node: &Name, requests: &[(Name, Amount)]) {
    let of_node = taken.entry(Name::clone(node)).or_default();
    for (resource, amount) in requests {
        *of_node.entry(Name::clone(resource)).or_default() += i128::from(amount.get());
    }
}
