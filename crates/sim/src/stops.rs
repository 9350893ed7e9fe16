//! When ClusterQueues were stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::record::QuotaChange;
use crate::report::seconds;

/// A time in which a ClusterQueue is stopped. Times in milliseconds from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// The ClusterQueue.
    pub queue: Arc<str>,
    /// When it begins.
    pub from: i64,
    /// When it ends; absent if the queue is stopped at the end.
    pub to: Option<i64>,
}

/// The same in a report. Times in seconds from the beginning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StopReport {
    /// The ClusterQueue.
    pub queue: Arc<str>,
    /// When it begins.
    pub from: f64,
    /// When it ends; absent if the queue is stopped at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
}

/// When ClusterQueues are stopped, in the order in which that begins. One that is stopped when it is first known is stopped since then.
pub fn stops(changes: &[QuotaChange]) -> Vec<Stop> {
    let mut stops: Vec<Stop> = Vec::new();
    let mut open: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for QuotaChange { at, node, stopped, .. } in changes.iter().filter(|change| change.is_queue) {
        match open.get(node).copied() {
            None if *stopped => {
                open.insert(node, stops.len());
                stops.push(Stop { queue: Arc::clone(node), from: *at, to: None });
            }
            Some(number) if !stopped => {
                open.remove(node);
                stops[number].to = Some(*at);
            }
            _ => {}
        }
    }
    stops
}

/// The same for a report.
pub(crate) fn reported(changes: &[QuotaChange]) -> Vec<StopReport> {
    let report = |Stop { queue, from, to }| StopReport { queue, from: seconds(from), to: to.map(seconds) };
    stops(changes).into_iter().map(report).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Record, Report};

    fn change(at: i64, node: &str, stopped: bool) -> QuotaChange {
        QuotaChange { at, node: node.into(), is_queue: true, cohort: None, nominal: Vec::new(), stopped }
    }

    #[test]
    fn a_queue_is_stopped_from_its_first_stop_on_or_from_the_beginning() {
        let changes = [
            change(0, "q", false),
            change(0, "held", true),
            change(5, "q", true),
            change(6, "q", true),
            change(9, "q", false),
            change(12, "q", true),
            QuotaChange { is_queue: false, ..change(13, "cohort", true) },
        ];
        let stop = |queue: &str, from, to| Stop { queue: queue.into(), from, to };
        assert_eq!(stops(&changes), [stop("held", 0, None), stop("q", 5, Some(9)), stop("q", 12, None)]);
    }

    #[test]
    fn a_report_has_the_stops_in_seconds() {
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        assert!(Report::new(&record, 60_000, 0, Vec::new()).stops.is_empty());
        record.quotas = vec![change(0, "q", true), change(1500, "q", false), change(2000, "q", true)];
        let report = Report::new(&record, 60_000, 0, Vec::new());
        let stops = serde_json::to_value(&report.stops).unwrap();
        assert_eq!(stops, json!([{"queue": "q", "from": 0.0, "to": 1.5}, {"queue": "q", "from": 2.0}]));
    }
}
