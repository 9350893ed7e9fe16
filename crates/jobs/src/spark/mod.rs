//! The adapter of sparkoperator.k8s.io/v1beta2 SparkApplication (docs/reference/07-integrations.md 7.1 and 7.2): a driver, which makes its executors
//! itself.
//!
//! The object has no whole pod templates. Its pods are described by many fields, which the Spark operator converts to Spark's configuration, and adds
//! to the pods by a webhook. The additions of admission are written to those fields.

#[cfg(rustfmt)]
mod descriptor;
mod pod;
mod rules;

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::job::{JobFinished, JobKind, JobPodSet, JobView, PodScheduling, PodSetInfo};

use self::pod::{Role, executors, template};
use crate::adapter::{Adapter, Change, Schema, State};
use crate::object;
use crate::patch::{Patch, Step};
use crate::pod_group::{PodGroup, path_of};
use crate::review::{Context, Meta, Violations};
use crate::scheduling::{StartError, merged, paired, restored};

/// The adapter of SparkApplications.
pub(crate) struct SparkApplication;

/// The states in which nothing runs, and the operator starts nothing before the spec changes.
const IDLE: [&str; 4] = ["", SUSPENDED, COMPLETED, FAILED];
const SUSPENDED: &str = "SUSPENDED";
const RUNNING: &str = "RUNNING";
const PENDING: &str = "PENDING";
const COMPLETED: &str = "COMPLETED";
const FAILED: &str = "FAILED";
/// How many executors of an application the operator tracks.
const TRACKED: i32 = 1_000;

impl Adapter for SparkApplication {
    fn kind(&self) -> JobKind {
        JobKind::SPARK_APPLICATION
    }

    fn observe(&self, object: &Value) -> JobView {
        let mut view = object::from_metadata(self.kind(), object);
        view.suspended = self.is_suspended(object);
        view.active = !IDLE.contains(&state(object));
        view.finished = self.finished(object);
        // A sidecar keeps a pod running after its program has ended, and the operator lets it.
        view.leaves_pods = true;
        view.part_names = vec![pod::driver_name(object)];
        view.running = executors_that_run(object);
        view.pods_ready =
            state(object) == RUNNING && ready_executors(object) >= executors(object).min(TRACKED);
        object::set_pod_sets(&mut view, pod_sets(object));
        view
    }

    /// One merge patch: most of these fields may not exist yet. The number of executors stays.
    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        let mut changes = Vec::new();
        for (pod_set, info) in paired(view, infos)? {
            if info.count != pod_set.count {
                let (pod_set, needed) = (pod_set.name.clone(), pod_set.count);
                return Err(StartError::Count { pod_set, admitted: info.count, needed });
            }
            changes.push((pod_set, merged(pod_set, info)?));
        }
        Ok(patch(false, &changes).pinned(&view.resource_version))
    }

    fn stop(&self, view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
        let known = |pod_set: &JobPodSet| infos.iter().find(|info| info.name == pod_set.name);
        let changes = view.pod_sets.iter().filter_map(|set| Some((set, restored(set, known(set)?, &[]))));
        let step = Step { subresource: None, patch: patch(true, &changes.collect::<Vec<_>>()) };
        vec![step.pinned(&view.resource_version)]
    }

    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        let of = |role: Role| PodGroup {
            name: Cow::Borrowed(role.name),
            pointer: role.pointer.to_owned(),
            template: Cow::Owned(template(object, role).unwrap_or_default()),
            replicas: 1,
            parallel: role.count(object),
            completions: role.count(object),
            exclusive: None,
        };
        pod::ROLES.map(of).into()
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let submitted = &object["status"]["lastSubmissionAttemptTime"];
        let ended = |state: &str, message: &str, at: Timestamp| {
            json!({"applicationState": {"state": state, "errorMessage": message},
                "lastSubmissionAttemptTime": submitted, "terminationTime": whole_seconds(at)})
        };
        match state {
            State::Running { since, ready } => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let phase = if ready { RUNNING } else { PENDING };
                let executors = (1..=executors(object).min(TRACKED))
                    .map(|number| (format!("{name}-exec-{number}"), json!(phase)));
                json!({"applicationState": {"state": RUNNING}, "lastSubmissionAttemptTime": whole_seconds(since),
                    "executorState": executors.collect::<Map<_, _>>()})
            }
            State::Idle => json!({"applicationState": {"state": SUSPENDED}}),
            State::Ended { at, success: true } => ended(COMPLETED, "", at),
            State::Ended { at, success: false } => ended(FAILED, "driver container failed", at),
        }
    }

    /// A submission that failed is no end: the operator tries again, or says that the application failed.
    fn finished(&self, object: &Value) -> Option<JobFinished> {
        let state = state(object);
        let message = object["status"]["applicationState"]["errorMessage"].as_str().unwrap_or_default();
        [COMPLETED, FAILED]
            .contains(&state)
            .then(|| JobFinished { success: state == COMPLETED, message: message.to_owned() })
    }

    fn ran(&self, object: &Value) -> Option<(Timestamp, Timestamp)> {
        self.finished(object).filter(|finished| finished.success)?;
        let time = |field: &str| object["status"][field].as_str()?.parse().ok();
        Some((time("lastSubmissionAttemptTime")?, time("terminationTime")?))
    }

    fn schemas(&self, object: &Value) -> Vec<(String, Schema)> {
        let written = pod::ROLES.map(|role| format!("{}/template", role.pointer)).into_iter();
        let written = written.filter(|at| object.pointer(at).is_some_and(Value::is_object));
        written.map(|at| (at, Schema::PodTemplate)).collect()
    }

    fn judges(&self, old: &Meta, new: &Meta, context: &Context<'_>) -> bool {
        context.judges_managed(old, new)
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        rules::check(change, violations, context);
    }
}

fn state(object: &Value) -> &str {
    object["status"]["applicationState"]["state"].as_str().unwrap_or_default()
}

/// Whether the operator takes any change of the spec for the wish to run it again.
fn is_over(object: &Value) -> bool {
    [COMPLETED, FAILED].contains(&state(object))
}

fn ready_executors(object: &Value) -> i32 {
    let states = object["status"]["executorState"].as_object().into_iter().flatten();
    let ready = states.filter(|(_, state)| *state == RUNNING || *state == COMPLETED).count();
    i32::try_from(ready).unwrap_or(i32::MAX)
}

/// How many executors run, or are about to: the program may ask Spark for more than the object says.
fn executors_that_run(object: &Value) -> Vec<(String, i32)> {
    let states = object["status"]["executorState"].as_object().into_iter().flatten();
    let run = states.filter(|(_, state)| *state == RUNNING || *state == PENDING).count();
    let run = i32::try_from(run).unwrap_or(i32::MAX);
    if run == 0 || is_over(object) { Vec::new() } else { vec![(pod::ROLES[1].name.to_owned(), run)] }
}

fn pod_sets(object: &Value) -> Result<Vec<JobPodSet>, String> {
    if let Some(trouble) = rules::trouble(object) {
        return Err(trouble);
    }
    let of = |role: Role| {
        let path = path_of(role.pointer);
        let mut pod_set =
            object::pod_set(role.name, role.count(object), &template(object, role)?, &path, &[])?;
        pod_set.has_template_metadata = role.own(object)["template"].is_object();
        Ok(pod_set)
    };
    pod::ROLES.into_iter().map(of).collect()
}

/// The patch that leads the pods to these states.
fn patch(suspend: bool, changes: &[(&JobPodSet, PodScheduling)]) -> Patch {
    let mut spec = Map::from_iter([("suspend".to_owned(), json!(suspend))]);
    if changes.iter().any(|(set, to)| set.scheduling.node_selector != to.node_selector) {
        // The operator has selectors for all pods or for each role, and driver and executors may get different ones.
        spec.insert("nodeSelector".to_owned(), Value::Null);
        for (set, to) in changes {
            put(
                &mut spec,
                &set.name,
                "nodeSelector",
                pod::all_keys(&set.scheduling.node_selector, &to.node_selector),
            );
        }
    }
    for (set, to) in changes {
        let from = &set.scheduling;
        if from.labels != to.labels {
            put(&mut spec, &set.name, "labels", pod::changed_keys(&from.labels, &to.labels));
        }
        if from.annotations != to.annotations {
            put(&mut spec, &set.name, "annotations", pod::changed_keys(&from.annotations, &to.annotations));
        }
        if from.tolerations != to.tolerations {
            put(&mut spec, &set.name, "tolerations", pod::list(&to.tolerations));
        }
        if from.scheduling_gates != to.scheduling_gates {
            let gates = json!({"schedulingGates": to.scheduling_gates});
            put(
                &mut spec,
                &set.name,
                "template",
                pod::with_gates(&set.name, set.has_template_metadata, gates),
            );
        }
    }
    Patch::Merge(json!({"spec": spec}))
}

fn put(spec: &mut Map<String, Value>, role: &str, field: &str, value: Value) {
    let role = spec.entry(role).or_insert_with(|| json!({}));
    role[field] = value;
}

#[cfg(test)]
mod tests;
