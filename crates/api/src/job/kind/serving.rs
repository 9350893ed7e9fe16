//! Kinds that serve: their pods wait for admission in their place (docs/reference/07-integrations.md 7.4).

use super::integration::{Integration, PLAIN};

/// apps/v1 Deployment. It is done when it is deleted.
pub(super) static DEPLOYMENT: Integration = Integration {
    framework: "deployment",
    group: "apps",
    version: "v1",
    api_version: "apps/v1",
    kind: "Deployment",
    plural: "deployments",
    controller: "deployment",
    about: "apps/v1 Deployments",
    reporter: "deployment-kueue-controller",
    built_into_kubernetes: true,
    suspends_pods: true,
    pods_are_jobs: true,
    ends: false,
    ..PLAIN
};

/// leaderworkerset.x-k8s.io/v1 LeaderWorkerSet. Each of its groups of pods is a job.
pub(super) static LEADER_WORKER_SET: Integration = Integration {
    framework: "leaderworkerset.x-k8s.io/leaderworkerset",
    group: "leaderworkerset.x-k8s.io",
    version: "v1",
    api_version: "leaderworkerset.x-k8s.io/v1",
    kind: "LeaderWorkerSet",
    plural: "leaderworkersets",
    controller: "leaderworkerset",
    about: "leaderworkerset.x-k8s.io/v1 LeaderWorkerSets",
    reporter: "leaderworkerset-kueue-controller",
    suspends_pods: true,
    pod_index: Some("leaderworkerset.sigs.k8s.io/worker-index"),
    group_label: Some("leaderworkerset.sigs.k8s.io/name"),
    ends: false,
    ..PLAIN
};

/// apps/v1 StatefulSet. All its pods are one job; without replicas it is on hold.
pub(super) static STATEFUL_SET: Integration = Integration {
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
