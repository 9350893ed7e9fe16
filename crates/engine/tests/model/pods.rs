//! Pods that are queued themselves, and the kubelet that runs them.

use std::cell::LazyCell;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_api::status_apply::apply_status;
use sluice_engine::{Kind, ObjectRef, PodStep, WriteError};
use sluice_jobs::Patch;

use super::{Api, condition};

const GATE: &str = "kueue.x-k8s.io/admission";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
/// On a pod that its user lets run.
pub const FREED: &str = "test/freed";

/// On the pods of a LeaderWorkerSet, its name; on its Workloads, the number of the group.
const SET: &str = "leaderworkerset.sigs.k8s.io/name";
const INDEX: &str = "kueue.x-k8s.io/component-workload-index";

/// The number of the group of a pod that is named as those of a LeaderWorkerSet are.
fn group(metadata: &Value) -> Option<&str> {
    metadata["name"].as_str()?.split('-').nth(1)
}

/// Whether an object is a pod that is queued.
pub fn is_pod(reference: &ObjectRef) -> bool {
    reference.kind == Kind::Job(JobKind::POD)
}

/// A gated pod, as the webhook leaves it.
pub fn pod(name: &str, queue: &str, cpu: &str) -> Value {
    let container = json!({"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "team-a", "name": name,
            "labels": {"kueue.x-k8s.io/queue-name": queue, MANAGED: "true"},
            "annotations": {"kueue.x-k8s.io/role-hash": "main"},
            "finalizers": [MANAGED],
        },
        "spec": {"schedulingGates": [{"name": GATE}], "containers": [container]},
        "status": {"phase": "Pending"},
    })
}

/// The same in a group of `total`.
pub fn member(name: &str, group: &str, total: usize, role: &str) -> Value {
    let mut pod = pod(name, "lq", "1");
    pod["metadata"]["labels"][GROUP] = json!(group);
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!(total.to_string());
    pod["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] = json!(role);
    pod
}

fn reference(name: &str) -> ObjectRef {
    ObjectRef::namespaced(Kind::Job(JobKind::POD), "team-a", name)
}

fn is_gated(pod: &Value) -> bool {
    pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE))
}

fn has_ended(pod: &Value) -> bool {
    pod["status"]["phase"] == "Succeeded" || pod["status"]["phase"] == "Failed"
}

/// Whether nothing keeps a pod that is being deleted: no finalizer and no kubelet.
fn may_go(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
        && (pod["spec"]["nodeName"].is_null() || has_ended(pod))
}

impl Api {
    pub fn add_pod(&mut self, pod: Value) {
        self.put(Kind::Job(JobKind::POD), pod);
    }

    /// A pod, if it is there.
    pub fn pod(&self, name: &str) -> Option<&Value> {
        self.json(&reference(name))
    }

    /// The names of all pods.
    pub fn pods(&self) -> Vec<String> {
        self.names(Kind::Job(JobKind::POD)).into_iter().map(|pod| pod.name.to_string()).collect()
    }

    /// Whether a pod runs, or may at any time.
    pub fn is_free(&self, name: &str) -> bool {
        let waits = |pod: &Value| is_gated(pod) || has_ended(pod);
        self.pod(name).is_some_and(|pod| !waits(pod) && pod["metadata"]["deletionTimestamp"].is_null())
    }

    /// Whether a pod waits.
    pub fn is_gated(&self, name: &str) -> bool {
        self.pod(name).is_some_and(is_gated)
    }

    /// Changes a pod as its user or its kubelet would.
    pub fn edit_pod(&mut self, name: &str, patch: &Value) {
        self.edit(&reference(name), patch);
    }

    /// The user takes all gates off a pod.
    pub fn free(&mut self, name: &str) {
        self.edit_pod(
            name,
            &json!({"metadata": {"annotations": {FREED: "yes"}}, "spec": {"schedulingGates": null}}),
        );
    }

    /// A pod has a node, and is in this phase.
    pub fn run_pod(&mut self, name: &str, phase: &str) {
        assert!(!self.is_gated(name), "{name} is gated");
        let ready = if phase == "Running" { "True" } else { "False" };
        let conditions = json!([{"type": "Ready", "status": ready}]);
        self.edit_pod(
            name,
            &json!({"spec": {"nodeName": "n"}, "status": {"phase": phase, "conditions": conditions}}),
        );
    }

    pub fn delete_queued_pod(&mut self, name: &str) {
        self.delete(&reference(name));
    }

    pub(super) fn delete_pod(&mut self, reference: &ObjectRef, mut pod: Value) {
        if may_go(&pod) {
            let uid: Arc<str> = pod["metadata"]["uid"].as_str().unwrap().into();
            return self.remove(reference, &uid);
        }
        if pod["metadata"]["deletionTimestamp"].is_null() {
            let grace = if pod["spec"]["nodeName"].is_null() { 0 } else { 30 };
            let until = self.now.checked_add(jiff::SignedDuration::from_secs(grace)).unwrap();
            pod["metadata"]["deletionTimestamp"] = json!(until.to_string());
            self.store(reference, pod, true);
        }
    }

    /// Pods that were stopped are gone now. Says whether there were any.
    pub fn pods_vanish(&mut self) -> bool {
        let stopping: Vec<_> = self.jobs().filter(|(_, j)| j.stopping_pods).map(|(r, _)| r.clone()).collect();
        for reference in &stopping {
            self.edit_job_at(reference, |job| {
                job.stopping_pods = false;
                job.view.active = false;
            });
        }
        !stopping.is_empty() | self.queued_pods_vanish()
    }

    /// The kubelet ends the pods that are being deleted. Says whether there were any.
    fn queued_pods_vanish(&mut self) -> bool {
        let mut any = false;
        for reference in self.names(Kind::Job(JobKind::POD)) {
            let mut pod = self.json(&reference).unwrap().clone();
            if pod["metadata"]["deletionTimestamp"].is_null()
                || pod["spec"]["nodeName"].is_null()
                || has_ended(&pod)
            {
                continue;
            }
            any = true;
            pod["status"]["phase"] = json!("Failed");
            self.put_pod(&reference, pod);
        }
        any
    }

    /// Stores a pod, or lets it go.
    fn put_pod(&mut self, reference: &ObjectRef, pod: Value) {
        if !pod["metadata"]["deletionTimestamp"].is_null() && may_go(&pod) {
            let uid: Arc<str> = pod["metadata"]["uid"].as_str().unwrap().into();
            self.remove(reference, &uid);
        } else {
            self.store(reference, pod, false);
        }
    }

    /// The garbage collector deletes the Workloads of which this was the last owner.
    pub(super) fn collect_workloads(&mut self, uid: &str) {
        for workload in self.names(Kind::Workload) {
            let Some(owners) = self.json(&workload).and_then(|w| w["metadata"]["ownerReferences"].as_array())
            else {
                continue;
            };
            let owned = owners.iter().any(|owner| owner["uid"] == uid);
            let there = |owner: &Value| {
                let pod = self.pod(owner["name"].as_str().unwrap());
                pod.is_some_and(|pod| pod["metadata"]["uid"] == owner["uid"])
            };
            if owned && !owners.iter().any(there) {
                self.delete(&workload);
            }
        }
    }

    /// Does what a step asks for.
    pub(super) fn step(&mut self, reference: &ObjectRef, step: &PodStep) -> Result<(), WriteError> {
        let missing = || WriteError::NotFound(reference.to_string());
        let mut pod = self.json(reference).cloned().ok_or_else(missing)?;
        match step {
            PodStep::Patch(Patch::Json(operations)) => {
                let version = operations.iter().find(|o| o["path"] == "/metadata/resourceVersion");
                if version.is_none_or(|o| o["value"] != pod["metadata"]["resourceVersion"]) {
                    return Err(WriteError::Conflict(reference.to_string()));
                }
                let patch: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
                json_patch::patch(&mut pod, &patch).unwrap();
                self.put_pod(reference, pod);
            }
            PodStep::Patch(Patch::Strategic(body)) => {
                if body["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"] {
                    return Err(WriteError::Conflict(reference.to_string()));
                }
                let removed = body["metadata"]["$deleteFromPrimitiveList/finalizers"].as_array().unwrap();
                pod["metadata"]["finalizers"]
                    .as_array_mut()
                    .unwrap()
                    .retain(|known| !removed.contains(known));
                if body["metadata"]["labels"].is_object() {
                    json_patch::merge(&mut pod["metadata"]["labels"], &body["metadata"]["labels"]);
                }
                let gates = body["spec"]["schedulingGates"].as_array().into_iter().flatten();
                for gate in gates {
                    assert_eq!(gate["$patch"], "delete");
                    let known = pod["spec"]["schedulingGates"].as_array_mut().unwrap();
                    known.retain(|known| known["name"] != gate["name"]);
                }
                self.put_pod(reference, pod);
            }
            PodStep::Patch(Patch::Merge(body)) => {
                for field in ["resourceVersion", "uid"] {
                    if body["metadata"][field] != pod["metadata"][field] {
                        return Err(WriteError::Conflict(reference.to_string()));
                    }
                }
                json_patch::merge(&mut pod, body);
                self.put_pod(reference, pod);
            }
            PodStep::ApplyStatus { field_manager, body } => {
                if body["metadata"]["uid"] != pod["metadata"]["uid"] {
                    return Err(WriteError::Conflict(reference.to_string()));
                }
                apply_status(&mut pod["status"], &body["status"], field_manager);
                self.put_pod(reference, pod);
            }
            PodStep::Patch(Patch::Apply(..)) => {
                unreachable!("a pod's status is applied by a step of its own")
            }
            PodStep::Delete { uid } => {
                if pod["metadata"]["uid"] != **uid {
                    return Err(WriteError::Conflict(reference.to_string()));
                }
                self.delete(reference);
            }
        }
        Ok(())
    }

    /// No pod may be scheduled whose Workload is not admitted, unless its user lets it.
    pub(super) fn check_pods(&self) {
        let workloads = LazyCell::new(|| self.workloads());
        for reference in self.names(Kind::Job(JobKind::POD)) {
            let pod = self.json(&reference).unwrap();
            let metadata = &pod["metadata"];
            let freed =
                metadata["annotations"][FREED].is_string() || metadata["deletionTimestamp"].is_string();
            if is_gated(pod) || has_ended(pod) || freed {
                continue;
            }
            let admitted = workloads.iter().any(|workload| {
                let mut owners = workload.metadata.owner_references.iter().flatten();
                let taken_back = condition(workload, "QuotaReserved") == "True";
                let above = &metadata["ownerReferences"][0]["uid"];
                // A part of a job runs on that one's quota.
                let part = self.jobs().find(|(_, job)| *above == *job.view.job.uid);
                let top = part.and_then(|(_, job)| job.view.controller.as_ref()).map(|owner| &*owner.uid);
                let (set, group) = (&metadata["labels"][SET], group(metadata));
                let said = workload.metadata.annotations.as_ref().and_then(|all| all.get(INDEX));
                let of_group = said.is_none_or(|said| Some(&**said) == group);
                let own = |uid: &str| metadata["uid"] == *uid || *above == *uid || top == Some(uid);
                owners.any(|owner| own(&owner.uid) || of_group && *set == *owner.name)
                    && (condition(workload, "Admitted") == "True" || taken_back)
            });
            assert!(admitted, "pod {reference} may be scheduled without an admitted Workload");
        }
    }
}
