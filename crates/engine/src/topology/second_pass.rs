//! Nodes that are found after the reservation: for a Workload whose checks are ready, and in place of nodes that failed
//! (docs/reference/06-algorithm.md 6.14 and 6.15).

use sluice_api::conditions::{WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::v1beta2::DelayedTopologyRequestState;
use sluice_core::{Name, SharedAssignment, SliceMoves, SlicesMoved, WorkloadKey};

use super::moved_slices::SLICE_MOVED;
use crate::effect::{Effect, Level, Purpose};
use crate::engine::Engine;
use crate::hotswap::report::shown;
use crate::ingest::topology as ingested;
use crate::ingest::workload::is;
use crate::lifecycle::transition::{self, Eviction};
use crate::lifecycle::workload::can_be_placed;
use crate::outbox::{About, normal};
use crate::world::Decision;

impl Engine {
    /// The core found nodes.
    pub(crate) fn nodes_found(&mut self, key: &WorkloadKey, nodes: Vec<(Name, SharedAssignment)>) {
        self.decide(key, Decision::Place(nodes, Vec::new()));
    }

    /// The core found other nodes for whole slices that lost one.
    pub(crate) fn slices_moved(&mut self, key: &WorkloadKey, moved: SlicesMoved) {
        if self.slice_moves(key) != SliceMoves::Allowed {
            // Pods of it were lost since the core was told: it says why the slice stays.
            self.sync_core(key);
            self.dirty.workloads.insert(key.clone());
            return;
        }
        let Some(entry) = self.world.workloads.get(key) else { return };
        let SlicesMoved { nodes, lost, pods, to } = moved;
        let note = format!(
            "No node in the same domain replaces the unhealthy node(s) {} alone: the slice moves to {}, and with it {pods} pod(s) on \
             other nodes; all other pods stay",
            lost.join(","),
            shown(&to)
        );
        let more = vec![
            normal(About::admission(key, &entry.uid()), SLICE_MOVED, &note),
            self.log(Level::Info, "slice moves", &[("workload", key), ("note", &note)]),
        ];
        self.decide(key, Decision::Place(nodes, more));
    }

    /// The core found no others for the pods on these nodes, nor for their slice, where that may move: `slice` says why.
    pub(crate) fn nodes_not_replaced(&mut self, key: &WorkloadKey, nodes: &[Name], slice: Option<String>) {
        let names = nodes.join(",");
        let mut message =
            format!("Workload was evicted as there was no replacement for unhealthy node(s): {names}");
        if let Some(why) = slice {
            message.extend(["; the slice that lost it cannot move: ", &why]);
        }
        self.evict_for_nodes(key, message);
    }

    /// Says once that the nodes of a Workload cannot be read: it counts as if it had none.
    pub(crate) fn report_wrong_nodes(&mut self, key: &WorkloadKey, before: Option<&str>) {
        let wrong = self.world.workloads.get(key).and_then(|entry| entry.wrong_nodes.as_deref());
        if let Some(wrong) = wrong.filter(|wrong| before != Some(wrong) && self.places_pods()) {
            let message = "topology assignment cannot be read";
            let line = self.log(Level::Warn, message, &[("workload", key), ("error", &wrong)]);
            self.outbox.push(line);
        }
    }

    /// Evicts a Workload because of its nodes.
    pub(crate) fn evict_for_nodes(&mut self, key: &WorkloadKey, message: String) {
        let eviction =
            Eviction { reason: reason::NODE_FAILURES, cause: String::new(), message, preemption: None };
        self.decide(key, Decision::Evict(eviction, Vec::new()));
        self.hotswap_keeps_room(key);
        self.touch_workload(key);
    }

    /// Writes the nodes that the core found. Returns whether that is still to be done: the Workload may have changed meanwhile.
    pub(crate) fn write_nodes(
        &mut self,
        key: &WorkloadKey,
        nodes: &[(Name, SharedAssignment)],
        more: &[Effect],
    ) -> bool {
        let Some(entry) = self.world.workloads.get(key) else { return false };
        if !can_be_placed(&entry.object) || self.listed_node_is_back(key) {
            return false;
        }
        let mut next = entry.object.status.clone();
        let by_prefix = self.config.on(Gate::TASAssignmentsEncodingByHostnamePrefix);
        let sets = next.admission.iter_mut().flat_map(|admission| &mut admission.pod_set_assignments);
        let mut delayed = false;
        // By position: an admission that another client wrote may have other names for its pod sets.
        for (set, spec) in sets.zip(&entry.object.spec.pod_sets) {
            let Some((_, assignment)) = nodes.iter().find(|(name, _)| **name == *spec.name) else { continue };
            set.topology_assignment = ingested::written(assignment, by_prefix);
            if set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending) {
                set.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
                delayed = true;
            }
        }
        next.unhealthy_nodes.clear();
        let at = self.at(&entry.object);
        let waits = delayed && !is(&next, Type::Admitted);
        let admitted = waits && transition::admit_if_ready(&mut next, at) && is(&next, Type::Admitted);
        let mut then = more.to_vec();
        if admitted {
            then.extend(self.report_admitted(key, &next, None));
        }
        self.write_status(key, Purpose::Place, next, then);
        true
    }
}
