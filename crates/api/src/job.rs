//! A job of any kind, as the engine's input.
//!
//! The adapters of `sluice-jobs` convert a Job, JobSet, … to a [`JobView`]. The engine decides from views alone, and the adapters convert its
//! decisions ([`PodSetInfo`]s to inject or to restore) to patches. The only function of theirs that the engine calls counts the pods of groups as
//! they are added and removed.
//!
//! Source of the contract: docs/reference/07-integrations.md 7.1.

mod kind;
mod template;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, PodSchedulingGate, PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub use kind::{
    CleanUp, CountAt, DeclaredNames, Integration, JobKind, PartNames, Parts, PartsAt, PodPlace, PodsAt,
    parse_external,
};
pub use template::{Template, TemplateKind, TemplateRef, TemplateUse};

use crate::labels;
use crate::v1beta2::PodSetTopologyRequest;

/// Identifies a job: a later job of the same name has another `uid`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobRef {
    /// The kind.
    pub kind: JobKind,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
    /// Which group of the object's pods it is, if each of them is a job.
    pub group: Option<u32>,
    /// The object's UID; of a group, that and its number.
    pub uid: Arc<str>,
}

impl JobRef {
    /// The job that a group of the object's pods is.
    #[must_use]
    pub fn of_group(&self, group: u32) -> Self {
        Self { group: Some(group), uid: group_uid(&self.uid, group).into(), ..self.clone() }
    }

    /// The UID of the object.
    pub fn object_uid(&self) -> &str {
        match self.group {
            Some(_) => self.uid.rsplit_once('/').map_or(&*self.uid, |(uid, _)| uid),
            None => &self.uid,
        }
    }

    /// The name from which that of its Workload is made: a group has its number in it.
    pub fn full_name(&self) -> Cow<'_, str> {
        match self.group {
            Some(group) => Cow::Owned(format!("{}-{group}", self.name)),
            None => Cow::Borrowed(&self.name),
        }
    }
}

/// The UID that stands for a group of the pods of the object with this UID.
pub fn group_uid(uid: &str, group: u32) -> String {
    format!("{uid}/{group}")
}

/// The most groups of pods that one object may have.
pub const MAX_GROUPS: u32 = 5_000;

/// The controller of an object (the owner reference with `controller: true`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerRef {
    /// `group/version`.
    pub api_version: String,
    /// The owner's kind.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID.
    pub uid: String,
}

/// How a job ended (docs/reference/07-integrations.md, column "finished when").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFinished {
    /// Whether it succeeded.
    pub success: bool,
    /// The job's own terminal message.
    pub message: String,
}

/// One pod set of a job: the pods that share a template.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPodSet {
    /// The pod set's name, lower case, at most 63 characters.
    pub name: String,
    /// The name as its controller writes it on pods, if it finds them by that and it is not `name`.
    pub written_name: Option<Box<str>>,
    /// How many pods.
    pub count: i32,
    /// How many jobs share these pods evenly, where the job's controller makes jobs of the pod set: the replicas of a replicated Job. At least 1.
    pub parts: i32,
    /// The least number of pods that the job accepts (partial admission), if it says so.
    pub min_count: Option<i32>,
    /// The whole template as it goes into the Workload (duplicate environment variables removed, labels that the job
    /// controller generates left out). The engine drops it once the Workload exists.
    pub template: Option<Arc<PodTemplateSpec>>,
    /// A stable hash of `initContainers` and `containers`: what docs/reference/06-algorithm.md 6.20 compares besides counts and tolerations.
    pub containers_hash: u64,
    /// A stable hash of what a pod asks for ([`crate::names::requests_hash`]).
    pub requests_hash: u64,
    /// The same two hashes of these pods in the part that represents the pod set, if its controller makes them differently there.
    pub part_hash: Option<[u64; 2]>,
    /// The same two hashes of these pods in a Workload of Kueue, if Kueue builds them differently.
    pub kueues_hash: Option<Box<[u64; 2]>>,
    /// The template's current values of the fields that admission may change.
    pub scheduling: PodScheduling,
    /// Which parents of the patched fields exist in the object, for JSON patches.
    pub has_template_metadata: bool,
    /// The template where the object does not say it, as its controller makes it: a start writes it down.
    pub unwritten: Option<Arc<serde_json::Value>>,
    /// Whether its pods take whole groups of nodes.
    pub exclusive_topology: Option<ExclusiveTopology>,
    /// How its pods are numbered, and what its template asks of the topology: `topologyRequest` of the Workload's pod set.
    pub topology_request: Option<Box<PodSetTopologyRequest>>,
    /// If the job wraps other objects: the object that has these pods.
    pub wrapped: Option<Arc<Wrapped>>,
}

/// An object that a job wraps: the job's controller makes it at each start, and deletes it at each stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// Its index among the objects that the job wraps.
    pub index: usize,
    /// `group/version`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name, or with what its name begins.
    pub name: String,
    /// Whether the API server makes the rest of its name.
    pub generates_name: bool,
    /// The requests of each pod set by the adapter of the object's kind; absent if that does not know them.
    pub sizes: Option<Vec<WrappedPods>>,
}

/// The pods of one pod set of a wrapped object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrappedPods {
    /// The name of the pod set, as the object's own kind has it.
    pub name: String,
    /// How many pods.
    pub count: i32,
    /// A stable hash of what each asks for ([`crate::names::requests_hash`]).
    pub requests_hash: u64,
}

/// `alpha.jobset.sigs.k8s.io/exclusive-topology`: each replica has a group of nodes to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveTopology {
    /// The node label whose values are the groups.
    pub key: String,
    /// How many replicas share the pods of the pod set evenly.
    pub replicas: i32,
}

/// The parts of a pod template that a start injects and a stop restores (docs/reference/07-integrations.md 7.1 "Run" and "Restore").
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodScheduling {
    /// Labels of the template.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the template.
    pub annotations: BTreeMap<String, String>,
    /// The node selector.
    pub node_selector: BTreeMap<String, String>,
    /// The tolerations.
    pub tolerations: Vec<Toleration>,
    /// The scheduling gates.
    pub scheduling_gates: Vec<PodSchedulingGate>,
    /// The affinity. Only that to nodes is ever added to, and restored (ours: Kueue leaves it alone).
    pub affinity: Option<Box<Affinity>>,
}

/// The changes of one pod set at start (additions), or its restored values at stop (originals).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSetInfo {
    /// The pod set's name.
    pub name: String,
    /// The number of pods: the admitted one at start, the original one at stop.
    pub count: i32,
    /// Labels, annotations, node selector, tolerations, gates and node affinity.
    pub scheduling: PodScheduling,
}

/// A job of any kind: everything that the engine needs to know of it.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a job, each as its object says it"
)]
pub struct JobView {
    /// Which object.
    pub job: JobRef,
    /// `metadata.resourceVersion`: patches carry it, so that they never act on what they have not seen.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The LocalQueue: the label `kueue.x-k8s.io/queue-name`, or else the annotation with the same key.
    pub queue_name: Option<String>,
    /// The label `kueue.x-k8s.io/priority-class` of the job.
    pub workload_priority_class: Option<String>,
    /// The first non-empty `priorityClassName` of the pod templates.
    pub pod_priority_class: Option<String>,
    /// The label or annotation `kueue.x-k8s.io/prebuilt-workload-name`.
    pub prebuilt_workload: Option<String>,
    /// The label `kueue.x-k8s.io/max-exec-time-seconds`, in seconds, if it is valid.
    pub maximum_execution_time_seconds: Option<i32>,
    /// The most seconds that the job may run by its own spec (`activeDeadlineSeconds` of a batch Job).
    pub active_deadline_seconds: Option<i64>,
    /// How often its controller recreated its pods (`status.restarts` of a JobSet).
    pub restarts: i32,
    /// The annotation `kueue.x-k8s.io/admission-gated-by`.
    pub admission_gated_by: Option<String>,
    /// All labels of the job (`integrations.labelKeysToCopy` picks from them).
    pub labels: BTreeMap<String, String>,
    /// The annotations that a Workload inherits (`provreq.kueue.x-k8s.io/…` and Kueue's own).
    pub annotations: BTreeMap<String, String>,
    /// Its controller, when another object owns it.
    pub controller: Option<ControllerRef>,
    /// `spec.managedBy`.
    pub managed_by: Option<String>,
    /// Whether the job is suspended (a Job between the patches of a stop counts as not suspended).
    pub suspended: bool,
    /// Whether a multi-step stop was begun and not completed (a suspended batch Job with the annotation `kueue.x-k8s.io/stopping`).
    pub stopping: bool,
    /// Whether the rest of such a stop must wait: a pod that is still active may end the job, and Kubernetes ≥ 1.36 does not allow changes of a
    /// suspended Job's template until then.
    pub stop_waits: bool,
    /// Its controller's condition `Suspended` and its time, if the controller updates it at every start and stop.
    pub suspended_condition: Option<(bool, Timestamp)>,
    /// `status.observedGeneration`, for a kind whose controller writes it.
    pub observed_generation: Option<i64>,
    /// Whether it has running pods, or will have some.
    pub active: bool,
    /// Whether [`JobView::active`] is true only because its status cannot be read: whether it has pods is not known.
    pub activity_unknown: bool,
    /// Whether [`JobView::invalid`] concerns only its status: its pod sets are valid.
    pub status_unread: bool,
    /// The number of its pods that have not ended and are not being deleted, if its controller reports it; else 0.
    pub active_pods: i32,
    /// Terminating pods that have not ended: they use the quota, too, but on a lost node they never end.
    pub terminating: i32,
    /// How many of its running pods may be deleted before its controller fails it: the controller counts deleted pods as failed, unless the spec says
    /// to ignore disruptions. Absent if that is not known for the kind.
    pub spare_failures: Option<u32>,
    /// Whether its controller will report its end without any further event: it is neither started nor stopped any more.
    pub ending: bool,
    /// Whether its controller cannot say so, because the job has lost its start time.
    pub end_blocked: bool,
    /// Whether its completions are its parallelism, and the API server lets both change together (an Indexed Job).
    pub completions_equal: bool,
    /// Whether it has a start time that a stop must clear before its templates can be restored.
    pub started: bool,
    /// Set once the job ended.
    pub finished: Option<JobFinished>,
    /// Whether its controller lets pods that still run continue once it has ended.
    pub leaves_pods: bool,
    /// Whether all pods are ready or succeeded.
    pub pods_ready: bool,
    /// The number of its pods that are ready and have not ended; 0 if that is not known for the kind.
    pub ready: i32,
    /// Pods per pod set that ended well and will not come again (reclaimable), empty when none.
    pub reclaimable: Vec<(String, i32)>,
    /// Running pods per pod set, if its controller reports them and there may be more of them than quota is held for; else empty.
    pub running: Vec<(String, i32)>,
    /// The pod sets, in the job's order; at most 18. For an object whose groups of pods are jobs: the pod sets of one group.
    pub pod_sets: Vec<JobPodSet>,
    /// How many groups of pods an object has, if each of them is a job; at most [`MAX_GROUPS`].
    pub groups: Option<u32>,
    /// The parts that its status names, if its controller generates their names ([`PartNames::Generated`]); or the pod that makes the others.
    pub part_names: Vec<String>,
    /// Which pods its controller takes for its own, where its user says so (`spec.manualSelector` of a Job).
    pub pod_selector: Option<Arc<LabelSelector>>,
    /// Whether its own autoscaler says which of its pods end: those beyond its numbers run on until it has.
    pub autoscaled: bool,
    /// The template object that determines its pods, for a kind whose jobs refer to one. Without it the pod sets are missing.
    pub template: Option<TemplateUse>,
    /// Whether it may be a job that cleans up after another one ([`JobView::looks_like_clean_up`]).
    pub may_clean_up: bool,
    /// Whether the integration does not manage it, whatever queue it names: it has no pods of its own.
    pub skipped: bool,
    /// Whether [`JobPodSet::scheduling`] of its pod sets was dropped, because nothing managed it.
    pub slim: bool,
    /// Whether its controller keeps it from running at present, so that quota would be of no use; absent for kinds without such a state.
    pub on_hold: Option<bool>,
    /// Set if the object cannot become a Workload, and why (too many pod sets, a malformed template, …).
    pub invalid: Option<String>,
}

impl JobPodSet {
    /// Whether its pods wait until a slice has capacity for them, and name their pod set (docs/reference/06-algorithm.md 6.26).
    pub fn holds_pods_back(&self) -> bool {
        let gates = &self.scheduling.scheduling_gates;
        gates.iter().any(|gate| gate.name == labels::ELASTIC_JOB_SCHEDULING_GATE)
            && self.scheduling.labels.get(labels::POD_SET) == Some(&self.name)
    }
}

impl JobView {
    /// Pods of the job in all.
    pub fn total_count(&self) -> i64 {
        self.pod_sets.iter().map(|p| i64::from(p.count)).sum()
    }
}
