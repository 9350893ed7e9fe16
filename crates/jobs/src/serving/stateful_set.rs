//! The adapter of apps/v1 StatefulSet: its pods are one job, which is admitted as a whole.

use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobPodSet, JobView, PodSetInfo};
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_api::{labels, names};

use super::{TEMPLATE, one_group, ready, replicas, stays_queued};
use crate::adapter::{Adapter, Change, PodGroup, State};
use crate::object::{self, int};
use crate::patch::{Patch, Step};
use crate::review::{Context, Violations};
use crate::scheduling::StartError;

/// The adapter of StatefulSets.
pub(crate) struct StatefulSet;

impl Adapter for StatefulSet {
    fn kind(&self) -> JobKind {
        JobKind::STATEFUL_SET
    }

    /// What its object says. Whether it runs is said by its pods: see [`crate::pods::of_parent`].
    fn observe(&self, object: &Value) -> JobView {
        let mut view = object::from_metadata(self.kind(), object);
        view.prebuilt_workload = None;
        view.suspended = self.is_suspended(object);
        view.active = ready(object) > 0;
        view.pods_ready = ready(object) >= replicas(object);
        view.on_hold = Some(replicas(object) == 0);
        object::set_pod_sets(&mut view, pod_set(object).map(|pod_set| vec![pod_set]));
        view
    }

    /// Its pods are started, and it is left as it is.
    fn start(&self, view: &JobView, _infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        Ok(Patch::Json(Vec::new()).pinned(&view.resource_version))
    }

    fn stop(&self, _view: &JobView, _infos: &[PodSetInfo]) -> Vec<Step> {
        Vec::new()
    }

    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        vec![one_group(object)]
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let running = matches!(state, State::Running { .. });
        let ready = matches!(state, State::Running { ready: true, .. });
        let count = |counts: bool| if counts { replicas(object) } else { 0 };
        json!({"replicas": count(running), "readyReplicas": count(ready)})
    }

    /// Its queue is fixed as soon as one of its pods is ready.
    fn is_suspended(&self, object: &Value) -> bool {
        ready(object) == 0
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, _context: &Context<'_>) {
        stays_queued(change, violations);
        let Some((old, _)) = change.old.filter(|(old, _)| is_marked(old) && is_marked(change.object)) else {
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
        if before != 0 && shape(old) != shape(change.object) {
            let message =
                "Forbidden: requests, ports and scheduling of the pods are immutable, unless replicas is 0";
            violations.add("spec.template.spec", message.to_owned());
        }
    }
}

/// Whether its pods wait for admission.
fn is_marked(object: &Value) -> bool {
    let metadata = object.pointer(TEMPLATE).map_or(&Value::Null, |template| &template["metadata"]);
    metadata["annotations"][labels::POD_SUSPENDING_PARENT].is_string()
}

fn shape(object: &Value) -> Option<String> {
    let spec = PodSpec::deserialize(&object.pointer(TEMPLATE)?["spec"]).ok()?;
    Some(names::role_hash(&spec))
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
    pod_set.topology_request = Some(Box::new(PodSetTopologyRequest {
        pod_index_label: index.map(str::to_owned),
        ..PodSetTopologyRequest::default()
    }));
    Ok(pod_set)
}
