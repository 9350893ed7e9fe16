// jobset.x-k8s.io/v1alpha2 JobSet.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{CountAt, Integration, PLAIN, PartNames, Parts, PartsAt, PodPlace, PodsAt};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "jobset.x-k8s.io/jobset",
    group: "jobset.x-k8s.io",
    version: "v1alpha2",
    api_version: "jobset.x-k8s.io/v1alpha2",
    kind: "JobSet",
    plural: "jobsets",
    controller: "jobset",
    about: "jobset.x-k8s.io/v1alpha2 JobSets",
    reporter: "jobset.x-k8s.io/jobset-kueue-controller",
    pods: &[PodsAt {
        place: PodPlace::Items { list: "/spec/replicatedJobs", name: "name" },
        template: "/template/spec/template",
        count: CountAt::OfJob("/template/spec"),
        parts: Some(PartsAt {
            count: "/replicas",
            template: "/template",
            index: "jobset.sigs.k8s.io/job-index",
        }),
        index: Some("batch.kubernetes.io/job-completion-index"),
    }],
    parts: &[Parts { framework: "batch/job", names: PartNames::Numbered }],
    part_label: Some(crate::labels::JOBSET_NAME),
    pod_label: Some(crate::labels::JOBSET_NAME),
    managed_by: Some("jobset.sigs.k8s.io/jobset-controller"),
    succeeded: "Completed",
    failed: "Failed",
    exclusive_topology: Some("alpha.jobset.sigs.k8s.io/exclusive-topology"),
    restarts_whole: true,
    restart_label: Some("jobset.sigs.k8s.io/restart-attempt"),
    generates: &["jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/"],
    confirms_stops: true,
    ..PLAIN
};
