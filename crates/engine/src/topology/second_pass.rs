//! Nodes that are found after the reservation: for a Workload whose checks are ready, and in place of nodes that failed
//! (docs/reference/06-algorithm.md 6.14 and 6.15).

use std::collections::BTreeMap;

use sluice_api::conditions::{WorkloadCondition as Type, reason};
use sluice_api::gates::Gate;
use sluice_api::v1beta2::DelayedTopologyRequestState;
use sluice_core::{Name, SharedAssignment, SliceMoves, SlicesMoved, Victim, WorkloadKey};

use super::moved_slices::SLICE_MOVED;
use crate::effect::{Effect, Level, Purpose};
use crate::engine::Engine;
use crate::hotswap::brake::Brakes;
use crate::hotswap::matching::has_labels;
use crate::hotswap::report::shown;
use crate::hotswap::snapshot::uses;
use crate::hotswap::{brake, health};
use crate::ingest::workload::is;
use crate::ingest::{time, topology as ingested};
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

    /// The core found victims that borrow nodes for a slice. If most nodes look bad, or the slice does not move after all, none of them is evicted.
    pub(crate) fn slice_reclaims(&mut self, key: &WorkloadKey, victims: &[Victim], brakes: &mut Brakes) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        let lost = !entry.status().unhealthy_nodes.is_empty() && !self.listed_node_is_back(key);
        let is_held = lost && self.brake_holds(key, brakes);
        if lost && !is_held && self.slice_moves(key) == SliceMoves::Allowed {
            for victim in victims {
                if self.has_to_be_evicted(victim) {
                    self.preempt_for(key, &victim.key);
                }
            }
            return;
        }
        self.scheduler.reclaim_failed(key, time(self.now));
        for victim in victims {
            self.sync_core(&victim.key);
        }
        self.sync_core(key);
        self.dirty.workloads.insert(key.clone());
        if is_held {
            let most = self.config.hotswap.max_unhealthy_percent;
            let why = format!(
                "more than {most} % of the flavor's nodes look unhealthy, so nothing else is evicted for it"
            );
            self.slice_stays(key, why);
        }
    }

    /// The slice of a Workload does not move, for a reason that the core does not know.
    fn slice_stays(&mut self, key: &WorkloadKey, why: String) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        let lost: Vec<Name> =
            entry.status().unhealthy_nodes.iter().map(|node| Name::from(&*node.name)).collect();
        if self.config.on(Gate::TASFailedNodeReplacementFailFast) {
            self.nodes_not_replaced(key, &lost, Some(why));
        } else {
            self.report_second_pass_failed(key, format!("the slice cannot move: {why}"));
        }
    }

    /// Whether too many nodes of a flavor that a Workload uses look bad. For each flavor that is determined once in a cycle, however many slices ask.
    fn brake_holds(&mut self, key: &WorkloadKey, brakes: &mut Brakes) -> bool {
        let Some(entry) = self.world.workloads.get(key) else { return false };
        let known = brakes.len();
        let mut used = self.world.flavors.iter().filter(|(name, _)| uses(entry, name));
        let holds = used.any(|(name, flavor)| {
            let brake = || self.brake_of(name, &flavor.spec.node_labels);
            *brakes.entry(Name::clone(name)).or_insert_with(brake)
        });
        self.work.brakes += u64::try_from(brakes.len() - known).unwrap_or(u64::MAX);
        holds
    }

    /// Whether too many nodes of a flavor, which has these labels, look bad, those included that are gone from under assigned pods.
    fn brake_of(&self, flavor: &str, labels: &BTreeMap<String, String>) -> bool {
        let uses = |key: &WorkloadKey| self.world.workloads.get(key).is_some_and(|entry| uses(entry, flavor));
        let own = self.world.nodes.iter().filter(|(_, node)| has_labels(node, labels));
        let own = own.map(|(_, node)| health::of(node, self.now, &self.config.hotswap).looks_bad());
        let is_gone = |host: &str| self.topology.of_host(host).next().is_none();
        let gone = self.assigned.on.iter().filter(|(host, keys)| is_gone(host) && keys.iter().any(uses));
        let (mut bad, mut all) = (0, 0);
        for looks_bad in own.chain(gone.map(|_| true)) {
            all += 1;
            bad += usize::from(looks_bad);
        }
        brake::holds(bad, all, self.config.hotswap.max_unhealthy_percent)
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
