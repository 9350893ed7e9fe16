//! Job kinds as data: what they are called, and what the rest of Sluice has to know of them besides what their adapters in `sluice-jobs` do.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

mod declared;

pub use declared::DeclaredNames;

/// The jobs of one kind that the controller of another makes.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Their framework.
    pub framework: &'static str,
    /// How they are called.
    pub names: PartNames,
}

/// How the parts of a job are called, which says what pods they have.
#[derive(Clone, Copy, Debug)]
pub enum PartNames {
    /// `<job>-<pod set>-<index>`.
    Numbered,
    /// `<job>-<pod set>`.
    PodSet,
    /// As the job itself: it plays the pod set of this name.
    Job(&'static str),
    /// What its controller thinks of, and writes into the job's status before it makes it: it plays several pod sets of the job.
    Generated,
}

/// What a job kind is, as far as it can be said in a table (docs/reference/07-integrations.md, the table in 7.1).
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a kind")]
pub struct Integration {
    /// The name in `integrations.frameworks`.
    pub framework: &'static str,
    /// The API group.
    pub group: &'static str,
    /// The API version inside the group.
    pub version: &'static str,
    /// `group/version`.
    pub api_version: &'static str,
    /// The kind's name.
    pub kind: &'static str,
    /// The plural resource name.
    pub plural: &'static str,
    /// The name of its controller in `--controllers`.
    pub controller: &'static str,
    /// What that controller is about.
    pub about: &'static str,
    /// Which controller reports the kind's events (docs/reference/03-conditions-events.md 3.6).
    pub reporter: &'static str,
    /// Whether the API server itself serves the kind: it is not waited for.
    pub built_into_kubernetes: bool,
    /// Whether its jobs are made of pods, alone or in groups: a start is a write for each, and a stop deletes.
    pub of_pods: bool,
    /// The jobs that the kind's controller makes, each of which has its pods.
    pub parts: &'static [Parts],
    /// Whether its objects wrap whole objects of other kinds, which its controller makes at a start and deletes at a stop.
    pub wraps_objects: bool,
    /// Whether its controller lets parts that it made before a start run as they are, whatever the job's templates say by then.
    pub resumes_parts_as_made: bool,
    /// Whether its controller lets a part that runs go on when the job is stopped: Sluice stops it then.
    pub leaves_parts: bool,
    /// Where only parts of the managed kinds are watched: the label that every part has.
    pub part_label: Option<&'static str>,
    /// The label with the job's name that all pods of a job have, its parts' included.
    pub pod_label: Option<&'static str>,
    /// The value of `spec.managedBy` that means the kind's own controller.
    pub managed_by: Option<&'static str>,
    /// Whether its jobs end by themselves.
    pub ends: bool,
    /// The condition that says that it succeeded, where one does.
    pub succeeded: &'static str,
    /// The condition that says that it failed, where one does.
    pub failed: &'static str,
    /// The annotation by which each part takes whole groups of nodes: those with the same value of the label that it names.
    pub exclusive_topology: Option<&'static str>,
    /// Whether its controller makes all pods anew when one fails, and counts that in `status.restarts`.
    pub restarts_whole: bool,
    /// Whether its status counts pods that are being deleted, in `status.terminating`.
    pub counts_terminating: bool,
    /// Whether its controller says in the condition `Suspended`, set to `False` by another, when it has seen a stop.
    pub confirms_stops: bool,
    /// Whether the configuration describes it, and nothing is built in for it.
    pub declared: bool,
}

/// A kind whose controller makes pods and nothing else, without anything that only some kinds have. Its names are to be filled in.
const PLAIN: Integration = Integration {
    framework: "",
    group: "",
    version: "",
    api_version: "",
    kind: "",
    plural: "",
    controller: "",
    about: "",
    reporter: "",
    built_into_kubernetes: false,
    of_pods: false,
    parts: &[],
    wraps_objects: false,
    resumes_parts_as_made: false,
    leaves_parts: false,
    part_label: None,
    pod_label: None,
    managed_by: None,
    ends: true,
    succeeded: "",
    failed: "",
    exclusive_topology: None,
    restarts_whole: false,
    counts_terminating: false,
    confirms_stops: false,
    declared: false,
};

/// batch/v1 Job.
static JOB: Integration = Integration {
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
    managed_by: Some("kubernetes.io/job-controller"),
    succeeded: "Complete",
    failed: "Failed",
    counts_terminating: true,
    confirms_stops: true,
    ..PLAIN
};

/// jobset.x-k8s.io/v1alpha2 JobSet.
static JOB_SET: Integration = Integration {
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

/// v1 Pod, alone or in a group.
static POD: Integration = Integration {
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
        managed_by: Some("kubeflow.org/training-operator"),
        succeeded: "Succeeded",
        failed: "Failed",
        ..PLAIN
    }
}

/// kubeflow.org/v1 JAXJob.
static JAX_JOB: Integration = of_training_operator(
    ["kubeflow.org/jaxjob", "JAXJob", "jaxjobs", "jaxjob"],
    "kubeflow.org/v1 JAXJobs",
    "kubeflow.org/jaxjob-kueue-controller",
);

/// kubeflow.org/v1 PaddleJob.
static PADDLE_JOB: Integration = of_training_operator(
    ["kubeflow.org/paddlejob", "PaddleJob", "paddlejobs", "paddlejob"],
    "kubeflow.org/v1 PaddleJobs",
    "kubeflow.org/paddlejob-kueue-controller",
);

/// kubeflow.org/v1 PyTorchJob.
static PYTORCH_JOB: Integration = of_training_operator(
    ["kubeflow.org/pytorchjob", "PyTorchJob", "pytorchjobs", "pytorchjob"],
    "kubeflow.org/v1 PyTorchJobs",
    "kubeflow.org/pytorchjob-kueue-controller",
);

/// kubeflow.org/v1 TFJob.
static TF_JOB: Integration = of_training_operator(
    ["kubeflow.org/tfjob", "TFJob", "tfjobs", "tfjob"],
    "kubeflow.org/v1 TFJobs",
    "kubeflow.org/tfjob-kueue-controller",
);

/// kubeflow.org/v1 XGBoostJob.
static XGBOOST_JOB: Integration = of_training_operator(
    ["kubeflow.org/xgboostjob", "XGBoostJob", "xgboostjobs", "xgboostjob"],
    "kubeflow.org/v1 XGBoostJobs",
    "kubeflow.org/xgboostjob-kueue-controller",
);

/// kubeflow.org/v2beta1 MPIJob. Its launcher's pod is that of a batch Job, its workers' pods are its own.
static MPI_JOB: Integration = Integration {
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
        ..PLAIN
    }
}

/// The clusters of Ray's other kinds.
const CLUSTERS: Parts = Parts { framework: "ray.io/raycluster", names: PartNames::Generated };
/// The label that KubeRay gives to all that it makes for a RayJob or a RayService.
const MADE_FOR: Option<&str> = Some("ray.io/originated-from-cr-name");

/// ray.io/v1 RayCluster.
static RAY_CLUSTER: Integration = of_kuberay(
    ["ray.io/raycluster", "RayCluster", "rayclusters", "raycluster"],
    "ray.io/v1 RayClusters",
    "ray.io/raycluster-kueue-controller",
);

/// ray.io/v1 RayJob. Besides its cluster there is a batch Job that hands the work to it.
static RAY_JOB: Integration = Integration {
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
static RAY_SERVICE: Integration = Integration {
    parts: &[CLUSTERS],
    leaves_parts: true,
    part_label: MADE_FOR,
    ..of_kuberay(
        ["ray.io/rayservice", "RayService", "rayservices", "rayservice"],
        "ray.io/v1 RayServices",
        "ray.io/rayservice-kueue-controller",
    )
};

/// workload.codeflare.dev/v1beta2 AppWrapper. A phase says how it ended.
static APP_WRAPPER: Integration = Integration {
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

/// A job kind. Ordered by the names of the frameworks.
#[derive(Clone, Copy)]
pub struct JobKind(&'static Integration);

impl JobKind {
    /// `batch/v1` Job.
    pub const JOB: Self = Self(&JOB);
    /// `jobset.x-k8s.io/v1alpha2` JobSet.
    pub const JOB_SET: Self = Self(&JOB_SET);

    /// `kubeflow.org/v1` JAXJob.
    pub const JAX_JOB: Self = Self(&JAX_JOB);
    /// `kubeflow.org/v2beta1` MPIJob.
    pub const MPI_JOB: Self = Self(&MPI_JOB);
    /// `kubeflow.org/v1` PaddleJob.
    pub const PADDLE_JOB: Self = Self(&PADDLE_JOB);
    /// `kubeflow.org/v1` PyTorchJob.
    pub const PYTORCH_JOB: Self = Self(&PYTORCH_JOB);
    /// `kubeflow.org/v1` TFJob.
    pub const TF_JOB: Self = Self(&TF_JOB);
    /// `kubeflow.org/v1` XGBoostJob.
    pub const XGBOOST_JOB: Self = Self(&XGBOOST_JOB);

    /// `v1` Pod, alone or in a group.
    pub const POD: Self = Self(&POD);

    /// `ray.io/v1` RayCluster.
    pub const RAY_CLUSTER: Self = Self(&RAY_CLUSTER);
    /// `ray.io/v1` RayJob.
    pub const RAY_JOB: Self = Self(&RAY_JOB);
    /// `ray.io/v1` RayService.
    pub const RAY_SERVICE: Self = Self(&RAY_SERVICE);

    /// `workload.codeflare.dev/v1beta2` AppWrapper.
    pub const APP_WRAPPER: Self = Self(&APP_WRAPPER);

    /// Every kind that is built in, in the order of the frameworks' names.
    pub const ALL: [Self; 13] = [
        Self::JOB,
        Self::JOB_SET,
        Self::JAX_JOB,
        Self::MPI_JOB,
        Self::PADDLE_JOB,
        Self::PYTORCH_JOB,
        Self::TF_JOB,
        Self::XGBOOST_JOB,
        Self::POD,
        Self::RAY_CLUSTER,
        Self::RAY_JOB,
        Self::RAY_SERVICE,
        Self::APP_WRAPPER,
    ];

    /// What is known of it.
    pub const fn integration(self) -> &'static Integration {
        self.0
    }

    /// The API group.
    pub const fn group(self) -> &'static str {
        self.0.group
    }

    /// The API version inside the group.
    pub const fn version(self) -> &'static str {
        self.0.version
    }

    /// `group/version`, as owner references have it.
    pub const fn api_version(self) -> &'static str {
        self.0.api_version
    }

    /// The kind's name.
    pub const fn kind(self) -> &'static str {
        self.0.kind
    }

    /// The plural resource name.
    pub const fn plural(self) -> &'static str {
        self.0.plural
    }

    /// The name in `integrations.frameworks`.
    pub const fn framework(self) -> &'static str {
        self.0.framework
    }

    /// The kinds of the jobs that its controller makes.
    pub fn parts(self) -> impl Iterator<Item = Self> {
        self.0.parts.iter().filter_map(|parts| Self::named(parts.framework))
    }

    /// What its controller makes of this kind.
    pub fn parts_of(self, kind: Self) -> Option<&'static Parts> {
        self.0.parts.iter().find(|parts| parts.framework == kind.framework())
    }

    /// Whether its controller writes the names of what it makes of this kind into the job's status.
    pub fn names_parts_of(self, kind: Self) -> bool {
        self.parts_of(kind).is_some_and(|parts| matches!(parts.names, PartNames::Generated))
    }

    /// Whether its controller writes the names of any jobs that it makes into the job's status.
    pub fn names_parts(self) -> bool {
        self.0.parts.iter().any(|parts| matches!(parts.names, PartNames::Generated))
    }

    /// Whether its controller makes jobs.
    pub const fn has_parts(self) -> bool {
        !self.0.parts.is_empty()
    }

    /// Whether its controller makes jobs of other kinds.
    pub const fn makes_jobs(self) -> bool {
        self.has_parts() || self.0.wraps_objects
    }

    /// The kind with this name of a framework.
    pub fn named(framework: &str) -> Option<Self> {
        Self::all().iter().copied().find(|kind| kind.framework() == framework)
    }

    /// The kind that an owner reference names, if it is one of ours (any version of the group).
    pub fn from_owner(api_version: &str, kind: &str) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::all().iter().copied().find(|k| k.group() == group && k.kind() == kind)
    }
}

impl fmt::Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.kind)
    }
}

impl PartialEq for JobKind {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for JobKind {}

impl PartialOrd for JobKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobKind {
    fn cmp(&self, other: &Self) -> Ordering {
        // Most comparisons are of one kind with itself.
        if std::ptr::eq(self.0, other.0) {
            return Ordering::Equal;
        }
        self.0.framework.cmp(other.0.framework)
    }
}

impl Hash for JobKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.framework.hash(state);
    }
}

#[cfg(test)]
mod tests;
