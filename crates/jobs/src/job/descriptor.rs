// batch/v1 Job.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{CountAt, Integration, PLAIN, PodsAt};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "batch/job",
    group: "batch",
    version: "v1",
    api_version: "batch/v1",
    kind: "Job",
    plural: "jobs",
    controller: "job",
    about: "batch/v1 Jobs",
    reporter: "batch/job-kueue-controller",
    built_into_kubernetes: true,
    pods: &[PodsAt {
        index: Some("batch.kubernetes.io/job-completion-index"),
        ..PodsAt::one("/spec/template", CountAt::OfJob("/spec"))
    }],
    listing_label: Some("batch.kubernetes.io/job-name"),
    managed_by: Some("kubernetes.io/job-controller"),
    succeeded: "Complete",
    failed: "Failed",
    generates: &["batch.kubernetes.io/", "job-name", "controller-uid"],
    counts_terminating: true,
    confirms_stops: true,
    enforces_stops: true,
    ..PLAIN
};
