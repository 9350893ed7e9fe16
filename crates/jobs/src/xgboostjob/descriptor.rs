// kubeflow.org/v1 XGBoostJob.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::Integration;
use super::replica_specs::{KUBEFLOW, replicas};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/xgboostjob",
    kind: "XGBoostJob",
    plural: "xgboostjobs",
    controller: "xgboostjob",
    about: "kubeflow.org/v1 XGBoostJobs",
    reporter: "kubeflow.org/xgboostjob-kueue-controller",
    pods: &[replicas("/spec/xgbReplicaSpecs", &["Master", "Worker"])],
    ..KUBEFLOW
};
