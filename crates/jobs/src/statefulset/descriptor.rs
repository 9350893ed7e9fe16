// apps/v1 StatefulSet. All its pods are one job; without replicas it is on hold.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{CountAt, Integration, PLAIN, PodsAt};

/// The label of a pod with its number.
const INDEX: Option<&str> = Some("apps.kubernetes.io/pod-index");

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "statefulset",
    group: "apps",
    version: "v1",
    api_version: "apps/v1",
    kind: "StatefulSet",
    plural: "statefulsets",
    short_names: &["sts"],
    controller: "statefulset",
    about: "apps/v1 StatefulSets",
    reporter: "statefulset-kueue-controller",
    built_into_kubernetes: true,
    pods: &[PodsAt { index: INDEX, ..PodsAt::one("/spec/template", CountAt::Field("/spec/replicas")) }],
    suspends_pods: true,
    pod_index: INDEX,
    on_hold: "StatefulSet scaled to zero; workload on hold",
    ends: false,
    ..PLAIN
};
