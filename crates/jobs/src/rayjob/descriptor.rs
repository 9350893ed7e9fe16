// ray.io/v1 RayJob. Besides its cluster there is a batch Job that hands the work to it.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::ray::{KUBERAY, MADE_FOR, head, workers};
use super::raycluster::CLUSTERS;
use super::{CountAt, Integration, PartNames, Parts, PodPlace, PodsAt};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "ray.io/rayjob",
    kind: "RayJob",
    plural: "rayjobs",
    controller: "rayjob",
    about: "ray.io/v1 RayJobs",
    reporter: "ray.io/rayjob-kueue-controller",
    parts: &[CLUSTERS, Parts { framework: "batch/job", names: PartNames::Job("submitter") }],
    part_label: MADE_FOR,
    ends: true,
    pods: &[
        head("/spec/rayClusterSpec/headGroupSpec/template"),
        workers("/spec/rayClusterSpec/workerGroupSpecs"),
        PodsAt {
            place: PodPlace::Object("submitter"),
            ..PodsAt::one("/spec/submitterPodTemplate", CountAt::One)
        },
    ],
    ..KUBERAY
};
