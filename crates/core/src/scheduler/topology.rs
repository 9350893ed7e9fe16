//! Changes of topologies, nodes and their usage by other pods; the nodes that workloads hold (docs/reference/06-algorithm.md 6.11–6.15).

use smallvec::SmallVec;

use super::Scheduler;
use crate::intern::{FlavorId, ResourceId, WorkloadId};
use crate::spec::Time;
use crate::topology::{LargestFit, NodeSpec, PlacedPods, TopologySpec};
use crate::workload::{Admission, PodSetAssignment, TopologyState, WorkloadKey};
use crate::workloads::{PodSetNodes, QuotaReservation, TopologyReservation};
use crate::{Amount, Name};

impl Scheduler {
    /// Adds or replaces a Topology.
    pub fn set_topology(&mut self, spec: &TopologySpec) {
        let concerned = self.world.topology.set_topology(&mut self.books.nodes, &spec.name, Some(spec));
        self.topology_changed(&spec.name, &concerned);
    }

    /// Removes a Topology.
    pub fn remove_topology(&mut self, name: &Name) {
        let concerned = self.world.topology.set_topology(&mut self.books.nodes, name, None);
        self.topology_changed(name, &concerned);
    }

    /// Queues that name the Topology may have become active, or inactive.
    fn topology_changed(&mut self, name: &Name, concerned: &[FlavorId]) {
        let flavors = self.world.flavors.iter().flatten();
        let named = flavors.filter(|flavor| flavor.topology.as_ref() == Some(name));
        let named = named.filter_map(|flavor| self.world.names.find_flavor(&flavor.name));
        let flavors: SmallVec<[FlavorId; 4]> = named.chain(concerned.iter().copied()).collect();
        if !flavors.is_empty() {
            self.touch_queues(
                flavors.iter().flat_map(|&flavor| self.world.referring_queues.of_flavor(flavor)).collect(),
            );
        }
    }

    /// Adds or replaces a Node.
    pub fn set_node(&mut self, node: &NodeSpec) {
        self.sweep_if_due();
        let concerned = self.world.topology.set_node(&mut self.books.nodes, &mut self.world.names, node);
        self.nodes_changed(&concerned);
    }

    /// Whether a Node is known as it is, for checks.
    pub fn has_node(&self, node: &NodeSpec) -> bool {
        self.world.topology.node(&node.name) == Some(node)
    }

    /// Labels of a Node have changed since [`Scheduler::set_node`], and nothing else: each has this value now, or is gone. Returns whether
    /// anything reads them: a topology, a flavor with one, or pods that select nodes. Nothing happens if the Node is not known.
    pub fn set_node_labels(&mut self, name: &str, changed: &[(Name, Option<Name>)]) -> bool {
        self.sweep_if_due();
        let (usage, names, shapes) = (&mut self.books.nodes, &mut self.world.names, &self.world.shapes);
        let selected = |key: &str| shapes.read_label(key);
        let concerned = self.world.topology.set_labels(usage, names, name, changed, selected);
        let Some(concerned) = concerned else { return false };
        self.nodes_changed(&concerned);
        true
    }

    /// A Node is usable and was not, or the other way (see [`NodeSpec::usable`]), and is otherwise as [`Scheduler::set_node`] last said. Nothing happens
    /// if it is so already, or is not known.
    pub fn set_node_usable(&mut self, name: &str, usable: bool) {
        self.sweep_if_due();
        let concerned = self.world.topology.set_usable(&mut self.books.nodes, name, usable);
        self.nodes_changed(&concerned);
    }

    /// Removes a Node.
    pub fn remove_node(&mut self, name: &str) {
        let concerned = self.world.topology.remove_node(&mut self.books.nodes, name);
        self.nodes_changed(&concerned);
    }

    /// The total usage of a node by pods without a topology assignment: requests by resource, and the number of pods under `pods`. cpu in milli-CPU,
    /// everything else in whole units.
    pub fn set_other_usage(&mut self, node: &Name, usage: &[(Name, Amount)]) {
        self.sweep_if_due();
        let usage: Vec<(ResourceId, i64)> = usage
            .iter()
            .map(|(resource, amount)| (self.world.names.resource(resource), amount.get().max(0)))
            .collect();
        let concerned = self.world.topology.set_other_usage(&mut self.books.nodes, node, &usage);
        self.nodes_changed(&concerned);
    }

    /// Workloads that wait for nodes of a flavor are tried again.
    fn nodes_changed(&mut self, flavors: &[FlavorId]) {
        for &flavor in flavors {
            self.try_again_with(flavor);
        }
    }

    /// A workload gave nodes back: queues of other trees may have waited for them, in the same flavor or in one with the same nodes.
    pub(super) fn nodes_freed(&mut self, before: &QuotaReservation) {
        let Some(topology) = &before.topology else { return };
        let mut flavors: SmallVec<[FlavorId; 4]> = SmallVec::new();
        for nodes in &topology.pod_sets {
            for flavor in self.world.topology.sharing(nodes.flavor) {
                if !flavors.contains(&flavor) {
                    flavors.push(flavor);
                }
            }
        }
        self.nodes_changed(&flavors);
    }

    /// The victims of a slice, which waits for the nodes that they borrow, are not evicted after all: they have to be set to what they are. The workload
    /// of the slice has its turn again later. Nothing happens if that does not wait.
    pub fn reclaim_failed(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.world.workloads.find(key) else { return };
        let Some(iteration) = self.agenda.second_passes.wait_ends(id) else { return };
        self.keeps_no_nodes(id);
        self.agenda.second_passes.push(id, iteration.saturating_add(1), now);
    }

    /// The slice of a workload does not wait for lent nodes any more: others may have waited for those.
    pub(crate) fn keeps_no_nodes(&mut self, id: WorkloadId) {
        let reservation = self.world.workloads.get(id).reservation();
        let topology = reservation.and_then(|reservation| reservation.topology.as_deref());
        let pod_sets = topology.into_iter().flat_map(|topology| &topology.pod_sets);
        let flavors: SmallVec<[FlavorId; 4]> =
            pod_sets.flat_map(|nodes| self.world.topology.sharing(nodes.flavor)).collect();
        self.nodes_changed(&flavors);
    }

    /// The nodes that a workload uses according to its admission.
    pub(super) fn nodes_of(
        &mut self,
        id: WorkloadId,
        admission: &Admission,
        state: TopologyState,
    ) -> Option<Box<TopologyReservation>> {
        let shape = self.world.shapes.get(self.world.workloads.get(id).shape).clone();
        let mut pod_sets = Vec::new();
        for (at, assigned) in admission.pod_sets.iter().enumerate() {
            let Some(flavor) = self.flavor_with_topology(assigned) else { continue };
            let assignment = assigned.topology.clone();
            if assignment.is_none() && !assigned.topology_delayed {
                continue;
            }
            let per_pod = shape.pod_sets.get(at).map_or(&[][..], |pod_set| &pod_set.node_requests);
            let pods = assignment.as_ref().map_or_else(PlacedPods::default, |assignment| {
                self.world.topology.resolve(&mut self.books.nodes, flavor, assignment, per_pod)
            });
            pod_sets.push(PodSetNodes { pod_set: at, flavor, count: assigned.count, assignment, pods });
        }
        TopologyReservation::of(pod_sets, state)
    }

    /// The flavor of a pod set that has a topology, or else the first: a flavor may be created after the workload.
    fn flavor_with_topology(&mut self, assigned: &PodSetAssignment) -> Option<FlavorId> {
        if assigned.topology.is_none() && !assigned.topology_delayed {
            return None;
        }
        let flavors: SmallVec<[FlavorId; 2]> =
            assigned.flavors.iter().map(|(_, flavor)| self.world.names.flavor(flavor)).collect();
        let known = |id: &&FlavorId| {
            let spec = self.world.flavors.get(id.at()).and_then(Option::as_ref);
            spec.is_some_and(|spec| spec.topology.is_some())
        };
        flavors.iter().find(known).or_else(|| flavors.first()).copied()
    }

    /// Whether a workload holds these nodes already.
    pub(super) fn holds_nodes(
        reservation: &QuotaReservation,
        admission: &Admission,
        state: &TopologyState,
    ) -> bool {
        let held = reservation.topology.as_deref();
        if held.is_some_and(|held| !held.leaving.is_empty()) {
            return false;
        }
        let mut wanted = admission.pod_sets.iter().enumerate();
        held.map_or(*state == TopologyState::default() || !admission.has_nodes(), |held| held.state == *state)
            && wanted.all(|(at, assigned)| {
                let nodes = held.and_then(|held| held.pod_sets.iter().find(|nodes| nodes.pod_set == at));
                let delayed = nodes.is_some_and(|nodes| nodes.assignment.is_none());
                nodes.and_then(|nodes| nodes.assignment.as_ref()) == assigned.topology.as_ref()
                    && delayed == (assigned.topology_delayed && assigned.topology.is_none())
            })
    }

    /// Queues a second pass if a workload needs one (docs/reference/06-algorithm.md 6.15).
    pub(super) fn queue_second_pass_if_needed(&mut self, id: WorkloadId, now: Time) {
        if self.needs_second_pass(id) {
            self.agenda.second_passes.push(id, 1, now);
        } else {
            self.drop_second_pass(id);
        }
    }

    /// A workload that still holds its quota has no second pass any more.
    pub(crate) fn drop_second_pass(&mut self, id: WorkloadId) {
        if self.agenda.second_passes.wait_ends(id).is_some() {
            self.keeps_no_nodes(id);
        }
        self.agenda.second_passes.remove(id);
    }

    /// Its pods wait for nodes and its checks are ready, or it runs and a node of it is unhealthy.
    pub(crate) fn needs_second_pass(&self, id: WorkloadId) -> bool {
        let Some(reservation) = self.world.workloads.get(id).reservation().filter(|of| !of.evicted) else {
            return false;
        };
        let Some(topology) = &reservation.topology else { return false };
        if topology.is_delayed() {
            return topology.state.checks_ready && !reservation.admitted;
        }
        self.world.config.gates.tas_failed_node_replacement
            && reservation.admitted
            && !topology.state.pinned
            && topology.uses_unhealthy_node()
    }

    /// For each size of pods by an extended resource: how many fit into one domain of each level of a flavor's topology; and how many lowest domains
    /// were visited. Empty for a flavor without a topology.
    pub fn largest_fits(&self, flavor: &str) -> (Vec<LargestFit>, usize) {
        let flavor = self.world.names.find_flavor(flavor);
        flavor
            .map(|flavor| self.world.topology.largest_fits(&self.books.nodes, flavor, &self.world.names))
            .unwrap_or_default()
    }

    /// Where the pods of a workload are that holds quota: for each pod set with nodes, its place in the workload.
    pub fn nodes(&self, key: &WorkloadKey) -> Vec<(usize, crate::SharedAssignment)> {
        let pod_sets = self.pod_sets_with_nodes(key);
        pod_sets.filter_map(|nodes| Some((nodes.pod_set, nodes.assignment.clone()?))).collect()
    }

    /// What each pod of these pod sets takes of its node, without `pods`, of which it takes one: cpu in milli-CPU, everything else in whole units.
    pub fn node_requests(&self, key: &WorkloadKey) -> Vec<(usize, Vec<(Name, Amount)>)> {
        let each = |nodes: &PodSetNodes| {
            let amounts = nodes.pods.per_pod.iter();
            let each =
                amounts.map(|&(id, amount)| (self.world.names.resource_name(id).clone(), Amount(amount)));
            (nodes.pod_set, each.collect())
        };
        self.pod_sets_with_nodes(key).filter(|nodes| nodes.assignment.is_some()).map(each).collect()
    }

    fn pod_sets_with_nodes(&self, key: &WorkloadKey) -> impl Iterator<Item = &PodSetNodes> {
        let reservation =
            self.world.workloads.find(key).and_then(|id| self.world.workloads.get(id).reservation());
        let topology = reservation.and_then(|reservation| reservation.topology.as_deref());
        topology.into_iter().flat_map(|topology| &topology.pod_sets)
    }
}
