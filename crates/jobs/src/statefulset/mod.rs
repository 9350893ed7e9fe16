//! The adapter of apps/v1 StatefulSet: its pods are one job, which is admitted as a whole.

#[cfg(rustfmt)]
mod descriptor;

use std::sync::Arc;

use serde_json::Value;
use sluice_api::job::{JobKind, JobView, PodSetInfo};

use crate::adapter::{Adapter, Change, State};
use crate::described;
use crate::object::{self, int};
use crate::patch::Patch;
use crate::pod_group::PodGroup;
use crate::pods::{Composite, GatheredPods};
use crate::review::{Context, Violations};
use crate::scheduling::StartError;
use crate::serving::{
    is_marked, keeps_shape, made_pod, marked_for, observed, ready, replicas, status, stays_queued, template,
    untouched,
};

/// The adapter of StatefulSets.
pub(crate) struct StatefulSet;

impl Adapter for StatefulSet {
    fn kind(&self) -> JobKind {
        JobKind::STATEFUL_SET
    }

    /// The view from the object. The pods determine whether it runs: see [`GatheredPods`].
    fn observe(&self, object: &Value) -> JobView {
        let mut view = observed(self.kind(), object);
        view.prebuilt_workload = None;
        view.on_hold = Some(replicas(object) == 0);
        view.skipped = self.skips(object);
        let mut pod_sets = described::pod_sets(self.kind(), object, &[]);
        for template in pod_sets.iter_mut().flatten().filter_map(|set| set.template.as_mut()) {
            // Labels and annotations of the template are the pods' own.
            Arc::make_mut(template).metadata = None;
        }
        object::set_pod_sets(&mut view, pod_sets);
        view
    }

    fn composite(&self) -> Option<&'static dyn Composite> {
        Some(&GatheredPods)
    }

    fn start(&self, view: &JobView, _infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        Ok(untouched(view))
    }

    fn status(&self, object: &Value, state: State) -> Value {
        status(object, state)
    }

    fn made_pod(&self, object: &Value, number: usize) -> Option<Value> {
        made_pod(self.kind(), object, first_ordinal(object), number)
    }

    /// The label of its pods has their ordinal.
    fn first_index(&self, object: &Value, _groups: &[PodGroup<'_>], _at: usize) -> u32 {
        if self.skips(object) { 0 } else { first_ordinal(object) }
    }

    /// Its queue is fixed as soon as one of its pods is ready.
    fn is_suspended(&self, object: &Value) -> bool {
        ready(object) == 0
    }

    /// Its pods wait in the place of another object, which made it: that has the Workloads.
    fn skips(&self, object: &Value) -> bool {
        let other = marked_for(object, template(self.kind())).and_then(JobKind::named);
        other.is_some_and(JobKind::has_groups)
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, _context: &Context<'_>) {
        stays_queued(change, violations);
        let Some((old, _)) = change.old.filter(|(old, _)| is_queued(old) && is_queued(change.object)) else {
            return;
        };
        let (before, after) = (replicas(old), replicas(change.object));
        if before != 0 && after != 0 && before != after {
            violations.immutable("spec.replicas", &after.to_string());
        }
        if before == 0 && after > 0 && int(&change.object["status"]["replicas"]).unwrap_or(0) > 0 {
            violations.forbidden("spec.replicas", "scaling down is still in progress");
        }
        // The fields that its quota depends on. A rollout may change the rest.
        if before != 0 {
            keeps_shape([old, change.object], template(self.kind()), violations);
        }
    }
}

/// The ordinal of its first pod.
fn first_ordinal(object: &Value) -> u32 {
    int(&object["spec"]["ordinals"]["start"]).and_then(|start| u32::try_from(start).ok()).unwrap_or(0)
}

/// Whether its pods wait for admission.
fn is_queued(object: &Value) -> bool {
    is_marked(object, template(JobKind::STATEFUL_SET), JobKind::STATEFUL_SET)
}

#[cfg(test)]
mod tests;
