//! A Pod of an elastic job, reduced: whose it is, and what keeps it from being scheduled.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::watchable;
use crate::labels::{ELASTIC_JOB_SCHEDULING_GATE, POD_SET, WORKLOAD_SLICE_NAME};

/// A Pod of an elastic job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPod {
    /// Name, namespace, UID, version, and when it is to be gone.
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
}

impl JobPod {
    /// Whether it waits for a slice with room for it.
    pub fn is_gated(&self) -> bool {
        self.gates.iter().any(|gate| gate == ELASTIC_JOB_SCHEDULING_GATE)
    }
}

impl From<core::Pod> for JobPod {
    fn from(full: core::Pod) -> Self {
        let metadata = full.metadata;
        let gates = full.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        let gates: Vec<_> = gates.into_iter().map(|gate| gate.name).collect();
        let phase = full.status.and_then(|status| status.phase).unwrap_or_default();
        let controller = metadata.owner_references.into_iter().flatten().find(|o| o.controller == Some(true));
        let names_slice = metadata.annotations.is_some_and(|all| all.contains_key(WORKLOAD_SLICE_NAME));
        Self {
            controller_uid: controller.map(|owner| owner.uid),
            pod_set: metadata.labels.and_then(|mut labels| labels.remove(POD_SET)),
            elastic: names_slice || gates.iter().any(|gate| gate == ELASTIC_JOB_SCHEDULING_GATE),
            gates,
            ended: phase == "Succeeded" || phase == "Failed",
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
        core::Pod::deserialize(deserializer).map(Self::from)
    }
}

watchable!(JobPod, "Pod", "", "v1", "pods", NamespaceResourceScope);
