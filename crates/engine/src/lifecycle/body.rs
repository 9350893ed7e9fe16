//! The bodies of the writes on Workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;
use serde_json::{Value, json};
use sluice_api::conditions::{WorkloadCondition as Type, reason, whole_seconds};
use sluice_api::slim;
use sluice_api::v1beta2::{
    self, Admission, AdmissionCheckState, PodSetRequest, PreemptionGateState, ReclaimablePod, RequeueState,
    SchedulingStats, UnhealthyNode, WorkloadStatus,
};

use crate::json_text::JsonText;

/// The field manager of everything that admission owns (docs/reference/06-algorithm.md 6.19).
pub(crate) const ADMISSION: &str = "kueue-admission";
/// The field manager of the condition PodsReady.
pub(crate) const PODS_READY: &str = "kueue-job-controller-PodsReady";
/// The field manager of `status.reclaimablePods`.
pub(crate) const RECLAIMABLE_PODS: &str = "kueue-reclaimable-pods";

/// The field manager of the condition WaitingForReplacementPods.
pub(crate) const REPLACEMENT_PODS: &str = "kueue-job-controller-WaitingForReplacementPods";

/// An apply: it acts on this very version of this very object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Apply<'a, Status> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Head<'a>,
    status: Status,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head<'a> {
    name: Option<&'a str>,
    namespace: Option<&'a str>,
    uid: Option<&'a str>,
    resource_version: Option<&'a str>,
}

fn apply(object: &slim::Workload, status: impl Serialize) -> JsonText {
    let metadata = &object.metadata;
    let head = Head {
        name: metadata.name.as_deref(),
        namespace: metadata.namespace.as_deref(),
        uid: metadata.uid.as_deref(),
        resource_version: metadata.resource_version.as_deref(),
    };
    let (api_version, kind) = (v1beta2::Workload::API_VERSION, v1beta2::Workload::KIND);
    JsonText::of(&Apply { api_version, kind, metadata: head, status })
}

/// What admission owns of a status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Owned<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<OwnedCondition<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admission: Option<&'a Admission>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requeue_state: Option<&'a RequeueState>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    admission_checks: Vec<OwnedCheck<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    resource_requests: &'a [PodSetRequest],
    #[serde(skip_serializing_if = "Option::is_none")]
    accumulated_past_execution_time_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduling_stats: Option<&'a SchedulingStats>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    nominated_cluster_names: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_name: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unhealthy_nodes: &'a [UnhealthyNode],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    preemption_gates: &'a [PreemptionGateState],
}

impl<'a> Owned<'a> {
    /// Of a status that `object` is to have.
    fn of(object: &slim::Workload, status: &'a WorkloadStatus) -> Self {
        // All fields: none is forgotten here.
        let WorkloadStatus {
            conditions,
            admission,
            requeue_state,
            reclaimable_pods: _,
            admission_checks,
            resource_requests,
            accumulated_past_execution_time_seconds,
            scheduling_stats,
            nominated_cluster_names,
            cluster_name,
            unhealthy_nodes,
            preemption_gates,
        } = status;
        let managed = |type_: &str| Type::ADMISSION_MANAGED.iter().any(|t| t.as_str() == type_);
        let is_owned = |condition: &&Condition| managed(&condition.type_) || rides(condition);
        Self {
            conditions: conditions.iter().filter(is_owned).map(OwnedCondition::of).collect(),
            admission: admission.as_ref(),
            requeue_state: requeue_state.as_ref(),
            admission_checks: admission_checks.iter().map(|check| OwnedCheck::of(object, check)).collect(),
            resource_requests,
            accumulated_past_execution_time_seconds: *accumulated_past_execution_time_seconds,
            scheduling_stats: scheduling_stats.as_ref(),
            nominated_cluster_names,
            cluster_name: cluster_name.as_deref(),
            unhealthy_nodes,
            preemption_gates,
        }
    }
}

/// A condition, with its time in whole seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnedCondition<'a> {
    last_transition_time: Time,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    reason: &'a str,
    status: &'a str,
    #[serde(rename = "type")]
    type_: &'a str,
}

impl<'a> OwnedCondition<'a> {
    fn of(condition: &'a Condition) -> Self {
        let Condition { last_transition_time, message, observed_generation, reason, status, type_ } =
            condition;
        let last_transition_time = Time(whole_seconds(last_transition_time.0));
        Self {
            last_transition_time,
            message,
            observed_generation: *observed_generation,
            reason,
            status,
            type_,
        }
    }
}

/// The state of a check.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnedCheck<'a> {
    #[serde(flatten)]
    check: &'a AdmissionCheckState,
    /// What the check added to the pods is removed by an eviction, explicitly: its own controller owns the field, and leaving it out would keep it.
    #[serde(rename = "podSetUpdates", skip_serializing_if = "Option::is_none")]
    removed: Option<[(); 0]>,
}

impl<'a> OwnedCheck<'a> {
    fn of(object: &slim::Workload, check: &'a AdmissionCheckState) -> Self {
        let known = object.status.admission_checks.iter().find(|known| known.name == check.name);
        let is_removed =
            check.pod_set_updates.is_empty() && known.is_some_and(|c| !c.pod_set_updates.is_empty());
        Self { check, removed: is_removed.then_some([]) }
    }
}

/// The whole status that admission owns, as one apply.
pub(crate) fn admission_status(object: &slim::Workload, status: &WorkloadStatus) -> JsonText {
    apply(object, Owned::of(object, status))
}

/// Whether a condition is that of pods which have not been ready: it comes with the admission, so that it costs no write, and stays with it
/// until its own manager has more to say.
fn rides(condition: &Condition) -> bool {
    condition.type_ == Type::PodsReady.as_str()
        && condition.status == "False"
        && condition.reason == reason::WAIT_FOR_START
}

/// One condition, as an apply of its own manager.
pub(crate) fn condition(object: &slim::Workload, status: &WorkloadStatus, type_: Type) -> JsonText {
    #[derive(Serialize)]
    struct Part<'a> {
        conditions: &'a [&'a Condition],
    }
    let condition = status.conditions.iter().find(|c| c.type_ == type_.as_str());
    apply(object, Part { conditions: condition.as_slice() })
}

/// The reclaimable pods, as an apply of their own manager.
pub(crate) fn reclaimable_pods(object: &slim::Workload, status: &WorkloadStatus) -> JsonText {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Part<'a> {
        reclaimable_pods: &'a [ReclaimablePod],
    }
    apply(object, Part { reclaimable_pods: &status.reclaimable_pods })
}

/// A merge patch of the object itself that fails if the object changed.
pub(crate) fn strict_patch(object: &slim::Workload, mut patch: Value) -> Value {
    patch["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
    patch["metadata"]["uid"] = json!(object.metadata.uid);
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A status with all fields, as the API server has it.
    fn full() -> WorkloadStatus {
        let condition = |type_: &str, status: &str, reason: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": "why", "observedGeneration": 2,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let check = |name: &str| {
            json!({"name": name, "state": "Ready", "message": "", "retryCount": 1,
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let assignment =
            json!({"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}});
        serde_json::from_value(json!({
            "conditions": [
                condition("QuotaReserved", "True", "QuotaReserved"),
                condition("PodsReady", "False", "WaitForStart"),
                condition("Foreign", "True", "Other"),
            ],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
            "requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:00Z"},
            "reclaimablePods": [{"name": "main", "count": 1}],
            "admissionChecks": [check("kept"), check("removed")],
            "resourceRequests": [{"name": "main", "resources": {"cpu": "2"}}],
            "accumulatedPastExecutionTimeSeconds": 5,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]},
            "nominatedClusterNames": ["c"],
            "clusterName": "d",
            "unhealthyNodes": [{"name": "n"}],
            "preemptionGates": [{"name": "g", "position": "Closed", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }))
        .unwrap()
    }

    fn workload(status: &WorkloadStatus) -> slim::Workload {
        let metadata =
            json!({"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}});
        let mut workload: slim::Workload = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        workload.status = status.clone();
        workload
    }

    fn head() -> Value {
        json!({"name": "w", "namespace": "ns", "uid": "u", "resourceVersion": "7"})
    }

    #[test]
    fn an_apply_of_admission_has_all_that_it_owns_and_nothing_else() {
        let status = full();
        let written = admission_status(&workload(&status), &status).value().unwrap();
        let mut owned = serde_json::to_value(&status).unwrap();
        owned.as_object_mut().unwrap().remove("reclaimablePods").unwrap();
        owned["conditions"].as_array_mut().unwrap().pop();
        assert_eq!(
            written,
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": head(), "status": owned})
        );
        let empty = WorkloadStatus::default();
        assert_eq!(admission_status(&workload(&empty), &empty).value().unwrap()["status"], json!({}));
    }

    #[test]
    fn times_are_whole_seconds_and_updates_of_checks_are_removed_explicitly() {
        let mut next = full();
        next.conditions[0].last_transition_time = Time("2026-01-01T00:00:00.9Z".parse().unwrap());
        let mut known = next.clone();
        known.admission_checks[1].pod_set_updates = vec![v1beta2::PodSetUpdate::default()];
        let written = admission_status(&workload(&known), &next).value().unwrap();
        assert_eq!(written["status"]["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let checks = &written["status"]["admissionChecks"];
        assert_eq!((checks[0].get("podSetUpdates"), &checks[1]["podSetUpdates"]), (None, &json!([])));
        let kept = admission_status(&workload(&known), &known).value().unwrap();
        let updates = serde_json::to_value(&known.admission_checks[1].pod_set_updates).unwrap();
        assert_eq!(kept["status"]["admissionChecks"][1]["podSetUpdates"], updates);
    }

    #[test]
    fn other_managers_apply_nothing_but_their_part() {
        let status = full();
        let applied = condition(&workload(&status), &status, Type::PodsReady).value().unwrap();
        let part = serde_json::to_value(&status.conditions[1]).unwrap();
        assert_eq!((&applied["metadata"], &applied["status"]), (&head(), &json!({"conditions": [part]})));
        let none =
            condition(&workload(&status), &WorkloadStatus::default(), Type::PodsReady).value().unwrap();
        assert_eq!(none["status"], json!({"conditions": []}));
        let applied = reclaimable_pods(&workload(&status), &status).value().unwrap();
        assert_eq!(applied["status"], json!({"reclaimablePods": [{"name": "main", "count": 1}]}));
    }

    #[test]
    fn a_body_is_written_without_a_tree_of_it() {
        let (status, object) = (full(), workload(&full()));
        let cost = allocation_counter::measure(|| drop(admission_status(&object, &status))).count_total;
        let tree = allocation_counter::measure(|| drop(serde_json::to_value(&status).unwrap())).count_total;
        assert!(cost * 3 < tree, "{cost} for the text, {tree} for the tree");
    }
}
