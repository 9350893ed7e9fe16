//! Reservations without an end in the journal: it was lost with its process, or no process ran then.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sluice_api::journal::{Event, Line, Outcome, Usage, WorkloadLine};

/// Times of conditions are whole seconds: what began in the second of the reading may not have been read yet.
const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// By this time after its start a process has written which Workloads hold quota.
const OPENING: SignedDuration = SignedDuration::from_mins(1);
/// The most that clocks may differ.
const SKEW: SignedDuration = SignedDuration::from_secs(10);

/// The last reservation of a Workload. Those before ended when it began.
#[derive(Clone, Debug)]
struct Latest {
    since: Timestamp,
    /// The line that says what it took at last; none once it ended.
    open: Option<Box<WorkloadLine>>,
}

/// By the UID of the Workload: its last reservation, and the time of the last line about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Open(BTreeMap<String, (Option<Latest>, Timestamp)>);

/// A process's lines since its start, if that is known: at its start it writes which Workloads hold quota.
#[derive(Clone, Copy, Debug)]
struct Process {
    began: Option<Timestamp>,
    last: Timestamp,
    lost: bool,
}

/// Lines of files, which end at some time.
#[derive(Clone, Debug, Default)]
pub(super) struct OfFiles {
    open: Open,
    processes: BTreeMap<String, Process>,
    last: Option<Timestamp>,
}

/// The ends of reservations that have none in files.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FileEnds {
    /// The last line of the files.
    pub last: Option<Timestamp>,
    /// Lines that end, at the last line, the reservations that may have continued after it.
    pub at_last: Vec<Line>,
    /// Lines for reservations that a later process did not find, each at the last line about it.
    pub before: Vec<Line>,
}

impl OfFiles {
    /// Takes note of a line of a process. `is_first`: it is in its first file.
    pub(super) fn note(&mut self, process: &str, is_first: bool, line: &Line) {
        let at = line.at();
        self.open.note(line);
        self.last = self.last.max(Some(at));
        let new = Process { began: None, last: at, lost: false };
        let known = self.processes.entry(process.to_owned()).or_insert(new);
        known.last = known.last.max(at);
        known.lost |= matches!(line, Line::Lost(_));
        // These have the time at which they were made; others have that of a condition.
        let is_holding =
            |line: &Line| matches!(line, Line::Workload(line) if matches!(line.event, Event::Holding { .. }));
        if is_first && (matches!(line, Line::Quota(_)) || is_holding(line)) {
            known.began = Some(known.began.map_or(at, |began| began.min(at)));
        }
    }

    /// The ends of what has none: at the last line of all; but at the last line about it where a process that began after that did not name it.
    pub(super) fn ends(self) -> FileEnds {
        let Some(now) = self.last else { return FileEnds::default() };
        let named_all = |process: &Process| {
            let began = process.began.filter(|_| !process.lost)?;
            (process.last.duration_since(began) >= OPENING).then_some(began)
        };
        let opening = self.processes.values().filter_map(named_all).max();
        let limit = opening.and_then(|began| began.checked_sub(SKEW).ok());
        let mut found = FileEnds { last: Some(now), ..FileEnds::default() };
        for (latest, last) in self.open.0.values() {
            let Some((latest, line)) =
                latest.as_ref().and_then(|latest| Some((latest, latest.open.as_ref()?)))
            else {
                continue;
            };
            let is_over = limit.is_some_and(|limit| *last < limit);
            let (ends, at) = if is_over { (&mut found.before, *last) } else { (&mut found.at_last, now) };
            ends.push(end(line, latest.since, at));
        }
        found
    }
}

/// The end, at a time, of the reservation in a line.
fn end(line: &WorkloadLine, since: Timestamp, at: Timestamp) -> Line {
    let held = match &line.event {
        Event::QuotaReserved { held }
        | Event::Holding { held, .. }
        | Event::Resized { held, .. }
        | Event::Released { held, .. } => held.clone(),
        _ => Usage::default(),
    };
    let event = Event::Released { since, outcome: Outcome::Deleted, reason: String::new(), held };
    Line::Workload(Box::new(WorkloadLine { at: at.max(since), event, ..line.clone() }))
}

impl Open {
    /// Takes note of a line; lines may come in any order.
    pub(super) fn note(&mut self, line: &Line) {
        let Line::Workload(line) = line else { return };
        let since = match &line.event {
            Event::QuotaReserved { .. } => Some(line.at),
            Event::Holding { since, .. } | Event::Resized { since, .. } | Event::Released { since, .. } => {
                Some(*since)
            }
            _ => None,
        };
        let (latest, last) = self.0.entry(line.uid.clone()).or_insert((None, line.at));
        *last = (*last).max(line.at);
        let Some(since) = since else { return };
        let open = (!matches!(line.event, Event::Released { .. })).then(|| line.clone());
        match latest {
            Some(known) if known.since > since => {}
            Some(known) if known.since == since => match (&known.open, open) {
                (Some(older), Some(newer)) if older.at <= newer.at => known.open = Some(newer),
                (_, None) => known.open = None,
                _ => {}
            },
            _ => *latest = Some(Latest { since, open }),
        }
    }

    /// The ends of reservations that began before `now` and that no Workload holds now, each at the last line about it.
    ///
    /// The lines about current usage have been added before, with `now` as their time.
    pub(super) fn ends(&self, now: Timestamp) -> Vec<Line> {
        let before = now.saturating_sub(SECOND).unwrap_or(now);
        let ends = self.0.values().filter_map(|(latest, last)| {
            let latest = latest.as_ref().filter(|latest| latest.since < before && *last < now)?;
            Some(end(latest.open.as_ref()?, latest.since, *last))
        });
        ends.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn line(second: i64, uid: &str, more: &Value) -> Line {
        let mut line = json!({"at": at(second).to_string(), "namespace": "a", "workload": "w", "uid": uid});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    }

    fn usage() -> Value {
        json!({"spot": {"cpu": "2"}})
    }

    fn reserved(second: i64, uid: &str) -> Line {
        line(second, uid, &json!({"what": "QuotaReserved", "usage": usage()}))
    }

    fn holding(second: i64, uid: &str, since: i64) -> Line {
        line(second, uid, &json!({"what": "Holding", "since": at(since).to_string(), "usage": usage()}))
    }

    fn released(second: i64, uid: &str, since: i64) -> Line {
        let more = json!({"what": "Released", "since": at(since).to_string(), "outcome": "Finished", "usage": usage()});
        line(second, uid, &more)
    }

    /// UID, beginning and end of what has no end, at second 100.
    fn ends(lines: impl IntoIterator<Item = Line>) -> Vec<(String, i64, i64)> {
        let mut open = Open::default();
        lines.into_iter().for_each(|line| open.note(&line));
        let reported = open.ends(at(100)).into_iter().map(|line| {
            let Line::Workload(line) = line else { panic!() };
            let Event::Released { since, outcome: Outcome::Deleted, held, .. } = line.event else { panic!() };
            assert_eq!(serde_json::to_value(held.usage).unwrap(), usage());
            (line.uid, since.as_second(), line.at.as_second())
        });
        reported.collect()
    }

    #[test]
    fn what_no_workload_holds_any_more_ends_at_the_last_line_about_it() {
        let ended = line(20, "gone", &json!({"what": "Finished", "reason": "Succeeded"}));
        let lines = [
            reserved(5, "gone"),
            ended,
            reserved(10, "runs"),
            holding(100, "runs", 10),
            released(40, "over", 30),
            reserved(30, "over"),
            // The reservation began while the Workloads were read.
            reserved(99, "new"),
            line(50, "waits", &json!({"what": "Pending", "reason": "Pending"})),
        ];
        assert_eq!(ends(lines.clone()), [("gone".to_owned(), 5, 20)]);
        let mut turned = lines;
        turned.reverse();
        assert_eq!(ends(turned), [("gone".to_owned(), 5, 20)]);
    }

    #[test]
    fn of_several_reservations_only_the_last_may_be_open() {
        let lines = [reserved(5, "a"), reserved(20, "a"), released(30, "a", 20)];
        assert_eq!(ends(lines), []);
        let lines = [reserved(5, "a"), released(10, "a", 5), reserved(20, "a")];
        assert_eq!(ends(lines), [("a".to_owned(), 20, 20)]);
    }
}
