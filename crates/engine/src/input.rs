//! The engine's inputs: objects, answers of writes, the time.

use std::sync::Arc;

use sluice_api::job::{JobKind, JobView, Template, TemplateKind, TemplateRef};
use sluice_api::{slim, v1beta2};
use sluice_jobs::pods::Member;

use crate::effect::EffectId;

/// The kinds of objects that the engine sees or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// kueue.x-k8s.io
    ResourceFlavor,
    /// kueue.x-k8s.io
    ClusterQueue,
    /// kueue.x-k8s.io
    LocalQueue,
    /// kueue.x-k8s.io
    Cohort,
    /// kueue.x-k8s.io
    AdmissionCheck,
    /// kueue.x-k8s.io
    Topology,
    /// kueue.x-k8s.io
    Workload,
    /// kueue.x-k8s.io
    WorkloadPriorityClass,
    /// scheduling.k8s.io
    PriorityClass,
    /// core
    Namespace,
    /// core
    Node,
    /// core; watched only once they are needed: a ClusterQueue with `reclaimOutOfCohort` (gate `Hotswap`), a stopped job while a node is lost
    Pod,
    /// core; the pods of elastic jobs and those with a topology assignment, watched once there is such a job, or a flavor with a topology
    JobPod,
    /// core
    LimitRange,
    /// node.k8s.io
    RuntimeClass,
    /// kueue.x-k8s.io
    ProvisioningRequestConfig,
    /// autoscaling.x-k8s.io, in the version that is served
    ProvisioningRequest,
    /// core; written, never watched
    PodTemplate,
    /// An object that jobs of an integration name as the template of their pods.
    Template(TemplateKind),
    /// A job of one of the integrations.
    Job(JobKind),
}

impl Kind {
    /// The API group, empty for core.
    pub const fn group(self) -> &'static str {
        match self {
            Self::ResourceFlavor
            | Self::ClusterQueue
            | Self::LocalQueue
            | Self::Cohort
            | Self::AdmissionCheck
            | Self::Topology
            | Self::Workload
            | Self::WorkloadPriorityClass
            | Self::ProvisioningRequestConfig => "kueue.x-k8s.io",
            Self::ProvisioningRequest => slim::provisioning::GROUP,
            Self::PriorityClass => "scheduling.k8s.io",
            Self::Namespace
            | Self::Node
            | Self::Pod
            | Self::JobPod
            | Self::LimitRange
            | Self::PodTemplate => "",
            Self::RuntimeClass => "node.k8s.io",
            Self::Template(kind) => kind.group(),
            Self::Job(kind) => kind.group(),
        }
    }

    /// The version that the engine's objects are written in.
    pub const fn version(self) -> &'static str {
        match self {
            Self::ResourceFlavor
            | Self::ClusterQueue
            | Self::LocalQueue
            | Self::Cohort
            | Self::AdmissionCheck
            | Self::Topology
            | Self::Workload
            | Self::WorkloadPriorityClass
            | Self::ProvisioningRequestConfig => "v1beta2",
            Self::PriorityClass
            | Self::Namespace
            | Self::Node
            | Self::Pod
            | Self::JobPod
            | Self::LimitRange
            | Self::RuntimeClass
            | Self::ProvisioningRequest
            | Self::PodTemplate => "v1",
            Self::Template(kind) => kind.version(),
            Self::Job(kind) => kind.version(),
        }
    }

    /// `group/version`, as owner references have it.
    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }

    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ResourceFlavor => "ResourceFlavor",
            Self::ClusterQueue => "ClusterQueue",
            Self::LocalQueue => "LocalQueue",
            Self::Cohort => "Cohort",
            Self::AdmissionCheck => "AdmissionCheck",
            Self::Topology => "Topology",
            Self::Workload => "Workload",
            Self::WorkloadPriorityClass => "WorkloadPriorityClass",
            Self::PriorityClass => "PriorityClass",
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pod | Self::JobPod => "Pod",
            Self::LimitRange => "LimitRange",
            Self::RuntimeClass => "RuntimeClass",
            Self::ProvisioningRequestConfig => "ProvisioningRequestConfig",
            Self::ProvisioningRequest => "ProvisioningRequest",
            Self::PodTemplate => "PodTemplate",
            Self::Template(kind) => kind.kind(),
            Self::Job(kind) => kind.kind(),
        }
    }

    /// The plural in URLs.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ResourceFlavor => "resourceflavors",
            Self::ClusterQueue => "clusterqueues",
            Self::LocalQueue => "localqueues",
            Self::Cohort => "cohorts",
            Self::AdmissionCheck => "admissionchecks",
            Self::Topology => "topologies",
            Self::Workload => "workloads",
            Self::WorkloadPriorityClass => "workloadpriorityclasses",
            Self::PriorityClass => "priorityclasses",
            Self::Namespace => "namespaces",
            Self::Node => "nodes",
            Self::Pod | Self::JobPod => "pods",
            Self::LimitRange => "limitranges",
            Self::RuntimeClass => "runtimeclasses",
            Self::ProvisioningRequestConfig => "provisioningrequestconfigs",
            Self::ProvisioningRequest => "provisioningrequests",
            Self::PodTemplate => "podtemplates",
            Self::Template(kind) => kind.plural(),
            Self::Job(kind) => kind.plural(),
        }
    }

    /// Whether objects of the kind live in a namespace.
    pub const fn namespaced(self) -> bool {
        match self {
            Self::Template(kind) => kind.namespaced(),
            Self::LocalQueue
            | Self::Workload
            | Self::Pod
            | Self::JobPod
            | Self::LimitRange
            | Self::ProvisioningRequest
            | Self::PodTemplate
            | Self::Job(_) => true,
            _ => false,
        }
    }

    /// The path of its objects in a version: those of a namespace, or all.
    pub fn collection(self, version: &str, namespace: Option<&str>) -> String {
        let root = match self.group() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        match namespace.filter(|_| self.namespaced()) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural()),
            None => format!("{root}/{}", self.plural()),
        }
    }
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl ObjectRef {
    /// The reference to an object of a cluster-scoped kind.
    pub fn cluster(kind: Kind, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: Arc::default(), name: name.into() }
    }

    /// The reference to a template object.
    pub fn of_template(template: &TemplateRef) -> Self {
        let (namespace, name) = (Arc::clone(&template.namespace), Arc::clone(&template.name));
        Self { kind: Kind::Template(template.kind), namespace, name }
    }

    /// The template object, if the reference is to one.
    pub fn template(&self) -> Option<TemplateRef> {
        let Kind::Template(kind) = self.kind else { return None };
        Some(TemplateRef { kind, namespace: Arc::clone(&self.namespace), name: Arc::clone(&self.name) })
    }

    /// The reference to an object in a namespace.
    pub fn namespaced(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind.as_str(), self.name)
        } else {
            write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
        }
    }
}

/// An object as it is in the API server.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the kind that it names")]
pub enum Object {
    ResourceFlavor(Box<v1beta2::ResourceFlavor>),
    ClusterQueue(Box<v1beta2::ClusterQueue>),
    LocalQueue(Box<v1beta2::LocalQueue>),
    Cohort(Box<v1beta2::Cohort>),
    AdmissionCheck(Box<v1beta2::AdmissionCheck>),
    Topology(Box<v1beta2::Topology>),
    Workload(Box<slim::Workload>),
    WorkloadPriorityClass(Box<v1beta2::WorkloadPriorityClass>),
    PriorityClass(Box<slim::PriorityClass>),
    Namespace(Box<slim::Namespace>),
    Node(Box<slim::Node>),
    Pod(Box<slim::Pod>),
    JobPod(Box<slim::JobPod>),
    LimitRange(Box<slim::LimitRange>),
    RuntimeClass(Box<slim::RuntimeClass>),
    ProvisioningRequestConfig(Box<v1beta2::ProvisioningRequestConfig>),
    ProvisioningRequest(Box<slim::ProvisioningRequest>),
    Template(Box<Template>),
    Job(Box<JobView>),
    /// A pod that is queued, by itself or in a group.
    QueuedPod(Box<Member>),
}

impl Object {
    /// The object's name.
    pub fn object_ref(&self) -> ObjectRef {
        let (kind, metadata) = match self {
            Self::ResourceFlavor(o) => (Kind::ResourceFlavor, &o.metadata),
            Self::ClusterQueue(o) => (Kind::ClusterQueue, &o.metadata),
            Self::LocalQueue(o) => (Kind::LocalQueue, &o.metadata),
            Self::Cohort(o) => (Kind::Cohort, &o.metadata),
            Self::AdmissionCheck(o) => (Kind::AdmissionCheck, &o.metadata),
            Self::Topology(o) => (Kind::Topology, &o.metadata),
            Self::Workload(o) => (Kind::Workload, &o.metadata),
            Self::WorkloadPriorityClass(o) => (Kind::WorkloadPriorityClass, &o.metadata),
            Self::PriorityClass(o) => (Kind::PriorityClass, &o.metadata),
            Self::Namespace(o) => (Kind::Namespace, &o.metadata),
            Self::Node(o) => (Kind::Node, &o.metadata),
            Self::Pod(o) => (Kind::Pod, &o.metadata),
            Self::JobPod(o) => (Kind::JobPod, &o.metadata),
            Self::LimitRange(o) => (Kind::LimitRange, &o.metadata),
            Self::RuntimeClass(o) => (Kind::RuntimeClass, &o.metadata),
            Self::ProvisioningRequestConfig(o) => (Kind::ProvisioningRequestConfig, &o.metadata),
            Self::ProvisioningRequest(o) => (Kind::ProvisioningRequest, &o.metadata),
            Self::QueuedPod(member) => {
                let (namespace, name) = (Arc::clone(&member.namespace), Arc::clone(&member.name));
                return ObjectRef { kind: Kind::Job(JobKind::of_pods()), namespace, name };
            }
            Self::Template(template) => return ObjectRef::of_template(&template.object),
            Self::Job(view) => {
                return ObjectRef {
                    kind: Kind::Job(view.job.kind),
                    namespace: Arc::clone(&view.job.namespace),
                    name: Arc::clone(&view.job.name),
                };
            }
        };
        ObjectRef {
            kind,
            namespace: metadata.namespace.as_deref().map_or_else(Arc::default, Arc::from),
            name: metadata.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// The object's `metadata.resourceVersion`, if it has one.
    pub fn version(&self) -> Option<&str> {
        let metadata = match self {
            Self::Job(view) => return Some(&view.resource_version),
            Self::QueuedPod(member) => return Some(&member.resource_version),
            Self::Template(template) => return Some(&template.resource_version),
            Self::ResourceFlavor(object) => &object.metadata,
            Self::ClusterQueue(object) => &object.metadata,
            Self::LocalQueue(object) => &object.metadata,
            Self::Cohort(object) => &object.metadata,
            Self::AdmissionCheck(object) => &object.metadata,
            Self::Topology(object) => &object.metadata,
            Self::Workload(object) => &object.metadata,
            Self::WorkloadPriorityClass(object) => &object.metadata,
            Self::PriorityClass(object) => &object.metadata,
            Self::Namespace(object) => &object.metadata,
            Self::Node(object) => &object.metadata,
            Self::Pod(object) => &object.metadata,
            Self::JobPod(object) => &object.metadata,
            Self::LimitRange(object) => &object.metadata,
            Self::RuntimeClass(object) => &object.metadata,
            Self::ProvisioningRequestConfig(object) => &object.metadata,
            Self::ProvisioningRequest(object) => &object.metadata,
        };
        metadata.resource_version.as_deref()
    }
}

/// Why a write failed, as far as it matters for what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// 409 of an update: the object changed since it was read.
    #[error("the object changed meanwhile: {0}")]
    Conflict(String),
    /// 409 of a creation: an object of that name exists.
    #[error("the object exists already: {0}")]
    AlreadyExists(String),
    /// 404: the object (or, of a creation, its namespace) is gone.
    #[error("not found: {0}")]
    NotFound(String),
    /// 400, 403, 422: refused for good, by schema, webhook or access rules. Tried again seldom.
    #[error("refused: {0}")]
    Refused(String),
    /// The patch could not be made: what would be injected contradicts the job's own template.
    #[error("cannot be started: {0}")]
    Unstartable(String),
    /// Of a look for the pods of a stopped job: there are some. The job was touched, or they were deleted.
    #[error("the stopped job has {going_on} pods, and {leaving} that are being deleted")]
    PodsLeft {
        /// How many were not being deleted before.
        going_on: u32,
        /// How many were.
        leaving: u32,
    },
    /// Of a look for the pods of jobs that are gone: these Workloads have some.
    #[error("there are still pods of {}", .0.join(", "))]
    PodsRemain(Vec<Arc<str>>),
    /// Not sent: the engine withdrew it before.
    #[error("not sent: the write was withdrawn")]
    Withdrawn,
    /// Any other error, after the writer's own retries: retried with backoff.
    #[error("failed: {0}")]
    Transient(String),
    /// The same, and the server asks not to retry before this time.
    #[error("failed: {why}")]
    Later {
        /// The server's message.
        why: String,
        /// How long to wait.
        seconds: u64,
    },
}

impl WriteError {
    /// Whether it passes by itself, and it is not known what became of the write.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Transient(_) | Self::Later { .. })
    }

    /// Whether the API server refused for want of rights: 401, or 403 by its authorizer. Admission (webhooks, policies, quota of the namespace)
    /// answers 403, too.
    #[must_use]
    pub fn is_of_rights(&self) -> bool {
        let Self::Refused(why) = self else { return false };
        let by_authorizer = || {
            let said = why.split_once(" is forbidden: ").map(|(_, said)| said);
            said.is_some_and(|said| said.starts_with("User \"") && said.contains("\" cannot "))
                && !why.contains("admission webhook")
        };
        why.ends_with("(401 Unauthorized)") || why.ends_with("(403 Forbidden)") && by_authorizer()
    }
}

/// How many writes wait to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingWrites {
    /// However important they are.
    pub all: u32,
    /// Waiting writes that are sent before the write of a new decision: starts and stops of jobs, admissions and evictions.
    pub ahead: u32,
    /// Whether the API server has such as are more important than reports to carry out for much of the time.
    pub busy: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An object was seen, by a list or a watch.
    Applied(Object),
    /// An object is gone. With the UID that was seen last, if known, so that a late deletion never takes away a namesake.
    Deleted {
        /// Which object.
        object: ObjectRef,
        /// Its UID.
        uid: Option<Arc<str>>,
    },
    /// A list is complete: what is known of the kind and not in `present` is gone, unless it may be younger than the list.
    Listed {
        /// The kind.
        kind: Kind,
        /// Every object of the kind.
        present: Vec<ObjectRef>,
        /// The list is not older than this version: an object that we know in a newer version, from the answer to our own write, may have been
        /// created since. `None` if no object of the kind can exist.
        as_of: Option<u64>,
    },
    /// All kinds have been listed once. No decision is made before.
    Synced,
    /// Whether this replica leads. Only a leader decides. Between winning the lease and this input, Sluice's own kinds and jobs are listed again: the
    /// watches may not have shown yet what the former leader has just admitted, started or stopped, or which queues it used.
    Leader(bool),
    /// A write was answered: with the current object, or `None` if there is none (deletions).
    Written {
        /// The write.
        id: EffectId,
        /// The answer.
        result: Result<Option<Object>, WriteError>,
    },
    /// The object made the engine panic, or could not be read or written without a panic: it is left out from now on, until it changes.
    SetAside {
        /// Which object.
        object: ObjectRef,
        /// The version that is left out; empty if that could not be read: any version that can be read is another one. Without it, the next version
        /// that is seen is left out.
        version: Option<String>,
        /// The panic's message.
        why: String,
        /// For how many seconds after [`Input::Synced`] it is left out even if it changes.
        pause: u32,
    },
    /// The number of writes that wait to be sent.
    Backlog(WaitingWrites),
    /// Only the time has advanced (see `Engine::next_timer`).
    Tick,
}
