// kubeflow.org/v1 PyTorchJob.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::Integration;
use super::replica_specs::{KUBEFLOW, replicas};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/pytorchjob",
    kind: "PyTorchJob",
    plural: "pytorchjobs",
    controller: "pytorchjob",
    about: "kubeflow.org/v1 PyTorchJobs",
    reporter: "kubeflow.org/pytorchjob-kueue-controller",
    pods: &[replicas("/spec/pytorchReplicaSpecs", &["Master", "Worker"])],
    ..KUBEFLOW
};
