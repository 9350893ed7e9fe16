//! The object whose pods make one job together, and wait for admission in its place (docs/reference/07-integrations.md 7.4).

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::names::{MAX_SHORT_WORKLOAD_NAME, MAX_WORKLOAD_NAME, workload_name};
use sluice_api::{labels, slim};

/// The object that a pod belongs to: the pod's annotation names the framework, and its controller the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its kind.
    pub kind: JobKind,
    /// Its name.
    pub name: Arc<str>,
    /// Which group of the object's pods the pod is in, if each of them is a job.
    pub group: Option<u32>,
    /// Its UID, where the pod says it.
    pub uid: Option<Arc<str>>,
}

impl Parent {
    /// The object that the metadata of a pod names. If only the annotation names one, `None`.
    pub fn of(metadata: &Value) -> Option<Self> {
        let framework = metadata["annotations"][labels::POD_SUSPENDING_PARENT].as_str()?;
        let kind = JobKind::named(framework).filter(|kind| kind.gathers_pods())?;
        let owner =
            metadata["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)?;
        let owner_kind = JobKind::from_owner(owner["apiVersion"].as_str()?, owner["kind"].as_str()?)?;
        let name = owner["name"].as_str()?;
        if let Some(label) = kind.integration().group_label {
            let by_its_maker = Some(owner_kind.framework()) == kind.integration().group_owner;
            let set = metadata["labels"][label].as_str().filter(|_| by_its_maker)?;
            let group = Some(group(set, name, metadata["name"].as_str()?)?);
            return Some(Self { kind, name: Arc::from(set), group, uid: None });
        }
        let uid = Some(Arc::from(owner["uid"].as_str()?));
        (owner_kind == kind).then(|| Self { kind, name: Arc::from(name), group: None, uid })
    }

    /// The name of the Workload of its pods, or of those of the group. The object has this UID.
    pub fn workload_name(&self, uid: &str, short: bool) -> String {
        let longest = if short { MAX_SHORT_WORKLOAD_NAME } else { MAX_WORKLOAD_NAME };
        let name = match self.group {
            Some(group) => format!("{}-{group}", self.name),
            None => self.name.to_string(),
        };
        workload_name(self.kind.kind(), self.kind.group(), &name, uid, None, longest)
    }
}

/// The group of a pod of the set `set` that the StatefulSet `owner` controls. Leaders are the pods of the StatefulSet with the set's own name, and
/// the workers of each are the pods of the StatefulSet with the leader's name.
fn group(set: &str, owner: &str, pod: &str) -> Option<u32> {
    let leader = if owner == set { pod } else { owner };
    let number = leader.strip_prefix(set)?.strip_prefix('-')?;
    number.parse().ok().filter(|group: &u32| group.to_string() == number)
}

/// The requests of a pod, if its object's Workload describes it.
pub(super) fn size(pod: &Value) -> Option<Box<slim::PodTemplate>> {
    let spec = PodSpec::deserialize(&pod["spec"]).ok()?;
    let full = slim::PodTemplate::from(spec);
    let unnamed = |containers: Vec<slim::Container>| -> Vec<slim::Container> {
        containers.into_iter().map(|one| slim::Container { name: String::new(), ..one }).collect()
    };
    Some(Box::new(slim::PodTemplate {
        init_containers: unnamed(full.init_containers),
        containers: unnamed(full.containers),
        resources: full.resources,
        overhead: full.overhead,
        runtime_class_name: full.runtime_class_name,
        ..slim::PodTemplate::default()
    }))
}
