//! The adapter of a declared kind.

use std::borrow::Cow;

use serde_json::{Value, json};
use sluice_api::config::DeclaredKind;
use sluice_api::job::{JobFinished, JobKind, JobPodSet, JobView, PodSetInfo};
use sluice_api::labels;

use super::cel::{Budget, Expression, Failure};
use super::made;
use super::places::{self, Places, pointer};
use super::resumed::{self, remembered};
use crate::adapter::{Adapter, Change, Schema, State};
use crate::object::{self, at};
use crate::patch::{Patch, Step, nested, set};
use crate::pod_group::PodGroup;
use crate::pods::{Composite, GatheredPods};
use crate::review::{Context, Violations};
use crate::scheduling::{StartError, merged, paired, restored, still_needed};
use crate::serving::untouched;
use crate::topology;

/// A declared kind.
#[derive(Debug)]
pub(crate) struct Declared {
    /// The kind.
    pub(super) of: JobKind,
    /// The declaration from the configuration.
    pub(super) declaration: DeclaredKind,
    pub(super) pod_sets: Vec<PodSet>,
    /// Whether a template is in a list.
    pub(super) through_list: bool,
    pub(super) finished: Option<Expression>,
    pub(super) success: Option<Expression>,
    pub(super) message: Option<Expression>,
    pub(super) active: Expression,
    pub(super) ready: Option<Expression>,
}

/// A declared pod set.
#[derive(Debug)]
pub(super) struct PodSet {
    pub name: String,
    /// Its place in the declaration.
    pub index: usize,
    pub template: Template,
    pub count: Count,
    pub reclaimable: Option<Expression>,
    pub optional: bool,
    pub pod_index_label: Option<String>,
    pub places: Places,
}

/// Where a pod template comes from.
#[derive(Debug)]
pub(super) enum Template {
    At(Vec<String>),
    Made(Expression),
}

/// Where a number of pods comes from.
#[derive(Debug)]
pub(super) enum Count {
    One,
    At(Vec<String>),
    Made(Expression),
}

/// Evaluates the expressions of a declaration over one object, and remembers the first error.
pub(super) struct Reading<'a> {
    object: &'a Value,
    budget: Budget,
    failure: Option<String>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(object: &'a Value) -> Self {
        Self { object, budget: Budget::new(), failure: None }
    }

    /// Whether a condition is true. If a field is missing it is false; if it cannot be evaluated, `otherwise`.
    fn truth(&mut self, field: &str, expression: &Expression, otherwise: bool) -> bool {
        self.tried(field, expression).unwrap_or(otherwise)
    }

    /// The same; `None` if it cannot be evaluated.
    fn tried(&mut self, field: &str, expression: &Expression) -> Option<bool> {
        match expression.truth(self.object, &self.budget) {
            Ok(value) => Some(value),
            Err(Failure::Absent(_)) => Some(false),
            Err(failure) => self.failed(field, &failure, None),
        }
    }

    fn failed<T>(&mut self, field: &str, failure: &Failure, otherwise: T) -> T {
        self.failure.get_or_insert_with(|| format!("declared {field}: {failure}"));
        otherwise
    }
}

impl Adapter for Declared {
    fn kind(&self) -> JobKind {
        self.of
    }

    fn observe(&self, object: &Value) -> JobView {
        let mut view = object::from_metadata(self.of, object);
        let mut reading = Reading::new(object);
        view.suspended = self.is_suspended(object);
        view.observed_generation = object["status"]["observedGeneration"].as_i64();
        // First: a status of any size leaves its pods known.
        let pod_sets = self.pod_sets(&mut reading);
        object::set_pod_sets(&mut view, pod_sets);
        view.finished = self.ended(&mut reading);
        // Quota that may be in use is not given to others.
        let active = reading.tried("active", &self.active);
        (view.active, view.activity_unknown) = (active.unwrap_or(true), active.is_none());
        view.pods_ready = match &self.ready {
            Some(ready) => reading.truth("ready", ready, false),
            None => view.active,
        };
        view.reclaimable = self.reclaimable(&view.pod_sets, &mut reading);
        view.status_unread = view.invalid.is_none() && reading.failure.is_some();
        view.invalid = view.invalid.or(reading.failure);
        if self.gates_pods() {
            self.gathered(&mut view, object);
        } else {
            let kept = &object["metadata"]["annotations"][labels::RUNNING_VALUE];
            resumed::record(&mut view, &self.declaration.suspend, (at(object, self.suspend_path()), kept));
        }
        view
    }

    fn composite(&self) -> Option<&'static dyn Composite> {
        self.gates_pods().then_some(&GatheredPods as &dyn Composite)
    }

    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        if self.gates_pods() {
            return Ok(untouched(view));
        }
        let mut changes = Vec::new();
        for (pod_set, info) in paired(view, infos)? {
            // Pods that will not come again need no admission.
            let needed = still_needed(view, pod_set);
            if !(needed..=pod_set.count).contains(&info.count) {
                return Err(StartError::Count {
                    pod_set: pod_set.name.clone(),
                    admitted: info.count,
                    needed,
                });
            }
            let target = merged(pod_set, info)?;
            let places = self.places(pod_set);
            if let Some(field) = places.and_then(|places| places.missing_for(&pod_set.scheduling, &target)) {
                return Err(StartError::NoPlace { pod_set: pod_set.name.clone(), field });
            }
            changes.push((pod_set, target));
        }
        let running = resumed::resumed(view, &self.declaration.suspend);
        Ok(self.patch(&running, &changes).pinned(&view.resource_version))
    }

    fn stop(&self, view: &JobView, infos: &[PodSetInfo]) -> Vec<Step> {
        if self.gates_pods() {
            return Vec::new();
        }
        let restored = |pod_set| {
            let info = infos.iter().find(|info| info.name == pod_set_name(pod_set))?;
            Some((pod_set, restored(pod_set, info, &[])))
        };
        let changes: Vec<_> = view.pod_sets.iter().filter_map(restored).collect();
        let mut patches = vec![self.patch(&self.declaration.suspend.suspended, &changes)];
        if let Some(value) = remembered(view) {
            let path = ["metadata", "annotations", labels::RUNNING_VALUE];
            match &mut patches[0] {
                Patch::Merge(body) => set(body, &path, value),
                // Operations on a list do not make the map on the way to an annotation.
                _ => patches.insert(0, Patch::Merge(nested(&path, value))),
            }
        }
        let pinned = |(at, patch): (usize, Patch)| {
            let patch = if at == 0 { patch.pinned(&view.resource_version) } else { patch };
            Step { subresource: None, patch }
        };
        patches.into_iter().enumerate().map(pinned).collect()
    }

    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        let mut reading = Reading::new(object);
        let mut groups = Vec::new();
        for pod_set in &self.pod_sets {
            let Ok(Some(template)) = pod_set.template(&mut reading) else { continue };
            let count = pod_set.count(&mut reading).unwrap_or(0);
            groups.push(PodGroup {
                name: Cow::Owned(pod_set.name.clone()),
                pointer: pod_set.pointer(),
                template,
                replicas: 1,
                parallel: count,
                completions: count,
                exclusive: None,
            });
        }
        groups
    }

    fn status(&self, _object: &Value, state: State) -> Value {
        let Some(states) = &self.declaration.states else { return json!({}) };
        match state {
            State::Running { .. } => states.running.clone(),
            State::Idle => json!({}),
            State::Ended { success: true, .. } => states.succeeded.clone(),
            State::Ended { success: false, .. } => states.failed.clone(),
        }
    }

    fn is_simulated(&self) -> bool {
        // Pods that wait in the place of what never ends say all that happens.
        self.declaration.states.is_some() || self.gates_pods() && self.finished.is_none()
    }

    fn suspended_value(&self) -> Value {
        self.declaration.suspend.suspended.clone()
    }

    fn running_value(&self, object: &Value) -> Option<String> {
        let value = at(object, self.suspend_path());
        resumed::running_value(&self.declaration.suspend, value).filter(|_| !self.gates_pods())
    }

    /// If its pods wait in its place, its queue is fixed as soon as one of them may run.
    fn is_suspended(&self, object: &Value) -> bool {
        if self.gates_pods() {
            return !Reading::new(object).truth("active", &self.active, true);
        }
        at(object, self.suspend_path()) == &self.declaration.suspend.suspended
    }

    fn made_pod(&self, object: &Value, number: usize) -> Option<Value> {
        self.gated_pod(object, number).filter(|_| self.gates_pods())
    }

    fn marked(&self, group: &PodGroup<'_>) -> [String; 2] {
        self.marked_maps(group)
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        if self.gates_pods() {
            self.check_gathered(change, violations, context);
        }
    }

    fn finished(&self, object: &Value) -> Option<JobFinished> {
        self.ended(&mut Reading::new(object))
    }

    fn schemas(&self, object: &Value) -> Vec<(String, Schema)> {
        let there = self.pod_sets.iter().filter(|pod_set| match &pod_set.template {
            Template::At(parts) => !places::at(object, parts).is_null(),
            Template::Made(_) => false,
        });
        there.map(|pod_set| (pod_set.pointer(), Schema::PodTemplate)).collect()
    }
}

fn pod_set_name(pod_set: &JobPodSet) -> &str {
    &pod_set.name
}

impl Declared {
    fn ended(&self, reading: &mut Reading<'_>) -> Option<JobFinished> {
        let ended = reading.truth("finished", self.finished.as_ref()?, false);
        ended.then(|| JobFinished {
            success: self.success.as_ref().is_none_or(|success| reading.truth("success", success, false)),
            message: match self.message.as_ref().map(|text| text.text(reading.object, &reading.budget)) {
                Some(Ok(text)) => text,
                Some(Err(Failure::Absent(_))) | None => String::new(),
                Some(Err(failure)) => reading.failed("message", &failure, String::new()),
            },
        })
    }

    pub(super) fn pod_sets(&self, reading: &mut Reading<'_>) -> Result<Vec<JobPodSet>, String> {
        let mut pod_sets = Vec::new();
        for pod_set in &self.pod_sets {
            let Some(template) = pod_set.template(reading)? else { continue };
            let path = pod_set.path();
            let mut found = object::pod_set(&pod_set.name, pod_set.count(reading)?, &template, &path, &[])?;
            topology::number(&mut found, pod_set.pod_index_label.as_deref());
            pod_sets.push(found);
        }
        if pod_sets.is_empty() {
            Err("the object has none of the declared pod sets".to_owned())
        } else {
            Ok(pod_sets)
        }
    }

    /// The pods that ended well and will not come again, by pod set.
    fn reclaimable(&self, pod_sets: &[JobPodSet], reading: &mut Reading<'_>) -> Vec<(String, i32)> {
        let mut found = Vec::new();
        for pod_set in &self.pod_sets {
            let Some(expression) = &pod_set.reclaimable else { continue };
            let count = pod_sets.iter().find(|one| one.name == pod_set.name).map_or(0, |one| one.count);
            let ended = match expression.count(reading.object, &reading.budget) {
                Ok(ended) => ended,
                Err(Failure::Absent(_)) => 0,
                Err(failure) => reading.failed(&pod_set.field("reclaimable"), &failure, 0),
            };
            if ended.clamp(0, count) > 0 {
                found.push((pod_set.name.clone(), ended.clamp(0, count)));
            }
        }
        found
    }

    fn places(&self, pod_set: &JobPodSet) -> Option<&Places> {
        self.pod_sets.iter().find(|declared| declared.name == pod_set.name).map(|declared| &declared.places)
    }

    /// The patch that sets the field that suspends it, and the scheduling fields of its pods.
    fn patch(&self, suspend: &Value, changes: &[(&JobPodSet, sluice_api::job::PodScheduling)]) -> Patch {
        if self.through_list {
            let mut operations = Vec::new();
            for (pod_set, target) in changes {
                let Some(places) = self.places(pod_set) else { continue };
                operations.extend(places.operations(
                    pod_set.has_template_metadata,
                    &pod_set.scheduling,
                    target,
                ));
            }
            let path: Vec<_> = self.suspend_path().iter().map(|part| (*part).to_owned()).collect();
            operations.extend(places::put(&pointer(&path), suspend));
            return Patch::Json(operations);
        }
        let mut body = nested(self.suspend_path(), suspend.clone());
        for (pod_set, target) in changes {
            if let Some(places) = self.places(pod_set) {
                places.merge(&mut body, &pod_set.scheduling, target);
            }
        }
        Patch::Merge(body)
    }
}

impl PodSet {
    /// Its template with the fields that admission may change; `None` if the object has no such pods.
    fn template<'a>(&self, reading: &mut Reading<'a>) -> Result<Option<Cow<'a, Value>>, String> {
        let template = match &self.template {
            Template::At(parts) => match places::at(reading.object, parts) {
                Value::Null if self.optional => return Ok(None),
                Value::Null => return Err(format!("{}: required", self.path())),
                found => Cow::Borrowed(found),
            },
            Template::Made(expression) => {
                let made = expression.value(reading.object, &reading.budget);
                let made = made.map_err(|failure| format!("declared {}: {failure}", self.path()))?;
                Cow::Owned(made::sound(made))
            }
        };
        Ok(Some(self.places.gathered(template, reading.object)))
    }

    fn count(&self, reading: &mut Reading<'_>) -> Result<i32, String> {
        match &self.count {
            Count::One => Ok(1),
            Count::At(parts) => match places::at(reading.object, parts) {
                Value::Null => Ok(1),
                value => object::int(value)
                    .map(|count| count.max(0))
                    .ok_or_else(|| format!("{}: must be an integer", crate::path_of(&pointer(parts)))),
            },
            Count::Made(expression) => {
                let count = expression.count(reading.object, &reading.budget);
                count
                    .map(|count| count.max(0))
                    .map_err(|failure| format!("declared {}: {failure}", self.field("count")))
            }
        }
    }

    /// The name of one of its fields in the declaration.
    fn field(&self, name: &str) -> String {
        format!("podSets[{}].{name}", self.index)
    }

    /// Where its template is, for messages.
    fn path(&self) -> String {
        match &self.template {
            Template::At(parts) => crate::path_of(&pointer(parts)),
            Template::Made(_) => self.field("templateExpression"),
        }
    }

    /// The JSON pointer of its template in the object; of its spec if it has one of its own.
    fn pointer(&self) -> String {
        match &self.template {
            Template::At(parts) => pointer(parts),
            Template::Made(_) => "/spec".to_owned(),
        }
    }
}
