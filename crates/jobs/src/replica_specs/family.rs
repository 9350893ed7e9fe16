//! What Kubeflow's kinds have in common. `sluice-api` has this file as a module of its list of kinds.

use super::{CountAt, Integration, PLAIN, PodPlace, PodsAt};

/// A kind of kubeflow.org/v1, which the training operator controls. Its names have to be filled in.
pub(super) const KUBEFLOW: Integration = Integration {
    group: "kubeflow.org",
    version: "v1",
    api_version: "kubeflow.org/v1",
    listing_label: Some("training.kubeflow.org/job-name"),
    managed_by: Some("kubeflow.org/training-operator"),
    priority_class: &["spec", "runPolicy", "schedulingPolicy", "priorityClass"],
    generates: &["training.kubeflow.org/"],
    suspend: &["spec", "runPolicy", "suspend"],
    ready: "Running",
    succeeded: "Succeeded",
    failed: "Failed",
    follows_changes: true,
    leaves_terminating: true,
    ..PLAIN
};

/// The pods of such a kind: the map with the spec of each type, and the types.
pub(super) const fn replicas(map: &'static str, types: &'static [&'static str]) -> PodsAt {
    PodsAt {
        place: PodPlace::Types { map, types },
        template: "/template",
        count: CountAt::Field("/replicas"),
        parts: None,
        index: Some("training.kubeflow.org/replica-index"),
    }
}
