//! What Ray's kinds have in common. `sluice-api` has this file as a module of its list of kinds.

use super::{Integration, PLAIN};

/// A kind of ray.io/v1, which KubeRay looks after. Its conditions do not say how it ended. Its names are to be filled in.
pub(super) const KUBERAY: Integration = Integration {
    group: "ray.io",
    version: "v1",
    api_version: "ray.io/v1",
    managed_by: Some("ray.io/kuberay-operator"),
    ends: false,
    follows_changes: true,
    ..PLAIN
};

/// The label that KubeRay gives to all that it makes for a RayJob or a RayService.
pub(super) const MADE_FOR: Option<&str> = Some("ray.io/originated-from-cr-name");
