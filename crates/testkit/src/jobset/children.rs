//! The child Jobs of a JobSet: what they should look like, and in which state they are.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::Resource as _;
use kube::api::ObjectMeta;
use sha2::{Digest as _, Sha256};

use super::types::{JobSet, ReplicatedJob, ReplicatedJobStatus};

/// The name of the child's JobSet.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// Which restart of the JobSet a child belongs to.
pub const RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
/// The group of a child.
pub const REPLICATED_JOB_NAME: &str = "jobset.sigs.k8s.io/replicatedjob-name";
/// The index of a child in its group.
pub const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";

/// Names a child Job among all of the cluster.
pub const JOB_KEY: &str = "jobset.sigs.k8s.io/job-key";

/// The name of a child Job.
pub fn name(jobset: &str, group: &str, index: i32) -> String {
    format!("{jobset}-{group}-{index}")
}

/// The labels, which are also the annotations, that JobSet puts on each child and its pods.
fn marks(jobset: &JobSet, group: &ReplicatedJob, index: i32) -> BTreeMap<String, String> {
    let meta = &jobset.metadata;
    let (jobset_name, namespace) =
        (meta.name.clone().unwrap_or_default(), meta.namespace.clone().unwrap_or_default());
    let restarts = jobset.status.as_ref().map_or(0, |status| status.restarts);
    let groups = &jobset.spec.replicated_jobs;
    let all: i32 = groups.iter().map(|one| one.replicas).sum();
    let before: i32 = groups.iter().take_while(|one| one.name != group.name).map(|one| one.replicas).sum();
    // A value that differs between any two children of the cluster and keeps to 63 characters.
    let digest = Sha256::digest(format!("{namespace}/{}", name(&jobset_name, &group.name, index)));
    let mut key = format!("{digest:x}");
    key.truncate(40);
    BTreeMap::from([
        (JOBSET_NAME.to_owned(), jobset_name),
        ("jobset.sigs.k8s.io/jobset-uid".to_owned(), meta.uid.clone().unwrap_or_default()),
        (REPLICATED_JOB_NAME.to_owned(), group.name.clone()),
        ("jobset.sigs.k8s.io/replicatedjob-replicas".to_owned(), group.replicas.to_string()),
        ("jobset.sigs.k8s.io/global-replicas".to_owned(), all.to_string()),
        (JOB_INDEX.to_owned(), index.to_string()),
        ("jobset.sigs.k8s.io/job-global-index".to_owned(), (before + index).to_string()),
        (JOB_KEY.to_owned(), key),
        (RESTART_ATTEMPT.to_owned(), restarts.to_string()),
    ])
}

fn merged(
    base: Option<&BTreeMap<String, String>>,
    more: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut all = base.cloned().unwrap_or_default();
    all.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
    all
}

/// The child Job as JobSet makes it, suspended or not.
pub fn wanted(jobset: &JobSet, group: &ReplicatedJob, index: i32, suspend: bool) -> Job {
    let marks = marks(jobset, group, index);
    let mut annotations = marks.clone();
    // Children and their pods are placed by it.
    let topology = super::exclusive::topology_key(jobset, group);
    if let Some(topology) = &topology {
        annotations.insert(super::exclusive::ANNOTATION.to_owned(), topology.clone());
    }
    let template = group.template.metadata.as_ref();
    let mut spec: JobSpec = group.template.spec.clone().unwrap_or_default();
    spec.suspend = Some(suspend);
    spec.completion_mode.get_or_insert_with(|| "Indexed".to_owned());
    let pods = &mut spec.template;
    let pods_meta = pods.metadata.get_or_insert_default();
    pods_meta.labels = Some(merged(pods_meta.labels.as_ref(), &marks));
    pods_meta.annotations = Some(merged(pods_meta.annotations.as_ref(), &annotations));
    if let Some(pod) = pods.spec.as_mut() {
        pod.restart_policy.get_or_insert_with(|| "OnFailure".to_owned());
    }
    if let Some(topology) = &topology {
        super::exclusive::require(pods, topology, &marks[JOB_KEY]);
    }
    let metadata = ObjectMeta {
        name: Some(name(jobset.metadata.name.as_deref().unwrap_or_default(), &group.name, index)),
        namespace: jobset.metadata.namespace.clone(),
        labels: Some(merged(template.and_then(|meta| meta.labels.as_ref()), &marks)),
        annotations: Some(merged(template.and_then(|meta| meta.annotations.as_ref()), &annotations)),
        owner_references: jobset.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    Job { metadata, spec: Some(spec), status: None }
}

/// Puts what JobSet changes about a suspended Job's pods (labels, annotations, node selector, tolerations, scheduling gates) as
/// `wanted` has it.
pub fn follow(pods: &mut PodTemplateSpec, wanted: &PodTemplateSpec) {
    if let Some(wanted) = &wanted.metadata {
        let meta = pods.metadata.get_or_insert_default();
        // The Job controller's own labels must stay as they are.
        let own = meta.labels.iter().flatten().filter(|(key, _)| is_of_job_controller(key));
        let own: BTreeMap<String, String> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        meta.labels = Some(merged(wanted.labels.as_ref(), &own));
        meta.annotations.clone_from(&wanted.annotations);
    }
    if let (Some(pod), Some(wanted)) = (pods.spec.as_mut(), &wanted.spec) {
        pod.node_selector.clone_from(&wanted.node_selector);
        pod.tolerations.clone_from(&wanted.tolerations);
        pod.scheduling_gates.clone_from(&wanted.scheduling_gates);
    }
}

fn is_of_job_controller(label: &str) -> bool {
    label.starts_with("batch.kubernetes.io/") || matches!(label, "controller-uid" | "job-name")
}

/// Whether a condition of the Job is true.
pub fn has_condition(job: &Job, kind: &str) -> bool {
    condition_reason(job, kind).is_some()
}

/// The reason of a true condition of the Job.
pub fn condition_reason<'a>(job: &'a Job, kind: &str) -> Option<&'a str> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|one| one.type_ == kind && one.status == "True")?;
    Some(condition.reason.as_deref().unwrap_or_default())
}

/// Whether the Job has ended, one way or the other.
pub fn is_finished(job: &Job) -> bool {
    has_condition(job, "Complete") || has_condition(job, "Failed")
}

/// Whether the Job is suspended.
pub fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true))
}

/// How many pods of the Job run at once at most.
fn pods(job: &Job) -> i32 {
    let parallelism = job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1);
    job.spec
        .as_ref()
        .and_then(|spec| spec.completions)
        .map_or(parallelism, |completions| parallelism.min(completions))
}

/// Whether all pods of the Job are ready or have succeeded.
pub fn is_ready(job: &Job) -> bool {
    let status = job.status.as_ref();
    let ready = status.and_then(|status| status.ready).unwrap_or(0);
    let succeeded = status.and_then(|status| status.succeeded).unwrap_or(0);
    !is_suspended(job) && ready + succeeded >= pods(job)
}

/// The label of the child, empty if it has none.
pub fn label<'a>(job: &'a Job, key: &str) -> &'a str {
    job.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// Counts the current children of one group.
pub fn count<'a>(group: &str, jobs: impl Iterator<Item = &'a Job>) -> ReplicatedJobStatus {
    let mut status = ReplicatedJobStatus { name: group.to_owned(), ..ReplicatedJobStatus::default() };
    for job in jobs.filter(|job| label(job, REPLICATED_JOB_NAME) == group) {
        let active = job.status.as_ref().and_then(|status| status.active).unwrap_or(0) > 0;
        status.succeeded += i32::from(has_condition(job, "Complete"));
        status.failed += i32::from(has_condition(job, "Failed"));
        if !is_finished(job) {
            status.ready += i32::from(is_ready(job));
            status.active += i32::from(active);
            status.suspended += i32::from(is_suspended(job));
        }
    }
    status
}
