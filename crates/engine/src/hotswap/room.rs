//! What is free for displaced work. Where a flavor's topology is known, the core assigns nodes: whether it would find some is asked of its
//! own placement, with its domains, levels, taints and affinity. Everywhere else pods go where the scheduler of pods finds room, and
//! [`FreeCapacity`] knows that.
//!
//! Both are kept in step, as they may have nodes in common: what the core's placement finds is taken of the free capacity, too.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use sluice_core::{
    Exclusions, HOSTNAME, NodeTrial, PlacementFailure, PodsToPlace, SharedAssignment, TrialMark, WorkloadKey,
};

use super::displaced::DisplacedWorkload;
use super::free_capacity::{FreeCapacity, Mark, Probe};
use super::matching::has_label;
use super::needs::SetNeeds;
use super::pod::Pod;
use super::snapshot::{NodeSet, Snapshot, holds};
use crate::engine::Engine;

/// So many lowest domains that a placement looks at take as long as one node or Workload of another search.
const DOMAINS_PER_STEP: u64 = 16;

/// What is free for displaced work.
pub(super) struct Room<'a> {
    engine: &'a Engine,
    snapshot: &'a Snapshot<'a>,
    free: FreeCapacity<'a>,
    /// What is free by the core's placement, if it assigns nodes to any displaced work.
    assigned: Option<NodeTrial<'a>>,
    /// By Workload: its pods that the core counts one by one, as it did not place them.
    apart: OnceCell<BTreeMap<&'a WorkloadKey, Vec<&'a Pod>>>,
    /// Why the core found no nodes when it was last asked, if it did not.
    failure: Option<PlacementFailure>,
}

/// How far changes are to be undone.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomMark {
    free: Mark,
    assigned: Option<TrialMark>,
}

/// Whether the pods of one Workload fit, kept up to date while others go and come back.
pub(super) struct RoomProbe<'n, 'a> {
    key: &'n WorkloadKey,
    needs: &'n [SetNeeds<'a>],
    /// For the pod sets to which [`free_sets`] applies.
    free: Probe<'n, 'a>,
}

/// The pod sets whose pods go where there is room; with the groups of nodes that they take whole, if they do.
pub(super) fn free_sets<'n, 'a>(needs: &'n [SetNeeds<'a>]) -> Cow<'n, [SetNeeds<'a>]> {
    if needs.iter().all(is_free) {
        Cow::Borrowed(needs)
    } else {
        Cow::Owned(needs.iter().filter(|set| is_free(set)).cloned().collect())
    }
}

fn is_free(set: &SetNeeds<'_>) -> bool {
    set.assigned.is_none() || set.exclusive.is_some()
}

impl<'a> Room<'a> {
    /// What is free, for these displaced Workloads. `leaving` are gone from `free` already.
    pub fn new(
        engine: &'a Engine,
        snapshot: &'a Snapshot<'a>,
        free: FreeCapacity<'a>,
        displaced: &[DisplacedWorkload<'a>],
        leaving: &[usize],
    ) -> Self {
        let assigns = |one: &DisplacedWorkload<'_>| {
            one.choices.iter().flat_map(|way| &way.needs).any(|set| set.assigned.is_some())
        };
        let assigned = displaced.iter().any(assigns).then(|| engine.scheduler.node_trial());
        let mut room = Self { engine, snapshot, free, assigned, apart: OnceCell::new(), failure: None };
        if let Some(trial) = &mut room.assigned {
            // The core may take nodes for good that are about to go.
            for seen in snapshot.nodes.iter().filter(|seen| !seen.health.has_capacity()) {
                trial.close(seen.name);
            }
        }
        for at in leaving {
            room.shift_assigned(*at, true);
        }
        room.keep();
        room
    }

    /// The point to which later changes can be undone.
    pub fn mark(&self) -> RoomMark {
        RoomMark { free: self.free.mark(), assigned: self.assigned.as_ref().map(NodeTrial::mark) }
    }

    /// Undoes all changes since then.
    pub fn undo(&mut self, mark: RoomMark) {
        self.free.undo(mark.free);
        if let (Some(trial), Some(mark)) = (&mut self.assigned, mark.assigned) {
            trial.undo(mark);
        }
    }

    /// All changes stay. Marks that were made before mean nothing any more.
    pub fn keep(&mut self) {
        self.free.keep();
        if let Some(trial) = &mut self.assigned {
            trial.keep();
        }
    }

    /// How much searches have looked at: nodes, Workloads, and domains by [`DOMAINS_PER_STEP`].
    pub fn steps(&self) -> u64 {
        let looked = self.assigned.as_ref().map_or(0, NodeTrial::looked);
        self.free.steps() + looked.div_ceil(DOMAINS_PER_STEP)
    }

    /// Counts the work of a search.
    pub fn count(&mut self, steps: usize) {
        self.free.count(steps);
    }

    /// The pods of a Workload are there.
    pub fn take(&mut self, workload: usize) {
        self.free.take(workload);
        self.shift_assigned(workload, false);
    }

    /// The pods of a Workload are gone.
    pub fn release(&mut self, workload: usize) {
        self.free.release(workload);
        self.shift_assigned(workload, true);
    }

    fn shift_assigned(&mut self, workload: usize, goes: bool) {
        let Some(trial) = &mut self.assigned else { return };
        let key = self.snapshot.workloads[workload].key;
        if goes {
            trial.release(key);
        } else {
            trial.take(key);
        }
        let engine = self.engine;
        for pod in self.apart.get_or_init(|| engine.pods_apart()).get(key).into_iter().flatten() {
            trial.pod_goes(&pod.node, &pod.requests, goes);
        }
    }

    /// How much the core's placement found when it was last asked and did not find nodes for all; forgets it. The nodes that it left out
    /// are not in it: the lost ones would count as full.
    pub fn take_failure(&mut self) -> Option<String> {
        let failure = self.failure.take()?;
        Some(PlacementFailure { excluded: Exclusions::default(), ..failure }.message())
    }

    /// Finds nodes for all pods of a Workload and takes them; changes nothing if there are none.
    pub fn place(&mut self, key: &WorkloadKey, needs: &[SetNeeds<'a>]) -> bool {
        let mark = self.mark();
        let placed = self.free.place(&free_sets(needs), None) && self.assign(key, needs);
        if !placed {
            self.undo(mark);
        }
        placed
    }

    /// Lets the core place the pods to which it assigns nodes.
    fn assign(&mut self, key: &WorkloadKey, needs: &[SetNeeds<'a>]) -> bool {
        let pods = needs.iter().filter_map(|set| {
            let flavor = set.assigned.as_deref()?;
            Some(PodsToPlace { pod_set: set.pod_set, flavor, count: set.count })
        });
        let pods: Vec<_> = pods.collect();
        if pods.is_empty() {
            return true;
        }
        let Some(trial) = &mut self.assigned else { return false };
        let found = match trial.place(key, &pods) {
            Ok(found) => found,
            Err(failure) => {
                self.failure = Some(failure);
                return false;
            }
        };
        self.failure = None;
        for (pod_set, assignment) in found {
            if let Some(set) = needs.iter().find(|set| set.pod_set == pod_set && !is_free(set)) {
                self.take_assigned(set, &assignment);
            }
        }
        true
    }

    /// Takes what pods use of the nodes that the core assigned.
    fn take_assigned(&mut self, set: &SetNeeds<'a>, assignment: &SharedAssignment) {
        let by_host = assignment.levels.last().is_some_and(|level| **level == *HOSTNAME);
        for domain in &assignment.domains {
            let nodes: NodeSet = match domain.values.last() {
                Some(host) if by_host => {
                    self.engine.nodes_of_host(host).filter_map(|name| self.snapshot.node(name)).collect()
                }
                _ => {
                    let labels = || assignment.levels.iter().zip(&domain.values);
                    let own = self.snapshot.nodes.iter().enumerate().filter(|(_, seen)| {
                        labels().all(|(label, value)| has_label(seen.node, label, value))
                    });
                    own.map(|(at, _)| at).collect()
                }
            };
            let usable = nodes.iter().filter(|node| set.nodes.contains(*node));
            self.free.place_on(set, usable, domain.count);
        }
    }

    /// What there is room for now of a Workload's pods; `free` are its [`free_sets`].
    pub fn probe<'n>(
        &mut self,
        key: &'n WorkloadKey,
        needs: &'n [SetNeeds<'a>],
        free: &'n [SetNeeds<'a>],
    ) -> RoomProbe<'n, 'a> {
        RoomProbe { key, needs, free: Probe::of(&mut self.free, free) }
    }
}

impl Engine {
    /// The pods of Workloads that hold quota which the core counts one by one.
    fn pods_apart(&self) -> BTreeMap<&WorkloadKey, Vec<&Pod>> {
        let mut apart: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for key in self.topology.counted() {
            let Some(pod) = self.world.pods.get(key) else { continue };
            let holds = |of: &&WorkloadKey| {
                let entry = self.world.workloads.get(*of);
                entry.is_some_and(|entry| holds(entry) && !pod.is_of_former_run(entry))
            };
            if let Some(of) = self.workloads_of_pod(key, pod).find(holds) {
                apart.entry(of).or_default().push(pod);
            }
        }
        apart
    }
}

impl<'a> RoomProbe<'_, 'a> {
    /// A Workload went, or came back.
    pub fn changed(&mut self, room: &mut Room<'a>, workload: usize) {
        self.free.changed(&mut room.free, workload);
    }

    /// Whether to ask takes as long as to look at all nodes.
    pub fn is_dear(&self) -> bool {
        self.needs.iter().any(|set| set.assigned.is_some())
    }

    /// Whether all fit.
    pub fn fits(&self, room: &mut Room<'a>) -> bool {
        if !self.free.fits(&mut room.free) {
            return false;
        }
        if !self.is_dear() {
            return true;
        }
        let mark = room.mark();
        let fits = room.place(self.key, self.needs);
        room.undo(mark);
        fits
    }
}
