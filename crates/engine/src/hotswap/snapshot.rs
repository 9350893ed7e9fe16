//! What one evaluation sees: the nodes with their health, and the pods on them by the Workload that they run for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::{Amount, Name, NodeSet, WorkloadKey};

use super::asks::SetAsks;
use super::health::{self, Health};
use super::matching::has_labels;
use super::pod::{Allocatable, Pod};
use crate::engine::Engine;
use crate::ingest::workload::{is, reserved};
use crate::world::{Decision, WorkloadEntry};
use sluice_api::conditions::{self, WorkloadCondition as Type};

/// One node.
#[derive(Debug)]
pub(crate) struct SeenNode<'a> {
    /// Its name.
    pub name: &'a str,
    /// The object.
    pub node: &'a slim::Node,
    /// How it is.
    pub health: Health,
    /// What it has for pods.
    pub allocatable: &'a Allocatable,
}

/// One pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenPod<'a> {
    /// What is known of it.
    pub pod: &'a Pod,
    /// The position of its node, if that is there.
    pub node: Option<usize>,
}

/// One Workload.
#[derive(Debug)]
pub(crate) struct SeenWorkload<'a> {
    /// Its name.
    pub key: &'a WorkloadKey,
    /// The object, and what is under way with it.
    pub entry: &'a WorkloadEntry,
    /// Its JobSet, if it has one.
    pub jobset: Option<&'a JobView>,
    /// Whether it [`holds`] quota.
    pub holds: bool,
    /// Whether it [`leaves`].
    pub leaves: bool,
    /// Its pods if it holds quota, but for those that an earlier run left behind.
    pub pods: Vec<SeenPod<'a>>,
}

/// What one evaluation sees. Nodes and Workloads have numbers, so that names are compared once.
#[derive(Debug, Default)]
pub(crate) struct Snapshot<'a> {
    /// The nodes, by name.
    pub nodes: Vec<SeenNode<'a>>,
    /// The Workloads, by name.
    pub workloads: Vec<SeenWorkload<'a>>,
    /// By the position of a Workload in the world: its number here.
    numbers: Vec<usize>,
    /// The pods of none of them.
    pub others: Vec<SeenPod<'a>>,
    /// What pods of some templates ask for.
    pub(super) asked: RefCell<Vec<Asked>>,
    /// The nodes of each flavor that was asked for.
    of_flavor: RefCell<BTreeMap<Name, Rc<[usize]>>>,
    /// The nodes that pods may be on, by what these ask of nodes.
    usable: RefCell<BTreeMap<(Name, Arc<str>), Usable>>,
}

/// What the pods of one pod set ask for.
#[derive(Debug)]
pub(super) struct Asked {
    /// The number of the Workload.
    pub workload: usize,
    /// The place of the pod set in it.
    pub pod_set: usize,
    /// What they ask for.
    pub asks: Arc<SetAsks>,
}

/// The nodes that pods may be on.
#[derive(Clone, Debug)]
pub(crate) struct Usable {
    /// Those that count for capacity.
    pub healthy: Rc<NodeSet>,
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

/// Whether a Workload was evicted, or will be as soon as that can be written, and still holds its quota.
pub(crate) fn leaves(entry: &WorkloadEntry) -> bool {
    holds(entry) && (is(entry.status(), Type::Evicted) || matches!(entry.decision, Some(Decision::Evict(..))))
}

/// Whether a Workload has given back the quota that it held before: it holds none, or what it holds was reserved later.
pub(crate) fn released(before: &WorkloadStatus, after: &WorkloadStatus) -> bool {
    holds_quota(before) && (!holds_quota(after) || reserved_since(before) != reserved_since(after))
}

/// Since when quota is reserved.
pub(super) fn reserved_since(status: &WorkloadStatus) -> Option<Timestamp> {
    conditions::true_since(&status.conditions, Type::QuotaReserved.as_str())
}

impl<'a> SeenWorkload<'a> {
    /// The labels by which it takes whole groups of nodes.
    pub fn takes_groups_by(&self) -> BTreeSet<&'a str> {
        self.jobset.map(exclusive_in).unwrap_or_default()
    }

    /// Whether it has a JobSet that goes on: the pods of one that ended or is deleted leave for good.
    pub fn has_jobset(&self) -> bool {
        self.jobset.is_some_and(|view| !view.deleting && view.finished.is_none())
    }
}

impl<'a> Snapshot<'a> {
    /// What is there now.
    pub fn of(engine: &'a Engine, now: Timestamp) -> Self {
        let mut snapshot = Self::of_nodes(engine, now);
        let world = &engine.world;
        snapshot.numbers = vec![0; world.workloads.len()];
        snapshot.workloads.reserve(world.workloads.len());
        for (position, key, entry) in world.workloads.iter_with_positions() {
            snapshot.numbers[position] = snapshot.workloads.len();
            let jobset = engine.jobset_of(key, entry);
            let (holds, leaves) = (holds(entry), leaves(entry));
            let pods = Vec::new();
            snapshot.workloads.push(SeenWorkload { key, entry, jobset, holds, leaves, pods });
        }
        // The pods of a job come one after the other.
        let mut last: Option<(&Name, &Pod, Vec<usize>)> = None;
        for (key, pod) in &world.pods {
            let known = last.take().filter(|(namespace, other, _)| {
                **namespace == key.0 && other.controller == pod.controller && other.jobset == pod.jobset
            });
            let of = known.map_or_else(
                || engine.workloads_of_pod(key, pod).filter_map(|key| snapshot.number(engine, key)).collect(),
                |(_, _, of)| of,
            );
            snapshot.place(&of, pod);
            last = Some((&key.0, pod, of));
        }
        snapshot
    }

    /// The nodes alone.
    pub fn of_nodes(engine: &'a Engine, now: Timestamp) -> Self {
        let (world, config) = (&engine.world, &engine.config.hotswap);
        // Both are by name.
        let nodes = world.nodes.iter().zip(world.allocatable.values());
        let nodes = nodes.map(|((name, node), allocatable)| SeenNode {
            name,
            node,
            health: health::of(node, now, config),
            allocatable,
        });
        Self { nodes: nodes.collect(), ..Self::default() }
    }

    /// Takes in a pod of a job with these Workloads.
    fn place(&mut self, of: &[usize], pod: &'a Pod) {
        let seen = SeenPod { pod, node: self.node(&pod.node) };
        let has = |one: &SeenWorkload<'_>| one.holds && !pod.is_of_former_run(one.entry);
        match of.iter().find(|at| has(&self.workloads[**at])) {
            Some(at) => self.workloads[*at].pods.push(seen),
            None => self.others.push(seen),
        }
    }

    /// The number of a node.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.binary_search_by(|seen| seen.name.cmp(name)).ok()
    }

    /// The number of a Workload of the engine that was seen.
    pub fn number(&self, engine: &Engine, key: &WorkloadKey) -> Option<usize> {
        self.numbers.get(engine.world.workloads.position(key)?).copied()
    }

    /// The nodes of a flavor: those with its labels.
    pub fn of_flavor(&self, flavor: &Name, labels: &BTreeMap<String, String>) -> Rc<[usize]> {
        if let Some(known) = self.of_flavor.borrow().get(flavor) {
            return Rc::clone(known);
        }
        let own = self.nodes.iter().enumerate().filter(|(_, seen)| has_labels(seen.node, labels));
        let own: Rc<[usize]> = own.map(|(at, _)| at).collect();
        self.of_flavor.borrow_mut().insert(Name::clone(flavor), Rc::clone(&own));
        own
    }

    /// The nodes of a flavor that pods of this shape may be on: those that `may` makes the condition for. Equal shapes share the answer.
    pub fn usable<F: Fn(&slim::Node) -> bool>(
        &self,
        flavor: &Name,
        shape: &Arc<str>,
        may: impl FnOnce() -> F,
    ) -> Usable {
        let sought = (Name::clone(flavor), Arc::clone(shape));
        if let Some(known) = self.usable.borrow().get(&sought) {
            return known.clone();
        }
        let may = may();
        let own: Vec<_> = self.nodes.iter().enumerate().filter(|(_, seen)| may(seen.node)).collect();
        let healthy = own.iter().filter(|(_, seen)| seen.health.has_capacity()).map(|(at, _)| *at);
        let usable = Usable { healthy: Rc::new(healthy.collect()), any: !own.is_empty() };
        self.usable.borrow_mut().insert(sought, usable.clone());
        usable
    }

    /// How the node with this number is; one that is gone is not healthy.
    pub fn health_at(&self, node: Option<usize>) -> Health {
        node.map_or(Health::Unhealthy, |node| self.nodes[node].health)
    }

    /// How a node is; one that is gone is not healthy.
    pub fn health(&self, node: &str) -> Health {
        self.health_at(self.node(node))
    }
}

/// Whether a JobSet takes whole groups of nodes.
pub(super) fn takes_groups(view: &JobView) -> bool {
    view.pod_sets.iter().any(|set| set.exclusive_topology.is_some())
}

/// The labels by which a JobSet takes whole groups of nodes.
pub(super) fn exclusive_in(view: &JobView) -> BTreeSet<&str> {
    view.pod_sets.iter().filter_map(|set| Some(set.exclusive_topology.as_ref()?.key.as_str())).collect()
}

/// An amount as an exact number.
pub(crate) fn exact(amount: Amount) -> i128 {
    i128::from(amount.get())
}
