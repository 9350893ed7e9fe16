// leaderworkerset.x-k8s.io/v1 LeaderWorkerSet. Each of its groups of pods is a job.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{CountAt, Integration, PLAIN, PodPlace, PodsAt};

/// The label of a pod with its number in its group.
const INDEX: Option<&str> = Some("leaderworkerset.sigs.k8s.io/worker-index");

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "leaderworkerset.x-k8s.io/leaderworkerset",
    group: "leaderworkerset.x-k8s.io",
    version: "v1",
    api_version: "leaderworkerset.x-k8s.io/v1",
    kind: "LeaderWorkerSet",
    plural: "leaderworkersets",
    short_names: &["lws"],
    controller: "leaderworkerset",
    about: "leaderworkerset.x-k8s.io/v1 LeaderWorkerSets",
    reporter: "leaderworkerset.x-k8s.io/leaderworkerset-kueue-controller",
    pods: &[
        PodsAt {
            place: PodPlace::Object("leader"),
            ..PodsAt::one("/spec/leaderWorkerTemplate/leaderTemplate", CountAt::One)
        },
        PodsAt {
            place: PodPlace::Object("worker"),
            index: INDEX,
            ..PodsAt::one("/spec/leaderWorkerTemplate/workerTemplate", CountAt::ByAdapter)
        },
    ],
    pods_by_adapter: Some(
        "a group has `spec.leaderWorkerTemplate.size` pods; without a leader's template its workers are all of them, and are called `main`",
    ),
    suspends_pods: true,
    pod_index: INDEX,
    group_label: Some("leaderworkerset.sigs.k8s.io/name"),
    group_index: Some("leaderworkerset.sigs.k8s.io/group-index"),
    group_size: Some("leaderworkerset.sigs.k8s.io/size"),
    group_owner: Some("statefulset"),
    ends: false,
    ..PLAIN
};
