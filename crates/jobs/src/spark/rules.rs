//! The rules for SparkApplications (docs/reference/07-integrations.md 7.2).

use serde_json::Value;

use super::{is_over, pod, pod_sets};
use crate::adapter::Change;
use crate::object::int;
use crate::pod_group::path_of;
use crate::review::{Context, Meta, Violation, Violations};

const ONLY_CLUSTER: &str = "only Cluster mode is supported for a kueue managed job";
const ONLY_ELASTIC: &str = "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature gate is on and the \
     job is an elastic job";
const OF_THE_OPERATOR: &str = "the label is the operator's: without it the operator would not apply the admitted node selectors and tolerations";
const RUNS_AGAIN: &str = "the application has ended, and the operator would run it again";

/// Checks a new or changed managed application.
pub(super) fn check(change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
    let managed = |meta: &Meta| context.manage_jobs_without_queue_name || meta.queue_name().is_some();
    if !managed(change.meta) {
        return;
    }
    let before = change.old.filter(|(_, meta)| managed(meta)).map(|(old, _)| broken(old));
    let known = before.unwrap_or_default();
    violations.0.extend(broken(change.object).into_iter().filter(|violation| !known.contains(violation)));
    if change.old.is_some_and(|(old, _)| is_over(old) && asked(old) != asked(change.object)) {
        violations.forbidden("spec", RUNS_AGAIN);
    }
}

/// The spec without what the operator does not take for a change.
fn asked(object: &Value) -> Value {
    let mut spec = object["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("suspend");
    }
    spec
}

/// The rules that an object breaks.
fn broken(object: &Value) -> Vec<Violation> {
    let mut violations = Violations::default();
    if let Some(mode) = other_mode(object) {
        violations.add("spec.mode", format!("Invalid value: {mode}: {ONLY_CLUSTER}"));
    }
    if let Some(field) = scales_itself(object) {
        violations.add(field, format!("Invalid value: true: {ONLY_ELASTIC}"));
    }
    if let Some((field, reserved)) = reserved_label(object) {
        violations.forbidden(&format!("{field}.labels[{reserved}]"), OF_THE_OPERATOR);
    }
    // The operator may run objects without pod sets: a change while it runs makes it start again.
    if violations.0.is_empty()
        && let Err(trouble) = pod_sets(object)
    {
        let (path, message) = trouble.split_once(": ").unwrap_or(("spec", &trouble));
        violations.add(path, format!("Invalid value: {message}"));
    }
    violations.0
}

/// What keeps an application from becoming pod sets, or would run pods that are in none.
pub(super) fn trouble(object: &Value) -> Option<String> {
    if let Some(mode) = other_mode(object) {
        return Some(format!("spec.mode: {mode}: {ONLY_CLUSTER}"));
    }
    if let Some(field) = scales_itself(object) {
        return Some(format!("{field}: {ONLY_ELASTIC}"));
    }
    if let Some((field, reserved)) = reserved_label(object) {
        return Some(format!("{field}.labels[{reserved}]: {OF_THE_OPERATOR}"));
    }
    let field = &object["spec"]["executor"]["instances"];
    let path = path_of(pod::ROLES[1].pointer);
    if int(field).is_some_and(|number| number < 0) {
        return Some(format!("{path}.instances: {field}: must not be negative"));
    }
    let configured = pod::configured_executors(object).filter(|_| field.is_null())?;
    let is_count = configured.trim().parse().is_ok_and(|number: i32| number >= 0);
    (!is_count).then(|| format!("spec.sparkConf[spark.executor.instances]: {configured:?} is not a number"))
}

/// A mode in which the driver does not run in a pod of its own.
fn other_mode(object: &Value) -> Option<&Value> {
    let mode = &object["spec"]["mode"];
    (!mode.is_null() && mode != "" && mode != "cluster").then_some(mode)
}

/// The field by which Spark itself changes the number of executors.
fn scales_itself(object: &Value) -> Option<&'static str> {
    const IN_SPARK: &str = "spark.dynamicAllocation.enabled";
    let spec = &object["spec"];
    if spec["dynamicAllocation"]["enabled"] == true {
        return Some("spec.dynamicAllocation.enabled");
    }
    // Spark puts other settings in for names in a value: what is not plainly off may be on.
    let configured = &spec["sparkConf"][IN_SPARK];
    let off = configured.as_str().is_some_and(|text| text.trim().eq_ignore_ascii_case("false"));
    (!configured.is_null() && !off).then_some("spec.sparkConf[spark.dynamicAllocation.enabled]")
}

/// A label that would keep the operator's webhook from finding the pods of the application, or make it find another application.
fn reserved_label(object: &Value) -> Option<(&'static str, &'static str)> {
    const LAUNCHED: &str = "sparkoperator.k8s.io/launched-by-spark-operator";
    const NAME: &str = "sparkoperator.k8s.io/app-name";
    let wanted = [(LAUNCHED, "true"), (NAME, object["metadata"]["name"].as_str().unwrap_or_default())];
    let places = ["metadata", "spec.driver", "spec.executor"];
    let labels = [&object["metadata"], &object["spec"]["driver"], &object["spec"]["executor"]];
    let mut all = places.into_iter().zip(labels).flat_map(|place| wanted.map(|label| (place, label)));
    let other =
        |of: &Value, key: &str, value: &str| !of["labels"][key].is_null() && of["labels"][key] != value;
    all.find(|((_, of), (key, value))| other(of, key, value)).map(|((place, _), (key, _))| (place, key))
}

#[cfg(test)]
mod tests;
