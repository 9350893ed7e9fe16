//! The marks in the pod templates of an object whose pods wait for admission in its place (docs/reference/07-integrations.md 7.4), and the number of
//! the first pod of a template.

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::labels;

use super::additions::Additions;
use crate::pod_group::PodGroup;
use crate::registry;
use crate::review::{Context, Meta};

/// Puts the marks of pods that are queued into every pod template of an object: its queue, its priority class, and that it suspends them.
pub(super) fn mark(
    kind: JobKind,
    (queue, class): (Option<&str>, Option<&str>),
    object: &Value,
    patch: &mut Additions<'_>,
) {
    let groups = registry::of(kind).pod_groups(object);
    let total = groups.iter().map(PodGroup::count).fold(0, i32::saturating_add);
    for group in &groups {
        let [labels, annotations] = registry::of(kind).marked(group);
        patch.set(&labels, labels::MANAGED, "true");
        // Where a change of the template replaces whole groups, pods get these when they are made.
        let said = if kind.has_groups() { [None; 2] } else { [queue, class] };
        for (key, value) in [labels::QUEUE_NAME, labels::PRIORITY_CLASS].into_iter().zip(said) {
            if let Some(value) = value {
                patch.set(&labels, key, value);
            }
        }
        patch.set(&annotations, labels::POD_SUSPENDING_PARENT, kind.framework());
        if kind.gathers_pods() {
            for key in [labels::POD_GROUP_FAST_ADMISSION, labels::POD_GROUP_SERVING] {
                patch.set(&annotations, key, "true");
            }
            patch.set(&annotations, labels::ROLE_HASH, &group.name);
            if let Some(label) = kind.integration().pod_index {
                patch.set(&annotations, labels::POD_GROUP_POD_INDEX_LABEL, label);
            }
            // If all pods are gone, the last number stays: no rollout is needed for it.
            if total > 0 && !kind.has_groups() {
                patch.set(&annotations, labels::POD_GROUP_TOTAL_COUNT, &total.to_string());
            }
        }
    }
    number(kind, object, patch);
}

/// Says in the pod templates of an object from which number on its controller counts the pods, where that is not 0.
pub(super) fn number(kind: JobKind, object: &Value, patch: &mut Additions<'_>) {
    let groups = registry::of(kind).pod_groups(object);
    for (at, group) in groups.iter().enumerate() {
        let first = registry::of(kind).first_index(object, &groups, at);
        if first > 0 {
            let [_, annotations] = registry::of(kind).marked(group);
            patch.set(&annotations, labels::POD_INDEX_OFFSET, &first.to_string());
        }
    }
}

/// Whether a changed object is managed. Defaults apply only at creation: otherwise a running object could not be changed any more.
pub(super) fn stays_managed(meta: &Meta, context: &Context<'_>) -> bool {
    meta.queue_name().is_some() || context.manage_jobs_without_queue_name && context.namespace_is_managed()
}
