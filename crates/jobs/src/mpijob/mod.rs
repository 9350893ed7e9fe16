//! The adapter of kubeflow.org/v2beta1 MPIJob (docs/reference/07-integrations.md 7.1).

#[cfg(rustfmt)]
mod descriptor;
mod rules;

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_api::labels;

use crate::replica_specs::ReplicaSpecs;

pub(crate) static ADAPTER: ReplicaSpecs =
    ReplicaSpecs { kind: JobKind::MPI_JOB, rules: rules::check, of_jobs: &["launcher"], first_index };

/// Where the launcher works, too, it is the first worker, and the others are counted after it; in a group of pod sets, that is known anyway.
fn first_index(object: &Value, replica_type: &str) -> u32 {
    let spec = &object["spec"];
    let launcher = &spec["mpiReplicaSpecs"]["Launcher"];
    let grouped = launcher["template"]["metadata"]["annotations"][labels::POD_SET_GROUP_NAME].is_string();
    let follows = replica_type == "Worker" && spec["runLauncherAsWorker"] == true && launcher.is_object();
    u32::from(follows && !grouped)
}

#[cfg(test)]
mod tests;
