//! Server-side apply with the engine's field managers.

use serde_json::{Value, json};

/// Server-side apply of a Workload's status, as far as the engine's managers need it.
pub fn apply_status(status: &mut Value, applied: &Value, manager: &str) {
    if status.is_null() {
        *status = json!({});
    }
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let theirs = |c: &Value| {
        let type_ = c["type"].as_str().unwrap_or_default();
        let admission =
            sluice_api::conditions::WorkloadCondition::ADMISSION_MANAGED.iter().any(|t| t.as_str() == type_);
        match manager {
            "kueue-admission" => admission,
            manager => manager.ends_with(&format!("-{type_}")),
        }
    };
    conditions.retain(|c| !theirs(c));
    conditions.extend(applied["conditions"].as_array().cloned().unwrap_or_default());
    status["conditions"] = json!(conditions);
    let fields: &[&str] = match manager {
        "kueue-admission" => &[
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
        ],
        "kueue-reclaimable-pods" => &["reclaimablePods"],
        _ => &[],
    };
    for field in fields {
        match applied.get(field) {
            Some(value) => status[field] = value.clone(),
            None => {
                status.as_object_mut().unwrap().remove(*field);
            }
        }
    }
}
