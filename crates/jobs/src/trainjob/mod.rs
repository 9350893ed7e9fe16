//! The adapter of trainer.kubeflow.org/v1alpha1 TrainJob (docs/reference/07-integrations.md 7.1 and 7.2).
//!
//! A TrainJob names a runtime; its controller makes a JobSet of both. [`expand`] does the same, to know its pods. The additions of admission are an
//! entry of `spec.runtimePatches`, which the controller merges into the templates.

#[cfg(rustfmt)]
mod descriptor;
mod env;
mod expand;
mod merge;
mod patches;
mod policy;

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodSetInfo, TemplateKind, TemplateRef, TemplateUse};
use sluice_api::labels;

use crate::adapter::{Adapter, Schema, State};
use crate::jobset::JobSet;
use crate::object;
use crate::patch::{Patch, Step, set};
use crate::pod_group::PodGroup;
use crate::scheduling::{StartError, merged, paired, still_needed};

/// The field of the JobSet, or of the error, in an object that combines a TrainJob and its runtime.
const EXPANDED: &str = "jobset";
/// The group of runtimes.
const GROUP: &str = "trainer.kubeflow.org";

/// The adapter of TrainJobs.
pub(crate) struct TrainJob;

impl Adapter for TrainJob {
    fn kind(&self) -> JobKind {
        JobKind::TRAIN_JOB
    }

    fn observe(&self, object: &Value) -> JobView {
        let (spec, status) = (&object["spec"], &object["status"]);
        let mut view = object::from_metadata(self.kind(), object);
        let marked = view.annotations.get(labels::STOPPING).is_some_and(|value| value == "true");
        view.stopping = spec["suspend"] == true && marked;
        view.suspended = spec["suspend"] == true && !marked;
        view.active = statuses(object).iter().any(|status| number(status, "active") > 0);
        view.stop_waits = view.stopping && view.active;
        view.finished = self.finished(object);
        view.suspended_condition = object::suspended_condition(status);
        view.active_deadline_seconds = self.deadline_seconds(object);
        match runtime_of(object) {
            Ok(runtime) => {
                let outline =
                    if view.finished.is_some() { String::new() } else { outline(object).to_string() };
                view.template = Some(TemplateUse { object: runtime, outline: Arc::from(outline) });
            }
            Err(why) => view.invalid = Some(why),
        }
        let knows_pods = view.template.is_some() && view.finished.is_none();
        if let Some(expanded) = object.get(EXPANDED).filter(|_| knows_pods) {
            fill_in(&mut view, statuses(object), expanded);
        }
        view
    }

    fn filled(&self, view: &JobView, template: Option<&Value>) -> JobView {
        let mut view = view.clone();
        let Some(used) = &view.template else { return view };
        let outline: Value = serde_json::from_str(&used.outline).unwrap_or_default();
        match template {
            _ if view.finished.is_some() => {}
            Some(runtime) => fill_in(&mut view, statuses(&outline), &expanded(&outline, runtime)),
            None => {
                let missing = format!("spec.runtimeRef: {} does not exist", used.object);
                view.pod_sets.clear();
                view.invalid = Some(missing);
            }
        }
        view
    }

    fn with_template(&self, object: &Value, template: &Value) -> Value {
        let mut whole = object.clone();
        set(&mut whole, &[EXPANDED], expanded(object, template));
        whole
    }

    fn template_of(&self, object: &Value) -> Option<TemplateRef> {
        runtime_of(object).ok()
    }

    /// The part of a runtime that its TrainJobs are made from.
    fn content(&self, template: &Value) -> Value {
        let mut spec = template["spec"].clone();
        if let Some(metadata) = spec.pointer_mut("/template/metadata").and_then(Value::as_object_mut) {
            metadata.retain(|key, _| matches!(key.as_str(), "labels" | "annotations"));
        }
        json!({"spec": spec})
    }

    /// The additions of admission to the templates. The controller accepts them only while the TrainJob is suspended.
    fn prepare(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Option<Step>, StartError> {
        let mut added = Vec::new();
        for (pod_set, info) in paired(view, infos)? {
            let needed = still_needed(view, pod_set);
            if !(needed..=pod_set.count).contains(&info.count) {
                return Err(StartError::Count {
                    pod_set: pod_set.name.clone(),
                    admitted: info.count,
                    needed,
                });
            }
            added.push((pod_set, merged(pod_set, info)?));
        }
        let entries = entries_of(view);
        let wanted = patches::with(&entries, &added);
        Ok((entries != wanted).then(|| {
            let body = json!({"spec": {"runtimePatches": wanted}});
            Step { subresource: None, patch: Patch::Merge(body).pinned(&view.resource_version) }
        }))
    }

    /// The last write of a start; [`Adapter::prepare`] returns the one before.
    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        paired(view, infos)?;
        Ok(Patch::Merge(json!({"spec": {"suspend": false}})).pinned(&view.resource_version))
    }

    /// The next patch of a stop: `suspend: true` with the annotation that says that a stop is under way; then, once no pod is active
    /// ([`JobView::stop_waits`]), what admission added goes, and the annotation. Until then the TrainJob counts as not suspended.
    fn stop(&self, view: &JobView, _infos: &[PodSetInfo]) -> Vec<Step> {
        let mut body = Value::Null;
        let mark = ["metadata", "annotations", labels::STOPPING];
        if view.stopping {
            set(&mut body, &mark, Value::Null);
            let entries = entries_of(view);
            let wanted = patches::without(&entries);
            if entries != wanted {
                set(&mut body, &["spec", "runtimePatches"], Value::Array(wanted));
            }
        } else {
            set(&mut body, &mark, Value::from("true"));
            set(&mut body, &["spec", "suspend"], Value::Bool(true));
        }
        vec![Step { subresource: None, patch: Patch::Merge(body).pinned(&view.resource_version) }]
    }

    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        JobSet.pod_groups(&object[EXPANDED])
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let of_jobset = JobSet.status(&object[EXPANDED], state);
        let mut status = json!({"jobsStatus": of_jobset["replicatedJobsStatus"]});
        if let State::Ended { at, success } = state {
            status["conditions"] = if success {
                object::ended("Complete", "AllJobsCompleted", "jobset completed successfully", at)
            } else {
                object::ended("Failed", "DeadlineExceeded", "TrainJob exceeded its active deadline", at)
            };
        }
        status
    }

    fn deadline_seconds(&self, object: &Value) -> Option<i64> {
        object["spec"]["activeDeadlineSeconds"].as_i64().filter(|seconds| *seconds > 0)
    }

    /// Its templates are those of its runtime.
    fn schemas(&self, _object: &Value) -> Vec<(String, Schema)> {
        Vec::new()
    }
}

fn statuses(object: &Value) -> &[Value] {
    object["status"]["jobsStatus"].as_array().map_or(&[], Vec::as_slice)
}

fn number(status: &Value, key: &str) -> i64 {
    status[key].as_i64().unwrap_or(0)
}

/// The runtime that a TrainJob names. Its controller knows no runtimes of other groups or kinds.
fn runtime_of(object: &Value) -> Result<TemplateRef, String> {
    let named = &object["spec"]["runtimeRef"];
    let text = |key: &str| named[key].as_str().filter(|text| !text.is_empty());
    let (group, kind) = (text("apiGroup").unwrap_or(GROUP), text("kind").unwrap_or("ClusterTrainingRuntime"));
    let name = text("name").ok_or("spec.runtimeRef.name: required")?;
    let known = JobKind::TRAIN_JOB.templates().iter().copied();
    let kind = known.into_iter().find(|known: &TemplateKind| known.kind() == kind && known.group() == group);
    let Some(kind) = kind else {
        return Err(format!("spec.runtimeRef: {:?} of {group:?} is not a kind of runtime", text("kind")));
    };
    let namespace = if kind.namespaced() { object["metadata"]["namespace"].as_str() } else { None };
    Ok(TemplateRef { kind, namespace: namespace.unwrap_or_default().into(), name: name.into() })
}

/// The part of a TrainJob that, with its runtime, determines its pods.
fn outline(object: &Value) -> Value {
    let (spec, metadata) = (&object["spec"], &object["metadata"]);
    let of = |from: &Value, keys: &[&str]| -> Value {
        keys.iter()
            .filter(|key| !from[**key].is_null())
            .map(|key| ((*key).to_owned(), from[*key].clone()))
            .collect()
    };
    json!({
        "metadata": of(metadata, &["name"]),
        "spec": of(spec, &["trainer", "initializer", "runtimePatches"]),
        "status": of(&object["status"], &["jobsStatus"]),
    })
}

/// The entries of `spec.runtimePatches`.
fn entries_of(view: &JobView) -> Vec<Value> {
    let outline = view.template.as_ref().and_then(|used| serde_json::from_str::<Value>(&used.outline).ok());
    let entries =
        outline.and_then(|mut outline| outline.pointer_mut("/spec/runtimePatches").map(Value::take));
    match entries {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// The JobSet that the controller makes of a TrainJob and its runtime, or why it cannot.
fn expanded(object: &Value, runtime: &Value) -> Value {
    expand::jobset(object, runtime).unwrap_or_else(Value::String)
}

/// The pods of a TrainJob with these states of its replicated Jobs.
fn fill_in(view: &mut JobView, statuses: &[Value], jobset: &Value) {
    view.pod_sets.clear();
    view.invalid = None;
    if let Value::String(trouble) = jobset {
        view.invalid = Some(trouble.clone());
        return;
    }
    let mut whole = jobset.clone();
    set(&mut whole, &["status", "replicatedJobsStatus"], Value::Array(statuses.to_vec()));
    let of_jobset = JobSet.observe(&whole);
    view.pods_ready = of_jobset.pods_ready;
    view.reclaimable = of_jobset.reclaimable;
    view.running = of_jobset.running;
    view.pod_priority_class = of_jobset.pod_priority_class;
    view.pod_sets = of_jobset.pod_sets;
    view.invalid = of_jobset.invalid;
}

#[cfg(test)]
mod tests;
