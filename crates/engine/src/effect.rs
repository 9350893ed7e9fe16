//! What the engine wants done: writes, events, metric observations, log lines.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use sluice_api::job::{JobView, PodSetInfo};
use sluice_api::v1beta2;
use sluice_jobs::Patch;

use crate::input::ObjectRef;
use crate::json_text::JsonText;
use crate::provisioning::template::TemplateSource;

/// Identifies one write, so that its answer can be matched. Never reused by one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EffectId(pub u64);

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// A request to the API server. Its answer must come back as `Input::Written`, whatever happens.
    Write(WriteRequest),
    /// A write is of no use any more. If it has not been sent, it is dropped and answered with `WriteError::Withdrawn`; otherwise it is answered as
    /// usual.
    Withdraw(EffectId),
    /// An event to record.
    Event(Event),
    /// A counter or histogram to move.
    Observe(Observation),
    /// A ClusterQueue, LocalQueue or Cohort is gone, or its custom labels are others: its series go.
    SeriesGone(ObjectRef),
    /// One line for the log.
    Log(LogLine),
    /// One line for the journal, if one is configured. A replica that does not lead emits it, too.
    Journal(Box<sluice_api::journal::Line>),
    /// One step of an attempt to admit a Workload, if traces are configured. A replica that does not lead emits it, too.
    Attempt(Box<crate::attempt::AttemptStep>),
}

/// A request to the API server.
///
/// Requests on the same `object` must be sent in order, one after the other; the engine has at most one of them without an answer per object (status
/// and the rest of the object counted together).
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRequest {
    /// Names it.
    pub id: EffectId,
    /// The object that it changes; requests on it are ordered.
    pub object: ObjectRef,
    /// Why, for logs and traces.
    pub purpose: Purpose,
    /// What to send.
    pub write: Write,
}

/// Why a write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Create the Workload of a job.
    CreateWorkload,
    /// Update the Workload of a job that changed.
    UpdateWorkload,
    /// Remove the Workload of a job.
    DeleteWorkload,
    /// Reserve quota, and admit when no check is open.
    ReserveQuota,
    /// All checks are ready.
    Admit,
    /// Say why it waits.
    Pend,
    /// Report that it waits behind equivalent Workloads: no decision depends on this write.
    Bypassed,
    /// Ask a job to stop, keeping its quota.
    Evict,
    /// Give quota back.
    ReleaseQuota,
    /// Let it be queued again.
    Requeue,
    /// Keep the list of admission checks as the ClusterQueue has it.
    SyncChecks,
    /// It will be deactivated, or was.
    Deactivate,
    /// The job ended.
    Finish,
    /// The job's pods are ready, or no longer.
    PodsReady,
    /// The job's pods are ready, and until this is written nothing else is admitted (`blockAdmission`).
    Unblock,
    /// Pods ended that will not come again.
    Reclaim,
    /// Which of its nodes are lost.
    UnhealthyNodes,
    /// The nodes of pods that waited for nodes, or had failed nodes.
    Place,
    /// Start a job.
    StartJob,
    /// Stop a job and restore its templates.
    StopJob,
    /// Suspend a job that has nothing to restore.
    SuspendJob,
    /// Make the job's own controller confirm the stop.
    AskController,
    /// Delete the pods of a stopped or ended job that its own controller leaves running.
    EndPods,
    /// Delete a job whose retention is over.
    DeleteJob,
    /// Delete a job that another job's controller made for an earlier admission: the controller makes it again.
    DeleteChild,
    /// Bring the templates of a job that another job's controller made before the start up to date.
    UpdateChild,
    /// Delete a job that another job's controller made with other pods than were admitted: the controller makes it again.
    ReplacePart,
    /// The status of a queue.
    QueueStatus,
    /// Add the finalizer to an object, or remove it from one that is being deleted.
    Finalizer,
    /// Remove the finalizer of a finished Workload: no decision depends on this write.
    ReleaseFinished,
    /// Create the PodTemplate of a ProvisioningRequest.
    CreateTemplate,
    /// Ask for nodes.
    CreateRequest,
    /// Make a PodTemplate its ProvisioningRequest's own.
    MoveTemplate,
    /// Take back a request for nodes.
    DeleteRequest,
    /// Mark a pod failed: its node is lost, or it cannot get to the node that it is assigned to.
    FailPod,
    /// Remove a pod of a lost node by force.
    DeletePod,
    /// Delete a pod on a node that its slice has left: its controller makes it again on the slice's new node.
    MovePod,
    /// Let a pod be scheduled: there is quota for it, or its place in the topology is known.
    UngatePod,
    /// A slice of an elastic job has fewer pods, or asks for others.
    ResizeSlice,
    /// Release a pod that its job does not need any more.
    ReleasePod,
    /// Remove a pod that its group has too many of.
    RemovePod,
    /// Whether pods of a group are missing.
    Replacement,
    /// Read an object again. Keep it last: tests use it as the count.
    Read,
}

impl Purpose {
    /// Whether a write only says how a Workload fares: no decision on that Workload depends on it.
    pub(crate) const fn is_report(self) -> bool {
        matches!(self, Self::Pend | Self::Bypassed | Self::PodsReady | Self::Unblock)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A request's content.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// POST.
    CreateWorkload(Box<v1beta2::Workload>),
    /// PATCH of a Workload that holds no quota with `application/merge-patch+json`.
    UpdateWorkload(Box<WorkloadUpdate>),
    /// POST of an object without `apiVersion` and `kind`: the sender knows which version is served.
    Create(Box<serde_json::Value>),
    /// POST of the template of a pod set, which is read from its Workload first. An existing template of the same Workload is fine; one of another
    /// object is a conflict. The answer has no object.
    CreatePodTemplate(Box<TemplateSource>),
    /// PATCH with `application/merge-patch+json`; `metadata.resourceVersion` in it makes it strict.
    MergePatch {
        /// `status` or the object itself.
        subresource: Option<&'static str>,
        /// The patch.
        body: serde_json::Value,
    },
    /// PATCH with `application/apply-patch+yaml`, forced.
    Apply {
        /// `status` or the object itself.
        subresource: Option<&'static str>,
        /// The field manager.
        field_manager: &'static str,
        /// The whole applied object, with `metadata.resourceVersion` where it must not act on anything newer.
        body: JsonText,
    },
    /// DELETE with these preconditions.
    Delete {
        /// The object's UID.
        uid: Option<Arc<str>>,
        /// How many seconds it has to end; as it says itself if `None`.
        grace_period_seconds: Option<u32>,
        /// Whether it is deleted in the foreground, after its dependents; otherwise these are deleted later, in the background.
        foreground: bool,
    },
    /// The start patch of a job's adapter; may turn out impossible (`WriteError::Unstartable`).
    StartJob {
        /// The job as it was seen.
        view: Arc<JobView>,
        /// The info for each pod set.
        infos: Vec<PodSetInfo>,
    },
    /// The stop patches of a job's adapter, one or several steps; the answer is the job after the last step.
    StopJob {
        /// The job as it was seen.
        view: Arc<JobView>,
        /// What each pod set gets back; if empty, it is not known, and the job is only suspended.
        infos: Vec<PodSetInfo>,
    },
    /// The suspend patch of a job's adapter.
    SuspendJob {
        /// The job as it was seen.
        view: Arc<JobView>,
    },
    /// The patch of a job's adapter that has its own controller answer a stop.
    AskController {
        /// The job as it was seen.
        view: Arc<JobView>,
        /// When it is made.
        at: Timestamp,
    },
    /// Looks for the pods of a stopped or ended job that have not ended: those of these, and those that such a pod controls. The answer is
    /// `Ok(None)` without pods, and `WriteError::PodsLeft` with some. Or, for a namespace, for those of jobs that are gone: then the answer is
    /// `Ok(None)` if none of these has any, and else `WriteError::PodsRemain`.
    EndPods {
        /// Whose pods they are.
        of: PodsOf,
        /// What to do about those that are not being deleted.
        then: EndPods,
    },
    /// PATCH of the object itself, valid for the version that was seen.
    Patch(Patch),
    /// Requests on one queued pod, in order; the answer is that of the last.
    Pod(Vec<PodStep>),
    /// GET: the answer is the object in full.
    Read,
}

/// A merge patch that makes a Workload describe its job again. It becomes text when it is sent: there may be one for each group of an object's pods,
/// and these have their templates in common.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadUpdate {
    /// The version that was seen: the patch fails for another.
    pub metadata: SeenVersion,
    /// What changes.
    pub spec: UpdatedSpec,
}

/// The version of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenVersion {
    /// `metadata.uid`.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`.
    pub resource_version: Option<String>,
}

/// The fields of a Workload's spec that follow those of its job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdatedSpec {
    /// The pod sets.
    pub pod_sets: Vec<v1beta2::PodSet>,
    /// The longest that it may be admitted, in seconds; none if absent.
    pub maximum_execution_time_seconds: Option<i32>,
}

/// By what the pods of a job are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodsOf {
    /// The job's UID, and those of jobs that it controls: each pod has one of them as its controller.
    pub uids: Vec<Arc<str>>,
    /// A label, by key and value, that the job's controller gives to the pods of all that it makes, where that may be of kinds that are not watched.
    pub label: Option<(&'static str, Arc<str>)>,
    /// The names of those of these pods that make others: what one made may run after it has ended.
    pub makers: Vec<Arc<str>>,
}

/// What is done about pods of a stopped or ended job.
#[derive(Clone, Debug, PartialEq)]
pub enum EndPods {
    /// Nothing.
    Look,
    /// PATCH of the job with `application/merge-patch+json`: an event for its controller.
    Touch(serde_json::Value),
    /// DELETE of each, with the grace that it asks for.
    Delete,
    /// Nothing; only these pods are looked for.
    LookForLeft {
        /// Whose pods are looked for.
        left: Vec<LeftPods>,
        /// The nodes on which no pod ends any more: pods that are being deleted there do not count.
        lost: Vec<Arc<str>>,
    },
}

/// Pods that may use the quota of a job that is stopped, deleted or being deleted, or of such parts of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftPods {
    /// The name of its Workload.
    pub workload: Arc<str>,
    /// The UIDs of these objects, and of the jobs that they controlled. One of these, or a pod of theirs, controls each of the pods; a pod that
    /// lost its owner reference carries one of the UIDs as a label. The pods themselves may be among the UIDs.
    pub of: Vec<Arc<str>>,
    /// Whether pods that carry the name of the Workload are included: not while the job continues, as its pods carry it, too.
    pub by_name: bool,
    /// Their time is over: pods with a longer grace period are deleted once more, with this many seconds to end.
    pub ends_within: Option<u32>,
}

/// One request on a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum PodStep {
    /// A patch of the pod itself, valid for the version that was seen.
    Patch(Patch),
    /// PATCH of its status with `application/apply-patch+yaml`, forced.
    ApplyStatus {
        /// The field manager.
        field_manager: &'static str,
        /// The applied object.
        body: serde_json::Value,
    },
    /// DELETE in the background. What is gone needs none.
    Delete {
        /// The pod's UID.
        uid: Arc<str>,
    },
}

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// For information.
    Normal,
    /// A person may have to act.
    Warning,
}

impl EventType {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An event (events.k8s.io/v1). The note may be longer than an event takes: the sink cuts it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The object of the event.
    pub object: ObjectRef,
    /// The object's UID.
    pub uid: Arc<str>,
    /// Normal or Warning.
    pub type_: EventType,
    /// The reason (docs/reference/03-conditions-events.md 3.3 and 3.4).
    pub reason: String,
    /// The action, nearly always equal to the reason.
    pub action: String,
    /// The text.
    pub note: String,
    /// The reporting controller (docs/reference/03-conditions-events.md 3.6).
    pub reporter: &'static str,
    /// Of a Workload, if traces are made: the number of the attempt to admit it. Filled in when the effect is handed out.
    pub attempt: Option<u32>,
}

/// A change of a counter or histogram (docs/reference/05-metrics.md); `replica_role` is the manager's to add.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The metric's name.
    pub metric: &'static str,
    /// The values of its labels, in the order of the table of metrics.
    pub labels: Vec<Arc<str>>,
    /// The increment of a counter, or the observation of a histogram (seconds).
    pub value: f64,
    /// Values of custom labels on their way: they are the last of `labels` when the effect is handed out.
    pub(crate) custom: Vec<Arc<str>>,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// How loud.
    pub level: Level,
    /// What happened; the same text for the same kind of event.
    pub message: &'static str,
    /// The objects and numbers.
    pub fields: BTreeMap<&'static str, String>,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For debugging.
    Debug,
    /// A decision.
    Info,
    /// A problem outside of Sluice.
    Warn,
    /// A problem of Sluice itself.
    Error,
}

impl Level {
    /// Every level, the least important first.
    pub const ALL: [Self; 4] = [Self::Debug, Self::Info, Self::Warn, Self::Error];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}
