// ray.io/v1 RayCluster.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::ray::{KUBERAY, head, workers};
use super::{CleanUp, Integration, PartNames, Parts};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "ray.io/raycluster",
    kind: "RayCluster",
    plural: "rayclusters",
    controller: "raycluster",
    about: "ray.io/v1 RayClusters",
    reporter: "ray.io/raycluster-kueue-controller",
    listing_label: Some("ray.io/cluster"),
    // It removes the data of a fault-tolerant cluster from Redis.
    cleaned_up_by: Some(CleanUp {
        framework: "batch/job",
        suffix: "-redis-cleanup",
        most: &[("cpu", "200m"), ("memory", "256Mi")],
    }),
    pods: &[head("/spec/headGroupSpec/template"), workers("/spec/workerGroupSpecs")],
    ..KUBERAY
};

/// The clusters that are made for Ray's other kinds.
pub(super) const CLUSTERS: Parts = Parts { framework: DESCRIPTOR.framework, names: PartNames::Generated };
