// kubeflow.org/v1 TFJob.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::Integration;
use super::replica_specs::{KUBEFLOW, replicas};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/tfjob",
    kind: "TFJob",
    plural: "tfjobs",
    controller: "tfjob",
    about: "kubeflow.org/v1 TFJobs",
    reporter: "kubeflow.org/tfjob-kueue-controller",
    pods: &[replicas("/spec/tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"])],
    ..KUBEFLOW
};
