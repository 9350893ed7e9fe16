//! Conditions of the stand-in's JobSets.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::types::{JobSet, JobSetStatus};

/// Sets a condition; the transition time moves only with the status.
pub fn set(status: &mut JobSetStatus, kind: &str, holds: bool, reason: &str, message: &str) {
    let value = if holds { "True" } else { "False" };
    let existing = status.conditions.iter_mut().find(|one| one.type_ == kind);
    // As JobSet has it: what never was true is not told to be false.
    if existing.is_none() && !holds {
        return;
    }
    let mut condition = Condition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Time(Timestamp::now()),
        observed_generation: None,
    };
    match existing {
        Some(old) => {
            if old.status == condition.status {
                condition.last_transition_time = old.last_transition_time.clone();
            }
            *old = condition;
        }
        None => status.conditions.push(condition),
    }
}

/// Ends the JobSet as `Completed` or `Failed`.
pub fn finish(status: &mut JobSetStatus, kind: &str, reason: &str, message: &str) {
    set(status, kind, true, reason, message);
    status.terminal_state = Some(kind.to_owned());
}

/// When a finished JobSet ended.
pub fn finished_at(jobset: &JobSet) -> Option<Timestamp> {
    let conditions = &jobset.status.as_ref()?.conditions;
    let ended =
        |one: &&Condition| matches!(one.type_.as_str(), "Completed" | "Failed") && one.status == "True";
    conditions.iter().find(ended).map(|one| one.last_transition_time.0)
}
