//! A reduced Pod: its node, its requests, and its owner.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::pod::PodTemplate;
use super::{Parts, watchable};
use crate::labels::{JOBSET_NAME, SAFE_TO_FORCEFULLY_DELETE};

/// The type of the condition of a pod that was removed by force (docs/reference/03-conditions-events.md).
pub const FAILURE_RECOVERY: &str = "KueueFailureRecovery";

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Name, namespace, UID, version, creation time, and the time and grace period of its deletion.
    pub metadata: ObjectMeta,
    /// The UID of its controller.
    pub controller_uid: Option<String>,
    /// The JobSet that it says it is part of.
    pub jobset: Option<String>,
    /// `spec.nodeName`; empty while it is not bound.
    pub node: String,
    /// Whether it ended (`Succeeded` or `Failed`).
    pub ended: bool,
    /// Whether it may be removed by force when its node is lost (`kueue.x-k8s.io/safe-to-forcefully-delete`).
    pub safe_to_delete: bool,
    /// Whether its status says that it was (the condition `KueueFailureRecovery`).
    pub force_deleted: bool,
    /// The spec from which its requests are computed.
    pub spec: PodTemplate,
}

impl From<core::Pod> for Pod {
    fn from(full: core::Pod) -> Self {
        let metadata = full.metadata;
        let mut spec = full.spec.unwrap_or_default();
        let status = full.status.unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let forced = |c: &core::PodCondition| c.type_ == FAILURE_RECOVERY && c.status == "True";
        let says = |annotations: &BTreeMap<String, String>| {
            annotations.get(SAFE_TO_FORCEFULLY_DELETE).is_some_and(|value| value == "true")
        };
        let controller = metadata.owner_references.into_iter().flatten().find(|o| o.controller == Some(true));
        Self {
            controller_uid: controller.map(|o| o.uid),
            jobset: metadata.labels.and_then(|mut labels| labels.remove(JOBSET_NAME)),
            node: spec.node_name.take().unwrap_or_default(),
            safe_to_delete: metadata.annotations.as_ref().is_some_and(says),
            force_deleted: status.conditions.iter().flatten().any(forced),
            ended: phase == "Succeeded" || phase == "Failed",
            spec: PodTemplate::from(spec),
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                creation_timestamp: metadata.creation_timestamp,
                deletion_timestamp: metadata.deletion_timestamp,
                deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
                ..ObjectMeta::default()
            },
        }
    }
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::deserialize(deserializer)?;
        Ok(core::Pod { metadata, spec, status }.into())
    }
}

watchable!(Pod, "Pod", "", "v1", "pods", NamespaceResourceScope);
