//! Objects that the mpi-operator does not act on.

use serde_json::Value;

use crate::object;
use crate::replica_specs::{ReplicaSpecs, replicas};
use crate::review::Violations;

/// The longest label of a host name.
const LABEL: usize = 63;

/// The mpi-operator has no webhook: it logs what is wrong with a job, and leaves its pods alone. (Its defaults come first: missing fields are valid.)
pub(super) fn check(adapter: &ReplicaSpecs, object: &Value, violations: &mut Violations) {
    for (name, spec) in adapter.specs(object) {
        let path = |field: &str| format!("{}.{name}.{field}", adapter.path());
        let count = object::int(&spec["replicas"]);
        let launches = name == "Launcher";
        if let Some(count) = count.filter(|count| if launches { *count != 1 } else { *count == 0 }) {
            let message = if launches { "must be 1" } else { "must be greater than or equal to 1" };
            violations.invalid(&path("replicas"), &count.to_string(), message);
        }
        let policy = &spec["restartPolicy"];
        if let Some(policy) = policy.as_str().filter(|text| !["", "Never", "OnFailure"].contains(text)) {
            violations.invalid(&path("restartPolicy"), policy, "must be Never or OnFailure");
        }
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let workers =
        adapter.specs(object).find(|(name, _)| *name == "Worker").map_or(1, |(_, spec)| replicas(spec));
    let host = format!("{name}-worker-{}", workers.max(1) - 1);
    if !name.is_empty() && (host.len() > LABEL || name.contains('.')) {
        let message = format!("the host name {host:?} of its last worker must be a DNS label");
        violations.invalid("metadata.name", name, &message);
    }
    let policy = &object["spec"]["runPolicy"];
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
