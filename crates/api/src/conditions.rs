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
    /// Declares the reasons, and the list of them.
    macro_rules! reasons {
        ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
            $($(#[$doc])* pub const $name: &str = $text;)*

            /// Every reason.
            pub const ALL: &[&str] = &[$($text),*];
        };
    }

    reasons! {
        /// `QuotaReserved`, `Evicted` and `Preempted`: quota is reserved.
        QUOTA_RESERVED = "QuotaReserved",
        /// `QuotaReserved=False`: the scheduler has not looked yet.
        PENDING_EVALUATION = "PendingEvaluation",
        /// `QuotaReserved=False`, before the granular reasons.
        PENDING = "Pending",
        /// `QuotaReserved=False`, before the granular reasons: cannot be admitted as things are.
        INADMISSIBLE = "Inadmissible",
        /// `QuotaReserved=False`, before the granular reasons: waits for others' pods.
        WAITING = "Waiting",
        /// `QuotaReserved=False`: no flavor of the ClusterQueue suits the pods.
        NO_MATCHING_FLAVOR = "NoMatchingFlavor",
        /// `QuotaReserved=False`: others use the quota.
        WAITING_FOR_QUOTA = "WaitingForQuota",
        /// `QuotaReserved=False`: it requests more than the ClusterQueue could ever have.
        EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota",
        /// `QuotaReserved=False`: no domains of the topology have room for its pods.
        TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed",
        /// `QuotaReserved=False`: the healthy nodes have no room for its pods. Ours.
        WAITING_FOR_CAPACITY = "WaitingForCapacity",
        /// `QuotaReserved=False`: what is preempted for it has not stopped yet.
        WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads",
        /// `QuotaReserved=False`: a queue, namespace or request is wrong.
        MISCONFIGURED = "Misconfigured",
        /// `QuotaReserved=False`: a queue is stopped or inactive.
        SUSPENDED = "Suspended",
        /// `QuotaReserved=False`: an annotation holds the admission back.
        ADMISSION_GATED = "AdmissionGated",
        /// `QuotaReserved=False`: the job itself is on hold.
        ON_HOLD = "OnHold",
        /// `QuotaReserved=False`: waits until all admitted workloads are ready.
        WAITING_FOR_PODS_READY = "WaitingForPodsReady",
        /// `QuotaReserved=False` and `Evicted`: `spec.active` is false.
        DEACTIVATED = "Deactivated",
        /// `Admitted=True`.
        ADMITTED = "Admitted",
        /// `Admitted=False`: there is no reservation.
        NO_RESERVATION = "NoReservation",
        /// `Admitted=False`: checks are not ready.
        UNSATISFIED_ADMISSION_CHECKS = "UnsatisfiedAdmissionChecks",
        /// `Admitted=False`: checks are not ready (before the granular reasons).
        UNSATISFIED_CHECKS = "UnsatisfiedChecks",
        /// `Admitted=False`: neither reservation nor ready checks (before the granular reasons).
        NO_RESERVATION_UNSATISFIED_CHECKS = "NoReservationUnsatisfiedChecks",
        /// `Evicted` and `Requeued`: preempted.
        PREEMPTED = "Preempted",
        /// `Evicted`: the pods were not ready in time.
        PODS_READY_TIMEOUT = "PodsReadyTimeout",
        /// `Evicted` and `DeactivationTarget`: an admission check says Retry or Rejected.
        ADMISSION_CHECK = "AdmissionCheck",
        /// `Evicted`: the ClusterQueue is drained.
        CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped",
        /// `Evicted`: the LocalQueue is drained.
        LOCAL_QUEUE_STOPPED = "LocalQueueStopped",
        /// `Evicted` and `Requeued`: nodes failed.
        NODE_FAILURES = "NodeFailures",
        /// Nodes are chosen once the checks are ready, and are not yet.
        PENDING_DELAYED_TOPOLOGY_REQUESTS = "PendingDelayedTopologyRequests",
        /// `Requeued=True`: the backoff has ended.
        BACKOFF_FINISHED = "BackoffFinished",
        /// `Requeued=True`: `spec.active` is true again.
        REACTIVATED = "Reactivated",
        /// `Requeued=True`: the ClusterQueue works again.
        CLUSTER_QUEUE_RESTARTED = "ClusterQueueRestarted",
        /// `Requeued=True`: the LocalQueue works again.
        LOCAL_QUEUE_RESTARTED = "LocalQueueRestarted",
        /// `DeactivationTarget`: it ran for too long.
        MAXIMUM_EXECUTION_TIME_EXCEEDED = "MaximumExecutionTimeExceeded",
        /// `DeactivationTarget`: it was put back too often.
        REQUEUING_LIMIT_EXCEEDED = "RequeuingLimitExceeded",
        /// `Finished`: the job succeeded.
        SUCCEEDED = "Succeeded",
        /// `Finished`: the job failed.
        FAILED = "Failed",
        /// `Finished`: a prebuilt workload does not describe its job. `Evicted`: its job runs with more than it holds quota for.
        OUT_OF_SYNC = "OutOfSync",
        /// `Finished`: another slice of the elastic job took over from it.
        WORKLOAD_SLICE_REPLACED = "WorkloadSliceReplaced",
        /// `Finished`: the owner is gone.
        OWNER_NOT_FOUND = "OwnerNotFound",
        /// `Finished`: the job could not be started.
        FAILED_TO_START = "FailedToStart",
        /// `PodsReady=False`: not all pods have been ready yet.
        WAIT_FOR_START = "WaitForStart",
        /// `PodsReady=False`: pods failed after all had been ready.
        WAIT_FOR_RECOVERY = "WaitForRecovery",
        /// `PodsReady=True`: for the first time.
        STARTED = "Started",
        /// `PodsReady=True`: again.
        RECOVERED = "Recovered",
        /// `PodsReady=True` as older versions wrote it.
        PODS_READY = "PodsReady",
        /// `BlockedOnPreemptionGates=True`.
        PREEMPTION_GATED = "PreemptionGated",
        /// `Active=True` of a queue.
        READY = "Ready",
        /// `Active=False` of a queue.
        STOPPED = "Stopped",
        /// `Active=False` of a terminating ClusterQueue.
        TERMINATING = "Terminating",
        /// `Active=False` of a LocalQueue.
        CLUSTER_QUEUE_DOES_NOT_EXIST = "ClusterQueueDoesNotExist",
        /// `Active=False` of a LocalQueue.
        CLUSTER_QUEUE_IS_INACTIVE = "ClusterQueueIsInactive",
    }

    /// Whether a manager writes this text as a reason: one of [`ALL`], or that it is deactivated due to one of them. Other programs that may
    /// write a status may write any text.
    pub fn is_known(text: &str) -> bool {
        let cause = text.strip_prefix(DEACTIVATED).and_then(|rest| rest.strip_prefix("DueTo"));
        ALL.contains(&cause.unwrap_or(text))
    }
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
    fn only_what_managers_write_is_a_known_reason() {
        for known in [reason::PENDING, "WaitingForQuota", "DeactivatedDueToAdmissionCheck"] {
            assert!(reason::is_known(known), "{known}");
        }
        for other in ["", "pending", "DeactivatedDueTo", "DeactivatedDueToMe", "AdmittedDueToAdmitted"] {
            assert!(!reason::is_known(other), "{other}");
        }
    }

    #[test]
    fn names_read_back_as_what_they_are() {
        for &type_ in WorkloadCondition::ALL {
            assert_eq!(WorkloadCondition::parse(type_.as_str()), Some(type_));
        }
    }
}
