//! The adapter of LeaderWorkerSets: each group of its pods, a leader and its workers, is one job.

#[cfg(rustfmt)]
mod descriptor;

use std::borrow::Cow;

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::job::{JobKind, JobPodSet, JobView, MAX_GROUPS, PodSetInfo, PodsAt};
use sluice_api::labels;

use crate::adapter::{Adapter, Change, State};
use crate::described;
use crate::object::{self, int};
use crate::patch::Patch;
use crate::pod_group::{PodGroup, path_of};
use crate::pods::{Composite, GatheredPods};
use crate::review::{Context, Violations};
use crate::scheduling::StartError;
use crate::serving::{
    MadePod, is_marked, keeps_shape, observed, pod, ready, replicas, stays_queued, untouched,
};

/// The locations of the leader's template, if it has its own, and of the workers' template, which is otherwise the leader's, too.
fn templates() -> [&'static str; 2] {
    let pods = JobKind::LEADER_WORKER_SET.integration().pods;
    [0, 1].map(|at| pods.get(at).map_or("", |pods| pods.template))
}

/// The most bytes of the annotations that the Workloads of all groups get from their object.
const INHERITED: usize = 4 << 10;

/// The adapter of LeaderWorkerSets.
pub(crate) struct LeaderWorkerSet;

impl Adapter for LeaderWorkerSet {
    fn kind(&self) -> JobKind {
        JobKind::LEADER_WORKER_SET
    }

    /// The view from the object: the pod sets are those of one group. The pods determine whether a group runs: see [`GatheredPods`].
    fn observe(&self, object: &Value) -> JobView {
        let mut view = observed(self.kind(), object);
        view.prebuilt_workload = None;
        view.groups = Some(groups(object));
        let pod_sets = of_group(object).iter().map(|(group, pods)| pod_set(group, pods)).collect();
        object::set_pod_sets(&mut view, pod_sets);
        if inherited(object) > INHERITED {
            view.annotations.clear();
            view.admission_gated_by = None;
            view.invalid = Some(format!("metadata.annotations: {}", too_long()));
        }
        view
    }

    /// The pods of its groups are started; the object itself is not changed.
    fn composite(&self) -> Option<&'static dyn Composite> {
        Some(&GatheredPods)
    }

    fn start(&self, view: &JobView, _infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        Ok(untouched(view))
    }

    /// The pods of one group.
    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        of_group(object).into_iter().map(|(group, _)| group).collect()
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let running = matches!(state, State::Running { .. });
        let ready = matches!(state, State::Running { ready: true, .. });
        let count = |counts: bool| if counts { replicas(object) } else { 0 };
        json!({"replicas": count(running), "updatedReplicas": count(running), "readyReplicas": count(ready)})
    }

    /// Group by group, each with its leader first. Leaders have the StatefulSet of the object's name above them, and workers that of their leader's.
    fn made_pod(&self, object: &Value, number: usize) -> Option<Value> {
        let size = usize::try_from(size(object)).ok()?;
        let (group, index) = (number / size, number % size);
        if !usize::try_from(replicas(object)).is_ok_and(|groups| group < groups) {
            return None;
        }
        let set = object["metadata"]["name"].as_str()?;
        let own = leader(object).filter(|_| index == 0);
        let above = format!("{set}-{group}");
        let name = if index == 0 { above.clone() } else { format!("{above}-{index}") };
        let above = if index == 0 { set.to_owned() } else { above };
        let integration = self.kind().integration();
        let maker = JobKind::named(integration.group_owner?)?;
        let labels = [
            (integration.group_label, set.to_owned()),
            (integration.group_index, group.to_string()),
            (integration.pod_index, index.to_string()),
        ];
        Some(pod(&MadePod {
            object,
            template: own.or_else(|| object.pointer(templates()[1]))?,
            name,
            labels: labels.into_iter().filter_map(|(label, value)| Some((label?, value))).collect(),
            owner: json!({"apiVersion": maker.api_version(), "kind": maker.kind(), "name": above}),
        }))
    }

    /// Workers are counted after their leader.
    fn first_index(&self, _object: &Value, groups: &[PodGroup<'_>], at: usize) -> u32 {
        let grouped = |group: &PodGroup<'_>| {
            group.template["metadata"]["annotations"][labels::POD_SET_GROUP_NAME].is_string()
        };
        u32::from(at > 0 && groups.get(at).is_some_and(|group| !grouped(group)))
    }

    /// Its queue is fixed as soon as one of its groups is ready.
    fn is_suspended(&self, object: &Value) -> bool {
        ready(object) == 0
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        stays_queued(change, violations);
        let object = change.object;
        let wanted = replicas(object);
        if is_queued(object) && wanted.unsigned_abs() > MAX_GROUPS {
            let message = format!("must be less than or equal to {MAX_GROUPS} where groups are queued");
            violations.invalid("spec.replicas", &wanted.to_string(), &message);
        }
        let before = change.old.map_or(0, |(old, _)| inherited(old));
        if is_queued(object) && inherited(object) > INHERITED.max(before) {
            violations.add("metadata.annotations", too_long());
        }
        let queued = |old: &Value| is_queued(old) && is_queued(object);
        let Some((old, _)) = change.old.filter(|(old, _)| queued(old)) else { return };
        if context.gates.enabled(Gate::LWSImmutableGroupSize) && size(old) != size(object) {
            violations.immutable("spec.leaderWorkerTemplate.size", &size(object).to_string());
        }
        // The fields that its quota depends on. A rollout may change the rest.
        if replicas(old) == 0 {
            return;
        }
        if leader(old).is_some() != leader(object).is_some() {
            violations
                .forbidden(&path_of(templates()[0]), "cannot be added or removed, unless replicas is 0");
        }
        for pointer in templates() {
            keeps_shape([old, object], pointer, violations);
        }
    }
}

/// The leader's own template, if it has one.
fn leader(object: &Value) -> Option<&Value> {
    object.pointer(templates()[0]).filter(|template| !template.is_null())
}

/// Whether its pods wait for admission.
fn is_queued(object: &Value) -> bool {
    is_marked(object, templates()[1], JobKind::LEADER_WORKER_SET)
}

/// How many bytes the annotations have that the Workload of each group gets from the object.
fn inherited(object: &Value) -> usize {
    let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    let inherited = annotations.filter(|(key, _)| {
        key.starts_with(labels::PROVISIONING_REQUEST_PREFIX) || *key == labels::ADMISSION_GATED_BY
    });
    inherited.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
}

/// The message for longer ones.
fn too_long() -> String {
    format!("Too long: those that the Workload of each group gets may not be more than {INHERITED} bytes")
}

/// How many pods a group has.
fn size(object: &Value) -> i32 {
    int(&object["spec"]["leaderWorkerTemplate"]["size"]).unwrap_or(1).max(1)
}

/// The number of groups: the wanted ones, and during a rollout the additional ones that its controller makes.
fn groups(object: &Value) -> u32 {
    let (wanted, status) = (replicas(object), &object["status"]);
    let count = |key: &str| int(&status[key]).unwrap_or(0).max(0);
    let beyond = if count("updatedReplicas") < wanted {
        count("replicas").saturating_sub(wanted).clamp(0, surge(object, wanted))
    } else {
        0
    };
    wanted.saturating_add(beyond).unsigned_abs().min(MAX_GROUPS)
}

/// How many additional groups its controller may make: a number, or a share of the wanted ones, rounded up.
fn surge(object: &Value, wanted: i32) -> i32 {
    let most = &object["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"];
    let percent = most.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u32>().ok());
    let share = |percent: u32| {
        let share = (u64::from(wanted.unsigned_abs()) * u64::from(percent)).div_ceil(100);
        i32::try_from(share).unwrap_or(i32::MAX)
    };
    percent.map_or_else(|| int(most).unwrap_or(0), share).clamp(0, wanted)
}

/// The pods of one group, each with its description.
fn of_group(object: &Value) -> Vec<(PodGroup<'_>, &'static PodsAt)> {
    let has_leader = leader(object).is_some();
    let mut groups = described::groups(JobKind::LEADER_WORKER_SET, object);
    groups.retain(|(group, _)| has_leader || group.pointer != templates()[0]);
    if let Some((workers, _)) = groups.last_mut() {
        (workers.parallel, workers.completions) = if has_leader {
            (size(object) - 1, size(object) - 1)
        } else {
            workers.name = Cow::Borrowed(labels::DEFAULT_POD_SET_NAME);
            (size(object), size(object))
        };
    }
    groups
}

fn pod_set(group: &PodGroup<'_>, pods: &PodsAt) -> Result<JobPodSet, String> {
    let mut pod_set = described::pod_set(group, pods, &[])?;
    // Labels and annotations of the template are the pods' own.
    if let Some(template) = pod_set.template.as_mut().map(std::sync::Arc::make_mut) {
        template.metadata = None;
    }
    Ok(pod_set)
}

#[cfg(test)]
mod tests;
