//! The object whose pods make one job together, and wait for admission in its place (docs/reference/07-integrations.md 7.4).

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::names::{MAX_SHORT_WORKLOAD_NAME, MAX_WORKLOAD_NAME, workload_name};
use sluice_api::{labels, slim};

/// The object that a pod is one of: its annotation names the framework, and its controller the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its kind.
    pub kind: JobKind,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
}

impl Parent {
    /// The object that the metadata of a pod names. What only claims to have one has none.
    pub fn of(metadata: &Value) -> Option<Self> {
        let framework = metadata["annotations"][labels::POD_SUSPENDING_PARENT].as_str()?;
        let kind = JobKind::named(framework).filter(|kind| kind.gathers_pods())?;
        let owner =
            metadata["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)?;
        let is_of_kind =
            JobKind::from_owner(owner["apiVersion"].as_str()?, owner["kind"].as_str()?) == Some(kind);
        let (name, uid) = (owner["name"].as_str()?, owner["uid"].as_str()?);
        is_of_kind.then(|| Self { kind, name: Arc::from(name), uid: Arc::from(uid) })
    }

    /// The name of the Workload of its pods.
    pub fn workload_name(&self, short: bool) -> String {
        let longest = if short { MAX_SHORT_WORKLOAD_NAME } else { MAX_WORKLOAD_NAME };
        workload_name(self.kind.kind(), self.kind.group(), &self.name, &self.uid, None, longest)
    }
}

/// What a pod asks for, where its object's Workload speaks for it.
pub(super) fn size(pod: &Value) -> Option<Box<slim::PodTemplate>> {
    let spec = PodSpec::deserialize(&pod["spec"]).ok()?;
    let full = slim::PodTemplate::from(spec);
    Some(Box::new(slim::PodTemplate {
        init_containers: full.init_containers,
        containers: full.containers,
        resources: full.resources,
        overhead: full.overhead,
        runtime_class_name: full.runtime_class_name,
        ..slim::PodTemplate::default()
    }))
}
