//! Pods of elastic jobs, and pods with a topology assignment, as the engine keeps them.

use sluice_api::{labels, slim};
use sluice_core::Name;

use crate::effect::EffectId;
use crate::retry::Retry;
use crate::topology::ungater_names::Names;

/// A pod of an elastic job, or one with a topology assignment, and its write in progress.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a pod")]
pub(crate) struct JobPod {
    /// Its UID.
    pub uid: Box<str>,
    /// Its version as it was seen last.
    pub version: Box<str>,
    /// Whether it is being deleted.
    pub leaves: bool,
    /// The UID of its controller.
    pub controller: Option<Name>,
    /// The pod set that it says it is of.
    pub pod_set: Option<Name>,
    /// Whether it is of an elastic job.
    pub elastic: bool,
    /// The names of its scheduling gates.
    pub gates: Vec<Name>,
    /// Whether it ended.
    pub ended: bool,
    /// What decides its domain, if it has a topology assignment.
    pub place: Option<Box<Place>>,
    /// The write that has not been answered.
    pub open: Option<EffectId>,
    /// Whether a write that lets it be scheduled may have been carried out; until a newer version shows what became of that.
    pub uncertain: bool,
    /// How its writes fare.
    pub retry: Retry,
}

/// What decides the domain of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its Workload, by name; of an elastic job, the first slice.
    pub workload: Name,
    /// Its labels whose values are numbers.
    pub numbers: Box<[(Name, u32)]>,
    /// What is to be subtracted from its index.
    pub offset: u32,
    /// Its node selector.
    pub node_selector: Box<[(Name, Name)]>,
    /// Its node, once it has one.
    pub node: Option<Name>,
    /// Whether its phase is `Pending`.
    pub pending: bool,
    /// Whether the pod says that it is about to be disrupted.
    pub disrupted: bool,
    /// The domain that a write lets it into, by its values; until the answer, or a newer version, shows what became of that.
    pub target: Option<Box<[Name]>>,
}

/// How far a pod with a place has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It waits for its domain only.
    Gated,
    /// It was ungated, and has no node yet.
    Unbound,
    /// It has a node.
    Bound,
}

impl JobPod {
    /// A pod as it was seen, without what is under way.
    pub fn new(pod: &slim::JobPod, names: &mut Names) -> Self {
        let metadata = &pod.metadata;
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            version: metadata.resource_version.as_deref().unwrap_or_default().into(),
            leaves: metadata.deletion_timestamp.is_some(),
            controller: pod.controller_uid.as_deref().map(|uid| names.of(uid)),
            pod_set: pod.pod_set.as_deref().map(|name| names.of(name)),
            elastic: pod.elastic,
            gates: pod.gates.iter().map(|gate| names.of(gate)).collect(),
            ended: pod.ended,
            place: pod.placement.as_deref().map(|placement| {
                Box::new(Place { disrupted: pod.disrupted, ..Place::new(placement, names) })
            }),
            open: None,
            uncertain: false,
            retry: Retry::default(),
        }
    }

    fn has_gate(&self, name: &str) -> bool {
        self.gates.iter().any(|gate| **gate == *name)
    }

    /// Whether it has the gate of elastic jobs.
    pub fn is_gated(&self) -> bool {
        self.has_gate(labels::ELASTIC_JOB_SCHEDULING_GATE)
    }

    /// Whether it may be scheduled, or will be, as far as the size of its job goes.
    pub fn is_free(&self) -> bool {
        !self.ended && (self.open.is_some() || self.uncertain || !self.is_gated())
    }

    /// Whether it waits to be ungated, or must be written again because it is not known whether it was.
    pub fn is_waiting(&self) -> bool {
        !self.ended && !self.leaves && self.open.is_none() && self.is_gated()
    }

    /// Its stage. `None` if it ended, or cannot be ungated yet or any more.
    pub fn stage(&self) -> Option<Stage> {
        let place = self.place.as_ref().filter(|_| !self.ended)?;
        if self.has_gate(labels::TOPOLOGY_SCHEDULING_GATE) {
            let held = self.is_gated() || self.has_gate(labels::ADMISSION_SCHEDULING_GATE);
            return (!held && !self.leaves).then_some(Stage::Gated);
        }
        Some(if place.node.is_some() { Stage::Bound } else { Stage::Unbound })
    }
}

impl Place {
    fn new(placement: &slim::PodPlacement, names: &mut Names) -> Self {
        Self {
            workload: names.of(&placement.workload),
            numbers: placement.numbers.iter().map(|(key, number)| (names.of(key), *number)).collect(),
            offset: placement.offset,
            node_selector: placement
                .node_selector
                .iter()
                .map(|(key, value)| (names.of(key), names.of(value)))
                .collect(),
            node: Some(&*placement.node).filter(|node| !node.is_empty()).map(|node| names.of(node)),
            pending: placement.pending,
            disrupted: false,
            target: None,
        }
    }

    /// The number in one of its labels.
    pub fn number(&self, label: &str) -> Option<u32> {
        self.numbers.iter().find(|(key, _)| **key == *label).map(|(_, number)| *number)
    }

    /// The value that its node selector requires of a node label.
    pub fn selects(&self, label: &str) -> Option<&Name> {
        self.node_selector.iter().find(|(key, _)| **key == *label).map(|(_, value)| value)
    }
}
