//! The topology annotations of pod templates (docs/reference/07-integrations.md 7.1 "Validation"; gate TopologyAwareScheduling).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::{labels, names, text};

use crate::object::{int, string_map};
use crate::registry;
use crate::review::{Context, Violations};

/// A pod template with its place and its number of pods.
struct Template {
    path: String,
    annotations: BTreeMap<String, String>,
    /// None for a part of a job: it has some of the pods of a template that was checked with the job.
    count: Option<i32>,
}

impl Template {
    fn new(path: String, template: &Value, count: Option<i32>) -> Self {
        Self { path, annotations: string_map(&template["metadata"]["annotations"]), count }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    fn path(&self, key: &str) -> String {
        format!("{}[{key}]", self.annotations_path())
    }

    fn annotations_path(&self) -> String {
        let dot = if self.path.is_empty() { "" } else { "." };
        format!("{}{dot}metadata.annotations", self.path)
    }

    /// What a group's members must have in common.
    fn request(&self) -> [Option<&str>; 2] {
        [self.get(labels::POD_SET_REQUIRED_TOPOLOGY), self.get(labels::POD_SET_PREFERRED_TOPOLOGY)]
    }
}

/// An update is checked only if it changes topology annotations: a job that runs with fewer pods than it asked for, or
/// that was made before a rule existed, must still be written by controllers. Of some jobs workload `slices` are made; some
/// are part of another job, which need not be queued.
pub(super) fn check(
    (kind, slices, is_part): (JobKind, bool, bool),
    object: &Value,
    old: Option<&Value>,
    violations: &mut Violations,
    context: &Context<'_>,
) {
    if !context.gates.enabled(Gate::TopologyAwareScheduling) {
        return;
    }
    let templates = templates(kind, object, is_part);
    if old.is_some_and(|old| requests(&self::templates(kind, old, is_part)) == requests(&templates)) {
        return;
    }
    for template in &templates {
        alone(template, violations, context);
        if slices {
            without_slices(template, violations);
        }
    }
    // The other pod set of a group is in another part.
    if !is_part {
        groups(&templates, violations);
    }
}

/// The pods of a job that changes its size while it runs are not placed together.
fn without_slices(template: &Template, violations: &mut Violations) {
    for key in [labels::POD_SET_REQUIRED_TOPOLOGY, labels::POD_SET_PREFERRED_TOPOLOGY] {
        if template.get(key).is_some() {
            let message = format!("cannot be used together with the annotation {}", labels::ELASTIC_JOB);
            violations.forbidden(&template.path(key), &message);
        }
    }
}

/// The same for a pod; `count` is the number of pods in its group, none for a pod of a job.
pub(super) fn check_pod(
    (pod, count): (&Value, Option<i32>),
    old: Option<&Value>,
    violations: &mut Violations,
    context: &Context<'_>,
) {
    let template = |pod| [Template::new(String::new(), pod, count)];
    let [new] = template(pod);
    let unchanged = old.is_some_and(|old| requests(&template(old)) == requests(&template(pod)));
    if context.gates.enabled(Gate::TopologyAwareScheduling) && !unchanged {
        alone(&new, violations, context);
    }
}

/// The topology requests of templates.
fn requests(templates: &[Template]) -> Vec<Vec<(String, String)>> {
    let ours = |(key, _): &(&String, &String)| key.starts_with("kueue.x-k8s.io/podset-");
    let of = |template: &Template| {
        template.annotations.iter().filter(ours).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    templates.iter().map(of).collect()
}

/// The rules for one template.
fn alone(template: &Template, violations: &mut Violations, context: &Context<'_>) {
    one_request(template, violations);
    slices(template, violations);
    layers(template, violations, context);
}

fn templates(kind: JobKind, object: &Value, is_part: bool) -> Vec<Template> {
    let groups = registry::of(kind).pod_groups(object);
    let count = |count| Some(count).filter(|_| !is_part);
    groups.iter().map(|group| Template::new(group.path(), &group.template, count(group.count()))).collect()
}

/// At most one of required, preferred and unconstrained, each with a legal value.
fn one_request(template: &Template, violations: &mut Violations) {
    let keys = [
        labels::POD_SET_REQUIRED_TOPOLOGY,
        labels::POD_SET_PREFERRED_TOPOLOGY,
        labels::POD_SET_UNCONSTRAINED_TOPOLOGY,
    ];
    let given: Vec<_> = keys.into_iter().filter(|key| template.annotations.contains_key(*key)).collect();
    if given.len() > 1 {
        let path = template.annotations_path();
        violations.invalid(&path, &given.join(", "), "must not contain more than one topology annotation");
    }
    for key in &keys[..2] {
        level(template, key, violations);
    }
    let unconstrained = template.get(keys[2]);
    if let Some(value) = unconstrained.filter(|value| text::boolean(value).is_none()) {
        violations.invalid(&template.path(keys[2]), value, "must be true or false");
    }
}

/// A topology level is named by a node label's key.
fn level(template: &Template, key: &str, violations: &mut Violations) {
    if let Some(text) = template.get(key)
        && let Some(error) = names::qualified_name_error(text)
    {
        violations.invalid(&template.path(key), text, &error);
    }
}

fn slices(template: &Template, violations: &mut Violations) {
    let (level_key, size_key) = (labels::POD_SET_SLICE_REQUIRED_TOPOLOGY, labels::POD_SET_SLICE_SIZE);
    level(template, level_key, violations);
    match (template.get(level_key), template.get(size_key)) {
        (Some(_), None) => {
            violations.forbidden(&template.path(level_key), "a slice topology requires a slice size");
        }
        (None, Some(_)) => {
            violations.forbidden(&template.path(size_key), "a slice size requires a slice topology");
        }
        _ => {}
    }
    let Some(text) = template.get(size_key) else { return };
    match text.parse::<i32>() {
        Err(_) => violations.invalid(&template.path(size_key), text, "must be an integer"),
        Ok(size) if size < 1 => {
            violations.invalid(&template.path(size_key), text, "must be greater than or equal to 1");
        }
        Ok(size) => no_larger_than_the_pod_set(template, size_key, size, violations),
    }
}

fn no_larger_than_the_pod_set(template: &Template, key: &str, size: i32, violations: &mut Violations) {
    if let Some(count) = template.count.filter(|count| size > *count) {
        let message = format!("must not be greater than pod set count {count}");
        violations.invalid(&template.path(key), &size.to_string(), &message);
    }
}

/// The annotation with several layers of slices.
fn layers(template: &Template, violations: &mut Violations, context: &Context<'_>) {
    let key = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
    let Some(text) = template.get(key) else { return };
    let path = template.path(key);
    // The job of a part may be older than these rules: the part is still made.
    let is_part = template.count.is_none();
    let gate = Gate::TASMultiLayerTopology;
    if !context.gates.enabled(gate) {
        if !is_part {
            let message = format!("the feature gate {} must be enabled to use this annotation", gate.name());
            violations.forbidden(&path, &message);
        }
        return;
    }
    for other in [labels::POD_SET_SLICE_REQUIRED_TOPOLOGY, labels::POD_SET_SLICE_SIZE] {
        if !is_part && template.get(other).is_some() {
            violations.forbidden(&path, &format!("may not be set when {other} is specified"));
        }
    }
    constraints(template, (&path, text), violations);
}

/// Up to three layers, each with a level of its own and a size that divides that of the layer before.
fn constraints(template: &Template, (path, text): (&str, &str), violations: &mut Violations) {
    let key = labels::POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS;
    let Ok(Value::Array(layers)) = serde_json::from_str(text) else {
        return violations.invalid(path, text, "must be a JSON list of objects with topology and size");
    };
    if !(1..=3).contains(&layers.len()) {
        violations.invalid(path, text, "must have 1 to 3 layers");
    }
    if let Some(size) = layers.first().and_then(|layer| int(&layer["size"])) {
        no_larger_than_the_pod_set(template, key, size, violations);
    }
    let mut seen = BTreeSet::new();
    let mut outer: Option<i32> = None;
    for layer in &layers {
        let (Some(level), Some(size)) = (layer["topology"].as_str(), int(&layer["size"])) else {
            violations.invalid(path, &layer.to_string(), "must have a topology and a size");
            continue;
        };
        if let Some(error) = names::qualified_name_error(level) {
            violations.invalid(path, level, &error);
        }
        if !seen.insert(level) {
            violations.invalid(path, level, "must not be in more than one layer");
        }
        if size < 1 {
            violations.invalid(path, &size.to_string(), "must be greater than or equal to 1");
        } else if let Some(outer) = outer.filter(|outer| outer % size != 0) {
            let message = format!("must divide the size of the layer before, {outer}");
            violations.invalid(path, &size.to_string(), &message);
        }
        outer = Some(size).filter(|size| *size > 0);
    }
}

/// A group is a leader of one pod and its workers, with the same request.
fn groups(templates: &[Template], violations: &mut Violations) {
    let key = labels::POD_SET_GROUP_NAME;
    let mut groups: BTreeMap<&str, Vec<&Template>> = BTreeMap::new();
    for template in templates {
        let Some(name) = template.get(key) else { continue };
        if name.parse::<u64>().is_ok() {
            violations.invalid(&template.path(key), name, "must not be a number");
        }
        if template.request() == [None, None] {
            let message = "requires podset-required-topology or podset-preferred-topology";
            violations.forbidden(&template.path(key), message);
        }
        groups.entry(name).or_default().push(template);
    }
    for (name, members) in groups {
        let [first, second] = members.as_slice() else {
            let message = format!("can only define groups of exactly 2 pod sets, got: {}", members.len());
            violations.invalid(&members[0].path(key), name, &message);
            continue;
        };
        if first.count != Some(1) && second.count != Some(1) {
            violations.invalid(
                &first.path(key),
                name,
                "one of the pod sets in a group must have exactly 1 pod",
            );
        }
        if first.request() != second.request() {
            violations.invalid(
                &second.path(key),
                name,
                "pod sets of a group must have the same topology request",
            );
        }
    }
}
