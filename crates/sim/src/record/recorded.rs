//! A record of what really happened, from the lines of the manager's journal (docs/tasks/journal.md).

mod queues;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::reason;
use sluice_api::journal::{Event, Line, Outcome, Usage, Why, WorkloadLine};
use sluice_engine::Kind;
use sluice_quantity::{Quantity, amount_of};

use super::{Hold, HoldEnd, Holding, JobRecord, Record, TimelineEntry, TimelineEvent};

/// A record of a past time, or of the time up to now.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What happened. Events before the period have times before the beginning.
    pub record: Record,
    /// How long it lasted, in milliseconds.
    pub end: i64,
    /// Lines that are missing in the journal.
    pub lost: u64,
}

/// By flavor and resource, as Kubernetes quantities.
type Amounts = BTreeMap<String, BTreeMap<String, String>>;

impl Recorded {
    /// Reads the lines about the time from `since` to `until`. They may come from several replicas and in any order; duplicates count once. Workloads
    /// that ended before are left out.
    pub fn new(lines: Vec<Line>, since: Timestamp, until: Timestamp) -> Self {
        let mut lines = lines;
        // A stable sort: lines with the same time stay in the order in which they were written.
        lines.sort_by_key(Line::at);
        let later = lines.split_off(lines.partition_point(|line| line.at() <= until));
        let mut reading = Reading { record: Record::new(since), ..Reading::default() };
        let mut reported = BTreeSet::new();
        for line in lines {
            if line_is_new(&mut reported, &line) {
                reading.take(line);
            }
        }
        for line in later {
            reading.before(line, until);
        }
        reading.finish(until)
    }
}

/// Whether no other replica has written this line: lines with the same time are compared.
fn line_is_new(reported: &mut BTreeSet<(Timestamp, String)>, line: &Line) -> bool {
    let at = line.at();
    if reported.last().is_some_and(|(before, _)| *before != at) {
        reported.clear();
    }
    reported.insert((at, serde_json::to_string(line).unwrap_or_default()))
}

/// Lines that are being read.
#[derive(Default)]
struct Reading {
    record: Record,
    /// When the last reservation of each job began: the first part of it, where it was resized.
    since: BTreeMap<usize, i64>,
    /// Jobs whose open hold is known only from a later line: they were admitted at some time before.
    assumed: BTreeSet<usize>,
    lost: u64,
}

impl Reading {
    fn take(&mut self, line: Line) {
        match line {
            // A day is about quota: what checks said and when pods were ready is no part of it.
            Line::Workload(line) if matches!(line.event, Event::Checked { .. } | Event::PodsReady) => {}
            Line::Workload(line) => self.workload(*line),
            Line::Quota(line) => self.quota(&line),
            Line::LocalQueue(line) => self.local_queue(&line),
            Line::Lost(line) => {
                self.lost = self.lost.saturating_add(line.lost);
                self.record.scenario(line.at, &format!("the journal lacks {} lines before this", line.lost));
            }
            Line::Missed(_) => {}
        }
    }

    /// Derives the state before the end from a later line: what was held, the quota, and what was stopped.
    fn before(&mut self, line: Line, until: Timestamp) {
        match line {
            Line::Workload(line) => self.held_before(&line, until),
            Line::Quota(line) => self.quota_before(line, until),
            Line::LocalQueue(line) => self.local_queue_before(line, until),
            Line::Lost(_) | Line::Missed(_) => {}
        }
    }

    fn held_before(&mut self, line: &WorkloadLine, until: Timestamp) {
        let (since, admitted, held) = match &line.event {
            Event::Holding { since, admitted, held } => (*since, *admitted, held.clone()),
            Event::Resized { since, before, .. } => (*since, None, Usage { usage: before.clone() }),
            Event::Released { since, held, .. } => (*since, None, held.clone()),
            _ => return,
        };
        if since > until {
            return;
        }
        let known = self.record.by_uid.get(line.uid.as_str());
        let from = self.record.millis(since);
        if known.is_some_and(|&job| self.record.jobs[job].holds.iter().any(|hold| hold.from >= from)) {
            return;
        }
        // A resized or released Workload is taken as admitted; an entry of held quota says whether it was.
        let assumed = !matches!(line.event, Event::Holding { .. });
        let index = self.index(line);
        self.named(index, line);
        self.holding(index, since, &held, assumed);
        self.admitted_before(index, admitted.filter(|at| *at <= until));
    }

    /// Its priority and its ClusterQueue.
    fn named(&mut self, index: usize, line: &WorkloadLine) {
        let job = &mut self.record.jobs[index];
        job.priority = line.priority;
        if !line.cluster_queue.is_empty() && job.cluster_queue.as_deref() != Some(&line.cluster_queue) {
            job.cluster_queue = Some(line.cluster_queue.as_str().into());
        }
    }

    fn workload(&mut self, line: WorkloadLine) {
        let at = line.at;
        let index = self.index(&line);
        self.named(index, &line);
        match line.event {
            Event::Pending(why) => {
                self.record.jobs[index].deactivated = why.reason == reason::DEACTIVATED;
                self.record.wait(at, index, &why.reason, &why.message);
            }
            Event::QuotaReserved { held } => self.hold(index, at, &held),
            Event::Holding { since, admitted, held } => {
                // Without it, checks were not passed yet.
                self.holding(index, since, &held, false);
                self.admitted_before(index, admitted);
            }
            Event::Resized { since, before, held } => {
                self.holding(index, since, &Usage { usage: before }, true);
                if self.is_last(index, since) {
                    self.resize(index, at, &held);
                }
            }
            Event::Admitted => {
                self.assumed.remove(&index);
                if self.record.open(index).is_some_and(|hold| hold.admitted.is_none()) {
                    self.admit(at, index);
                }
            }
            Event::Evicted(why) => self.evict(index, at, &why),
            Event::Released { since, outcome, reason, held } => {
                self.holding(index, since, &held, true);
                if self.is_last(index, since) {
                    self.release(index, at, outcome, &reason);
                }
            }
            Event::Finished(why) => self.finished(index, at, &why),
            // Each replica says when it saw that.
            Event::Deleted if self.record.jobs[index].deleted.is_some() => {}
            Event::Checked { .. } | Event::PodsReady => {}
            Event::Deleted => self.record.deleted(at, index),
        }
    }

    /// The place of a Workload among the jobs.
    fn index(&mut self, line: &WorkloadLine) -> usize {
        if let Some(known) = self.record.by_uid.get(line.uid.as_str()) {
            return *known;
        }
        let since = match &line.event {
            Event::Holding { since, .. } | Event::Resized { since, .. } | Event::Released { since, .. } => {
                (*since).min(line.at)
            }
            _ => line.at,
        };
        let index = self.record.jobs.len();
        let record = &mut self.record;
        let namespace = record.text(&line.namespace);
        record.jobs.push(JobRecord {
            kind: Kind::Workload,
            namespace,
            name: line.workload.as_str().into(),
            local_queue: line.local_queue.as_str().into(),
            cluster_queue: None,
            priority: line.priority,
            submitted: record.millis(since),
            admitted: None,
            finished: None,
            success: false,
            deleted: None,
            managed: true,
            holds: Vec::new(),
            preempted: 0,
            preempts: 0,
            lost: 0,
            deactivated: false,
            waits_for: None,
        });
        record.by_uid.insert(line.uid.as_str().into(), index);
        record.push(since, Some(index), TimelineEvent::Submitted);
        index
    }

    /// Quota is reserved.
    fn hold(&mut self, index: usize, at: Timestamp, held: &Usage) {
        let from = self.record.millis(at);
        if self.record.open(index).is_some_and(|hold| hold.from == from) {
            return;
        }
        // The journal lacks the end of the hold before.
        self.close(index, from, HoldEnd::Evicted);
        let queue = self.record.jobs[index].cluster_queue.clone().unwrap_or_default();
        let holdings = self.amounts(&held.usage);
        let (admitted, evicted, to) = (None, None, None);
        self.since.insert(index, from);
        self.record.jobs[index].deactivated = false;
        self.record.jobs[index].holds.push(Hold {
            from,
            admitted,
            evicted,
            to,
            end: HoldEnd::Open,
            queue,
            holdings,
        });
    }

    /// Whether the last reservation began then. A replica may write late about an earlier one.
    fn is_last(&self, index: usize, since: Timestamp) -> bool {
        self.since.get(&index) == Some(&self.record.millis(since))
    }

    /// Quota has been reserved since a time, which may not have been recorded. `assumed`: if it was not, it is taken for admitted.
    fn holding(&mut self, index: usize, since: Timestamp, held: &Usage, assumed: bool) {
        let from = self.record.millis(since);
        // A resized hold has several parts; the reservation has the time of the first one.
        if self.record.open(index).is_some_and(|hold| hold.from >= from) {
            return;
        }
        let is_reported = self.record.jobs[index].holds.iter().any(|hold| hold.from == from);
        if !is_reported {
            self.hold(index, since, held);
            if assumed {
                self.assumed.insert(index);
            }
        }
    }

    /// Its last hold is of an admission from then on.
    fn admit(&mut self, at: Timestamp, index: usize) {
        let last = self.record.last_hold(index);
        self.record.admit(at, index, last);
    }

    /// Its checks were passed at a time that a manager found: the line of that may be missing.
    fn admitted_before(&mut self, index: usize, admitted: Option<Timestamp>) {
        let Some(at) = admitted else { return };
        let now = self.record.millis(at);
        let Some(hold) = self.record.open(index).filter(|hold| hold.admitted.is_none()) else { return };
        // The eviction may be of the same second, and was read first then.
        let lost = hold.evicted.map_or(0, |evicted| (evicted - now).max(0));
        self.assumed.remove(&index);
        self.admit(at, index);
        let since = self.since.get(&index).copied().unwrap_or(i64::MAX);
        let job = &mut self.record.jobs[index];
        job.lost += lost;
        // The parts of before it was resized.
        let parts =
            job.holds.iter_mut().filter(|hold| hold.from >= since && hold.to.is_some_and(|to| to > now));
        parts.for_each(|hold| hold.admitted = Some(now));
    }

    /// The job holds another amount from now on: a new hold begins where the old one ends.
    fn resize(&mut self, index: usize, at: Timestamp, now: &Usage) {
        let to = self.record.millis(at);
        self.settle(index);
        let holdings = self.amounts(&now.usage);
        let Some(hold) = self.record.open(index) else { return };
        if hold.holdings == holdings {
            return;
        }
        if hold.from >= to {
            hold.holdings = holdings;
            return;
        }
        let next = Hold { from: to, holdings, ..hold.clone() };
        hold.to = Some(to);
        self.record.jobs[index].holds.push(next);
    }

    fn evict(&mut self, index: usize, at: Timestamp, why: &Why) {
        self.settle(index);
        if self.record.open(index).is_some_and(|hold| hold.evicted.is_some()) {
            return;
        }
        let (of, finer) = why.reason.split_once('/').unwrap_or((&why.reason, &why.reason));
        let preempted = of == reason::PREEMPTED;
        let now = self.record.millis(at);
        let record = &mut self.record;
        if let Some(hold) = record.open(index) {
            hold.end = if preempted { HoldEnd::Preempted } else { HoldEnd::Evicted };
            hold.evicted = Some(now);
            let ran = hold.admitted.map_or(0, |admitted| now - admitted);
            record.jobs[index].lost += ran.max(0);
        }
        let message = record.text(&why.message);
        if !preempted {
            let reason = record.text(&why.reason);
            return record.push(at, Some(index), TimelineEvent::Evicted { reason, message });
        }
        let by = record.preempted_by(index, &why.message);
        let reason = record.text(finer);
        record.push(at, Some(index), TimelineEvent::Preempted { by, reason, message });
    }

    fn release(&mut self, index: usize, at: Timestamp, outcome: Outcome, why: &str) {
        self.settle(index);
        let end = match outcome {
            Outcome::Finished | Outcome::Failed => HoldEnd::Finished,
            Outcome::Evicted if why.split('/').next() == Some(reason::PREEMPTED) => HoldEnd::Preempted,
            Outcome::Evicted | Outcome::Deleted => HoldEnd::Evicted,
        };
        let to = self.record.millis(at);
        if outcome == Outcome::Failed
            && let Some(admitted) = self.record.open(index).and_then(|hold| hold.admitted)
        {
            self.record.jobs[index].lost += (to - admitted).max(0);
        }
        let job = &mut self.record.jobs[index];
        // Once it has finished it stays as it was, whenever it is deleted.
        if job.finished.is_none() || matches!(outcome, Outcome::Finished | Outcome::Failed) {
            job.success = outcome == Outcome::Finished;
        }
        self.close(index, to, end);
    }

    fn finished(&mut self, index: usize, at: Timestamp, why: &Why) {
        let now = self.record.millis(at);
        let job = &mut self.record.jobs[index];
        if job.finished.is_some() {
            return;
        }
        let success = ![reason::FAILED, reason::FAILED_TO_START].contains(&&*why.reason);
        (job.finished, job.success) = (Some(now), success);
        self.record.push(at, Some(index), TimelineEvent::Finished { success });
    }

    /// An admission at an unknown time counts from its reservation on.
    fn settle(&mut self, index: usize) {
        if !self.assumed.remove(&index) {
            return;
        }
        let start = self.record.start;
        let open = self.record.open(index).filter(|hold| hold.admitted.is_none());
        let since = open.map(|hold| jiff::SignedDuration::from_millis(hold.from));
        if let Some(at) = since.and_then(|since| start.checked_add(since).ok()) {
            self.admit(at, index);
        }
    }

    fn close(&mut self, index: usize, to: i64, end: HoldEnd) {
        self.assumed.remove(&index);
        if let Some(hold) = self.record.open(index) {
            hold.to = Some(to.max(hold.from));
            if hold.end == HoldEnd::Open || end == HoldEnd::Finished {
                hold.end = end;
            }
        }
    }

    fn amounts(&mut self, usage: &Amounts) -> Arc<[Holding]> {
        let mut found = Vec::new();
        for (flavor, resources) in usage {
            for (resource, text) in resources {
                let amount = Quantity::parse(text).map_or(0, |quantity| amount_of(resource, &quantity).get());
                found.push(Holding {
                    flavor: self.record.text(flavor),
                    resource: self.record.text(resource),
                    amount,
                });
            }
        }
        if let Some(known) = self.record.holdings.get(&found[..]) {
            return Arc::clone(known);
        }
        let new: Arc<[Holding]> = found.into();
        self.record.holdings.insert(Arc::clone(&new));
        new
    }

    fn finish(mut self, until: Timestamp) -> Recorded {
        for index in self.assumed.clone() {
            self.settle(index);
        }
        let end = self.record.millis(until).max(0);
        self.report_reservations();
        self.name_preemptors();
        self.record.count_from_beginning();
        self.record.leave_out_what_was_before();
        self.record.entries.sort_by_key(|entry| entry.at);
        self.record.quotas.sort_by_key(|change| change.at);
        self.record.local_stops.sort_by_key(|change| change.at);
        Recorded { record: self.record, end, lost: self.lost }
    }

    /// Records the time of reserved quota before the admission, or without one.
    fn report_reservations(&mut self) {
        let record = &mut self.record;
        for index in 0..record.jobs.len() {
            let holds = record.jobs[index].holds.clone();
            let mut before = None;
            for hold in holds {
                // A resized hold continues the one before.
                let is_new = before != Some(hold.from);
                before = hold.to;
                if is_new && hold.admitted.is_none_or(|admitted| admitted > hold.from) {
                    let (queue, flavors) = record.got(&hold);
                    let what = TimelineEvent::Reserved { queue, flavors };
                    record.entries.push(TimelineEntry { at: hold.from, job: Some(index), what });
                }
            }
        }
    }

    /// The first line of a preemptor may come after that of what it preempted.
    fn name_preemptors(&mut self) {
        for at in 0..self.record.entries.len() {
            if let TimelineEvent::Preempted { by: None, message, .. } = &self.record.entries[at].what {
                let message = Arc::clone(message);
                let preemptor = self.record.preemptor(&message);
                if let TimelineEvent::Preempted { by, .. } = &mut self.record.entries[at].what {
                    *by = preemptor;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
