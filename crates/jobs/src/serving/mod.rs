//! Kinds that serve: their pods wait for admission in their place (docs/reference/07-integrations.md 7.4).
//!
//! The webhook marks the pods in their templates. The controller of the kind makes the pods, each of which waits for admission: as a job of its own,
//! or together with others.

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};
use sluice_api::{labels, names};

use crate::adapter::{Change, State};
use crate::object::{self, int};
use crate::patch::Patch;
use crate::pod_group::path_of;
use crate::review::{Violations, label_path};

/// The JSON pointer of a kind's only pod template.
pub(crate) fn template(kind: JobKind) -> &'static str {
    kind.integration().pods.first().map_or("", |pods| pods.template)
}

/// The number of pods.
pub(crate) fn replicas(object: &Value) -> i32 {
    int(&object["spec"]["replicas"]).unwrap_or(1).max(0)
}

/// How many pods are ready.
pub(crate) fn ready(object: &Value) -> i32 {
    int(&object["status"]["readyReplicas"]).unwrap_or(0)
}

/// The view from an object, without its pod sets. It counts as suspended, so that its queue can be changed, until one of its pods is ready.
pub(crate) fn observed(kind: JobKind, object: &Value) -> JobView {
    let mut view = object::from_metadata(kind, object);
    view.suspended = ready(object) == 0;
    view.active = ready(object) > 0;
    view.pods_ready = ready(object) >= replicas(object);
    view
}

/// The status of its pods that its controller writes.
pub(crate) fn status(object: &Value, state: State) -> Value {
    let running = matches!(state, State::Running { .. });
    let ready = matches!(state, State::Running { ready: true, .. });
    let count = |counts: bool| if counts { replicas(object) } else { 0 };
    json!({"replicas": count(running), "readyReplicas": count(ready)})
}

/// The pod with this number, as its controller makes it, which begins to count with `first`. Unlike a real one its owner is the object itself, and
/// its name has a number, whatever the kind.
pub(crate) fn made_pod(kind: JobKind, object: &Value, first: u32, number: usize) -> Option<Value> {
    if !usize::try_from(replicas(object)).is_ok_and(|replicas| number < replicas) {
        return None;
    }
    let name = object["metadata"]["name"].as_str()?;
    let index = kind.integration().pod_index;
    let number = usize::try_from(first).ok()?.checked_add(number)?;
    Some(pod(&MadePod {
        object,
        template: object.pointer(template(kind))?,
        name: format!("{name}-{number}"),
        labels: index.into_iter().map(|label| (label, number.to_string())).collect(),
        owner: json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "name": name}),
    }))
}

/// A pod as the controller of its object makes it.
pub(crate) struct MadePod<'a> {
    /// That object.
    pub object: &'a Value,
    /// The pod template.
    pub template: &'a Value,
    /// The pod's name.
    pub name: String,
    /// Labels besides those of the template.
    pub labels: Vec<(&'static str, String)>,
    /// Its controller, without UID.
    pub owner: Value,
}

/// The pod.
pub(crate) fn pod(made: &MadePod<'_>) -> Value {
    let MadePod { object, template, name, labels, owner } = made;
    let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut all = map(&template["metadata"]["labels"]);
    all.extend(labels.iter().map(|(label, value)| ((*label).to_owned(), json!(value))));
    let mut owner = owner.clone();
    (owner["uid"], owner["controller"]) = (object["metadata"]["uid"].clone(), json!(true));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": object["metadata"]["namespace"],
            "labels": all,
            "annotations": map(&template["metadata"]["annotations"]),
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    })
}

/// The patch that starts it: its pods are started, and the object is not changed.
pub(crate) fn untouched(view: &JobView) -> Patch {
    Patch::Json(Vec::new()).pinned(&view.resource_version)
}

/// Once an object is queued it stays so: its templates keep the marks. What has ready pods is refused by the rule for all kinds.
pub(crate) fn stays_queued(change: &Change<'_>, violations: &mut Violations) {
    let Some((_, before)) = change.old else { return };
    if change.meta.suspended && before.queue_name().is_some() && change.meta.queue_name().is_none() {
        violations.immutable(&label_path(labels::QUEUE_NAME), "");
    }
}

/// The framework that the pods of the template at a JSON pointer name as that of the object which suspends them.
pub(crate) fn marked_for<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?["metadata"]["annotations"][labels::POD_SUSPENDING_PARENT].as_str()
}

/// Whether the pods of the template at a JSON pointer wait for admission in the place of an object of this kind.
pub(crate) fn is_marked(object: &Value, pointer: &str, kind: JobKind) -> bool {
    marked_for(object, pointer) == Some(kind.framework())
}

/// Fields that quota depends on may not change in the template at a JSON pointer of an old and a new object.
pub(crate) fn keeps_shape(objects: [&Value; 2], pointer: &str, violations: &mut Violations) {
    let templates = objects.map(|object| object.pointer(pointer).unwrap_or(&Value::Null));
    keeps_template(templates, &format!("{}.spec", path_of(pointer)), violations);
}

/// The same for two templates themselves, whose spec is at this path.
pub(crate) fn keeps_template([old, new]: [&Value; 2], path: &str, violations: &mut Violations) {
    let shape = |template: &Value| {
        let spec = PodSpec::deserialize(&template["spec"]).ok()?;
        // Quota also counts limits where there are no requests.
        Some((names::role_hash(&spec), names::requests_hash(&spec)))
    };
    if shape(old) != shape(new) {
        let message = "requests, ports and scheduling of the pods are immutable, unless replicas is 0";
        violations.forbidden(path, message);
    }
}

#[cfg(test)]
mod tests;
