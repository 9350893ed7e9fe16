//! The properties of a job kind outside its adapter.

use super::pods_at::PodsAt;
use crate::gates::Gate;
use crate::job::template::TemplateKind;

/// The jobs of one kind that the controller of another kind makes.
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
    /// A name that the controller generates and writes into the job's status before it creates the part, which represents several pod sets of the
    /// job.
    Generated,
}

impl PartNames {
    /// Whether such a part represents one pod set of the job.
    pub fn is_of_one(self) -> bool {
        matches!(self, Self::Numbered | Self::PodSet | Self::Job(_))
    }
}

/// The properties of a job kind that fit in a table (docs/reference/07-integrations.md, the table in 7.1).
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
    /// The short names that the cluster has for it.
    pub short_names: &'static [&'static str],
    /// The name of its controller in `--controllers`.
    pub controller: &'static str,
    /// The purpose of that controller.
    pub about: &'static str,
    /// Which controller reports the kind's events (docs/reference/03-conditions-events.md 3.6).
    pub reporter: &'static str,
    /// Whether the API server itself serves the kind: it is not waited for.
    pub built_into_kubernetes: bool,
    /// Whether its jobs are made of pods, alone or in groups: a start is a write for each, and a stop deletes.
    pub of_pods: bool,
    /// The feature gate that its framework requires.
    pub gate: Option<Gate>,
    /// Where its pod templates are, and how many pods there are of each, in the order of the pod sets.
    pub pods: &'static [PodsAt],
    /// Why its adapter says what pods there are besides, or instead; none where [`pods`](Self::pods) say all of it.
    pub pods_by_adapter: Option<&'static str>,
    /// The path of the field with the PriorityClass of all its pods, which takes precedence over the templates'. Empty if there is none.
    pub priority_class: &'static [&'static str],
    /// The kinds of the template objects that its jobs name, and that say what pods they have.
    pub templates: &'static [TemplateKind],
    /// Whether its pods wait for admission in its place: it has nothing that suspends it, and marks the pods in its templates.
    pub suspends_pods: bool,
    /// The names of its pod sets whose pods no scheduling gate can hold back, as admission has no place for one: they get no flavor with a topology.
    pub ungated: &'static [&'static str],
    /// Whether each of its pods is a job of its own, and it is none.
    pub pods_are_jobs: bool,
    /// The label with the number of a pod in its object, for a kind whose pods form one job together.
    pub pod_index: Option<&'static str>,
    /// The label with the object's name on all its pods, for a kind whose pods are in groups, each of which is a job.
    pub group_label: Option<&'static str>,
    /// The label with the group's number on the pods of such a group.
    pub group_index: Option<&'static str>,
    /// The annotation with the group's size on the pods of such a group.
    pub group_size: Option<&'static str>,
    /// The framework of the object that its controller makes for such a group, and that makes the pods.
    pub group_owner: Option<&'static str>,
    /// The message of its Workload while its controller, or its user, holds it back.
    pub on_hold: &'static str,
    /// The jobs that the kind's controller makes, each with its own pods.
    pub parts: &'static [Parts],
    /// Whether its objects wrap whole objects of other kinds, which its controller makes at a start and deletes at a stop.
    pub wraps_objects: bool,
    /// Whether its controller reuses parts from before a start as they are, even if the job's templates have changed.
    pub resumes_parts_as_made: bool,
    /// Whether its controller lets a part that runs continue when the job is stopped: Sluice stops it then.
    pub leaves_parts: bool,
    /// The gate with which its parts clean up after it on its quota: a deleted job keeps that until they are gone.
    pub parts_clean_up: Option<Gate>,
    /// The job that its controller makes to clean up after a deleted job, which is kept until that is done.
    pub cleaned_up_by: Option<CleanUp>,
    /// Where only parts of the managed kinds are watched: the label that every part has.
    pub part_label: Option<&'static str>,
    /// The label with the job's name that all pods of a job have, its parts' included.
    pub pod_label: Option<&'static str>,
    /// The same for a kind whose controller sets such a label for users: pods are listed by it, and nothing depends on it.
    pub listing_label: Option<&'static str>,
    /// Whether only that label identifies the job of a new pod: the job is not its controller, or only becomes it later. The job contains the pod's
    /// name, or the name of the pod that controls it.
    pub pods_are_labelled: bool,
    /// Where they do: the label selector of the pods that make the others.
    pub maker_pods: Option<&'static str>,
    /// The value of `spec.managedBy` that means the kind's own controller.
    pub managed_by: Option<&'static str>,
    /// Whether its controller follows changes of pod templates and of numbers of pods while a job runs, or when it makes a part of the job again.
    pub follows_changes: bool,
    /// Whether its jobs end by themselves.
    pub ends: bool,
    /// The path of the field that suspends its jobs.
    pub suspend: &'static [&'static str],
    /// The condition for running or expected pods, if there is one.
    pub active: &'static str,
    /// The condition for ready pods, if there is one.
    pub ready: &'static str,
    /// The condition for success, if there is one.
    pub succeeded: &'static str,
    /// The condition for failure, if there is one.
    pub failed: &'static str,
    /// The annotation with which each part takes whole groups of nodes: those with the same value of the annotation's label.
    pub exclusive_topology: Option<&'static str>,
    /// Whether its controller recreates all pods when one fails, and counts that in `status.restarts`.
    pub restarts_whole: bool,
    /// The label of its pods with the number of restarts at their creation, for such a kind.
    pub restart_label: Option<&'static str>,
    /// Labels and annotations that its controller adds to the templates of what it makes and looks after: keys, or beginnings of keys, which end
    /// with a slash.
    pub generates: &'static [&'static str],
    /// Whether its status counts pods that are being deleted, in `status.terminating`.
    pub counts_terminating: bool,
    /// Whether its controller says that a job has stopped, or ended, as soon as it has asked for the deletion of its pods: these may still run.
    pub leaves_terminating: bool,
    /// Whether its controller says in the condition `Suspended`, set to `False` by another, when it has seen a stop.
    pub confirms_stops: bool,
    /// Whether its controller comes back to a stopped job until its pods are gone.
    pub enforces_stops: bool,
    /// Whether its controller says in `status.observedGeneration` what it has acted on, if it writes that at all.
    pub observes_generation: bool,
    /// Whether the configuration describes it, and nothing is built in for it.
    pub declared: bool,
    /// Whether others manage it: its objects are parents of jobs, and no jobs.
    pub external: bool,
}

/// A kind whose controller makes only pods, without special properties. Its names must be filled in.
pub(super) const PLAIN: Integration = Integration {
    framework: "",
    group: "",
    version: "",
    api_version: "",
    kind: "",
    plural: "",
    short_names: &[],
    controller: "",
    about: "",
    reporter: "",
    built_into_kubernetes: false,
    of_pods: false,
    pods: &[],
    pods_by_adapter: None,
    priority_class: &[],
    templates: &[],
    suspends_pods: false,
    ungated: &[],
    pods_are_jobs: false,
    pod_index: None,
    group_label: None,
    group_index: None,
    group_size: None,
    group_owner: None,
    on_hold: "Job is on hold",
    parts: &[],
    gate: None,
    wraps_objects: false,
    resumes_parts_as_made: false,
    leaves_parts: false,
    parts_clean_up: None,
    cleaned_up_by: None,
    part_label: None,
    pod_label: None,
    listing_label: None,
    pods_are_labelled: false,
    maker_pods: None,
    managed_by: None,
    follows_changes: false,
    ends: true,
    suspend: &["spec", "suspend"],
    active: "",
    ready: "",
    succeeded: "",
    failed: "",
    exclusive_topology: None,
    restarts_whole: false,
    restart_label: None,
    generates: &[],
    counts_terminating: false,
    leaves_terminating: false,
    confirms_stops: false,
    enforces_stops: false,
    observes_generation: false,
    declared: false,
    external: false,
};

/// The job that a kind's controller makes to clean up after a deleted job of the kind.
#[derive(Clone, Copy, Debug)]
pub struct CleanUp {
    /// The framework of that job.
    pub framework: &'static str,
    /// What its name has behind that of the deleted job.
    pub suffix: &'static str,
    /// The most that its only pod requests: amounts by resource, as Kubernetes writes them.
    pub most: &'static [(&'static str, &'static str)],
}
