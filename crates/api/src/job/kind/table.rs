//! The kinds that are built in: what each is, and which adapter of `sluice-jobs` plays it. Nothing else lists them.
//!
//! An entry is `NAME by folder::ADAPTER = facts;`, where the adapter is in that folder of `crates/jobs/src`. Entries are sorted by framework.

use super::JobKind;
use super::integration::{Integration, PLAIN, PartNames, Parts};
use crate::gates::Gate;
use crate::job::template::TemplateKind;

/// Makes the kinds, the list of them, and the macro that lists their adapters. The first sign is the one that macros begin variables with: the
/// macro that is made needs one of its own.
macro_rules! kinds {
    (($sign:tt) $($(#[$doc:meta])+ $name:ident by $($adapter:ident)::+ = $facts:expr;)+) => {
        impl JobKind {
            $(
                $(#[$doc])+
                pub const $name: Self = Self({
                    static FACTS: Integration = $facts;
                    &FACTS
                });
            )+

            /// Every kind that is built in, in the order of the frameworks' names.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];
        }

        /// The adapters of [`JobKind::ALL`](crate::job::JobKind::ALL), in the same order: references to what is at these paths below the
        /// given root, which is the `crate` that has them.
        #[macro_export]
        macro_rules! job_adapters {
            ($sign root:tt) => { [$(&$sign root::$($adapter)::+),+] };
        }
    };
}

kinds! {
    ($)

    /// batch/v1 Job.
    JOB by job::Job = Integration {
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
        listing_label: Some("batch.kubernetes.io/job-name"),
        managed_by: Some("kubernetes.io/job-controller"),
        succeeded: "Complete",
        failed: "Failed",
        counts_terminating: true,
        confirms_stops: true,
        ..PLAIN
    };

    /// apps/v1 Deployment. It is done when it is deleted.
    DEPLOYMENT by serving::Deployment = Integration {
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

    /// jobset.x-k8s.io/v1alpha2 JobSet.
    JOB_SET by jobset::JobSet = Integration {
        framework: "jobset.x-k8s.io/jobset",
        group: "jobset.x-k8s.io",
        version: "v1alpha2",
        api_version: "jobset.x-k8s.io/v1alpha2",
        kind: "JobSet",
        plural: "jobsets",
        controller: "jobset",
        about: "jobset.x-k8s.io/v1alpha2 JobSets",
        reporter: "jobset.x-k8s.io/jobset-kueue-controller",
        parts: &[Parts { framework: "batch/job", names: PartNames::Numbered }],
        part_label: Some(crate::labels::JOBSET_NAME),
        pod_label: Some(crate::labels::JOBSET_NAME),
        managed_by: Some("jobset.sigs.k8s.io/jobset-controller"),
        succeeded: "Completed",
        failed: "Failed",
        exclusive_topology: Some("alpha.jobset.sigs.k8s.io/exclusive-topology"),
        restarts_whole: true,
        ..PLAIN
    };

    /// kubeflow.org/v1 JAXJob.
    JAX_JOB by replica_specs::JAX_JOB = of_training_operator(
        ["kubeflow.org/jaxjob", "JAXJob", "jaxjobs", "jaxjob"],
        "kubeflow.org/v1 JAXJobs",
        "kubeflow.org/jaxjob-kueue-controller",
    );

    /// kubeflow.org/v2beta1 MPIJob. Its launcher's pod is that of a batch Job, its workers' pods are its own.
    MPI_JOB by replica_specs::MPI_JOB = Integration {
        version: "v2beta1",
        api_version: "kubeflow.org/v2beta1",
        parts: &[Parts { framework: "batch/job", names: PartNames::PodSet }],
        resumes_parts_as_made: true,
        managed_by: Some("kubeflow.org/mpi-operator"),
        ..of_training_operator(
            ["kubeflow.org/mpijob", "MPIJob", "mpijobs", "mpijob"],
            "kubeflow.org/v2beta1 MPIJobs",
            "kubeflow.org/mpijob-kueue-controller",
        )
    };

    /// kubeflow.org/v1 PaddleJob.
    PADDLE_JOB by replica_specs::PADDLE_JOB = of_training_operator(
        ["kubeflow.org/paddlejob", "PaddleJob", "paddlejobs", "paddlejob"],
        "kubeflow.org/v1 PaddleJobs",
        "kubeflow.org/paddlejob-kueue-controller",
    );

    /// kubeflow.org/v1 PyTorchJob.
    PYTORCH_JOB by replica_specs::PYTORCH_JOB = of_training_operator(
        ["kubeflow.org/pytorchjob", "PyTorchJob", "pytorchjobs", "pytorchjob"],
        "kubeflow.org/v1 PyTorchJobs",
        "kubeflow.org/pytorchjob-kueue-controller",
    );

    /// kubeflow.org/v1 TFJob.
    TF_JOB by replica_specs::TF_JOB = of_training_operator(
        ["kubeflow.org/tfjob", "TFJob", "tfjobs", "tfjob"],
        "kubeflow.org/v1 TFJobs",
        "kubeflow.org/tfjob-kueue-controller",
    );

    /// kubeflow.org/v1 XGBoostJob.
    XGBOOST_JOB by replica_specs::XGBOOST_JOB = of_training_operator(
        ["kubeflow.org/xgboostjob", "XGBoostJob", "xgboostjobs", "xgboostjob"],
        "kubeflow.org/v1 XGBoostJobs",
        "kubeflow.org/xgboostjob-kueue-controller",
    );

    /// leaderworkerset.x-k8s.io/v1 LeaderWorkerSet. Each of its groups of pods is a job.
    LEADER_WORKER_SET by serving::LeaderWorkerSet = Integration {
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

    /// v1 Pod, alone or in a group.
    POD by pods::Pod = Integration {
        framework: "pod",
        version: "v1",
        api_version: "v1",
        kind: "Pod",
        plural: "pods",
        controller: "pod",
        about: "plain Pods and groups of them",
        reporter: "pod-kueue-controller",
        built_into_kubernetes: true,
        of_pods: true,
        ..PLAIN
    };

    /// ray.io/v1 RayCluster.
    RAY_CLUSTER by ray::RAY_CLUSTER = Integration {
        listing_label: Some("ray.io/cluster"),
        ..of_kuberay(
            ["ray.io/raycluster", "RayCluster", "rayclusters", "raycluster"],
            "ray.io/v1 RayClusters",
            "ray.io/raycluster-kueue-controller",
        )
    };

    /// ray.io/v1 RayJob. Besides its cluster there is a batch Job that hands the work to it.
    RAY_JOB by ray::RAY_JOB = Integration {
        parts: &[CLUSTERS, Parts { framework: "batch/job", names: PartNames::Job("submitter") }],
        part_label: MADE_FOR,
        ends: true,
        ..of_kuberay(
            ["ray.io/rayjob", "RayJob", "rayjobs", "rayjob"],
            "ray.io/v1 RayJobs",
            "ray.io/rayjob-kueue-controller",
        )
    };

    /// ray.io/v1 RayService. KubeRay makes another cluster for each change of its spec, and keeps the one before until that is ready.
    RAY_SERVICE by ray::RAY_SERVICE = Integration {
        parts: &[CLUSTERS],
        leaves_parts: true,
        part_label: MADE_FOR,
        ..of_kuberay(
            ["ray.io/rayservice", "RayService", "rayservices", "rayservice"],
            "ray.io/v1 RayServices",
            "ray.io/rayservice-kueue-controller",
        )
    };

    /// sparkoperator.k8s.io/v1beta2 SparkApplication. A state says how it ended.
    SPARK_APPLICATION by spark::SparkApplication = Integration {
        framework: "sparkoperator.k8s.io/sparkapplication",
        group: "sparkoperator.k8s.io",
        version: "v1beta2",
        api_version: "sparkoperator.k8s.io/v1beta2",
        kind: "SparkApplication",
        plural: "sparkapplications",
        controller: "sparkapplication",
        about: "sparkoperator.k8s.io/v1beta2 SparkApplications",
        reporter: "sparkoperator.k8s.io/sparkapplication-kueue-controller",
        gate: Some(Gate::SparkApplicationIntegration),
        pod_label: Some("sparkoperator.k8s.io/app-name"),
        pods_tell_by_label: true,
        maker_pods: Some("spark-role=driver"),
        follows_changes: true,
        ..PLAIN
    };

    /// apps/v1 StatefulSet. All its pods are one job; without replicas it is on hold.
    STATEFUL_SET by serving::StatefulSet = Integration {
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

    /// trainer.kubeflow.org/v1alpha1 TrainJob. Its controller makes a JobSet of it and of the runtime that it names.
    TRAIN_JOB by trainjob::TrainJob = Integration {
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
        ..PLAIN
    };

    /// workload.codeflare.dev/v1beta2 AppWrapper. A phase says how it ended.
    APP_WRAPPER by appwrapper::AppWrapper = Integration {
        framework: "workload.codeflare.dev/appwrapper",
        group: "workload.codeflare.dev",
        version: "v1beta2",
        api_version: "workload.codeflare.dev/v1beta2",
        kind: "AppWrapper",
        plural: "appwrappers",
        controller: "appwrapper",
        about: "workload.codeflare.dev/v1beta2 AppWrappers",
        reporter: "workload.codeflare.dev/appwrapper-kueue-controller",
        wraps_objects: true,
        pod_label: Some("workload.codeflare.dev/appwrapper"),
        managed_by: Some("workload.codeflare.dev/appwrapper-controller"),
        ..PLAIN
    };
}

/// A kind of kubeflow.org/v1, which the training operator looks after.
const fn of_training_operator(
    [framework, kind, plural, controller]: [&'static str; 4],
    about: &'static str,
    reporter: &'static str,
) -> Integration {
    Integration {
        framework,
        group: "kubeflow.org",
        version: "v1",
        api_version: "kubeflow.org/v1",
        kind,
        plural,
        controller,
        about,
        reporter,
        listing_label: Some("training.kubeflow.org/job-name"),
        managed_by: Some("kubeflow.org/training-operator"),
        succeeded: "Succeeded",
        failed: "Failed",
        follows_changes: true,
        ..PLAIN
    }
}

/// A kind of ray.io/v1, which KubeRay looks after. Its conditions do not say how it ended.
const fn of_kuberay(
    [framework, kind, plural, controller]: [&'static str; 4],
    about: &'static str,
    reporter: &'static str,
) -> Integration {
    Integration {
        framework,
        group: "ray.io",
        version: "v1",
        api_version: "ray.io/v1",
        kind,
        plural,
        controller,
        about,
        reporter,
        managed_by: Some("ray.io/kuberay-operator"),
        ends: false,
        follows_changes: true,
        ..PLAIN
    }
}

/// The clusters of Ray's other kinds.
const CLUSTERS: Parts = Parts { framework: "ray.io/raycluster", names: PartNames::Generated };
/// The label that KubeRay gives to all that it makes for a RayJob or a RayService.
const MADE_FOR: Option<&str> = Some("ray.io/originated-from-cr-name");
