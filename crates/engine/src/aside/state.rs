//! What is kept of an object that made the engine panic.

use std::sync::Arc;

use sluice_api::job::JobView;
use sluice_api::slim;

use crate::effect::EffectId;
use crate::input::Object;
use crate::retry::Retry;

/// What tells two versions of an object apart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Version {
    /// `metadata.resourceVersion`.
    Of(String),
    /// A Node without that: its heartbeats do not count as changes.
    Node(Box<slim::Node>),
}

impl Version {
    /// The version of an object; `None` if the object does not have one.
    pub fn of(object: &Object) -> Option<Self> {
        let metadata = match object {
            Object::Job(view) => return Some(Self::Of(view.resource_version.clone())),
            Object::QueuedPod(member) => return Some(Self::Of(member.resource_version.clone())),
            Object::Template(template) => return Some(Self::Of(template.resource_version.clone())),
            Object::Node(node) => {
                let mut node = node.clone();
                node.metadata.resource_version = None;
                return Some(Self::Node(node));
            }
            Object::ResourceFlavor(object) => &object.metadata,
            Object::ClusterQueue(object) => &object.metadata,
            Object::LocalQueue(object) => &object.metadata,
            Object::Cohort(object) => &object.metadata,
            Object::AdmissionCheck(object) => &object.metadata,
            Object::Topology(object) => &object.metadata,
            Object::Workload(object) => &object.metadata,
            Object::WorkloadPriorityClass(object) => &object.metadata,
            Object::PriorityClass(object) => &object.metadata,
            Object::Namespace(object) => &object.metadata,
            Object::Pod(object) => &object.metadata,
            Object::JobPod(object) => &object.metadata,
            Object::LimitRange(object) => &object.metadata,
            Object::RuntimeClass(object) => &object.metadata,
            Object::ProvisioningRequestConfig(object) => &object.metadata,
            Object::ProvisioningRequest(object) => &object.metadata,
        };
        metadata.resource_version.clone().map(Self::Of)
    }
}

/// An object that made the engine panic.
#[derive(Clone, Debug)]
pub(crate) struct Aside {
    /// The version that is left out, once it is known.
    pub version: Option<Version>,
    /// The panic's message.
    pub why: String,
    /// The job as it was seen, if it is one that could run without being admitted.
    pub job: Option<AsideJob>,
}

/// A job that is left out.
#[derive(Clone, Debug)]
pub(crate) struct AsideJob {
    /// As it was seen last.
    pub view: Arc<JobView>,
    /// The write that stops it.
    pub open: Option<EffectId>,
    /// How such writes fare.
    pub retry: Retry,
}
