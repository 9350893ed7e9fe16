//! Nodes outside of a cycle: whether the pods of a workload would find some without other workloads. The placement is that of admissions
//! (docs/reference/06-algorithm.md 6.12), on separate amounts.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Scheduler;
use crate::intern::{FlavorId, HostId, PlaceId, ResourceId, WorkloadId};
use crate::placement::{MemberToPlace, WorkloadToPlace, grouped, place_groups};
use crate::topology::{NodeUsage, Path, PlacedPods, PlacementFailure, SharedAssignment, Trial};
use crate::workload::{PodSetSpec, WorkloadKey};
use crate::workloads::PodSetNodes;
use crate::{Amount, Name};

/// Pods of one pod set to place on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodsToPlace<'a> {
    /// The place of the pod set in its workload.
    pub pod_set: usize,
    /// The flavor, which has a topology.
    pub flavor: &'a str,
    /// How many pods; at least 1.
    pub count: i64,
}

/// A point to which a trial can be undone.
#[must_use]
#[derive(Debug, Clone, Copy)]
pub struct TrialMark(usize);

/// A trial change.
#[derive(Debug)]
enum Change {
    /// A workload gave its nodes back.
    Released(WorkloadId),
    /// It has its nodes again.
    Taken(WorkloadId),
    /// Pods that nothing placed are gone from a node.
    Freed(HostId, Vec<(ResourceId, i64)>),
    /// They are back.
    Restored(HostId, Vec<(ResourceId, i64)>),
    /// Pods got nodes.
    Placed(PlacedPods),
}

/// The free part of nodes with topology at one moment, to try the effect of adding and removing workloads. The scheduler does not change.
#[derive(Debug)]
pub struct NodeTrial<'a> {
    scheduler: &'a Scheduler,
    nodes: Trial<'a>,
    /// The changes, the last at the end.
    changes: Vec<Change>,
    /// Nodes that take no pods, whatever leaves them.
    closed: BTreeSet<HostId>,
}

impl Scheduler {
    /// Whether pods that get a flavor get nodes with it: its topology is known.
    pub fn assigns_nodes(&self, flavor: &str) -> bool {
        self.world.names.find_flavor(flavor).is_some_and(|flavor| self.world.topology.knows(flavor))
    }

    /// A trial with the current nodes: one memory copy of their usage.
    pub fn node_trial(&self) -> NodeTrial<'_> {
        NodeTrial {
            scheduler: self,
            nodes: self.world.topology.trial(&self.books.nodes),
            changes: Vec::new(),
            closed: BTreeSet::new(),
        }
    }
}

impl NodeTrial<'_> {
    /// The point to which later changes can be undone.
    pub fn mark(&self) -> TrialMark {
        TrialMark(self.changes.len())
    }

    /// Takes back all that was tried since.
    pub fn undo(&mut self, mark: TrialMark) {
        while self.changes.len() > mark.0 {
            match self.changes.pop() {
                Some(Change::Released(id)) => self.shift(id, true),
                Some(Change::Taken(id)) => self.shift(id, false),
                Some(Change::Freed(host, amounts)) => self.nodes.offer(host, &amounts, -1),
                Some(Change::Restored(host, amounts)) => self.nodes.offer(host, &amounts, 1),
                Some(Change::Placed(pods)) => self.nodes.remove(&pods),
                None => return,
            }
        }
    }

    /// All changes stay. Earlier marks are invalid.
    pub fn keep(&mut self) {
        self.changes.clear();
    }

    fn shift(&mut self, id: WorkloadId, takes: bool) {
        for pods in self.scheduler.world.workloads.pods_of(id) {
            if takes {
                self.nodes.add(pods);
            } else {
                self.nodes.remove(pods);
            }
        }
    }

    /// A workload gives back the nodes that it holds. It must hold them.
    pub fn release(&mut self, workload: &WorkloadKey) {
        if let Some(id) = self.scheduler.world.workloads.find(workload) {
            self.shift(id, false);
            self.changes.push(Change::Released(id));
        }
    }

    /// A workload that was released has its nodes again.
    pub fn take(&mut self, workload: &WorkloadKey) {
        if let Some(id) = self.scheduler.world.workloads.find(workload) {
            self.shift(id, true);
            self.changes.push(Change::Taken(id));
        }
    }

    /// A pod without a topology assignment is removed from its node, or is back: its usage, `pods` included; cpu in milli-CPU, everything else in
    /// whole units.
    pub fn pod_goes(&mut self, node: &str, requests: &[(Name, Amount)], goes: bool) {
        let Some(host) = self.nodes.host(node).filter(|host| !self.closed.contains(host)) else { return };
        let known = requests.iter().filter_map(|(resource, amount)| {
            Some((self.scheduler.world.names.find_resource(resource)?, amount.get().max(0)))
        });
        let amounts: Vec<_> = known.collect();
        self.nodes.offer(host, &amounts, if goes { 1 } else { -1 });
        let change = if goes { Change::Freed } else { Change::Restored };
        self.changes.push(change(host, amounts));
    }

    /// A node takes no pods any more, as long as this trial lasts.
    pub fn close(&mut self, node: &str) {
        if let Some(host) = self.nodes.host(node).filter(|host| self.closed.insert(*host)) {
            self.nodes.close(host);
        }
    }

    /// Finds nodes for pods of a workload and takes them; changes nothing if there are none. What the workload holds counts as used
    /// unless it was released. Gives where the pods of each pod set go.
    ///
    /// # Errors
    ///
    /// Why there are no nodes for the first group of pod sets that gets none.
    pub fn place(
        &mut self,
        workload: &WorkloadKey,
        pods: &[PodsToPlace<'_>],
    ) -> Result<Vec<(usize, SharedAssignment)>, PlacementFailure> {
        let found = self.find(workload, pods)?.into_iter();
        Ok(found.filter_map(|nodes| Some((nodes.pod_set, nodes.assignment?))).collect())
    }

    /// The same; returns the places by id, too.
    pub(crate) fn find(
        &mut self,
        workload: &WorkloadKey,
        pods: &[PodsToPlace<'_>],
    ) -> Result<Vec<PodSetNodes>, PlacementFailure> {
        let scheduler = self.scheduler;
        let Some(id) = scheduler.world.workloads.find(workload) else { return Ok(Vec::new()) };
        let shape = scheduler.world.workloads.get(id).shape;
        let pod_sets = scheduler.world.shapes.pod_sets(shape);
        let members = pods.iter().filter(|pods| pods.pod_set < pod_sets.len()).filter_map(|pods| {
            let flavor = scheduler.world.names.find_flavor(pods.flavor)?;
            let (pod_set, count) = (pods.pod_set, pods.count);
            Some((flavor, MemberToPlace { pod_set, count, previous: None, beside: None }))
        });
        let groups = grouped(members, pod_sets);
        let shape = Some(&**scheduler.world.shapes.get(shape));
        let to_place = WorkloadToPlace { pod_sets, shape, groups, ..WorkloadToPlace::default() };
        let found = place_groups(&to_place, false, |flavor, request| {
            self.nodes.place(flavor, request, &scheduler.world.names, &scheduler.world.config)
        });
        let found = found.map_err(|unplaced| unplaced.failure)?;
        for nodes in &found {
            self.nodes.add(&nodes.pods);
            self.changes.push(Change::Placed(nodes.pods.clone()));
        }
        Ok(found)
    }

    /// Takes places that were found before, if there is room still; changes nothing if there is not.
    pub(crate) fn place_again<'p>(&mut self, pods: impl Iterator<Item = &'p PlacedPods> + Clone) -> bool {
        if !self.nodes.fits(pods.clone()) {
            return false;
        }
        for pods in pods {
            self.nodes.add(pods);
            self.changes.push(Change::Placed(pods.clone()));
        }
        true
    }

    /// The usage of nodes with all changes.
    pub(crate) fn usage(&self) -> &NodeUsage {
        self.nodes.usage()
    }

    /// The places of a node in the trees of flavors.
    pub(crate) fn places(&self, node: &str) -> impl Iterator<Item = (FlavorId, PlaceId)> {
        self.nodes.host(node).into_iter().flat_map(|host| self.nodes.homes(host))
    }

    /// The values of a node for the levels of a flavor's topology, if it belongs to that.
    pub(crate) fn path(&self, node: &str, flavor: FlavorId) -> Option<Path> {
        self.nodes.path(self.nodes.host(node)?, flavor)
    }

    /// The labels of the levels of a flavor's topology.
    pub(crate) fn levels(&self, flavor: FlavorId) -> &[Name] {
        self.scheduler.world.topology.levels(flavor)
    }

    /// The pod sets of a workload.
    pub(crate) fn pod_sets(&self, workload: &WorkloadKey) -> Option<Arc<[PodSetSpec]>> {
        let world = &self.scheduler.world;
        let id = world.workloads.find(workload)?;
        Some(world.shapes.shared_pod_sets(world.workloads.get(id).shape))
    }

    /// How many lowest domains all placements have looked at.
    pub fn looked(&self) -> u64 {
        self.nodes.looked()
    }
}
