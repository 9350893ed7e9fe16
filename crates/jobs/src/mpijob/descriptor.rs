// kubeflow.org/v2beta1 MPIJob. Its launcher's pod is that of a batch Job, its workers' pods are its own.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::replica_specs::{KUBEFLOW, replicas};
use super::{Integration, PartNames, Parts};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "kubeflow.org/mpijob",
    kind: "MPIJob",
    plural: "mpijobs",
    controller: "mpijob",
    about: "kubeflow.org/v2beta1 MPIJobs",
    reporter: "kubeflow.org/mpijob-kueue-controller",
    version: "v2beta1",
    api_version: "kubeflow.org/v2beta1",
    parts: &[Parts { framework: "batch/job", names: PartNames::PodSet }],
    resumes_parts_as_made: true,
    managed_by: Some("kubeflow.org/mpi-operator"),
    pods: &[replicas("/spec/mpiReplicaSpecs", &["Launcher", "Worker"])],
    ..KUBEFLOW
};
