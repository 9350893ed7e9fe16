//! The adapter of apps/v1 Deployment: each of its pods is a job of its own.

use std::borrow::Cow;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodSetInfo};
use sluice_api::labels;

use crate::adapter::{Adapter, Change, PodGroup, State};
use crate::object::{self, int};
use crate::patch::{Patch, Step};
use crate::review::{Context, Violations};
use crate::scheduling::StartError;
use crate::webhook::label_path;

/// The adapter of Deployments.
pub(crate) struct Deployment;

fn replicas(object: &Value) -> i32 {
    int(&object["spec"]["replicas"]).unwrap_or(1).max(0)
}

fn ready(object: &Value) -> i32 {
    int(&object["status"]["readyReplicas"]).unwrap_or(0)
}

impl Adapter for Deployment {
    fn kind(&self) -> JobKind {
        JobKind::DEPLOYMENT
    }

    /// What is said of all its pods together: decisions are about each of them.
    fn observe(&self, object: &Value) -> JobView {
        let mut view = object::from_metadata(self.kind(), object);
        view.suspended = self.is_suspended(object);
        view.active = ready(object) > 0;
        view.pods_ready = ready(object) >= replicas(object);
        let template = &object["spec"]["template"];
        let pod_set =
            object::pod_set(labels::DEFAULT_POD_SET_NAME, replicas(object), template, "spec.template", &[]);
        object::set_pod_sets(&mut view, pod_set.map(|pod_set| vec![pod_set]));
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
        vec![PodGroup {
            name: Cow::Borrowed(labels::DEFAULT_POD_SET_NAME),
            pointer: "/spec/template".to_owned(),
            template: Cow::Borrowed(&object["spec"]["template"]),
            replicas: 1,
            parallel: replicas(object),
            completions: replicas(object),
            exclusive: None,
        }]
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
        let Some((_, before)) = change.old else { return };
        // Once it is queued it stays so: its templates keep the marks. What runs is refused by the rule for all kinds.
        if change.meta.suspended && before.queue_name().is_some() && change.meta.queue_name().is_none() {
            violations.immutable(&label_path(labels::QUEUE_NAME), "");
        }
    }
}
