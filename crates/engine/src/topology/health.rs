//! Nodes that fail under a Workload (docs/reference/06-algorithm.md 6.14; gate TASFailedNodeReplacement): its status lists the node, and its pods get
//! another node; a second failed node evicts the Workload, unless both are of one slice that may move.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Toleration;
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_api::v1beta2::UnhealthyNode;
use sluice_core::{Amount, Name, WorkloadKey};

use super::assigned::hosts;
use crate::config::Part;
use crate::effect::Purpose;
use crate::engine::{Alarm, Engine};
use crate::hotswap::matching::tolerates;
use crate::hotswap::pod::takes;
use crate::ingest::workload::is;
use crate::job_pod::Stage;
use crate::lifecycle::slices::first_slice;

/// How long a node may be not ready where its pods do not decide.
const NOT_READY: SignedDuration = SignedDuration::from_secs(30);

/// How a node is for a Workload.
enum OnNode {
    Well,
    /// It will have failed at that time, if its condition stays.
    Wavers(Timestamp),
    Failed,
}

/// What one look at the nodes of a Workload computes once.
struct NodeLookup<'a> {
    key: &'a WorkloadKey,
    /// The nodes with pods that continue.
    with_pods: Option<BTreeSet<&'a Name>>,
    /// By pod set.
    tolerated: BTreeMap<usize, Tolerated>,
}

impl<'a> NodeLookup<'a> {
    fn new(key: &'a WorkloadKey) -> Self {
        Self { key, with_pods: None, tolerated: BTreeMap::new() }
    }
}

/// The failed nodes of a Workload.
#[derive(Default)]
struct FailedNodes {
    hosts: BTreeSet<Name>,
    /// When the next one will have failed.
    wake: Option<Timestamp>,
    /// How many hosts were asked.
    asked: u64,
}

/// The taints that the pods of a pod set get along with.
struct Tolerated {
    /// Tolerations that do not end.
    lasting: Vec<Toleration>,
    all: Vec<Toleration>,
    /// What each pod uses.
    per_pod: Vec<(Name, Amount)>,
}

impl Engine {
    /// Whether failed nodes of a Workload are replaced one by one.
    pub(crate) fn replaces_nodes(&self, key: &WorkloadKey) -> bool {
        self.config.on(Gate::TASFailedNodeReplacement) && self.places_pods() && self.assigned.has_hosts(key)
    }

    /// Whether a failed node of a Workload may still be replaced, as far as is known.
    pub(crate) fn may_replace_nodes(&self, key: &WorkloadKey) -> bool {
        self.replaces_nodes(key) && !self.assigned.unreplaced.contains(key)
    }

    /// Whether each of these nodes, which are about to be removed, counts as failed for the Workload, so that a replacement is searched.
    pub(crate) fn leaves_by_itself(&self, key: &WorkloadKey, lost: &BTreeSet<&str>) -> bool {
        let departing = lost.iter().filter_map(|node| self.world.nodes.get_key_value(*node));
        let departing = departing.filter(|(_, node)| node.ready == Some(true)).map(|(name, _)| name);
        let mut departing = departing.peekable();
        if departing.peek().is_none() {
            return true;
        }
        let failed = self.failed_nodes(key).hosts;
        let listed = &self.world.workloads[key].status().unhealthy_nodes;
        let mut departing = departing.map(|node| self.topology.host_of(node).unwrap_or(node));
        departing.all(|host| failed.contains(host) || listed.iter().any(|one| *one.name == **host))
    }

    /// Whether a node is assigned to a Workload with a topology assignment: by its hostname, or as part of a domain.
    pub(crate) fn is_assigned(&self, key: &WorkloadKey, node: &Name) -> bool {
        let host = self.topology.host_of(node).unwrap_or(node);
        !self.assigned.has_hosts(key) || self.assigned.on.get(host).is_some_and(|keys| keys.contains(key))
    }

    /// There is no replacement for a failed node of a Workload, which stays.
    pub(crate) fn note_unreplaced(&mut self, key: &WorkloadKey) {
        let admitted = self.world.workloads.get(key).is_some_and(|entry| is(entry.status(), Type::Admitted));
        if admitted && self.replaces_nodes(key) && self.assigned.unreplaced.insert(key.clone()) {
            self.hotswap_stale();
        }
    }

    /// A node came, changed or went: the Workloads with pods assigned to it are looked at.
    pub(crate) fn node_may_fail(&mut self, node: &Name) {
        let host = self.topology.host_of(node).unwrap_or(node);
        let concerned = self.assigned.on.get(host).into_iter().flatten().cloned();
        self.dirty.workloads.extend(concerned);
    }

    /// A pod with a node changed or went: while the node is not well for its Workload, that may have been what the Workload waited for. A node with
    /// taints that the pods tolerate is well.
    pub(crate) fn pod_on_node_changed(&mut self, home: &WorkloadKey, node: &Name) {
        let named = self.topology.holding.get(home).into_iter().flatten();
        let concerned: Vec<_> = named.filter(|key| self.is_ill_for(key, node)).cloned().collect();
        self.dirty.workloads.extend(concerned);
    }

    /// Whether a node that is assigned to a Workload is not well for it, or its status lists it: its pods there may decide whether the node has failed.
    fn is_ill_for(&self, key: &WorkloadKey, name: &Name) -> bool {
        let host = self.topology.host_of(name).unwrap_or(name);
        let assigned = self.assigned.on.get(host).is_some_and(|keys| keys.contains(key));
        let Some(entry) = self.world.workloads.get(key).filter(|_| assigned) else { return false };
        if entry.status().unhealthy_nodes.iter().any(|one| *one.name == **host) {
            return true;
        }
        let node = self.world.nodes.get(name);
        let mut lookup = NodeLookup::new(key);
        self.assigned.of.get(key).into_iter().flatten().any(|(set, assignment)| {
            node.is_none_or(|node| !self.node_is_well(node, *set, &mut lookup))
                && hosts(assignment).any(|one| one == host)
        })
    }

    /// Keeps the list of failed nodes in the status, or evicts a Workload that lost several; says whether it wrote.
    pub(crate) fn reconcile_nodes(&mut self, key: &WorkloadKey) -> bool {
        let status = self.world.workloads[key].status();
        if !is(status, Type::Admitted) || !self.replaces_nodes(key) || !self.topology.knows_nodes() {
            return false;
        }
        let FailedNodes { hosts: mut new, wake, asked } = self.failed_nodes(key);
        self.work.asked_hosts += asked;
        let listed = &status.unhealthy_nodes;
        let mut failed: Vec<&str> = listed.iter().map(|node| node.name.as_str()).collect();
        failed.retain(|node| new.remove(*node));
        let same = new.is_empty() && failed.len() == listed.len();
        failed.extend(new.iter().map(|node| &**node));
        if same {
            if let Some(at) = wake {
                self.wake_at(at, Alarm::Workload(key.clone()));
            }
            return false;
        }
        let stays =
            if failed.len() > 1 && !new.is_empty() { self.lost_one_slice(key, &failed) } else { Ok(()) };
        if let Err(why) = stays {
            let names = failed.join(", ");
            let why = why.map_or_else(String::new, |why| format!("; its slices cannot move: {why}"));
            let message = format!(
                "Workload eviction triggered due to multiple TAS assigned node failures, including: {names}{why}"
            );
            self.evict_for_nodes(key, message);
            return true;
        }
        let mut next = status.clone();
        next.unhealthy_nodes =
            failed.into_iter().map(|name| UnhealthyNode { name: name.to_owned() }).collect();
        self.write_status(key, Purpose::UnhealthyNodes, next, Vec::new());
        true
    }

    /// Whether a node that the status of an admitted Workload lists has not failed, so that it keeps its pods, and leaves the list: nodes that were
    /// found while it was away are not needed.
    pub(super) fn listed_node_is_back(&self, key: &WorkloadKey) -> bool {
        let status = self.world.workloads[key].status();
        let keeps_list = self.config.runs(Part::Workload)
            && is(status, Type::Admitted)
            && self.replaces_nodes(key)
            && self.topology.knows_nodes();
        if !keeps_list || status.unhealthy_nodes.is_empty() {
            return false;
        }
        let failed = self.failed_nodes(key).hosts;
        status.unhealthy_nodes.iter().any(|node| !failed.contains(node.name.as_str()))
    }

    fn failed_nodes(&self, key: &WorkloadKey) -> FailedNodes {
        let mut failed = FailedNodes::default();
        let mut lookup = NodeLookup::new(key);
        for (set, assignment) in self.assigned.of.get(key).into_iter().flatten() {
            for host in hosts(assignment) {
                failed.asked += 1;
                match self.host_fails(host, *set, &mut lookup) {
                    OnNode::Well => {}
                    OnNode::Wavers(until) => {
                        failed.wake = Some(failed.wake.map_or(until, |at| at.min(until)));
                    }
                    OnNode::Failed => {
                        failed.hosts.insert(Name::clone(host));
                    }
                }
            }
        }
        failed
    }

    /// A hostname fails with all nodes that have it.
    fn host_fails<'a>(&'a self, host: &str, set: usize, lookup: &mut NodeLookup<'a>) -> OnNode {
        let nodes = self.topology.of_host(host).filter_map(|name| self.world.nodes.get_key_value(name));
        let mut until = None;
        for (name, node) in nodes {
            match self.node_fails((name, node), set, lookup) {
                OnNode::Well => return OnNode::Well,
                OnNode::Wavers(at) => until = until.max(Some(at)),
                OnNode::Failed => {}
            }
        }
        until.map_or(OnNode::Failed, OnNode::Wavers)
    }

    fn node_fails<'a>(
        &'a self,
        (name, node): (&Name, &slim::Node),
        set: usize,
        lookup: &mut NodeLookup<'a>,
    ) -> OnNode {
        let Some(ready) = node.ready else { return OnNode::Failed };
        if self.node_is_well(node, set, lookup) {
            return OnNode::Well;
        }
        let by_pods = self.config.on(Gate::TASReplaceNodeOnPodTermination);
        if !ready {
            if by_pods && !self.has_pods_on(name, lookup) {
                return OnNode::Failed;
            }
            if by_pods && !self.config.on(Gate::TASReplaceNodeDueToNotReadyOverFixedTime) {
                return OnNode::Well;
            }
            let over = node.ready_since.and_then(|since| since.checked_add(NOT_READY).ok());
            return over.filter(|over| *over > self.now).map_or(OnNode::Failed, OnNode::Wavers);
        }
        // Pods that tolerate the taint for a while stay; the others are being deleted.
        let tolerated = self.tolerated_by(set, lookup);
        let for_a_while = tolerates(node, &tolerated.all, &tolerated.per_pod);
        if (by_pods || for_a_while) && self.has_pods_on(name, lookup) {
            return OnNode::Well;
        }
        OnNode::Failed
    }

    /// Whether a node is well for the pods of a pod set, wherever they are: it is ready, and they tolerate its taints without end.
    fn node_is_well(&self, node: &slim::Node, set: usize, lookup: &mut NodeLookup<'_>) -> bool {
        if node.ready != Some(true) {
            return false;
        }
        if node.taints.is_empty() || !self.config.on(Gate::TASReplaceNodeOnNodeTaints) {
            return true;
        }
        let tolerated = self.tolerated_by(set, lookup);
        tolerates(node, &tolerated.lasting, &tolerated.per_pod)
    }

    /// The taints that the pods of a pod set get along with, as they were found before.
    fn tolerated_by<'b>(&self, set: usize, lookup: &'b mut NodeLookup<'_>) -> &'b Tolerated {
        let key = lookup.key;
        lookup.tolerated.entry(set).or_insert_with(|| self.tolerated(key, set))
    }

    /// The taints that the pods of a pod set get along with: by its template, its RuntimeClass, its flavors and what checks add.
    fn tolerated(&self, key: &WorkloadKey, set: usize) -> Tolerated {
        let entry = &self.world.workloads[key];
        let status = entry.status();
        let spec = entry.object.spec.pod_sets.get(set);
        let assigned = status.admission.as_ref().and_then(|all| all.pod_set_assignments.get(set));
        let flavors = assigned.into_iter().flat_map(|assigned| assigned.flavors.values());
        let flavors = flavors.filter_map(|flavor| self.world.flavors.get(flavor.as_str()));
        let updates = status.admission_checks.iter().flat_map(|check| &check.pod_set_updates);
        let updates = updates.filter(|update| spec.is_some_and(|spec| spec.name == update.name));
        let own = spec.into_iter().flat_map(|spec| &spec.template.tolerations);
        let around = self.world.around(&key.namespace, &self.config);
        let class = spec.and_then(|spec| around.class_of(&spec.template));
        let all = own
            .chain(class.into_iter().flat_map(|class| &class.tolerations))
            .chain(flavors.flat_map(|flavor| &flavor.spec.tolerations))
            .chain(updates.flat_map(|update| &update.tolerations));
        let all: Vec<Toleration> = all.cloned().collect();
        let lasting = all.iter().filter(|one| one.toleration_seconds.is_none()).cloned().collect();
        let per_pod = spec.map(|spec| takes(&spec.template, around.limits, around.runtime_classes));
        Tolerated { lasting, all, per_pod: per_pod.unwrap_or_default() }
    }

    /// Whether pods of a Workload that continue are on a node.
    fn has_pods_on<'a>(&'a self, node: &Name, lookup: &mut NodeLookup<'a>) -> bool {
        let key = lookup.key;
        lookup.with_pods.get_or_insert_with(|| self.nodes_with_pods(key)).contains(node)
    }

    fn nodes_with_pods(&self, key: &WorkloadKey) -> BTreeSet<&Name> {
        let entry = &self.world.workloads[key];
        let home = WorkloadKey::new(Name::clone(&key.namespace), first_slice(&key.name, entry));
        let bound = self.world.placed.get(&home).into_iter().flat_map(|pods| pods.all([Stage::Bound]));
        let bound = bound.map(|name| (Name::clone(&key.namespace), Name::clone(name)));
        let pods = bound.filter_map(|pod| self.world.job_pods.get(&pod)).filter(|pod| !pod.leaves);
        pods.filter_map(|pod| pod.place.as_ref()?.node.as_ref()).collect()
    }
}
