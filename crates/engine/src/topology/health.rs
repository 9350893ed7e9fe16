//! Nodes that fail under a Workload (docs/reference/06-algorithm.md 6.14; gate TASFailedNodeReplacement): its status lists the node, and its
//! pods get another one; a second node evicts it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Toleration;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_api::v1beta2::UnhealthyNode;
use sluice_core::{HOSTNAME, Name, SharedAssignment, WorkloadKey};

use crate::effect::Purpose;
use crate::engine::{Alarm, Engine};
use crate::hotswap::pod::takes;
use crate::hotswap::snapshot::tolerates;
use crate::ingest::workload::is;
use crate::job_pod::Stage;
use crate::lifecycle::slices::first_slice;

/// How long a node may be not ready, with the gate TASReplaceNodeDueToNotReadyOverFixedTime.
const NOT_READY: SignedDuration = SignedDuration::from_secs(30);

/// Which Workloads have pods assigned to which nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assigned {
    /// By pod set: its place in the Workload, and its nodes.
    of: BTreeMap<WorkloadKey, Vec<(usize, SharedAssignment)>>,
    on: BTreeMap<Name, BTreeSet<WorkloadKey>>,
}

/// The nodes of an assignment whose lowest level is the hostname.
fn hosts(assignment: &SharedAssignment) -> impl Iterator<Item = &Name> {
    let by_host = assignment.levels.last().is_some_and(|level| &**level == HOSTNAME);
    assignment.domains.iter().filter(move |_| by_host).filter_map(|domain| domain.values.last())
}

impl Assigned {
    /// Replaces the nodes of a Workload.
    fn replace(&mut self, key: &WorkloadKey, new: Vec<(usize, SharedAssignment)>) {
        if self.of.get(key).map_or(new.is_empty(), |old| *old == new) {
            return;
        }
        for (_, assignment) in self.of.remove(key).into_iter().flatten() {
            for host in hosts(&assignment) {
                if let Some(keys) = self.on.get_mut(host) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.on.remove(host);
                    }
                }
            }
        }
        for host in new.iter().flat_map(|(_, assignment)| hosts(assignment)) {
            self.on.entry(Name::clone(host)).or_default().insert(key.clone());
        }
        if !new.is_empty() {
            self.of.insert(key.clone(), new);
        }
    }
}

impl Engine {
    /// The core knows a Workload anew, or not any more.
    pub(crate) fn assigned_nodes_changed(&mut self, key: &WorkloadKey) {
        if self.places_pods() {
            let nodes = self.scheduler.nodes(key);
            self.assigned.replace(key, nodes);
        }
    }

    /// A node came, changed or went: the Workloads with pods assigned to it are looked at.
    pub(crate) fn node_may_fail(&mut self, node: &Name) {
        let concerned = self.assigned.on.get(node).into_iter().flatten().cloned();
        self.dirty.workloads.extend(concerned);
    }

    /// A pod with a node changed or went: while its node is not well, that may have been what its Workload waited for.
    pub(crate) fn pod_on_node_changed(&mut self, node: &Name) {
        let well = self
            .world
            .nodes
            .get(node)
            .is_some_and(|node| node.ready == Some(true) && node.taints.is_empty());
        if !well {
            self.node_may_fail(node);
        }
    }

    /// Keeps the list of failed nodes in the status, or evicts a Workload that lost several; says whether it wrote.
    pub(crate) fn reconcile_nodes(&mut self, key: &WorkloadKey) -> bool {
        let gate = self.config.on(Gate::TASFailedNodeReplacement) && self.topology.knows_nodes();
        let admitted = is(self.world.workloads[key].status(), Type::Admitted);
        if !gate || !admitted || !self.assigned.of.contains_key(key) {
            return false;
        }
        let failed = self.failed_nodes(key);
        let listed = &self.world.workloads[key].status().unhealthy_nodes;
        if failed.iter().map(|node| &**node).eq(listed.iter().map(|node| node.name.as_str())) {
            return false;
        }
        if failed.len() > 1 {
            let names = failed.join(", ");
            self.evict_for_nodes(
                key,
                format!(
                    "Workload eviction triggered due to multiple TAS assigned node failures, including: {names}"
                ),
            );
            return true;
        }
        let mut next = self.world.workloads[key].status().clone();
        next.unhealthy_nodes = failed.iter().map(|node| UnhealthyNode { name: node.to_string() }).collect();
        self.write_status(key, Purpose::UnhealthyNodes, next, Vec::new());
        true
    }

    /// The nodes assigned to a Workload that failed for it, in order.
    fn failed_nodes(&mut self, key: &WorkloadKey) -> Vec<Name> {
        let mut failed: BTreeSet<Name> = BTreeSet::new();
        let mut wake = None;
        let assignments = self.assigned.of.get(key).cloned().unwrap_or_default();
        for (set, assignment) in &assignments {
            for host in hosts(assignment) {
                let Some(node) = self.world.nodes.get(host).filter(|node| node.ready.is_some()) else {
                    failed.insert(Name::clone(host));
                    continue;
                };
                let ready = node.ready == Some(true);
                let over = node.ready_since.and_then(|since| since.checked_add(NOT_READY).ok());
                let by_time = !ready && self.config.on(Gate::TASReplaceNodeDueToNotReadyOverFixedTime);
                if by_time && over.is_none_or(|over| over <= self.now) {
                    failed.insert(Name::clone(host));
                    continue;
                }
                wake = wake.max(over.filter(|_| by_time));
                let by_pods = !ready && self.config.on(Gate::TASReplaceNodeOnPodTermination);
                let by_taint = self.config.on(Gate::TASReplaceNodeOnNodeTaints)
                    && !node.taints.is_empty()
                    && !self.tolerates_node(key, *set, node);
                if (by_pods || by_taint) && !self.has_pods_on(key, host) {
                    failed.insert(Name::clone(host));
                }
            }
        }
        if let Some(at) = wake {
            self.wake_at(at, Alarm::Workload(key.clone()));
        }
        failed.into_iter().collect()
    }

    /// Whether the pods of a pod set may stay on a node with its taints. A toleration that ends does not count.
    fn tolerates_node(&self, key: &WorkloadKey, set: usize, node: &slim::Node) -> bool {
        let entry = &self.world.workloads[key];
        let Some(spec) = entry.object.spec.pod_sets.get(set) else { return true };
        let admission = entry.status().admission.as_ref();
        let assigned = admission.and_then(|admission| admission.pod_set_assignments.get(set));
        let flavors = assigned.into_iter().flat_map(|assigned| assigned.flavors.values());
        let of_flavors = flavors.filter_map(|flavor| self.world.flavors.get(flavor.as_str()));
        let of_flavors = of_flavors.flat_map(|flavor| flavor.spec.tolerations.iter().cloned());
        let all = spec.template.tolerations.iter().cloned().chain(of_flavors);
        let lasting: Vec<Toleration> = all.filter(|one| one.toleration_seconds.is_none()).collect();
        let around = self.world.around(&key.namespace, &self.config);
        tolerates(node, &lasting, &takes(&spec.template, around.limits, around.runtime_classes))
    }

    /// Whether pods of a Workload that go on are on a node.
    fn has_pods_on(&self, key: &WorkloadKey, node: &Name) -> bool {
        let entry = &self.world.workloads[key];
        let home = WorkloadKey::new(Name::clone(&key.namespace), first_slice(&key.name, entry));
        let Some(pods) = self.world.placed.get(&home) else { return false };
        pods.all([Stage::Bound]).any(|name| {
            let pod = self.world.job_pods.get(&(Name::clone(&key.namespace), Name::clone(name)));
            pod.is_some_and(|pod| {
                !pod.leaves && pod.place.as_ref().is_some_and(|place| place.node.as_ref() == Some(node))
            })
        })
    }
}
