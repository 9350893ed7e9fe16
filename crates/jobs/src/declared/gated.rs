//! A declared kind that no field suspends: its pods wait for admission in its place, as those of a StatefulSet do
//! (docs/reference/07-integrations.md 7.4).

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::{JobPodSet, JobView};
use sluice_api::labels;

use super::adapter::{Declared, Reading, Template};
use super::places::{ANNOTATIONS, LABELS};
use crate::adapter::{Adapter as _, Change};
use crate::pod_group::{PodGroup, path_of};
use crate::review::{Context, Meta, Violations};
use crate::serving::{MadePod, keeps_template, pod, stays_queued};

impl Declared {
    /// Whether its pods wait in its place.
    pub(super) fn gates_pods(&self) -> bool {
        self.declaration.suspend.gates_pods
    }

    /// The part of the view that the object determines if its pods determine whether they run.
    pub(super) fn gathered(&self, view: &mut JobView, object: &Value) {
        view.prebuilt_workload = None;
        for pod_set in &mut view.pod_sets {
            // Labels and annotations of the template are the pods' own.
            if let Some(template) = pod_set.template.as_mut().map(Arc::make_mut) {
                template.metadata = None;
            }
        }
        let pods: i64 = view.pod_sets.iter().map(|pod_set: &JobPodSet| i64::from(pod_set.count)).sum();
        view.on_hold = Some(pods == 0 && view.invalid.is_none());
        if view.queue_name.is_some() && view.invalid.is_none() {
            view.invalid = self.pod_groups(object).iter().find_map(|group| self.unmarked(object, group));
        }
    }

    /// Why the pods of a group would not wait, if they would not: a CRD may drop what it has no fields for.
    fn unmarked(&self, object: &Value, group: &PodGroup<'_>) -> Option<String> {
        let [labels, annotations] = self.marked(group);
        let says = |map: &str, key: &str| object.pointer(map).and_then(|map| map[key].as_str());
        let marked = says(&labels, labels::MANAGED) == Some("true")
            && says(&annotations, labels::POD_SUSPENDING_PARENT) == Some(self.of.framework());
        let (first, second) = (path_of(&labels), path_of(&annotations));
        (!marked).then(|| {
            format!("{first} and {second}: the labels and annotations of waiting pods are missing; the webhook writes them, and the CRD must not prune them")
        })
    }

    /// Where labels and annotations of the pods of a group are.
    pub(super) fn marked_maps(&self, group: &PodGroup<'_>) -> [String; 2] {
        let declared = self.pod_sets.iter().find(|declared| *declared.name == *group.name);
        declared
            .map(|declared| [LABELS, ANNOTATIONS].map(|field| declared.places.pointer_of(field)))
            .unwrap_or_default()
    }

    /// An object that cannot be read is not queued, and a queued one may not become unreadable: its templates could not be marked, and the sizes of
    /// its pods not be compared. An object that was unreadable before is accepted.
    fn stays_readable(
        &self,
        change: &Change<'_>,
        violations: &mut Violations,
        context: &Context<'_>,
    ) -> bool {
        let unread = |object: &Value| self.pod_sets(&mut Reading::new(object)).err();
        let waits = |meta: &Meta| context.is_managed(meta);
        let before = change.old.filter(|(_, meta)| waits(meta)).and_then(|(old, _)| unread(old));
        let Some(why) = unread(change.object).filter(|_| waits(change.meta)) else { return true };
        if before.is_none() {
            violations.forbidden("spec", &format!("the pods of a queued object must be known: {why}"));
        }
        false
    }

    /// Fields that quota depends on may not change while there are pods.
    pub(super) fn check_gathered(
        &self,
        change: &Change<'_>,
        violations: &mut Violations,
        context: &Context<'_>,
    ) {
        stays_queued(change, violations);
        if !self.stays_readable(change, violations, context) {
            return;
        }
        let queued = |object: &Value| {
            let groups = self.pod_groups(object);
            !groups.is_empty() && groups.iter().all(|group| self.unmarked(object, group).is_none())
        };
        let Some((old, _)) = change.old.filter(|(old, _)| queued(old) && queued(change.object)) else {
            return;
        };
        let (before, after) = (self.pod_groups(old), self.pod_groups(change.object));
        let none = |groups: &[PodGroup<'_>]| groups.iter().all(|group| group.count() == 0);
        if none(&before) || none(&after) {
            return;
        }
        let sizes = |groups: &[PodGroup<'_>]| -> Vec<(String, i32)> {
            groups.iter().map(|group| (group.name.to_string(), group.count())).collect()
        };
        if sizes(&before) != sizes(&after) {
            let message = "the numbers of its pods are immutable, unless there are none before or after";
            violations.forbidden("spec", message);
            return;
        }
        for (before, after) in before.iter().zip(&after) {
            let declared = self.pod_sets.iter().find(|declared| *declared.name == *after.name);
            // An expression makes its template of any field.
            let made = declared.is_some_and(|declared| matches!(declared.template, Template::Made(_)));
            let path = if made { "spec".to_owned() } else { format!("{}.spec", path_of(&after.pointer)) };
            keeps_template([&before.template, &after.template], &path, violations);
        }
    }

    /// The pod of this number, counted through all pod sets, as its controller makes it.
    pub(super) fn gated_pod(&self, object: &Value, number: usize) -> Option<Value> {
        let name = object["metadata"]["name"].as_str()?;
        let integration = self.of.integration();
        let groups = self.pod_groups(object);
        let mut index = number;
        let group = groups.iter().find(|group| {
            let count = usize::try_from(group.count()).unwrap_or(0);
            let here = index < count;
            index -= if here { 0 } else { count };
            here
        })?;
        let labels = integration.pod_index.map(|label| (label, index.to_string())).into_iter().collect();
        let mut template = group.template.clone().into_owned();
        for (field, map) in ["labels", "annotations"].iter().zip(self.marked_maps(group)) {
            if let Some(there) = object.pointer(&map) {
                template["metadata"][*field] = there.clone();
            }
        }
        Some(pod(&MadePod {
            object,
            template: &template,
            name: format!("{name}-{number}"),
            labels,
            owner: json!({"apiVersion": self.of.api_version(), "kind": self.of.kind(), "name": name}),
        }))
    }
}

#[cfg(test)]
mod tests;
