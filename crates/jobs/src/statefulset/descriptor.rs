// apps/v1 StatefulSet. All its pods are one job; without replicas it is on hold.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{Integration, PLAIN};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "statefulset",
    group: "apps",
    version: "v1",
    api_version: "apps/v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    controller: "statefulset",
    about: "apps/v1 StatefulSets",
    reporter: "statefulset-kueue-controller",
    built_into_kubernetes: true,
    suspends_pods: true,
    pod_index: Some("apps.kubernetes.io/pod-index"),
    on_hold: "StatefulSet scaled to zero; workload on hold",
    ends: false,
    ..PLAIN
};
