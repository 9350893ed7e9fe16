//! The lines of a journal that a report needs. A journal may cover much more time than the report: Workloads that ended before it are dropped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_api::journal::{Event, Line, WorkloadLine};

use super::ReportArgs;
use crate::print::say;
use crate::usage::open::FileEnds;
use crate::usage::source::Sink;

/// A line with its place among all that were taken.
type Placed = (u64, Line);

/// Takes lines in any order, and keeps the needed ones.
pub(super) struct Wanted<'a> {
    args: &'a ReportArgs,
    namespace: Option<&'a str>,
    /// `None`: from the first line on.
    since: Option<Timestamp>,
    /// `None`: up to the last line.
    until: Option<Timestamp>,
    kept: Kept,
    /// The times of the first and the last line.
    pub span: Option<(Timestamp, Timestamp)>,
}

#[derive(Default)]
struct Kept {
    /// By the UID of the Workload, then by time: replicas write the same lines. `None` for a Workload that had ended before.
    workloads: BTreeMap<String, Option<BTreeMap<Timestamp, Vec<Placed>>>>,
    /// Lines about queues, and about the journal.
    others: Vec<Placed>,
    taken: u64,
}

impl<'a> Wanted<'a> {
    /// Keeps the lines about this period.
    pub fn new(
        args: &'a ReportArgs,
        namespace: Option<&'a str>,
        [since, until]: [Option<Timestamp>; 2],
    ) -> Self {
        Self { args, namespace, since, until, kept: Kept::default(), span: None }
    }

    /// Takes the reservations without an end in the files. One that a later manager did not find has ended; the others are shown as open.
    pub fn take_lost(&mut self, ends: FileEnds) {
        let span = self.span;
        let mut shown = 0;
        for line in ends.before {
            let is_asked_for =
                self.args.wants(self.namespace, &line) && self.since.is_none_or(|since| line.at() >= since);
            shown += usize::from(is_asked_for);
            if let Line::Workload(released) = &line {
                let gone = WorkloadLine { event: Event::Deleted, ..(**released).clone() };
                self.take(line);
                self.take(Line::Workload(Box::new(gone)));
            }
        }
        self.span = span;
        if shown > 0 {
            say(&format!(
                "warning: {shown} reservations have no end in these files; they are shown up to the last line about them"
            ));
        }
    }

    /// The kept lines, in the order in which they were taken.
    pub fn into_lines(self) -> Vec<Line> {
        let of_workloads =
            self.kept.workloads.into_values().flatten().flat_map(BTreeMap::into_values).flatten();
        let mut lines: Vec<Placed> = of_workloads.chain(self.kept.others).collect();
        lines.sort_unstable_by_key(|(place, _)| *place);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    /// Whether a line of after the end says something about the time before.
    fn concerns_the_time_before(&self, line: &Line) -> bool {
        let Some(until) = self.until.filter(|until| line.at() > *until) else { return true };
        match line {
            Line::Workload(line) => match line.event {
                Event::Holding { since, .. }
                | Event::Resized { since, .. }
                | Event::Released { since, .. } => since <= until,
                _ => false,
            },
            Line::Quota(_) | Line::LocalQueue(_) => true,
            Line::Lost(_) | Line::Missed(_) => false,
        }
    }
}

impl Sink for Wanted<'_> {
    fn begin_again(&mut self) {
        (self.kept, self.span) = (Kept::default(), None);
    }

    fn take(&mut self, line: Line) {
        if !self.args.wants(self.namespace, &line) {
            return;
        }
        let at = line.at();
        self.span = Some(self.span.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        if !self.concerns_the_time_before(&line) {
            return;
        }
        let kept = &mut self.kept;
        kept.taken += 1;
        let place = kept.taken;
        let Line::Workload(workload) = &line else { return kept.others.push((place, line)) };
        let is_before = self.since.is_some_and(|since| at < since);
        let is_over = is_before && matches!(workload.event, Event::Finished(_) | Event::Deleted);
        let known = kept.workloads.entry(workload.uid.clone()).or_insert_with(|| Some(BTreeMap::new()));
        if is_over {
            *known = None;
        }
        let Some(moments) = known else { return };
        let moment = moments.entry(at).or_default();
        if moment.iter().all(|(_, known)| *known != line) {
            moment.push((place, line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{args, line};
    use serde_json::json;

    const SINCE: &str = "2026-01-01T10:00:00Z";

    fn kept(wanted: Wanted<'_>) -> Vec<(u64, String)> {
        let of = |line: Line| {
            let Line::Workload(line) = line else { unreachable!("only these are given") };
            (line.at.duration_since(Timestamp::UNIX_EPOCH).as_hours().unsigned_abs() % 24, line.uid)
        };
        wanted.into_lines().into_iter().map(of).collect()
    }

    #[test]
    fn what_had_ended_before_is_not_kept_from_any_writer() {
        let args = args("");
        let mut wanted = Wanted::new(&args, None, [Some(SINCE.parse().unwrap()), None]);
        let usage = json!({"spot": {"cpu": "2"}});
        for replica in 0..2 {
            for number in 0..1000 {
                let name = format!("over-{number}");
                wanted.take(line(1, &name, &json!({"what": "QuotaReserved", "usage": usage})));
                // The other replica no longer existed when these ended.
                if replica == 0 {
                    wanted.take(line(2, &name, &json!({"what": "Released", "since": "2026-01-01T01:00:00Z", "outcome": "Finished", "usage": usage})));
                    wanted.take(line(2, &name, &json!({"what": "Finished", "reason": "Succeeded"})));
                }
            }
            wanted.take(line(3, "runs", &json!({"what": "QuotaReserved", "usage": usage})));
            wanted.take(line(12, "runs", &json!({"what": "Finished", "reason": "Succeeded"})));
            wanted.take(line(4, "gone", &json!({"what": "Deleted"})));
        }
        assert!(wanted.kept.workloads.values().flatten().count() == 1 && wanted.kept.others.is_empty());
        assert_eq!(kept(wanted), [(3, "runs".to_owned()), (12, "runs".to_owned())]);
    }

    #[test]
    fn of_lines_after_the_end_only_those_about_the_time_before_are_kept() {
        let args = args("");
        let mut wanted = Wanted::new(&args, None, [None, Some(SINCE.parse().unwrap())]);
        let holding = |since: &str| json!({"what": "Holding", "since": format!("2026-01-01T{since}:00:00Z"), "usage": {}});
        wanted.take(line(12, "before", &holding("09")));
        wanted.take(line(12, "after", &holding("11")));
        wanted.take(line(13, "waits", &json!({"what": "Pending", "reason": "Pending"})));
        assert_eq!(
            wanted.span.map(|(first, last)| (first.to_string(), last.to_string())),
            Some(("2026-01-01T12:00:00Z".to_owned(), "2026-01-01T13:00:00Z".to_owned()))
        );
        assert_eq!(kept(wanted), [(12, "before".to_owned())]);
    }
}
