// trainer.kubeflow.org/v1alpha1 TrainJob. Its controller makes a JobSet of it and of the runtime that it names.
//
// `sluice-api` includes this file in its list of kinds, which is the module above.

use super::{Integration, PLAIN, PartNames, Parts, TemplateKind};

pub(super) static DESCRIPTOR: Integration = Integration {
    framework: "trainer.kubeflow.org/trainjob",
    group: "trainer.kubeflow.org",
    version: "v1alpha1",
    api_version: "trainer.kubeflow.org/v1alpha1",
    kind: "TrainJob",
    plural: "trainjobs",
    controller: "trainjob",
    about: "trainer.kubeflow.org/v1alpha1 TrainJobs",
    reporter: "trainer.kubeflow.org/trainjob-kueue-controller",
    templates: &[TemplateKind::CLUSTER_TRAINING_RUNTIME, TemplateKind::TRAINING_RUNTIME],
    parts: &[Parts { framework: "jobset.x-k8s.io/jobset", names: PartNames::Same }],
    pod_label: Some(crate::labels::JOBSET_NAME),
    managed_by: Some("trainer.kubeflow.org/trainjob-controller"),
    succeeded: "Complete",
    failed: "Failed",
    pods_by_adapter: Some("the runtime that it names has them"),
    ..PLAIN
};
