//! What happened: a timeline, and for each job what it held and when. Times in milliseconds from the beginning.

mod configured;
mod cut;
mod entries;
mod groups;
mod places;
mod recorded;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::conditions::{WorkloadCondition as Type, find, is_true};
use sluice_api::slim;
use sluice_api::v1beta2::{Admission, TopologyAssignment};
use sluice_engine::{Kind, ObjectRef};
use sluice_quantity::{Quantity, amount_of};

pub(crate) use groups::{component, component_index};

pub use entries::{Hold, HoldEnd, Holding, JobRecord, QuotaChange, TimelineEntry, TimelineEvent};
pub use recorded::Recorded;

pub(crate) use places::shorten;
pub use places::{NodeChange, NodeSeen, PlaceChange, PlacedSet};

use crate::json::text;
use crate::pods::queue_of;

/// What is known of a Workload from its last status.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of the Workload")]
struct Seen {
    job: usize,
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
    /// Groups of pods, by namespace and name: the job, and how many of the pods are there.
    groups: BTreeMap<(Arc<str>, Arc<str>), (usize, usize)>,
    /// Groups of pods of one object, each of which is a job, by the object's UID and the group's number.
    components: BTreeMap<(Arc<str>, u32), usize>,
    /// Pods of jobs that have others, and the group that each is in, if it is one.
    members: BTreeMap<ObjectRef, Option<Arc<str>>>,
    by_uid: BTreeMap<Arc<str>, usize>,
    seen: BTreeMap<ObjectRef, Seen>,
    texts: BTreeSet<Arc<str>>,
    holdings: BTreeSet<Arc<[Holding]>>,
    local_queues: BTreeMap<(Arc<str>, Arc<str>), Arc<str>>,
}

impl Record {
    /// Nothing yet.
    pub fn new(start: Timestamp) -> Self {
        Self { start, ..Self::default() }
    }

    /// One record of the parts of a world: each job, and what happened in the order of time.
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

    /// One copy of each text.
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
        let cluster_queue = self.local_queues.get(&key).cloned();
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
        let at = self.millis(now);
        if let Some(seen) = self.seen.remove(reference) {
            let open = self.jobs[seen.job].holds.last_mut().filter(|h| h.to.is_none());
            if let Some(hold) = open {
                hold.to = Some(at);
                if hold.end == HoldEnd::Open {
                    hold.end = HoldEnd::Evicted;
                }
            }
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

    /// A Workload as the engine's last write left it. Whether its pods are to be on other nodes than before.
    pub(crate) fn observe(&mut self, now: Timestamp, workload: &slim::Workload) -> bool {
        let metadata = &workload.metadata;
        let reference = ObjectRef::namespaced(
            Kind::Workload,
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        if !self.seen.contains_key(&reference) {
            let Some(job) = self.job_of(&reference, workload) else { return false };
            if let Some(uid) = metadata.uid.as_deref() {
                self.by_uid.insert(uid.into(), job);
            }
            self.jobs[job].managed = true;
            self.seen.insert(reference.clone(), Seen { job, ..Seen::default() });
        }
        let Some(mut seen) = self.seen.remove(&reference) else { return false };
        self.jobs[seen.job].priority = workload.spec.priority.unwrap_or(0);
        let moves = self.transitions(now, workload, &mut seen);
        self.seen.insert(reference, seen);
        moves
    }

    /// The place of a Workload's job among [`Record::jobs`].
    pub(crate) fn job_of(&self, reference: &ObjectRef, workload: &slim::Workload) -> Option<usize> {
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|o| o.controller == Some(true));
        // Several pods may own a Workload.
        let mut of = controller.map_or(owners, std::slice::from_ref).iter();
        if owners.is_empty() {
            return self.by_ref.get(reference).copied();
        }
        // What gathers its pods does not control it.
        if let Some(index) = owners.iter().find_map(|owner| self.component_of(&owner.uid, workload)) {
            return Some(index);
        }
        of.find_map(|owner| self.by_uid.get(owner.uid.as_str()).copied())
    }

    /// Whether pods move.
    fn transitions(&mut self, now: Timestamp, workload: &slim::Workload, seen: &mut Seen) -> bool {
        let at = self.millis(now);
        let status = &workload.status;
        let conditions = &status.conditions;
        let is = |type_: Type| is_true(conditions, type_.as_str());
        let (reserved, admitted) = (is(Type::QuotaReserved), is(Type::Admitted));
        let (evicted, finished) = (is(Type::Evicted), is(Type::Finished));
        let index = seen.job;
        if reserved
            && !seen.reserved
            && let Some(admission) = &status.admission
        {
            self.open_hold(index, at, admission);
            if !admitted {
                self.reserve(now, index);
            }
        }
        let mut moves = false;
        if !reserved {
            seen.placed.clear();
        } else if let Some(message) = self.place(at, index, workload, &mut seen.placed) {
            let message = self.text(&message);
            self.push(now, Some(index), TimelineEvent::Moved { message });
            moves = true;
        }
        if admitted && !seen.admitted {
            self.admit(now, index);
        }
        if evicted && !seen.evicted {
            self.evict(now, index, workload);
        }
        if seen.reserved
            && !reserved
            && let Some(hold) = self.open(index)
        {
            hold.to = Some(at);
            if hold.end == HoldEnd::Open {
                hold.end = HoldEnd::Evicted;
            }
        }
        if finished && !seen.finished {
            if let Some(hold) = self.open(index) {
                hold.to = Some(at);
                hold.end = HoldEnd::Finished;
            }
            let success = find(conditions, Type::Finished.as_str()).is_some_and(|c| c.reason == "Succeeded");
            let job = &mut self.jobs[index];
            job.finished = Some(at);
            job.success = success;
            self.push(now, Some(index), TimelineEvent::Finished { success });
        }
        if !reserved
            && !finished
            && let Some(why) = find(conditions, Type::QuotaReserved.as_str())
        {
            self.wait(now, index, &why.reason, &why.message);
        }
        (seen.reserved, seen.admitted, seen.evicted, seen.finished) = (reserved, admitted, evicted, finished);
        moves
    }

    fn open(&mut self, index: usize) -> Option<&mut Hold> {
        self.jobs[index].holds.last_mut().filter(|h| h.to.is_none())
    }

    fn open_hold(&mut self, index: usize, at: i64, admission: &Admission) {
        let queue = self.text(&admission.cluster_queue);
        let found = holdings(admission);
        let known = self.holdings.get(&found[..]).cloned();
        let holdings = known.unwrap_or_else(|| {
            let new: Arc<[Holding]> = found.into();
            self.holdings.insert(Arc::clone(&new));
            new
        });
        let job = &mut self.jobs[index];
        job.cluster_queue = Some(Arc::clone(&queue));
        let (admitted, evicted, to) = (None, None, None);
        job.holds.push(Hold { from: at, admitted, evicted, to, end: HoldEnd::Open, queue, holdings });
    }

    /// It has quota and is not admitted yet.
    fn reserve(&mut self, now: Timestamp, index: usize) {
        let Some(hold) = self.jobs[index].holds.last() else { return };
        let (queue, flavors) = self.got(&hold.clone());
        self.push(now, Some(index), TimelineEvent::Reserved { queue, flavors });
    }

    /// Where a hold is, and what of.
    fn got(&mut self, hold: &Hold) -> (Arc<str>, Arc<str>) {
        let flavors = self.text(&show_holdings(&hold.holdings));
        (Arc::clone(&hold.queue), flavors)
    }

    fn admit(&mut self, now: Timestamp, index: usize) {
        let at = self.millis(now);
        let Some(hold) = self.open(index) else { return };
        hold.admitted = Some(at);
        let hold = hold.clone();
        let (queue, flavors) = self.got(&hold);
        let job = &mut self.jobs[index];
        job.admitted.get_or_insert(at);
        job.waits_for = None;
        self.push(now, Some(index), TimelineEvent::Admitted { queue, flavors });
    }

    fn evict(&mut self, now: Timestamp, index: usize, workload: &slim::Workload) {
        let at = self.millis(now);
        let conditions = &workload.status.conditions;
        let Some(why) = find(conditions, Type::Evicted.as_str()) else { return };
        let preempted = why.reason == "Preempted";
        if let Some(hold) = self.open(index) {
            hold.end = if preempted { HoldEnd::Preempted } else { HoldEnd::Evicted };
            hold.evicted = Some(at);
        }
        let (reason, message) = (self.text(&why.reason), self.text(&why.message));
        if !preempted {
            return self.push(now, Some(index), TimelineEvent::Evicted { reason, message });
        }
        let by = self.preempted_by(index, &why.message);
        let reason = match find(conditions, Type::Preempted.as_str()) {
            Some(preempted) => self.text(&preempted.reason),
            None => reason,
        };
        self.push(now, Some(index), TimelineEvent::Preempted { by, reason, message });
    }

    /// Counts a preemption; which job it was for, if that is known.
    fn preempted_by(&mut self, index: usize, message: &str) -> Option<Arc<str>> {
        // The message names the preemptor by UID (docs/reference/03-conditions-events.md 3.1); people want its name.
        self.jobs[index].preempted += 1;
        self.preemptor(message)
    }

    /// Counts that a job preempted, if it is known which one.
    fn preemptor(&mut self, message: &str) -> Option<Arc<str>> {
        let uid = message.split_once("(UID: ").and_then(|(_, rest)| rest.split_once(',')).map(|(u, _)| u)?;
        let preemptor = self.by_uid.get(uid).copied()?;
        self.jobs[preemptor].preempts += 1;
        let key = self.jobs[preemptor].key();
        Some(self.text(&key))
    }

    fn wait(&mut self, now: Timestamp, index: usize, reason: &str, message: &str) {
        let without_figures = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        let same = self.jobs[index].waits_for.as_ref().is_some_and(|(r, m)| {
            **r == *reason && (**m == *message || without_figures(m) == without_figures(message))
        });
        // What was not looked at yet says nothing, and is looked at in the same instant.
        if same || reason == "PendingEvaluation" {
            return;
        }
        let (reason, message) = (self.text(reason), self.text(message));
        self.jobs[index].waits_for = Some((Arc::clone(&reason), Arc::clone(&message)));
        self.push(now, Some(index), TimelineEvent::Waiting { reason, message });
    }
}

/// What an admission holds, by flavor and resource.
fn holdings(admission: &Admission) -> Vec<Holding> {
    let mut sums: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    for set in &admission.pod_set_assignments {
        for (resource, quantity) in &set.resource_usage {
            let Some(flavor) = set.flavors.get(resource) else { continue };
            let amount = Quantity::parse(&quantity.0).map_or(0, |q| amount_of(resource, &q).get());
            let sum = sums.entry((flavor, resource)).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let holding = |((flavor, resource), amount): ((&str, &str), i64)| Holding {
        flavor: flavor.into(),
        resource: resource.into(),
        amount,
    };
    sums.into_iter().map(holding).collect()
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
