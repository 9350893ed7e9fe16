//! When the waiting Workloads of a queue will start, and which others they will preempt: the start of each in several futures.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use sluice_core::WorkloadKey;

use crate::explain::Patience;
pub use crate::futures::why_not;
use crate::futures::{Futures, later_than, not_before};
use crate::record::{Hold, Record, TimelineEvent};
use crate::simulation::{SimError, Simulation};

/// The expected starts of waiting Workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Futures that were simulated, each to its end.
    pub futures: u64,
    /// Whether all futures were simulated; false if time was over.
    pub complete: bool,
    /// Run times that the estimates rest on: how many jobs say theirs.
    pub basis: String,
    /// The start of each requested Workload that exists.
    pub starts: BTreeMap<WorkloadKey, Start>,
}

/// When a Workload starts. Seconds from now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// In one of ten futures it starts earlier.
    pub p10: Option<i64>,
    /// In half of them.
    pub p50: Option<i64>,
    /// In nine of ten.
    pub p90: Option<i64>,
    /// In how many of them it starts.
    pub starts: u64,
    /// The jobs, `namespace/name`, that it preempts in the first future.
    pub preempts: Vec<String>,
}

/// The starts of the requested Workloads in one future.
struct FutureStarts {
    /// By the job's place in the record: its start in seconds from now.
    starts: BTreeMap<usize, i64>,
    /// Which job preempts which, by their names.
    preempted: Vec<(String, String)>,
}

/// Simulates futures of a world from its present time until all of these Workloads have started, up to a maximum time ahead. The estimates equal
/// those of an explanation: both use the same futures.
///
/// # Errors
/// If the simulation breaks off.
pub fn expected(
    present: &Simulation,
    wanted: &[WorkloadKey],
    horizon: SignedDuration,
    patience: Patience<'_>,
) -> Result<Expected, SimError> {
    let places = places(present, wanted);
    let waiting: Vec<usize> = places.keys().copied().filter(|at| !runs(present.record(), *at)).collect();
    let all = Futures::of(present);
    let mut starts: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
    let mut preempted = Vec::new();
    let mut futures = 0;
    for number in 0..all.count {
        let outcome = match outcome(all.begin(number), &waiting, horizon, patience) {
            Ok(Some(outcome)) => outcome,
            Ok(None) | Err(SimError::Cancelled { .. }) => break,
            Err(error) => return Err(error),
        };
        for (job, start) in outcome.starts {
            starts.entry(job).or_default().push(start);
        }
        if number == 0 {
            preempted = outcome.preempted;
        }
        futures += 1;
    }
    let start = |(at, key): (usize, WorkloadKey)| {
        let name = present.record().jobs[at].key();
        let own = preempted.iter().filter(|(by, _)| *by == name).map(|(_, victim)| victim.clone());
        let mut found = starts.get(&at).cloned().unwrap_or_default();
        if runs(present.record(), at) {
            // Nothing known prevents its start.
            found = vec![0; usize::try_from(futures).unwrap_or(0)];
        }
        found.sort_unstable();
        let start = Start {
            p10: not_before(&found, futures, 10),
            p50: later_than(&found, futures, 50),
            p90: later_than(&found, futures, 90),
            starts: u64::try_from(found.len()).unwrap_or(0),
            preempts: own.collect(),
        };
        (key, start)
    };
    let starts = places.into_iter().map(start).collect();
    Ok(Expected { futures, complete: futures == all.count, basis: all.basis, starts })
}

/// The Workloads among these that start at once in a virtual cluster: nothing known there prevents it.
pub fn at_once(present: &Simulation, wanted: &[WorkloadKey]) -> BTreeSet<WorkloadKey> {
    let places = places(present, wanted).into_iter();
    places.filter(|(at, _)| runs(present.record(), *at)).map(|(_, key)| key).collect()
}

/// The existing Workloads, by the index of each one's job in the record.
fn places(present: &Simulation, wanted: &[WorkloadKey]) -> BTreeMap<usize, WorkloadKey> {
    let wanted: BTreeSet<&WorkloadKey> = wanted.iter().collect();
    let mut places = BTreeMap::new();
    for (reference, workload) in present.engine().workloads() {
        let key = WorkloadKey { namespace: reference.namespace.clone(), name: reference.name.clone() };
        if wanted.contains(&key)
            && let Some(at) = present.record().job_of(&reference, workload)
        {
            places.insert(at, key);
        }
    }
    places
}

fn runs(record: &Record, at: usize) -> bool {
    // A Workload that is being stopped holds its quota until its pods are gone.
    let stays = |hold: &Hold| hold.to.is_none() && hold.admitted.is_some() && hold.evicted.is_none();
    record.jobs[at].holds.last().is_some_and(stays)
}

/// Nothing when time is over.
fn outcome(
    mut future: Simulation,
    waiting: &[usize],
    horizon: SignedDuration,
    patience: Patience<'_>,
) -> Result<Option<FutureStarts>, SimError> {
    let now = future.now();
    let (begin, end) = (future.record().millis(now), now.checked_add(horizon).unwrap_or(now));
    let last = future.record().millis(end);
    let mut outcome = FutureStarts { starts: BTreeMap::new(), preempted: Vec::new() };
    let mut left: BTreeSet<usize> = waiting.iter().copied().collect();
    let mut seen = future.record().entries.len();
    future.settle()?;
    loop {
        let record = future.record();
        for entry in record.entries[seen..].iter().filter(|entry| entry.at <= last) {
            let admitted = entry.job.filter(|_| matches!(entry.what, TimelineEvent::Admitted { .. }));
            if let Some(job) = admitted.filter(|job| left.remove(job)) {
                outcome.starts.insert(job, (entry.at - begin) / 1000);
            }
        }
        seen = record.entries.len();
        if left.is_empty() || future.now() > end {
            break;
        }
        if patience.is_over() {
            return Ok(None);
        }
        if !future.step()? {
            break;
        }
    }
    let record = future.record();
    // This includes the jobs that are being stopped now for a requested Workload.
    for entry in record.entries.iter().filter(|entry| entry.at <= last) {
        if let (TimelineEvent::Preempted { by: Some(by), .. }, Some(job)) = (&entry.what, entry.job) {
            outcome.preempted.push((by.to_string(), record.jobs[job].key()));
        }
    }
    Ok(Some(outcome))
}
