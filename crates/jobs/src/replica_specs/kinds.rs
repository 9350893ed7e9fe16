//! The kinds whose pods are in a map of replica types, and what differs between them (docs/reference/07-integrations.md 7.1).

use sluice_api::job::JobKind;

use super::ReplicaSpecs;

pub(crate) static JAX_JOB: ReplicaSpecs =
    ReplicaSpecs { kind: JobKind::JAX_JOB, field: "jaxReplicaSpecs", types: &["Worker"] };

pub(crate) static MPI_JOB: ReplicaSpecs =
    ReplicaSpecs { kind: JobKind::MPI_JOB, field: "mpiReplicaSpecs", types: &["Launcher", "Worker"] };

pub(crate) static PADDLE_JOB: ReplicaSpecs =
    ReplicaSpecs { kind: JobKind::PADDLE_JOB, field: "paddleReplicaSpecs", types: &["Master", "Worker"] };

pub(crate) static PYTORCH_JOB: ReplicaSpecs =
    ReplicaSpecs { kind: JobKind::PYTORCH_JOB, field: "pytorchReplicaSpecs", types: &["Master", "Worker"] };

pub(crate) static TF_JOB: ReplicaSpecs = ReplicaSpecs {
    kind: JobKind::TF_JOB,
    field: "tfReplicaSpecs",
    types: &["Chief", "Master", "PS", "Worker", "Evaluator"],
};

pub(crate) static XGBOOST_JOB: ReplicaSpecs =
    ReplicaSpecs { kind: JobKind::XGBOOST_JOB, field: "xgbReplicaSpecs", types: &["Master", "Worker"] };
