// leaderworkerset.x-k8s.io/v1 LeaderWorkerSet. Each of its groups of pods is a job.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{Integration, PLAIN};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "leaderworkerset.x-k8s.io/leaderworkerset",
    group: "leaderworkerset.x-k8s.io",
    version: "v1",
    api_version: "leaderworkerset.x-k8s.io/v1",
    kind: "LeaderWorkerSet",
    plural: "leaderworkersets",
    controller: "leaderworkerset",
    about: "leaderworkerset.x-k8s.io/v1 LeaderWorkerSets",
    reporter: "leaderworkerset.x-k8s.io/leaderworkerset-kueue-controller",
    suspends_pods: true,
    pod_index: Some("leaderworkerset.sigs.k8s.io/worker-index"),
    group_label: Some("leaderworkerset.sigs.k8s.io/name"),
    group_owner: Some("statefulset"),
    ends: false,
    ..PLAIN
};
