// v1 Pod, alone or in a group.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{CountAt, Integration, PLAIN, PodsAt};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "pod",
    version: "v1",
    api_version: "v1",
    kind: "Pod",
    plural: "pods",
    short_names: &["po"],
    controller: "pod",
    about: "plain Pods and groups of them",
    reporter: "pod-kueue-controller",
    built_into_kubernetes: true,
    suspend: &["spec", "schedulingGates"],
    // A pod is its own template.
    pods: &[PodsAt::one("", CountAt::One)],
    of_pods: true,
    ..PLAIN
};
