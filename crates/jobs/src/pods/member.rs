//! The data of a pod that decisions of the plain pod integration need.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use serde::Deserialize as _;
use serde_json::Value;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{ControllerRef, JobPodSet};
use sluice_api::{labels, names, slim};

use super::parent::{Parent, size};
use crate::bulk::{Bulk, STARTED};
use crate::{object, topology};

/// The phase of a pod, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has not begun, or its node does not respond.
    Pending,
    /// Its containers were started.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, at least one of them with an error.
    Failed,
}

/// The number of pods in a group, from one of them: at least 1, or what is wrong.
pub type TotalCount = Result<i32, String>;

/// A pod.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a pod")]
pub struct Member {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it will be gone, if it is being deleted.
    pub deleted_by: Option<Timestamp>,
    /// Its group.
    pub group: Option<Arc<str>>,
    /// Its role: the name of its pod set in the group's Workload.
    pub role: Arc<str>,
    /// Its LocalQueue.
    pub queue_name: Option<Arc<str>>,
    /// How many pods the group has.
    pub total_count: TotalCount,
    /// Whether the group is admitted as soon as its first pod exists.
    pub fast_admission: bool,
    /// Whether the group never finishes.
    pub serving: bool,
    /// Whether the group is over when none of its pods runs any more.
    pub unretriable: bool,
    /// Its number in the group, as its label has it.
    pub index: Option<String>,
    /// Whether it has the label of managed pods.
    pub managed: bool,
    /// The framework whose object suspends it.
    pub suspending_parent: Option<String>,
    /// The object whose job it is a part of.
    pub parent: Option<Parent>,
    /// The object that controls it, if it is a job by itself.
    pub controller: Option<Box<ControllerRef>>,
    /// Its requests, if it has such an object, or if it is in a group and its role does not follow from its spec.
    pub size: Option<Box<slim::PodTemplate>>,
    /// Whether it waits for admission.
    pub gated: bool,
    /// Whether our finalizer keeps it.
    pub held: bool,
    /// Whether it has a node.
    pub bound: bool,
    /// Its phase.
    pub phase: Phase,
    /// Whether it is ready.
    pub ready: bool,
    /// When it was declared failed, where its status says so.
    pub failed_at: Option<Timestamp>,
    /// The message in its status.
    pub message: String,
    /// Its pod set of one pod: named after its role in a group, else `main`. Or why there cannot be one.
    pub pod_set: Result<Box<JobPodSet>, String>,
}

impl Member {
    /// Reads a pod.
    pub fn observe(pod: &Value, gates: &Gates) -> Self {
        let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
        let text = |key: &str| metadata[key].as_str().unwrap_or_default();
        let time = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
        let filled = |map: &str, key: &str| metadata[map][key].as_str().filter(|value| !value.is_empty());
        let annotated = |key: &str, value: &str| metadata["annotations"][key] == value;
        let group = group_name(metadata, gates).map(Arc::from);
        let parent = Parent::of(metadata);
        let has_role = group.is_some() || parent.is_some();
        let said = filled("annotations", labels::ROLE_HASH).map(str::to_owned);
        // Any user can write a role into a pod.
        let is_known = said.is_some() && !has_role;
        let is_large = Bulk::of(pod).excess(STARTED, Bulk::default()).is_some();
        let made = if is_known || is_large { None } else { PodSpec::deserialize(spec).ok() };
        let made = made.map(|spec| names::role_hash(&spec));
        let is_made = said.is_none() || said == made;
        let role: Arc<str> = Arc::from(said.or(made).unwrap_or_default());
        let name = if has_role { &role } else { labels::DEFAULT_POD_SET_NAME };
        let condition = |kind: &str| {
            status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind)
        };
        let failed =
            condition("ContainersReady").filter(|c| c["status"] == "False" && c["reason"] == "PodFailed");
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
        let mut scheduling_gates = spec["schedulingGates"].as_array().into_iter().flatten();
        Self {
            namespace: Arc::from(text("namespace")),
            name: Arc::from(text("name")),
            uid: Arc::from(text("uid")),
            resource_version: text("resourceVersion").to_owned(),
            created: time(&metadata["creationTimestamp"]).unwrap_or(Timestamp::UNIX_EPOCH),
            deleted_by: time(&metadata["deletionTimestamp"]),
            queue_name: filled("labels", labels::QUEUE_NAME)
                .or_else(|| filled("annotations", labels::QUEUE_NAME))
                .map(Arc::from),
            total_count: total_count(metadata),
            fast_admission: metadata["annotations"][labels::POD_GROUP_FAST_ADMISSION].is_string(),
            serving: group.is_some() && annotated(labels::POD_GROUP_SERVING, "true"),
            unretriable: annotated(labels::RETRIABLE_IN_GROUP, "false"),
            index: metadata["labels"][labels::POD_GROUP_POD_INDEX].as_str().map(str::to_owned),
            managed: metadata["labels"][labels::MANAGED] == "true",
            suspending_parent: filled("annotations", labels::POD_SUSPENDING_PARENT).map(str::to_owned),
            size: (!is_large && (parent.is_some() || group.is_some() && !is_made))
                .then(|| size(pod))
                .flatten(),
            controller: object::controller(&metadata["ownerReferences"]).filter(|_| !has_role).map(Box::new),
            parent,
            gated: scheduling_gates.any(|gate| gate["name"] == labels::ADMISSION_SCHEDULING_GATE),
            held: finalizers.into_iter().any(|finalizer| finalizer == labels::MANAGED_FINALIZER),
            bound: spec["nodeName"].as_str().is_some_and(|node| !node.is_empty()),
            phase: match status["phase"].as_str() {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Pending,
            },
            ready: condition("Ready").is_some_and(|condition| condition["status"] == "True"),
            failed_at: failed.and_then(|condition| time(&condition["lastTransitionTime"])),
            message: status["message"].as_str().unwrap_or_default().chars().take(LONGEST_MESSAGE).collect(),
            pod_set: pod_set(name, pod),
            group,
            role,
        }
    }

    /// Whether it ended.
    pub fn ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it can still run, runs, or succeeded: what was deleted before it got a node never will.
    pub fn counts(&self) -> bool {
        self.phase != Phase::Failed && (self.deleted_by.is_none() || self.bound)
    }

    /// Whether it runs or may begin to at any time: neither gated nor ended.
    pub fn is_free(&self) -> bool {
        !self.gated && !self.ended()
    }

    /// Leaves out the group and the prebuilt Workload that only annotations name (gate `WorkloadIdentifierAnnotations` off).
    pub fn read_labels_alone(&mut self) {
        let Ok(pod_set) = &mut self.pod_set else { return };
        pod_set.scheduling.annotations.remove(labels::PREBUILT_WORKLOAD_NAME);
        let label = pod_set.scheduling.labels.get(labels::POD_GROUP_NAME).filter(|name| !name.is_empty());
        self.group = label.map(|name| Arc::from(name.as_str()));
        let has_role = self.group.is_some() || self.parent.is_some();
        let name = if has_role { &*self.role } else { labels::DEFAULT_POD_SET_NAME };
        pod_set.name = name.to_ascii_lowercase();
    }

    /// The hash of what it asks for; nothing where it cannot be read.
    pub fn requests_hash(&self) -> Option<u64> {
        self.pod_set.as_ref().ok().map(|set| set.requests_hash)
    }

    /// Whether the template, which only a new Workload needs, is present.
    pub fn has_template(&self) -> bool {
        self.pod_set.as_ref().is_ok_and(|pod_set| pod_set.template.is_some())
    }

    /// Drops the template, which only a new Workload needs.
    pub fn drop_template(&mut self) {
        if let Ok(pod_set) = &mut self.pod_set {
            pod_set.template = None;
        }
    }

    /// Until when it counts as active (`None`: without end), if it does. Its containers, init containers included, may run until its grace period is
    /// over; with `fast` it counts as gone as soon as it is being deleted (gate `FastQuotaReleaseInPodIntegration`).
    pub fn active_until(&self, fast: bool) -> Option<Option<Timestamp>> {
        let terminates = self.deleted_by.is_some();
        // While init containers run, the phase of a pod is Pending.
        let runs = self.phase == Phase::Running || terminates && self.bound && !self.ended();
        (runs && !(fast && terminates)).then_some(self.deleted_by)
    }
}

/// The pod set of one pod.
fn pod_set(name: &str, pod: &Value) -> Result<Box<JobPodSet>, String> {
    let path = format!("Pod {}", pod["metadata"]["name"].as_str().unwrap_or_default());
    let mut pod_set = object::pod_set(name, 1, pod, &path, &[])?;
    // The labels and annotations belong to one pod, not to its role.
    if let Some(template) = pod_set.template.as_mut().map(Arc::make_mut) {
        template.metadata = None;
    }
    topology::number(&mut pod_set, Some(labels::POD_GROUP_POD_INDEX));
    Ok(Box::new(pod_set))
}

/// The group that a pod is in.
pub fn group_name<'a>(metadata: &'a Value, gates: &Gates) -> Option<&'a str> {
    named(metadata, labels::POD_GROUP_NAME, gates)
}

/// The prebuilt Workload that a pod names.
pub(crate) fn prebuilt_name<'a>(metadata: &'a Value, gates: &Gates) -> Option<&'a str> {
    named(metadata, labels::PREBUILT_WORKLOAD_NAME, gates)
}

/// The name under this key: an annotation may have longer names than a label, and counts first.
fn named<'a>(metadata: &'a Value, key: &str, gates: &Gates) -> Option<&'a str> {
    let of = |map: &str| metadata[map][key].as_str().filter(|name| !name.is_empty());
    let annotation = of("annotations").filter(|_| gates.enabled(Gate::WorkloadIdentifierAnnotations));
    annotation.or_else(|| of("labels"))
}

/// How many characters of an annotation that should be a number are shown.
const LONGEST_NUMBER: usize = 64;
/// How many bytes of a pod's status message are kept.
const LONGEST_MESSAGE: usize = 1024;

/// How many pods the group of a pod has.
pub(crate) fn total_count(metadata: &Value) -> TotalCount {
    let key = labels::POD_GROUP_TOTAL_COUNT;
    let Some(text) = metadata["annotations"][key].as_str() else {
        return Err(format!("failed to extract '{key}' annotation"));
    };
    // An annotation may be of any length.
    let reported: String = text.chars().take(LONGEST_NUMBER).collect();
    match text.parse::<i32>() {
        Ok(count) if count >= 1 => Ok(count),
        Ok(_) => Err(format!(
            "incorrect annotation value '{key}={reported}': group total count should be greater than zero"
        )),
        Err(_) => Err(format!("incorrect annotation value '{key}={reported}': must be an integer")),
    }
}
