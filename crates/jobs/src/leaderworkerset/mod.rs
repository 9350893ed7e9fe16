//! The adapter of LeaderWorkerSets: each group of its pods, a leader and its workers, is one job.

#[cfg(rustfmt)]
mod descriptor;

use std::borrow::Cow;

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::job::{JobKind, JobPodSet, JobView, MAX_GROUPS, PodSetInfo};
use sluice_api::labels;

use crate::adapter::{Adapter, Change, PodGroup, State, path_of};
use crate::object::{self, int};
use crate::patch::Patch;
use crate::pods::GROUP_INDEX;
use crate::pods::{Composite, GatheredPods};
use crate::review::{Context, Violations};
use crate::scheduling::StartError;
use crate::serving::{
    MadePod, is_marked, keeps_shape, observed, pod, ready, replicas, stays_queued, untouched,
};
use crate::topology;

/// Where the template of the leader is, if it has one of its own.
const LEADER: &str = "/spec/leaderWorkerTemplate/leaderTemplate";
/// Where the template of the workers is; without another it is the leader's, too.
const WORKER: &str = "/spec/leaderWorkerTemplate/workerTemplate";

/// The adapter of LeaderWorkerSets.
pub(crate) struct LeaderWorkerSet;

impl Adapter for LeaderWorkerSet {
    fn kind(&self) -> JobKind {
        JobKind::LEADER_WORKER_SET
    }

    /// What its object says: the pod sets are those of one group. Whether a group runs is said by its pods: see [`GatheredPods`].
    fn observe(&self, object: &Value) -> JobView {
        let mut view = observed(self.kind(), object);
        view.prebuilt_workload = None;
        view.groups = Some(groups(object));
        let pod_sets = self.pod_groups(object).iter().map(pod_set).collect();
        object::set_pod_sets(&mut view, pod_sets);
        view
    }

    /// The pods of its groups are started, and it is left as it is.
    fn composite(&self) -> Option<&'static dyn Composite> {
        Some(&GatheredPods)
    }

    fn start(&self, view: &JobView, _infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        Ok(untouched(view))
    }

    /// The pods of one group.
    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        let size = size(object);
        let leader = leader(object).map(|template| group("leader", 1, LEADER, template));
        let (name, count) = match leader {
            Some(_) => ("worker", size - 1),
            None => (labels::DEFAULT_POD_SET_NAME, size),
        };
        let workers = object.pointer(WORKER).unwrap_or(&Value::Null);
        leader.into_iter().chain([group(name, count, WORKER, workers)]).collect()
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
            (Some(GROUP_INDEX), group.to_string()),
            (integration.pod_index, index.to_string()),
        ];
        Some(pod(&MadePod {
            object,
            template: own.or_else(|| object.pointer(WORKER))?,
            name,
            labels: labels.into_iter().filter_map(|(label, value)| Some((label?, value))).collect(),
            owner: json!({"apiVersion": maker.api_version(), "kind": maker.kind(), "name": above}),
        }))
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
        let queued = |old: &Value| is_queued(old) && is_queued(object);
        let Some((old, _)) = change.old.filter(|(old, _)| queued(old)) else { return };
        if context.gates.enabled(Gate::LWSImmutableGroupSize) && size(old) != size(object) {
            violations.immutable("spec.leaderWorkerTemplate.size", &size(object).to_string());
        }
        // What its quota depends on. The rest changes by a rollout.
        if replicas(old) == 0 {
            return;
        }
        if leader(old).is_some() != leader(object).is_some() {
            violations.forbidden(&path_of(LEADER), "cannot be added or removed, unless replicas is 0");
        }
        for pointer in [LEADER, WORKER] {
            keeps_shape([old, object], pointer, violations);
        }
    }
}

/// The leader's own template, if it has one.
fn leader(object: &Value) -> Option<&Value> {
    object.pointer(LEADER).filter(|template| !template.is_null())
}

/// Whether its pods wait for admission.
fn is_queued(object: &Value) -> bool {
    is_marked(object, WORKER, JobKind::LEADER_WORKER_SET)
}

/// How many pods a group has.
fn size(object: &Value) -> i32 {
    int(&object["spec"]["leaderWorkerTemplate"]["size"]).unwrap_or(1).max(1)
}

/// How many groups there are to be: those that are wanted, and in a rollout those that its controller makes beyond.
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

/// How many groups its controller may make beyond those that are wanted: a number, or a share of them, rounded up.
fn surge(object: &Value, wanted: i32) -> i32 {
    let most = &object["spec"]["rolloutStrategy"]["rollingUpdateConfiguration"]["maxSurge"];
    let percent = most.as_str().and_then(|text| text.strip_suffix('%')?.parse::<u32>().ok());
    let share = |percent: u32| {
        let share = (u64::from(wanted.unsigned_abs()) * u64::from(percent)).div_ceil(100);
        i32::try_from(share).unwrap_or(i32::MAX)
    };
    percent.map_or_else(|| int(most).unwrap_or(0), share).clamp(0, wanted)
}

fn group<'a>(name: &'a str, count: i32, pointer: &str, template: &'a Value) -> PodGroup<'a> {
    PodGroup {
        name: Cow::Borrowed(name),
        pointer: pointer.to_owned(),
        template: Cow::Borrowed(template),
        replicas: 1,
        parallel: count,
        completions: count,
        exclusive: None,
    }
}

fn pod_set(group: &PodGroup<'_>) -> Result<JobPodSet, String> {
    let mut pod_set = object::pod_set(&group.name, group.count(), &group.template, &group.path(), &[])?;
    // Labels and annotations of the template are the pods' own.
    if let Some(template) = pod_set.template.as_mut().map(std::sync::Arc::make_mut) {
        template.metadata = None;
    }
    let index = JobKind::LEADER_WORKER_SET.integration().pod_index.filter(|_| group.pointer == WORKER);
    topology::number(&mut pod_set, index);
    Ok(pod_set)
}

#[cfg(test)]
mod tests;
