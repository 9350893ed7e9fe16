//! What one evaluation sees: the nodes with their health, and the pods on them by the Workload that they run for.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::{Amount, Name, WorkloadKey};

use super::health::{self, Health};
use super::matching::has_labels;
use super::pod::{Allocatable, Pod};
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
    usable: RefCell<BTreeMap<(Name, Arc<str>), Usable<'a>>>,
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
            workloads.filter_map(|(key, entry)| Some((key, engine.jobset_of(key, entry)?))).collect();
        // The pods of a job come one after the other.
        let mut last: Option<(&Name, &Pod, Vec<_>)> = None;
        for (key, pod) in &engine.world.pods {
            let known = last.take().filter(|(namespace, other, _)| {
                **namespace == key.0 && other.controller == pod.controller && other.jobset == pod.jobset
            });
            let of = known.map_or_else(
                || {
                    let all = engine.workloads_of_pod(key, pod);
                    all.filter_map(|key| engine.world.workloads.get_key_value(key)).collect()
                },
                |(_, _, of)| of,
            );
            snapshot.place(&of, pod);
            last = Some((&key.0, pod, of));
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

    /// Takes in a pod of a job with these Workloads.
    fn place(&mut self, of: &[(&'a WorkloadKey, &'a WorkloadEntry)], pod: &'a Pod) {
        let has = |entry: &WorkloadEntry| holds(entry) && !pod.is_of_former_run(entry);
        match of.iter().find(|(_, entry)| has(entry)) {
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

    /// The nodes of a flavor that pods of this shape may be on: those that `may` makes the condition for. Equal shapes share the answer.
    pub fn usable<F: Fn(&slim::Node) -> bool>(
        &self,
        flavor: &Name,
        shape: &Arc<str>,
        may: impl FnOnce() -> F,
    ) -> Usable<'a> {
        let sought = (Name::clone(flavor), Arc::clone(shape));
        if let Some(known) = self.usable.borrow().get(&sought) {
            return known.clone();
        }
        let may = may();
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
    pub fn exclusive_of(&self, key: &WorkloadKey) -> BTreeSet<&'a str> {
        self.jobsets.get(key).map(|view| exclusive_in(view)).unwrap_or_default()
    }

    /// The nodes that a Workload's pods are on.
    pub fn nodes_of(&self, key: &WorkloadKey) -> BTreeSet<&'a str> {
        self.of_workload.get(key).into_iter().flatten().map(|pod| &*pod.node).collect()
    }
}

/// The labels by which a JobSet takes whole groups of nodes.
pub(super) fn exclusive_in(view: &JobView) -> BTreeSet<&str> {
    view.pod_sets.iter().filter_map(|set| Some(set.exclusive_topology.as_ref()?.key.as_str())).collect()
}

/// An amount as an exact number.
pub(crate) fn exact(amount: Amount) -> i128 {
    i128::from(amount.get())
}
