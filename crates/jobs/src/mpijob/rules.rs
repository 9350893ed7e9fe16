//! Objects that the mpi-operator does not act on.

use serde_json::Value;

use crate::object;
use crate::replica_specs::{ReplicaSpecs, replicas};
use crate::review::Violations;

/// The longest label of a host name.
const LABEL: usize = 63;

/// What it knows of the pods that go on after the end.
const CLEAN_POD_POLICIES: [&str; 3] = ["None", "Running", "All"];

/// The mpi-operator has no webhook: it logs what is wrong with a job, and leaves its pods alone. (Its defaults come first: most missing fields are
/// valid. It gives workers no number, which is none that it accepts.)
pub(super) fn check(adapter: &ReplicaSpecs, object: &Value, violations: &mut Violations) {
    if !adapter.specs(object).any(|(name, _)| name == "Launcher") {
        let message = "Required value: must have Launcher replica spec".to_owned();
        violations.add(&format!("{}.Launcher", adapter.path()), message);
    }
    for (name, spec) in adapter.specs(object) {
        let path = |field: &str| format!("{}.{name}.{field}", adapter.path());
        let launches = name == "Launcher";
        let count = object::int(&spec["replicas"]).or(if launches { None } else { Some(0) });
        if let Some(count) = count.filter(|count| if launches { *count != 1 } else { *count == 0 }) {
            let message = if launches { "must be 1" } else { "must be greater than or equal to 1" };
            violations.invalid(&path("replicas"), &count.to_string(), message);
        }
        let policy = &spec["restartPolicy"];
        if let Some(policy) = policy.as_str().filter(|text| !["", "Never", "OnFailure"].contains(text)) {
            violations.invalid(&path("restartPolicy"), policy, "must be Never or OnFailure");
        }
        if spec["template"]["spec"]["containers"].as_array().is_some_and(Vec::is_empty) {
            let message = "Required value: must define at least one container".to_owned();
            violations.add(&path("template.spec.containers"), message);
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let workers =
        adapter.specs(object).find(|(name, _)| *name == "Worker").map_or(1, |(_, spec)| replicas(spec));
    let host = format!("{name}-worker-{}", workers.max(1) - 1);
    let begins = name.starts_with(|first: char| first.is_ascii_lowercase());
    if !name.is_empty() && (host.len() > LABEL || name.contains('.') || !begins) {
        let message = format!(
            "the host name {host:?} of its last worker must be a DNS label that begins with a letter"
        );
        violations.invalid("metadata.name", name, &message);
    }
    let policy = &object["spec"]["runPolicy"];
    let clean = policy["cleanPodPolicy"].as_str();
    if let Some(clean) = clean.filter(|clean| !CLEAN_POD_POLICIES.contains(clean)) {
        violations.invalid("spec.runPolicy.cleanPodPolicy", clean, "must be None, Running or All");
    }
    for field in ["ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"] {
        if let Some(number) = policy[field].as_i64().filter(|number| *number < 0) {
            let path = format!("spec.runPolicy.{field}");
            violations.invalid(&path, &number.to_string(), "must be greater than or equal to 0");
        }
    }
    if let Some(slots) = object["spec"]["slotsPerWorker"].as_i64().filter(|slots| *slots < 0) {
        violations.invalid("spec.slotsPerWorker", &slots.to_string(), "must be greater than or equal to 0");
    }
}
