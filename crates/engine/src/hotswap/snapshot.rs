//! What one evaluation sees: the nodes with their health, and the pods on them by the Workload that they run for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::{Amount, Name, WorkloadKey};
use sluice_quantity::is_extended;
use sluice_selector::Operator;

use super::health::{self, Health};
use super::pod::{Allocatable, Pod, PodKey};
use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::world::WorkloadEntry;
use sluice_api::conditions::{self, WorkloadCondition as Type};

/// One node.
#[derive(Debug)]
pub(crate) struct SeenNode<'a> {
    /// The object.
    pub node: &'a slim::Node,
    /// How it is.
    pub health: Health,
    /// What it has for pods.
    pub allocatable: &'a Allocatable,
}

/// What one evaluation sees.
#[derive(Debug, Default)]
pub(crate) struct Snapshot<'a> {
    /// The nodes.
    pub nodes: BTreeMap<&'a str, SeenNode<'a>>,
    /// The JobSet of each Workload that has one.
    pub jobsets: BTreeMap<&'a WorkloadKey, &'a JobView>,
    /// The pods of each Workload that holds quota, but for those that an earlier run left behind.
    pub of_workload: BTreeMap<&'a WorkloadKey, Vec<&'a Pod>>,
    /// All other pods.
    pub others: Vec<&'a Pod>,
    /// The nodes that pods of running Workloads left.
    pub left: BTreeMap<&'a WorkloadKey, &'a BTreeSet<Name>>,
    /// The nodes that pods may be on, by what these ask of nodes.
    usable: RefCell<BTreeMap<String, Usable<'a>>>,
}

/// The nodes that pods may be on.
#[derive(Clone, Debug)]
pub(crate) struct Usable<'a> {
    /// Those that count for capacity.
    pub healthy: Rc<BTreeSet<&'a str>>,
    /// Whether there are any at all.
    pub any: bool,
}

/// Whether what a Workload asks for is counted as quota, so that its pods are not to be counted again.
pub(crate) fn holds(entry: &WorkloadEntry) -> bool {
    holds_quota(entry.status())
}

/// The same by a status.
fn holds_quota(status: &WorkloadStatus) -> bool {
    reserved(status) && !is(status, Type::Finished)
}

/// Whether a Workload has given back the quota that it held before: it holds none, or what it holds was reserved later.
pub(crate) fn released(before: &WorkloadStatus, after: &WorkloadStatus) -> bool {
    holds_quota(before) && (!holds_quota(after) || reserved_since(before) != reserved_since(after))
}

/// Since when quota is reserved.
pub(super) fn reserved_since(status: &WorkloadStatus) -> Option<Timestamp> {
    conditions::true_since(&status.conditions, Type::QuotaReserved.as_str())
}

impl<'a> Snapshot<'a> {
    /// What is there now.
    pub fn of(engine: &'a Engine, now: Timestamp) -> Self {
        let mut snapshot = Self::of_nodes(engine, now);
        let workloads = engine.world.workloads.iter();
        snapshot.jobsets =
            workloads.filter_map(|(key, entry)| Some((key, engine.jobset_of(entry)?))).collect();
        for (key, pod) in &engine.world.pods {
            snapshot.place(engine, key, pod);
        }
        snapshot.left = engine.hotswap.left.iter().collect();
        snapshot
    }

    /// The nodes alone.
    pub fn of_nodes(engine: &'a Engine, now: Timestamp) -> Self {
        let (world, config) = (&engine.world, &engine.config.hotswap);
        // Both are by name.
        let nodes = world.nodes.iter().zip(world.allocatable.values()).map(|((name, node), allocatable)| {
            let node = &**node;
            (&**name, SeenNode { node, health: health::of(node, now, config), allocatable })
        });
        Self { nodes: nodes.collect(), ..Self::default() }
    }

    fn place(&mut self, engine: &'a Engine, key: &'a PodKey, pod: &'a Pod) {
        let has = |entry: &WorkloadEntry| holds(entry) && !pod.is_of_former_run(entry);
        let known = |key: &WorkloadKey| engine.world.workloads.get_key_value(key);
        let mut all = engine.workloads_of_pod(key, pod).filter_map(known);
        match all.find(|(_, entry)| has(entry)) {
            Some((key, _)) => self.of_workload.entry(key).or_default().push(pod),
            None => self.others.push(pod),
        }
    }

    /// The nodes of a flavor: those with its labels.
    pub fn of_flavor<'s>(
        &'s self,
        flavor: &'s BTreeMap<String, String>,
    ) -> impl Iterator<Item = (&'a str, &'s SeenNode<'a>)> {
        self.nodes.iter().filter(|(_, seen)| has_labels(seen.node, flavor)).map(|(name, seen)| (*name, seen))
    }

    /// The nodes that `may` lets pods be on; `sought` names the request, so that equal requests share the answer.
    pub fn usable(&self, sought: String, may: impl Fn(&slim::Node) -> bool) -> Usable<'a> {
        if let Some(known) = self.usable.borrow().get(&sought) {
            return known.clone();
        }
        let own: Vec<_> = self.nodes.iter().filter(|(_, seen)| may(seen.node)).collect();
        let healthy = own.iter().filter(|(_, seen)| seen.health.has_capacity()).map(|(name, _)| **name);
        let usable = Usable { healthy: Rc::new(healthy.collect()), any: !own.is_empty() };
        self.usable.borrow_mut().insert(sought, usable.clone());
        usable
    }

    /// How a node is; one that is gone is not healthy.
    pub fn health(&self, node: &str) -> Health {
        self.nodes.get(node).map_or(Health::Unhealthy, |seen| seen.health)
    }

    /// Whether a Workload has a JobSet that goes on: the pods of one that ended or is deleted leave for good.
    pub fn has_jobset(&self, key: &WorkloadKey) -> bool {
        self.jobsets.get(key).is_some_and(|view| !view.deleting && view.finished.is_none())
    }

    /// The labels by which a Workload takes whole groups of nodes.
    pub fn exclusive_of(&self, key: &WorkloadKey) -> BTreeSet<String> {
        self.jobsets.get(key).map(|view| exclusive_in(view)).unwrap_or_default()
    }

    /// The nodes that a Workload's pods are on.
    pub fn nodes_of(&self, key: &WorkloadKey) -> BTreeSet<&'a str> {
        self.of_workload.get(key).into_iter().flatten().map(|pod| &*pod.node).collect()
    }
}

/// The labels by which a JobSet takes whole groups of nodes.
pub(super) fn exclusive_in(view: &JobView) -> BTreeSet<String> {
    view.pod_sets.iter().filter_map(|set| Some(set.exclusive_topology.as_ref()?.key.clone())).collect()
}

/// Whether a node has these labels.
pub(crate) fn has_labels(node: &slim::Node, wanted: &BTreeMap<String, String>) -> bool {
    let labels = node.metadata.labels.as_ref();
    wanted.iter().all(|(key, value)| labels.and_then(|l| l.get(key)).is_some_and(|is| is == value))
}

/// Whether one of the terms of a required node affinity holds. A term without any requirement selects no node.
pub(crate) fn has_affinity(node: &slim::Node, terms: &[NodeSelectorTerm]) -> bool {
    let holds = |e: &NodeSelectorRequirement, value: Option<&String>| {
        let values = e.values.iter().flatten().map(String::as_str);
        let operator = Operator::of_nodes(&e.operator);
        operator.is_some_and(|operator| operator.holds(value.map(String::as_str), values))
    };
    let label = |e: &NodeSelectorRequirement| {
        holds(e, node.metadata.labels.as_ref().and_then(|labels| labels.get(&e.key)))
    };
    // There is no other field.
    let field =
        |e: &NodeSelectorRequirement| e.key == "metadata.name" && holds(e, node.metadata.name.as_ref());
    terms.is_empty()
        || terms.iter().any(|term| {
            let labels = term.match_expressions.as_deref().unwrap_or_default();
            let fields = term.match_fields.as_deref().unwrap_or_default();
            !(labels.is_empty() && fields.is_empty()) && labels.iter().all(label) && fields.iter().all(field)
        })
}

/// Whether pods with these tolerations, which take `requests` of a node, may come to it. Templates don't have all tolerations of
/// their pods: where nodes with devices are tainted with the resource's name, as GKE's TPU and GPU nodes are, the API server's
/// admission plugin `ExtendedResourceToleration` gives one to each pod that asks for the resource.
pub(crate) fn tolerates(node: &slim::Node, tolerations: &[Toleration], requests: &[(Name, Amount)]) -> bool {
    let asked = |key: &str| is_extended(key) && requests.iter().any(|(resource, _)| **resource == *key);
    node.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").all(|taint| {
        if taint.effect == "NoSchedule" && asked(&taint.key) {
            return true;
        }
        tolerations.iter().any(|t| {
            let key = t.key.as_deref().unwrap_or_default();
            let effect = t.effect.as_deref().unwrap_or_default();
            let exists = t.operator.as_deref() == Some("Exists");
            (key == taint.key || (key.is_empty() && exists))
                && (effect.is_empty() || effect == taint.effect)
                && (exists
                    || t.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default())
        })
    })
}

/// An amount as an exact number.
pub(crate) fn exact(amount: Amount) -> i128 {
    i128::from(amount.get())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Taint;

    use super::*;

    #[test]
    fn a_term_without_requirements_selects_no_node() {
        let mut node = slim::Node::default();
        node.metadata.name = Some("n1".to_owned());
        node.metadata.labels = Some([("pool".to_owned(), "a".to_owned())].into());
        let requirement = |key: &str, operator: &str, value: &str| NodeSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: Some(vec![value.to_owned()]),
        };
        let labels = |one| NodeSelectorTerm { match_expressions: Some(vec![one]), match_fields: None };
        let fields = |one| NodeSelectorTerm { match_expressions: None, match_fields: Some(vec![one]) };
        let empty = NodeSelectorTerm { match_expressions: Some(Vec::new()), match_fields: None };
        let pool = || labels(requirement("pool", "In", "a"));
        assert!(has_affinity(&node, &[]), "nothing is required");
        assert!(!has_affinity(&node, &[NodeSelectorTerm::default()]));
        assert!(!has_affinity(&node, &[empty]));
        assert!(has_affinity(&node, &[NodeSelectorTerm::default(), pool()]), "one of the terms is enough");
        assert!(!has_affinity(&node, &[labels(requirement("pool", "In", "b"))]));
        let name = |operator: &str, value: &str| fields(requirement("metadata.name", operator, value));
        assert!(has_affinity(&node, &[name("In", "n1")]) && has_affinity(&node, &[name("NotIn", "n2")]));
        assert!(!has_affinity(&node, &[name("In", "n2")]) && !has_affinity(&node, &[name("NotIn", "n1")]));
        assert!(!has_affinity(&node, &[fields(requirement("metadata.uid", "NotIn", "x"))]));
        let both = NodeSelectorTerm { match_fields: name("In", "n2").match_fields, ..pool() };
        assert!(!has_affinity(&node, &[both]), "labels and fields must hold");
    }

    #[test]
    fn a_taint_named_after_a_device_that_the_pods_ask_for_keeps_nobody_off() {
        let tolerated = |key: &str, effect: &str, resource: &str| {
            let taint = Taint { key: key.to_owned(), effect: effect.to_owned(), ..Taint::default() };
            let node = slim::Node { taints: vec![taint], ..slim::Node::default() };
            tolerates(&node, &[], &[(Name::from(resource), Amount(4)), (Name::from("pods"), Amount(1))])
        };
        assert!(tolerated("google.com/tpu", "NoSchedule", "google.com/tpu"));
        assert!(tolerated("nvidia.com/gpu", "NoSchedule", "nvidia.com/gpu"));
        assert!(!tolerated("google.com/tpu", "NoSchedule", "nvidia.com/gpu"), "another device");
        assert!(
            !tolerated("google.com/tpu", "NoExecute", "google.com/tpu"),
            "the plugin's is for NoSchedule"
        );
        assert!(!tolerated("pods", "NoSchedule", "cpu"), "not an extended resource");
    }
}
