//! What a record consists of. Times in milliseconds from the beginning.

use std::sync::Arc;

use serde::Serialize;
use sluice_engine::Kind;

/// An amount of one resource of one flavor: millicores for `cpu`, whole units otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    /// The flavor.
    pub flavor: Arc<str>,
    /// The resource.
    pub resource: Arc<str>,
    /// How much.
    pub amount: i64,
}

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldEnd {
    /// The hold has not ended.
    Open,
    /// The job finished.
    Finished,
    /// Another job got the quota.
    Preempted,
    /// The job was evicted for another reason, or deleted.
    Evicted,
}

/// A time during which a job held quota.
#[derive(Clone, Debug)]
pub struct Hold {
    /// From the reservation.
    pub from: i64,
    /// From the admission, if it came to that. Where a reservation was resized, each part has that of the whole: work is lost from there on.
    pub admitted: Option<i64>,
    /// From the eviction until the quota was given back, if it was evicted.
    pub evicted: Option<i64>,
    /// Until it was given back.
    pub to: Option<i64>,
    /// Why it ended.
    pub end: HoldEnd,
    /// The ClusterQueue.
    pub queue: Arc<str>,
    /// What the job held.
    pub holdings: Arc<[Holding]>,
}

/// A job, or a Workload without one.
#[derive(Clone, Debug)]
pub struct JobRecord {
    /// `Job`, `JobSet` or `Workload`.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its LocalQueue.
    pub local_queue: Arc<str>,
    /// Its ClusterQueue, if known.
    pub cluster_queue: Option<Arc<str>>,
    /// The priority of its Workload.
    pub priority: i32,
    /// When it was submitted.
    pub submitted: i64,
    /// When it was first admitted.
    pub admitted: Option<i64>,
    /// When it ended.
    pub finished: Option<i64>,
    /// Whether it ended well.
    pub success: bool,
    /// When it was deleted, if that was before it ended.
    pub deleted: Option<i64>,
    /// Whether it has a Workload.
    pub managed: bool,
    /// Its holds, in order.
    pub holds: Vec<Hold>,
    /// How often another job got its quota.
    pub preempted: u32,
    /// How often it got the quota of another job.
    pub preempts: u32,
    /// Run time that evictions made worthless.
    pub lost: i64,
    /// Whether it was deactivated: it does not wait, and does not start again until someone activates it.
    pub deactivated: bool,
    /// The last reason why it waited.
    pub waits_for: Option<(Arc<str>, Arc<str>)>,
}

impl JobRecord {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// What happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum TimelineEvent {
    /// The job was created.
    Submitted,
    /// The job waits, with the reason.
    Waiting {
        /// The reason of the condition.
        reason: Arc<str>,
        /// Its message.
        message: Arc<str>,
    },
    /// Quota is reserved for it, and it waits for its admission checks.
    Reserved {
        /// The ClusterQueue that did it.
        queue: Arc<str>,
        /// The assigned flavors, in readable form.
        flavors: Arc<str>,
    },
    /// The job was admitted.
    Admitted {
        /// The ClusterQueue that did it.
        queue: Arc<str>,
        /// The assigned flavors, in readable form.
        flavors: Arc<str>,
    },
    /// Another job gets its quota.
    Preempted {
        /// The preempting job, if known.
        by: Option<Arc<str>>,
        /// The reason of the condition Preempted.
        reason: Arc<str>,
        /// The message.
        message: Arc<str>,
    },
    /// The job was evicted for another reason.
    Evicted {
        /// The reason of the condition.
        reason: Arc<str>,
        /// Its message.
        message: Arc<str>,
    },
    /// Some pods were assigned other nodes, because theirs had failed.
    Moved {
        /// From where to where.
        message: Arc<str>,
    },
    /// The job ended.
    Finished {
        /// Whether well.
        success: bool,
    },
    /// The API server would not take it.
    Refused {
        /// Why.
        message: Arc<str>,
    },
    /// The job was deleted before it ended.
    Deleted,
    /// The scenario did something: not about a job.
    Scenario {
        /// What.
        message: Arc<str>,
    },
}

impl TimelineEvent {
    /// The event as one word.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Waiting { .. } => "waiting",
            Self::Reserved { .. } => "reserved",
            Self::Admitted { .. } => "admitted",
            Self::Preempted { .. } => "preempted",
            Self::Evicted { .. } => "evicted",
            Self::Moved { .. } => "moved",
            Self::Finished { success: true } => "finished",
            Self::Finished { success: false } => "failed",
            Self::Refused { .. } => "refused",
            Self::Deleted => "deleted",
            Self::Scenario { .. } => "scenario",
        }
    }

    /// The details of a timeline entry, after the word.
    pub fn details(&self) -> String {
        match self {
            Self::Submitted | Self::Finished { .. } | Self::Deleted => String::new(),
            Self::Waiting { reason, message } | Self::Evicted { reason, message } => {
                format!("{reason}: {message}")
            }
            Self::Reserved { queue, flavors } | Self::Admitted { queue, flavors } if flavors.is_empty() => {
                format!("by {queue}")
            }
            Self::Reserved { queue, flavors } | Self::Admitted { queue, flavors } => {
                format!("by {queue}: {flavors}")
            }
            Self::Preempted { by, reason, message } => {
                // The name says what the UIDs in the message would, and paths say where.
                let paths = message.split_once("; ").map(|(_, paths)| paths).unwrap_or_default();
                format!("by {}: {reason}; {paths}", by.as_deref().unwrap_or("a workload that is not known"))
            }
            Self::Moved { message } | Self::Refused { message } | Self::Scenario { message } => {
                message.to_string()
            }
        }
    }
}

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// When.
    pub at: i64,
    /// The job, as an index into [`Record::jobs`]; absent for events of the scenario.
    pub job: Option<usize>,
    /// What.
    pub what: TimelineEvent,
}

/// A LocalQueue stops or continues.
#[derive(Clone, Debug)]
pub struct LocalStop {
    /// When, in milliseconds from the beginning.
    pub at: i64,
    /// The LocalQueue, `namespace/name`.
    pub queue: Arc<str>,
    /// Its ClusterQueue.
    pub cluster_queue: Arc<str>,
    /// Whether its stop policy holds new work back.
    pub stopped: bool,
}

/// A change of nominal quota.
#[derive(Clone, Debug)]
pub struct QuotaChange {
    /// When.
    pub at: i64,
    /// The ClusterQueue, or the Cohort.
    pub node: Arc<str>,
    /// Whether it is a ClusterQueue.
    pub is_queue: bool,
    /// The Cohort above it.
    pub cohort: Option<Arc<str>>,
    /// All of its quota now.
    pub nominal: Vec<Holding>,
    /// Whether its stop policy holds new work back.
    pub stopped: bool,
    /// Whether it was deleted then: it has no quota, and is not stopped.
    pub deleted: bool,
}
