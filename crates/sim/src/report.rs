//! The result of a simulation: figures per queue and flavor, and the timeline. Times in seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use sluice_quantity::CPU;

use crate::manifest::Skipped;
use crate::millis::seconds;
use crate::places::{Places, places};
use crate::record::{JobRecord, Record, TimelineEntry, TimelineEvent};
use crate::series::{Point, SlotKey, lasting, steps};
use crate::stops::{self, StopReport};

/// The whole outcome.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The beginning.
    pub start: String,
    /// How long it lasted.
    pub seconds: f64,
    /// The totals.
    pub totals: Totals,
    /// Each ClusterQueue.
    pub queues: Vec<QueueReport>,
    /// Each flavor and resource, over all queues.
    pub flavors: Vec<FlavorReport>,
    /// Documents that were left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// The events, in order.
    pub timeline: Vec<Line>,
    /// When ClusterQueues and LocalQueues were stopped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stops: Vec<StopReport>,
    /// Where the pods of jobs were, for each topology.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Places>,
}

/// Counts over everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Jobs that were created.
    pub submitted: usize,
    /// Jobs that were admitted at least once.
    pub admitted: usize,
    /// Jobs that ended well.
    pub finished: usize,
    /// Jobs that ended badly.
    pub failed: usize,
    /// Jobs that hold quota at the end: they run, or wait for their admission checks.
    pub running: usize,
    /// Jobs that wait at the end.
    pub waiting: usize,
    /// Jobs without a queue.
    pub unmanaged: usize,
    /// Objects that were refused.
    pub refused: usize,
    /// Evictions in favour of others.
    pub preemptions: u32,
}

/// How long jobs waited for their first admission, in seconds; jobs that were not admitted, up to the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    /// Half waited less.
    pub p50: f64,
    /// Nine of ten waited less.
    pub p90: f64,
    /// The longest.
    pub max: f64,
}

/// One ClusterQueue.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// Its name.
    pub name: Arc<str>,
    /// Its Cohort at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort: Option<Arc<str>>,
    /// Jobs submitted to it.
    pub jobs: usize,
    /// Jobs that were admitted.
    pub admitted: usize,
    /// Jobs that ended well.
    pub finished: usize,
    /// Jobs that hold quota at the end.
    pub running: usize,
    /// Jobs that wait at the end.
    pub waiting: usize,
    /// How long they waited.
    pub wait: Waits,
    /// The longest wait that had not ended at the end, in seconds: since the submission, or since the last eviction.
    pub longest_still_waiting: f64,
    /// How often its jobs were evicted in favour of others.
    pub preempted: u32,
    /// How often others were evicted in favour of its jobs.
    pub preempts: u32,
    /// Run time that was lost by evictions and failures, in seconds.
    pub work_lost: f64,
    /// Its usage.
    pub usage: Vec<SlotReport>,
}

/// A queue's usage of one flavor and resource.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotReport {
    /// The flavor.
    pub flavor: Arc<str>,
    /// The resource.
    pub resource: Arc<str>,
    /// Its nominal quota at the end.
    pub nominal: String,
    /// Use over nominal quota, in percent up to the end of the last work; absent without quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Borrowed quota, in units × hours.
    pub borrowed_hours: f64,
    /// The most that it borrowed at once.
    pub most_borrowed: String,
}

/// A flavor and resource over all queues.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorReport {
    /// The flavor.
    pub flavor: Arc<str>,
    /// The resource.
    pub resource: Arc<str>,
    /// All nominal quota at the end.
    pub nominal: String,
    /// Use over nominal quota, in percent up to the end of the last work; absent without quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Borrowed quota, in units × hours; the same amount was lent.
    pub borrowed_hours: f64,
    /// The most that was used at once.
    pub most_used: String,
}

/// One line of the timeline.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Seconds from the beginning.
    pub at: f64,
    /// The job, `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The event.
    #[serde(flatten)]
    pub what: TimelineEvent,
    /// For a submitted job: its priority, if it has a Workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// For a submitted job: its ClusterQueue, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<Arc<str>>,
}

/// A part of a whole in percent, to one decimal.
#[expect(clippy::cast_precision_loss, reason = "a number of at most a few digits")]
fn percent(part: i128, whole: i128) -> Option<f64> {
    if whole <= 0 {
        return None;
    }
    i64::try_from((part * 2000 / whole + 1) / 2).ok().map(|permille| permille as f64 / 10.0)
}

/// Amount × milliseconds as units × hours, to two decimals. Millicores count as cores.
#[expect(clippy::cast_precision_loss, reason = "rounded to hundredths")]
fn hours(resource: &str, amount_millis: i128) -> f64 {
    let unit = if resource == CPU { 1000 } else { 1 };
    let hundredths = amount_millis * 100 / (3_600_000 * unit);
    i64::try_from(hundredths).map_or(f64::MAX, |h| h as f64 / 100.0)
}

/// The value below which `part` of a hundred lie; the values are sorted.
fn quantile(sorted: &[i64], part: usize) -> i64 {
    let at = (sorted.len() * part).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

/// Integrals over one slot.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    used: i128,
    nominal: i128,
    borrowed: i128,
    most_borrowed: i64,
    last_nominal: i64,
}

fn sums(points: &[Point], end: i64) -> Sums {
    let mut sums = Sums::default();
    for (point, millis) in lasting(points, end) {
        let millis_wide = i128::from(millis);
        sums.used += i128::from(point.used) * millis_wide;
        sums.nominal += i128::from(point.nominal) * millis_wide;
        sums.borrowed += i128::from(point.borrowed()) * millis_wide;
        if millis > 0 {
            sums.most_borrowed = sums.most_borrowed.max(point.borrowed());
        }
        sums.last_nominal = point.nominal;
    }
    sums
}

impl Report {
    /// The report of a record. `end` in milliseconds from the beginning.
    pub fn new(record: &Record, end: i64, seed: u64, skipped: Vec<Skipped>) -> Self {
        let figures = Self::over(record, end, worked(record, end), seed, skipped);
        Self { places: places(record, end, usize::MAX), ..figures }
    }

    /// The same with utilisation over the time up to `worked`, in milliseconds from the beginning, and without places.
    pub(crate) fn over(record: &Record, end: i64, worked: i64, seed: u64, skipped: Vec<Skipped>) -> Self {
        let slots = steps(record, end);
        Self {
            seed,
            start: record.start.to_string(),
            seconds: seconds(end),
            totals: totals(record),
            queues: queues(record, &slots, end, worked),
            flavors: flavors(record, &slots, worked),
            skipped,
            timeline: record.entries.iter().map(|entry| record.line(entry)).collect(),
            stops: stops::reported(record),
            places: Vec::new(),
        }
    }
}

impl Record {
    /// An entry as a line of the timeline.
    pub fn line(&self, entry: &TimelineEntry) -> Line {
        let job = entry.job.map(|job| &self.jobs[job]);
        let new = job.filter(|job| job.managed && entry.what == TimelineEvent::Submitted);
        Line {
            at: seconds(entry.at),
            job: job.map(JobRecord::key),
            what: entry.what.clone(),
            priority: new.map(|job| job.priority),
            cluster_queue: new.and_then(|job| job.cluster_queue.clone()),
        }
    }
}

/// When the last job ended, in milliseconds. The time after it does not count for utilisation: no job is left to run. If a job still runs or
/// none ever ran: the end.
pub(crate) fn worked(record: &Record, end: i64) -> i64 {
    let ends = record.jobs.iter().flat_map(|job| &job.holds).map(|hold| hold.to.unwrap_or(end));
    ends.max().unwrap_or(end).clamp(0, end.max(0))
}

fn waits(job: &JobRecord) -> bool {
    let is_there = job.finished.is_none() && job.deleted.is_none();
    job.managed && is_there && !job.deactivated && job.holds.last().is_none_or(|h| h.to.is_some())
}

fn runs(job: &JobRecord) -> bool {
    job.managed && job.finished.is_none() && job.holds.last().is_some_and(|h| h.to.is_none())
}

/// How long a job waited for its first admission, up to the end if it still waits; nothing if it ended without one.
fn waited(job: &JobRecord, end: i64) -> Option<i64> {
    Some(job.admitted.or(waits(job).then_some(end))? - job.submitted)
}

/// How long a job that waits at the end has waited since it last held quota.
fn still_waits(job: &JobRecord, end: i64) -> Option<i64> {
    let since = job.holds.last().and_then(|hold| hold.to).unwrap_or(job.submitted);
    waits(job).then_some(end - since)
}

fn totals(record: &Record) -> Totals {
    let count = |of: &dyn Fn(&JobRecord) -> bool| record.jobs.iter().filter(|j| of(j)).count();
    Totals {
        submitted: record.jobs.len(),
        admitted: count(&|j| j.admitted.is_some()),
        finished: count(&|j| j.finished.is_some() && j.success),
        failed: count(&|j| j.finished.is_some() && !j.success),
        running: count(&runs),
        waiting: count(&waits),
        unmanaged: count(&|j| !j.managed),
        refused: record.entries.iter().filter(|e| matches!(e.what, TimelineEvent::Refused { .. })).count(),
        preemptions: record.jobs.iter().map(|j| j.preempted).sum(),
    }
}

fn queues(record: &Record, slots: &BTreeMap<SlotKey, Vec<Point>>, end: i64, worked: i64) -> Vec<QueueReport> {
    let mut cohorts: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    for change in record.quotas.iter().filter(|c| c.is_queue) {
        cohorts.insert(Arc::clone(&change.node), change.cohort.clone());
    }
    let mut jobs: BTreeMap<Arc<str>, Vec<&JobRecord>> = BTreeMap::new();
    for job in &record.jobs {
        if let Some(queue) = &job.cluster_queue {
            jobs.entry(Arc::clone(queue)).or_default().push(job);
        }
    }
    cohorts
        .into_iter()
        .map(|(name, cohort)| {
            let jobs = jobs.get(&name).map(Vec::as_slice).unwrap_or_default();
            queue(name, cohort, jobs, slots, (end, worked))
        })
        .collect()
}

fn queue(
    name: Arc<str>,
    cohort: Option<Arc<str>>,
    jobs: &[&JobRecord],
    slots: &BTreeMap<SlotKey, Vec<Point>>,
    (end, worked): (i64, i64),
) -> QueueReport {
    let mut waited: Vec<i64> = jobs.iter().filter_map(|job| self::waited(job, end)).collect();
    waited.sort_unstable();
    let still = jobs.iter().filter_map(|job| still_waits(job, end));
    let from = (Arc::clone(&name), Arc::from(""), Arc::from(""));
    let own = slots.range(from..).take_while(|((queue, ..), _)| *queue == name);
    let usage = own.map(|((_, flavor, resource), points)| slot(flavor, resource, points, worked)).collect();
    QueueReport {
        cohort,
        jobs: jobs.len(),
        admitted: jobs.iter().filter(|j| j.admitted.is_some()).count(),
        finished: jobs.iter().filter(|j| j.finished.is_some() && j.success).count(),
        running: jobs.iter().filter(|j| runs(j)).count(),
        waiting: jobs.iter().filter(|j| waits(j)).count(),
        wait: Waits {
            p50: seconds(quantile(&waited, 50)),
            p90: seconds(quantile(&waited, 90)),
            max: seconds(waited.last().copied().unwrap_or(0)),
        },
        longest_still_waiting: seconds(still.max().unwrap_or(0)),
        preempted: jobs.iter().map(|j| j.preempted).sum(),
        preempts: jobs.iter().map(|j| j.preempts).sum(),
        work_lost: seconds(jobs.iter().map(|j| j.lost).sum()),
        usage,
        name,
    }
}

fn slot(flavor: &Arc<str>, resource: &Arc<str>, points: &[Point], worked: i64) -> SlotReport {
    let sums = sums(points, worked);
    SlotReport {
        flavor: Arc::clone(flavor),
        resource: Arc::clone(resource),
        nominal: crate::show_amount(resource, sums.last_nominal),
        utilisation: percent(sums.used, sums.nominal),
        borrowed_hours: hours(resource, sums.borrowed),
        most_borrowed: crate::show_amount(resource, sums.most_borrowed),
    }
}

/// The sums of each flavor and resource, and its changes of usage by time.
type Flavors = BTreeMap<(Arc<str>, Arc<str>), (Sums, BTreeMap<i64, i64>)>;

fn flavors(record: &Record, slots: &BTreeMap<SlotKey, Vec<Point>>, worked: i64) -> Vec<FlavorReport> {
    let queues: std::collections::BTreeSet<_> =
        record.quotas.iter().filter(|c| c.is_queue).map(|c| &c.node).collect();
    let mut all = Flavors::new();
    for ((node, flavor, resource), points) in slots {
        let (total, moves) = all.entry((Arc::clone(flavor), Arc::clone(resource))).or_default();
        let own = sums(points, worked);
        total.used += own.used;
        total.nominal += own.nominal;
        total.last_nominal = total.last_nominal.saturating_add(own.last_nominal);
        if queues.contains(node) {
            total.borrowed += own.borrowed;
        }
        let mut before = 0;
        for point in points {
            *moves.entry(point.at).or_default() += point.used - before;
            before = point.used;
        }
    }
    let mut reports = Vec::new();
    for ((flavor, resource), (sums, moves)) in all {
        let mut used = 0;
        let most = moves.values().map(|delta| {
            used += delta;
            used
        });
        let most = most.max().unwrap_or(0);
        reports.push(FlavorReport {
            nominal: crate::show_amount(&resource, sums.last_nominal),
            utilisation: percent(sums.used, sums.nominal),
            borrowed_hours: hours(&resource, sums.borrowed),
            most_used: crate::show_amount(&resource, most),
            flavor,
            resource,
        });
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Hold, HoldEnd, Holding, QuotaChange};

    #[test]
    fn quantiles_are_values_that_occurred() {
        assert_eq!(quantile(&[], 50), 0);
        assert_eq!(quantile(&[1, 2, 3, 4], 50), 2);
        assert_eq!(quantile(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 90), 9);
    }

    /// A queue with four cores, each job of which holds all of them: from one time to another in seconds, or until the end.
    fn worked_by(holds: &[(i64, Option<i64>)]) -> Record {
        let cores: Arc<[Holding]> =
            Arc::from([Holding { flavor: "spot".into(), resource: CPU.into(), amount: 4000 }]);
        let mut record = Record::new(jiff::Timestamp::UNIX_EPOCH);
        record.quotas.push(QuotaChange {
            at: 0,
            node: "cq".into(),
            is_queue: true,
            cohort: None,
            nominal: cores.to_vec(),
            stopped: false,
            deleted: false,
        });
        for (from, to) in holds {
            let (from, to) = (from * 1000, to.map(|to| to * 1000));
            let end = to.map_or(HoldEnd::Open, |_| HoldEnd::Finished);
            let (queue, holdings) = ("cq".into(), Arc::clone(&cores));
            let hold = Hold { from, admitted: Some(from), evicted: None, to, end, queue, holdings };
            record.jobs.push(JobRecord {
                kind: sluice_engine::Kind::Workload,
                namespace: "a".into(),
                name: "w".into(),
                local_queue: "lq".into(),
                cluster_queue: Some("cq".into()),
                priority: 0,
                submitted: 0,
                admitted: Some(from),
                finished: to,
                success: true,
                deleted: None,
                managed: true,
                holds: vec![hold],
                preempted: 0,
                preempts: 0,
                lost: 0,
                deactivated: false,
                waits_for: None,
            });
        }
        record
    }

    #[test]
    fn time_after_the_last_work_does_not_make_quota_look_unused() {
        let used = |holds: &[(i64, Option<i64>)]| {
            let report = Report::new(&worked_by(holds), 1_000_000, 0, Vec::new());
            assert_eq!(report.flavors[0].utilisation, report.queues[0].usage[0].utilisation);
            (report.seconds.to_string(), report.flavors[0].utilisation.unwrap().to_string())
        };
        let of = |seconds: &str, percent: &str| (seconds.to_owned(), percent.to_owned());
        // No job is left in the last 900 seconds; gaps before count, and so does the time up to the end if a job still runs.
        assert_eq!(used(&[(0, Some(100))]), of("1000", "100"));
        assert_eq!(used(&[(0, Some(100)), (300, Some(400))]), of("1000", "50"));
        assert_eq!(used(&[(0, Some(100)), (900, None)]), of("1000", "20"));
        assert_eq!(used(&[]), of("1000", "0"));
    }

    #[test]
    fn figures_are_rounded_not_cut() {
        assert_eq!(percent(1, 3), Some(33.3));
        assert_eq!(percent(2, 3), Some(66.7));
        assert_eq!(percent(1, 0), None);
        assert_eq!(hours("cpu", 2500 * 3_600_000).to_string(), "2.5");
    }
}
