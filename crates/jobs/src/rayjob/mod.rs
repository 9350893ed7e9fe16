//! The adapter of ray.io/v1 RayJob (docs/reference/07-integrations.md 7.1 and 7.2): a cluster that is made for its work.

#[cfg(rustfmt)]
mod descriptor;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::job::{JobFinished, JobKind, JobView};

use crate::adapter::State;
use crate::patch::{Patch, Step};
use crate::ray::{READY, Ray, Submission, Variant, name, ready_pods};
use crate::review::Violations;

pub(crate) static ADAPTER: Ray = Ray { kind: JobKind::RAY_JOB, variant: &Job };

/// What is specific to a RayJob.
struct Job;

/// The state in which a RayJob waits for its user to name the work. KubeRay ignores `suspend` in it.
const WAITING: &str = "Waiting";
/// The state in which KubeRay deletes what it made for a RayJob, which leads to [`SUSPENDED`].
const SUSPENDING: &str = "Suspending";
const SUSPENDED: &str = "Suspended";
/// The state of a RayJob that KubeRay does not understand.
const VALIDATION_FAILED: &str = "ValidationFailed";

impl Job {
    fn state(object: &Value) -> &str {
        object["status"]["jobDeploymentStatus"].as_str().unwrap_or_default()
    }
}

impl Variant for Job {
    fn read(&self, object: &Value, view: &mut JobView) {
        let state = Self::state(object);
        // A waiting RayJob runs on, and has to be stopped in another way.
        view.stopping = view.suspended && state == WAITING;
        view.suspended &= !view.stopping;
        view.active = !matches!(state, "" | SUSPENDED | VALIDATION_FAILED) && view.finished.is_none();
        view.pods_ready = object["status"]["rayClusterStatus"]["state"] == READY;
        view.ready = ready_pods(&object["status"]["rayClusterStatus"]);
        view.on_hold = Some(state == VALIDATION_FAILED);
        view.part_names.extend(name(&object["status"]["rayClusterName"]));
    }

    fn finished(&self, object: &Value) -> Option<JobFinished> {
        let status = &object["status"];
        matches!(Self::state(object), "Complete" | "Failed").then(|| JobFinished {
            success: status["jobStatus"] == "SUCCEEDED",
            message: status["message"].as_str().unwrap_or_default().to_owned(),
        })
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let started = &object["status"]["startTime"];
        let ended = |state: &str, result: &str, message: &str, at: Timestamp| {
            json!({"jobDeploymentStatus": state, "jobStatus": result, "message": message,
                "startTime": started, "endTime": whole_seconds(at)})
        };
        match state {
            State::Running { since, ready } => {
                let cluster = if ready { json!({"state": READY}) } else { json!({}) };
                let work = if ready { "RUNNING" } else { "PENDING" };
                json!({"jobDeploymentStatus": "Running", "jobStatus": work, "rayClusterStatus": cluster,
                    "startTime": whole_seconds(since)})
            }
            State::Idle => json!({"jobDeploymentStatus": SUSPENDED}),
            State::Ended { at, success: true } => {
                ended("Complete", "SUCCEEDED", "Job finished successfully.", at)
            }
            State::Ended { at, success: false } => {
                ended("Failed", "RUNNING", "The RayJob has passed the activeDeadlineSeconds.", at)
            }
        }
    }

    fn submission(&self, object: &Value) -> Submission {
        match object["spec"]["submissionMode"].as_str() {
            None | Some("" | "K8sJobMode") => Submission::Job,
            Some("SidecarMode") => Submission::Head,
            Some(_) => Submission::None,
        }
    }

    /// KubeRay refuses to suspend a RayJob whose cluster outlives its work.
    fn trouble(&self, object: &Value) -> Option<String> {
        let shuts_down = object["spec"]["shutdownAfterJobFinishes"] == true;
        (!shuts_down).then(|| format!("spec.shutdownAfterJobFinishes: {SHUT_DOWN}"))
    }

    /// A RayJob that selects a cluster has no pods of its own.
    fn skips(&self, object: &Value) -> bool {
        object["spec"]["clusterSelector"].as_object().is_some_and(|selector| !selector.is_empty())
    }

    /// A RayJob in state `Waiting` (its user submits the job) is stopped through its status: KubeRay then stops it in any state.
    fn stop(&self, view: &JobView) -> Option<Step> {
        let status = json!({"status": {"jobDeploymentStatus": SUSPENDING}});
        view.stopping.then_some(Step { subresource: Some("status"), patch: Patch::Merge(status) })
    }

    fn validate(&self, object: &Value, violations: &mut Violations) -> bool {
        let spec = &object["spec"];
        let has_cluster = spec["rayClusterSpec"].is_object();
        if self.skips(object) {
            if has_cluster {
                let value = &spec["clusterSelector"];
                let message = "a kueue managed job should not use an existing cluster";
                violations.add("spec.clusterSelector", format!("Invalid value: {value}: {message}"));
            }
            return false;
        }
        if !has_cluster {
            let message = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector";
            violations.add("spec.rayClusterSpec", format!("Required value: {message}"));
            return false;
        }
        if spec["shutdownAfterJobFinishes"] != true {
            let path = "spec.shutdownAfterJobFinishes";
            violations.add(path, format!("Invalid value: false: {SHUT_DOWN}"));
        }
        true
    }

    /// One that selects a cluster is not managed: until what it made for itself is gone, that would run without quota.
    fn validate_change(&self, old: &Value, new: &Value, violations: &mut Violations) {
        let waits = old["spec"]["suspend"] == true && name(&old["status"]["rayClusterName"]).is_none();
        if self.skips(old) != self.skips(new) && !waits && self.finished(old).is_none() {
            let message = "cannot be set or removed until the job is suspended and its cluster is gone";
            violations.forbidden("spec.clusterSelector", message);
        }
    }
}

/// Why a RayJob's cluster must not outlive its work.
const SHUT_DOWN: &str = "a kueue managed job should delete the cluster after finishing";

#[cfg(test)]
mod tests;
