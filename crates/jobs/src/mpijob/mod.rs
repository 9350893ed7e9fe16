//! The adapter of kubeflow.org/v2beta1 MPIJob (docs/reference/07-integrations.md 7.1).

#[cfg(rustfmt)]
mod descriptor;
mod rules;

use sluice_api::job::JobKind;

use crate::replica_specs::ReplicaSpecs;

pub(crate) static ADAPTER: ReplicaSpecs = ReplicaSpecs { kind: JobKind::MPI_JOB, rules: rules::check };

#[cfg(test)]
mod tests;
