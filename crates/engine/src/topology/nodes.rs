//! Nodes for the core, and what pods without a topology assignment use of them (docs/reference/06-algorithm.md 6.12 "free").
//!
//! Nodes count once all nodes and all bound pods were seen, while some flavor has a topology: before that it is not known what is free. A pod counts
//! as placed if it names a Workload of its namespace that holds its node, and is within the number of pods that the Workload has there: only what it
//! requests beyond the assignment counts as used. All requests of every other bound pod count, such as those of a replaced pod that has not ended.

use std::collections::BTreeSet;

use jiff::Timestamp;
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_core::{Amount, HOSTNAME, Name, NodeSpec, WorkloadKey};

use super::state::{Holder, Hosts, add};
use crate::engine::Engine;
use crate::hotswap::NodeChange;
use crate::hotswap::group_index::Said;
use crate::hotswap::matching::{ChangedLabel, changed_labels};
use crate::hotswap::pod::{PodKey, allocatable};
use crate::index_map::IndexMap;
use crate::ingest::topology as ingested;
use crate::input::Kind;
use crate::job_pod::{JobPod, Stage};
use crate::lifecycle::slices::first_slice;
use crate::lifecycle::transition::waits_for_nodes;
use crate::world::WorkloadEntry;
use crate::world::nodes::KnownNode;

/// What decides whether a node has failed, besides its taints and labels.
type NodeHealth<'a> = (Option<&'a str>, bool, bool, Option<bool>, Option<Timestamp>);

fn health(node: &slim::Node) -> NodeHealth<'_> {
    let deleted = node.metadata.deletion_timestamp.is_some();
    (node.metadata.uid.as_deref(), deleted, node.unschedulable, node.ready, node.ready_since)
}

/// The name with which a pod with a node refers to its Workload, and the node.
fn home_and_node(namespace: &Name, pod: &JobPod) -> Option<(WorkloadKey, Name)> {
    let place = pod.place.as_ref()?;
    let node = place.node.clone()?;
    Some((WorkloadKey::new(Name::clone(namespace), Name::clone(&place.workload)), node))
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
        // Whether their nodes failed, and which they could have, was not known before.
        let waits = |entry: &WorkloadEntry| entry.status().admission.as_ref().is_some_and(waits_for_nodes);
        let concerned = |entry: &WorkloadEntry| !entry.nodes.is_empty() || waits(entry);
        let concerned = self.world.workloads.iter().filter(|(_, entry)| concerned(entry));
        self.dirty.workloads.extend(concerned.map(|(key, _)| key.clone()));
        let nodes: Vec<Name> = self.world.nodes.keys().cloned().collect();
        if wanted {
            for key in self.world.pods.keys().cloned().collect::<Vec<_>>() {
                self.count_pod(&key);
            }
            self.report_taken();
            for node in &nodes {
                self.report_node(node);
            }
        } else {
            for key in self.topology.counted.keys().cloned().collect::<Vec<_>>() {
                self.topology.uncount(&key);
            }
            self.topology.seating.clear();
            self.report_taken();
            for node in &nodes {
                self.scheduler.remove_node(node);
            }
        }
        self.request_cycle();
    }

    /// Takes a Node in.
    pub(crate) fn observe_node(&mut self, name: &Name, node: Box<slim::Node>) {
        // Nodes send a heartbeat every few seconds, which costs nothing more than to compare it.
        match self.world.nodes.get_mut(name).map(|known| known.is_still(&node)) {
            Some(true) => {}
            Some(false) => self.node_changed(name, *node),
            None => self.node_came(name, *node),
        }
    }

    fn node_came(&mut self, name: &Name, node: slim::Node) {
        self.node_is_called(name, &node);
        self.world.nodes.insert(name, node);
        self.node_moved(name);
        if self.topology.used {
            self.report_node(name);
            self.request_cycle();
        }
        self.hotswap_node_changed(name, Said::default(), NodeChange::Avoid);
        self.terminating_node_changed(name);
        self.mark_stuck_on(name);
    }

    /// Only what depends on what has changed is looked at: most events of nodes are labels of other software, or that a node is ready, or is not.
    fn node_changed(&mut self, name: &Name, node: slim::Node) {
        let Some(known) = self.world.nodes.known(name) else { return };
        let (labels, tainted) = (changed_labels(known, &node), known.taints != node.taints);
        let amounts = (known.allocatable != node.allocatable).then(|| allocatable(&node));
        let has = amounts.as_ref().unwrap_or(known.allocatable());
        let change = self.node_change((known, known.allocatable()), (&node, has), &labels);
        let said = if change == NodeChange::Avoid { self.said_by(known) } else { Said::default() };
        let moves = self.is_elsewhere(&labels);
        let fails = moves || tainted || health(known) != health(&node);
        let turns = ingested::is_usable(known) != ingested::is_usable(&node);
        let otherwise = tainted || amounts.is_some() || turns && !labels.is_empty();
        let owned = |(key, value): &ChangedLabel<'_>| (Name::from(*key), value.map(Name::from));
        let relabelled: Vec<(Name, Option<Name>)> =
            if otherwise { Vec::new() } else { labels.iter().map(owned).collect() };
        if fails {
            self.node_is_called(name, &node);
        }
        if let Some(known) = self.world.nodes.get_mut(name) {
            known.replace(node, amounts);
        }
        if moves {
            self.node_moved(name);
        }
        if self.topology.used {
            if otherwise {
                self.report_node(name);
            } else if turns {
                self.report_usable(name);
            }
            let is_read = !relabelled.is_empty() && self.scheduler.set_node_labels(name, &relabelled);
            if otherwise || turns || is_read {
                self.request_cycle();
            }
        }
        self.hotswap_node_changed(name, said, change);
        if fails {
            self.terminating_node_changed(name);
            self.mark_stuck_on(name);
        }
    }

    /// Whether a node is in another domain by these labels, which have changed.
    fn is_elsewhere(&self, changed: &[ChangedLabel<'_>]) -> bool {
        let levels = &self.topology.seating.levels;
        changed.iter().any(|(key, _)| *key == HOSTNAME || levels.contains(*key))
    }

    /// A node may have another hostname, or have failed under that which it has.
    fn node_is_called(&mut self, name: &Name, node: &slim::Node) {
        if self.places_pods() {
            self.node_may_fail(name);
            if self.topology.hosts.put(name, node) {
                self.node_may_fail(name);
            }
        }
    }

    /// A Node is gone.
    pub(crate) fn forget_node(&mut self, name: &Name) {
        let said = self.world.nodes.get(name).map(|node| self.said_by(node)).unwrap_or_default();
        self.world.nodes.remove(name);
        self.node_may_fail(name);
        self.topology.hosts.take(name);
        self.node_moved(name);
        if self.topology.used {
            self.scheduler.remove_node(name);
            self.request_cycle();
        }
        self.hotswap_node_changed(name, said, NodeChange::Avoid);
        self.mark_stuck_on(name);
    }

    /// The placement of admissions keeps off nodes that are about to go: what leaves them would be placed there again.
    pub(crate) fn close_departing(&mut self, departing: BTreeSet<Name>) {
        let before = std::mem::replace(&mut self.hotswap.departing, departing);
        let changed: Vec<Name> = before.symmetric_difference(&self.hotswap.departing).cloned().collect();
        if self.topology.used && !changed.is_empty() {
            for node in &changed {
                self.report_usable(node);
            }
            self.request_cycle();
        }
    }

    fn report_node(&mut self, name: &Name) {
        if let Some(node) = self.world.nodes.known(name) {
            let spec = self.node_spec(name, node);
            self.scheduler.set_node(&spec);
        }
    }

    /// A node for the core.
    fn node_spec(&self, name: &Name, node: &KnownNode) -> NodeSpec {
        let mut spec = ingested::node(node, node.allocatable());
        spec.usable &= !self.hotswap.departing.contains(name);
        spec
    }

    /// The same where only that it is usable, or is not, may be another way than was reported.
    fn report_usable(&mut self, name: &Name) {
        if let Some(node) = self.world.nodes.get(name) {
            let usable = ingested::is_usable(node) && !self.hotswap.departing.contains(name);
            self.scheduler.set_node_usable(name, usable);
        }
    }

    /// A bound pod came or changed, or what decides whether it is placed did.
    pub(crate) fn count_pod(&mut self, key: &PodKey) {
        if !self.topology.used {
            return;
        }
        self.work.counted_pods += 1;
        let before = self.topology.changed.len();
        for other in self.seat(key) {
            self.count_requests(&other);
        }
        self.count_requests(key);
        if self.topology.changed.len() > before {
            self.request_cycle();
        }
    }

    /// The requests of an existing pod count as used, but for what the assignment of its Workload has for it.
    fn count_requests(&mut self, key: &PodKey) {
        let Some(pod) = self.world.pods.get(key) else { return self.topology.uncount(key) };
        let requests = self.topology.seating.beyond(key, &pod.requests);
        let counted = self.topology.counted.get(key);
        if counted.is_some_and(|(node, counted)| *node == pod.node && **counted == *requests) {
            return;
        }
        let requests = requests.into_owned();
        self.topology.uncount(key);
        if !requests.is_empty() {
            self.topology.count(key.clone(), &pod.node, requests);
        }
    }

    /// A pod that may be placed came or changed.
    pub(crate) fn placed_pod_changed(&mut self, key: &PodKey) {
        self.count_pod(key);
        let pod = self.world.job_pods.get(key);
        if let Some((home, node)) = pod.and_then(|pod| home_and_node(&key.0, pod)) {
            self.pod_on_node_changed(&home, &node);
        }
    }

    /// A pod that may have been placed is gone.
    pub(crate) fn placed_pod_gone(&mut self, key: &PodKey, pod: &JobPod) {
        self.count_pod(key);
        if let Some((home, node)) = home_and_node(&key.0, pod) {
            self.pod_on_node_changed(&home, &node);
        }
    }

    /// The core knows a new version of a Workload, or no longer knows it: its pods count by its assignment, or each by itself.
    pub(crate) fn nodes_of_workload_changed(&mut self, key: &WorkloadKey) {
        if !self.places_pods() {
            return;
        }
        let nodes = self.scheduler.nodes(key);
        let entry = self.world.workloads.get(key).filter(|_| !nodes.is_empty());
        // Pods of an elastic job name its first slice.
        let home =
            entry.map(|entry| WorkloadKey::new(Name::clone(&key.namespace), first_slice(&key.name, entry)));
        if entry.is_none_or(|entry| entry.status().unhealthy_nodes.is_empty()) {
            self.assigned.unreplaced.remove(key);
        }
        let before = self.topology.home_of(key);
        let moved = self.assigned.replace(key, nodes);
        let mut homes = BTreeSet::new();
        if moved {
            homes.extend(before.into_iter().chain(home.clone()));
        }
        let each = self.scheduler.node_requests(key);
        homes.extend(self.topology.note(key, home.map(|home| Holder { home, each })));
        for home in homes {
            self.rooms_changed(&home);
            let Some(pods) = self.world.placed.get(&home) else { continue };
            let bound = pods.all([Stage::Bound]);
            let bound = bound.map(|name| (Name::clone(&home.namespace), Name::clone(name)));
            for pod in bound.collect::<Vec<_>>() {
                self.count_pod(&pod);
            }
        }
    }

    /// Gives the core what is taken of nodes, before it decides.
    pub(crate) fn report_taken(&mut self) {
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

    /// Names what differs between what is kept of nodes and the objects.
    pub(crate) fn audit_topology(&self) -> Vec<String> {
        let known = &self.topology;
        let mut differences = Vec::new();
        let mut compare = |what: &str, same: bool| {
            if !same {
                differences.push(format!("{what} differ from the objects"));
            }
        };
        let mut hosts = Hosts::default();
        for (name, node) in self.world.nodes.iter().filter(|_| self.places_pods()) {
            hosts.put(name, node);
        }
        compare("the hostnames of nodes", hosts == known.hosts);
        let mut nodes = self.world.nodes.iter().filter(|_| known.used);
        let same = nodes.all(|(name, node)| self.scheduler.has_node(&self.node_spec(name, node)));
        compare("the nodes that the core knows", same);
        let counted = self.world.pods.iter().filter(|_| known.used).filter_map(|(key, pod)| {
            let requests = known.seating.beyond(key, &pod.requests).into_owned();
            (!requests.is_empty()).then(|| (key.clone(), (Name::clone(&pod.node), requests)))
        });
        let counted: IndexMap<_, _> = counted.collect();
        compare("pods that were not placed", counted == known.counted);
        let mut taken = IndexMap::default();
        for (node, requests) in counted.values() {
            add(&mut taken, node, requests);
        }
        taken.retain(|_, of_node| {
            of_node.retain(|_, amount| *amount != 0);
            !of_node.is_empty()
        });
        compare("what other pods take of nodes", taken == known.taken);
        for (key, entry) in self.world.workloads.iter() {
            let settled = entry.open.is_none() && entry.decision.is_none() && !entry.uncertain;
            if !settled || !self.places_pods() {
                continue;
            }
            if !self.assigned.is(key, &self.scheduler.nodes(key)) {
                differences.push(format!("the nodes assigned to {key} differ from what the core knows"));
            }
            if known.each(key) != self.scheduler.node_requests(key) {
                differences.push(format!("what pods of {key} take differs from what the core knows"));
            }
        }
        differences.extend(self.world.nodes.audit());
        differences.extend(self.audit_seats());
        differences.extend(self.assigned.audit());
        differences
    }
}
