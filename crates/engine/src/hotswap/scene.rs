//! What one look sees: the nodes with their health, and the pods on them by the Workload that they run for.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use sluice_api::slim;
use sluice_core::{Amount, Name, WorkloadKey};
use sluice_quantity::{CPU, Quantity};

use super::health::{self, Health};
use super::pods::{Pod, PodKey};
use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::world::WorkloadEntry;
use sluice_api::conditions::WorkloadCondition as Type;

/// One node.
#[derive(Debug)]
pub(crate) struct SeenNode<'a> {
    /// The object.
    pub node: &'a slim::Node,
    /// How it is.
    pub health: Health,
    /// What it has for pods: cpu in milli-CPU, everything else in whole units, rounded down.
    pub allocatable: BTreeMap<Name, i128>,
}

/// What one look sees.
#[derive(Debug, Default)]
pub(crate) struct Scene<'a> {
    /// The nodes.
    pub nodes: BTreeMap<&'a str, SeenNode<'a>>,
    /// The pods of each Workload that holds quota, but for those that an earlier run left behind.
    pub of_workload: BTreeMap<&'a WorkloadKey, Vec<&'a Pod>>,
    /// All other pods.
    pub others: Vec<&'a Pod>,
    /// The nodes that pods of running Workloads left.
    pub left: BTreeMap<&'a WorkloadKey, &'a BTreeSet<Name>>,
}

fn floor(resource: &str, text: &str) -> i128 {
    let nano = Quantity::parse(text).map_or(0, |q| q.nano()).max(0);
    if resource == CPU { nano / 1_000_000 } else { nano / 1_000_000_000 }
}

/// Whether what a Workload asks for is counted as quota, so that its pods are not to be counted again.
pub(crate) fn holds(entry: &WorkloadEntry) -> bool {
    reserved(entry.status()) && !is(entry.status(), Type::Finished)
}

impl<'a> Scene<'a> {
    /// What is there now.
    pub fn of(engine: &'a Engine, now: Timestamp) -> Self {
        let mut scene = Self::of_nodes(engine, now);
        for (key, pod) in &engine.world.pods {
            scene.place(engine, key, pod);
        }
        scene.left = engine.hotswap.left.iter().collect();
        scene
    }

    /// The nodes alone.
    pub fn of_nodes(engine: &'a Engine, now: Timestamp) -> Self {
        let mut scene = Self::default();
        for (name, node) in &engine.world.nodes {
            let health = health::of(node, now, &engine.config.hotswap);
            let amounts = node.allocatable.iter();
            let allocatable = amounts.map(|(r, q)| (Name::from(r.as_str()), floor(r, &q.0))).collect();
            scene.nodes.insert(name, SeenNode { node, health, allocatable });
        }
        scene
    }

    fn place(&mut self, engine: &'a Engine, key: &'a PodKey, pod: &'a Pod) {
        let has = |entry: &WorkloadEntry| holds(entry) && !pod.is_of_former_run(entry);
        let holder =
            engine.workloads_of_pod(key, pod).find(|key| engine.world.workloads.get(*key).is_some_and(has));
        match holder.and_then(|key| engine.world.workloads.get_key_value(key)) {
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

    /// How a node is; one that is gone is not healthy.
    pub fn health(&self, node: &str) -> Health {
        self.nodes.get(node).map_or(Health::Unhealthy, |seen| seen.health)
    }

    /// The nodes that a Workload's pods are on.
    pub fn nodes_of(&self, key: &WorkloadKey) -> BTreeSet<&'a str> {
        self.of_workload.get(key).into_iter().flatten().map(|pod| &*pod.node).collect()
    }
}

/// Whether a node has these labels.
pub(crate) fn has_labels(node: &slim::Node, wanted: &BTreeMap<String, String>) -> bool {
    let labels = node.metadata.labels.as_ref();
    wanted.iter().all(|(key, value)| labels.and_then(|l| l.get(key)).is_some_and(|is| is == value))
}

/// Whether one of the terms of a required node affinity holds; `matchFields` are not looked at.
pub(crate) fn has_affinity(node: &slim::Node, terms: &[NodeSelectorTerm]) -> bool {
    let holds = |e: &NodeSelectorRequirement| {
        let value = node.metadata.labels.as_ref().and_then(|labels| labels.get(&e.key));
        let values = e.values.as_deref().unwrap_or_default();
        let number = |text: &String| text.parse::<i64>().ok();
        let compared = || Some((number(value?)?, number(values.first()?)?));
        match e.operator.as_str() {
            "In" => value.is_some_and(|v| values.contains(v)),
            "NotIn" => value.is_none_or(|v| !values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared().is_some_and(|(is, than)| is > than),
            "Lt" => compared().is_some_and(|(is, than)| is < than),
            _ => false,
        }
    };
    terms.is_empty() || terms.iter().any(|t| t.match_expressions.iter().flatten().all(holds))
}

/// Whether pods with these tolerations may come to a node.
pub(crate) fn tolerates(node: &slim::Node, tolerations: &[Toleration]) -> bool {
    node.taints.iter().filter(|taint| taint.effect != "PreferNoSchedule").all(|taint| {
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
