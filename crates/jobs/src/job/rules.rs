//! The rules of batch Jobs alone: partial admission (docs/reference/07-integrations.md 7.2).

use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::{labels, text};

use super::wants_equal_completions;
use crate::adapter::Change;
use crate::bulk::{LARGE_SELECTOR, is_large_selector};
use crate::object::{int, pods_of_job_spec};
use crate::review::{Context, Meta, Violations, annotation_path};

/// The selector of a job whose user wrote it: each new pod of the namespace is compared with it.
pub(super) fn selector(change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
    if !context.is_managed(change.meta) && !context.managed_owner {
        return;
    }
    let selects = |object: &Value| object["spec"]["manualSelector"] == true;
    let unchanged = change
        .old
        .is_some_and(|(old, _)| selects(old) && old["spec"]["selector"] == change.object["spec"]["selector"]);
    if !unchanged && selects(change.object) && is_large_selector(&change.object["spec"]["selector"]) {
        violations.add("spec.selector", LARGE_SELECTOR.to_owned());
    }
}

/// Counts and their annotations, if the write sets any of them. A job that runs with fewer pods than it asked for is
/// not suspended; stopping it first suspends it and restores its counts later: neither may be refused.
pub(super) fn always(change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
    let (object, meta) = (change.object, change.meta);
    let spec = &object["spec"];
    let counts = |object: &Value| {
        let spec = ["parallelism", "completions", "completionMode"].map(|key| object["spec"][key].clone());
        let annotations = &object["metadata"]["annotations"];
        let keys = [labels::JOB_MIN_PARALLELISM, labels::JOB_COMPLETIONS_EQUAL_PARALLELISM];
        (spec, keys.map(|key| annotations[key].clone()))
    };
    let unchanged = change.old.is_some_and(|(old, _)| counts(old) == counts(object));
    if unchanged || !meta.suspended || !context.gates.enabled(Gate::PartialAdmission) {
        return;
    }
    let (parallelism, pods) = (int(&spec["parallelism"]).unwrap_or(1), pods_of_job_spec(spec));
    if let Some(text) = meta.annotations.get(labels::JOB_MIN_PARALLELISM) {
        let path = annotation_path(labels::JOB_MIN_PARALLELISM);
        match text.parse::<i32>() {
            Err(_) => violations.invalid(&path, text, "must be an integer"),
            Ok(least) if least < 1 || least >= pods => {
                let message = format!("should be between 1 and {}", pods.saturating_sub(1).max(0));
                violations.invalid(&path, text, &message);
            }
            Ok(_) => {}
        }
    }
    if let Some(text) = meta.annotations.get(labels::JOB_COMPLETIONS_EQUAL_PARALLELISM) {
        let path = annotation_path(labels::JOB_COMPLETIONS_EQUAL_PARALLELISM);
        match text::boolean(text) {
            Some(true) => {
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
            Some(false) => {}
            None => violations.invalid(&path, text, "must be true or false"),
        }
    }
}

/// The merge patch of a smaller number of pods which these rules allow: completions that are to equal it follow, and a smallest number that is not
/// below it is dropped.
pub(super) fn with_pods(object: &Value, pods: i32, gates: Gates) -> Value {
    let mut patch = json!({"spec": {"parallelism": pods}});
    if !gates.enabled(Gate::PartialAdmission) {
        return patch;
    }
    let annotation = |key: &str| object["metadata"]["annotations"][key].as_str();
    if annotation(labels::JOB_COMPLETIONS_EQUAL_PARALLELISM).and_then(text::boolean) == Some(true) {
        patch["spec"]["completions"] = json!(pods);
    }
    let fits = |text: &str| text.parse::<i32>().is_ok_and(|least| (1..pods).contains(&least));
    if annotation(labels::JOB_MIN_PARALLELISM).is_some_and(|text| !fits(text)) {
        patch["metadata"]["annotations"][labels::JOB_MIN_PARALLELISM] = Value::Null;
    }
    patch
}

/// A job that runs, and may run with fewer pods, keeps its number of pods; and each job that runs keeps the annotations by which its numbers are
/// written at the start and restored at the stop.
pub(super) fn on_update(change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
    let Some((old, before)) = change.old else { return };
    let (new, after) = (change.object, change.meta);
    // A stop that is under way has yet to restore its numbers.
    let is_stopping = before.annotations.get(labels::STOPPING).is_some_and(|value| value == "true");
    if !context.gates.enabled(Gate::PartialAdmission) || before.suspended && !is_stopping {
        return;
    }
    let follows = |meta: &Meta| wants_equal_completions(&meta.annotations);
    let least = |meta: &Meta| meta.annotations.get(labels::JOB_MIN_PARALLELISM).cloned();
    for (key, changed) in [
        (labels::JOB_MIN_PARALLELISM, least(before) != least(after)),
        (labels::JOB_COMPLETIONS_EQUAL_PARALLELISM, follows(before) != follows(after)),
    ] {
        if changed {
            violations.forbidden(&annotation_path(key), "field is immutable while the job is not suspended");
        }
    }
    let partial = before.annotations.contains_key(labels::JOB_MIN_PARALLELISM);
    let runs = !before.suspended && !after.suspended;
    if partial && runs && int(&old["spec"]["completions"]) != int(&new["spec"]["completions"]) {
        violations.forbidden(
            "spec.completions",
            "cannot change when partial admission is enabled and the job is not suspended",
        );
    }
    if partial && runs && int(&old["spec"]["parallelism"]) != int(&new["spec"]["parallelism"]) {
        violations.forbidden(
            "spec.parallelism",
            "cannot change when partial admission is enabled and the job is not suspended",
        );
    }
}

/// A job that changes its size while it runs does not start with fewer pods than it asks for.
pub(super) fn elastic(change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
    let meta = change.meta;
    let is_elastic = context.gates.enabled(Gate::ElasticJobsViaWorkloadSlices)
        && meta.annotations.get(labels::ELASTIC_JOB).is_some_and(|text| text == "true");
    if !is_elastic {
        return;
    }
    let least = |meta: &Meta| meta.annotations.get(labels::JOB_MIN_PARALLELISM).cloned();
    let unchanged = change.old.is_some_and(|(_, old)| least(old) == least(meta));
    if context.gates.enabled(Gate::PartialAdmission) && !unchanged && least(meta).is_some() {
        let message = format!("cannot be used together with the annotation {}", labels::ELASTIC_JOB);
        violations.forbidden(&annotation_path(labels::JOB_MIN_PARALLELISM), &message);
    }
}
