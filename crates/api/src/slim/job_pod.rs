//! A reduced Pod of an elastic job, or one with a place in the topology: its owner, and its scheduling gates.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::{Parts, watchable};
use crate::labels::{
    ELASTIC_JOB_SCHEDULING_GATE, POD_INDEX_OFFSET, POD_SET, POD_SET_PREFERRED_TOPOLOGY,
    POD_SET_REQUIRED_TOPOLOGY, POD_SET_SLICE_REQUIRED_TOPOLOGY, POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
    POD_SET_UNCONSTRAINED_TOPOLOGY, TOPOLOGY_SCHEDULING_GATE, WORKLOAD, WORKLOAD_SLICE_NAME,
};

/// The condition of a pod that will be disrupted for reasons outside it.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The annotations of a Pod whose place in the topology is decided: its user's, or that of a start.
pub const TOPOLOGY_ANNOTATIONS: [&str; 5] = [
    POD_SET_REQUIRED_TOPOLOGY,
    POD_SET_PREFERRED_TOPOLOGY,
    POD_SET_UNCONSTRAINED_TOPOLOGY,
    POD_SET_SLICE_REQUIRED_TOPOLOGY,
    POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS,
];

/// A Pod of an elastic job, or one with a place in the topology.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPod {
    /// Name, namespace, UID, version, and the time of its deletion.
    pub metadata: ObjectMeta,
    /// The UID of its controller.
    pub controller_uid: Option<String>,
    /// The pod set that it says it is of.
    pub pod_set: Option<String>,
    /// Whether it is of an elastic job: it has that gate, or names the first slice of its job.
    pub elastic: bool,
    /// The names of its scheduling gates.
    pub gates: Vec<String>,
    /// Whether it ended (`Succeeded` or `Failed`).
    pub ended: bool,
    /// Whether it says that it is about to be disrupted (condition `DisruptionTarget`).
    pub disrupted: bool,
    /// The fields that determine its place in the topology, if it needs one.
    pub placement: Option<Box<PodPlacement>>,
}

/// The fields that determine the place of a Pod in the topology (docs/reference/06-algorithm.md 6.13).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPlacement {
    /// The Workload that it is of, by name; of an elastic job, the first slice.
    pub workload: String,
    /// Its labels with numbers as values: one or two of them determine its rank.
    pub numbers: BTreeMap<String, u32>,
    /// The number to subtract from its index, from its annotation. If that is not a number, more than any index.
    pub offset: u32,
    /// Its node selector.
    pub node_selector: BTreeMap<String, String>,
    /// `spec.nodeName`; empty while it is not bound.
    pub node: String,
    /// Whether its phase is `Pending`.
    pub pending: bool,
}

impl PodPlacement {
    /// Reads it from a Pod, if its place must be decided.
    fn of(metadata: &ObjectMeta, spec: Option<&core::PodSpec>, phase: &str) -> Option<Self> {
        let annotations = metadata.annotations.as_ref()?;
        let mut gates = spec.and_then(|spec| spec.scheduling_gates.as_ref()).into_iter().flatten();
        let waits = gates.any(|gate| gate.name == TOPOLOGY_SCHEDULING_GATE);
        if !waits && !TOPOLOGY_ANNOTATIONS.iter().any(|key| annotations.contains_key(*key)) {
            return None;
        }
        let workload = annotations.get(WORKLOAD_SLICE_NAME).or_else(|| annotations.get(WORKLOAD))?;
        let numbers = metadata.labels.iter().flatten();
        let numbers = numbers.filter_map(|(key, value)| Some((key.clone(), value.parse().ok()?)));
        Some(Self {
            workload: workload.clone(),
            numbers: numbers.collect(),
            offset: annotations.get(POD_INDEX_OFFSET).map_or(0, |text| text.parse().unwrap_or(u32::MAX)),
            node_selector: spec.and_then(|spec| spec.node_selector.clone()).unwrap_or_default(),
            node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            pending: phase == "Pending" || phase.is_empty(),
        })
    }
}

impl From<core::Pod> for JobPod {
    fn from(full: core::Pod) -> Self {
        let status = full.status.unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        let placement = PodPlacement::of(&full.metadata, full.spec.as_ref(), &phase);
        let metadata = full.metadata;
        let gates = full.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        let gates: Vec<_> = gates.into_iter().map(|gate| gate.name).collect();
        let controller = metadata.owner_references.into_iter().flatten().find(|o| o.controller == Some(true));
        let names_slice = metadata.annotations.is_some_and(|all| all.contains_key(WORKLOAD_SLICE_NAME));
        Self {
            controller_uid: controller.map(|owner| owner.uid),
            pod_set: metadata.labels.and_then(|mut labels| labels.remove(POD_SET)),
            elastic: names_slice || gates.iter().any(|gate| gate == ELASTIC_JOB_SCHEDULING_GATE),
            gates,
            ended: phase == "Succeeded" || phase == "Failed",
            disrupted: conditions.any(|one| one.type_ == DISRUPTION_TARGET && one.status == "True"),
            placement: placement.map(Box::new),
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                deletion_timestamp: metadata.deletion_timestamp,
                ..ObjectMeta::default()
            },
        }
    }
}

impl<'de> Deserialize<'de> for JobPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::deserialize(deserializer)?;
        Ok(core::Pod { metadata, spec, status }.into())
    }
}

watchable!(JobPod, "Pod", "", "v1", "pods", NamespaceResourceScope);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(pod: Value) -> JobPod {
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_pod_that_is_placed_says_where_and_which_it_is() {
        let pod = read(json!({
            "metadata": {"name": "p", "labels": {POD_SET: "main", "index": "3", "name": "a1", "big": "99999999999"},
                "annotations": {WORKLOAD: "w", POD_INDEX_OFFSET: "1"}},
            "spec": {"schedulingGates": [{"name": TOPOLOGY_SCHEDULING_GATE}], "nodeSelector": {"a": "b"}, "containers": []},
        }));
        let placement = pod.placement.unwrap();
        assert_eq!((placement.workload.as_str(), placement.offset, placement.pending), ("w", 1, true));
        assert_eq!(placement.numbers, BTreeMap::from([("index".to_owned(), 3)]));
        assert_eq!(placement.node_selector["a"], "b");
        assert!(!pod.elastic && pod.pod_set.as_deref() == Some("main"));
    }

    #[test]
    fn without_gate_a_topology_annotation_marks_such_a_pod_and_the_slice_goes_first() {
        let of = |annotations: Value| {
            let running = json!({"nodeName": "n", "containers": []});
            read(json!({"metadata": {"name": "p", "annotations": annotations}, "spec": running,
                "status": {"phase": "Running"}}))
        };
        assert_eq!(of(json!({WORKLOAD: "w"})).placement, None, "every started pod has it");
        assert_eq!(of(json!({POD_SET_UNCONSTRAINED_TOPOLOGY: "true"})).placement, None, "of no Workload");
        for key in TOPOLOGY_ANNOTATIONS {
            let placement =
                of(json!({WORKLOAD: "w2", WORKLOAD_SLICE_NAME: "w1", key: "x"})).placement.unwrap();
            assert_eq!((placement.workload.as_str(), placement.node.as_str()), ("w1", "n"));
            assert!(!placement.pending && placement.offset == 0);
        }
    }
}
