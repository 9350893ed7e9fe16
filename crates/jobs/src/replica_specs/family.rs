//! What Kubeflow's kinds have in common. `sluice-api` has this file as a module of its list of kinds.

use super::{Integration, PLAIN};

/// A kind of kubeflow.org/v1, which the training operator looks after. Its names are to be filled in.
pub(super) const KUBEFLOW: Integration = Integration {
    group: "kubeflow.org",
    version: "v1",
    api_version: "kubeflow.org/v1",
    listing_label: Some("training.kubeflow.org/job-name"),
    managed_by: Some("kubeflow.org/training-operator"),
    suspend: &["spec", "runPolicy", "suspend"],
    ready: "Running",
    succeeded: "Succeeded",
    failed: "Failed",
    follows_changes: true,
    ..PLAIN
};
