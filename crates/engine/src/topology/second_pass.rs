//! Nodes that come after the reservation: for a Workload whose checks are ready, and in place of nodes that failed
//! (docs/reference/06-algorithm.md 6.14 and 6.15).

use sluice_api::conditions::{WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::v1beta2::DelayedTopologyRequestState;
use sluice_core::{Name, SharedAssignment, WorkloadKey};

use crate::effect::Purpose;
use crate::engine::Engine;
use crate::ingest::topology as ingested;
use crate::ingest::workload::{is, reserved};
use crate::lifecycle::transition::{self, Eviction};
use crate::world::Decision;

impl Engine {
    /// The core found nodes.
    pub(crate) fn nodes_found(&mut self, key: &WorkloadKey, nodes: Vec<(Name, SharedAssignment)>) {
        self.decide(key, Decision::Place(nodes));
    }

    /// The core found no others for the pods on these nodes.
    pub(crate) fn nodes_not_replaced(&mut self, key: &WorkloadKey, nodes: &[Name]) {
        let names = nodes.join(",");
        let message = format!("Workload was evicted as there was no replacement for unhealthy node(s): {names}");
        self.evict_for_nodes(key, message);
    }

    /// Evicts a Workload because of its nodes.
    pub(crate) fn evict_for_nodes(&mut self, key: &WorkloadKey, message: String) {
        let eviction =
            Eviction { reason: reason::NODE_FAILURES, cause: String::new(), message, preemption: None };
        self.decide(key, Decision::Evict(eviction, Vec::new()));
        self.touch_workload(key);
    }

    /// Writes the nodes that the core found. Says whether that is still to be done: the Workload may have changed meanwhile.
    pub(crate) fn write_nodes(&mut self, key: &WorkloadKey, nodes: &[(Name, SharedAssignment)]) -> bool {
        let Some(entry) = self.world.workloads.get(key) else { return false };
        let status = entry.status();
        let usable = reserved(status)
            && !is(status, Type::Evicted)
            && !is(status, Type::Finished)
            && entry.object.metadata.deletion_timestamp.is_none();
        if !usable {
            return false;
        }
        let mut next = status.clone();
        let by_prefix = self.config.on(Gate::TASAssignmentsEncodingByHostnamePrefix);
        let sets = next.admission.iter_mut().flat_map(|admission| &mut admission.pod_set_assignments);
        let mut delayed = false;
        for set in sets {
            let Some((_, assignment)) = nodes.iter().find(|(name, _)| **name == *set.name) else { continue };
            set.topology_assignment = ingested::written(assignment, by_prefix);
            if set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending) {
                set.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
                delayed = true;
            }
        }
        next.unhealthy_nodes.clear();
        let at = self.at(&entry.object);
        let admitted = delayed && transition::admit_if_ready(&mut next, at) && is(&next, Type::Admitted);
        let then = if admitted { self.report_admitted(key, &next) } else { Vec::new() };
        self.write_status(key, Purpose::Place, next, then);
        true
    }
}
