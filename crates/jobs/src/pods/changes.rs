//! The writes on one pod: its start, the report of its end, the removal of our finalizer.

use std::fmt;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::job::{JobPodSet, PodSetInfo};
use sluice_api::labels;

use super::member::Member;
use crate::patch::Patch;
use crate::scheduling::{StartError, merged, template_operations};

/// The field manager of the condition that announces the end of a pod.
pub const STOP_MANAGER: &str = "kueue";

/// Why pods are stopped (docs/reference/03-conditions-events.md 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason<'a> {
    /// Their Workload is being deleted.
    WorkloadDeleted,
    /// Their Workload was evicted for this reason.
    Evicted(&'a str),
    /// There is no Workload that describes them.
    NoMatchingWorkload,
    /// Their Workload is not admitted.
    NotAdmitted,
}

impl fmt::Display for StopReason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkloadDeleted => f.write_str("WorkloadDeleted"),
            Self::Evicted(reason) => write!(f, "WorkloadEvictedDueTo{reason}"),
            Self::NoMatchingWorkload => f.write_str("NoMatchingWorkload"),
            Self::NotAdmitted => f.write_str("NotAdmitted"),
        }
    }
}

/// The patch that ungates a pod, with the additions of admission. `None` if it is ungated already.
///
/// # Errors
///
/// If a node selector, label or annotation that admission adds has another value in the pod.
pub fn start(member: &Member, info: &PodSetInfo) -> Result<Option<Patch>, StartError> {
    let Some(pod_set) = member.pod_set.as_deref().ok().filter(|_| member.gated) else { return Ok(None) };
    ungated(pod_set, &member.resource_version, info).map(Some)
}

/// The same for a pod that is known to wait.
pub(super) fn ungated(
    pod_set: &JobPodSet,
    resource_version: &str,
    info: &PodSetInfo,
) -> Result<Patch, StartError> {
    let mut target = merged(pod_set, info)?;
    let placed = |gate: &str| info.scheduling.scheduling_gates.iter().any(|added| added.name == gate);
    // With a topology, its gate is removed when the domain of the pod is known. A pod that was created without the gate does not get it any more.
    let waits_for_place = placed(labels::TOPOLOGY_SCHEDULING_GATE);
    target.scheduling_gates.retain(|gate| pod_set.scheduling.scheduling_gates.contains(gate));
    target.scheduling_gates.retain(|gate| match gate.name.as_str() {
        labels::ADMISSION_SCHEDULING_GATE => false,
        labels::TOPOLOGY_SCHEDULING_GATE => waits_for_place,
        _ => true,
    });
    let mut operations = template_operations("", pod_set.has_template_metadata, &pod_set.scheduling, &target);
    if target.affinity != pod_set.scheduling.affinity {
        operations.push(json!({"op": "add", "path": "/spec/affinity", "value": target.affinity}));
    }
    Ok(Patch::Json(operations).pinned(resource_version))
}

/// The status that is applied just before a pod is deleted, with the reason.
pub fn termination(member: &Member, reason: StopReason<'_>, message: &str, at: Timestamp) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": member.name, "namespace": member.namespace, "uid": member.uid},
        "status": {"conditions": [{
            "type": "TerminationTarget", "status": "True", "reason": reason.to_string(), "message": message,
            "lastTransitionTime": whole_seconds(at),
        }]},
    })
}

/// The patch that ungates a pod and removes the marks of a managed pod: it is a part of a running job. Its topology gate stays if `is_placed`: the
/// job's template has the gate, too.
pub fn release(member: &Member, is_placed: bool) -> Patch {
    let gates = [labels::ADMISSION_SCHEDULING_GATE, labels::TOPOLOGY_SCHEDULING_GATE];
    let gone = gates.into_iter().take(if is_placed { 1 } else { 2 });
    let gone: Vec<_> = gone.map(|name| json!({"$patch": "delete", "name": name})).collect();
    let body = json!({
        "metadata": {
            "labels": {labels::MANAGED: null},
            "$deleteFromPrimitiveList/finalizers": [labels::MANAGED_FINALIZER],
        },
        "spec": {"schedulingGates": gone},
    });
    Patch::Strategic(body).pinned(&member.resource_version)
}

/// The patch that removes our finalizer from a pod, if it has it. Others stay.
pub fn finalize(member: &Member) -> Option<Patch> {
    let body = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [labels::MANAGED_FINALIZER]}});
    member.held.then(|| Patch::Strategic(body).pinned(&member.resource_version))
}
