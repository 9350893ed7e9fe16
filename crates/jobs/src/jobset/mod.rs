//! The adapter of jobset.x-k8s.io/v1alpha2 JobSet (docs/reference/07-integrations.md 7.1 and 7.2).

#[cfg(rustfmt)]
mod descriptor;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobPodSet, JobView, PodSetInfo, PodsAt};
use sluice_api::labels;

use crate::adapter::{Adapter, Schema, State};
use crate::affinity::Wish;
use crate::described;
use crate::object;
use crate::patch::{Patch, Step};
use crate::pod_group::PodGroup;
use crate::scheduling::{StartError, merged, paired, restored, still_needed, template_operations};

/// The adapter of JobSets.
pub(crate) struct JobSet;

impl Adapter for JobSet {
    fn kind(&self) -> JobKind {
        JobKind::JOB_SET
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

    fn status(&self, object: &Value, state: State) -> Value {
        status(object, state)
    }

    fn copies_templates(&self) -> bool {
        true
    }

    fn schemas(&self, object: &Value) -> Vec<(String, Schema)> {
        let of = |(at, group): (usize, (PodGroup<'_>, &PodsAt))| {
            let part = group.1.parts.map_or("", |parts| parts.template);
            (group.1.at(at) + part, Schema::JobTemplate)
        };
        described::groups(self.kind(), object).into_iter().enumerate().map(of).collect()
    }
}

fn status(jobset: &Value, state: State) -> Value {
    let (active, ready, succeeded) = match state {
        State::Running { ready, .. } => (true, ready, false),
        State::Idle => (false, false, false),
        State::Ended { success, .. } => (false, false, success),
    };
    let count = |job: &PodGroup<'_>, yes: bool| if yes { job.replicas } else { 0 };
    let one = |job: &PodGroup<'_>| {
        json!({
            "name": job.name, "active": count(job, active), "ready": count(job, ready),
            "succeeded": count(job, succeeded), "failed": 0, "suspended": 0,
        })
    };
    let jobs: Value = JobSet.pod_groups(jobset).iter().map(one).collect();
    match state {
        State::Ended { at, success: true } => json!({
            "replicatedJobsStatus": jobs,
            "conditions": object::ended("Completed", "AllJobsCompleted", "jobset completed successfully", at),
        }),
        State::Ended { at, success: false } => json!({
            "replicatedJobsStatus": jobs,
            "conditions": object::ended("Failed", "FailedJobs", "jobset failed", at),
        }),
        State::Running { .. } | State::Idle => json!({"replicatedJobsStatus": jobs}),
    }
}

/// A JobSet as the engine sees it.
fn observe(jobset: &Value) -> JobView {
    let (spec, status) = (&jobset["spec"], &jobset["status"]);
    let mut view = object::from_metadata(JobKind::JOB_SET, jobset);
    view.suspended = spec["suspend"] == true;
    let statuses: &[Value] = status["replicatedJobsStatus"].as_array().map_or(&[], Vec::as_slice);
    let number = |status: &Value, key: &str| status[key].as_i64().unwrap_or(0);
    view.active = statuses.iter().any(|status| number(status, "active") > 0);
    view.finished = object::finished(status, "Completed", "Failed");
    // While replicated Jobs start in order, it says `True` until the last has started.
    if spec["startupPolicy"]["startupPolicyOrder"] != "InOrder" {
        view.suspended_condition = object::suspended_condition(status);
    }
    view.restarts = object::int(&status["restarts"]).unwrap_or(0);
    let jobs = described::groups(JobKind::JOB_SET, jobset);
    let replicas: i64 = jobs.iter().map(|(job, _)| i64::from(job.replicas)).sum();
    let ready: i64 = statuses
        .iter()
        .map(|status| number(status, "ready").saturating_add(number(status, "succeeded")))
        .sum();
    view.pods_ready = ready >= replicas;
    let by_name: BTreeMap<&str, &Value> =
        statuses.iter().rev().map(|status| (name(status), status)).collect();
    view.reclaimable = jobs.iter().filter_map(|(job, _)| pods_of(job, &by_name, "succeeded")).collect();
    view.running = jobs.iter().filter_map(|(job, _)| pods_of(job, &by_name, "active")).collect();
    let pod_sets = jobs.iter().map(|(job, pods)| described::pod_set(job, pods, &[])).collect();
    object::set_pod_sets(&mut view, pod_sets);
    view
}

fn name(status: &Value) -> &str {
    status["name"].as_str().unwrap_or_default()
}

/// The number of pods in the replicas that the status counts under this name: succeeded or active ones.
fn pods_of(job: &PodGroup<'_>, statuses: &BTreeMap<&str, &Value>, counted: &str) -> Option<(String, i32)> {
    let status = statuses.get(&*job.name)?;
    let replicas = object::int(&status[counted])?.clamp(0, job.replicas);
    let pods = replicas.saturating_mul(job.parallel);
    (pods > 0).then(|| (job.name.to_ascii_lowercase(), pods))
}

/// The patch that starts a JobSet: templates and `suspend: false`. A JobSet cannot run with fewer pods than its replicas without success need.
fn start(view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
    let mut operations = Vec::new();
    for (index, (pod_set, info)) in paired(view, infos)?.into_iter().enumerate() {
        let needed = still_needed(view, pod_set);
        if !(needed..=pod_set.count).contains(&info.count) {
            return Err(StartError::Count { pod_set: pod_set.name.clone(), admitted: info.count, needed });
        }
        let target = merged(pod_set, &with_wish(view, pod_set, info))?;
        let has_metadata = pod_set.has_template_metadata;
        operations.extend(template_operations(&template(index), has_metadata, &pod_set.scheduling, &target));
    }
    operations.push(suspend_operation(false));
    Ok(Patch::Json(operations).pinned(&view.resource_version))
}

/// The node affinity to add as an annotation: the affinity of the templates cannot change. What the template says itself stays.
fn with_wish(view: &JobView, pod_set: &JobPodSet, info: &PodSetInfo) -> PodSetInfo {
    let mut info = info.clone();
    let adds = info.scheduling.affinity.take().and_then(|affinity| affinity.node_affinity);
    let asks = pod_set.scheduling.annotations.contains_key(labels::NODE_AFFINITY);
    if let Some(node_affinity) = adds.filter(|_| !asks) {
        let wish = json!(Wish { restarts: view.restarts, node_affinity }).to_string();
        info.scheduling.annotations.insert(labels::NODE_AFFINITY.to_owned(), wish);
    }
    info
}

/// The patch that stops a JobSet and restores its templates: JobSet's webhook accepts changed templates with `suspend: true` in the same write.
fn stop(view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
    let mut operations = vec![suspend_operation(true)];
    for (index, pod_set) in view.pod_sets.iter().enumerate() {
        let Some(info) = infos.iter().find(|info| info.name == pod_set.name) else { continue };
        let target = restored(pod_set, info, &[]);
        let has_metadata = pod_set.has_template_metadata;
        operations.extend(template_operations(&template(index), has_metadata, &pod_set.scheduling, &target));
    }
    let step = Step { subresource: None, patch: Patch::Json(operations) };
    vec![step.pinned(&view.resource_version)]
}

fn template(index: usize) -> String {
    JobKind::JOB_SET.integration().pods.first().map_or_else(String::new, |pods| pods.template_at(index))
}

/// `add` also replaces a field that exists.
fn suspend_operation(suspend: bool) -> Value {
    json!({"op": "add", "path": "/spec/suspend", "value": suspend})
}

#[cfg(test)]
mod tests;
