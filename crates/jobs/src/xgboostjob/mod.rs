//! The adapter of kubeflow.org/v1 XGBoostJob (docs/reference/07-integrations.md 7.1).

#[cfg(rustfmt)]
mod descriptor;

use sluice_api::job::JobKind;

use crate::replica_specs::ReplicaSpecs;

pub(crate) static ADAPTER: ReplicaSpecs = ReplicaSpecs::plain(JobKind::XGBOOST_JOB);
