//! The adapter of apps/v1 StatefulSet: its pods are one job, which is admitted as a whole.

#[cfg(rustfmt)]
mod descriptor;

use serde_json::Value;
use sluice_api::job::{JobKind, JobPodSet, JobView, PodSetInfo};
use sluice_api::labels;

use crate::adapter::{Adapter, Change, PodGroup, State};
use crate::object::{self, int};
use crate::patch::Patch;
use crate::pods::{Composite, GatheredPods};
use crate::review::{Context, Violations};
use crate::scheduling::StartError;
use crate::serving::{
    TEMPLATE, is_marked, keeps_shape, made_pod, marked_for, observed, one_group, ready, replicas, status,
    stays_queued, untouched,
};
use crate::topology;

/// The adapter of StatefulSets.
pub(crate) struct StatefulSet;

impl Adapter for StatefulSet {
    fn kind(&self) -> JobKind {
        JobKind::STATEFUL_SET
    }

    /// What its object says. Whether it runs is said by its pods: see [`GatheredPods`].
    fn observe(&self, object: &Value) -> JobView {
        let mut view = observed(self.kind(), object);
        view.prebuilt_workload = None;
        view.on_hold = Some(replicas(object) == 0);
        view.skipped = self.skips(object);
        object::set_pod_sets(&mut view, pod_set(object).map(|pod_set| vec![pod_set]));
        view
    }

    fn composite(&self) -> Option<&'static dyn Composite> {
        Some(&GatheredPods)
    }

    fn start(&self, view: &JobView, _infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        Ok(untouched(view))
    }

    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        vec![one_group(object)]
    }

    fn status(&self, object: &Value, state: State) -> Value {
        status(object, state)
    }

    fn made_pod(&self, object: &Value, number: usize) -> Option<Value> {
        made_pod(self.kind(), object, number)
    }

    /// Its queue is fixed as soon as one of its pods is ready.
    fn is_suspended(&self, object: &Value) -> bool {
        ready(object) == 0
    }

    /// Its pods wait in the place of another object, which made it: that has the Workloads.
    fn skips(&self, object: &Value) -> bool {
        let other = marked_for(object, TEMPLATE).and_then(JobKind::named);
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
        // What its quota depends on. The rest changes by a rollout.
        if before != 0 {
            keeps_shape([old, change.object], TEMPLATE, violations);
        }
    }
}

/// Whether its pods wait for admission.
fn is_queued(object: &Value) -> bool {
    is_marked(object, TEMPLATE, JobKind::STATEFUL_SET)
}

fn pod_set(object: &Value) -> Result<JobPodSet, String> {
    let none = Value::Null;
    let template = object.pointer(TEMPLATE).unwrap_or(&none);
    let name = labels::DEFAULT_POD_SET_NAME;
    let mut pod_set = object::pod_set(name, replicas(object), template, "spec.template", &[])?;
    // Labels and annotations of the template are the pods' own.
    if let Some(template) = pod_set.template.as_mut().map(std::sync::Arc::make_mut) {
        template.metadata = None;
    }
    let index = JobKind::STATEFUL_SET.integration().pod_index;
    topology::number(&mut pod_set, index);
    Ok(pod_set)
}

#[cfg(test)]
mod tests;
