//! Every kind's adapter.

use sluice_api::job::{JobKind, JobView};

use crate::adapter::Adapter;
use crate::appwrapper::AppWrapper;
use crate::declared;
use crate::external;
use crate::job::Job;
use crate::jobset::JobSet;
use crate::patch::{Patch, Step, nested};
use crate::pods::Pod;
use crate::ray::{RAY_CLUSTER, RAY_JOB, RAY_SERVICE};
use crate::replica_specs::{JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB};
use crate::serving::{Deployment, LeaderWorkerSet, StatefulSet};
use crate::spark::SparkApplication;
use crate::trainjob::TrainJob;

/// Every kind's adapter.
static ADAPTERS: [&dyn Adapter; JobKind::ALL.len()] = [
    &Job,
    &Deployment,
    &JobSet,
    &JAX_JOB,
    &MPI_JOB,
    &PADDLE_JOB,
    &PYTORCH_JOB,
    &TF_JOB,
    &XGBOOST_JOB,
    &LeaderWorkerSet,
    &Pod,
    &RAY_CLUSTER,
    &RAY_JOB,
    &RAY_SERVICE,
    &SparkApplication,
    &StatefulSet,
    &TrainJob,
    &AppWrapper,
];

/// The adapter of a kind.
pub(crate) fn of(kind: JobKind) -> &'static dyn Adapter {
    if kind.is_external() {
        return external::of(kind);
    }
    if kind.is_declared() {
        return declared::of(kind).expect("a kind is made known after its adapter");
    }
    let found = ADAPTERS.iter().find(|adapter| adapter.kind() == kind);
    *found.expect("a test finds an adapter for every kind")
}

/// The write that suspends a job of which nothing has to be restored.
pub(crate) fn suspend(view: &JobView) -> Step {
    let adapter = of(view.job.kind);
    let body = nested(adapter.suspend_path(), adapter.suspended_value());
    Step { subresource: None, patch: Patch::Merge(body).pinned(&view.resource_version) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::adapter::State;

    #[test]
    fn every_kind_has_its_adapter() {
        for kind in JobKind::ALL {
            assert_eq!(of(kind).kind(), kind);
        }
    }

    #[test]
    fn a_kind_reads_the_states_that_it_writes() {
        let pods = json!({"parallelism": 2, "template": {"spec": {"containers": []}}});
        let job = json!({"metadata": {"name": "x"}, "spec": pods});
        for kind in JobKind::ALL {
            let mut value = job.clone();
            value["spec"]["replicatedJobs"] =
                json!([{"name": "x", "replicas": 2, "template": {"spec": job["spec"]}}]);
            let wrapped = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": job["spec"]});
            value["spec"]["components"] = json!([{"template": wrapped}]);
            for field in ["jax", "mpi", "paddle", "pytorch", "tf", "xgb"] {
                value["spec"][format!("{field}ReplicaSpecs")] =
                    json!({"Worker": {"replicas": 2, "template": job["spec"]["template"]}});
            }
            let cluster = json!({
                "headGroupSpec": {"template": job["spec"]["template"]},
                "workerGroupSpecs": [{"groupName": "x", "replicas": 2, "template": job["spec"]["template"]}],
            });
            if let (Some(spec), Some(fields)) = (value["spec"].as_object_mut(), cluster.as_object()) {
                spec.extend(fields.clone());
            }
            value["spec"]["containers"] = json!([]);
            value["spec"]["shutdownAfterJobFinishes"] = json!(true);
            for field in ["rayClusterSpec", "rayClusterConfig"] {
                value["spec"][field] = cluster.clone();
            }
            value["spec"]["leaderWorkerTemplate"] =
                json!({"size": 2, "workerTemplate": job["spec"]["template"]});
            value["spec"]["runtimeRef"] = json!({"name": "x"});
            let runtime = json!({"spec": {"template": {"spec": value["spec"]}}});
            let value = of(kind).with_template(&value, &runtime);
            let now = Timestamp::UNIX_EPOCH;
            let view = |state: State| {
                let mut value = value.clone();
                value["status"] = of(kind).status(&value, state);
                assert_eq!(of(kind).finished(&value), of(kind).observe(&value).finished);
                of(kind).observe(&value)
            };
            let running = view(State::Running { since: now, ready: true });
            assert!(running.active && running.pods_ready && running.finished.is_none());
            let idle = view(State::Idle);
            assert!(!idle.active && !idle.pods_ready && idle.invalid.is_none(), "{:?}", idle.invalid);
            if !kind.integration().ends {
                continue;
            }
            for success in [true, false] {
                let ended = view(State::Ended { at: now, success });
                assert!(!ended.active);
                assert_eq!(ended.finished.unwrap().success, success);
            }
        }
    }

    #[test]
    fn the_place_of_a_template_reads_as_in_messages() {
        let jobset = json!({"spec": {"replicatedJobs": [{"name": "x"}]}});
        let groups = of(JobKind::JOB_SET).pod_groups(&jobset);
        assert_eq!(groups[0].path(), "spec.replicatedJobs[0].template.spec.template");
        let job = json!({});
        assert_eq!(of(JobKind::JOB).pod_groups(&job)[0].path(), "spec.template");
    }
}
