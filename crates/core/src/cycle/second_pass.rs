//! Second passes (docs/reference/06-algorithm.md 6.15): workloads with quota that are evaluated once more, because their pods waited for checks
//! before they got nodes, or because one of their nodes failed.
//!
//! Where slices move, which is not in Kueue, nodes that are lent out in the cohort come back for a slice. The slice takes no quota, so that of the
//! evicted workloads is free before their pods have left, and they could be admitted onto the same nodes again. Therefore the slice has its turn
//! before all heads of each cycle, and keeps these nodes from them until it is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::{CycleState, Entry};
use crate::Name;
use crate::books::Basis;
use crate::intern::{FlavorId, FrId, WorkloadId};
use crate::placement::{self, MemberToPlace, WorkloadToPlace};
use crate::preemption::{self, Lent, PreemptionRequest};
use crate::reason::{Detail, Reason, Refusal, Unadmitted};
use crate::report::{Outcome, SlicesMoved};
use crate::scheduler::Scheduler;
use crate::second_pass::LentNodes;
use crate::spec::Time;
use crate::topology::{SharedAssignment, SliceMoves};
use crate::view::{Head, Target};
use crate::workload::PodSetSpec;
use crate::workloads::{Place, PodSetNodes, TopologyReservation};
use crate::world::World;

/// How long a slice waits for pods that are still on its nodes after their workloads gave their quota back, in nanoseconds: twice the usual grace
/// period of a pod.
const PODS_LEAVE_WITHIN: i64 = 60_000_000_000;
/// How many slices a cycle searches lent nodes for: many may lose nodes at once, and a search goes through all that borrows.
const MOST_SEARCHES: usize = 2;

/// Why pods have no nodes.
struct NotPlaced {
    /// As the event says it.
    why: String,
    /// Why their slice cannot move, if slices may.
    slice: Option<String>,
    /// Nodes that are lent out may come back for it.
    reclaims: bool,
}

impl Scheduler {
    /// Slices that wait for lent nodes have their turn before all heads are nominated: what was evicted for them must not get these nodes again.
    pub(super) fn take_lent_back(&mut self, now: Time, state: &mut CycleState) {
        let waiting = self.agenda.second_passes.take_lent();
        if waiting.is_empty() {
            return;
        }
        // None of them gets the nodes of another one.
        for pods in waiting.values().flat_map(|(_, lent)| &lent.pods) {
            self.books.nodes.add(pods);
        }
        for (id, (iteration, lent)) in waiting {
            for pods in &lent.pods {
                self.books.nodes.remove(pods);
            }
            let Some(mut entry) = self.second_pass_entry((id, iteration)) else { continue };
            entry.lent = Some(lent);
            match self.second_pass_objection(&entry) {
                Some(why) => self.second_pass_failed(&entry, why, now, state),
                None => self.second_pass(&entry, now, state),
            }
            if !self.agenda.second_passes.waits_for_lent(id) {
                self.keeps_no_nodes(id);
            }
        }
        // What waited for these nodes is tried in this cycle.
        self.refresh();
    }

    /// The workloads whose second pass is due: heads beside those of the queues. Those of an inactive ClusterQueue fail.
    pub(super) fn take_second_passes(&mut self, now: Time, state: &mut CycleState) -> Vec<Entry> {
        let mut entries = Vec::new();
        for queued in self.agenda.second_passes.take_ready() {
            let Some(entry) = self.second_pass_entry(queued) else { continue };
            match self.second_pass_objection(&entry) {
                Some(why) => self.second_pass_failed(&entry, why, now, state),
                None => entries.push(entry),
            }
        }
        entries
    }

    fn second_pass_entry(&self, (id, iteration): (WorkloadId, u32)) -> Option<Entry> {
        let workload = self.world.workloads.get(id);
        let queue = workload.reservation().filter(|reservation| !reservation.evicted)?.queue;
        let head = Head {
            workload: id,
            queue,
            node: self.world.queues[queue.at()].node,
            priority: workload.priority,
            order: workload.order,
        };
        Some(Entry::of_second_pass(head, self.world.workloads.order_key(id), iteration))
    }

    /// Places the pods of a workload that holds quota. Its flavors stay, and it takes no quota; nothing of the first pass can refuse it: not
    /// `blockAdmission`, not what earlier entries took of the quota (docs/reference/06-algorithm.md 6.5 and 6.15).
    pub(super) fn second_pass(&mut self, entry: &Entry, now: Time, state: &mut CycleState) {
        let id = entry.head.workload;
        if !self.needs_second_pass(id) {
            return;
        }
        if self.world.workloads.get(id).taken_in_cycle == self.cycle {
            // An earlier head of this cycle preempts it. If it is not evicted after all, it has its turn later.
            let iteration = entry.second_pass.unwrap_or_default();
            self.agenda.second_passes.push(id, iteration, now);
            return;
        }
        let Some(topology) =
            self.world.workloads.get(id).reservation().and_then(|held| held.topology.clone())
        else {
            return;
        };
        let delayed = topology.is_delayed();
        let lost = topology.unhealthy_in_use();
        // Reservations of heads without victims do not count against workloads with quota.
        let found = self.without_reserved(state, |core| core.place_second(entry, &topology));
        if found.as_ref().is_err_and(|unplaced| self.gets_lent(entry, unplaced, &topology, now, state)) {
            return;
        }
        let outcome = match found {
            Ok(nodes) => {
                let (pods, to) = moved(&topology, &nodes);
                let nodes = self.hold_nodes(id, *topology, nodes);
                if pods > 0 {
                    Outcome::SlicesMoved(SlicesMoved { nodes, lost, pods, to })
                } else {
                    Outcome::SecondPass(Ok(nodes))
                }
            }
            Err(NotPlaced { slice, .. })
                if !delayed && self.world.config.gates.tas_failed_node_replacement_fail_fast =>
            {
                Outcome::NodesNotReplaced(lost, slice)
            }
            Err(NotPlaced { why, slice, .. }) => {
                let slice = slice.map(|slice| format!("; the slice cannot move: {slice}"));
                return self.second_pass_failed(entry, why + &slice.unwrap_or_default(), now, state);
            }
        };
        state.report.progress = true;
        state.report.entries.push(self.report(entry, outcome));
    }

    /// Nodes for the pods that wait for some, or that are on unhealthy ones; else why there are none. Its usage stays.
    fn place_second(
        &mut self,
        entry: &Entry,
        topology: &TopologyReservation,
    ) -> Result<Vec<PodSetNodes>, NotPlaced> {
        let mut view = self.view(Basis::Now, &[]);
        let world = view.world;
        let workload = world.workloads.get(entry.head.workload);
        let to_place = pods_to_place(world, entry.head.workload, topology);
        // Its usage stays counted: only pods of lost nodes are placed again.
        let unplaced = match placement::place(&mut view, &to_place, false) {
            Ok(nodes) => return Ok(nodes),
            Err(unplaced) => unplaced,
        };
        let slice = unplaced.failure.slice().map(str::to_owned);
        let reclaims = slice.is_some() && to_place.slice_moves == SliceMoves::Allowed && !workload.gated;
        let flavor = world.names.flavor_name(to_place.groups[unplaced.group].flavor).clone();
        let failure = Arc::new(unplaced.failure);
        let why = Refusal::NoPlacement { flavor, failure, placed: Vec::new() }.to_string();
        Err(NotPlaced { why, slice, reclaims })
    }

    /// Whether the slice of a workload without nodes waits for lent ones: on from an earlier pass, from now on, or maybe from the next cycle.
    fn gets_lent(
        &mut self,
        entry: &Entry,
        unplaced: &NotPlaced,
        topology: &TopologyReservation,
        now: Time,
        state: &mut CycleState,
    ) -> bool {
        if let Some(lent) = &entry.lent {
            return topology.state.slice_moves == SliceMoves::Allowed
                && self.waits_on(entry, lent.clone(), topology, now, state);
        }
        if !unplaced.reclaims {
            return false;
        }
        if state.lent_searches == MOST_SEARCHES {
            self.pass_again(entry, now);
            state.report.scanning = true;
            return true;
        }
        state.lent_searches += 1;
        let basis = self.basis(entry, state);
        let lent = self.without_reserved(state, |core| core.lent_out(entry, topology, basis));
        let Some(lent) = lent else { return false };
        self.reclaim(entry, lent, topology.state.unhealthy_nodes.clone(), state);
        true
    }

    /// The second pass of an entry is still to be made.
    fn pass_again(&mut self, entry: &Entry, now: Time) {
        self.agenda.second_passes.push_ready(entry.head.workload, entry.second_pass.unwrap_or_default(), now);
    }

    /// A slice that waits for lent nodes still does while its victims leave, and for the time that their pods have after that. If these nodes do not
    /// become free for it as they were to, for example because an eviction was not written, or is refused again and again, others are looked for in the
    /// same cycle.
    fn waits_on(
        &mut self,
        entry: &Entry,
        mut lent: LentNodes,
        topology: &TopologyReservation,
        now: Time,
        state: &mut CycleState,
    ) -> bool {
        let reservation = |id: WorkloadId| self.world.workloads.try_get(id)?.reservation();
        let stays = |&(id, since): &(WorkloadId, Time)| {
            reservation(id)
                .is_some_and(|held| held.reserved_at == since && (!held.evicted || held.eviction_refused()))
        };
        let leaves = |&(id, _): &(WorkloadId, Time)| reservation(id).is_some_and(|held| held.evicted);
        let mut places = lent.pods.iter().flat_map(|pods| &pods.places);
        let as_expected = lent.lost == topology.state.unhealthy_nodes
            && !lent.victims.iter().any(stays)
            && places.all(|&(place, _)| self.world.topology.takes_pods(place));
        if !as_expected {
            self.pass_again(entry, now);
            return true;
        }
        let later = Time(now.0.saturating_add(PODS_LEAVE_WITHIN));
        lent.until = if lent.victims.iter().any(leaves) { None } else { lent.until.or(Some(later)) };
        let waits = lent.until.is_none_or(|until| now < until);
        if waits {
            self.keep_for_slice(entry, lent, state);
        }
        waits
    }

    /// What has to go from nodes that the cohort has lent out so that a slice moves there. What earlier slices of the cycle take counts as gone: a queue
    /// that borrows nothing more gives nothing more.
    fn lent_out(&mut self, entry: &Entry, topology: &TopologyReservation, basis: Basis) -> Option<Lent> {
        let mut view = self.view(basis, &[]);
        let world = view.world;
        let to_place = pods_to_place(world, entry.head.workload, topology);
        let is_concerned = |pair: &FrId| {
            let (flavor, _) = world.names.flavor_and_resource(*pair);
            to_place.groups.iter().any(|group| group.flavor == flavor)
        };
        let usage = world.workloads.usage_of(entry.head.workload);
        let needed: Vec<FrId> = usage.iter().map(|&(pair, ..)| pair).filter(is_concerned).collect();
        let preemption = PreemptionRequest {
            head: &entry.head,
            workload_usage: &[],
            needed: &needed,
            placement: Some(&to_place),
        };
        preemption::lent(&mut view, &preemption, topology)
    }

    /// Evicts what borrows the nodes that a slice can move to. What is evicted already stays a victim for others, too: the slice takes no quota.
    fn reclaim(&mut self, entry: &Entry, lent: Lent, lost: Vec<Name>, state: &mut CycleState) {
        let since = |target: &Target| {
            Some((target.workload, self.world.workloads.get(target.workload).reservation()?.reserved_at))
        };
        let victims = lent.targets.iter().filter_map(since).collect();
        let mut new = lent.targets;
        new.retain(|target| {
            let reservation = self.world.workloads.get(target.workload).reservation();
            reservation.is_some_and(|held| !held.evicted)
        });
        if !new.is_empty() {
            let reclaimed = self.take_victims(&entry.head, &new, state);
            self.free_quota_of(entry, &new, state);
            state.report.entries.push(self.report(entry, Outcome::SliceReclaims(reclaimed)));
        }
        self.keep_for_slice(entry, LentNodes { victims, lost, pods: lent.pods, until: None }, state);
    }

    /// Later entries of the cycle find the quota of a slice's victims free once these are gone, and preempt nothing else for it.
    fn free_quota_of(&mut self, entry: &Entry, victims: &[Target], state: &mut CycleState) {
        let root = self.world.forest.node(entry.head.node).root;
        if state.overlaid.insert(root) {
            self.books.overlay(self.world.forest.slots_of_tree(root));
        }
        let usage = self.books.usage_mut(Basis::AfterVictims);
        for target in victims {
            for &(_, slot, amount) in self.world.workloads.usage_of(target.workload) {
                usage.remove(&self.world.forest.quota, slot, amount);
            }
        }
    }

    /// Keeps the nodes that a slice waits for from all other entries of the cycle. It has its turn again in the next one.
    fn keep_for_slice(&mut self, entry: &Entry, lent: LentNodes, state: &mut CycleState) {
        for pods in &lent.pods {
            self.books.nodes.add(pods);
            state.transient_pods.push(pods.clone());
        }
        let iteration = entry.second_pass.unwrap_or_default();
        self.agenda.second_passes.wait_for_lent(entry.head.workload, iteration, lent);
    }

    /// Replaces the nodes of a workload; returns the new ones. Places that its pods leave stay used until that is written: no other pod may be placed
    /// there while the API has both.
    fn hold_nodes(
        &mut self,
        id: WorkloadId,
        before: TopologyReservation,
        nodes: Vec<PodSetNodes>,
    ) -> Vec<(Name, SharedAssignment)> {
        let mut after = before;
        let (mut placed, mut left) = (Vec::new(), Vec::new());
        for new in nodes {
            let Some(held) = after.pod_sets.iter_mut().find(|held| held.pod_set == new.pod_set) else {
                continue;
            };
            let leaving = held.pods.without(&new.pods);
            self.books.nodes.remove(&held.pods);
            for pods in [&new.pods, &leaving] {
                self.books.nodes.add(pods);
            }
            left.extend(Some(leaving).filter(|leaving| !leaving.places.is_empty()));
            let name =
                self.world.shapes.pod_sets(self.world.workloads.get(id).shape)[new.pod_set].name.clone();
            placed.extend(new.assignment.clone().map(|assignment| (name, assignment)));
            *held = new;
        }
        after.leaving.extend(left);
        after.state.unhealthy_nodes.clear();
        if let Place::QuotaReserved(reservation) = &mut self.world.workloads.get_mut(id).place {
            reservation.topology = Some(Box::new(after));
        }
        placed
    }

    /// What prevents second passes in a ClusterQueue.
    fn second_pass_objection(&self, entry: &Entry) -> Option<String> {
        let queue = &self.world.queues[entry.head.queue.at()];
        let (reason, detail) = match &queue.spec {
            None => (Reason::Misconfigured, Detail::QueueMissing(queue.name.clone())),
            Some(_) if queue.is_active() && !self.world.forest.node(queue.node).in_cycle => return None,
            Some(_) => (Reason::Suspended, Detail::QueueInactive(queue.name.clone())),
        };
        Some(Unadmitted { reason, detail, requests: Arc::from([]) }.message())
    }

    /// Reports a second pass that failed, and queues it again.
    fn second_pass_failed(&mut self, entry: &Entry, why: String, now: Time, state: &mut CycleState) {
        let iteration = entry.second_pass.unwrap_or_default().saturating_add(1);
        self.agenda.second_passes.push(entry.head.workload, iteration, now);
        state.report.entries.push(self.report(entry, Outcome::SecondPass(Err(why))));
    }
}

/// The pods of a workload that wait for nodes, or that are on unhealthy ones.
fn pods_to_place<'a>(
    world: &'a World,
    id: WorkloadId,
    topology: &'a TopologyReservation,
) -> WorkloadToPlace<'a> {
    let shape = world.workloads.get(id).shape;
    let delayed = topology.is_delayed();
    let lost: &[Name] = &topology.state.unhealthy_nodes;
    let concerned = |nodes: &&PodSetNodes| match &nodes.assignment {
        None => delayed,
        Some(assignment) => !delayed && assignment.uses_any(lost),
    };
    let (pod_sets, all) = (world.shapes.pod_sets(shape), &topology.pod_sets[..]);
    WorkloadToPlace {
        pod_sets,
        shape: Some(world.shapes.get(shape)),
        groups: placement::grouped(
            all.iter().filter(concerned).map(|one| member(one, all, pod_sets)),
            pod_sets,
        ),
        lost,
        slice_moves: topology.state.slice_moves.clone(),
    }
}

/// How many pods leave nodes that are not lost, and the nodes that pods go to.
fn moved(before: &TopologyReservation, after: &[PodSetNodes]) -> (i64, Vec<Name>) {
    let lost = &before.state.unhealthy_nodes;
    let (mut pods, mut to) = (0_i64, Vec::new());
    for new in after {
        let old = before.pod_sets.iter().find(|old| old.pod_set == new.pod_set);
        let Some((old, new)) = old.and_then(|old| old.assignment.as_ref()).zip(new.assignment.as_ref())
        else {
            continue;
        };
        let (had, has) = (old.by_host(), new.by_host());
        let count = |of: &BTreeMap<&Name, i64>, host: &Name| of.get(host).copied().unwrap_or(0);
        for (host, count_before) in had.iter().filter(|(host, _)| !lost.contains(host)) {
            pods = pods.saturating_add(count_before.saturating_sub(count(&has, host)).max(0));
        }
        let gain = has.iter().filter(|(host, now)| **now > count(&had, host));
        to.extend(gain.map(|(host, _)| Name::clone(host)));
    }
    (pods, to)
}

/// The pods to place of a pod set that holds nodes, or waits for them. `all`: the pod sets of its workload.
fn member(nodes: &PodSetNodes, all: &[PodSetNodes], specs: &[PodSetSpec]) -> (FlavorId, MemberToPlace) {
    let group = |nodes: &PodSetNodes| specs.get(nodes.pod_set).and_then(|spec| spec.group.as_ref());
    let own = group(nodes);
    let mate = all.iter().find(|other| {
        own.is_some() && other.pod_set != nodes.pod_set && group(other) == own && other.flavor == nodes.flavor
    });
    let member = MemberToPlace {
        pod_set: nodes.pod_set,
        count: nodes.count,
        previous: nodes.assignment.clone(),
        beside: mate.and_then(|mate| mate.assignment.clone()),
    };
    (nodes.flavor, member)
}
