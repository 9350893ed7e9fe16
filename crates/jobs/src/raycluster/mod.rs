//! The adapter of ray.io/v1 RayCluster (docs/reference/07-integrations.md 7.1 and 7.2).

#[cfg(rustfmt)]
mod descriptor;

use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView};

use crate::adapter::State;
use crate::object;
use crate::ray::{READY, Ray, Variant, condition, is, ready_pods};

pub(crate) static ADAPTER: Ray = Ray { kind: JobKind::RAY_CLUSTER, variant: &Cluster };

/// What is specific to a RayCluster.
struct Cluster;

impl Variant for Cluster {
    fn read(&self, object: &Value, view: &mut JobView) {
        let status = &object["status"];
        view.pods_ready = status["state"] == READY;
        view.ready = ready_pods(status);
        // A cluster whose pods were never all ready has pods, too.
        view.active = view.pods_ready
            || status["head"]["podName"].as_str().is_some_and(|name| !name.is_empty())
            || object::int(&status["availableWorkerReplicas"]).is_some_and(|pods| pods > 0)
            || is(status, "RayClusterSuspending");
        view.suspended_condition = condition(status, "RayClusterSuspended").and_then(|condition| {
            let since = condition["lastTransitionTime"].as_str()?.parse().ok()?;
            Some((condition["status"] == "True", since))
        });
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match state {
            State::Running { ready, .. } => {
                json!({"state": if ready { READY } else { "" }, "head": {"podName": format!("{name}-head")}})
            }
            State::Idle | State::Ended { .. } => json!({"state": "suspended"}),
        }
    }
}

#[cfg(test)]
mod tests;
