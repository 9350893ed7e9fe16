//! What a start injects into the pod templates, and what a stop restores (docs/reference/07-integrations.md 7.1;
//! docs/reference/04-labels-annotations.md 4.1).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PodSchedulingGate, Toleration};
use sluice_api::gates::Gate;
use sluice_api::job::{JobPodSet, JobView, PodScheduling, PodSetInfo};
use sluice_api::v1beta2::{PodSetAssignment, WorkloadStatus};
use sluice_api::{labels, slim};

use crate::engine::Engine;

/// Whether a text may be the value of a label.
pub(crate) fn is_label_value(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric())
        && text.chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric());
    text.is_empty() || (text.len() <= 63 && ends && text.chars().all(inner))
}

/// Adds missing tolerations.
fn merge_tolerations(into: &mut Vec<Toleration>, more: &[Toleration]) {
    for toleration in more {
        if !into.contains(toleration) {
            into.push(toleration.clone());
        }
    }
}

/// Applies the additions of a start to a template.
pub(super) fn add(into: &mut PodScheduling, more: &PodScheduling) {
    let pairs = |map: &BTreeMap<String, String>| map.clone().into_iter();
    into.labels.extend(pairs(&more.labels));
    into.annotations.extend(pairs(&more.annotations));
    into.node_selector.extend(pairs(&more.node_selector));
    merge_tolerations(&mut into.tolerations, &more.tolerations);
    for gate in &more.scheduling_gates {
        if !into.scheduling_gates.contains(gate) {
            into.scheduling_gates.push(gate.clone());
        }
    }
    if more.affinity.is_some() {
        into.affinity.clone_from(&more.affinity);
    }
}

impl Engine {
    /// The additions to each pod set at a start: flavors' node labels and tolerations, the checks' updates, labels, count, and affinity off
    /// unsuitable nodes.
    pub(crate) fn start_infos(
        &self,
        object: &slim::Workload,
        status: &WorkloadStatus,
        view: &JobView,
    ) -> Vec<PodSetInfo> {
        let admission = status.admission.as_ref();
        let assignments = admission.map(|a| &a.pod_set_assignments[..]).unwrap_or_default();
        let cluster_queue = admission.map(|a| a.cluster_queue.as_str()).unwrap_or_default();
        // By position: an admission that another client wrote may have other names for its pod sets.
        let assigned = assignments.iter().enumerate();
        let infos = assigned.map(|a| self.start_info(object, status, view, cluster_queue, a)).collect();
        by_position(infos, view)
    }

    /// Whether the pods of a pod set have places in the topology, or get them (docs/reference/06-algorithm.md 6.13).
    fn is_placed(&self, assignment: &PodSetAssignment) -> bool {
        let assigned =
            assignment.topology_assignment.is_some() || assignment.delayed_topology_request.is_some();
        assigned && self.config.on(Gate::TopologyAwareScheduling)
    }

    fn start_info(
        &self,
        object: &slim::Workload,
        status: &WorkloadStatus,
        view: &JobView,
        cluster_queue: &str,
        (at, assignment): (usize, &PodSetAssignment),
    ) -> PodSetInfo {
        let mut add = PodScheduling::default();
        let spec = object.spec.pod_sets.get(at);
        let name = spec.map_or(&assignment.name, |spec| &spec.name);
        let flavors: BTreeSet<&str> = assignment.flavors.values().map(String::as_str).collect();
        add.affinity = self.nodes_to_prefer(object, view, at, &flavors);
        for flavor in flavors.into_iter().filter_map(|f| self.world.flavors.get(f)) {
            add.node_selector.extend(flavor.spec.node_labels.clone());
            merge_tolerations(&mut add.tolerations, &flavor.spec.tolerations);
        }
        let updates = status.admission_checks.iter().flat_map(|c| &c.pod_set_updates);
        for update in updates.filter(|u| u.name == *name) {
            add.labels.extend(update.labels.clone());
            add.annotations.extend(update.annotations.clone());
            add.node_selector.extend(update.node_selector.clone());
            merge_tolerations(&mut add.tolerations, &update.tolerations);
        }
        let workload = object.metadata.name.clone().unwrap_or_default();
        let mut count = assignment.count.or(spec.map(|s| s.count)).unwrap_or(0);
        if self.is_elastic(view) {
            // The pod set may have shrunk since it was admitted.
            count = spec.map_or(count, |spec| count.min(spec.count));
            let first = object.metadata.annotations.as_ref();
            let first = first.and_then(|all| all.get(labels::WORKLOAD_SLICE_NAME)).unwrap_or(&workload);
            add.annotations.insert(labels::WORKLOAD_SLICE_NAME.to_owned(), first.clone());
            add.labels.insert(labels::POD_SET.to_owned(), name.clone());
            let gate = PodSchedulingGate { name: labels::ELASTIC_JOB_SCHEDULING_GATE.to_owned() };
            add.scheduling_gates.push(gate);
        }
        add.annotations.insert(labels::WORKLOAD.to_owned(), workload);
        if self.is_placed(assignment) {
            add.labels.insert(labels::POD_SET.to_owned(), name.clone());
            add.scheduling_gates
                .push(PodSchedulingGate { name: labels::TOPOLOGY_SCHEDULING_GATE.to_owned() });
            // This annotation identifies pods with a topology assignment once the gate is gone.
            if !view.pod_sets.get(at).is_some_and(asks_of_topology) {
                add.annotations.insert(labels::POD_SET_UNCONSTRAINED_TOPOLOGY.to_owned(), "true".to_owned());
            }
        }
        if self.config.on(Gate::AssignQueueLabelsForPods) {
            let mut label = |key: &str, value: &str| {
                if is_label_value(value) {
                    add.labels.insert(key.to_owned(), value.to_owned());
                }
            };
            label(labels::POD_SET, name);
            label(labels::LOCAL_QUEUE_NAME, &object.spec.queue_name);
            label(labels::CLUSTER_QUEUE_NAME, cluster_queue);
        }
        PodSetInfo { name: name.clone(), count, scheduling: add }
    }
}

/// Whether the template of a pod set asks for a place in the topology.
fn asks_of_topology(set: &JobPodSet) -> bool {
    slim::TOPOLOGY_ANNOTATIONS.iter().any(|key| set.scheduling.annotations.contains_key(*key))
}

/// The infos of a Workload's pod sets under the names that its job's pod sets have: they go by position.
pub(crate) fn by_position(mut infos: Vec<PodSetInfo>, view: &JobView) -> Vec<PodSetInfo> {
    for (info, set) in infos.iter_mut().zip(&view.pod_sets) {
        info.name.clone_from(&set.name);
    }
    infos
}

/// Leaves the number of pods as it is.
pub(crate) fn keep_counts(infos: &mut [PodSetInfo], view: &JobView) {
    for (info, set) in infos.iter_mut().zip(&view.pod_sets) {
        info.count = set.count;
    }
}

/// What each pod set gets back at a stop: exactly the Workload's template.
pub(crate) fn restore_infos(object: &slim::Workload) -> Vec<PodSetInfo> {
    let set = |set: &slim::PodSet| PodSetInfo {
        name: set.name.clone(),
        count: set.count,
        scheduling: PodScheduling {
            labels: set.template.labels.clone(),
            annotations: set.template.annotations.clone(),
            node_selector: set.template.node_selector.clone(),
            tolerations: set.template.tolerations.clone(),
            scheduling_gates: set.template.scheduling_gates.clone(),
            affinity: set.template.affinity.clone(),
        },
    };
    object.spec.pod_sets.iter().map(set).collect()
}

/// The labels of a job that its Workload gets: those configured, and the job's UID.
pub(crate) fn workload_labels(
    job: &BTreeMap<String, String>,
    uid: &str,
    keys: &[String],
) -> BTreeMap<String, String> {
    let mut copied: BTreeMap<_, _> =
        keys.iter().filter_map(|k| job.get(k).map(|v| (k.clone(), v.clone()))).collect();
    if is_label_value(uid) {
        copied.insert(labels::JOB_UID.to_owned(), uid.to_owned());
    }
    copied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_what_kubernetes_takes() {
        assert!(is_label_value("team-a") && is_label_value("") && is_label_value("a.b_c"));
        assert!(!is_label_value("-a") && !is_label_value("a/b") && !is_label_value(&"a".repeat(64)));
    }
}
