//! The lines of the journal: what was decided about Workloads, and why. One JSON object per line.
//!
//! A line is made from the API server's objects, so every replica makes the same lines; equal lines of two replicas are recognized by the Workload's
//! UID and the time. Quota over time can be computed from the lines alone: the line of a reservation has its start and its amount, the line of its
//! end has both times and the amount.

pub mod ledger;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::v1beta2::{CheckState, StopPolicy};

/// The longest message in a line, in bytes.
pub const MOST_MESSAGE: usize = 1024;
/// The longest line, in bytes; what is longer is not read.
pub const MOST_LINE: usize = 1 << 20;

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all_fields = "camelCase")]
pub enum Event {
    /// It waits, and why.
    Pending(Why),
    /// Quota is reserved from `at` on.
    QuotaReserved {
        /// How much of what.
        #[serde(flatten)]
        held: Usage,
    },
    /// A reservation stood already when the process that writes began.
    Holding {
        /// Since when quota is reserved.
        since: Timestamp,
        /// Since when all checks are passed, if they are: the line of that may have been lost with the process that saw it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        admitted: Option<Timestamp>,
        /// How much of what now.
        #[serde(flatten)]
        held: Usage,
    },
    /// The quota that a reservation takes became another at `at`: pods are over that will not come again, or the job changed its size.
    Resized {
        /// Since when quota is reserved.
        since: Timestamp,
        /// How much of what until now.
        before: BTreeMap<String, BTreeMap<String, String>>,
        /// How much of what from now on.
        #[serde(flatten)]
        held: Usage,
    },
    /// A check was decided: it is in another state than `Pending`.
    Checked {
        /// The AdmissionCheck.
        check: String,
        /// Its state.
        state: CheckState,
        /// What its controller says, cut to [`MOST_MESSAGE`] bytes.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        message: String,
    },
    /// All checks are passed: the job may start.
    Admitted,
    /// All of its pods are ready, or have succeeded.
    PodsReady,
    /// It has to stop, and why. Its quota is its own until `Released`.
    Evicted(Why),
    /// Its quota is free from `at` on.
    Released {
        /// Since when quota was reserved.
        since: Timestamp,
        /// How it ended.
        outcome: Outcome,
        /// The reason of that: of the eviction, or of the end.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
        /// How much of what it was at last.
        #[serde(flatten)]
        held: Usage,
    },
    /// It ended, and how.
    Finished(Why),
    /// The Workload was deleted.
    Deleted,
}

/// A reason and a message, as conditions have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// In CamelCase.
    pub reason: String,
    /// For people; cut to [`MOST_MESSAGE`] bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Why {
    /// Both, the message cut to what a line may have.
    pub fn new(reason: &str, message: &str) -> Self {
        Self { reason: reason.to_owned(), message: cut(message) }
    }
}

/// What a line may have of a message: at most [`MOST_MESSAGE`] bytes.
pub fn cut(message: &str) -> String {
    let mut end = message.len().min(MOST_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}

/// What a reservation takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// By flavor and resource, as Kubernetes quantities.
    pub usage: BTreeMap<String, BTreeMap<String, String>>,
}

/// How a reservation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// The job succeeded, or ended in another way that is no failure.
    Finished,
    /// The job failed.
    Failed,
    /// It was evicted: what it had done may be lost.
    Evicted,
    /// The Workload was deleted.
    Deleted,
}

/// A line about a Workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadLine {
    /// When.
    pub at: Timestamp,
    /// The namespace.
    pub namespace: String,
    /// The Workload.
    pub workload: String,
    /// Its UID.
    pub uid: String,
    /// The LocalQueue.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local_queue: String,
    /// The ClusterQueue: that of the reservation which the line is about, else that of the LocalQueue.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// The priority.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// A line about a ClusterQueue's own quota, from `at` on: what it uses above that is borrowed; and whether it is stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaLine {
    /// When.
    pub at: Timestamp,
    /// The ClusterQueue.
    pub cluster_queue: String,
    /// Its Cohort.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cohort: String,
    /// The nominal quota by flavor and resource, as Kubernetes quantities.
    pub nominal: BTreeMap<String, BTreeMap<String, String>>,
    /// What it was until `at`, if that is known; nothing of a ClusterQueue that is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<BTreeMap<String, BTreeMap<String, String>>>,
    /// When the ClusterQueue was created: it had no quota before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Its stop policy.
    #[serde(default, skip_serializing_if = "is_none")]
    pub stop_policy: StopPolicy,
    /// What that was until `at`, if `before` is known.
    #[serde(default, skip_serializing_if = "is_none")]
    pub stop_policy_before: StopPolicy,
    /// The ClusterQueue was deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_none(policy: &StopPolicy) -> bool {
    *policy == StopPolicy::None
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(is: &bool) -> bool {
    !is
}

impl QuotaLine {
    /// The quota at a time before this line, if nothing else is known of it. Of a ClusterQueue that stood already when the process
    /// that writes began, it is taken for what it was then.
    pub fn earlier(&self, at: Timestamp) -> Option<&BTreeMap<String, BTreeMap<String, String>>> {
        if self.created.is_some_and(|created| at < created) {
            return None;
        }
        Some(self.before.as_ref().unwrap_or(&self.nominal))
    }

    /// The stop policy at such a time.
    pub fn stopped_earlier(&self) -> StopPolicy {
        if self.before.is_some() { self.stop_policy_before } else { self.stop_policy }
    }
}

/// A line about a LocalQueue that is stopped from `at` on, or is not stopped any more. One that is never stopped has no lines: there may be thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueLine {
    /// When.
    pub at: Timestamp,
    /// The namespace.
    pub namespace: String,
    /// The LocalQueue.
    pub local_queue: String,
    /// Its ClusterQueue.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// Its stop policy. It is always written: no other line that names a LocalQueue has it.
    pub stop_policy: StopPolicy,
    /// What that was until `at`, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_policy_before: Option<StopPolicy>,
    /// When the LocalQueue was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// The LocalQueue was deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
}

impl LocalQueueLine {
    /// The stop policy at a time before this line, if nothing else is known of it. Of a LocalQueue that stood already when the process that writes
    /// began, it is taken for what it was then.
    pub fn stopped_earlier(&self, at: Timestamp) -> StopPolicy {
        if self.created.is_some_and(|created| at < created) {
            return StopPolicy::None;
        }
        self.stop_policy_before.unwrap_or(self.stop_policy)
    }
}

/// A line that says that some are missing here: they came faster than they could be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLine {
    /// When.
    pub at: Timestamp,
    /// How many.
    pub lost: u64,
}

/// A line that says how many Workloads had ended shortly before the process that writes began, beside those whose ends it wrote down once more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedLine {
    /// When it had seen all of them.
    pub at: Timestamp,
    /// How many.
    pub missed: u64,
}

/// One line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// About a Workload.
    Workload(Box<WorkloadLine>),
    /// About a ClusterQueue.
    Quota(QuotaLine),
    /// About a LocalQueue.
    LocalQueue(LocalQueueLine),
    /// About the journal itself.
    Lost(LostLine),
    /// About what ended while no process wrote.
    Missed(MissedLine),
}

impl Line {
    /// The ClusterQueue that it is about; if it is about a LocalQueue, the ClusterQueue of that.
    pub fn cluster_queue(&self) -> Option<&str> {
        match self {
            Self::Workload(line) => Some(&line.cluster_queue),
            Self::Quota(line) => Some(&line.cluster_queue),
            Self::LocalQueue(line) => Some(&line.cluster_queue),
            Self::Lost(_) | Self::Missed(_) => None,
        }
    }

    /// When it happened.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Workload(line) => line.at,
            Self::Quota(line) => line.at,
            Self::LocalQueue(line) => line.at,
            Self::Lost(line) => line.at,
            Self::Missed(line) => line.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Usage {
        let usage = BTreeMap::from([("cpu".to_owned(), "4".to_owned())]);
        Usage { usage: BTreeMap::from([("spot".to_owned(), usage)]) }
    }

    fn workload(event: Event) -> Line {
        Line::Workload(Box::new(WorkloadLine {
            at: Timestamp::UNIX_EPOCH,
            namespace: "ns".to_owned(),
            workload: "w".to_owned(),
            uid: "u".to_owned(),
            local_queue: "queue".to_owned(),
            cluster_queue: "team".to_owned(),
            priority: 0,
            event,
        }))
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let since = Timestamp::UNIX_EPOCH;
        let reason = "Preempted".to_owned();
        let lines = [
            workload(Event::Pending(Why::new("Pending", "no quota"))),
            workload(Event::QuotaReserved { held: held() }),
            workload(Event::Holding { since, admitted: None, held: held() }),
            workload(Event::Holding { since, admitted: Some(since), held: held() }),
            workload(Event::Resized { since, before: held().usage, held: held() }),
            workload(Event::Checked {
                check: "machines".to_owned(),
                state: CheckState::Ready,
                message: "here".to_owned(),
            }),
            workload(Event::Admitted),
            workload(Event::PodsReady),
            workload(Event::Evicted(Why::new("Preempted", ""))),
            workload(Event::Released { since, outcome: Outcome::Evicted, reason, held: held() }),
            workload(Event::Finished(Why::new("Succeeded", "done"))),
            workload(Event::Deleted),
            Line::Quota(QuotaLine {
                at: since,
                cluster_queue: "team".to_owned(),
                cohort: "all".to_owned(),
                nominal: held().usage,
                before: Some(BTreeMap::new()),
                created: Some(since),
                stop_policy: StopPolicy::HoldAndDrain,
                stop_policy_before: StopPolicy::Hold,
                deleted: true,
            }),
            Line::LocalQueue(LocalQueueLine {
                at: since,
                namespace: "ns".to_owned(),
                local_queue: "queue".to_owned(),
                cluster_queue: "team".to_owned(),
                stop_policy: StopPolicy::Hold,
                stop_policy_before: Some(StopPolicy::None),
                created: Some(since),
                deleted: true,
            }),
            Line::LocalQueue(LocalQueueLine::default()),
            Line::Lost(LostLine { at: since, lost: 3 }),
            Line::Missed(MissedLine { at: since, missed: 3 }),
        ];
        for line in lines {
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
    }

    #[test]
    fn a_line_is_flat_json() {
        let text = serde_json::to_string(&workload(Event::QuotaReserved { held: held() })).unwrap();
        let expected = r#"{"at":"1970-01-01T00:00:00Z","namespace":"ns","workload":"w","uid":"u","localQueue":"queue","clusterQueue":"team","what":"QuotaReserved","usage":{"spot":{"cpu":"4"}}}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn what_a_later_version_says_of_a_workload_is_no_line_about_its_local_queue() {
        let mut later = serde_json::to_value(workload(Event::Deleted)).unwrap();
        later["what"] = "Paused".into();
        assert!(serde_json::from_value::<Line>(later).is_err());
    }

    #[test]
    fn a_long_message_is_cut_between_letters() {
        let why = Why::new("Pending", &"ü".repeat(MOST_MESSAGE));
        assert_eq!(why.message.len(), MOST_MESSAGE);
        let why = Why::new("Pending", &format!("x{}", "ü".repeat(MOST_MESSAGE)));
        assert_eq!(why.message.len(), MOST_MESSAGE - 1);
    }
}
