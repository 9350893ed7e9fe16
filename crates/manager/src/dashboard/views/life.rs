//! The history of a Workload, as far as anything says it: its conditions and checks, which are those of the present attempt only, the journal, what
//! is remembered of the whole cluster, and its events, which the API server keeps for an hour.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::conditions::reason;
use sluice_api::journal::{self, WorkloadLine};
use sluice_api::slim;
use sluice_sim::explain::{Event, are_reported, rank};

use crate::dashboard::happening::{Happening, word};
use crate::dashboard::rows::{Fact, WorkloadRow};
use crate::dashboard::snapshot::Snapshot;

/// The most that clocks may differ.
const SKEW: SignedDuration = SignedDuration::from_secs(10);

/// It waits for quota, and why.
const WAITING: &str = "waiting";

/// A moment of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moment {
    at: Timestamp,
    what: String,
    /// Of a check: its name.
    reason: String,
    message: String,
}

impl Moment {
    fn new(at: Timestamp, what: impl Into<String>, (reason, message): (&str, &str)) -> Self {
        Self { at, what: what.into(), reason: reason.to_owned(), message: message.to_owned() }
    }

    /// What it says: checks differ by their names.
    fn says(&self) -> (&str, &str) {
        (&self.what, self.check().unwrap_or_default())
    }

    /// The check that it is about, if it is about one.
    fn check(&self) -> Option<&str> {
        self.what.starts_with("check").then_some(&self.reason)
    }
}

/// What happened, in order. `events` are those about it, if they may be read.
pub fn life(
    snapshot: &Snapshot,
    row: &WorkloadRow,
    workload: &slim::Workload,
    (events, journal): (Option<&[Value]>, &[WorkloadLine]),
) -> Vec<Value> {
    let mut moments = present(row, workload);
    let past = decided_once(journal.iter().filter_map(of_line).collect(), &mut moments);
    let remembered = snapshot.recent.iter().filter(|one| is_of(one, row)).filter_map(of_happening);
    // These have the times of the conditions that said the same.
    for moment in past.into_iter().chain(remembered) {
        if !moments.iter().any(|known| known.at == moment.at && known.says() == moment.says()) {
            moments.push(moment);
        }
    }
    // These have times of their own.
    let events: Vec<_> = Event::all(events.unwrap_or_default()).iter().filter_map(of_event).collect();
    let said: Vec<_> = events.iter().map(|event| (event.says(), event.at)).collect();
    let known: Vec<_> = moments.iter().map(|known| (known.says(), known.at)).collect();
    let reported = are_reported(&said, &known, |says| says.0 == WAITING);
    moments
        .extend(events.into_iter().zip(reported).filter(|(_, reported)| !reported).map(|(event, _)| event));
    in_order(&mut moments);
    let shown = |one: Moment| json!({"at": one.at.to_string(), "what": one.what, "reason": one.reason, "message": one.message});
    moments.into_iter().map(shown).collect()
}

/// What the journal says, with each decision of a check once. A line about a check has the time of its controller's clock, or else that of the replica
/// that wrote it: lines of two replicas may differ, and differ from what the object says now, which is told with the time of the line then.
fn decided_once(mut lines: Vec<Moment>, present: &mut [Moment]) -> Vec<Moment> {
    lines.sort_by_key(|line| line.at);
    let mut past: Vec<Moment> = Vec::new();
    // A check is asked again in the next attempt.
    let last_about = |past: &[Moment], check: &str| {
        let mut latest = past.iter().rev();
        latest.find(|one| one.what == "reserved" || one.check() == Some(check)).cloned()
    };
    for line in lines {
        let before = line.check().and_then(|check| last_about(&past, check));
        let again =
            |before: &Moment| before.says() == line.says() && line.at.duration_since(before.at) <= SKEW;
        if before.is_none_or(|before| !again(&before)) {
            past.push(line);
        }
    }
    let reserved = present.iter().find(|one| one.what == "reserved").map(|one| one.at);
    for known in present {
        let last = known.check().and_then(|check| last_about(&past, check));
        if let Some(last) = last.filter(|last| last.says() == known.says())
            && reserved.is_none_or(|reserved| reserved <= last.at)
        {
            known.at = last.at;
        }
    }
    past
}

/// Conditions and checks have whole seconds, events parts of them: within a second it is the order of a life that counts.
fn in_order(moments: &mut [Moment]) {
    let evictions = moments.iter().filter(|one| matches!(&*one.what, "evicted" | "preempted" | "hotswap"));
    let evictions: Vec<i64> = evictions.map(|one| one.at.as_second()).collect();
    moments.sort_by_cached_key(|one| {
        let second = one.at.as_second();
        let rank = rank(&one.what, evictions.contains(&second));
        (second, rank, one.at, one.what.clone(), one.reason.clone())
    });
}

/// What the object says.
fn present(row: &WorkloadRow, workload: &slim::Workload) -> Vec<Moment> {
    let mut moments = Vec::new();
    if let Some(created) = row.created {
        moments.push(Moment::new(created, "queued", ("", "")));
    }
    for condition in &workload.status.conditions {
        let fact = row.facts.iter().find(|fact| fact.of.as_str() == condition.type_);
        let what = match fact {
            Some(fact) => of_fact(fact),
            None if condition.type_ == "QuotaReserved" => WAITING,
            None if condition.type_ == "PodsReady" => "podsNotReady",
            // A condition that no longer holds is described by its successor.
            None => continue,
        };
        let why = (&*condition.reason, &*condition.message);
        moments.push(Moment::new(condition.last_transition_time.0, what, why));
    }
    for check in &workload.status.admission_checks {
        let what = format!("check{:?}", check.state);
        moments.push(Moment::new(check.last_transition_time.0, what, (&check.name, &check.message)));
    }
    moments
}

/// What an event says of a life: the word that its condition has, too.
fn of_event(event: &Event) -> Option<Moment> {
    let moment = |what: &str| Some(Moment::new(event.at, what, (&event.reason, &event.message)));
    match (event.reason.as_str(), event.condition().map(|(of, _)| of)) {
        ("AdmissionCheckUpdated", _) => {
            let (name, state, message) = updated(&event.message)?;
            Some(Moment::new(event.at, format!("check{state}"), (name, message)))
        }
        ("AdmissionCheckRejected", _) => {
            let name = event.message.split('"').nth(1).unwrap_or_default();
            Some(Moment::new(event.at, "checkRejected", (name, &event.message)))
        }
        ("QuotaReserved", _) => moment("reserved"),
        ("EvictedDueToPreempted", _) => moment("preempted"),
        ("EvictedDueToNodeFailures", _) => moment("hotswap"),
        (_, Some("Admitted")) => moment("admitted"),
        (_, Some("Evicted")) => moment("evicted"),
        (_, Some("QuotaReserved")) => moment(WAITING),
        // Its eviction says the same.
        _ => None,
    }
}

/// Name, new state and message of a check, as the note of an event has them.
fn updated(note: &str) -> Option<(&str, &str, &str)> {
    let (name, states) = note.strip_prefix("Admission check ")?.split_once(" updated state from ")?;
    let (_, after) = states.split_once(" to ")?;
    let (state, message) = after.split_once(" with message: ").unwrap_or((after, ""));
    ["Pending", "Ready", "Retry", "Rejected"].contains(&state).then_some((name, state, message))
}

/// What a line of the journal says of a life, with the words of events.
fn of_line(line: &WorkloadLine) -> Option<Moment> {
    let moment = |what: &str, why: (&str, &str)| Some(Moment::new(line.at, what, why));
    match &line.event {
        journal::Event::QuotaReserved { .. } => moment("reserved", ("", "")),
        journal::Event::Checked { check, state, message } => {
            moment(&format!("check{state:?}"), (check, message))
        }
        journal::Event::Admitted => moment("admitted", ("", "")),
        journal::Event::PodsReady => moment("started", ("", "")),
        journal::Event::Evicted(why) => {
            let what = match why.reason.split('/').next() {
                Some(reason::PREEMPTED) => "preempted",
                Some(reason::NODE_FAILURES) => "hotswap",
                _ => "evicted",
            };
            moment(what, (&why.reason, &why.message))
        }
        _ => None,
    }
}

fn of_happening(past: &Happening) -> Option<Moment> {
    (past.what != "pending").then(|| Moment::new(past.at, past.what, (&past.reason, &past.message)))
}

/// A namesake before it had a life of its own.
fn is_of(happening: &Happening, row: &WorkloadRow) -> bool {
    happening.key == row.key && happening.uid == row.uid
}

fn of_fact(fact: &Fact) -> &'static str {
    word(fact).unwrap_or_else(|| fact.of.as_str())
}

#[cfg(test)]
mod tests;
