//! A schedule as data for the page's script: see the head of `gantt.js` for its form.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;
use sluice_sim::places::{Places, places};
use sluice_sim::stops::{Stop, stops};
use sluice_sim::{
    Hold, HoldEnd, Holding, JobRecord, QuotaChange, Record, TimelineEntry, TimelineEvent, show_amount,
};

/// The most jobs that are drawn: more would make a page that browsers do not like.
pub(super) const MOST_JOBS: usize = 100_000;
/// The most marks.
const MOST_MARKS: usize = 5000;
/// The most reasons of one job.
const MOST_REASONS: usize = 40;

/// All of it. Times in milliseconds from `start`, which counts from 1970.
#[derive(Debug, Serialize)]
pub(super) struct Schedule {
    start: i64,
    end: i64,
    flavors: Vec<Arc<str>>,
    texts: Vec<String>,
    jobs: Vec<Job>,
    marks: Vec<Mark>,
    stops: Vec<Stop>,
    places: Vec<Places>,
}

#[derive(Debug, Serialize)]
struct Job {
    name: String,
    queue: Option<Arc<str>>,
    priority: i32,
    submitted: i64,
    until: Option<i64>,
    ok: bool,
    holds: Vec<Use>,
    waits: Vec<(i64, i64)>,
}

#[derive(Debug, Serialize)]
struct Use {
    from: i64,
    admitted: Option<i64>,
    evicted: Option<i64>,
    to: Option<i64>,
    end: &'static str,
    flavor: i64,
    got: i64,
    why: i64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Mark {
    at: i64,
    kind: &'static str,
    queue: Option<Arc<str>>,
    text: String,
}

/// Texts, each once; -1 is none.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    known: HashMap<String, i64>,
}

impl Texts {
    fn at(&mut self, text: String) -> i64 {
        if text.is_empty() {
            return -1;
        }
        if let Some(known) = self.known.get(&text) {
            return *known;
        }
        let at = i64::try_from(self.list.len()).unwrap_or(-1);
        self.list.push(text.clone());
        self.known.insert(text, at);
        at
    }
}

impl Schedule {
    /// The schedule of a record. `end` in milliseconds from the beginning.
    pub fn new(record: &Record, end: i64, flavors: &BTreeMap<Arc<str>, usize>) -> Self {
        let mut texts = Texts::default();
        let mut entries = vec![Vec::new(); record.jobs.len()];
        for entry in &record.entries {
            if let Some(job) = entry.job {
                entries[job].push(entry);
            }
        }
        let jobs = record.jobs.iter().zip(&entries).take(MOST_JOBS);
        let jobs = jobs.map(|(job, entries)| self::job(job, entries, flavors, &mut texts)).collect();
        let mut names: Vec<_> = flavors.iter().collect();
        names.sort_by_key(|(_, place)| **place);
        let flavors = names.into_iter().map(|(name, _)| Arc::clone(name)).collect();
        let (marks, stops) = (marks(record), stops(record));
        let places = places(record, end, MOST_JOBS);
        Self {
            start: record.start.as_millisecond(),
            end,
            flavors,
            texts: texts.list,
            jobs,
            marks,
            stops,
            places,
        }
    }
}

fn job(
    job: &JobRecord,
    entries: &[&TimelineEntry],
    flavors: &BTreeMap<Arc<str>, usize>,
    texts: &mut Texts,
) -> Job {
    let mut waits = Vec::new();
    for entry in entries.iter().filter(|e| matches!(e.what, TimelineEvent::Waiting { .. })).take(MOST_REASONS)
    {
        waits.push((entry.at, texts.at(entry.what.details())));
    }
    let held = |hold: &Hold| {
        let at = hold.evicted.or(hold.to);
        let lost = |e: &&&TimelineEntry| {
            matches!(e.what, TimelineEvent::Preempted { .. } | TimelineEvent::Evicted { .. })
        };
        let why = entries.iter().filter(lost).find(|e| Some(e.at) == at);
        Use {
            from: hold.from,
            admitted: hold.admitted.map(|at| at.max(hold.from)),
            evicted: hold.evicted,
            to: hold.to,
            end: match hold.end {
                HoldEnd::Open => "open",
                HoldEnd::Finished if job.success => "finished",
                HoldEnd::Finished => "failed",
                HoldEnd::Preempted => "preempted",
                HoldEnd::Evicted => "evicted",
            },
            flavor: hold
                .holdings
                .first()
                .and_then(|h| i64::try_from(*flavors.get(&h.flavor)?).ok())
                .unwrap_or(-1),
            got: texts.at(got(&hold.holdings)),
            why: texts.at(why.map(|e| e.what.details()).unwrap_or_default()),
        }
    };
    Job {
        name: job.key(),
        holds: job.holds.iter().map(held).collect(),
        queue: job.cluster_queue.clone(),
        priority: job.priority,
        submitted: job.submitted,
        until: job.finished.or(job.deleted),
        ok: job.success,
        waits,
    }
}

fn got(holdings: &[Holding]) -> String {
    let one = |h: &Holding| format!("{} {} of {}", show_amount(&h.resource, h.amount), h.resource, h.flavor);
    holdings.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Each change of a node's quota with the one before.
fn changes(quotas: &[QuotaChange]) -> impl Iterator<Item = (Option<&QuotaChange>, &QuotaChange)> {
    let mut last: BTreeMap<(&Arc<str>, bool), &QuotaChange> = BTreeMap::new();
    quotas.iter().map(move |change| (last.insert((&change.node, change.is_queue), change), change))
}

/// The events of nodes, queues and quota.
fn marks(record: &Record) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut reported = BTreeSet::new();
    for (before, now) in changes(&record.quotas) {
        // An initial state is not a change, and a deletion has an entry of its own.
        let Some(before) = before.filter(|before| !before.deleted && !now.deleted) else { continue };
        let kind = if now.is_queue { "ClusterQueue" } else { "Cohort" };
        let mut push = |what, text| {
            reported.insert((now.at, format!("patch {kind} {}:", now.node)));
            let queue = now.is_queue.then(|| Arc::clone(&now.node));
            marks.push(Mark { at: now.at, kind: what, queue, text });
        };
        if before.stopped != now.stopped {
            let (what, verb) = if now.stopped { ("stop", "stops") } else { ("resume", "continues") };
            push(what, format!("{kind} {} {verb}", now.node));
        }
        let quota = quota_words(&before.nominal, &now.nominal);
        if !quota.is_empty() {
            push("quota", format!("{kind} {}: {}", now.node, quota.join(", ")));
        }
    }
    let is_reported = |at: i64, message: &str| {
        message.split_once(':').is_some_and(|(head, _)| reported.contains(&(at, format!("{head}:"))))
    };
    for entry in record.entries.iter().filter(|entry| entry.job.is_none()) {
        let (kind, text) = match &entry.what {
            TimelineEvent::Scenario { message } if is_reported(entry.at, message) => continue,
            TimelineEvent::Scenario { message } => (kind_of(message), message.to_string()),
            TimelineEvent::Refused { message } => ("refused", format!("refused: {message}")),
            _ => continue,
        };
        marks.push(Mark { at: entry.at, kind, queue: None, text });
    }
    marks.sort_by_key(|mark| mark.at);
    marks.truncate(MOST_MARKS);
    marks
}

/// The kind of object that a scenario's message is about.
fn kind_of(message: &str) -> &'static str {
    let stops = |policy: &str| message.contains(&format!("\"stopPolicy\":\"{policy}\""));
    match message {
        _ if message.starts_with("nodes ") || message.starts_with("maintenance ") => "nodes",
        _ if stops("None") || message.contains("\"stopPolicy\":null") => "resume",
        _ if stops("Hold") || stops("HoldAndDrain") => "stop",
        _ => "scenario",
    }
}

/// How quota differs, as `4 → 8 cpu of spot`.
fn quota_words(before: &[Holding], now: &[Holding]) -> Vec<String> {
    let amounts = |holdings: &[Holding]| -> BTreeMap<(Arc<str>, Arc<str>), i64> {
        let of = |h: &Holding| ((Arc::clone(&h.flavor), Arc::clone(&h.resource)), h.amount);
        holdings.iter().map(of).collect()
    };
    let (old, new) = (amounts(before), amounts(now));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let shown = |resource: &str, amount: Option<&i64>| {
        amount.map_or("none".to_owned(), |a| show_amount(resource, *a))
    };
    let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    let words = changed.map(|key| {
        let (flavor, resource) = key;
        let (a, b) = (shown(resource, old.get(key)), shown(resource, new.get(key)));
        format!("{a} → {b} {resource} of {flavor}")
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: i64, node: &str, cpu: i64, stopped: bool) -> QuotaChange {
        let nominal = vec![Holding { flavor: "spot".into(), resource: "cpu".into(), amount: cpu * 1000 }];
        QuotaChange { at, node: node.into(), is_queue: true, cohort: None, nominal, stopped, deleted: false }
    }

    #[test]
    fn queues_that_stop_and_quota_that_changes_are_marked_once() {
        let scenario = |at, message: &str| TimelineEntry {
            at,
            job: None,
            what: TimelineEvent::Scenario { message: message.into() },
        };
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        record.quotas = vec![
            change(0, "q", 4, false),
            change(5, "q", 4, true),
            change(5, "q", 4, true),
            change(9, "q", 8, false),
        ];
        record.entries = vec![
            scenario(5, "patch ClusterQueue q: {\"spec\":{\"stopPolicy\":\"Hold\"}}"),
            scenario(6, "patch LocalQueue t/main: {\"spec\":{\"stopPolicy\":\"Hold\"}}"),
            scenario(7, "nodes fail: n1"),
            scenario(8, "patch LocalQueue t/main: {\"spec\":{\"stopPolicy\":null}}"),
        ];
        let found: Vec<_> = marks(&record).into_iter().map(|m| (m.at, m.kind, m.text)).collect();
        let expected = [
            (5, "stop", "ClusterQueue q stops"),
            (6, "stop", "patch LocalQueue t/main: {\"spec\":{\"stopPolicy\":\"Hold\"}}"),
            (7, "nodes", "nodes fail: n1"),
            (8, "resume", "patch LocalQueue t/main: {\"spec\":{\"stopPolicy\":null}}"),
            (9, "resume", "ClusterQueue q continues"),
            (9, "quota", "ClusterQueue q: 4 → 8 cpu of spot"),
        ];
        assert_eq!(found, expected.map(|(at, kind, text)| (at, kind, text.to_owned())));
    }

    #[test]
    fn a_queue_that_is_deleted_does_not_continue_and_another_one_of_its_name_is_no_change_of_it() {
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        let deleted = QuotaChange { nominal: Vec::new(), deleted: true, ..change(5, "q", 4, false) };
        record.quotas = vec![change(0, "q", 4, true), deleted, change(9, "q", 8, false)];
        let what = TimelineEvent::Scenario { message: "delete ClusterQueue q".into() };
        record.entries = vec![TimelineEntry { at: 5, job: None, what }];
        let found: Vec<_> = marks(&record).into_iter().map(|m| (m.at, m.kind, m.text)).collect();
        assert_eq!(found, [(5, "scenario", "delete ClusterQueue q".to_owned())]);
    }
}
