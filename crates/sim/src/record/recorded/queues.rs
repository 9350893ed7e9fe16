//! Queues by the lines of a journal: their quota, and when they were stopped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use sluice_api::journal::{LocalQueueLine, QuotaLine};
use sluice_api::v1beta2::StopPolicy;

use super::Reading;
use crate::record::{Holding, LocalStop, QuotaChange, show_amount};

/// The patch that sets a stop policy.
fn patch(policy: StopPolicy) -> String {
    json!({"spec": {"stopPolicy": policy}}).to_string()
}

impl Reading {
    /// A ClusterQueue as it was before the end, by a later line.
    pub(super) fn quota_before(&mut self, line: QuotaLine, until: Timestamp) {
        let known = self.record.quotas.iter().any(|change| *change.node == *line.cluster_queue);
        if let Some(nominal) = line.earlier(until).filter(|_| !known).cloned() {
            let at = self.begins(line.created);
            let stop_policy = line.stopped_earlier();
            self.quota(&QuotaLine { at, nominal, stop_policy, before: None, deleted: false, ..line });
        }
    }

    /// A ClusterQueue changed.
    pub(super) fn quota(&mut self, line: &QuotaLine) {
        let is_known = self.record.quotas.iter().any(|change| *change.node == *line.cluster_queue);
        if !is_known
            && let Some(before) = line.before.as_ref().filter(|before| !before.is_empty())
            && line.at > self.record.start
        {
            // The amount before its first change is in that entry.
            let at = self.begins(line.created);
            let (nominal, stop_policy) = (before.clone(), line.stopped_earlier());
            let earlier =
                QuotaLine { at, nominal, stop_policy, before: None, deleted: false, ..line.clone() };
            self.quota(&earlier);
        }
        let nominal = self.amounts(&line.nominal).to_vec();
        let record = &mut self.record;
        let node = record.text(&line.cluster_queue);
        let cohort = (!line.cohort.is_empty()).then(|| record.text(&line.cohort));
        let before = record.quotas.iter().rev().find(|change| change.node == node);
        let (stopped, deleted) = (line.stop_policy != StopPolicy::None, line.deleted);
        if before.is_some_and(|before| {
            let same = before.nominal == nominal && before.cohort == cohort && before.stopped == stopped;
            before.deleted == deleted && (same || deleted)
        }) {
            return;
        }
        // The first known spec of a queue also counts for the time before, since its creation.
        let made = line.created.map_or(0, |created| record.millis(created));
        let at = if before.is_some() { record.millis(line.at) } else { made.max(0) };
        let was = before.filter(|_| at > 0);
        // A later queue of this name has a quota of its own.
        let other_quota = was.is_some_and(|was| !was.deleted && was.nominal != nominal);
        // One that is created was not stopped before.
        let is_created = line.at > record.start && line.before.as_ref().is_some_and(BTreeMap::is_empty);
        let was_stopped = was.map(|was| was.stopped).or(is_created.then_some(false));
        let cohort = cohort.or_else(|| before.filter(|_| deleted)?.cohort.clone());
        let mut changes = Vec::new();
        if deleted && was.is_some() {
            changes.push(format!("delete ClusterQueue {node}"));
        }
        if !deleted && other_quota {
            let shown = |one: &Holding| {
                format!("{} {} of {}", show_amount(&one.resource, one.amount), one.resource, one.flavor)
            };
            let quota: Vec<String> = nominal.iter().map(shown).collect();
            changes.push(format!("patch ClusterQueue {node}: nominalQuota {}", quota.join(", ")));
        }
        if !deleted && was_stopped.is_some_and(|was| was != stopped) {
            changes.push(format!("patch ClusterQueue {node}: {}", patch(line.stop_policy)));
        }
        for change in changes {
            record.scenario(line.at, &change);
        }
        let at = at.max(0);
        record.quotas.push(QuotaChange { at, node, is_queue: true, cohort, nominal, stopped, deleted });
    }

    /// Whether a LocalQueue was stopped before the end, by a later line.
    pub(super) fn local_queue_before(&mut self, line: LocalQueueLine, until: Timestamp) {
        if self.was_stopped(&line).is_none() {
            let (at, stop_policy) = (self.begins(line.created), line.stopped_earlier(until));
            let before = LocalQueueLine { at, stop_policy, stop_policy_before: None, deleted: false, ..line };
            self.local_queue(&before);
        }
    }

    /// A LocalQueue was stopped, continues, or was deleted.
    pub(super) fn local_queue(&mut self, line: &LocalQueueLine) {
        let made = self.record.millis(self.begins(line.created));
        let mut was = self.was_stopped(line);
        if was.is_none() && line.at > self.record.start {
            was = line.stop_policy_before.map(|before| before != StopPolicy::None);
            if was == Some(true) {
                self.stop(line, made, true);
            }
        }
        let stopped = line.stop_policy != StopPolicy::None;
        if was.unwrap_or_default() == stopped {
            return;
        }
        // The first known policy of a queue also counts for the time before, since its creation.
        let at = if was.is_some() { self.record.millis(line.at).max(0) } else { made };
        if was.is_some() && at > 0 {
            let name = format!("LocalQueue {}/{}", line.namespace, line.local_queue);
            let what = if line.deleted {
                format!("delete {name}")
            } else {
                format!("patch {name}: {}", patch(line.stop_policy))
            };
            self.record.scenario(line.at, &what);
        }
        self.stop(line, at, stopped);
    }

    /// Whether the LocalQueue of a line is stopped by the lines so far, if one says it.
    fn was_stopped(&self, line: &LocalQueueLine) -> Option<bool> {
        let own = |of: &&LocalStop| {
            let name = of.queue.split_once('/');
            name == Some((line.namespace.as_str(), line.local_queue.as_str()))
        };
        self.record.local_stops.iter().rev().find(own).map(|last| last.stopped)
    }

    /// The LocalQueue of a line stops, or continues, so many milliseconds after the beginning.
    fn stop(&mut self, line: &LocalQueueLine, at: i64, stopped: bool) {
        let queue = self.record.text(&format!("{}/{}", line.namespace, line.local_queue));
        let cluster_queue = self.record.text(&line.cluster_queue);
        self.record.local_stops.push(LocalStop { at, queue, cluster_queue, stopped });
    }

    /// When the record of a queue begins: at its creation, or at the start of the period if that is later or the creation is not known.
    fn begins(&self, created: Option<Timestamp>) -> Timestamp {
        created.unwrap_or(self.record.start).max(self.record.start)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use sluice_api::journal::Line;

    use super::*;
    use crate::record::Recorded;
    use crate::stops::stops;

    const HOLD: &str = "Hold";
    const NONE: &str = "None";

    fn time(at: i64) -> Timestamp {
        Timestamp::from_second(at).unwrap()
    }

    /// A line, so many seconds after the beginning.
    fn line(at: i64, what: &Value) -> Line {
        let mut line = what.clone();
        line["at"] = json!(time(at).to_string());
        serde_json::from_value(line).unwrap()
    }

    /// What a LocalQueue is from then on, and what it was, if that is known.
    fn local(at: i64, policy: &str, before: Option<&str>) -> Line {
        let mut queue = json!({"namespace": "team", "localQueue": "main", "clusterQueue": "cq"});
        (queue["stopPolicy"], queue["stopPolicyBefore"]) = (json!(policy), json!(before));
        line(at, &queue)
    }

    /// The stops of the first thousand seconds, and the timeline.
    fn day(lines: Vec<Line>) -> (Vec<(i64, Option<i64>)>, Vec<String>) {
        let record = Recorded::new(lines, time(0), time(1000)).record;
        let stops = stops(&record);
        let stops = stops.into_iter().map(|stop| (stop.from / 1000, stop.to.map(|to| to / 1000)));
        let said = record.entries.iter().map(|entry| format!("{} {}", entry.at / 1000, entry.what.details()));
        (stops.collect(), said.collect())
    }

    fn said(at: i64, policy: &str) -> String {
        format!("{at} patch LocalQueue team/main: {{\"spec\":{{\"stopPolicy\":\"{policy}\"}}}}")
    }

    #[test]
    fn a_local_queue_is_stopped_as_long_as_the_journal_says() {
        // Another replica says the same.
        let both =
            |at, policy, before| [local(at, policy, Some(before)), local(at + 1, policy, Some(before))];
        let lines = [both(100, HOLD, NONE), both(150, "HoldAndDrain", HOLD), both(200, NONE, HOLD)];
        let expected = (vec![(100, Some(200))], vec![said(100, HOLD), said(200, NONE)]);
        assert_eq!(day(lines.concat()), expected);
        // The first line says what it was before, also if that line is later than the period.
        assert_eq!(day(vec![local(300, NONE, Some(HOLD))]), (vec![(0, Some(300))], vec![said(300, NONE)]));
        assert_eq!(day(vec![local(300, HOLD, None)]), (vec![(0, None)], vec![]));
        assert_eq!(day(vec![local(300, NONE, None)]), (vec![], vec![]));
        assert_eq!(day(vec![local(2000, NONE, Some(HOLD))]), (vec![(0, None)], vec![]));
        assert_eq!(day(vec![local(2000, HOLD, Some(NONE))]), (vec![], vec![]));
    }

    #[test]
    fn a_local_queue_is_stopped_from_its_creation_up_to_its_deletion_at_most() {
        let mut queue = json!({"namespace": "team", "localQueue": "main", "stopPolicy": HOLD});
        queue["created"] = json!(time(250).to_string());
        let made = line(300, &queue);
        (queue["stopPolicy"], queue["stopPolicyBefore"]) = (json!(NONE), json!(HOLD));
        queue["deleted"] = json!(true);
        let deleted = "600 delete LocalQueue team/main".to_owned();
        assert_eq!(day(vec![made, line(600, &queue)]), (vec![(250, Some(600))], vec![deleted.clone()]));
        assert_eq!(day(vec![line(600, &queue)]), (vec![(250, Some(600))], vec![deleted]));
        assert_eq!(day(vec![line(2000, &queue)]), (vec![(250, None)], vec![]));
    }

    #[test]
    fn a_cluster_queue_that_is_deleted_has_no_quota_and_is_not_stopped() {
        let cpu = |amount: &str| json!({"spot": {"cpu": amount}});
        let held = json!({"clusterQueue": "cq", "cohort": "all", "nominal": cpu("4"), "stopPolicy": HOLD});
        let deleted = json!({
            "clusterQueue": "cq", "nominal": {}, "before": cpu("4"), "stopPolicyBefore": HOLD, "deleted": true,
        });
        let another = json!({"clusterQueue": "cq", "cohort": "all", "nominal": cpu("8"), "before": {}});
        let all = vec![line(0, &held), line(300, &deleted), line(301, &deleted), line(500, &another)];
        let record = Recorded::new(all.clone(), time(0), time(1000)).record;
        let changes: Vec<_> =
            record.quotas.iter().map(|is| (is.at / 1000, is.nominal.len(), is.deleted)).collect();
        assert_eq!(changes, [(0, 1, false), (300, 0, true), (500, 1, false)]);
        assert!(record.quotas.iter().all(|change| change.cohort.as_deref() == Some("all")));
        assert_eq!(day(all), (vec![(0, Some(300))], vec!["300 delete ClusterQueue cq".to_owned()]));
        // The first line about it says what it was.
        let first = day(vec![line(300, &deleted)]);
        assert_eq!(first, (vec![(0, Some(300))], vec!["300 delete ClusterQueue cq".to_owned()]));
    }

    #[test]
    fn a_cluster_queue_that_is_created_stopped_is_in_the_timeline() {
        let cpu = json!({"spot": {"cpu": "4"}});
        let created = time(300).to_string();
        let held = json!({
            "clusterQueue": "cq", "nominal": cpu, "before": {}, "created": created, "stopPolicy": HOLD,
        });
        let stops = vec![(300, None)];
        let stopped = format!("300 patch ClusterQueue cq: {}", patch(StopPolicy::Hold));
        assert_eq!(day(vec![line(300, &held)]), (stops.clone(), vec![stopped.clone()]));
        // The same of one that is created after another of its name.
        let first = line(0, &json!({"clusterQueue": "cq", "nominal": cpu}));
        let deleted = json!({"clusterQueue": "cq", "nominal": {}, "before": cpu, "deleted": true});
        let timeline = vec!["200 delete ClusterQueue cq".to_owned(), stopped];
        assert_eq!(day(vec![first, line(200, &deleted), line(300, &held)]), (stops, timeline));
    }
}
