// kubeflow.org/v1 PaddleJob.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::Integration;
use super::replica_specs::KUBEFLOW;

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/paddlejob",
    kind: "PaddleJob",
    plural: "paddlejobs",
    controller: "paddlejob",
    about: "kubeflow.org/v1 PaddleJobs",
    reporter: "kubeflow.org/paddlejob-kueue-controller",
    ..KUBEFLOW
};
