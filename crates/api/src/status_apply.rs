//! Server-side apply for the status of a Workload or a pod, by the field managers of docs/reference/06-algorithm.md 6.19 and
//! docs/reference/03-conditions-events.md 3.6: for stand-ins for the API server.

use serde_json::{Value, json};

use crate::conditions::WorkloadCondition;
use crate::slim;

/// The manager of the status of pods that are removed by force.
pub const FAILURE_RECOVERY_MANAGER: &str = "kueue-pod-termination-controller";

/// The manager of the status of pods that cannot get to the node that they are assigned to (docs/reference/03-conditions-events.md 3.6).
pub const TOPOLOGY_MANAGER: &str = "tas-resource-flavor-controller";

/// The type of the condition of such a pod (docs/reference/03-conditions-events.md 3.2).
pub const TERMINATED_BY_KUEUE: &str = "TerminatedByKueue";

/// The fields of a Workload's status that the manager `kueue-admission` owns besides its conditions: an apply without
/// one removes it.
const ADMISSION_FIELDS: [&str; 10] = [
    "admission",
    "requeueState",
    "admissionChecks",
    "resourceRequests",
    "accumulatedPastExecutionTimeSeconds",
    "schedulingStats",
    "clusterName",
    "nominatedClusterNames",
    "unhealthyNodes",
    "preemptionGates",
];

/// Applies the status of a Workload or a pod for one field manager: fields that it owned and omits are removed, fields of others stay.
pub fn apply_status(status: &mut Value, applied: &Value, manager: &str) {
    if !status.is_object() {
        *status = json!({});
    }
    let admission = manager == "kueue-admission";
    let recovery = manager == FAILURE_RECOVERY_MANAGER;
    let theirs = |condition: &Value| {
        let name = condition["type"].as_str().unwrap_or_default();
        if admission {
            WorkloadCondition::ADMISSION_MANAGED.iter().any(|t| t.as_str() == name)
        } else if recovery {
            name == slim::FAILURE_RECOVERY
        } else if manager == TOPOLOGY_MANAGER {
            name == TERMINATED_BY_KUEUE
        } else {
            manager.strip_suffix(name).is_some_and(|rest| rest.ends_with('-'))
        }
    };
    let mut conditions = match status["conditions"].take() {
        Value::Array(list) => list,
        _ => Vec::new(),
    };
    let applied_conditions = applied["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Conditions of others that it applies become its own, and stay theirs, too.
    let again = |c: &Value| applied_conditions.iter().any(|a| a["type"] == c["type"]);
    conditions.retain(|c| !theirs(c) && !again(c));
    conditions.extend(applied_conditions.iter().cloned());
    status["conditions"] = Value::Array(conditions);
    let fields: &[&str] = match manager {
        "kueue-admission" => &ADMISSION_FIELDS,
        "kueue-reclaimable-pods" => &["reclaimablePods"],
        FAILURE_RECOVERY_MANAGER | TOPOLOGY_MANAGER => &["phase"],
        _ => &[],
    };
    for field in fields {
        match applied.get(field) {
            Some(value) => status[field] = value.clone(),
            // A pod always has a phase: without one in the apply it keeps the kubelet's.
            None if recovery => {}
            None => {
                if let Some(status) = status.as_object_mut() {
                    status.remove(*field);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apply_replaces_what_its_manager_owns_and_nothing_else() {
        let mut status = json!({
            "conditions": [{"type": "PodsReady", "status": "True"}, {"type": "Admitted", "status": "True"}],
            "admission": {"clusterQueue": "a"}, "reclaimablePods": [],
        });
        let applied = json!({"conditions": [{"type": "Evicted", "status": "True"}]});
        apply_status(&mut status, &applied, "kueue-admission");
        assert_eq!(
            status,
            json!({
                "conditions": [{"type": "PodsReady", "status": "True"}, {"type": "Evicted", "status": "True"}],
                "reclaimablePods": [],
            })
        );
    }
}
