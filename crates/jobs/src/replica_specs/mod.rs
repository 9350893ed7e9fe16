//! The adapter of Kubeflow's jobs (docs/reference/07-integrations.md 7.1 and 7.2): `spec.<…>ReplicaSpecs` has the pods by replica type, and
//! `spec.runPolicy` says whether they should run.

mod rules;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::job::{JobKind, JobPodSet, JobView, PodPlace, PodSetInfo};

use crate::adapter::{Adapter, Change, State};
use crate::described;
use crate::made_pod::{MadePod, Maker};
use crate::object;
use crate::patch::{Patch, Step, nested, set};
use crate::pod_group::{PodGroup, path_of};
use crate::review::{Context, Violations};
use crate::scheduling::{StartError, merged, paired, restored, template_merge};

/// The adapter of one kind.
pub(crate) struct ReplicaSpecs {
    /// The kind.
    pub kind: JobKind,
    /// The rules that are specific to this kind: adds violations for objects that its controller does not act on.
    pub rules: fn(&Self, &Value, &mut Violations),
    /// The pod sets, by name, whose pods a Job has that the controller makes.
    pub of_jobs: &'static [&'static str],
    /// See [`Adapter::first_index`], for a replica type.
    pub first_index: fn(&Value, &str) -> u32,
}

impl Adapter for ReplicaSpecs {
    fn kind(&self) -> JobKind {
        self.kind
    }

    fn observe(&self, object: &Value) -> JobView {
        let (policy, status) = (&object["spec"]["runPolicy"], &object["status"]);
        let mut view = object::from_metadata(self.kind, object);
        view.managed_by = policy["managedBy"].as_str().map(str::to_owned);
        view.suspended = policy["suspend"] == true;
        view.suspended_condition = object::suspended_condition(status);
        view.active = statuses(status).any(|status| object::int(&status["active"]).is_some_and(|n| n != 0));
        view.finished = self.finished(object);
        // The operators' default.
        view.leaves_pods =
            policy["cleanPodPolicy"].as_str().is_none_or(|policy| policy.is_empty() || policy == "None");
        view.pods_ready = is_true(status, self.kind.integration().ready);
        view.active_deadline_seconds = self.deadline_seconds(object);
        object::set_pod_sets(&mut view, self.pod_sets(object));
        view
    }

    /// Templates and `suspend: false`. The number of pods stays: neither controller accepts fewer.
    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        let mut body = nested(self.suspend_path(), json!(false));
        for (pod_set, info) in paired(view, infos)? {
            if info.count != pod_set.count {
                let (pod_set, needed) = (pod_set.name.clone(), pod_set.count);
                return Err(StartError::Count { pod_set, admitted: info.count, needed });
            }
            if let Some(template) = template_merge(&pod_set.scheduling, &merged(pod_set, info)?) {
                self.put_template(&mut body, &pod_set.name, template);
            }
        }
        Ok(Patch::Merge(body).pinned(&view.resource_version))
    }

    /// One patch: the templates of a job may change at any time.
    fn stop(&self, view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
        let mut body = nested(self.suspend_path(), json!(true));
        for pod_set in &view.pod_sets {
            let Some(info) = infos.iter().find(|info| info.name == pod_set.name) else { continue };
            let target = restored(pod_set, info, &[]);
            if let Some(template) = template_merge(&pod_set.scheduling, &target) {
                self.put_template(&mut body, &pod_set.name, template);
            }
        }
        let step = Step { subresource: None, patch: Patch::Merge(body) };
        vec![step.pinned(&view.resource_version)]
    }

    /// Its controller gives each pod the name of its replica type and its index among those.
    fn may_be_pod_of(&self, job: &Maker<'_>, pod: &MadePod<'_>) -> bool {
        if job.marks.is_empty() {
            return true;
        }
        let own = pod.name.strip_prefix(job.name).and_then(|rest| rest.strip_prefix('-'));
        let Some((replica_type, index)) = own.and_then(|own| own.rsplit_once('-')) else { return false };
        let number = index.parse::<i32>().ok().filter(|number| number.to_string() == index);
        let is_own = !self.of_jobs.contains(&replica_type);
        let replicas = job.marks.count(replica_type).filter(|_| is_own).unwrap_or(0);
        number.is_some_and(|number| (0..replicas).contains(&number))
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let with = |count: &str| -> Map<String, Value> {
            let of = |(name, spec): (&str, &Value)| (name.to_owned(), json!({count: replicas(spec)}));
            self.specs(object).map(of).collect()
        };
        let reason = |what: &str| format!("{}{what}", self.kind.kind());
        match state {
            State::Running { since, ready } => {
                let condition = condition("Running", &reason("Running"), "The job is running", since);
                let conditions = if ready { vec![condition] } else { Vec::new() };
                json!({
                    "startTime": whole_seconds(since), "replicaStatuses": with("active"), "conditions": conditions,
                })
            }
            State::Idle => {
                let none: Map<_, _> =
                    self.specs(object).map(|(name, _)| (name.to_owned(), json!({}))).collect();
                json!({"replicaStatuses": none})
            }
            State::Ended { at, success: true } => json!({
                "completionTime": whole_seconds(at),
                "replicaStatuses": with("succeeded"),
                "conditions": [condition("Succeeded", &reason("Succeeded"), "The job is successfully completed", at)],
            }),
            State::Ended { at, success: false } => json!({
                "completionTime": whole_seconds(at),
                "replicaStatuses": with("failed"),
                "conditions":
                    [condition("Failed", &reason("Failed"), "The job was active longer than specified deadline", at)],
            }),
        }
    }

    fn deadline_seconds(&self, object: &Value) -> Option<i64> {
        object["spec"]["runPolicy"]["activeDeadlineSeconds"].as_i64()
    }

    fn first_index(&self, object: &Value, groups: &[PodGroup<'_>], at: usize) -> u32 {
        groups.get(at).map_or(0, |group| (self.first_index)(object, &group.name))
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        self.judge(change, violations, context);
    }
}

impl ReplicaSpecs {
    /// A kind without rules of its own, which counts its pods from 0.
    pub const fn plain(kind: JobKind) -> Self {
        Self { kind, rules: |_, _, _| {}, of_jobs: &[], first_index: |_, _| 0 }
    }

    /// The map of replica types to their pods, as a JSON pointer; and the types, in the order of the pod sets.
    fn types(&self) -> (&'static str, &'static [&'static str]) {
        let places = self.kind.integration().pods.iter().map(|pods| pods.place);
        let mut maps = places.filter_map(|place| match place {
            PodPlace::Types { map, types } => Some((map, types)),
            PodPlace::Object(_) | PodPlace::Items { .. } => None,
        });
        maps.next().unwrap_or_default()
    }

    /// The path of that map, as messages have it.
    pub(crate) fn path(&self) -> String {
        path_of(self.types().0)
    }

    /// The spec of each replica type that the kind knows, in their order.
    pub(crate) fn specs<'a>(&self, object: &'a Value) -> impl Iterator<Item = (&'static str, &'a Value)> {
        let (map, types) = self.types();
        let specs = object.pointer(map).and_then(Value::as_object);
        types.iter().filter_map(move |name| Some((*name, specs?.get(*name)?)))
    }

    fn pod_sets(&self, object: &Value) -> Result<Vec<JobPodSet>, String> {
        let (map, types) = self.types();
        let given = object.pointer(map).and_then(Value::as_object).into_iter().flat_map(Map::keys);
        // A controller that knows the type would run pods without quota.
        if let Some(unknown) = given.into_iter().find(|name| !types.contains(&name.as_str())) {
            let (map, known) = (self.path(), types.join(", "));
            return Err(format!("{map}.{unknown}: unknown replica type, known are: {known}"));
        }
        let pod_sets = described::pod_sets(self.kind, object, &[])?;
        if pod_sets.is_empty() { Err(format!("{}: no replica type", self.path())) } else { Ok(pod_sets) }
    }

    /// Adds the patch of a pod set's template at its location.
    fn put_template(&self, body: &mut Value, pod_set: &str, template: Value) {
        let types = self.types().1.iter().find(|name| name.eq_ignore_ascii_case(pod_set));
        let place =
            types.zip(self.kind.integration().pods.first()).map(|(name, pods)| pods.template_at(name));
        if let Some(pointer) = place {
            set(body, &pointer.split('/').skip(1).collect::<Vec<_>>(), template);
        }
    }
}

/// The number of pods of a replica type.
pub(crate) fn replicas(spec: &Value) -> i32 {
    object::int(&spec["replicas"]).unwrap_or(1).max(0)
}

fn statuses(status: &Value) -> impl Iterator<Item = &Value> {
    status["replicaStatuses"].as_object().into_iter().flat_map(Map::values)
}

fn is_true(status: &Value, type_: &str) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == type_ && one["status"] == "True")
}

/// A condition that is true, as the controllers of these kinds write it.
fn condition(type_: &str, reason: &str, message: &str, at: Timestamp) -> Value {
    json!({
        "type": type_, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": whole_seconds(at), "lastUpdateTime": whole_seconds(at),
    })
}

#[cfg(test)]
mod tests;
