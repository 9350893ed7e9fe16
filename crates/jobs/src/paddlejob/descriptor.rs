// kubeflow.org/v1 PaddleJob.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::Integration;
use super::replica_specs::{KUBEFLOW, replicas};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/paddlejob",
    kind: "PaddleJob",
    plural: "paddlejobs",
    controller: "paddlejob",
    about: "kubeflow.org/v1 PaddleJobs",
    reporter: "kubeflow.org/paddlejob-kueue-controller",
    pods: &[replicas("/spec/paddleReplicaSpecs", &["Master", "Worker"])],
    ..KUBEFLOW
};
