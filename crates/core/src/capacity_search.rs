//! The free part of nodes, to try where displaced work could go (not in Kueue: Hotswap). Its inputs are numbered nodes, their amounts and which of
//! them are lost; trial changes affect nothing else.
//!
//! Pods whose flavor has a topology get their nodes from the placement of admissions, by a [`NodeTrial`]. All other pods go where the Kubernetes
//! scheduler finds room, which `free_nodes` tracks, and some take whole groups of nodes. The two count differently: the former assigned pods, the
//! latter existing pods. Nodes may belong to both: what the former places is subtracted in the latter, too.

mod candidates;
mod columns;
mod free_nodes;
mod ground;
mod needs;
mod node_set;
mod nodes_at;
mod probe;
mod victims;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::intern::PlaceId;
use crate::scheduler::Scheduler;
use crate::scheduler::node_trial::{NodeTrial, PodsToPlace, TrialMark};
use crate::topology::{Exclusions, Path, PlacementFailure};
use crate::workload::{PodSetSpec, WorkloadKey};
use crate::workloads::PodSetNodes;
use crate::{Amount, Name};

pub use candidates::Candidate;
pub(crate) use candidates::Candidates;
use free_nodes::{FreeMark, FreeNodes};
pub use ground::Answers;
use ground::CapacityGround;
use needs::free_sets;
pub use needs::{NodeGroup, NodeGroups, SetNeeds};
pub use node_set::NodeSet;
use nodes_at::NodesAt;
use probe::Probe;
pub use victims::Choice;
use victims::choose;

/// How many lowest domains that a placement visits, or nodes and workloads that a search only compares, take as long as one node that pods are put
/// on, or one workload that is removed.
const LOOKS_PER_STEP: u64 = 16;

/// A node of a [`FreeCapacity`].
#[derive(Debug, Clone, Copy)]
pub struct CapacityNode<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its allocatable resources: cpu in milli-CPU, everything else in whole units.
    pub allocatable: &'a BTreeMap<Name, i128>,
}

/// What pods use of a node: cpu in milli-CPU, everything else in whole units; `pods` is 1.
pub type PodRequests = [(Name, Amount)];

/// By the number of a workload: what its pods take of nodes that no topology assignment has, by the names of these nodes.
pub type PodsApart<'a> = BTreeMap<usize, Vec<(&'a str, &'a PodRequests)>>;

/// The free part of nodes, with all trial changes.
#[derive(Debug)]
pub struct FreeCapacity<'a> {
    scheduler: &'a Scheduler,
    names: Vec<&'a str>,
    /// By number.
    workloads: Vec<&'a WorkloadKey>,
    free: FreeNodes<'a>,
    assigned: Option<Assigned<'a>>,
    /// Why the placement of admissions found no nodes when it was last asked, if it did not.
    failure: Option<PlacementFailure>,
    /// The result of the last placement of a workload, and the pod sets that it was for.
    found: Vec<PodSetNodes>,
    found_for: Option<Arc<[PodSetSpec]>>,
}

/// The free part according to the placement of admissions.
#[derive(Debug)]
struct Assigned<'a> {
    nodes: NodeTrial<'a>,
    apart: PodsApart<'a>,
    /// The numbers of the nodes of each place.
    at: NodesAt,
}

/// Where the placement of admissions put the pods of a workload. It means something to the same scheduler only.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AssignedPods {
    nodes: Vec<PodSetNodes>,
    /// By pod set: the domains that they are in.
    domains: Vec<Domains>,
    /// The pod sets of the workload.
    asked: Option<Arc<[PodSetSpec]>>,
}

/// The domains that pods are in: the labels of the levels, and by place the values of them.
type Domains = (Vec<Name>, Vec<Option<Path>>);

/// A point to which changes of a [`FreeCapacity`] can be undone.
#[must_use]
#[derive(Debug, Clone, Copy)]
pub struct CapacityMark {
    free: FreeMark,
    assigned: Option<TrialMark>,
}

impl<'a> FreeCapacity<'a> {
    /// Empty nodes, in the order of their names; their numbers are their positions. `groups` are those that some pods take as a whole.
    pub fn new(
        scheduler: &'a Scheduler,
        nodes: impl Iterator<Item = CapacityNode<'a>> + Clone,
        groups: &'a [NodeGroups<'a>],
    ) -> Self {
        Self {
            scheduler,
            names: nodes.clone().map(|node| node.name).collect(),
            workloads: Vec::new(),
            free: FreeNodes::new(nodes.map(|node| node.allocatable), groups),
            assigned: None,
            failure: None,
            found: Vec::new(),
            found_for: None,
        }
    }

    /// Whose nodes and workloads these are.
    pub(crate) fn scheduler(&self) -> &'a Scheduler {
        self.scheduler
    }

    /// The name of a node.
    pub(crate) fn node_name(&self, number: usize) -> &'a str {
        self.names[number]
    }

    /// The number of a node.
    pub(crate) fn node_number(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| (*known).cmp(name)).ok()
    }

    /// The name of a workload.
    pub(crate) fn workload(&self, number: usize) -> &'a WorkloadKey {
        self.workloads[number]
    }

    /// A pod of no workload is on a node.
    pub fn add_other(&mut self, node: usize, requests: &PodRequests) {
        self.free.add_other(node, requests);
    }

    /// The next workload, the numbers of the nodes of its pods, and the labels by which it takes whole groups. Its number is the count of earlier
    /// ones.
    pub fn add_workload<'p>(
        &mut self,
        key: &'a WorkloadKey,
        pods: impl Iterator<Item = (usize, &'p PodRequests)>,
        labels: &BTreeSet<&str>,
    ) {
        self.workloads.push(key);
        self.free.add_workload(pods, labels);
    }

    /// From now on pods whose flavor assigns nodes get those of a topology, without the lost ones. The workloads in `gone` were released before.
    pub fn assign_nodes<'n>(
        &mut self,
        lost: impl Iterator<Item = &'n str>,
        apart: PodsApart<'a>,
        gone: &[usize],
    ) {
        let mut nodes = self.scheduler.node_trial();
        // They would be given for good, and are about to go.
        for name in lost {
            nodes.close(name);
        }
        let mut at = NodesAt::default();
        for (number, name) in self.names.iter().enumerate() {
            for place in nodes.places(name) {
                at.add(place, number);
            }
        }
        let mut assigned = Assigned { nodes, apart, at };
        for workload in gone {
            assigned.shift(*workload, self.workloads[*workload], true);
        }
        self.assigned = Some(assigned);
    }

    /// The point to which later changes can be undone.
    pub fn mark(&self) -> CapacityMark {
        CapacityMark { free: self.free.mark(), assigned: self.assigned.as_ref().map(|one| one.nodes.mark()) }
    }

    /// Undoes all changes since then.
    pub fn undo(&mut self, mark: CapacityMark) {
        self.free.undo(mark.free);
        if let (Some(assigned), Some(mark)) = (&mut self.assigned, mark.assigned) {
            assigned.nodes.undo(mark);
        }
    }

    /// All changes stay. Earlier marks are invalid.
    pub fn keep(&mut self) {
        self.free.keep();
        if let Some(assigned) = &mut self.assigned {
            assigned.nodes.keep();
        }
    }

    /// How much searches have visited: nodes and workloads; and domains and those that were only compared, many of which count as one.
    pub fn steps(&self) -> u64 {
        let looked = self.assigned.as_ref().map_or(0, |one| one.nodes.looked());
        self.free.steps() + looked.saturating_add(self.free.compared()).div_ceil(LOOKS_PER_STEP)
    }

    /// The pods of a workload are back.
    pub fn take(&mut self, workload: usize) {
        self.free.take(workload);
        self.shift_assigned(workload, false);
    }

    /// The pods of a workload are gone.
    pub fn release(&mut self, workload: usize) {
        self.free.release(workload);
        self.shift_assigned(workload, true);
    }

    fn shift_assigned(&mut self, workload: usize, goes: bool) {
        if let (Some(assigned), Some(key)) = (&mut self.assigned, self.workloads.get(workload)) {
            assigned.shift(workload, key, goes);
        }
    }

    /// Takes nodes for the pods of a workload that are still to come, wherever there is room; nothing if there is not.
    pub fn reserve(&mut self, needs: &[SetNeeds<'a>]) {
        self.free.place(needs, None);
    }

    /// Whether the pods of a workload would fit on these nodes without those that it has; changes nothing.
    pub fn holds_on(&mut self, workload: usize, needs: &[SetNeeds<'a>], nodes: &NodeSet) -> bool {
        let mark = self.free.mark();
        self.free.release(workload);
        let holds = self.free.place(needs, Some(nodes));
        self.free.undo(mark);
        holds
    }

    /// How much the last placement of admissions found if it did not find nodes for all; resets it. It does not count the excluded nodes: the lost
    /// ones would count as full.
    pub fn take_failure(&mut self) -> Option<PlacementFailure> {
        let failure = self.failure.take()?;
        Some(PlacementFailure { excluded: Exclusions::default(), ..failure })
    }

    /// Finds nodes for all pods of a workload and takes them; changes nothing if there are none.
    pub fn place(&mut self, key: &WorkloadKey, needs: &[SetNeeds<'a>]) -> bool {
        let mark = self.mark();
        let placed = self.free.place(&free_sets(needs), None) && self.assign(key, needs);
        if !placed {
            self.undo(mark);
        }
        placed
    }

    /// Where the workload is that was placed last, and after that mark: the numbers of the nodes.
    pub fn placed(&self, mark: CapacityMark) -> (NodeSet, AssignedPods) {
        let domains =
            self.found.iter().filter_map(|nodes| Some(self.assigned.as_ref()?.domains(&self.names, nodes)));
        let assigned = AssignedPods {
            domains: domains.collect(),
            asked: self.found_for.clone(),
            nodes: self.found.clone(),
        };
        (self.free.changed_since(mark.free).collect(), assigned)
    }

    /// Takes the nodes on which a workload was placed before, if there is still room; otherwise changes nothing. Nodes that were assigned to it are
    /// taken only while its requests are the same, and they are in the same domains: other nodes would suit it otherwise. Visits these nodes only.
    pub fn place_again(
        &mut self,
        key: &WorkloadKey,
        needs: &[SetNeeds<'a>],
        nodes: &NodeSet,
        assigned: &AssignedPods,
    ) -> bool {
        let mark = self.mark();
        let placed =
            self.free.place(&free_sets(needs), Some(nodes)) && self.assign_again(key, needs, assigned);
        if !placed {
            self.undo(mark);
        }
        placed
    }

    fn assign_again(&mut self, key: &WorkloadKey, needs: &[SetNeeds<'a>], before: &AssignedPods) -> bool {
        let found = &before.nodes;
        let sets = needs.iter().filter(|set| set.assigned.is_some());
        if sets.clone().count() != found.len() {
            return false;
        }
        if found.is_empty() {
            return true;
        }
        let Some(assigned) = &mut self.assigned else { return false };
        let domains = found.iter().map(|nodes| assigned.domains(&self.names, nodes));
        if assigned.nodes.pod_sets(key) != before.asked || !domains.eq(before.domains.iter().cloned()) {
            return false;
        }
        let names = &self.scheduler.world.names;
        let mut again = Vec::new();
        for set in sets {
            let flavor = set.assigned.as_deref().and_then(|flavor| names.find_flavor(flavor));
            let same = |nodes: &&PodSetNodes| {
                nodes.pod_set == set.pod_set && Some(nodes.flavor) == flavor && nodes.count == set.count
            };
            let Some(nodes) = found.iter().find(same) else { return false };
            let is_usable = |(place, _): &(PlaceId, i64)| {
                assigned.at.of(nodes.flavor, *place).any(|number| set.nodes.contains(number))
            };
            if !nodes.pods.places.iter().all(is_usable) {
                return false;
            }
            again.push((set, nodes));
        }
        if !assigned.nodes.place_again(again.iter().map(|(_, nodes)| &nodes.pods)) {
            return false;
        }
        for (set, nodes) in again.into_iter().filter(|(set, _)| !set.is_free()) {
            assigned.take_of(&mut self.free, set, nodes);
        }
        true
    }

    /// Uses the placement of admissions to find nodes for the pods whose flavor assigns nodes.
    fn assign(&mut self, key: &WorkloadKey, needs: &[SetNeeds<'a>]) -> bool {
        let pods = needs.iter().filter_map(|set| {
            let flavor = set.assigned.as_deref()?;
            Some(PodsToPlace { pod_set: set.pod_set, flavor, count: set.count })
        });
        let pods: Vec<_> = pods.collect();
        self.found.clear();
        self.found_for = None;
        if pods.is_empty() {
            return true;
        }
        let Some(assigned) = &mut self.assigned else { return false };
        let found = match assigned.nodes.find(key, &pods) {
            Ok(found) => found,
            Err(failure) => {
                self.failure = Some(failure);
                return false;
            }
        };
        self.failure = None;
        for nodes in &found {
            let set = needs.iter().find(|set| set.pod_set == nodes.pod_set && !set.is_free());
            if let Some(set) = set {
                assigned.take_of(&mut self.free, set, nodes);
            }
        }
        self.found = found;
        self.found_for = assigned.nodes.pod_sets(key);
        true
    }

    /// Releases workloads until the pods of another one fit, as few as necessary, and none needlessly: the first candidates that are enough, without
    /// those that can stay after all. The chosen ones are released. The caller has to undo other releases. An ineligible candidate is `None`: it only
    /// counts as visited. The search is cut after `most` steps. A cut search continues with its `answers`, if the room and the candidates are
    /// unchanged; the steps to get back to that point do not count, and it always makes some progress.
    pub fn victims_for(
        &mut self,
        key: &WorkloadKey,
        needs: &[SetNeeds<'a>],
        candidates: impl Iterator<Item = Option<usize>>,
        most: u64,
        answers: &mut Answers,
    ) -> Choice<usize> {
        let began = self.steps();
        let free = free_sets(needs);
        let probe = Probe::of(&mut self.free, &free);
        let shown = Cell::new(0);
        let candidates = candidates.inspect(|_| shown.set(shown.get() + 1)).flatten();
        let search = (key, needs);
        let mut ground = CapacityGround::new(self, search, probe, &shown, (began, most), answers);
        let chosen = choose(candidates, &mut ground);
        if matches!(chosen, Choice::Victims(_)) {
            ground.catch_up();
        }
        self.free.count_compared(shown.get());
        chosen
    }
}

impl Assigned<'_> {
    /// A workload goes, or comes back.
    fn shift(&mut self, workload: usize, key: &WorkloadKey, goes: bool) {
        if goes {
            self.nodes.release(key);
        } else {
            self.nodes.take(key);
        }
        for (node, requests) in self.apart.get(&workload).into_iter().flatten() {
            self.nodes.pod_goes(node, requests, goes);
        }
    }

    /// The domains that pods are in.
    fn domains(&self, names: &[&str], placed: &PodSetNodes) -> Domains {
        let path = |(place, _): &(PlaceId, i64)| {
            let node = self.at.of(placed.flavor, *place).next()?;
            self.nodes.path(names[node], placed.flavor)
        };
        (self.nodes.levels(placed.flavor).to_vec(), placed.pods.places.iter().map(path).collect())
    }

    /// Takes of what is free what pods use of the nodes that they were assigned.
    fn take_of(&self, free: &mut FreeNodes<'_>, set: &SetNeeds<'_>, placed: &PodSetNodes) {
        let takes = free.takes(set.per_pod);
        for (place, count) in &placed.pods.places {
            let nodes = self.at.of(placed.flavor, *place);
            free.place_on(&takes, nodes.filter(|node| set.nodes.contains(*node)), *count);
        }
    }
}
