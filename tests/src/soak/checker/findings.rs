//! What a checker reports.

use super::returns::QuotaReturns;

/// What was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Quota is held twice for one job, or assigned again without an eviction.
    AdmittedTwice,
    /// An admission without a right: the Workload should have none now, or not from this queue or flavor.
    WithoutRight,
    /// The charged amount differs from the requests of the pods.
    Mischarged,
    /// A queue or a cohort is above its limits, or pods are assigned to a node that has no room for them.
    AboveQuota,
    /// More pods of a job run on a node than are assigned to it, or a place is none that they may have.
    Misplaced,
    /// A job runs that has no admitted Workload.
    RunsUnadmitted,
    /// Quota is given back while pods run on it.
    FreedTooEarly,
    /// A job did not end, or ended without the user's will.
    Lost,
    /// A pod continues although its job may not run, or beside the pods of a later admission; or a job continues that should stop.
    GoesOn,
    /// Something is left of what is gone.
    LeftBehind,
    /// The manager gave an object up.
    SetAside,
}

impl Rule {
    /// Every rule, with how a report names it.
    pub const ALL: [(Self, &str); 11] = [
        (Self::Lost, "lost"),
        (Self::AdmittedTwice, "admitted twice"),
        (Self::WithoutRight, "admitted without right"),
        (Self::Mischarged, "mischarged"),
        (Self::AboveQuota, "above quota"),
        (Self::Misplaced, "misplaced"),
        (Self::RunsUnadmitted, "running unadmitted"),
        (Self::FreedTooEarly, "freed too early"),
        (Self::GoesOn, "continuing"),
        (Self::LeftBehind, "left behind"),
        (Self::SetAside, "set aside"),
    ];
}

/// One moment at which a rule was violated.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// When.
    pub revision: u64,
    /// The object.
    pub key: String,
    /// The state at that moment.
    pub text: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rule, revision, key, text } = self;
        write!(f, "{rule:?} at revision {revision}, {key}: {text}")
    }
}

/// The totals of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Changes that were looked at.
    pub changes: usize,
    /// Jobs with a queue that were made.
    pub jobs: usize,
    /// Jobs that completed or failed.
    pub finished: usize,
    /// Jobs that the user deleted before their end.
    pub deleted: usize,
    /// Times that a job began to run.
    pub started: usize,
    /// Times that a Workload was admitted.
    pub admissions: usize,
    /// The number of evictions.
    pub evictions: usize,
    /// Evictions of Workloads some of whose pods had completed.
    pub evictions_of_partly_completed: usize,
    /// Pods that came to a node which they were assigned to.
    pub placed: usize,
    /// Times that pods of a lost node were given another place without an eviction.
    pub moved: usize,
    /// Times that quota was free before the pods were gone of a job that was started and stopped before its own controller had ever looked at
    /// it: nothing in its status says so.
    pub freed_unseen: usize,
    /// Times that a Job's own controller had made more pods than the Job has at a time: the answer to a request was lost with its API server.
    pub surplus: usize,
    /// Times that reservations exceeded a limit for a moment, and nothing ran on what was too much: a write of a former leader came late.
    pub late_reservations: usize,
    /// Times that quota was reserved for a Workload that was not to have any since a moment before.
    pub late_admissions: usize,
    /// Times that a user let a job run that was not admitted.
    pub by_hand: usize,
    /// Times that a replica began to lead after another, or again.
    pub leaders: usize,
    /// How long quota of deleted jobs took to be back.
    pub returns: QuotaReturns,
}
