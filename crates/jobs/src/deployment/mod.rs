//! The adapter of apps/v1 Deployment: each of its pods is a job of its own.

#[cfg(rustfmt)]
mod descriptor;

use serde_json::Value;
use sluice_api::job::{JobKind, JobView, PodSetInfo};

use crate::adapter::{Adapter, Change, State};
use crate::object;
use crate::patch::Patch;
use crate::review::{Context, Violations};
use crate::scheduling::StartError;
use crate::serving::{made_pod, observed, ready, status, stays_queued, untouched};

/// The adapter of Deployments.
pub(crate) struct Deployment;

impl Adapter for Deployment {
    fn kind(&self) -> JobKind {
        JobKind::DEPLOYMENT
    }

    /// The view of all its pods together: decisions are made about each of them.
    fn observe(&self, object: &Value) -> JobView {
        let mut view = observed(self.kind(), object);
        // They have no numbers.
        let pod_sets = self.pod_groups(object).iter().map(|group| group.pod_set(&[])).collect();
        object::set_pod_sets(&mut view, pod_sets);
        view
    }

    fn start(&self, view: &JobView, _infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        Ok(untouched(view))
    }

    fn status(&self, object: &Value, state: State) -> Value {
        status(object, state)
    }

    fn made_pod(&self, object: &Value, number: usize) -> Option<Value> {
        made_pod(self.kind(), object, 0, number)
    }

    /// Its queue is fixed as soon as one of its pods is ready.
    fn is_suspended(&self, object: &Value) -> bool {
        ready(object) == 0
    }

    fn validate(&self, change: &Change<'_>, violations: &mut Violations, _context: &Context<'_>) {
        stays_queued(change, violations);
    }
}

#[cfg(test)]
mod tests;
