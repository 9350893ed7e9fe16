//! Two futures side by side: without and with a change. Times in seconds.

mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use sluice_engine::Kind;

use crate::manifest::Manifest;
use crate::millis::seconds;
use crate::object::{keep_suspension, reference};
use crate::record::{JobRecord, Record};
use crate::report::{Report, Totals, worked};

/// The effects of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Without the change.
    pub before: Totals,
    /// With it.
    pub after: Totals,
    /// Jobs that start at another time, or only in one of the two futures; the largest gain first.
    pub moved: Vec<Moved>,
    /// Jobs that are preempted only with the change.
    pub newly_preempted: Vec<String>,
    /// Jobs that are preempted only without it.
    pub no_longer_preempted: Vec<String>,
    /// Jobs that start without the change, and do not with it.
    pub starved: Vec<String>,
    /// Jobs that exist only with the change, and when they start; `None` if they do not start.
    pub new_jobs: Vec<Started>,
    /// Figures per queue that differ.
    pub queues: Vec<QueueDifference>,
    /// Utilisation that differs, per flavor and resource.
    pub flavors: Vec<FlavorDifference>,
}

/// A job that starts at another time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moved {
    /// `namespace/name`.
    pub job: String,
    /// Its start without the change, in seconds from the beginning.
    pub before: Option<f64>,
    /// Its start with the change.
    pub after: Option<f64>,
}

/// A new job's start.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// `namespace/name`.
    pub job: String,
    /// Its start, in seconds from the beginning.
    pub starts: Option<f64>,
}

/// A queue's figures without and with the change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueDifference {
    /// Its name.
    pub name: Arc<str>,
    /// The median waiting time before and after, with waiting jobs counted up to the end.
    pub wait_p50: (f64, f64),
    /// Nine of ten waited less: before, after.
    pub wait_p90: (f64, f64),
    /// Jobs that wait at the end: before, after.
    pub waiting: (usize, usize),
    /// Evictions in favour of others: before, after.
    pub preempted: (u32, u32),
}

/// A flavor's utilisation without and with the change, in percent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorDifference {
    /// The flavor.
    pub flavor: Arc<str>,
    /// The resource.
    pub resource: Arc<str>,
    /// Without.
    pub before: Option<f64>,
    /// With.
    pub after: Option<f64>,
}

/// Objects with changes on top: a changed object replaces the one of the same kind and name.
pub fn overlay(mut objects: Vec<Manifest>, changes: Vec<Manifest>) -> Vec<Manifest> {
    for change in changes {
        let name = |m: &Manifest| {
            let mut named = reference(m.kind, &m.object);
            if m.kind.namespaced() && named.namespace.is_empty() {
                named.namespace = "default".into();
            }
            named
        };
        let wanted = name(&change);
        match objects.iter_mut().find(|m| name(m) == wanted) {
            Some(known) => {
                // The document may be of the other version; it replaces all but where the object came from, and what controllers say of it.
                let mut object = change.object;
                if let Kind::Job(kind) = known.kind {
                    keep_suspension(kind, &known.object, &mut object);
                }
                if object["status"].is_null() && !known.object["status"].is_null() {
                    object["status"] = known.object["status"].clone();
                }
                for key in ["uid", "creationTimestamp"] {
                    let old = known.object["metadata"][key].clone();
                    if !old.is_null() {
                        object["metadata"][key] = old;
                    }
                }
                known.object = object;
            }
            None => objects.push(change),
        }
    }
    objects
}

/// The newest job of each name.
fn by_name(record: &Record) -> BTreeMap<String, &JobRecord> {
    record.jobs.iter().filter(|j| j.managed).map(|job| (job.key(), job)).collect()
}

impl Difference {
    /// Compares two records; `end`s in milliseconds from the beginning.
    pub fn new(before: &Record, before_end: i64, after: &Record, after_end: i64, seed: u64) -> Self {
        // Utilisation is comparable only over the same time.
        let end = before_end.max(after_end);
        let worked = worked(before, before_end).max(worked(after, after_end));
        let first = Report::over(before, end, worked, seed, Vec::new());
        let second = Report::over(after, end, worked, seed, Vec::new());
        let (old, new) = (by_name(before), by_name(after));
        let in_both = || old.iter().filter_map(|(key, job)| Some((key, *job, *new.get(key)?)));
        let mut moved: Vec<_> = in_both()
            .filter(|(_, a, b)| a.admitted != b.admitted)
            .map(|(key, a, b)| {
                let gain = a.admitted.unwrap_or(i64::MAX / 2) - b.admitted.unwrap_or(i64::MAX / 2);
                let (before, after) = (a.admitted.map(seconds), b.admitted.map(seconds));
                (-gain, Moved { job: key.clone(), before, after })
            })
            .collect();
        moved.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.job.cmp(&b.1.job)));
        let names = |of: &dyn Fn(&JobRecord, &JobRecord) -> bool| -> Vec<String> {
            in_both().filter(|(_, a, b)| of(a, b)).map(|(key, ..)| key.clone()).collect()
        };
        let fresh = new.iter().filter(|(key, _)| !old.contains_key(*key));
        Self {
            moved: moved.into_iter().map(|(_, shift)| shift).collect(),
            newly_preempted: names(&|a, b| a.preempted == 0 && b.preempted > 0),
            no_longer_preempted: names(&|a, b| a.preempted > 0 && b.preempted == 0),
            starved: names(&|a, b| a.admitted.is_some() && b.admitted.is_none()),
            new_jobs: fresh
                .map(|(key, job)| Started { job: key.clone(), starts: job.admitted.map(seconds) })
                .collect(),
            queues: queues(&first, &second),
            flavors: flavors(&first, &second),
            before: first.totals,
            after: second.totals,
        }
    }
}

fn queues(before: &Report, after: &Report) -> Vec<QueueDifference> {
    let pairs =
        before.queues.iter().filter_map(|q| Some((q, after.queues.iter().find(|o| o.name == q.name)?)));
    pairs
        .map(|(a, b)| QueueDifference {
            name: Arc::clone(&a.name),
            wait_p50: (a.wait.p50, b.wait.p50),
            wait_p90: (a.wait.p90, b.wait.p90),
            waiting: (a.waiting, b.waiting),
            preempted: (a.preempted, b.preempted),
        })
        .filter(|q| {
            let differs = |(a, b): (f64, f64)| a.total_cmp(&b).is_ne();
            differs(q.wait_p50)
                || differs(q.wait_p90)
                || q.waiting.0 != q.waiting.1
                || q.preempted.0 != q.preempted.1
        })
        .collect()
}

fn flavors(before: &Report, after: &Report) -> Vec<FlavorDifference> {
    type Used = (Option<f64>, Option<f64>);
    let mut both: BTreeMap<(Arc<str>, Arc<str>), Used> = BTreeMap::new();
    for f in &before.flavors {
        both.entry((Arc::clone(&f.flavor), Arc::clone(&f.resource))).or_default().0 = f.utilisation;
    }
    for f in &after.flavors {
        both.entry((Arc::clone(&f.flavor), Arc::clone(&f.resource))).or_default().1 = f.utilisation;
    }
    both.into_iter()
        .filter(|(_, (before, after))| before != after)
        .map(|((flavor, resource), (before, after))| FlavorDifference { flavor, resource, before, after })
        .collect()
}
