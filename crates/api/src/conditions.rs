//! Conditions: the types and reasons of docs/reference/03-conditions-events.md, and the only way to change them.
//!
//! A condition's `lastTransitionTime` follows flips of its status only, `observedGeneration` is the generation of the
//! spec, and a message is never longer than the API server accepts.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The longest message of a condition, in bytes (docs/reference/03-conditions-events.md: 32 KiB).
pub const MAX_MESSAGE_BYTES: usize = 32 * 1024;

/// Declares an enum of names that appear on the wire.
macro_rules! wire_names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $variant),* }

        impl $name {
            /// Every name.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),* }
            }

            /// The value that a name on the wire stands for.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $(stringify!($variant) => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

wire_names! {
    /// The condition types of a Workload (docs/reference/03-conditions-events.md 3.1).
    WorkloadCondition {
        /// A ClusterQueue holds quota for the workload.
        QuotaReserved,
        /// Quota is reserved and every admission check is ready: the job runs.
        Admitted,
        /// The job must stop; its quota stays reserved until it has stopped.
        Evicted,
        /// The eviction was a preemption, with its kind as the reason.
        Preempted,
        /// Whether the workload may be queued again after an eviction.
        Requeued,
        /// The workload is about to be deactivated, and why.
        DeactivationTarget,
        /// The job ended.
        Finished,
        /// All pods are ready or succeeded.
        PodsReady,
        /// Preemption is needed, and a gate forbids it.
        BlockedOnPreemptionGates,
        /// Failed pods of a group wait for replacements.
        WaitingForReplacementPods,
    }
}

impl WorkloadCondition {
    /// The types that the field manager `kueue-admission` owns: each of its applies carries all of them
    /// (docs/reference/06-algorithm.md 6.19).
    pub const ADMISSION_MANAGED: [Self; 9] = [
        Self::QuotaReserved,
        Self::Admitted,
        Self::Evicted,
        Self::Preempted,
        Self::Requeued,
        Self::DeactivationTarget,
        Self::Finished,
        Self::BlockedOnPreemptionGates,
        Self::WaitingForReplacementPods,
    ];
}

/// The reasons of conditions (docs/reference/03-conditions-events.md 3.1 and 3.2).
pub mod reason {
    /// `QuotaReserved`, `Evicted` and `Preempted`: quota is reserved.
    pub const QUOTA_RESERVED: &str = "QuotaReserved";
    /// `QuotaReserved=False`: the scheduler has not looked yet.
    pub const PENDING_EVALUATION: &str = "PendingEvaluation";
    /// `QuotaReserved=False`, before the granular reasons.
    pub const PENDING: &str = "Pending";
    /// `QuotaReserved=False`, before the granular reasons: cannot be admitted as things are.
    pub const INADMISSIBLE: &str = "Inadmissible";
    /// `QuotaReserved=False`, before the granular reasons: waits for others' pods.
    pub const WAITING: &str = "Waiting";
    /// `QuotaReserved=False`: no flavor of the ClusterQueue suits the pods.
    pub const NO_MATCHING_FLAVOR: &str = "NoMatchingFlavor";
    /// `QuotaReserved=False`: a queue, namespace or request is wrong.
    pub const MISCONFIGURED: &str = "Misconfigured";
    /// `QuotaReserved=False`: a queue is stopped or inactive.
    pub const SUSPENDED: &str = "Suspended";
    /// `QuotaReserved=False`: an annotation holds the admission back.
    pub const ADMISSION_GATED: &str = "AdmissionGated";
    /// `QuotaReserved=False`: the job itself is on hold.
    pub const ON_HOLD: &str = "OnHold";
    /// `QuotaReserved=False`: waits until all admitted workloads are ready.
    pub const WAITING_FOR_PODS_READY: &str = "WaitingForPodsReady";
    /// `QuotaReserved=False` and `Evicted`: `spec.active` is false.
    pub const DEACTIVATED: &str = "Deactivated";
    /// `Admitted=True`.
    pub const ADMITTED: &str = "Admitted";
    /// `Admitted=False`: there is no reservation.
    pub const NO_RESERVATION: &str = "NoReservation";
    /// `Admitted=False`: checks are not ready.
    pub const UNSATISFIED_ADMISSION_CHECKS: &str = "UnsatisfiedAdmissionChecks";
    /// `Admitted=False`: checks are not ready (before the granular reasons).
    pub const UNSATISFIED_CHECKS: &str = "UnsatisfiedChecks";
    /// `Admitted=False`: neither reservation nor ready checks (before the granular reasons).
    pub const NO_RESERVATION_UNSATISFIED_CHECKS: &str = "NoReservationUnsatisfiedChecks";
    /// `Evicted` and `Requeued`: preempted.
    pub const PREEMPTED: &str = "Preempted";
    /// `Evicted`: the pods were not ready in time.
    pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
    /// `Evicted` and `DeactivationTarget`: an admission check says Retry or Rejected.
    pub const ADMISSION_CHECK: &str = "AdmissionCheck";
    /// `Evicted`: the ClusterQueue is drained.
    pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
    /// `Evicted`: the LocalQueue is drained.
    pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
    /// `Evicted` and `Requeued`: nodes failed.
    pub const NODE_FAILURES: &str = "NodeFailures";
    /// Nodes are chosen once the checks are ready, and are not yet.
    pub const PENDING_DELAYED_TOPOLOGY_REQUESTS: &str = "PendingDelayedTopologyRequests";
    /// `Requeued=True`: the backoff has ended.
    pub const BACKOFF_FINISHED: &str = "BackoffFinished";
    /// `Requeued=True`: `spec.active` is true again.
    pub const REACTIVATED: &str = "Reactivated";
    /// `Requeued=True`: the ClusterQueue works again.
    pub const CLUSTER_QUEUE_RESTARTED: &str = "ClusterQueueRestarted";
    /// `Requeued=True`: the LocalQueue works again.
    pub const LOCAL_QUEUE_RESTARTED: &str = "LocalQueueRestarted";
    /// `DeactivationTarget`: it ran for too long.
    pub const MAXIMUM_EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";
    /// `DeactivationTarget`: it was put back too often.
    pub const REQUEUING_LIMIT_EXCEEDED: &str = "RequeuingLimitExceeded";
    /// `Finished`: the job succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
    /// `Finished`: the job failed.
    pub const FAILED: &str = "Failed";
    /// `Finished`: a prebuilt workload does not describe its job. `Evicted`: its job runs with more than it holds quota for.
    pub const OUT_OF_SYNC: &str = "OutOfSync";
    /// `Finished`: another slice of the elastic job took over from it.
    pub const WORKLOAD_SLICE_REPLACED: &str = "WorkloadSliceReplaced";
    /// `Finished`: the owner is gone.
    pub const OWNER_NOT_FOUND: &str = "OwnerNotFound";
    /// `Finished`: the job could not be started.
    pub const FAILED_TO_START: &str = "FailedToStart";
    /// `PodsReady=False`: not all pods have been ready yet.
    pub const WAIT_FOR_START: &str = "WaitForStart";
    /// `PodsReady=False`: pods failed after all had been ready.
    pub const WAIT_FOR_RECOVERY: &str = "WaitForRecovery";
    /// `PodsReady=True`: for the first time.
    pub const STARTED: &str = "Started";
    /// `PodsReady=True`: again.
    pub const RECOVERED: &str = "Recovered";
    /// `PodsReady=True` as older versions wrote it.
    pub const PODS_READY: &str = "PodsReady";
    /// `BlockedOnPreemptionGates=True`.
    pub const PREEMPTION_GATED: &str = "PreemptionGated";
    /// `Active=True` of a queue.
    pub const READY: &str = "Ready";
    /// `Active=False` of a queue.
    pub const STOPPED: &str = "Stopped";
    /// `Active=False` of a terminating ClusterQueue.
    pub const TERMINATING: &str = "Terminating";
    /// `Active=False` of a LocalQueue.
    pub const CLUSTER_QUEUE_DOES_NOT_EXIST: &str = "ClusterQueueDoesNotExist";
    /// `Active=False` of a LocalQueue.
    pub const CLUSTER_QUEUE_IS_INACTIVE: &str = "ClusterQueueIsInactive";
}

/// The condition type of ClusterQueues, LocalQueues and AdmissionChecks (docs/reference/03-conditions-events.md 3.2).
pub const ACTIVE: &str = "Active";

/// The condition of a type, if it exists.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether a condition exists with status `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "True")
}

/// Whether a condition exists with status `False`.
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == "False")
}

/// When a condition became true, if it is true now.
pub fn true_since(conditions: &[Condition], type_: &str) -> Option<Timestamp> {
    find(conditions, type_).filter(|c| c.status == "True").map(|c| c.last_transition_time.0)
}

/// The wanted state of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// `True` or `False`.
    pub status: bool,
    /// One of [`reason`].
    pub reason: &'a str,
    /// The text for people; cut to [`MAX_MESSAGE_BYTES`].
    pub message: &'a str,
}

/// Sets one condition, and returns whether anything except `observedGeneration` changed.
///
/// `lastTransitionTime` becomes `now` (whole seconds, as the API has it) only when the status flips.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    wanted: Wanted<'_>,
    generation: i64,
    now: Timestamp,
) -> bool {
    let status = if wanted.status { "True" } else { "False" };
    let message = truncate(wanted.message, MAX_MESSAGE_BYTES);
    if let Some(condition) = conditions.iter_mut().find(|c| c.type_ == type_) {
        let flipped = condition.status != status;
        let changed = flipped || condition.reason != wanted.reason || condition.message != message;
        if flipped {
            status.clone_into(&mut condition.status);
            condition.last_transition_time = Time(whole_seconds(now));
        }
        if changed {
            wanted.reason.clone_into(&mut condition.reason);
            message.clone_into(&mut condition.message);
        }
        condition.observed_generation = Some(generation);
        return changed;
    }
    conditions.push(Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: wanted.reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(whole_seconds(now)),
        observed_generation: Some(generation),
    });
    true
}

/// The instant without its fraction of a second: what `metav1.Time` keeps of it on the wire.
pub fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// The longest prefix of `text` of at most `limit` bytes that ends between characters.
pub fn truncate(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::new(second, 500).unwrap()
    }

    fn wanted<'a>(status: bool, reason: &'a str, message: &'a str) -> Wanted<'a> {
        Wanted { status, reason, message }
    }

    #[test]
    fn a_new_condition_is_added_in_whole_seconds() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, "Admitted", wanted(true, "Admitted", "m"), 3, at(10)));
        assert_eq!(conditions[0].last_transition_time.0, Timestamp::from_second(10).unwrap());
        assert_eq!(conditions[0].observed_generation, Some(3));
        assert!(is_true(&conditions, "Admitted") && !is_false(&conditions, "Admitted"));
    }

    #[test]
    fn the_transition_time_follows_flips_only() {
        let mut conditions = Vec::new();
        set(&mut conditions, "QuotaReserved", wanted(false, "A", "a"), 1, at(10));
        assert!(set(&mut conditions, "QuotaReserved", wanted(false, "B", "a"), 1, at(20)));
        assert_eq!(conditions[0].last_transition_time.0.as_second(), 10);
        assert!(set(&mut conditions, "QuotaReserved", wanted(true, "B", "a"), 1, at(30)));
        assert_eq!(true_since(&conditions, "QuotaReserved").unwrap().as_second(), 30);
    }

    #[test]
    fn an_equal_condition_is_no_change() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Evicted", wanted(true, "Preempted", "m"), 1, at(10));
        assert!(!set(&mut conditions, "Evicted", wanted(true, "Preempted", "m"), 2, at(20)));
        assert_eq!(conditions[0].observed_generation, Some(2));
    }

    #[test]
    fn messages_are_cut_between_characters() {
        let long = "ä".repeat(MAX_MESSAGE_BYTES);
        let mut conditions = Vec::new();
        set(&mut conditions, "Evicted", wanted(true, "Preempted", &long), 1, at(10));
        assert_eq!(conditions[0].message.len(), MAX_MESSAGE_BYTES);
        assert!(!set(&mut conditions, "Evicted", wanted(true, "Preempted", &long), 1, at(11)));
    }

    #[test]
    fn names_read_back_as_what_they_are() {
        for &type_ in WorkloadCondition::ALL {
            assert_eq!(WorkloadCondition::parse(type_.as_str()), Some(type_));
        }
    }
}
