//! Job kinds as data: what they are called, and what the rest of Sluice has to know of them besides what their adapters in `sluice-jobs` do.

mod order;
mod serving;
mod table;

use crate::gates::Gate;

use super::template::TemplateKind;

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
    /// As the job itself: it plays all pod sets of the job, by their names.
    Same,
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
    /// The feature gate without which its framework cannot be listed.
    pub gate: Option<Gate>,
    /// The kinds of the template objects that its jobs name, and that say what pods they have.
    pub templates: &'static [TemplateKind],
    /// Whether its pods wait for admission in its place: it has nothing that suspends it, and marks the pods in its templates.
    pub suspends_pods: bool,
    /// Whether each of its pods is a job of its own, and it is none.
    pub pods_are_jobs: bool,
    /// The label with the number of a pod among those of the object, of a kind whose pods make one job together.
    pub pod_index: Option<&'static str>,
    /// What its Workload says while its controller, or its user, holds it back.
    pub on_hold: &'static str,
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
    /// Whether a new pod tells its job by that label alone: the job is not its controller, or becomes so later. Its name, or that of the pod
    /// that controls it, is one that the job names.
    pub pods_tell_by_label: bool,
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
    templates: &[],
    suspends_pods: false,
    pods_are_jobs: false,
    pod_index: None,
    on_hold: "Job is on hold",
    parts: &[],
    gate: None,
    wraps_objects: false,
    resumes_parts_as_made: false,
    leaves_parts: false,
    part_label: None,
    pod_label: None,
    pods_tell_by_label: false,
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

/// A job kind. Ordered by the names of the frameworks.
#[derive(Clone, Copy)]
pub struct JobKind(&'static Integration);

impl JobKind {
    /// `batch/v1` Job.
    pub const JOB: Self = Self(&table::JOB);
    /// `apps/v1` Deployment.
    pub const DEPLOYMENT: Self = Self(&serving::DEPLOYMENT);
    /// `jobset.x-k8s.io/v1alpha2` JobSet.
    pub const JOB_SET: Self = Self(&table::JOB_SET);

    /// `kubeflow.org/v1` JAXJob.
    pub const JAX_JOB: Self = Self(&table::JAX_JOB);
    /// `kubeflow.org/v2beta1` MPIJob.
    pub const MPI_JOB: Self = Self(&table::MPI_JOB);
    /// `kubeflow.org/v1` PaddleJob.
    pub const PADDLE_JOB: Self = Self(&table::PADDLE_JOB);
    /// `kubeflow.org/v1` PyTorchJob.
    pub const PYTORCH_JOB: Self = Self(&table::PYTORCH_JOB);
    /// `kubeflow.org/v1` TFJob.
    pub const TF_JOB: Self = Self(&table::TF_JOB);
    /// `kubeflow.org/v1` XGBoostJob.
    pub const XGBOOST_JOB: Self = Self(&table::XGBOOST_JOB);

    /// `v1` Pod, alone or in a group.
    pub const POD: Self = Self(&table::POD);

    /// `ray.io/v1` RayCluster.
    pub const RAY_CLUSTER: Self = Self(&table::RAY_CLUSTER);
    /// `ray.io/v1` RayJob.
    pub const RAY_JOB: Self = Self(&table::RAY_JOB);
    /// `ray.io/v1` RayService.
    pub const RAY_SERVICE: Self = Self(&table::RAY_SERVICE);

    /// `sparkoperator.k8s.io/v1beta2` SparkApplication.
    pub const SPARK_APPLICATION: Self = Self(&table::SPARK_APPLICATION);
    /// `apps/v1` StatefulSet.
    pub const STATEFUL_SET: Self = Self(&serving::STATEFUL_SET);
    /// `trainer.kubeflow.org/v1alpha1` TrainJob.
    pub const TRAIN_JOB: Self = Self(&table::TRAIN_JOB);

    /// `workload.codeflare.dev/v1beta2` AppWrapper.
    pub const APP_WRAPPER: Self = Self(&table::APP_WRAPPER);

    /// Every kind that is built in, in the order of the frameworks' names.
    pub const ALL: [Self; 17] = [
        Self::JOB,
        Self::DEPLOYMENT,
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
        Self::SPARK_APPLICATION,
        Self::STATEFUL_SET,
        Self::TRAIN_JOB,
        Self::APP_WRAPPER,
    ];

    /// Those whose objects are jobs: where the pods are, nothing is to be done about the object.
    pub fn jobs() -> impl Iterator<Item = Self> {
        Self::all().iter().copied().filter(|kind| !kind.0.pods_are_jobs)
    }

    /// Whether its pods wait for admission in its place, all of them as one job.
    pub const fn gathers_pods(self) -> bool {
        self.0.suspends_pods && !self.0.pods_are_jobs
    }

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

    /// The kinds of the jobs below its jobs, at any depth.
    pub fn descendants(self) -> Vec<Self> {
        let mut found: Vec<Self> = self.parts().collect();
        let mut at = 0;
        while let Some(kind) = found.get(at) {
            let more: Vec<_> = kind.parts().filter(|part| !found.contains(part)).collect();
            found.extend(more);
            at += 1;
        }
        found
    }

    /// The kinds of the template objects that its jobs name.
    pub const fn templates(self) -> &'static [TemplateKind] {
        self.0.templates
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

    /// Whether a job of this kind that its controller makes plays all pod sets of the job.
    pub fn is_played_by(self, kind: Self) -> bool {
        self.parts_of(kind).is_some_and(|parts| matches!(parts.names, PartNames::Same))
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

#[cfg(test)]
mod tests;
