//! What every job kind has in common: reading metadata, pod templates and conditions from the API object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::job::{ControllerRef, JobFinished, JobKind, JobPodSet, JobRef, JobView, PodScheduling};
use sluice_api::{labels, names};

use crate::bulk::{Bulk, STARTED};
use crate::patch::{Patch, Step};

/// The highest number of pod sets of one Workload (docs/reference/01-api.md 1.4).
pub(crate) const MAX_POD_SETS: usize = 18;
/// Why a job cannot be read that has more levels than [`sluice_api::slim::raw::LEVELS`].
pub(crate) const TOO_DEEP: &str = "a queued job may not be nested more than 100 levels deep";

/// The most bytes of a PriorityClass's name.
const LONGEST_NAME: usize = 253;
/// The most bytes of a text in an owner reference that names an object: those of `group/version`.
const LONGEST_REFERENCE: usize = LONGEST_NAME + 1 + 63;

/// A view with everything that `metadata` says; the rest is that of a job without pods.
pub(crate) fn from_metadata(kind: JobKind, object: &Value) -> JobView {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default();
    let labels = string_map(&metadata["labels"]);
    let annotations = string_map(&metadata["annotations"]);
    let either = |first: &BTreeMap<String, String>, second: &BTreeMap<String, String>, key: &str| {
        let filled = |map: &BTreeMap<String, String>| map.get(key).filter(|value| !value.is_empty()).cloned();
        filled(first).or_else(|| filled(second))
    };
    JobView {
        job: JobRef {
            kind,
            namespace: Arc::from(text("namespace")),
            name: Arc::from(text("name")),
            group: None,
            uid: Arc::from(text("uid")),
        },
        resource_version: text("resourceVersion").to_owned(),
        generation: metadata["generation"].as_i64().unwrap_or_default(),
        created: text("creationTimestamp").parse().unwrap_or(Timestamp::UNIX_EPOCH),
        deleting: metadata["deletionTimestamp"].is_string(),
        queue_name: either(&labels, &annotations, labels::QUEUE_NAME),
        workload_priority_class: labels.get(labels::PRIORITY_CLASS).filter(|name| !name.is_empty()).cloned(),
        pod_priority_class: priority_class(kind, object),
        prebuilt_workload: either(&annotations, &labels, labels::PREBUILT_WORKLOAD_NAME),
        maximum_execution_time_seconds: labels
            .get(labels::MAX_EXEC_TIME_SECONDS)
            .and_then(|text| text.parse().ok())
            .filter(|seconds| *seconds > 0),
        active_deadline_seconds: None,
        restarts: 0,
        admission_gated_by: annotations.get(labels::ADMISSION_GATED_BY).cloned(),
        labels,
        annotations: annotations
            .into_iter()
            .filter(|(key, _)| {
                key.starts_with(labels::PREFIX) || key.starts_with(labels::PROVISIONING_REQUEST_PREFIX)
            })
            .collect(),
        controller: controller(&metadata["ownerReferences"]),
        managed_by: object["spec"]["managedBy"].as_str().map(str::to_owned),
        suspended: false,
        stopping: false,
        stop_waits: false,
        suspended_condition: None,
        observed_generation: None,
        active: false,
        activity_unknown: false,
        status_unread: false,
        active_pods: 0,
        terminating: 0,
        spare_failures: None,
        ending: false,
        end_blocked: false,
        completions_equal: false,
        started: false,
        finished: None,
        pods_ready: false,
        ready: 0,
        reclaimable: Vec::new(),
        running: Vec::new(),
        pod_sets: Vec::new(),
        groups: None,
        may_clean_up: false,
        skipped: false,
        slim: false,
        part_names: Vec::new(),
        leaves_pods: false,
        pod_selector: None,
        autoscaled: false,
        template: None,
        on_hold: None,
        invalid: None,
    }
}

/// Puts the pod sets in, or the reason why the job cannot become a Workload.
pub(crate) fn set_pod_sets(view: &mut JobView, pod_sets: Result<Vec<JobPodSet>, String>) {
    match pod_sets {
        Ok(pod_sets) if pod_sets.len() > MAX_POD_SETS => {
            view.invalid = Some(format!("too many pod sets: {}, at most {MAX_POD_SETS}", pod_sets.len()));
        }
        Ok(pod_sets) if twice(&pod_sets).is_some() => {
            view.invalid =
                twice(&pod_sets).map(|name| format!("more than one pod set has the name {name:?}"));
        }
        Ok(pod_sets) => {
            let classes = pod_sets.iter().filter_map(|pod_set| pod_set.template.as_ref()?.spec.as_ref());
            let of_templates =
                || classes.filter_map(|spec| spec.priority_class_name.clone()).find(|name| !name.is_empty());
            view.pod_priority_class = view.pod_priority_class.take().or_else(of_templates);
            // A CRD does not bound it.
            if view.pod_priority_class.take_if(|name| name.len() > LONGEST_NAME).is_some() {
                view.invalid =
                    Some(format!("priorityClassName: may not be more than {LONGEST_NAME} bytes long"));
            }
            view.pod_sets = pod_sets;
            view.may_clean_up = view.looks_like_clean_up();
        }
        Err(why) => view.invalid = Some(why),
    }
}

/// The PriorityClass that an object names for all its pods, where its kind has a field for that.
fn priority_class(kind: JobKind, object: &Value) -> Option<String> {
    let path = kind.integration().priority_class;
    let named = if path.is_empty() { None } else { at(object, path).as_str() };
    named.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// A name that several pod sets have. No Workload can have these.
fn twice(pod_sets: &[JobPodSet]) -> Option<&str> {
    let mut known = BTreeSet::new();
    pod_sets.iter().map(|pod_set| &*pod_set.name).find(|name| !known.insert(*name))
}

/// Reads one pod template. `path` is its location, for the message; `generated_labels` stay out of the Workload.
pub(crate) fn pod_set(
    name: &str,
    count: i32,
    template: &Value,
    path: &str,
    generated_labels: &[&str],
) -> Result<JobPodSet, String> {
    // The webhook refuses less, and may have been away.
    if let Some(why) = Bulk::of(template).excess(STARTED, Bulk::default()) {
        return Err(format!("{path}: {why}"));
    }
    let mut typed = PodTemplateSpec::deserialize(template).map_err(|error| format!("{path}: {error}"))?;
    let Some(spec) = typed.spec.as_mut() else { return Err(format!("{path}.spec: required")) };
    names::dedupe_env(spec);
    let (containers_hash, requests_hash) = (names::containers_hash(spec), names::requests_hash(spec));
    let metadata = typed.metadata.take().unwrap_or_default();
    let mut scheduling = PodScheduling {
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default(),
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        tolerations: spec.tolerations.clone().unwrap_or_default(),
        scheduling_gates: spec.scheduling_gates.clone().unwrap_or_default(),
        affinity: spec.affinity.clone().map(Box::new),
    };
    let topology_request = crate::topology::request(&scheduling.annotations);
    let everything = std::mem::take(&mut scheduling.labels);
    let kept: BTreeMap<_, _> = everything
        .iter()
        .filter(|(key, _)| !generated_labels.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    scheduling.labels = everything;
    // A Workload keeps only labels and annotations of a template's metadata (docs/reference/01-api.md 1.4).
    if !kept.is_empty() || !scheduling.annotations.is_empty() {
        typed.metadata = Some(ObjectMeta {
            labels: (!kept.is_empty()).then_some(kept),
            annotations: (!scheduling.annotations.is_empty()).then(|| scheduling.annotations.clone()),
            ..ObjectMeta::default()
        });
    }
    Ok(JobPodSet {
        name: name.to_ascii_lowercase(),
        written_name: None,
        count,
        parts: 1,
        min_count: None,
        template: Some(Arc::new(typed)),
        containers_hash,
        requests_hash,
        part_hash: None,
        kueues_hash: None,
        scheduling,
        has_template_metadata: template["metadata"].is_object(),
        unwritten: None,
        exclusive_topology: None,
        topology_request,
        wrapped: None,
    })
}

/// The first condition of one of these types that is true, as the end of a job. The type that means success is `success`.
pub(crate) fn finished(status: &Value, success: &str, failure: &str) -> Option<JobFinished> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().filter(|condition| condition["status"] == "True").find_map(|condition| {
        let kind = condition["type"].as_str()?;
        (kind == success || kind == failure).then(|| JobFinished {
            success: kind == success,
            message: condition["message"].as_str().unwrap_or_default().to_owned(),
        })
    })
}

/// The start and end of a job whose condition `success` is true. A job without a start time has a condition with it, which was true while it was
/// suspended.
pub(crate) fn ran(status: &Value, success: &str) -> Option<(Timestamp, Timestamp)> {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let conditions = status["conditions"].as_array()?;
    let is = |type_: &str, value: &str| {
        let found = conditions.iter().find(|one| one["type"] == type_ && one["status"] == value);
        found.map(|one| &one["lastTransitionTime"])
    };
    let done = is(success, "True")?;
    let ended = time(&status["completionTime"]).or_else(|| time(done))?;
    let started = time(&status["startTime"]).or_else(|| time(is("Suspended", "False")?))?;
    Some((started, ended))
}

/// The list with the one condition that marks the end of a job.
pub(crate) fn ended(type_: &str, reason: &str, message: &str, at: Timestamp) -> Value {
    json!([{
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": whole_seconds(at), "lastProbeTime": whole_seconds(at),
    }])
}

/// The field manager that applies a condition that the job's controller owns.
const ASKED_BY: &str = "kueue-job-controller-Suspended";

/// The condition `Suspended` of a stopped job that its controller has to set to `True`.
pub(crate) fn not_confirmed(at: Timestamp) -> Value {
    json!({
        "type": "Suspended",
        "status": "False",
        "reason": "StopNotConfirmed",
        "message": "The job was stopped; its controller has not confirmed yet that its pods are deleted",
        "lastTransitionTime": whole_seconds(at),
    })
}

/// See [`crate::ask_controller`]: for a kind of a CRD that merges conditions by type.
pub(crate) fn ask_controller(view: &JobView, at: Timestamp) -> Step {
    let patch = Patch::Apply(
        ASKED_BY,
        json!({
            "apiVersion": view.job.kind.api_version(),
            "kind": view.job.kind.kind(),
            "metadata": {"name": &*view.job.name, "namespace": &*view.job.namespace, "uid": &*view.job.uid},
            "status": {"conditions": [not_confirmed(at)]},
        }),
    );
    Step { subresource: Some("status"), patch: patch.pinned(&view.resource_version) }
}

/// The condition `Suspended`: what it says, and since when.
pub(crate) fn suspended_condition(status: &Value) -> Option<(bool, Timestamp)> {
    let condition =
        status["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Suspended")?;
    let since = condition["lastTransitionTime"].as_str()?.parse().ok()?;
    Some((condition["status"] == "True", since))
}

/// A 32-bit integer of the object, if it exists and is one; beyond the bounds, the nearest.
pub(crate) fn int(value: &Value) -> Option<i32> {
    value.as_i64().map(saturated)
}

/// The nearest 32-bit integer.
pub(crate) fn saturated(value: i64) -> i32 {
    i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX })
}

/// The pods that run at the same time in a batch Job's spec: `min(parallelism, completions)`.
pub(crate) fn pods_of_job_spec(spec: &Value) -> i32 {
    let parallelism = int(&spec["parallelism"]).unwrap_or(1);
    int(&spec["completions"]).map_or(parallelism, |completions| parallelism.min(completions)).max(0)
}

/// The controller that owner references name. A reference with longer texts than any object has, which the API server does not refuse, names none.
pub(crate) fn controller(owners: &Value) -> Option<ControllerRef> {
    let owner = owners.as_array()?.iter().find(|owner| owner["controller"] == true)?;
    let text = |key: &str| {
        let text = owner[key].as_str().unwrap_or_default();
        (text.len() <= LONGEST_REFERENCE).then(|| text.to_owned())
    };
    Some(ControllerRef {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid")?,
    })
}

pub(crate) fn string_map(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The value at a path; null where there is none.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, key| &value[*key])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_with_longer_texts_than_any_object_has_is_none() {
        let is_one = |key: &str, bytes: usize| {
            let mut owner =
                json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u", "controller": true});
            owner[key] = json!("x".repeat(bytes));
            controller(&json!([owner])).is_some()
        };
        for key in ["apiVersion", "kind", "name", "uid"] {
            assert!(is_one(key, LONGEST_REFERENCE) && !is_one(key, LONGEST_REFERENCE + 1), "{key}");
        }
    }
}
