// kubeflow.org/v1 JAXJob.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::Integration;
use super::replica_specs::{KUBEFLOW, replicas};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/jaxjob",
    kind: "JAXJob",
    plural: "jaxjobs",
    controller: "jaxjob",
    about: "kubeflow.org/v1 JAXJobs",
    reporter: "kubeflow.org/jaxjob-kueue-controller",
    pods: &[replicas("/spec/jaxReplicaSpecs", &["Worker"])],
    ..KUBEFLOW
};
