// sparkoperator.k8s.io/v1beta2 SparkApplication. A state says how it ended.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{Gate, Integration, PLAIN};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "sparkoperator.k8s.io/sparkapplication",
    group: "sparkoperator.k8s.io",
    version: "v1beta2",
    api_version: "sparkoperator.k8s.io/v1beta2",
    kind: "SparkApplication",
    plural: "sparkapplications",
    short_names: &["sparkapp"],
    controller: "sparkapplication",
    about: "sparkoperator.k8s.io/v1beta2 SparkApplications",
    reporter: "sparkoperator.k8s.io/sparkapplication-kueue-controller",
    gate: Some(Gate::SparkApplicationIntegration),
    pod_label: Some("sparkoperator.k8s.io/app-name"),
    pods_are_labelled: true,
    maker_pods: Some("spark-role=driver"),
    follows_changes: true,
    leaves_terminating: true,
    pods_by_adapter: Some(
        "an application has no whole templates: fields for driver and executors say what their pods look like",
    ),
    ..PLAIN
};
