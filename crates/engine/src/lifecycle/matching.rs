//! Whether a Workload describes its job (docs/reference/06-algorithm.md 6.20).

use sluice_api::gates::Gate;
use sluice_api::job::{JobPodSet, JobView};
use sluice_api::slim;
use sluice_api::v1beta2::WorkloadStatus;
use sluice_core::WorkloadKey;

use super::places::{asks_for_the_same_places, is_as_started};
use crate::config::EngineConfig;
use crate::ingest::workload::{is, reserved};
use sluice_api::conditions::{WorkloadCondition as Type, find};

/// The Workload of a job.
pub(crate) enum OwnWorkload {
    /// This one.
    One(WorkloadKey),
    /// None, and no write is in progress.
    None,
    /// Something is under way.
    Wait,
}

/// Whether the pod sets, and the longest execution time, are those of the job.
///
/// While quota is reserved the job may also be the running one: with the admitted counts, if it may run with fewer pods. (Fewer are also admitted if
/// pods ended before: the job's own numbers stay.) Node selectors and tolerations do not count while the job runs, as a start adds to them. Without
/// partial admission no pod set has a `minCount`.
pub(crate) fn matches(
    view: &JobView,
    object: &slim::Workload,
    status: &WorkloadStatus,
    config: &EngineConfig,
) -> bool {
    if view.job.kind.gathers_pods() {
        return speaks_for(view, object, status);
    }
    if object.spec.maximum_execution_time_seconds != view.maximum_execution_time_seconds {
        return false;
    }
    let admitted = is(status, Type::Admitted) || reserved(status);
    let places = |set: &slim::PodSet, job: &JobPodSet| keeps_to_its_places(view, set, job, status, config);
    let counts = |at: usize, set: &slim::PodSet| assigned_count(status, at, set);
    if admitted && pod_sets_match(view, object, counts, places, describes(view)) {
        return true;
    }
    let partial = config.on(Gate::PartialAdmission);
    let same = |set: &slim::PodSet, job: &JobPodSet| {
        let least = job.min_count.filter(|_| partial);
        (set.min_count == least || admitted && least.is_none()) && places(set, job)
    };
    (!admitted || view.suspended || view.stopping)
        && pod_sets_match(view, object, |_, set| set.count, same, asks_for_the_same)
}

/// Whether the Workload is for the pods of an object that gathers them. While the object is on hold, it is kept unchanged. Once it has quota, the
/// quota counts: pods beyond it wait.
fn speaks_for(view: &JobView, object: &slim::Workload, status: &WorkloadStatus) -> bool {
    let sets = &object.spec.pod_sets;
    let named = sets.len() == view.pod_sets.len()
        && sets.iter().zip(&view.pod_sets).all(|(set, job)| set.name == job.name);
    let same =
        |(set, job): (&slim::PodSet, &JobPodSet)| set.count == job.count && asks_for_the_same(set, job);
    let as_large = |(set, job): (&slim::PodSet, &JobPodSet)| {
        set.count == job.count && set.template.requests_hash == job.requests_hash
    };
    // A group whose pods were all replaced by pods with other requests is queued again.
    let replaced = view.job.group.is_some() && view.suspended && !view.active;
    let has_quota = is(status, Type::Admitted) || reserved(status);
    let is_kept = has_quota && (!replaced || sets.iter().zip(&view.pod_sets).all(as_large));
    named && (view.on_hold == Some(true) || is_kept || sets.iter().zip(&view.pod_sets).all(same))
}

/// Whether the pod sets, and the longest execution time, are those of the job, except for the numbers of pods.
pub(crate) fn is_slice_of(
    view: &JobView,
    object: &slim::Workload,
    status: &WorkloadStatus,
    config: &EngineConfig,
) -> bool {
    if object.spec.maximum_execution_time_seconds != view.maximum_execution_time_seconds {
        return false;
    }
    let held = reserved(status);
    let same = |set: &slim::PodSet, job: &JobPodSet| {
        set.name == job.name && keeps_to_its_places(view, set, job, status, config)
    };
    let count = |at: usize, set: &slim::PodSet| view.pod_sets.get(at).map_or(set.count, |job| job.count);
    let describes = if held { describes(view) } else { asks_for_the_same };
    pod_sets_match(view, object, count, same, describes)
}

/// Whether the pods of a job that does not run may run on the nodes for which its Workload is or was queued. Tolerations count until the Workload
/// holds quota: a start adds some, and afterwards it is not known which. A prebuilt Workload has its own node selectors, so that only the rest
/// counts.
fn keeps_to_its_places(
    view: &JobView,
    set: &slim::PodSet,
    job: &JobPodSet,
    status: &WorkloadStatus,
    config: &EngineConfig,
) -> bool {
    if !view.suspended || view.stopping {
        return true;
    }
    let held = is(status, Type::Admitted) || reserved(status);
    let integration = view.job.kind.integration();
    // Single pods are started one by one, and a declared kind may have no field that shows whether it was started.
    let may_be_started = integration.of_pods && held
        || integration.declared && (held || find(&status.conditions, Type::Evicted.as_str()).is_some());
    let tolerate_the_same = held || set.template.tolerations == job.scheduling.tolerations;
    tolerate_the_same
        && (may_be_started
            || view.prebuilt_workload.is_some()
            || is_as_started(set, job)
            || asks_for_the_same_places(set, job, config))
}

/// The number of pods that the pod set of a running job has.
fn assigned_count(status: &WorkloadStatus, at: usize, set: &slim::PodSet) -> i32 {
    if set.min_count.is_none() {
        return set.count;
    }
    let assignments = status.admission.as_ref().map(|a| &a.pod_set_assignments[..]).unwrap_or_default();
    assignments.get(at).and_then(|a| a.count).unwrap_or(set.count)
}

/// Whether the pods have the same containers, and ask for the same besides: by the pod as a whole, its overhead, its claims.
fn asks_for_the_same(set: &slim::PodSet, job: &JobPodSet) -> bool {
    set.template.containers_hash == job.containers_hash && set.template.requests_hash == job.requests_hash
}

/// How the pods of a job with quota are compared. A job that runs on a Workload made by Kueue keeps it, although Sluice would make a different one.
fn describes(view: &JobView) -> fn(&slim::PodSet, &JobPodSet) -> bool {
    let as_kueue = |set: &slim::PodSet, job: &JobPodSet| {
        let kueues = [set.template.containers_hash, set.template.requests_hash];
        asks_for_the_same(set, job) || job.kueues_hash.as_deref() == Some(&kueues)
    };
    if view.suspended { asks_for_the_same } else { as_kueue }
}

fn pod_sets_match(
    view: &JobView,
    object: &slim::Workload,
    count: impl Fn(usize, &slim::PodSet) -> i32,
    same: impl Fn(&slim::PodSet, &JobPodSet) -> bool,
    describes: fn(&slim::PodSet, &JobPodSet) -> bool,
) -> bool {
    let sets = &object.spec.pod_sets;
    sets.len() == view.pod_sets.len()
        && sets
            .iter()
            .zip(&view.pod_sets)
            .enumerate()
            .all(|(at, (set, job))| count(at, set) == job.count && describes(set, job) && same(set, job))
}
