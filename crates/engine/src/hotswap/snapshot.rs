//! What one evaluation sees: the nodes with their health, and the pods on them by the Workload that they run for.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::{Name, NodeSet, WorkloadKey};

use super::asks::SetAsks;
use super::exclusive::exclusive_labels;
use super::health::{self, Health};
use super::matching::has_labels;
use super::pod::{Allocatable, Pod};
use crate::engine::Engine;
use crate::ingest::workload::{holds_quota, is};
use crate::world::{Decision, WorkloadEntry};
use sluice_api::conditions::{self, WorkloadCondition as Type};

/// The pass over this many nodes and pods takes as long as one step of a search.
const PASSED_PER_STEP: u64 = 16;

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
    /// The position of its node, if that exists.
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
    /// Its pods if it holds quota, except for those that an earlier run left behind.
    pub pods: Vec<SeenPod<'a>>,
}

/// What one evaluation sees. Nodes and Workloads have numbers, so that names are compared once.
#[derive(Debug, Default)]
pub(crate) struct Snapshot<'a> {
    /// The nodes, by name.
    pub nodes: Vec<SeenNode<'a>>,
    /// The Workloads that hold quota or were evicted for their nodes, by name.
    pub workloads: Vec<SeenWorkload<'a>>,
    /// By the position of a Workload in the world: one more than its number here; 0 if it has none.
    numbers: Vec<usize>,
    /// The pods without a Workload of these.
    pub others: Vec<SeenPod<'a>>,
    /// The requests of pods of some templates.
    pub(super) asked: RefCell<Vec<Asked>>,
    /// The nodes of each flavor that was asked for.
    of_flavor: RefCell<BTreeMap<Name, Rc<[usize]>>>,
    /// The nodes that pods may be on, by what these ask of nodes.
    usable: RefCell<BTreeMap<(Name, Arc<str>), Usable>>,
    /// The same, by the nodes that pods select and by the existing taints that they tolerate.
    alike: RefCell<BTreeMap<Alike, Usable>>,
    /// Which nodes have the same taints.
    taints: OnceCell<Taints>,
    /// The labels by which pods that look for nodes select them; none if no pods did.
    selected_by: RefCell<Option<BTreeSet<String>>>,
}

/// Pods that may be on the same nodes: their flavor, the nodes that they select, and by kind of taints whether they tolerate them.
type Alike = (Name, String, Vec<bool>);

/// Which nodes have the same taints: of most clusters a few kinds.
#[derive(Debug, Default)]
struct Taints {
    /// A node of each kind.
    examples: Vec<usize>,
    /// By node: its kind.
    of: Vec<usize>,
}

impl Taints {
    fn of(nodes: &[SeenNode<'_>]) -> Self {
        fn own<'n>(
            seen: &SeenNode<'n>,
        ) -> impl Iterator<Item = (&'n str, Option<&'n str>, &'n str)> + use<'n> {
            let taints = seen.node.taints.iter();
            taints.map(|taint| (taint.key.as_str(), taint.value.as_deref(), taint.effect.as_str()))
        }
        let mut kinds = BTreeMap::new();
        let mut taints = Self::default();
        for (at, seen) in nodes.iter().enumerate() {
            // Most have the same flavors as the one before.
            let before = at.checked_sub(1).filter(|before| own(&nodes[*before]).eq(own(seen)));
            let kind = if let Some(before) = before {
                taints.of[before]
            } else {
                *kinds.entry(own(seen).collect::<Vec<_>>()).or_insert_with(|| {
                    taints.examples.push(at);
                    taints.examples.len() - 1
                })
            };
            taints.of.push(kind);
        }
        taints
    }
}

/// What pods require of nodes.
pub(crate) struct NodeTerms<S, T> {
    /// Equal for pods that select the same nodes.
    pub selection: String,
    /// The keys of the labels by which they select nodes.
    pub labels: Vec<String>,
    /// Whether they select a node of their flavor, whatever taints it has.
    pub selects: S,
    /// Whether they tolerate the taints of a node.
    pub tolerates: T,
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
    /// The nodes that count for capacity.
    pub healthy: Rc<NodeSet>,
    /// Whether there are any at all.
    pub any: bool,
}

/// Whether what a Workload asks for is counted as quota, so that its pods are not to be counted again.
pub(crate) fn holds(entry: &WorkloadEntry) -> bool {
    holds_quota(entry.status())
}

/// Whether a Workload holds quota of a flavor for a resource.
pub(super) fn holds_of(entry: &WorkloadEntry, flavor: &str, resource: &str) -> bool {
    let mut sets = entry.status().admission.iter().flat_map(|a| &a.pod_set_assignments);
    sets.any(|set| set.flavors.get(resource).is_some_and(|f| f == flavor))
}

/// Whether a Workload holds quota of a flavor.
pub(crate) fn uses(entry: &WorkloadEntry, flavor: &str) -> bool {
    flavors_used(entry).any(|used| used == flavor)
}

/// The flavors that a Workload holds quota of, maybe several times.
pub(super) fn flavors_used(entry: &WorkloadEntry) -> impl Iterator<Item = &str> {
    let sets = entry.status().admission.iter().flat_map(|a| &a.pod_set_assignments);
    sets.flat_map(|set| set.flavors.values()).map(String::as_str)
}

/// Whether a Workload was evicted, or will be as soon as that can be written, and still holds its quota.
pub(crate) fn leaves(entry: &WorkloadEntry) -> bool {
    holds(entry)
        && (is(entry.status(), Type::Evicted)
            || matches!(entry.decision.as_deref(), Some(Decision::Evict(..))))
}

/// Whether a Workload has given back the quota that it held before: it holds none, or what it holds was reserved later.
pub(crate) fn released(before: &WorkloadStatus, after: &WorkloadStatus) -> bool {
    holds_quota(before) && (!holds_quota(after) || reserved_since(before) != reserved_since(after))
}

/// Whether a Workload takes the same of queues and nodes as it did before it changed.
pub(crate) fn takes_the_same(before: &slim::Workload, after: &slim::Workload) -> bool {
    let pods =
        |object: &slim::Workload| -> Vec<i32> { object.spec.pod_sets.iter().map(|set| set.count).collect() };
    let run =
        |status: &WorkloadStatus| (holds_quota(status), is(status, Type::Evicted), reserved_since(status));
    run(&before.status) == run(&after.status)
        && before.status.admission == after.status.admission
        && before.status.reclaimable_pods == after.status.reclaimable_pods
        && (before.spec.active, pods(before)) == (after.spec.active, pods(after))
}

/// Since when quota is reserved.
pub(crate) fn reserved_since(status: &WorkloadStatus) -> Option<Timestamp> {
    conditions::true_since(&status.conditions, Type::QuotaReserved.as_str())
}

impl<'a> SeenWorkload<'a> {
    /// The labels by which its pod sets take whole groups of nodes, one for each such pod set.
    pub fn takes_groups_by(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.jobset.into_iter().flat_map(exclusive_labels)
    }

    /// Whether it has a JobSet that is not over: the pods of an ended or deleted JobSet leave for good.
    pub fn has_jobset(&self) -> bool {
        self.jobset.is_some_and(|view| !view.deleting && view.finished.is_none())
    }
}

impl<'a> Snapshot<'a> {
    /// The current state.
    pub fn of(engine: &'a Engine, now: Timestamp) -> Self {
        let mut snapshot = Self::of_nodes(engine, now);
        let world = &engine.world;
        snapshot.numbers = vec![0; world.workloads.len()];
        for key in world.watched.visited() {
            let Some((position, key, entry)) = world.workloads.get_full(key) else { continue };
            let jobset = world.jobset_of(key, entry);
            let (holds, leaves) = (holds(entry), leaves(entry));
            let pods = Vec::new();
            snapshot.workloads.push(SeenWorkload { key, entry, jobset, holds, leaves, pods });
            snapshot.numbers[position] = snapshot.workloads.len();
        }
        // The pods of a job are consecutive.
        let mut last: Option<(&Name, &Pod, Vec<usize>)> = None;
        let mut node = None;
        for (key, pod) in world.pods.iter() {
            let known = last.take().filter(|(namespace, other, _)| {
                **namespace == key.0 && other.controller == pod.controller && other.jobset == pod.jobset
            });
            let of = known.map_or_else(
                || engine.workloads_of_pod(key, pod).filter_map(|key| snapshot.number(engine, key)).collect(),
                |(_, _, of)| of,
            );
            // Most are on the node of the pod before, or on the next one.
            node = snapshot.near(node, &pod.node).or_else(|| snapshot.node(&pod.node));
            snapshot.place(&of, SeenPod { pod, node });
            last = Some((&key.0, pod, of));
        }
        snapshot
    }

    /// How many steps the pass over its nodes and pods takes.
    pub fn steps(&self) -> u64 {
        let pods = self.workloads.iter().map(|one| one.pods.len()).sum::<usize>() + self.others.len();
        u64::try_from(self.nodes.len() + pods).unwrap_or(u64::MAX) / PASSED_PER_STEP
    }

    /// The nodes alone.
    pub fn of_nodes(engine: &'a Engine, now: Timestamp) -> Self {
        let (world, config) = (&engine.world, &engine.config.hotswap);
        let nodes = world.nodes.iter().map(|(name, node)| SeenNode {
            name,
            node,
            health: health::of(node, now, config),
            allocatable: node.allocatable(),
        });
        Self { nodes: nodes.collect(), ..Self::default() }
    }

    /// Takes in a pod of a job with these Workloads.
    fn place(&mut self, of: &[usize], seen: SeenPod<'a>) {
        let has = |one: &SeenWorkload<'_>| one.holds && !seen.pod.is_of_former_run(one.entry);
        match of.iter().find(|at| has(&self.workloads[**at])) {
            Some(at) => self.workloads[*at].pods.push(seen),
            None => self.others.push(seen),
        }
    }

    /// The number of a node, if it is this one or the next.
    fn near(&self, number: Option<usize>, name: &str) -> Option<usize> {
        let number = number?;
        (number..number + 2).find(|at| self.nodes.get(*at).is_some_and(|seen| seen.name == name))
    }

    /// The number of a node.
    pub fn node(&self, name: &str) -> Option<usize> {
        self.nodes.binary_search_by(|seen| seen.name.cmp(name)).ok()
    }

    /// The number of a Workload of the engine that was seen.
    pub fn number(&self, engine: &Engine, key: &WorkloadKey) -> Option<usize> {
        self.numbers.get(engine.world.workloads.position(key)?)?.checked_sub(1)
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

    /// The nodes of a flavor on which pods of this shape may run. Equal shapes share the answer, and so do shapes that select the same nodes and
    /// tolerate the same existing taints: the nodes are not visited again for other tolerations.
    pub fn usable<S: Fn(&slim::Node) -> bool, T: Fn(&slim::Node) -> bool>(
        &self,
        (flavor, labels_of_flavor): (&Name, &BTreeMap<String, String>),
        shape: &Arc<str>,
        terms: impl FnOnce() -> NodeTerms<S, T>,
    ) -> Usable {
        let sought = (Name::clone(flavor), Arc::clone(shape));
        if let Some(known) = self.usable.borrow().get(&sought) {
            return known.clone();
        }
        let NodeTerms { selection, labels, selects, tolerates } = terms();
        self.selected_by.borrow_mut().get_or_insert_default().extend(labels);
        let taints = self.taints.get_or_init(|| Taints::of(&self.nodes));
        let tolerated = taints.examples.iter().map(|node| tolerates(self.nodes[*node].node));
        let alike: Alike = (Name::clone(flavor), selection, tolerated.collect::<Vec<_>>());
        let known = self.alike.borrow().get(&alike).cloned();
        let usable = known.unwrap_or_else(|| {
            let may = |at: &usize| alike.2[taints.of[*at]] && selects(self.nodes[*at].node);
            let of_flavor = self.of_flavor(flavor, labels_of_flavor);
            let own: Vec<usize> = of_flavor.iter().copied().filter(may).collect();
            let healthy = own.iter().copied().filter(|at| self.nodes[*at].health.has_capacity());
            let usable = Usable { healthy: Rc::new(healthy.collect()), any: !own.is_empty() };
            self.alike.borrow_mut().insert(alike, usable.clone());
            usable
        });
        self.usable.borrow_mut().insert(sought, usable.clone());
        usable
    }

    /// The labels by which pods that look for nodes select them; `None`: no pods did, so that neither labels nor taints made a difference.
    pub fn selected_by(&self) -> Option<BTreeSet<String>> {
        self.selected_by.borrow().clone()
    }

    /// The health of the node with this number; a deleted node is not healthy.
    pub fn health_at(&self, node: Option<usize>) -> Health {
        node.map_or(Health::Unhealthy, |node| self.nodes[node].health)
    }

    /// The health of a node; a deleted node is not healthy.
    pub fn health(&self, node: &str) -> Health {
        self.health_at(self.node(node))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use k8s_openapi::api::core::v1::Taint;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn healthy<'a>(nodes: &'a [slim::Node], allocatable: &'a Allocatable) -> Snapshot<'a> {
        let seen = nodes.iter().map(|node| SeenNode { name: "", node, health: Health::Healthy, allocatable });
        Snapshot { nodes: seen.collect(), ..Snapshot::default() }
    }

    #[test]
    fn tolerations_of_taints_that_no_node_has_cost_no_pass_over_the_nodes() {
        let taint = |key: &str| Taint { key: key.to_owned(), ..Taint::default() };
        let node = |key: &str| slim::Node { taints: vec![taint(key)], ..slim::Node::default() };
        let nodes: Vec<_> = ["tpu", "other", "tpu"].into_iter().map(node).collect();
        let allocatable = Allocatable::new();
        let snapshot = healthy(&nodes, &allocatable);
        let looked = &Cell::new(0);
        let usable = |tolerated: &[&str]| {
            let terms = || NodeTerms {
                selection: String::new(),
                labels: Vec::new(),
                selects: move |_: &slim::Node| {
                    looked.set(looked.get() + 1);
                    true
                },
                tolerates: move |node: &slim::Node| {
                    node.taints.iter().all(|t| tolerated.contains(&t.key.as_str()))
                },
            };
            let flavor = (&"flavor".into(), &BTreeMap::new());
            let usable = snapshot.usable(flavor, &tolerated.join(" ").into(), terms);
            (usable.healthy.iter().collect::<Vec<_>>(), usable.any)
        };
        assert_eq!(usable(&["tpu"]), (vec![0, 2], true));
        let once = looked.get();
        for odd in ["a", "b", "c"] {
            assert_eq!(usable(&["tpu", odd]), (vec![0, 2], true));
        }
        assert_eq!(looked.get(), once, "the nodes were gone through again");
        assert_eq!(usable(&["other", "tpu"]), (vec![0, 1, 2], true));
        assert_eq!(usable(&["a"]), (vec![], false));
    }

    #[test]
    fn the_nodes_of_other_flavors_are_not_searched_for_those_of_pods() {
        let metadata = |pool: &str| ObjectMeta {
            labels: Some([("pool".to_owned(), pool.to_owned())].into()),
            ..ObjectMeta::default()
        };
        let node = |pool: &str| slim::Node { metadata: metadata(pool), ..slim::Node::default() };
        let nodes: Vec<_> = ["a", "b", "a", "b"].into_iter().map(node).collect();
        let allocatable = Allocatable::new();
        let snapshot = healthy(&nodes, &allocatable);
        let looked = Cell::new(0);
        let terms = || NodeTerms {
            selection: String::new(),
            labels: Vec::new(),
            selects: |_: &slim::Node| {
                looked.set(looked.get() + 1);
                true
            },
            tolerates: |_: &slim::Node| true,
        };
        let labels = metadata("b").labels.unwrap_or_default();
        let usable = snapshot.usable((&"flavor".into(), &labels), &"shape".into(), terms);
        assert_eq!(usable.healthy.iter().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(looked.get(), 2);
    }
}
