//! The adapter of batch/v1 Job (docs/reference/07-integrations.md 7.1 and 7.2).

#[cfg(rustfmt)]
mod descriptor;
mod rules;
mod spare;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::config::selector_matches;
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, JobPodSet, JobView, PodSetInfo};
use sluice_api::{labels, text};

use crate::adapter::{Adapter, Change, Schema, State};
use crate::bulk::{LARGE_SELECTOR, is_large_selector};
use crate::described;
use crate::made_pod::{MadePod, Maker};
use crate::object;
use crate::patch::{Patch, Step, set};
use crate::review::{Context, Violations};
use crate::scheduling::{
    StartError, holds_pods_back, merged, paired, restored, still_needed, template_merge,
};

/// Labels of the pod template that the Job controller generates: in no Workload, and kept when templates are restored.
const GENERATED_LABELS: [&str; 3] = ["job-name", "controller-uid", CONTROLLER_UID];

/// The label of a pod with the UID of its Job, by which the API server makes the Job select its pods.
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// The adapter of batch Jobs.
pub(crate) struct Job;

impl Adapter for Job {
    fn kind(&self) -> JobKind {
        JobKind::JOB
    }

    fn observe(&self, object: &Value) -> JobView {
        observe(object)
    }

    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        start(view, infos)
    }

    fn stop(&self, view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
        stop(view, infos)
    }

    fn ask_controller(&self, view: &JobView, at: Timestamp) -> Step {
        ask_controller(view, at)
    }

    fn status(&self, object: &Value, state: State) -> Value {
        status(object, state)
    }

    fn deadline_seconds(&self, object: &Value) -> Option<i64> {
        object["spec"]["activeDeadlineSeconds"].as_i64()
    }

    fn left_to_complete(&self, object: &Value, succeeded: i64) -> Option<i64> {
        let spec = &object["spec"];
        let completions = spec["completions"].as_i64()?;
        let known = successes(&object["status"]).max(succeeded);
        let over = known.saturating_add(failed_indexes(object));
        (completions > spec["parallelism"].as_i64().unwrap_or(1))
            .then(|| completions.saturating_sub(over).max(0))
    }

    fn failed_for_good(&self, object: &Value) -> i64 {
        failed_indexes(object)
    }

    fn with_pods(&self, object: &Value, pods: i32, gates: Gates) -> Option<Value> {
        Some(rules::with_pods(object, pods, gates))
    }

    fn is_elastic(&self) -> bool {
        true
    }

    /// Its controller counts the pods that its selector matches, deletes surplus ones, and releases all others.
    fn may_be_pod_of(&self, job: &Maker<'_>, pod: &MadePod<'_>) -> bool {
        match &job.marks.selector {
            Some(selector) => selector_matches(selector, pod.labels),
            None => pod.labels.get(CONTROLLER_UID).is_some_and(|uid| *uid == *job.uid),
        }
    }

    fn copies_templates(&self) -> bool {
        true
    }

    fn schemas(&self, _object: &Value) -> Vec<(String, Schema)> {
        vec![(String::new(), Schema::Job)]
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        rules::always(change, violations, context);
        rules::selector(change, violations, context);
        rules::on_update(change, violations, context);
        rules::elastic(change, violations, context);
    }
}

fn status(job: &Value, state: State) -> Value {
    let pods = object::pods_of_job_spec(&job["spec"]);
    match state {
        State::Running { since, ready } => {
            json!({"active": pods, "ready": if ready { pods } else { 0 }, "startTime": whole_seconds(since)})
        }
        State::Idle => json!({"active": 0, "ready": 0}),
        State::Ended { at, success: true } => json!({
            "succeeded": object::int(&job["spec"]["completions"]).unwrap_or(pods),
            "completionTime": whole_seconds(at),
            "conditions": object::ended("Complete", "CompletionsReached", "Reached expected number of succeeded pods", at),
        }),
        State::Ended { at, success: false } => json!({
            "failed": pods,
            "conditions":
                object::ended("Failed", "DeadlineExceeded", "Job was active longer than specified deadline", at),
        }),
    }
}

/// A Job as the engine sees it.
fn observe(job: &Value) -> JobView {
    let (spec, status) = (&job["spec"], &job["status"]);
    let mut view = object::from_metadata(JobKind::JOB, job);
    view.finished = object::finished(status, "Complete", "Failed");
    let marked = view.annotations.get(labels::STOPPING).is_some_and(|value| value == "true");
    view.stopping = spec["suspend"] == true && marked;
    view.suspended = spec["suspend"] == true && !marked;
    view.active = status["active"].as_i64().is_some_and(|pods| pods != 0);
    view.active_pods = object::int(&status["active"]).unwrap_or(0).max(0);
    view.suspended_condition = object::suspended_condition(status);
    view.started = status["startTime"].is_string();
    let parallelism = object::int(&spec["parallelism"]).unwrap_or(1);
    view.completions_equal =
        spec["completionMode"] == "Indexed" && object::int(&spec["completions"]) == Some(parallelism);
    view.ending = is_ending(spec, status);
    // The Job controller sets a start time itself on a Job that is not suspended, and needs none if nothing has to be completed.
    let completes = object::int(&spec["completions"]).is_none_or(|completions| completions > 0);
    let blocked = spec["suspend"] == true && completes;
    view.end_blocked = view.ending && !view.started && blocked && view.finished.is_none();
    view.stop_waits = view.stopping && !view.ending && (view.active || uncounted_successes(status) > 0);
    view.terminating = object::int(&status["terminating"]).unwrap_or(0).max(0);
    view.spare_failures = spare::failures(spec, status);
    view.active_deadline_seconds = spec["activeDeadlineSeconds"].as_i64();
    let selector = spec.get("selector").filter(|_| spec["manualSelector"] == true);
    // A selector that is too large identifies no pods.
    let is_large = selector.is_some_and(is_large_selector);
    let selector = selector.filter(|_| !is_large);
    view.pod_selector = selector.and_then(|selector| LabelSelector::deserialize(selector).ok()).map(Arc::new);
    let count = object::pods_of_job_spec(spec);
    // An index that failed for good gets no pod any more.
    view.pods_ready = ready_pods(status).saturating_add(failed_indexes(job)) >= i64::from(count);
    view.ready = object::int(&status["ready"]).unwrap_or(0).max(0);
    view.reclaimable = reclaimable(spec, status, count).into_iter().collect();
    let mut pod_sets = described::pod_sets(JobKind::JOB, job, &GENERATED_LABELS);
    for pod_set in pod_sets.iter_mut().flatten() {
        pod_set.min_count = min_parallelism(&view).filter(|least| (1..=count).contains(least));
    }
    if is_large {
        pod_sets = Err(format!("spec.selector: {LARGE_SELECTOR}"));
    }
    object::set_pod_sets(&mut view, pod_sets);
    view
}

/// Pods that succeeded and that the Job controller has not counted yet.
fn uncounted_successes(status: &Value) -> i64 {
    let uncounted = status["uncountedTerminatedPods"]["succeeded"].as_array().map_or(0, Vec::len);
    i64::try_from(uncounted).unwrap_or(i64::MAX)
}

/// Pods that succeeded.
fn successes(status: &Value) -> i64 {
    let counted = status["succeeded"].as_i64().unwrap_or(0);
    counted.saturating_add(uncounted_successes(status))
}

/// Pods that are ready or have succeeded.
fn ready_pods(status: &Value) -> i64 {
    successes(status).saturating_add(status["ready"].as_i64().unwrap_or(0))
}

/// Whether the Job controller will mark the Job finished, suspended or not, with its current pods. It has decided so, or nothing is left to run: it
/// finishes a Job without `completions` with its first success, once no pod is active.
fn is_ending(spec: &Value, status: &Value) -> bool {
    if object::finished(status, "SuccessCriteriaMet", "FailureTarget").is_some() {
        return true;
    }
    if status["active"].as_i64().is_some_and(|pods| pods != 0) {
        return false;
    }
    match object::int(&spec["completions"]) {
        Some(completions) => succeeded_completions(spec, status) >= i64::from(completions),
        None => successes(status) > 0,
    }
}

/// Completions that succeeded.
fn succeeded_completions(spec: &Value, status: &Value) -> i64 {
    if spec["completionMode"] == "Indexed" {
        covered(&[status["completedIndexes"].as_str().unwrap_or_default()])
    } else {
        successes(status)
    }
}

/// Ended pods without a replacement: only if more than one runs at a time.
///
/// docs/reference/07-integrations.md subtracts from the parallelism; the pod set has `count` pods, which is less if there are fewer completions, and
/// no more pods than that can be reclaimed.
fn reclaimable(spec: &Value, status: &Value, count: i32) -> Option<(String, i32)> {
    if count <= 1 {
        return None;
    }
    let completions = object::int(&spec["completions"]).map_or(i64::from(count), i64::from);
    let terminal = if spec["completionMode"] == "Indexed" {
        let text = |key: &str| status[key].as_str().unwrap_or_default();
        covered(&[text("completedIndexes"), text("failedIndexes")])
    } else {
        status["succeeded"].as_i64().unwrap_or(0)
    };
    if terminal <= 0 {
        return None;
    }
    let remaining = completions.saturating_sub(terminal).max(0);
    let free = i64::from(count) - remaining;
    (free > 0).then(|| (labels::DEFAULT_POD_SET_NAME.to_owned(), object::saturated(free)))
}

/// The indexes that failed for good: no other pods are made for them.
fn failed_indexes(job: &Value) -> i64 {
    covered(&[job["status"]["failedIndexes"].as_str().unwrap_or_default()])
}

/// The number of indexes in at least one of these lists (`1,3-5`). A part that cannot be read has none.
fn covered(lists: &[&str]) -> i64 {
    let mut intervals: Vec<(i64, i64)> = lists
        .iter()
        .flat_map(|list| list.split(','))
        .filter_map(|item| {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            Some((first.trim().parse::<u32>().ok()?.into(), last.trim().parse::<u32>().ok()?.into()))
        })
        .collect();
    intervals.sort_unstable();
    let (mut total, mut next) = (0, 0);
    for (first, last) in intervals {
        let first = first.max(next);
        if last >= first {
            total += last - first + 1;
            next = last + 1;
        }
    }
    total
}

/// The annotation `job-min-parallelism`, if it is a number.
pub(crate) fn min_parallelism(view: &JobView) -> Option<i32> {
    view.annotations.get(labels::JOB_MIN_PARALLELISM)?.parse().ok()
}

/// Whether a start with fewer pods sets the completions, too: the user wants that, and the API server lets both change together.
fn completions_follow(view: &JobView) -> bool {
    view.completions_equal && wants_equal_completions(&view.annotations)
}

/// The annotation `job-completions-equal-parallelism`.
fn wants_equal_completions(annotations: &BTreeMap<String, String>) -> bool {
    let wanted = annotations.get(labels::JOB_COMPLETIONS_EQUAL_PARALLELISM);
    wanted.is_some_and(|value| text::boolean(value) == Some(true))
}

/// The one patch that starts a Job: templates, counts, `suspend: false`.
///
/// Pods that ended are not in the admitted number: the Job controller makes only as many as completions are left, so that the Job's own numbers stay.
/// `parallelism` is written only for a Job that is admitted with fewer pods than it asks for.
fn start(view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
    let pairs = paired(view, infos)?;
    let mut body = json!({"spec": {"suspend": false}});
    for (pod_set, info) in pairs {
        let needed = still_needed(view, pod_set);
        let elastic = holds_pods_back(info);
        let least = if elastic { 0 } else { pod_set.min_count.map_or(needed, |least| least.min(needed)) };
        if !(least..=pod_set.count).contains(&info.count) {
            return Err(StartError::Count { pod_set: pod_set.name.clone(), admitted: info.count, needed });
        }
        if pod_set.min_count.is_some() && !elastic {
            // If pods have ended, the wrong indexes would be left out with fewer completions.
            let completions = completions_follow(view) && needed == pod_set.count;
            put_count(&mut body, completions, pod_set, info);
        }
        if let Some(template) = template_merge(&pod_set.scheduling, &merged(pod_set, info)?) {
            set(&mut body, &["spec", "template"], template);
        }
    }
    Ok(Patch::Merge(body).pinned(&view.resource_version))
}

/// The number of pods, where it is not what it should be; and that of `completions`, if these change with it.
fn put_count(body: &mut Value, completions: bool, pod_set: &JobPodSet, info: &PodSetInfo) {
    if info.count != pod_set.count {
        set(body, &["spec", "parallelism"], Value::from(info.count));
        if completions {
            set(body, &["spec", "completions"], Value::from(info.count));
        }
    }
}

/// The next patches that stop a Job. Repeating one does nothing, so that all can be sent again after a crash in between; until the last one the Job
/// counts as not suspended.
///
/// 1. `suspend: true` with the annotation that marks a stop in progress. The rest comes with the next call, which has seen the answer and, once
///    [`JobView::stop_waits`] is false, that no pod is active: until then one may succeed, and a finished Job must keep its start time,
///    without which it cannot be marked finished.
/// 2. Clear `status.startTime`: before that the API server refuses changes of the template. Kubernetes ≥ 1.36 does it itself.
/// 3. Restore the template and drop the annotation.
///
/// A finished Job gets its start time back if it has lost it, as a pod may still succeed while it terminates.
fn stop(view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
    let step = |subresource, body| Step { subresource, patch: Patch::Merge(body) };
    let mut steps = Vec::new();
    if view.ending {
        if view.end_blocked {
            steps.push(step(Some("status"), json!({"status": {"startTime": view.created.to_string()}})));
        }
        if view.stopping {
            let mut end = Value::Null;
            set(&mut end, &["metadata", "annotations", labels::STOPPING], Value::Null);
            steps.push(step(None, end));
        }
        return pin_first(steps, view);
    }
    if !view.stopping {
        let mut begin = json!({"spec": {"suspend": true}});
        set(&mut begin, &["metadata", "annotations", labels::STOPPING], Value::from("true"));
        return pin_first(vec![step(None, begin)], view);
    }
    if view.started {
        steps.push(step(Some("status"), json!({"status": {"startTime": null}})));
    }
    let mut end = Value::Null;
    set(&mut end, &["metadata", "annotations", labels::STOPPING], Value::Null);
    for pod_set in &view.pod_sets {
        let Some(info) = infos.iter().find(|info| info.name == pod_set.name) else { continue };
        // Only a start with fewer pods changes the number: any other change is the user's, and stays.
        if min_parallelism(view).is_some() && !pod_set.holds_pods_back() {
            // What the start wrote decides, not the annotation, which may have changed meanwhile: where both numbers are the same, it wrote both.
            put_count(&mut end, view.completions_equal, pod_set, info);
        }
        let target = restored(pod_set, info, &GENERATED_LABELS);
        if let Some(template) = template_merge(&pod_set.scheduling, &target) {
            set(&mut end, &["spec", "template"], template);
        }
    }
    steps.push(step(None, end));
    pin_first(steps, view)
}

/// The patch of the condition that only the Job controller sets to `True`.
fn ask_controller(view: &JobView, at: Timestamp) -> Step {
    let mut condition = object::not_confirmed(at);
    condition["lastProbeTime"] = json!(whole_seconds(at));
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    Step { subresource: Some("status"), patch: patch.pinned(&view.resource_version) }
}

fn pin_first(steps: Vec<Step>, view: &JobView) -> Vec<Step> {
    let pin = |(at, step): (usize, Step)| if at == 0 { step.pinned(&view.resource_version) } else { step };
    steps.into_iter().enumerate().map(pin).collect()
}

#[cfg(test)]
mod tests;
