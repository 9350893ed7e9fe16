//! A Pod, reduced: where it runs, what it asks for, and whose it is.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::pod::PodTemplate;
use super::watchable;

/// The label that names the JobSet of a pod (`jobset.sigs.k8s.io/jobset-name`).
const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Name, namespace, UID, version, and when it was made.
    pub metadata: ObjectMeta,
    /// The UID of its controller.
    pub controller_uid: Option<String>,
    /// The JobSet that it says it is part of.
    pub jobset: Option<String>,
    /// `spec.nodeName`; empty while it is not bound.
    pub node: String,
    /// Whether it ended (`Succeeded` or `Failed`).
    pub ended: bool,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// What its requests are worked out from.
    pub spec: PodTemplate,
}

impl From<core::Pod> for Pod {
    fn from(full: core::Pod) -> Self {
        let metadata = full.metadata;
        let mut spec = full.spec.unwrap_or_default();
        let phase = full.status.and_then(|s| s.phase).unwrap_or_default();
        let controller = metadata.owner_references.into_iter().flatten().find(|o| o.controller == Some(true));
        Self {
            controller_uid: controller.map(|o| o.uid),
            jobset: metadata.labels.and_then(|mut labels| labels.remove(JOBSET_NAME)),
            node: spec.node_name.take().unwrap_or_default(),
            leaving: metadata.deletion_timestamp.is_some(),
            ended: phase == "Succeeded" || phase == "Failed",
            spec: PodTemplate::from(spec),
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                creation_timestamp: metadata.creation_timestamp,
                ..ObjectMeta::default()
            },
        }
    }
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        core::Pod::deserialize(deserializer).map(Self::from)
    }
}

watchable!(Pod, "Pod", "", "v1", "pods", NamespaceResourceScope);
