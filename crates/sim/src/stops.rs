//! When ClusterQueues and LocalQueues were stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::millis::seconds;
use crate::record::Record;

/// A time in which a ClusterQueue, or one of its LocalQueues, is stopped. Times in milliseconds from the beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stop {
    /// The ClusterQueue.
    pub queue: Arc<str>,
    /// The LocalQueue, `namespace/name`, if it is stopped, and not its ClusterQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_queue: Option<Arc<str>>,
    /// When it begins.
    pub from: i64,
    /// When it ends; absent if the queue is stopped at the end.
    pub to: Option<i64>,
}

/// The same in a report. Times in seconds from the beginning.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopReport {
    /// The ClusterQueue.
    pub queue: Arc<str>,
    /// The LocalQueue, `namespace/name`, if it is stopped, and not its ClusterQueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_queue: Option<Arc<str>>,
    /// When it begins.
    pub from: f64,
    /// When it ends; absent if the queue is stopped at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
}

/// When queues are stopped, in the order in which that begins. One that is stopped when it is first known is stopped since then.
pub fn stops(record: &Record) -> Vec<Stop> {
    let mut stops: Vec<Stop> = Vec::new();
    // By the queue that is stopped: names of ClusterQueues have no slash.
    let mut open: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    let queues = record.quotas.iter().filter(|change| change.is_queue);
    let queues = queues.map(|change| (change.at, change.stopped, &change.node, None));
    let local = record.local_stops.iter();
    let local = local.map(|change| (change.at, change.stopped, &change.cluster_queue, Some(&change.queue)));
    for (at, stopped, queue, local) in queues.chain(local) {
        let key = local.unwrap_or(queue);
        match open.get(key).copied() {
            None if stopped => {
                open.insert(key, stops.len());
                let (queue, local_queue) = (Arc::clone(queue), local.map(Arc::clone));
                stops.push(Stop { queue, local_queue, from: at, to: None });
            }
            Some(number) if !stopped => {
                open.remove(key);
                stops[number].to = Some(at);
            }
            _ => {}
        }
    }
    stops.sort_by(|a, b| (a.from, &a.queue, &a.local_queue).cmp(&(b.from, &b.queue, &b.local_queue)));
    stops
}

/// The same for a report.
pub(crate) fn reported(record: &Record) -> Vec<StopReport> {
    let report = |Stop { queue, local_queue, from, to }| StopReport {
        queue,
        local_queue,
        from: seconds(from),
        to: to.map(seconds),
    };
    stops(record).into_iter().map(report).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluice_engine::{Kind, ObjectRef};

    use super::*;
    use crate::{QuotaChange, Report};

    fn change(at: i64, node: &str, stopped: bool) -> QuotaChange {
        let (node, nominal) = (node.into(), Vec::new());
        QuotaChange { at, node, is_queue: true, cohort: None, nominal, stopped, deleted: false }
    }

    fn stop(queue: &str, from: i64, to: Option<i64>) -> Stop {
        Stop { queue: queue.into(), local_queue: None, from, to }
    }

    #[test]
    fn a_queue_is_stopped_from_its_first_stop_on_or_from_the_beginning() {
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        record.quotas = vec![
            change(0, "q", false),
            change(0, "held", true),
            change(5, "q", true),
            change(6, "q", true),
            change(9, "q", false),
            change(12, "q", true),
            QuotaChange { is_queue: false, ..change(13, "cohort", true) },
        ];
        assert_eq!(stops(&record), [stop("held", 0, None), stop("q", 5, Some(9)), stop("q", 12, None)]);
    }

    #[test]
    fn a_local_queue_is_stopped_beside_its_cluster_queue() {
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        record.quotas = vec![change(0, "q", false), change(3000, "q", true)];
        for (second, namespace, policy) in [
            (0, "a", json!("Hold")),
            (0, "b", Value::Null),
            (2, "b", json!("HoldAndDrain")),
            (4, "a", json!("HoldAndDrain")),
            (5, "a", json!("None")),
        ] {
            let queue = json!({"spec": {"clusterQueue": "q", "stopPolicy": policy}});
            let now = jiff::Timestamp::from_second(second).unwrap();
            record.configured(now, &ObjectRef::namespaced(Kind::LocalQueue, namespace, "main"), &queue);
        }
        let local = |name: &str, stop: Stop| Stop { local_queue: Some(name.into()), ..stop };
        let all = [
            local("a/main", stop("q", 0, Some(5000))),
            local("b/main", stop("q", 2000, None)),
            stop("q", 3000, None),
        ];
        assert_eq!(stops(&record), all);
        record.cut(2500);
        assert_eq!(stops(&record), [local("a/main", stop("q", 0, None)), all[1].clone()]);
    }

    #[test]
    fn what_is_deleted_is_not_stopped_any_more() {
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        let at = |second| jiff::Timestamp::from_second(second).unwrap();
        let stopped = json!({"spec": {"clusterQueue": "q", "stopPolicy": "Hold"}});
        let local = ObjectRef::namespaced(Kind::LocalQueue, "a", "main");
        let queue = ObjectRef::cluster(Kind::ClusterQueue, "q");
        record.configured(at(0), &queue, &stopped);
        record.configured(at(0), &local, &stopped);
        record.gone(at(2), &local, "");
        record.gone(at(3), &queue, "");
        // Others of these names.
        record.configured(at(5), &queue, &json!({"spec": {}}));
        record.configured(at(6), &local, &stopped);
        let local = |stop: Stop| Stop { local_queue: Some("a/main".into()), ..stop };
        let all = [stop("q", 0, Some(3000)), local(stop("q", 0, Some(2000))), local(stop("q", 6000, None))];
        assert_eq!(stops(&record), all);
    }

    #[test]
    fn a_report_has_the_stops_in_seconds() {
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        assert!(Report::new(&record, 60_000, 0, Vec::new()).stops.is_empty());
        record.quotas = vec![change(0, "q", true), change(1500, "q", false), change(2000, "q", true)];
        let queue = json!({"spec": {"clusterQueue": "q", "stopPolicy": "Hold"}});
        let of = ObjectRef::namespaced(Kind::LocalQueue, "a", "main");
        record.configured(record.start, &of, &queue);
        let report = Report::new(&record, 60_000, 0, Vec::new());
        let stops = serde_json::to_value(&report.stops).unwrap();
        let expected = json!([
            {"queue": "q", "from": 0.0, "to": 1.5},
            {"queue": "q", "localQueue": "a/main", "from": 0.0},
            {"queue": "q", "from": 2.0},
        ]);
        assert_eq!(stops, expected);
    }
}
