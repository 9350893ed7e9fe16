//! A pod, or a group, as the engine sees any other job.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_api::job::{JobFinished, JobKind, JobPodSet, JobRef, JobView};
use sluice_api::labels;

use super::group::Group;
use super::member::{Member, Phase};

/// The job of this pod alone.
pub fn of_pod(member: &Member) -> JobView {
    let job = JobRef {
        kind: JobKind::POD,
        namespace: Arc::clone(&member.namespace),
        name: Arc::clone(&member.name),
        group: None,
        uid: Arc::clone(&member.uid),
    };
    let mut view = said_by(member, job);
    view.deleting = member.deleted_by.is_some();
    view.active = member.active_until(false).is_some();
    view.suspended = !member.is_free() || view.deleting;
    view.pods_ready = member.ready || member.phase == Phase::Succeeded;
    view.finished = member
        .ended()
        .then(|| JobFinished { success: member.phase == Phase::Succeeded, message: member.message.clone() });
    match &member.pod_set {
        Ok(pod_set) => {
            view.labels.clone_from(&pod_set.scheduling.labels);
            set_pod_sets(&mut view, vec![(**pod_set).clone()]);
        }
        Err(why) => view.invalid = Some(why.clone()),
    }
    view
}

/// The job of this group, with the pod sets that its Workload has, or will have. `None` without pods.
pub fn of_group(job: JobRef, group: &Group, pod_sets: Vec<JobPodSet>) -> Option<JobView> {
    let mut view = said_by(group.representative()?, job);
    view.suspended = group.free().next().is_none();
    view.pods_ready = group.pods_ready();
    view.finished = group.finished();
    let count = |set: &JobPodSet| (Arc::<str>::from(set.name.as_str()), set.count);
    view.reclaimable = group.reclaimable(pod_sets.iter().map(count));
    view.running = group.running();
    set_pod_sets(&mut view, pod_sets);
    Some(view)
}

/// The job of an object and its pods: the object determines its requests, and the pods whether it runs.
pub fn of_parent(parent: &JobView, group: &Group) -> JobView {
    let mut view = parent.clone();
    view.suspended = group.free().next().is_none();
    let count: i64 = view.pod_sets.iter().map(|pod_set| i64::from(pod_set.count)).sum();
    view.pods_ready = usize::try_from(count).is_ok_and(|count| group.ready() >= count);
    view
}

fn set_pod_sets(view: &mut JobView, pod_sets: Vec<JobPodSet>) {
    let mut specs = pod_sets.iter().filter_map(|pod_set| pod_set.template.as_ref()?.spec.as_ref());
    view.pod_priority_class =
        specs.find_map(|spec| spec.priority_class_name.clone().filter(|name| !name.is_empty()));
    view.pod_sets = pod_sets;
}

/// The part of a job's view that one pod determines.
fn said_by(member: &Member, job: JobRef) -> JobView {
    let none = BTreeMap::new();
    let (own_labels, annotations) = match &member.pod_set {
        Ok(pod_set) => (&pod_set.scheduling.labels, &pod_set.scheduling.annotations),
        Err(_) => (&none, &none),
    };
    let filled =
        |map: &BTreeMap<String, String>, key: &str| map.get(key).filter(|value| !value.is_empty()).cloned();
    let seconds = own_labels.get(labels::MAX_EXEC_TIME_SECONDS).and_then(|text| text.parse().ok());
    let inherited =
        |key: &str| key.starts_with(labels::PREFIX) || key.starts_with(labels::PROVISIONING_REQUEST_PREFIX);
    JobView {
        job,
        resource_version: member.resource_version.clone(),
        generation: 1,
        created: member.created,
        deleting: false,
        queue_name: member.queue_name.as_deref().map(str::to_owned),
        workload_priority_class: filled(own_labels, labels::PRIORITY_CLASS),
        pod_priority_class: None,
        prebuilt_workload: filled(annotations, labels::PREBUILT_WORKLOAD_NAME)
            .or_else(|| filled(own_labels, labels::PREBUILT_WORKLOAD_NAME)),
        maximum_execution_time_seconds: seconds.filter(|seconds| *seconds > 0),
        active_deadline_seconds: None,
        restarts: 0,
        admission_gated_by: annotations.get(labels::ADMISSION_GATED_BY).cloned(),
        labels: BTreeMap::new(),
        annotations: annotations
            .iter()
            .filter(|(key, _)| inherited(key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        controller: None,
        managed_by: None,
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
