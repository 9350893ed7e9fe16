//! The bodies of the writes on Workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use sluice_api::conditions::{WorkloadCondition as Type, reason, whole_seconds};
use sluice_api::slim;
use sluice_api::v1beta2::{self, WorkloadStatus};

/// The field manager of everything that admission owns (docs/reference/06-algorithm.md 6.19).
pub(crate) const ADMISSION: &str = "kueue-admission";
/// The field manager of the condition PodsReady.
pub(crate) const PODS_READY: &str = "kueue-job-controller-PodsReady";
/// The field manager of `status.reclaimablePods`.
pub(crate) const RECLAIMABLE_PODS: &str = "kueue-reclaimable-pods";

/// The field manager of the condition WaitingForReplacementPods.
pub(crate) const REPLACEMENT_PODS: &str = "kueue-job-controller-WaitingForReplacementPods";

/// The head of an apply: it acts on this very version of this very object.
fn head(object: &slim::Workload) -> Value {
    let metadata = &object.metadata;
    json!({
        "apiVersion": v1beta2::Workload::API_VERSION,
        "kind": v1beta2::Workload::KIND,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        },
    })
}

/// The whole status that admission owns, as one apply.
pub(crate) fn admission_status(object: &slim::Workload, status: &WorkloadStatus) -> Value {
    let mut owned = serde_json::to_value(status).expect("a status consists of plain data");
    if let Some(fields) = owned.as_object_mut() {
        fields.remove("reclaimablePods");
        // Left out when writing: a copy of the status without it would cost as much as writing it.
        if let Some(Value::Array(written)) = fields.get_mut("conditions") {
            own_conditions(written, &status.conditions);
            if written.is_empty() {
                fields.remove("conditions");
            }
        }
    }
    let mut body = head(object);
    body["status"] = owned;
    drop_updates(&mut body, object);
    body
}

/// Keeps those of these conditions that admission owns, with times in whole seconds. `written` has them in their JSON form.
fn own_conditions(written: &mut Vec<Value>, conditions: &[Condition]) {
    let managed = |type_: &str| Type::ADMISSION_MANAGED.iter().any(|t| t.as_str() == type_);
    let mut conditions = conditions.iter();
    written.retain_mut(|written| {
        let Some(condition) = conditions.next().filter(|c| managed(&c.type_) || rides(c)) else {
            return false;
        };
        let at = condition.last_transition_time.0;
        if whole_seconds(at) != at {
            written["lastTransitionTime"] = json!(Time(whole_seconds(at)));
        }
        true
    });
}

/// Whether a condition is that of pods which have not been ready: it comes with the admission, so that it costs no write, and stays with it
/// until its own manager has more to say.
fn rides(condition: &Condition) -> bool {
    condition.type_ == Type::PodsReady.as_str()
        && condition.status == "False"
        && condition.reason == reason::WAIT_FOR_START
}

/// What a check added to the pods is removed by an eviction, explicitly: the check's own controller owns the field, and leaving it out would keep it.
fn drop_updates(body: &mut Value, object: &slim::Workload) {
    let checks = body.pointer_mut("/status/admissionChecks").and_then(Value::as_array_mut);
    for check in checks.into_iter().flatten() {
        let known = object.status.admission_checks.iter().find(|c| check["name"] == *c.name);
        if known.is_some_and(|c| !c.pod_set_updates.is_empty()) && check.get("podSetUpdates").is_none() {
            check["podSetUpdates"] = json!([]);
        }
    }
}

/// One condition, as an apply of its own manager.
pub(crate) fn condition(object: &slim::Workload, status: &WorkloadStatus, type_: Type) -> Value {
    let condition = status.conditions.iter().find(|c| c.type_ == type_.as_str());
    let mut body = head(object);
    body["status"] = json!({ "conditions": condition.into_iter().collect::<Vec<_>>() });
    body
}

/// The reclaimable pods, as an apply of their own manager.
pub(crate) fn reclaimable_pods(object: &slim::Workload, status: &WorkloadStatus) -> Value {
    let mut body = head(object);
    body["status"] = json!({ "reclaimablePods": status.reclaimable_pods });
    body
}

/// A merge patch of the object itself that fails if the object changed.
pub(crate) fn strict_patch(object: &slim::Workload, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
    patch["metadata"]["uid"] = json!(object.metadata.uid);
    patch
}
