//! The rules of batch Jobs alone: partial admission (reference 07, 7.2).

use serde_json::Value;
use sluice_api::gates::Gate;
use sluice_api::labels;

use super::validate::{Violations, annotation_path};
use super::{Context, Meta};
use crate::object::int;

/// Counts and their annotations, if the write sets any of them. A job that runs with fewer pods than it asked for is
/// not suspended; stopping it first suspends it and restores its counts later: neither may be refused.
pub(super) fn always(
    old: Option<&Value>,
    object: &Value,
    meta: &Meta,
    violations: &mut Violations,
    context: &Context<'_>,
) {
    let spec = &object["spec"];
    let counts = |object: &Value| {
        let spec = ["parallelism", "completions", "completionMode"].map(|key| object["spec"][key].clone());
        let annotations = &object["metadata"]["annotations"];
        let keys = [labels::JOB_MIN_PARALLELISM, labels::JOB_COMPLETIONS_EQUAL_PARALLELISM];
        (spec, keys.map(|key| annotations[key].clone()))
    };
    let unchanged = old.is_some_and(|old| counts(old) == counts(object));
    if unchanged || !meta.suspended || !context.gates.enabled(Gate::PartialAdmission) {
        return;
    }
    let parallelism = int(&spec["parallelism"]).unwrap_or(1);
    if let Some(text) = meta.annotations.get(labels::JOB_MIN_PARALLELISM) {
        let path = annotation_path(labels::JOB_MIN_PARALLELISM);
        match text.parse::<i32>() {
            Err(_) => violations.invalid(&path, text, "must be an integer"),
            Ok(least) if least < 1 || least >= parallelism => {
                let message = format!("should be between 1 and {}", parallelism.saturating_sub(1).max(0));
                violations.invalid(&path, text, &message);
            }
            Ok(_) => {}
        }
    }
    if let Some(text) = meta.annotations.get(labels::JOB_COMPLETIONS_EQUAL_PARALLELISM) {
        let path = annotation_path(labels::JOB_COMPLETIONS_EQUAL_PARALLELISM);
        match text.as_str() {
            "true" => {
                if spec["completionMode"] != "Indexed" {
                    violations.invalid(&path, text, "should not be enabled for NonIndexed jobs");
                }
                if int(&spec["completions"]).unwrap_or(parallelism) != parallelism {
                    violations.invalid(
                        "spec.completions",
                        &spec["completions"].to_string(),
                        &format!("should be equal to parallelism when {path} is true"),
                    );
                }
            }
            "false" => {}
            _ => violations.invalid(&path, text, "must be true or false"),
        }
    }
}

pub(super) fn on_update(
    old: &Value,
    new: &Value,
    before: &Meta,
    after: &Meta,
    violations: &mut Violations,
    context: &Context<'_>,
) {
    let partial = context.gates.enabled(Gate::PartialAdmission)
        && before.annotations.contains_key(labels::JOB_MIN_PARALLELISM);
    if !partial || before.suspended || after.suspended {
        return;
    }
    if int(&old["spec"]["parallelism"]) != int(&new["spec"]["parallelism"]) {
        violations.forbidden(
            "spec.parallelism",
            "cannot change when partial admission is enabled and the job is not suspended",
        );
    }
}
