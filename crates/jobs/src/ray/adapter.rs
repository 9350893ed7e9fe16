//! The adapter of one of Ray's kinds.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::job::{JobFinished, JobKind, JobPodSet, JobView, PodScheduling, PodSetInfo};

use super::cluster::{Cluster, Group, HEAD, template_at};
use super::rules;
use crate::adapter::{Adapter, Change, Schema, State};
use crate::described;
use crate::made_pod::{MadePod, Maker};
use crate::object;
use crate::patch::{Patch, Step, set};
use crate::pod_group::{PodGroup, path_of};
use crate::review::{Context, Meta, Violations};
use crate::scheduling::{StartError, holds_pods_back, merged, paired, restored, template_operations};

/// The adapter of one kind.
pub(crate) struct Ray {
    /// The kind.
    pub kind: JobKind,
    /// What is specific to the kind.
    pub variant: &'static dyn Variant,
}

/// What a kind has besides its cluster.
pub(crate) trait Variant: Sync {
    /// Reads its states.
    fn read(&self, object: &Value, view: &mut JobView);

    /// How it ended, if it did.
    fn finished(&self, _object: &Value) -> Option<JobFinished> {
        None
    }

    /// Its status in this state.
    fn status(&self, object: &Value, state: State) -> Value;

    /// How its work gets to its cluster.
    fn submission(&self, _object: &Value) -> Submission {
        Submission::None
    }

    /// What keeps KubeRay from running or from stopping it.
    fn trouble(&self, _object: &Value) -> Option<String> {
        None
    }

    /// Whether it has no pods of its own.
    fn skips(&self, _object: &Value) -> bool {
        false
    }

    /// Its part of a stop that was begun.
    fn stop(&self, _view: &JobView) -> Option<Step> {
        None
    }

    /// Its rules besides those of the cluster's spec; returns whether the latter are to be checked.
    fn validate(&self, _object: &Value, _violations: &mut Violations) -> bool {
        true
    }

    /// Its rules for a change of a managed object.
    fn validate_change(&self, _old: &Value, _new: &Value, _violations: &mut Violations) {}
}

/// How work gets to a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submission {
    /// It needs no pod.
    None,
    /// By a batch Job.
    Job,
    /// By a container of the head.
    Head,
}

/// The labels of a pod with its cluster, with its group there, and with what it is: the head, or a worker.
const CLUSTER_LABEL: &str = "ray.io/cluster";
const GROUP_LABEL: &str = "ray.io/group";
const NODE_TYPE_LABEL: &str = "ray.io/node-type";
/// The group of the head.
const HEAD_GROUP: &str = "headgroup";
/// KubeRay cuts the beginning off a value that is longer than a label may be.
const MAX_LABEL: usize = 63;

/// The pod set of the Job that hands work to a cluster.
const SUBMITTER: &str = "submitter";

impl Adapter for Ray {
    fn kind(&self) -> JobKind {
        self.kind
    }

    /// KubeRay finds the head by the labels with the cluster and the node type, and workers by those with the cluster and the group, as it is written in
    /// the spec. It ends the workers that are too many; it reports a second head, and does nothing more for the cluster until that is gone.
    fn may_be_pod_of(&self, job: &Maker<'_>, pod: &MadePod<'_>) -> bool {
        if job.marks.is_empty() {
            return true;
        }
        let is_cut_off = |label: &str| label.len() + 1 >= MAX_LABEL && job.name.ends_with(label);
        let is_name = |label: &String| *label == job.name || is_cut_off(label);
        let of_cluster = pod.labels.get(CLUSTER_LABEL).is_some_and(is_name);
        let label = |key: &str| pod.labels.get(key).map_or("", String::as_str);
        let group = label(GROUP_LABEL);
        let of_group = match label(NODE_TYPE_LABEL) {
            "head" => group == HEAD_GROUP,
            "worker" => job.marks.is_written(group),
            _ => false,
        };
        of_cluster && of_group
    }

    fn observe(&self, object: &Value) -> JobView {
        let mut view = object::from_metadata(self.kind, object);
        view.suspended = self.is_suspended(object);
        view.finished = self.finished(object);
        view.skipped = self.variant.skips(object);
        view.active_deadline_seconds = self.deadline_seconds(object);
        view.autoscaled = self.cluster(object).scales_itself();
        object::set_pod_sets(&mut view, self.pod_sets(object));
        // Its pods are known all the same.
        view.invalid = view.invalid.or_else(|| self.variant.trouble(object));
        self.variant.read(object, &mut view);
        view
    }

    /// Templates and `suspend: false`. The number of pods stays: a cluster needs all of them, except those that wait for a slice with room for them.
    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        let mut operations = Vec::new();
        for (index, (pod_set, info)) in paired(view, infos)?.into_iter().enumerate() {
            let least = if holds_pods_back(info) { 0 } else { pod_set.count };
            if !(least..=pod_set.count).contains(&info.count) {
                let (pod_set, needed) = (pod_set.name.clone(), pod_set.count);
                return Err(StartError::Count { pod_set, admitted: info.count, needed });
            }
            let target = merged(pod_set, info)?;
            operations.extend(self.template_operations(index, pod_set, &target));
        }
        operations.push(self.suspend_operation(false));
        Ok(Patch::Json(operations).pinned(&view.resource_version))
    }

    /// One patch: KubeRay accepts any change of a spec.
    fn stop(&self, view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
        let mut operations = vec![self.suspend_operation(true)];
        for (index, pod_set) in view.pod_sets.iter().enumerate() {
            let Some(info) = infos.iter().find(|info| info.name == pod_set.name) else { continue };
            if pod_set.unwritten.is_some() {
                // A template that a start wrote is removed. If it does not exist it cannot be removed: it is added first.
                let path = self.submitter_template();
                operations.push(json!({"op": "add", "path": path, "value": {}}));
                operations.push(json!({"op": "remove", "path": path}));
                continue;
            }
            operations.extend(self.template_operations(index, pod_set, &restored(pod_set, info, &[])));
        }
        let step = Step { subresource: None, patch: Patch::Json(operations) };
        std::iter::once(step.pinned(&view.resource_version)).chain(self.variant.stop(view)).collect()
    }

    fn end_stop(&self, view: &JobView) -> Option<Step> {
        self.variant.stop(view)
    }

    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        let of = |group: Group<'a>| PodGroup {
            name: Cow::Borrowed(group.name),
            pointer: group.pointer,
            template: group.template,
            replicas: 1,
            parallel: group.count,
            completions: group.count,
            exclusive: None,
        };
        self.groups(object).into_iter().map(of).collect()
    }

    fn status(&self, object: &Value, state: State) -> Value {
        self.variant.status(object, state)
    }

    fn finished(&self, object: &Value) -> Option<JobFinished> {
        self.variant.finished(object)
    }

    fn deadline_seconds(&self, object: &Value) -> Option<i64> {
        object["spec"]["activeDeadlineSeconds"].as_i64()
    }

    fn skips(&self, object: &Value) -> bool {
        self.variant.skips(object)
    }

    fn is_elastic(&self) -> bool {
        true
    }

    fn schemas(&self, object: &Value) -> Vec<(String, Schema)> {
        let written = self.groups(object).into_iter().filter(|group| group.written);
        written.map(|group| (group.pointer, Schema::PodTemplate)).collect()
    }

    fn judges(&self, old: &Meta, new: &Meta, context: &Context<'_>) -> bool {
        context.judges_managed(old, new)
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        let managed = |meta: &Meta| context.manage_jobs_without_queue_name || meta.queue_name().is_some();
        if !managed(change.meta) {
            return;
        }
        let slices = context.gates.enabled(Gate::ElasticJobsViaWorkloadSlices);
        let old = change.old.filter(|(_, meta)| managed(meta)).map(|(old, _)| old);
        if let Some(old) = old {
            self.variant.validate_change(old, change.object, violations);
        }
        let known = old.map(|old| self.broken(old, slices).0).unwrap_or_default();
        let new = self.broken(change.object, slices).0.into_iter();
        violations.0.extend(new.filter(|violation| !known.contains(violation)));
    }
}

impl Ray {
    /// Where the spec of its cluster is: a JSON pointer. The first of its pods is the head's.
    fn cluster_at(&self) -> &'static str {
        let head = self.kind.integration().pods.first().map_or("", |pods| pods.template);
        head.strip_suffix("/headGroupSpec/template").unwrap_or(head)
    }

    /// Where the template of what hands work to its cluster is: a JSON pointer.
    fn submitter_template(&self) -> &'static str {
        self.kind.integration().pods.get(2).map_or("", |pods| pods.template)
    }

    fn cluster<'a>(&self, object: &'a Value) -> Cluster<'a> {
        Cluster {
            spec: described::value(object, self.cluster_at()),
            pointer: self.cluster_at(),
            pods: self.kind.integration().pods,
            annotations: &object["metadata"]["annotations"],
            submits_from_head: self.variant.submission(object) == Submission::Head,
        }
    }

    fn groups<'a>(&self, object: &'a Value) -> Vec<Group<'a>> {
        let cluster = self.cluster(object);
        let mut groups = cluster.groups();
        if self.variant.submission(object) == Submission::Job {
            let pointer = self.submitter_template();
            let own = object.pointer(pointer).filter(|template| template.is_object());
            groups.push(Group {
                name: SUBMITTER,
                pointer: pointer.to_owned(),
                template: own.map_or_else(|| Cow::Owned(cluster.default_submitter()), Cow::Borrowed),
                count: 1,
                written: own.is_some(),
                of_kueue: None,
            });
        }
        groups
    }

    fn pod_sets(&self, object: &Value) -> Result<Vec<JobPodSet>, String> {
        let cluster = self.cluster(object);
        if let Some(trouble) = cluster.trouble() {
            return Err(trouble);
        }
        let default =
            (self.variant.submission(object) == Submission::Job).then(|| cluster.default_submitter());
        let groups = self.groups(object);
        let clash =
            |name: &str| groups.iter().filter(|group| group.name.eq_ignore_ascii_case(name)).count() > 1;
        if default.is_some() && clash(SUBMITTER) {
            let path = path_of(self.cluster_at());
            return Err(format!("{path}.workerGroupSpecs: {SUBMITTER:?} is the name of another pod set"));
        }
        let of = |group: Group<'_>| {
            let path = path_of(&group.pointer);
            let mut pod_set = object::pod_set(group.name, group.count, &group.template, &path, &[])?;
            pod_set.written_name = (*group.name != *pod_set.name).then(|| group.name.into());
            if group.pointer == self.submitter_template() {
                // What a start wrote counts as KubeRay's own, like a template that is not written at all.
                pod_set.unwritten = default
                    .as_ref()
                    .filter(|default| !group.written || is_default(&group.template, default))
                    .map(|default| Arc::new(default.clone()));
            } else if cluster.submits_from_head && group.name == HEAD {
                // Its cluster does not say that the head submits, too.
                let head = Cluster { submits_from_head: false, ..cluster }.head();
                let part = object::pod_set(HEAD, 1, &head, &path, &[])?;
                pod_set.part_hash = Some([part.containers_hash, part.requests_hash]);
            }
            if let Some(theirs) = &group.of_kueue {
                let theirs = object::pod_set(group.name, group.count, theirs, &path, &[])?;
                pod_set.kueues_hash = Some(Box::new([theirs.containers_hash, theirs.requests_hash]));
            }
            Ok(pod_set)
        };
        groups.into_iter().map(of).collect()
    }

    /// The rules that an object breaks, where jobs may have `slices` or not.
    fn broken(&self, object: &Value, slices: bool) -> Violations {
        let mut violations = Violations::default();
        if self.variant.validate(object, &mut violations) {
            rules::check(self.cluster(object), slices, &mut violations);
        }
        violations
    }

    /// The operations that lead the template of a pod set to this state.
    fn template_operations(&self, index: usize, pod_set: &JobPodSet, to: &PodScheduling) -> Vec<Value> {
        if let Some(default) = &pod_set.unwritten {
            return vec![json!({"op": "add", "path": self.submitter_template(), "value": with(default, to)})];
        }
        let pods = self.kind.integration().pods;
        // For a kind without a submitter Job it is a group of workers like others.
        let submitter = pods.get(2).filter(|_| index > 0 && pod_set.name == SUBMITTER);
        let pointer = submitter.map_or_else(|| template_at(pods, index), |pods| pods.template.to_owned());
        template_operations(&pointer, pod_set.has_template_metadata, &pod_set.scheduling, to)
    }

    /// `add` also replaces a field that exists.
    fn suspend_operation(&self, suspend: bool) -> Value {
        json!({"op": "add", "path": format!("/{}", self.suspend_path().join("/")), "value": suspend})
    }
}

/// The additions of admission to a template, as the fields of its metadata and of its spec.
fn with(default: &Value, scheduling: &PodScheduling) -> Value {
    let mut template = default.clone();
    let fields = [
        ("metadata", "labels", json!(scheduling.labels)),
        ("metadata", "annotations", json!(scheduling.annotations)),
        ("spec", "nodeSelector", json!(scheduling.node_selector)),
        ("spec", "tolerations", json!(scheduling.tolerations)),
        ("spec", "schedulingGates", json!(scheduling.scheduling_gates)),
        ("spec", "affinity", json!(scheduling.affinity)),
    ];
    for (parent, field, value) in fields {
        let empty = match &value {
            Value::Object(fields) => fields.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => true,
        };
        if !empty {
            set(&mut template, &[parent, field], value);
        }
    }
    template
}

/// Whether a template is the default, except for what admission may have added.
fn is_default(template: &Value, default: &Value) -> bool {
    let spec = |template: &Value| {
        let mut spec = template["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            for field in ["nodeSelector", "tolerations", "schedulingGates", "affinity"] {
                fields.remove(field);
            }
        }
        spec
    };
    spec(template) == spec(default)
}
