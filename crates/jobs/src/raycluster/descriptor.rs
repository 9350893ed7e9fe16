// ray.io/v1 RayCluster.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::ray::{KUBERAY, head, workers};
use super::{Integration, PartNames, Parts};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "ray.io/raycluster",
    kind: "RayCluster",
    plural: "rayclusters",
    controller: "raycluster",
    about: "ray.io/v1 RayClusters",
    reporter: "ray.io/raycluster-kueue-controller",
    listing_label: Some("ray.io/cluster"),
    pods: &[head("/spec/headGroupSpec/template"), workers("/spec/workerGroupSpecs")],
    ..KUBERAY
};

/// The clusters that are made for Ray's other kinds.
pub(super) const CLUSTERS: Parts = Parts { framework: DESCRIPTOR.framework, names: PartNames::Generated };
