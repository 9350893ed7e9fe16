//! Events about an object from the API server: the part of its history that its conditions no longer have.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::json::text;

/// Most events that are read of one object.
pub const MOST_EVENTS: usize = 200;

/// An event and a condition this close together report the same.
const SAME: SignedDuration = SignedDuration::from_secs(5);

/// Type and status of the condition of what waits.
const WAITS: (&str, &str) = ("QuotaReserved", "False");

/// Its note names Workloads of other namespaces.
const NAMES_OTHERS: &str = "PreemptedWorkload";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// When it happened last.
    pub at: Timestamp,
    /// Its reason.
    pub reason: String,
    /// Its note.
    pub message: String,
    /// How often it happened.
    pub count: i64,
    /// Whether it warns.
    pub warns: bool,
}

impl Event {
    fn read(event: &Value) -> Option<Self> {
        let times = [
            &event["series"]["lastObservedTime"],
            &event["lastTimestamp"],
            &event["eventTime"],
            &event["firstTimestamp"],
            &event["metadata"]["creationTimestamp"],
        ];
        let at = times.into_iter().find_map(|at| text(at).parse().ok())?;
        let count = event["series"]["count"].as_i64().or_else(|| event["count"].as_i64());
        Some(Self {
            at,
            reason: text(&event["reason"]).to_owned(),
            message: text(&event["message"]).to_owned(),
            count: count.unwrap_or(1).max(1),
            warns: event["type"] == "Warning",
        })
    }

    /// All that can be read, oldest first.
    pub fn all(events: &[Value]) -> Vec<Self> {
        let mut all: Vec<Self> = events.iter().filter_map(Self::read).collect();
        all.sort();
        all
    }

    /// Type and status of the condition that is written together with this event.
    pub fn condition(&self) -> Option<(&'static str, &'static str)> {
        match self.reason.as_str() {
            "Admitted" => Some(("Admitted", "True")),
            "Preempted" => Some(("Preempted", "True")),
            "QuotaReserved" => Some(("QuotaReserved", "True")),
            "WaitingForQuota"
            | "ExceedsMaxQuota"
            | "NoMatchingFlavor"
            | "WaitingForCapacity"
            | "WaitingForPreemptedWorkloads"
            | "WaitingForPodsReady"
            | "TopologyPlacementFailed"
            | "Misconfigured"
            | "Suspended"
            | "Pending"
            | "Inadmissible"
            | "Waiting" => Some(WAITS),
            reason if reason.starts_with("EvictedDueTo") => Some(("Evicted", "True")),
            _ => None,
        }
    }

    /// When it happened last, as conditions say it.
    pub(super) fn second(&self) -> Timestamp {
        Timestamp::from_second(self.at.as_second()).unwrap_or(self.at)
    }

    fn line(&self) -> String {
        let often = if self.count > 1 { format!(" ({} times)", self.count) } else { String::new() };
        format!("{} {}{often}: {}", self.second(), self.reason, self.message)
    }
}

/// Something that happened, in a line.
#[derive(Debug)]
pub(super) struct Reported {
    pub at: Timestamp,
    /// In the words of a life; empty if it has none.
    word: &'static str,
    pub line: String,
}

impl Reported {
    /// Of a condition.
    pub fn condition(condition: &Condition) -> Self {
        let (at, kind, status) = (condition.last_transition_time.0, &condition.type_, &condition.status);
        let line = format!("{at} {kind}={status} {}: {}", condition.reason, condition.message);
        Self { at, word: word(kind, status), line }
    }

    fn event(event: &Event) -> Self {
        let of_check = event.reason.starts_with("AdmissionCheck");
        let of_condition = || event.condition().map_or("", |(kind, status)| word(kind, status));
        Self { at: event.at, word: if of_check { "check" } else { of_condition() }, line: event.line() }
    }

    /// In the order of a life: conditions have whole seconds, events parts of them.
    pub fn in_order(all: &mut [Self]) {
        let evictions = all.iter().filter(|reported| ["evicted", "Preempted"].contains(&reported.word));
        let evictions: Vec<i64> = evictions.map(|reported| reported.at.as_second()).collect();
        all.sort_by_key(|reported| {
            let second = reported.at.as_second();
            (second, rank(reported.word, evictions.contains(&second)), reported.at)
        });
    }
}

/// The word for a condition with this status.
fn word(kind: &str, status: &str) -> &'static str {
    match (kind, status) {
        ("QuotaReserved", "True") => "reserved",
        ("QuotaReserved", "False") => "waiting",
        ("Admitted", "True") => "admitted",
        ("PodsReady", "True") => "started",
        ("PodsReady", "False") => "podsNotReady",
        ("DeactivationTarget", "True") => "DeactivationTarget",
        ("Preempted", "True") => "Preempted",
        ("Evicted", "True") => "evicted",
        ("Finished", "True") => "finished",
        _ => "",
    }
}

/// The order of what happened in one second, in the words of a life: times of conditions are whole seconds. `evicted`: so was it in that second.
pub fn rank(what: &str, evicted: bool) -> u8 {
    match what {
        "queued" | "pending" => 0,
        "waiting" if !evicted => 1,
        "reserved" => 2,
        check if check.starts_with("check") => 3,
        "admitted" => 4,
        "started" => 5,
        "DeactivationTarget" => 6,
        "preempted" | "Preempted" | "evicted" | "hotswap" => 7,
        "podsNotReady" => 8,
        "waiting" => 9,
        "finished" => 11,
        // That it may be queued again, for example.
        _ => 10,
    }
}

/// What the conditions do not say. Names of other namespaces are left out unless `all` of them may be shown.
pub(super) fn lines(events: &[Value], conditions: &[Condition], all: bool) -> Vec<Reported> {
    let all_events = Event::all(events);
    let said = all_events.iter().map(|event| (event.condition(), event.at)).collect::<Vec<_>>();
    let known = conditions.iter().map(|c| (Some((&*c.type_, &*c.status)), c.last_transition_time.0));
    let reported = are_reported(&said, &known.collect::<Vec<_>>(), |what| *what == Some(WAITS));
    let shown = |event: &Event| all || event.reason != NAMES_OTHERS;
    let left = all_events.iter().zip(reported).filter(|(event, reported)| !reported && shown(event));
    left.map(|(event, _)| Reported::event(event)).collect()
}

/// Whether each event, oldest first, says what is `known` with its time: with the same words, nearest in time, and at most five seconds away. What is
/// known is said by one event, the last of those: an earlier one reports an earlier change. What `repeats`, as the reasons for
/// waiting do, may be said by several.
pub fn are_reported<W: PartialEq>(
    events: &[(W, Timestamp)],
    known: &[(W, Timestamp)],
    repeats: impl Fn(&W) -> bool,
) -> Vec<bool> {
    let mut taken = vec![false; known.len()];
    let mut reported = vec![false; events.len()];
    for (reported, (what, at)) in reported.iter_mut().zip(events).rev() {
        let away = |place: usize| known[place].1.duration_since(*at).abs();
        let free = (0..known.len()).filter(|&place| !taken[place] && known[place].0 == *what);
        if let Some(place) = free.filter(|&place| away(place) <= SAME).min_by_key(|&place| away(place)) {
            taken[place] = !repeats(what);
            *reported = true;
        }
    }
    reported
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_conditions_say_is_not_said_twice_and_the_rest_is_in_order() {
        let event = |reason: &str, at: &str| json!({"reason": reason, "message": format!("about {reason}"), "type": "Normal", "eventTime": at});
        let mut often = event("WaitingForQuota", "2026-01-01T00:00:00.000000Z");
        often["series"] = json!({"count": 3, "lastObservedTime": "2026-01-01T00:10:00.000000Z"});
        let events = [
            event("Admitted", "2026-01-01T01:00:01.5Z"),
            event("EvictedDueToPreempted", "2026-01-01T00:30:00.057771Z"),
            often,
            event("Admitted", "2026-01-01T00:20:00Z"),
            event("PreemptedWorkload", "2026-01-01T00:19:00Z"),
            json!({"reason": "Odd"}),
        ];
        let condition: Condition = serde_json::from_value(json!({
            "type": "Admitted", "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": "2026-01-01T01:00:00Z",
        }))
        .unwrap();
        let said = |all| -> Vec<String> {
            lines(&events, std::slice::from_ref(&condition), all)
                .into_iter()
                .map(|reported| reported.line)
                .collect()
        };
        let own = [
            "2026-01-01T00:10:00Z WaitingForQuota (3 times): about WaitingForQuota",
            "2026-01-01T00:20:00Z Admitted: about Admitted",
            "2026-01-01T00:30:00Z EvictedDueToPreempted: about EvictedDueToPreempted",
        ];
        assert_eq!(said(false), own);
        assert_eq!(said(true)[1], "2026-01-01T00:19:00Z PreemptedWorkload: about PreemptedWorkload");
    }

    #[test]
    fn what_happened_in_one_second_is_in_the_order_of_a_life() {
        let event = |reason: &str, part: &str| json!({"reason": reason, "message": "", "eventTime": format!("2026-01-01T00:00:09.{part}Z")});
        let events =
            [event("Admitted", "1"), event("AdmissionCheckUpdated", "2"), event("QuotaReserved", "3")];
        let condition = |kind: &str, status: &str| -> Condition {
            let at = "2026-01-01T00:00:20Z";
            let condition = json!({"type": kind, "status": status, "reason": "", "message": "", "lastTransitionTime": at});
            serde_json::from_value(condition).unwrap()
        };
        let conditions = [("QuotaReserved", "False"), ("PodsReady", "False"), ("Evicted", "True")];
        let conditions = conditions.map(|(kind, status)| condition(kind, status));
        let mut all = lines(&events, &conditions, true);
        all.extend(conditions.iter().map(Reported::condition));
        Reported::in_order(&mut all);
        let said: Vec<_> = all.iter().filter_map(|reported| reported.line.split(' ').nth(1)).collect();
        let expected = [
            "QuotaReserved:",
            "AdmissionCheckUpdated:",
            "Admitted:",
            "Evicted=True",
            "PodsReady=False",
            "QuotaReserved=False",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn an_event_of_a_moment_before_is_not_taken_for_what_is_known() {
        let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap();
        let events = [
            ("reserved", at(10_200)),
            ("waiting", at(12_100)),
            ("waiting", at(12_900)),
            ("reserved", at(14_300)),
            ("reserved", at(30_000)),
        ];
        let known = [("reserved", at(14_000)), ("waiting", at(12_000))];
        let reported = are_reported(&events, &known, |what| *what == "waiting");
        assert_eq!(reported, [false, true, true, true, false]);
    }
}
