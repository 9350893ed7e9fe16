//! Findings about a job: what blocks it, what it waits for, what happened to it. Each has a code for programs.

use serde::Serialize;
use serde_json::Value;

use super::advice::Advice;
use super::patch::Patch;

/// How far a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// The job has no Workload.
    NotQueued,
    /// The Workload has no quota.
    Waiting,
    /// The Workload is deactivated, and has no quota.
    Deactivated,
    /// The Workload has quota, and is not admitted yet.
    Checking,
    /// The Workload is admitted.
    Admitted,
    /// The Workload is evicted, and its pods have not ended yet.
    Stopping,
    /// The Workload has finished.
    Finished,
}

impl State {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::NotQueued => "not queued",
            Self::Waiting => "waiting",
            Self::Deactivated => "deactivated",
            Self::Checking => "has quota, and is not admitted yet",
            Self::Admitted => "admitted",
            Self::Stopping => "evicted, and being stopped",
            Self::Finished => "finished",
        }
    }
}

/// The code of a finding. Each has an entry in `docs/troubleshooting/reasons.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Code {
    /// The job names no queue.
    QueueNameMissing,
    /// Jobs of its namespace are not managed.
    NamespaceNotManaged,
    /// Another job owns it, and is queued instead.
    PartOfAnother,
    /// Its priority class does not exist.
    PriorityClassMissing,
    /// Pods of its group are missing, from the beginning or since they were deleted or failed.
    PodGroupIncomplete,
    /// The job has no Workload yet, and nothing known prevents one.
    WithoutWorkload,
    /// Its LocalQueue does not exist.
    LocalQueueMissing,
    /// Its ClusterQueue does not exist.
    ClusterQueueMissing,
    /// Its LocalQueue is stopped.
    LocalQueueStopped,
    /// Its ClusterQueue is stopped.
    ClusterQueueStopped,
    /// Something that its ClusterQueue names is missing.
    ClusterQueueIncomplete,
    /// Its ClusterQueue does not take its namespace.
    NamespaceNotSelected,
    /// `spec.active` is false.
    Inactive,
    /// A program holds it back.
    Gated,
    /// Its job wants no pods now.
    OnHold,
    /// The Workload is requeued only after a backoff.
    BackingOff,
    /// Others come before it.
    BehindOthers,
    /// Others are stopped to make room for it.
    PreemptionPending,
    /// Nothing is admitted until the pods of the admitted jobs are ready.
    WaitingForPodsReady,
    /// Others hold quota that it needs.
    QuotaShort,
    /// A preemption that would make room is held back, since it would go round in a circle.
    PreemptionHeldBack,
    /// The healthy nodes of a flavor have no room for its pods.
    CapacityShort,
    /// The job requests more than its queue can ever give.
    TooLarge,
    /// Its ClusterQueue has no quota of a resource that its pods ask for.
    ResourceNotCovered,
    /// The job's pods and the flavors contradict each other.
    FlavorMismatch,
    /// The topology request of the pods contradicts the topologies of the flavors.
    TopologyMismatch,
    /// Nodes have no place as close together as it asks.
    TopologyShort,
    /// The job cannot be admitted without a change of its configuration.
    Misconfigured,
    /// The Workload is tried again soon; nothing has to change.
    TriedAgain,
    /// The manager refuses it, and what it goes by cannot be tried here.
    Refused,
    /// An admission check is not ready.
    CheckPending,
    /// An admission check asks for another attempt later.
    CheckRetry,
    /// An admission check rejects it.
    CheckRejected,
    /// Its nodes are chosen once the checks are ready.
    NodesNotChosen,
    /// The Workload was evicted before.
    EvictedBefore,
    /// Its nodes failed.
    NodesLost,
    /// Some of its pods are not scheduled.
    PodsPending,
    /// Some of its pods have a node and do not run.
    PodsNotRunning,
    /// Some of the job's pods do not exist.
    PodsMissing,
    /// Not all of the job's pods are ready.
    PodsNotReady,
    /// The job has ended.
    Ended,
    /// It, or its job, is being deleted.
    BeingDeleted,
    /// Its LocalQueue is being deleted.
    LocalQueueTerminating,
    /// Its ClusterQueue is being deleted.
    ClusterQueueTerminating,
    /// A Cohort above its ClusterQueue is being deleted.
    CohortTerminating,
    /// A flavor of its ClusterQueue is being deleted.
    FlavorTerminating,
    /// Its namespace is being deleted.
    NamespaceTerminating,
    /// Its pods could not be read, or not all of them.
    PodsUnread,
    /// The events about it could not be read.
    EventsUnread,
    /// The nodes could not be read, or not all of them.
    NodesUnread,
    /// Other objects that the answer rests on could not be read, or not all of them.
    ObjectsUnread,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 51] = [
        Self::QueueNameMissing,
        Self::NamespaceNotManaged,
        Self::PartOfAnother,
        Self::PriorityClassMissing,
        Self::PodGroupIncomplete,
        Self::WithoutWorkload,
        Self::LocalQueueMissing,
        Self::ClusterQueueMissing,
        Self::LocalQueueStopped,
        Self::ClusterQueueStopped,
        Self::ClusterQueueIncomplete,
        Self::NamespaceNotSelected,
        Self::Inactive,
        Self::Gated,
        Self::OnHold,
        Self::BackingOff,
        Self::BehindOthers,
        Self::PreemptionPending,
        Self::WaitingForPodsReady,
        Self::QuotaShort,
        Self::PreemptionHeldBack,
        Self::CapacityShort,
        Self::TooLarge,
        Self::ResourceNotCovered,
        Self::FlavorMismatch,
        Self::TopologyMismatch,
        Self::TopologyShort,
        Self::Misconfigured,
        Self::TriedAgain,
        Self::Refused,
        Self::CheckPending,
        Self::CheckRetry,
        Self::CheckRejected,
        Self::NodesNotChosen,
        Self::EvictedBefore,
        Self::NodesLost,
        Self::PodsPending,
        Self::PodsNotRunning,
        Self::PodsMissing,
        Self::PodsNotReady,
        Self::Ended,
        Self::BeingDeleted,
        Self::LocalQueueTerminating,
        Self::ClusterQueueTerminating,
        Self::CohortTerminating,
        Self::FlavorTerminating,
        Self::NamespaceTerminating,
        Self::PodsUnread,
        Self::EventsUnread,
        Self::NodesUnread,
        Self::ObjectsUnread,
    ];

    /// Whether it says what keeps the job from being admitted now.
    pub(super) fn says_why_it_waits(self) -> bool {
        self.waits_for_action()
            || matches!(
                self,
                Self::BackingOff
                    | Self::PreemptionPending
                    | Self::WaitingForPodsReady
                    | Self::QuotaShort
                    | Self::PreemptionHeldBack
                    | Self::CapacityShort
                    | Self::TooLarge
                    | Self::FlavorMismatch
                    | Self::TopologyMismatch
                    | Self::TopologyShort
                    | Self::TriedAgain
                    | Self::CheckRetry
                    | Self::CheckRejected
            )
    }

    /// Whether the job waits until a person or program acts: when that will be cannot be known.
    pub(super) fn waits_for_action(self) -> bool {
        matches!(
            self,
            Self::LocalQueueMissing
                | Self::ClusterQueueMissing
                | Self::LocalQueueStopped
                | Self::ClusterQueueStopped
                | Self::ClusterQueueIncomplete
                | Self::NamespaceNotSelected
                | Self::ResourceNotCovered
                | Self::Misconfigured
                | Self::PodGroupIncomplete
                | Self::Inactive
                | Self::Gated
                | Self::OnHold
                | Self::BeingDeleted
                | Self::LocalQueueTerminating
                | Self::ClusterQueueTerminating
                | Self::NamespaceTerminating
        )
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Its code.
    pub code: Code,
    /// In words.
    pub text: String,
    /// More of it, line by line; a bounded number.
    pub details: Vec<String>,
    /// What resolves it.
    #[serde(skip)]
    pub(super) helps: Vec<Help>,
}

impl Finding {
    /// Without more.
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), details: Vec::new(), helps: Vec::new() }
    }

    /// With something that ends it.
    pub(super) fn with(mut self, help: Help) -> Self {
        self.helps.push(help);
        self
    }

    /// With a detail.
    pub(super) fn detail(mut self, line: impl Into<String>) -> Self {
        self.details.push(line.into());
        self
    }
}

/// Something that ends a finding.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Help {
    /// Which advice it is.
    pub advice: Advice,
    /// In words: what to do.
    pub text: String,
    /// A command that does it.
    pub command: Option<String>,
    /// Patches that do it; none if it depends on a choice.
    pub patches: Vec<Patch>,
}

impl Help {
    /// In words only.
    pub fn words(advice: Advice, text: impl Into<String>) -> Self {
        Self { advice, text: text.into(), command: None, patches: Vec::new() }
    }

    /// With a command.
    pub fn command(advice: Advice, text: impl Into<String>, command: String) -> Self {
        Self { advice, text: text.into(), command: Some(command), patches: Vec::new() }
    }

    /// The same with a patch that does it.
    pub fn patch(mut self, patch: Patch) -> Self {
        self.patches.push(patch);
        self
    }
}

/// An admission check of a Workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Its name.
    pub name: String,
    /// `Pending`, `Retry`, `Rejected` or `Ready`.
    pub state: String,
    /// The message of its controller.
    pub message: String,
    /// How often it asked for a retry.
    pub retries: i64,
    /// How many seconds later it is tried again, if the controller says so.
    pub retry_after_seconds: Option<i64>,
    /// Its controller, if the check exists.
    pub controller: Option<String>,
    /// The provider's messages about the machines, for a ProvisioningRequest.
    pub provider: Vec<String>,
}

/// A pod that is not scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPod {
    /// Its name.
    pub name: String,
    /// The reason of its condition `PodScheduled`, for example `Unschedulable` or `SchedulingGated`.
    pub reason: String,
    /// The message of the scheduler.
    pub message: String,
}

/// A condition of an object's status, if it has it.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Whether a condition is true.
pub(super) fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| c["status"] == "True")
}
