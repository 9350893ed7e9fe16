//! What happened: a timeline, and for each job what it held and when. Times in milliseconds from the beginning.

mod configured;
mod cut;
mod entries;
mod groups;
mod places;
mod recorded;
mod transitions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::v1beta2::TopologyAssignment;
use sluice_engine::ObjectRef;

pub(crate) use groups::{component, component_index};

pub use entries::{Hold, HoldEnd, Holding, JobRecord, LocalStop, QuotaChange, TimelineEntry, TimelineEvent};
pub use recorded::Recorded;

pub(crate) use places::shorten;
pub use places::{NodeChange, NodeSeen, PlaceChange, PlacedSet};

use crate::json::text;
use crate::pods::queue_of;

/// The last known status of a Workload.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of the Workload")]
struct Seen {
    job: usize,
    /// The job's open hold of this Workload: slices of one job may have open holds at the same time.
    hold: Option<usize>,
    reserved: bool,
    admitted: bool,
    evicted: bool,
    finished: bool,
    /// Where its pods are.
    placed: Vec<TopologyAssignment>,
}

/// A Topology's name, and the labels of the nodes of a flavor that has it.
pub type TopologyFlavor = (Arc<str>, BTreeMap<String, String>);

/// Everything that happened.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The beginning.
    pub start: Timestamp,
    /// Jobs, in the order submitted.
    pub jobs: Vec<JobRecord>,
    /// The timeline.
    pub entries: Vec<TimelineEntry>,
    /// Quotas over time.
    pub quotas: Vec<QuotaChange>,
    /// LocalQueues that stop and continue, over time.
    pub local_stops: Vec<LocalStop>,
    /// Nodes over time.
    pub nodes: Vec<NodeChange>,
    /// Where jobs have their pods, over time.
    pub places: Vec<PlaceChange>,
    /// The labels of the levels of each Topology, as it was last.
    pub topologies: BTreeMap<Arc<str>, Vec<String>>,
    /// The flavors that have a Topology.
    pub placed_flavors: BTreeMap<Arc<str>, TopologyFlavor>,
    nodes_now: BTreeMap<Arc<str>, usize>,
    by_ref: BTreeMap<ObjectRef, usize>,
    /// Pod groups, by namespace and name: the job, and how many of its pods exist.
    groups: BTreeMap<(Arc<str>, Arc<str>), (usize, usize)>,
    /// Groups of pods of one object, each of which is a job, by the object's UID and the group's number.
    components: BTreeMap<(Arc<str>, u32), usize>,
    /// Pods that belong to a job of several pods, and the group of each, if it is in one.
    members: BTreeMap<ObjectRef, Option<Arc<str>>>,
    by_uid: BTreeMap<Arc<str>, usize>,
    seen: BTreeMap<ObjectRef, Seen>,
    texts: BTreeSet<Arc<str>>,
    holdings: BTreeSet<Arc<[Holding]>>,
    /// By namespace and name.
    local_queues: BTreeMap<(Arc<str>, Arc<str>), SeenLocalQueue>,
}

/// A LocalQueue as it was seen last.
#[derive(Debug, Clone)]
struct SeenLocalQueue {
    cluster_queue: Arc<str>,
    stopped: bool,
}

impl Record {
    /// An empty record.
    pub fn new(start: Timestamp) -> Self {
        Self { start, ..Self::default() }
    }

    /// Joins the records of a world's parts: each job once, and the events in the order of time.
    pub(crate) fn join(start: Timestamp, parts: Vec<Self>) -> Self {
        let mut whole = Self::new(start);
        let mut jobs = Vec::new();
        for record in parts {
            let before = jobs.len();
            jobs.extend(record.jobs);
            let moved = record
                .entries
                .into_iter()
                .map(|entry| TimelineEntry { job: entry.job.map(|at| before + at), ..entry });
            whole.entries.extend(moved);
            whole.quotas.extend(record.quotas);
            whole.local_stops.extend(record.local_stops);
            whole.nodes.extend(record.nodes);
            let moved =
                record.places.into_iter().map(|place| PlaceChange { job: before + place.job, ..place });
            whole.places.extend(moved);
            whole.topologies.extend(record.topologies);
            whole.placed_flavors.extend(record.placed_flavors);
        }
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|&at| (jobs[at].submitted, at));
        let mut place = vec![0; jobs.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new;
        }
        for entry in &mut whole.entries {
            entry.job = entry.job.map(|at| place[at]);
        }
        for change in &mut whole.places {
            change.job = place[change.job];
        }
        let mut sorted: Vec<_> = jobs.into_iter().zip(place).collect();
        sorted.sort_by_key(|(_, place)| *place);
        whole.jobs = sorted.into_iter().map(|(job, _)| job).collect();
        whole.entries.sort_by_key(|entry| entry.at);
        whole.quotas.sort_by_key(|change| change.at);
        whole.local_stops.sort_by_key(|change| change.at);
        whole.places.sort_by_key(|change| change.at);
        // Every part has all nodes.
        whole.nodes.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
        whole.nodes.dedup();
        whole
    }

    /// Milliseconds from the beginning.
    pub fn millis(&self, at: Timestamp) -> i64 {
        at.as_millisecond().saturating_sub(self.start.as_millisecond())
    }

    /// Shares one copy of each text.
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.texts.insert(Arc::clone(&new));
        new
    }

    fn push(&mut self, now: Timestamp, job: Option<usize>, what: TimelineEvent) {
        let at = self.millis(now);
        self.entries.push(TimelineEntry { at, job, what });
    }

    /// The record of a job or Workload that exists.
    pub fn job(&self, reference: &ObjectRef) -> Option<&JobRecord> {
        self.index(reference).map(|i| &self.jobs[i])
    }

    /// The place of a job or Workload that exists among [`Record::jobs`]: it stays the same when the job is gone.
    pub(crate) fn index(&self, reference: &ObjectRef) -> Option<usize> {
        self.by_ref.get(reference).copied()
    }

    /// The record of the newest job of that name, whatever its kind.
    pub fn job_named(&self, key: &str) -> Option<&JobRecord> {
        self.jobs.iter().rev().find(|job| {
            key.split_once('/').is_some_and(|(ns, name)| *job.namespace == *ns && *job.name == *name)
        })
    }

    /// A job, or a Workload without one, was created.
    pub(crate) fn submitted(&mut self, now: Timestamp, reference: &ObjectRef, value: &Value) {
        let index = self.added(now, reference, value);
        self.known_as(reference, value, index);
    }

    fn known_as(&mut self, reference: &ObjectRef, value: &Value, index: usize) {
        self.by_ref.insert(reference.clone(), index);
        self.by_uid.insert(text(&value["metadata"]["uid"]).into(), index);
    }

    fn added(&mut self, now: Timestamp, reference: &ObjectRef, value: &Value) -> usize {
        let index = self.jobs.len();
        let local_queue = self.text(queue_of(value));
        let key = (Arc::clone(&reference.namespace), Arc::clone(&local_queue));
        let cluster_queue = self.local_queues.get(&key).map(|seen| Arc::clone(&seen.cluster_queue));
        self.jobs.push(JobRecord {
            kind: reference.kind,
            namespace: Arc::clone(&reference.namespace),
            name: Arc::clone(&reference.name),
            local_queue,
            cluster_queue,
            priority: 0,
            submitted: self.millis(now),
            admitted: None,
            finished: None,
            success: false,
            deleted: None,
            managed: false,
            holds: Vec::new(),
            preempted: 0,
            preempts: 0,
            lost: 0,
            deactivated: false,
            waits_for: None,
        });
        self.push(now, Some(index), TimelineEvent::Submitted);
        index
    }

    /// The API server refused an object.
    pub(crate) fn refused(&mut self, now: Timestamp, who: &str, why: &str) {
        let message = self.text(&format!("{who}: {why}"));
        self.push(now, None, TimelineEvent::Refused { message });
    }

    /// The scenario did something.
    pub(crate) fn scenario(&mut self, now: Timestamp, what: &str) {
        let message = self.text(what);
        self.push(now, None, TimelineEvent::Scenario { message });
    }

    /// A job ended that has no Workload.
    pub(crate) fn ended(&mut self, now: Timestamp, reference: &ObjectRef, success: bool) {
        let Some(&index) = self.by_ref.get(reference) else { return };
        let at = self.millis(now);
        let job = &mut self.jobs[index];
        job.success = success;
        if !job.managed {
            job.finished = Some(at);
            self.push(now, Some(index), TimelineEvent::Finished { success });
        }
    }

    /// Run time was lost.
    pub(crate) fn lost(&mut self, reference: &ObjectRef, millis: i64) {
        if let Some(&index) = self.by_ref.get(reference) {
            self.jobs[index].lost += millis.max(0);
        }
    }

    /// An object is gone.
    pub(crate) fn gone(&mut self, now: Timestamp, reference: &ObjectRef, uid: &str) {
        self.unconfigured(now, reference);
        let at = self.millis(now);
        if let Some(seen) = self.seen.remove(reference) {
            self.close(seen.job, seen.hold, at);
        }
        if let Some(group) = self.members.remove(reference) {
            let index = self.by_ref.remove(reference);
            self.by_uid.remove(uid);
            let last = group.is_some_and(|group| self.left_group(&reference.namespace, group));
            if let Some(index) = index.filter(|_| last) {
                self.deleted(now, index);
            }
        } else if self.by_uid.contains_key(uid) && self.by_ref.contains_key(reference) {
            let index = self.by_ref.remove(reference).unwrap_or_default();
            self.by_uid.remove(uid);
            self.deleted(now, index);
        }
    }

    /// A job is gone.
    fn deleted(&mut self, now: Timestamp, index: usize) {
        if self.jobs[index].finished.is_none() {
            self.jobs[index].deleted = Some(self.millis(now));
            self.push(now, Some(index), TimelineEvent::Deleted);
        }
    }
}

/// An amount as people read it.
pub fn show_amount(resource: &str, amount: i64) -> String {
    sluice_quantity::quantity_of(resource, sluice_quantity::Amount(amount)).to_string()
}

fn show_holdings(holdings: &[Holding]) -> String {
    let shown: Vec<_> = holdings
        .iter()
        .map(|h| format!("{}={} ({})", h.resource, h.flavor, show_amount(&h.resource, h.amount)))
        .collect();
    shown.join(", ")
}
