//! What Ray's kinds have in common. `sluice-api` has this file as a module of its list of kinds.

use super::{CountAt, Integration, PLAIN, PodPlace, PodsAt};

/// A kind of ray.io/v1, which KubeRay controls. Its conditions do not show how it ended. Its names have to be filled in.
pub(super) const KUBERAY: Integration = Integration {
    group: "ray.io",
    version: "v1",
    api_version: "ray.io/v1",
    managed_by: Some("ray.io/kuberay-operator"),
    pods_by_adapter: Some(
        "KubeRay adds containers to the head and to what submits work, and keeps the number of workers within the bounds of their group",
    ),
    ends: false,
    follows_changes: true,
    ..PLAIN
};

/// The label that KubeRay gives to all that it makes for a RayJob or a RayService.
pub(super) const MADE_FOR: Option<&str> = Some("ray.io/originated-from-cr-name");

/// The pod of a cluster's head: the place of that in the object.
pub(super) const fn head(at: &'static str) -> PodsAt {
    PodsAt { place: PodPlace::Object("head"), ..PodsAt::one(at, CountAt::One) }
}

/// The pods of a cluster's groups of workers: the list of these.
pub(super) const fn workers(list: &'static str) -> PodsAt {
    PodsAt {
        place: PodPlace::Items { list, name: "groupName" },
        ..PodsAt::one("/template", CountAt::ByAdapter)
    }
}
