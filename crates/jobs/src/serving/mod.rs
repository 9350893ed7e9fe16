//! Kinds that serve: their pods wait for admission in their place (docs/reference/07-integrations.md 7.4).
//!
//! The webhook marks the pods in their templates. The controller of the kind makes the pods, each of which waits for admission: as a job of its
//! own, or as one of those that are admitted together.

mod deployment;
mod stateful_set;

use std::borrow::Cow;

use serde_json::Value;
use sluice_api::labels;

pub(crate) use self::deployment::Deployment;
pub(crate) use self::stateful_set::StatefulSet;
use crate::adapter::{Change, PodGroup};
use crate::object::int;
use crate::review::{Violations, label_path};

/// Where the pod template is.
const TEMPLATE: &str = "/spec/template";

/// How many pods there are to be.
fn replicas(object: &Value) -> i32 {
    int(&object["spec"]["replicas"]).unwrap_or(1).max(0)
}

/// How many pods are ready.
fn ready(object: &Value) -> i32 {
    int(&object["status"]["readyReplicas"]).unwrap_or(0)
}

/// The pods of a kind with one template.
fn one_group(object: &Value) -> PodGroup<'_> {
    PodGroup {
        name: Cow::Borrowed(labels::DEFAULT_POD_SET_NAME),
        pointer: TEMPLATE.to_owned(),
        template: Cow::Borrowed(object.pointer(TEMPLATE).unwrap_or(&Value::Null)),
        replicas: 1,
        parallel: replicas(object),
        completions: replicas(object),
        exclusive: None,
    }
}

/// Once an object is queued it stays so: its templates keep the marks. What has ready pods is refused by the rule for all kinds.
fn stays_queued(change: &Change<'_>, violations: &mut Violations) {
    let Some((_, before)) = change.old else { return };
    if change.meta.suspended && before.queue_name().is_some() && change.meta.queue_name().is_none() {
        violations.immutable(&label_path(labels::QUEUE_NAME), "");
    }
}
