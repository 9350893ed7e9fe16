//! The adapter of ray.io/v1 RayService (docs/reference/07-integrations.md 7.1 and 7.2): a cluster that serves.

#[cfg(rustfmt)]
mod descriptor;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};

use crate::adapter::State;
use crate::ray::{Ray, Variant, is, name, ready_pods};

pub(crate) static ADAPTER: Ray = Ray { kind: JobKind::RAY_SERVICE, variant: &Service };

/// What is specific to a RayService.
struct Service;

impl Variant for Service {
    fn read(&self, object: &Value, view: &mut JobView) {
        let facts = JobKind::RAY_SERVICE.integration();
        view.active = is(&object["status"], facts.active);
        view.pods_ready = is(&object["status"], facts.ready);
        view.ready = ready_pods(&object["status"]["activeServiceStatus"]["rayClusterStatus"]);
        let clusters = ["activeServiceStatus", "pendingServiceStatus"].map(|of| &object["status"][of]);
        view.part_names.extend(clusters.into_iter().filter_map(|cluster| name(&cluster["rayClusterName"])));
    }

    fn status(&self, _object: &Value, state: State) -> Value {
        let ready = |yes: bool, reason: &str| {
            let status = if yes { "True" } else { "False" };
            json!({"conditions": [{"type": "Ready", "status": status, "reason": reason}]})
        };
        match state {
            State::Running { ready: true, .. } => ready(true, "NonZeroServeEndpoints"),
            State::Running { .. } => ready(false, "Initializing"),
            State::Idle | State::Ended { .. } => ready(false, "ZeroServeEndpoints"),
        }
    }
}

#[cfg(test)]
mod tests;
