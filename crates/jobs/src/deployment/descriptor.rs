// apps/v1 Deployment. It is done when it is deleted.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{CountAt, Integration, PLAIN, PodsAt};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "deployment",
    group: "apps",
    version: "v1",
    api_version: "apps/v1",
    kind: "Deployment",
    plural: "deployments",
    short_names: &["deploy"],
    controller: "deployment",
    about: "apps/v1 Deployments",
    reporter: "deployment-kueue-controller",
    built_into_kubernetes: true,
    pods: &[PodsAt::one("/spec/template", CountAt::Field("/spec/replicas"))],
    suspends_pods: true,
    pods_are_jobs: true,
    ends: false,
    ..PLAIN
};
