// kubeflow.org/v1 TFJob.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::Integration;
use super::replica_specs::KUBEFLOW;

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/tfjob",
    kind: "TFJob",
    plural: "tfjobs",
    controller: "tfjob",
    about: "kubeflow.org/v1 TFJobs",
    reporter: "kubeflow.org/tfjob-kueue-controller",
    ..KUBEFLOW
};
