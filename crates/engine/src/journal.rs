//! The lines of the journal that follow from two versions of an object: the decisions that the API server has.
//!
//! Every replica makes them, whatever client wrote the object, so that a journal has no gap where the leader changes.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sluice_api::conditions::{self, WorkloadCondition as Type, reason};
use sluice_api::journal::{
    Event, Line, LocalQueueLine, MissedLine, Outcome, QuotaLine, Usage, Why, WorkloadLine, cut,
};
use sluice_api::slim;
use sluice_api::v1beta2::{
    AdmissionCheckState, CheckState, ClusterQueue, LocalQueue, StopPolicy, WorkloadStatus,
};
use sluice_core::{Amount, Name, WorkloadKey};
use sluice_quantity::quantity_of;

use crate::config::EngineConfig;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::ingest::workload::{effective_priority, is, usage_held};

/// The end of a Workload that is first seen after its end is recorded if it is at most this old: no manager may have run then. Ends that were
/// recorded already are recorded twice, and count once.
const MISSED: SignedDuration = SignedDuration::from_hours(1);

/// The highest number of such ends: all ends of an hour would be more lines than can be written at once, and push out current lines.
const MOST_MISSED: u64 = 1000;

/// Workloads that were over when they were seen for the first time, up to the moment at which everything was seen once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Missed {
    /// The number of recorded ends.
    reported: u64,
    /// The others.
    counted: u64,
}

impl Missed {
    /// Whether one more end is recorded.
    fn reports_next(&mut self) -> bool {
        let reported = self.reported < MOST_MISSED;
        *(if reported { &mut self.reported } else { &mut self.counted }) += 1;
        reported
    }
}

/// A reservation of quota, as a status has it.
#[derive(Clone, Debug, PartialEq)]
struct Reservation {
    since: Timestamp,
    cluster_queue: String,
    held: Usage,
}

impl Engine {
    /// Emits the lines for a new version of a Workload. The stored version is still the old one.
    pub(crate) fn journal_seen(&mut self, key: &WorkloadKey, after: &slim::Workload) {
        if !self.config.journal {
            return;
        }
        let before = self.world.workloads.get(key).map(|entry| &entry.object);
        if before.is_none()
            && !self.synced
            && ended_lately(&after.status, self.now)
            && !self.missed.reports_next()
        {
            return;
        }
        let queue = self.world.cluster_queue_of(key, after).unwrap_or_default();
        let lines = workload_lines(before, Some(after), &queue, self.now, &self.config);
        self.journal_all(lines);
    }

    /// Says how many ends were not written down, once everything was seen.
    pub(crate) fn journal_missed(&mut self) {
        let missed = std::mem::take(&mut self.missed).counted;
        if missed > 0 {
            let line = Line::Missed(MissedLine { at: self.now, missed });
            self.outbox.push(Effect::Journal(Box::new(line)));
        }
    }

    /// Emits the lines for a deleted Workload. It is still stored.
    pub(crate) fn journal_deleted(&mut self, key: &WorkloadKey) {
        if !self.config.journal {
            return;
        }
        let Some(before) = self.world.workloads.get(key).map(|entry| &entry.object) else { return };
        let queue = self.world.cluster_queue_of(key, before).unwrap_or_default();
        let lines = workload_lines(Some(before), None, &queue, self.now, &self.config);
        self.journal_all(lines);
    }

    fn journal_all(&mut self, lines: Vec<WorkloadLine>) {
        for line in lines {
            self.outbox.push(Effect::Journal(Box::new(Line::Workload(Box::new(line)))));
        }
    }

    /// Hands out the quota of a ClusterQueue that has changed, is new, or goes.
    pub(crate) fn journal_quota(&mut self, name: &str, queue: Option<&ClusterQueue>) {
        if self.config.journal {
            let known = self.world.cluster_queues.get(name);
            // An object that is first seen in the initial list may be old.
            let before = known.map(|known| nominal(known)).or_else(|| self.is_synced().then(BTreeMap::new));
            let stop_policy_before = known.map(|known| known.spec.stop_policy).unwrap_or_default();
            let line = QuotaLine { before, stop_policy_before, ..quota_line(name, queue, self.now) };
            self.outbox.push(Effect::Journal(Box::new(Line::Quota(line))));
        }
    }

    /// Hands out the stop policy of a LocalQueue that is stopped, continues, or is deleted while it is stopped. The stored version is still the
    /// old one.
    pub(crate) fn journal_local_queue(&mut self, key: &(Name, Name), queue: Option<&LocalQueue>) {
        if self.config.journal {
            let known = self.world.local_queues.get(key).map(|known| &**known);
            if let Some(line) = local_queue_line(key, known, queue, self.now) {
                self.outbox.push(Effect::Journal(Box::new(Line::LocalQueue(line))));
            }
        }
    }
}

/// What happened between two versions of a Workload, in order. For one that is first seen: what it holds.
fn workload_lines(
    before: Option<&slim::Workload>,
    after: Option<&slim::Workload>,
    cluster_queue: &str,
    now: Timestamp,
    config: &EngineConfig,
) -> Vec<WorkloadLine> {
    let Some(of) = after.or(before) else { return Vec::new() };
    let mut events = Events { now, at: Vec::new() };
    let held = |object: Option<&slim::Workload>| object.and_then(|object| reservation(object, config));
    let (old, new) = (held(before), held(after));
    match (before.map(|before| &before.status), after.map(|after| &after.status)) {
        (Some(before), Some(after)) => {
            events.evicted(before, after);
            events.finished(before, after);
            events.moved(old, new, Some(after));
            events.checked(before, after);
            events.admitted(before, after);
            events.ready(before, after);
            events.pending(before, after);
        }
        // The rest was recorded when it happened, by this process or the one before.
        (None, Some(status)) => {
            events.holding(new, status);
            let old = after.and_then(|after| reserved(after, config));
            events.missed(old, status);
        }
        (_, None) => {
            events.moved(old, None, None);
            events.push(now, Event::Deleted);
        }
    }
    let metadata = &of.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let line = |(at, reserved, event): (_, Option<String>, _)| WorkloadLine {
        at,
        cluster_queue: reserved.unwrap_or_else(|| cluster_queue.to_owned()),
        namespace: text(&metadata.namespace),
        workload: text(&metadata.name),
        uid: text(&metadata.uid),
        local_queue: of.spec.queue_name.clone(),
        priority: effective_priority(of, config),
        event,
    };
    events.at.into_iter().map(line).collect()
}

/// The collected lines, each with its time and the ClusterQueue of its reservation.
struct Events {
    now: Timestamp,
    at: Vec<(Timestamp, Option<String>, Event)>,
}

impl Events {
    fn push(&mut self, at: Timestamp, event: Event) {
        self.at.push((at, None, event));
    }

    /// A condition that became true, or true for another reason.
    fn became_true<'a>(
        &self,
        type_: Type,
        before: &WorkloadStatus,
        after: &'a WorkloadStatus,
    ) -> Option<(Timestamp, Why, &'a str)> {
        let find = |status: &'a WorkloadStatus| conditions::find(&status.conditions, type_.as_str());
        let is = find(after).filter(|c| c.status == "True")?;
        let was = conditions::find(&before.conditions, type_.as_str()).filter(|c| c.status == "True");
        let at = is.last_transition_time.0;
        match was {
            Some(was) if was.last_transition_time.0 == at && was.reason == is.reason => None,
            // The time of a condition is that of its status: another reason came later.
            Some(was) if was.last_transition_time.0 == at => {
                Some((self.now, Why::new(&is.reason, &is.message), &is.reason))
            }
            _ => Some((at, Why::new(&is.reason, &is.message), &is.reason)),
        }
    }

    fn evicted(&mut self, before: &WorkloadStatus, after: &WorkloadStatus) {
        let Some((at, mut why, reason)) = self.became_true(Type::Evicted, before, after) else { return };
        if reason == reason::PREEMPTED
            && let Some(preempted) = conditions::find(&after.conditions, Type::Preempted.as_str())
        {
            // The more specific reason: the policy by which it was preempted.
            why.reason = format!("{reason}/{}", preempted.reason);
        }
        self.push(at, Event::Evicted(why));
    }

    fn finished(&mut self, before: &WorkloadStatus, after: &WorkloadStatus) {
        if let Some((at, why, _)) = self.became_true(Type::Finished, before, after) {
            self.push(at, Event::Finished(why));
        }
    }

    /// About the reservation that a status has.
    fn push_held(&mut self, at: Timestamp, after: &WorkloadStatus, event: Event) {
        let cluster_queue = after.admission.as_ref().map(|admission| admission.cluster_queue.clone());
        self.at.push((at, cluster_queue, event));
    }

    fn admitted(&mut self, before: &WorkloadStatus, after: &WorkloadStatus) {
        if let Some((at, ..)) = self.became_true(Type::Admitted, before, after) {
            self.push_held(at, after, Event::Admitted);
        }
    }

    fn ready(&mut self, before: &WorkloadStatus, after: &WorkloadStatus) {
        if let Some((at, ..)) = self.became_true(Type::PodsReady, before, after) {
            self.push_held(at, after, Event::PodsReady);
        }
    }

    /// Checks that were decided, or decided otherwise.
    fn checked(&mut self, before: &WorkloadStatus, after: &WorkloadStatus) {
        let reserved = conditions::true_since(&after.conditions, Type::QuotaReserved.as_str());
        let key = |check: &AdmissionCheckState| (check.state, check.last_transition_time.0);
        for is in after.admission_checks.iter().filter(|check| check.state != CheckState::Pending) {
            let was = before.admission_checks.iter().find(|was| was.name == is.name);
            if was.is_some_and(|was| key(was) == key(is)) {
                continue;
            }
            // Its time is its controller's: it counts if it can be that of a change since quota was reserved.
            let since = was.map(|was| was.last_transition_time.0);
            let at = is.last_transition_time.0;
            let is_then =
                since != Some(at) && reserved.is_none_or(|reserved| reserved <= at) && at <= self.now;
            let (check, state, message) = (is.name.clone(), is.state, cut(&is.message));
            let at = if is_then { at } else { self.now };
            self.push_held(at, after, Event::Checked { check, state, message });
        }
    }

    fn pending(&mut self, before: &WorkloadStatus, after: &WorkloadStatus) {
        let find = |status: &WorkloadStatus| {
            let found = conditions::find(&status.conditions, Type::QuotaReserved.as_str());
            found.filter(|c| c.status == "False").cloned()
        };
        let Some(is) = find(after).filter(|_| !self::is(after, Type::Finished)) else { return };
        let was = find(before);
        let same_time = was.as_ref().is_some_and(|was| was.last_transition_time == is.last_transition_time);
        if same_time && was.is_some_and(|was| was.reason == is.reason) {
            return;
        }
        let at = if same_time { self.now } else { is.last_transition_time.0 };
        self.push(at, Event::Pending(Why::new(&is.reason, &is.message)));
    }

    /// A reservation that is first seen, in a Workload with this status.
    fn holding(&mut self, new: Option<Reservation>, status: &WorkloadStatus) {
        if let Some(new) = new {
            let admitted = conditions::true_since(&status.conditions, Type::Admitted.as_str());
            let event = Event::Holding { since: new.since, admitted, held: new.held };
            self.at.push((self.now, Some(new.cluster_queue), event));
        }
    }

    /// The end of a Workload that was over when it was seen for the first time.
    fn missed(&mut self, old: Option<Reservation>, status: &WorkloadStatus) {
        if !ended_lately(status, self.now) {
            return;
        }
        self.finished(&WorkloadStatus::default(), status);
        if let Some(old) = old {
            self.released(old, None, Some(status));
        }
    }

    /// A reservation that began, ended or became another.
    fn moved(&mut self, old: Option<Reservation>, new: Option<Reservation>, after: Option<&WorkloadStatus>) {
        match (old, new) {
            (Some(old), Some(new)) if old.since == new.since => {
                if old.held != new.held {
                    let event = Event::Resized { since: new.since, before: old.held.usage, held: new.held };
                    self.at.push((self.now, Some(new.cluster_queue), event));
                }
            }
            (old, new) => {
                if let Some(old) = old {
                    self.released(old, new.as_ref(), after);
                }
                if let Some(new) = new {
                    self.at.push((
                        new.since,
                        Some(new.cluster_queue),
                        Event::QuotaReserved { held: new.held },
                    ));
                }
            }
        }
    }

    fn released(&mut self, old: Reservation, next: Option<&Reservation>, after: Option<&WorkloadStatus>) {
        let find =
            |type_: Type| after.and_then(|status| conditions::find(&status.conditions, type_.as_str()));
        let finished = find(Type::Finished).filter(|c| c.status == "True");
        let unreserved = find(Type::QuotaReserved).filter(|c| c.status == "False");
        let evicted = find(Type::Evicted);
        let (outcome, at, reason) = match (finished, unreserved) {
            _ if after.is_none() => (Outcome::Deleted, self.now, ""),
            (Some(end), _) => {
                let failed = [reason::FAILED, reason::FAILED_TO_START].contains(&end.reason.as_str());
                let outcome = if failed { Outcome::Failed } else { Outcome::Finished };
                (outcome, end.last_transition_time.0, end.reason.as_str())
            }
            (None, Some(end)) => {
                let why = evicted.map_or(end.reason.as_str(), |evicted| evicted.reason.as_str());
                (Outcome::Evicted, end.last_transition_time.0, why)
            }
            // The quota was given back and reserved again before this was seen.
            (None, None) => {
                let at = next.map_or(self.now, |next| next.since);
                (Outcome::Evicted, at, evicted.map_or("", |evicted| evicted.reason.as_str()))
            }
        };
        let (at, reason) = (at.max(old.since), reason.to_owned());
        let event = Event::Released { since: old.since, outcome, reason, held: old.held };
        self.at.push((at, Some(old.cluster_queue), event));
    }
}

/// Whether a Workload ended so lately that no manager may have run then.
fn ended_lately(status: &WorkloadStatus, now: Timestamp) -> bool {
    let end = conditions::true_since(&status.conditions, Type::Finished.as_str());
    end.is_some_and(|end| end >= now.saturating_sub(MISSED).unwrap_or(Timestamp::MIN))
}

/// What a Workload's status reserves, if anything.
fn reservation(object: &slim::Workload, config: &EngineConfig) -> Option<Reservation> {
    reserved(object, config).filter(|_| !is(&object.status, Type::Finished))
}

/// What a Workload's status reserves, or reserved up to its end.
fn reserved(object: &slim::Workload, config: &EngineConfig) -> Option<Reservation> {
    let status = &object.status;
    let admission = status.admission.as_ref()?;
    let since = conditions::true_since(&status.conditions, Type::QuotaReserved.as_str())?;
    let mut usage: BTreeMap<(String, String), Amount> = BTreeMap::new();
    for (flavor, resource, amount) in usage_held(admission, object, config) {
        let sum = usage.entry((flavor.to_string(), resource.to_string())).or_default();
        *sum = sum.add(amount);
    }
    let cluster_queue = admission.cluster_queue.clone();
    Some(Reservation { since, cluster_queue, held: Usage { usage: by_flavor(usage) } })
}

fn by_flavor(amounts: BTreeMap<(String, String), Amount>) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut usage: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for ((flavor, resource), amount) in amounts {
        let text = quantity_of(&resource, amount).to_string();
        usage.entry(flavor).or_default().insert(resource, text);
    }
    usage
}

/// Without a queue: it no longer has quota.
fn quota_line(name: &str, queue: Option<&ClusterQueue>, at: Timestamp) -> QuotaLine {
    let cohort = queue.and_then(|queue| queue.spec.cohort_name.clone()).unwrap_or_default();
    let created = queue.and_then(|queue| queue.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    let nominal = queue.map(nominal).unwrap_or_default();
    let stop_policy = queue.map(|queue| queue.spec.stop_policy).unwrap_or_default();
    let (cluster_queue, deleted) = (name.to_owned(), queue.is_none());
    QuotaLine { at, cluster_queue, cohort, nominal, created, stop_policy, deleted, ..QuotaLine::default() }
}

/// The line about a LocalQueue whose last version was `known`, if there is one. Without a queue: it was deleted.
fn local_queue_line(
    (namespace, name): &(Name, Name),
    known: Option<&LocalQueue>,
    queue: Option<&LocalQueue>,
    at: Timestamp,
) -> Option<LocalQueueLine> {
    let of = queue.or(known)?;
    let before = known.map(|known| known.spec.stop_policy);
    let stop_policy = queue.map(|queue| queue.spec.stop_policy).unwrap_or_default();
    let is_said = match before {
        Some(before) => before != stop_policy,
        // It may have continued while no process wrote.
        None => stop_policy != StopPolicy::None || says_stopped(of),
    };
    is_said.then(|| LocalQueueLine {
        at,
        namespace: namespace.to_string(),
        local_queue: name.to_string(),
        cluster_queue: of.spec.cluster_queue.clone().unwrap_or_default(),
        stop_policy,
        stop_policy_before: before,
        created: of.metadata.creation_timestamp.as_ref().map(|time| time.0),
        deleted: queue.is_none(),
    })
}

/// Whether a LocalQueue was stopped when its status was written.
fn says_stopped(queue: &LocalQueue) -> bool {
    let active = queue.status.as_ref().and_then(|of| conditions::find(&of.conditions, conditions::ACTIVE));
    active.is_some_and(|active| active.status == "False" && active.reason == reason::STOPPED)
}

fn nominal(queue: &ClusterQueue) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut nominal: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for flavor in queue.spec.resource_groups.iter().flat_map(|group| &group.flavors) {
        let of_flavor = nominal.entry(flavor.name.clone()).or_default();
        of_flavor.extend(flavor.resources.iter().map(|r| (r.name.clone(), r.nominal_quota.0.clone())));
    }
    nominal
}
