//! Attempts to admit a Workload, for traces: how far each attempt got, according to the API server.
//!
//! An attempt begins when the Workload is queued, for the first time or after an eviction. It ends when the pods are ready (when the job is started,
//! if `waitForPodsReady` is off), or when the Workload is evicted, finished or deleted before that. Its number follows from the evictions counted in
//! the status: every replica computes the same number, also after a restart, and nothing is stored for it.

use jiff::{SignedDuration, Timestamp};
use sluice_api::conditions::WorkloadCondition;
use sluice_api::v1beta2::CheckState;
use sluice_core::{Name, WorkloadKey};

/// The times of objects are whole seconds: what was seen within this time after one has the more exact time.
pub const FINER: SignedDuration = SignedDuration::from_secs(2);

/// One thing that was seen or decided about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptStep {
    /// When.
    pub at: Timestamp,
    /// The Workload.
    pub workload: WorkloadKey,
    /// Its UID.
    pub uid: Name,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// What.
    pub step: Step,
}

/// What was seen or decided.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A cycle decided to reserve quota.
    Decided {
        /// The number of the cycle since this process began.
        cycle: u64,
        /// How many heads of queues it had.
        heads: usize,
        /// The flavors that were considered, in words; empty where the first one fits plainly.
        considered: String,
    },
    /// The write that starts its job was answered.
    JobStarted,
    /// What its status says.
    Seen(Box<Progress>),
}

/// How far an attempt has come. Times are those of the objects, in whole seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The LocalQueue.
    pub local_queue: String,
    /// The ClusterQueue; empty if there is none.
    pub cluster_queue: String,
    /// The priority.
    pub priority: i32,
    /// Since when it is queued; for an attempt after the first only if the objects still show it.
    pub queued: Option<Timestamp>,
    /// Since when it holds quota.
    pub reserved: Option<Timestamp>,
    /// The flavors of that, sorted.
    pub flavors: Vec<String>,
    /// Its admission checks, sorted by name.
    pub checks: Vec<CheckSeen>,
    /// Since when it is admitted.
    pub admitted: Option<Timestamp>,
    /// Whether its pods being ready, and not the start of its job, is the end.
    pub waits_for_pods: bool,
    /// How it ended.
    pub end: Option<End>,
}

/// An admission check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckSeen {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: CheckState,
    /// Since when.
    pub since: Timestamp,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// How.
    pub how: Ending,
    /// The reason of the condition that says so.
    pub reason: String,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its pods are ready.
    Started,
    /// It was evicted before.
    Evicted,
    /// It was over before its pods were seen ready.
    Finished,
    /// The Workload was deleted before.
    Deleted,
}

impl Ending {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Evicted => WorkloadCondition::Evicted.as_str(),
            Self::Finished => WorkloadCondition::Finished.as_str(),
            Self::Deleted => "Deleted",
        }
    }
}
