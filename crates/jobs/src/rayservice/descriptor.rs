// ray.io/v1 RayService. KubeRay makes another cluster for each change of its spec, and keeps the one before until that is ready.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::ray::{KUBERAY, MADE_FOR, head, workers};
use super::raycluster::CLUSTERS;
use super::{Gate, Integration};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "ray.io/rayservice",
    kind: "RayService",
    plural: "rayservices",
    controller: "rayservice",
    about: "ray.io/v1 RayServices",
    reporter: "ray.io/rayservice-kueue-controller",
    suspend: &["spec", "rayClusterConfig", "suspend"],
    active: "Ready",
    ready: "Ready",
    parts: &[CLUSTERS],
    leaves_parts: true,
    // The finalizer of a fault-tolerant cluster keeps it until a Job has removed its data from Redis.
    parts_clean_up: Some(Gate::DeferRayServiceFinalizationForRedisCleanup),
    part_label: MADE_FOR,
    pods: &[
        head("/spec/rayClusterConfig/headGroupSpec/template"),
        workers("/spec/rayClusterConfig/workerGroupSpecs"),
    ],
    ..KUBERAY
};
