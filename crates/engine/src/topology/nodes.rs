//! Nodes for the core, and what pods that no topology assignment placed take of them (docs/reference/06-algorithm.md 6.12 "free").
//!
//! Nodes count once all nodes and all bound pods were seen, while some flavor has a topology: before that nothing is known to be free. A
//! pod is placed if it names a Workload of its namespace that holds nodes; every other bound pod takes what it asks for.

use std::collections::{BTreeMap, BTreeSet};

use sluice_api::gates::Gate;
use sluice_core::{Amount, Name, WorkloadKey};

use crate::engine::Engine;
use crate::hotswap::pod::{Pod, PodKey};
use crate::ingest::topology as ingested;
use crate::input::Kind;
use crate::job_pod::{JobPod, Stage};
use crate::lifecycle::slices::first_slice;

/// Amounts by resource; `pods` counts pods.
type Taken = BTreeMap<Name, i128>;

/// What the core was told of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopologyNodes {
    /// It knows the nodes.
    used: bool,
    /// What pods that were not placed take of each node.
    taken: BTreeMap<Name, Taken>,
    /// These pods: their nodes, and what each takes.
    counted: BTreeMap<PodKey, (Name, Vec<(Name, Amount)>)>,
    /// Nodes of which something else is taken than the core was told.
    changed: BTreeSet<Name>,
    /// Workloads that hold nodes.
    holding: BTreeSet<WorkloadKey>,
}

impl TopologyNodes {
    /// Whether all nodes, and what is on them, were seen, and matter.
    pub(crate) fn knows_nodes(&self) -> bool {
        self.used
    }

    fn count(&mut self, key: PodKey, pod: &Pod) {
        let of_node = self.taken.entry(Name::clone(&pod.node)).or_default();
        for (resource, amount) in &pod.requests {
            *of_node.entry(Name::clone(resource)).or_default() += i128::from(amount.get());
        }
        self.changed.insert(Name::clone(&pod.node));
        self.counted.insert(key, (Name::clone(&pod.node), pod.requests.clone()));
    }

    fn uncount(&mut self, key: &PodKey) {
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
}

impl Engine {
    /// Whether pods get nodes.
    pub(crate) fn places_pods(&self) -> bool {
        self.config.on(Gate::TopologyAwareScheduling)
    }

    /// Takes the nodes in, or forgets them: a flavor, or the first list of nodes or pods, came or went.
    pub(crate) fn topology_may_be_used(&mut self) {
        let wanted = self.places_pods()
            && self.world.flavors.values().any(|flavor| flavor.spec.topology_name.is_some())
            && [Kind::Node, Kind::Pod, Kind::JobPod].iter().all(|kind| self.listed.contains(kind));
        if wanted == self.topology.used {
            return;
        }
        self.topology.used = wanted;
        let nodes: Vec<Name> = self.world.nodes.keys().cloned().collect();
        if wanted {
            for key in self.world.pods.keys().cloned().collect::<Vec<_>>() {
                self.count_pod(&key);
            }
            self.tell_taken();
            for node in &nodes {
                self.tell_node(node);
            }
        } else {
            for key in self.topology.counted.keys().cloned().collect::<Vec<_>>() {
                self.topology.uncount(&key);
            }
            self.tell_taken();
            for node in &nodes {
                self.scheduler.remove_node(node);
            }
        }
        self.request_cycle();
    }

    /// A Node is new or different.
    pub(crate) fn topology_node_changed(&mut self, name: &Name) {
        if self.topology.used {
            self.tell_node(name);
            self.request_cycle();
        }
        self.node_may_fail(name);
    }

    /// A Node is gone.
    pub(crate) fn topology_node_gone(&mut self, name: &Name) {
        if self.topology.used {
            self.scheduler.remove_node(name);
            self.request_cycle();
        }
        self.node_may_fail(name);
    }

    fn tell_node(&mut self, name: &Name) {
        if let (Some(node), Some(has)) = (self.world.nodes.get(name), self.world.allocatable.get(name)) {
            self.scheduler.set_node(&ingested::node(node, has));
        }
    }

    /// A bound pod came or changed, or what decides whether it is placed did.
    pub(crate) fn count_pod(&mut self, key: &PodKey) {
        if !self.topology.used {
            return;
        }
        let before = self.topology.changed.len();
        let known = self.world.pods.get(key).filter(|_| !self.has_assigned_node(key));
        match known {
            Some(pod) => {
                let same = self.topology.counted.get(key).is_some_and(|(node, requests)| {
                    *node == pod.node && *requests == pod.requests
                });
                if !same {
                    let pod = pod.clone();
                    self.topology.uncount(key);
                    self.topology.count(key.clone(), &pod);
                }
            }
            None => self.topology.uncount(key),
        }
        if self.topology.changed.len() > before {
            self.request_cycle();
        }
    }

    /// A pod that may be placed came or changed.
    pub(crate) fn placed_pod_changed(&mut self, key: &PodKey) {
        self.count_pod(key);
        let place = self.world.job_pods.get(key).and_then(|pod| pod.place.as_ref());
        if let Some(node) = place.and_then(|place| place.node.clone()) {
            self.pod_on_node_changed(&node);
        }
    }

    /// A pod that may have been placed is gone.
    pub(crate) fn placed_pod_gone(&mut self, key: &PodKey, pod: &JobPod) {
        self.count_pod(key);
        if let Some(node) = pod.place.as_ref().and_then(|place| place.node.clone()) {
            self.pod_on_node_changed(&node);
        }
    }

    /// Whether a pod has its node by the assignment of its Workload.
    fn has_assigned_node(&self, key: &PodKey) -> bool {
        let place = self.world.job_pods.get(key).and_then(|pod| pod.place.as_ref());
        place.is_some_and(|place| {
            let workload = WorkloadKey::new(Name::clone(&key.0), Name::clone(&place.workload));
            self.topology.holding.contains(&workload)
        })
    }

    /// A Workload changed: its pods are counted by its assignment, or each for itself.
    pub(crate) fn topology_workload_changed(&mut self, key: &WorkloadKey) {
        let entry = self.world.workloads.get(key);
        let holds = entry.is_some_and(|entry| ingested::holds_nodes(entry.status()));
        // Pods of an elastic job name its first slice.
        let first = entry.map(|entry| Name::from(first_slice(&key.name, entry)));
        let home = WorkloadKey::new(Name::clone(&key.namespace), first.unwrap_or(Name::clone(&key.name)));
        let known = self.topology.holding.contains(&home);
        if known == holds {
            return;
        }
        if holds {
            self.topology.holding.insert(home.clone());
        } else if home == *key || entry.is_none() {
            self.topology.holding.remove(&home);
        } else {
            return;
        }
        let Some(pods) = self.world.placed.get(&home) else { return };
        let bound: Vec<PodKey> = pods
            .all([Stage::Bound])
            .map(|name| (Name::clone(&home.namespace), Name::clone(name)))
            .collect();
        for pod in bound {
            self.count_pod(&pod);
        }
    }

    /// Tells the core what is taken of nodes, before it decides.
    pub(crate) fn tell_taken(&mut self) {
        while let Some(node) = self.topology.changed.pop_first() {
            let taken = self.topology.taken.get(&node);
            let amount = |taken: i128| Amount(i64::try_from(taken).unwrap_or(i64::MAX));
            let taken: Vec<(Name, Amount)> = taken
                .into_iter()
                .flatten()
                .map(|(resource, taken)| (Name::clone(resource), amount(*taken)))
                .collect();
            self.scheduler.set_other_usage(&node, &taken);
            self.request_cycle();
        }
    }
}
