//! When the Workloads that wait in a queue are expected to start: several futures of the part of the cluster that shares quota with it.
//!
//! The result is kept until something changes, and a moment longer: many viewers of one queue cost one simulation, also if they ask at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_engine::{Name, WorkloadKey};
use sluice_sim::explain::{AsRead, Patience};
use sluice_sim::live::Extent;
use sluice_sim::starts::{Expected, Start, at_once, expected, why_not};
use sluice_sim::{Cancel, Manifests, Simulation};

use super::{Pace, SHARED, STOPS, Stops, Tomorrow, check_size, present, unplayable, world};
use crate::dashboard::rows::State;
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::source::Begin;
use crate::dashboard::viewer::Viewer;
use crate::visibility::status::Refusal;

/// The number of Workloads of a queue, from its head, for which a start is estimated.
pub const FIRST: usize = 100;
/// How far ahead.
const HORIZON: SignedDuration = SignedDuration::from_hours(72);
/// All futures together.
const PLAYING: Duration = Duration::from_secs(20);
/// How long a result is used although something has changed since; and how long if nothing has.
const FRESH: Duration = Duration::from_secs(30);
const GOOD: Duration = Duration::from_mins(5);
/// What is added to the basis where the manager's configuration is not known.
const ASSUMED: &str = "; with the default configuration, as the manager's is not known";
/// Answers that are kept.
const MOST_KEPT: usize = 64;

/// The result for a queue, or for one Workload.
#[derive(Debug)]
pub struct Known {
    /// When.
    at: Timestamp,
    expected: Expected,
    /// Why there is no estimate.
    why_not: Option<String>,
    /// Why Workloads have no expected start.
    barred: BTreeMap<WorkloadKey, String>,
    /// How many wait in the queue.
    waiting: usize,
}

impl Known {
    /// A result without expected starts.
    fn blank(at: Timestamp, waiting: usize) -> Self {
        Self { at, expected: Expected::default(), why_not: None, barred: BTreeMap::new(), waiting }
    }
}

/// A cached result.
#[derive(Debug)]
struct Kept {
    made: Instant,
    revision: u64,
    known: Arc<Known>,
}

/// A queue, and the Workload if only one is requested.
type Asked = (Name, Option<WorkloadKey>);

/// Recent results.
#[derive(Debug, Default)]
pub struct Cache(Mutex<BTreeMap<Asked, Kept>>);

impl Cache {
    fn get(&self, asked: &Asked, revision: u64) -> Option<Arc<Known>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let good = |kept: &&Kept| kept.made.elapsed() < if kept.revision == revision { GOOD } else { FRESH };
        kept.get(asked).filter(good).map(|kept| Arc::clone(&kept.known))
    }

    fn put(&self, asked: Asked, revision: u64, known: &Arc<Known>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, kept| kept.made.elapsed() < GOOD);
        if all.len() >= MOST_KEPT
            && let Some(oldest) = all.iter().min_by_key(|(_, kept)| kept.made).map(|(asked, _)| asked.clone())
        {
            all.remove(&oldest);
        }
        all.insert(asked, Kept { made: Instant::now(), revision, known: Arc::clone(known) });
    }
}

impl Tomorrow {
    /// The starts of the first Workloads of a queue in this order, or of one of them, as far as the viewer may know them.
    ///
    /// # Errors
    ///
    /// If the viewer has a simulation already or has requested too many; if more than 25,000 Workloads share quota with the queue, or they cannot be
    /// read or simulated; or if there is no turn within 20 s, too little memory, or no end within 20 s.
    pub async fn starts(
        &self,
        viewer: &Viewer,
        snapshot: &Snapshot,
        (queue, one): Asked,
        order: Option<Vec<WorkloadKey>>,
    ) -> Result<Value, Refusal> {
        let asked = (Name::clone(&queue), one);
        if let Some(known) = self.starts.get(&asked, snapshot.revision) {
            return Ok(shown(&known, &queue, viewer));
        }
        let known_here = waiting(snapshot, &queue);
        let count = known_here.len().max(order.as_ref().map_or(0, Vec::len));
        let order = order.unwrap_or(known_here);
        let wanted: Vec<WorkloadKey> = match &asked.1 {
            Some(one) => vec![one.clone()],
            None => order.into_iter().take(FIRST).collect(),
        };
        let Some((namespace, local_queue)) = entrance(snapshot, &queue).filter(|_| !wanted.is_empty()) else {
            return Ok(shown(&Known::blank(Timestamp::now(), 0), &queue, viewer));
        };
        let _turn = self.users.take(&viewer.user)?;
        check_size(beside(snapshot, &queue), self.most)?;
        let extent = Extent::Around { namespace: &namespace, local_queue: &local_queue, room: false };
        let name = Name::clone(&queue);
        let stops = |one| Stops { one, ..STOPS };
        let pace = Pace { alone: stops(PLAYING), shared: SHARED, waiting: self.waiting.clone() };
        let turn = self.turn().await?;
        // Another viewer may have asked the same, and had the turn before.
        if let Some(known) = self.starts.get(&asked, snapshot.revision) {
            return Ok(shown(&known, &queue, viewer));
        }
        let work = move |begin, cancel| found((begin, cancel, pace), &name, &wanted, count);
        let known = Arc::new(self.play(&turn, extent, PLAYING, work).await?);
        self.starts.put(asked, snapshot.revision, &known);
        // Only now, so that the next request with the same question finds the result.
        drop(turn);
        Ok(shown(&known, &queue, viewer))
    }
}

/// The Workloads that wait in a queue, by priority and age, where its order is not known.
fn waiting(snapshot: &Snapshot, queue: &str) -> Vec<WorkloadKey> {
    let members = snapshot.sums().get(queue).map(|sums| &sums.members[..]).unwrap_or_default();
    members.iter().filter(|row| row.state == State::Pending).map(|row| row.key.clone()).collect()
}

/// A LocalQueue of a ClusterQueue.
fn entrance(snapshot: &Snapshot, queue: &str) -> Option<(Name, Name)> {
    snapshot.local_queues.iter().find(|(_, target)| ***target == *queue).map(|(key, _)| key.clone())
}

/// How many Workloads share quota with a queue, its own included.
fn beside(snapshot: &Snapshot, queue: &str) -> usize {
    let root = |queue: &str| {
        let mut above = snapshot.cluster_queues.get(queue)?.cohort.as_ref()?;
        let mut seen = BTreeSet::new();
        while seen.insert(above)
            && let Some(parent) = snapshot.cohorts.get(above).and_then(|row| row.parent.as_ref())
        {
            above = parent;
        }
        Some(above)
    };
    let own = root(queue);
    let counts =
        snapshot.sums().iter().filter(|(name, _)| ***name == *queue || (own.is_some() && root(name) == own));
    counts.map(|(_, sums)| sums.members.len()).sum()
}

fn found(
    (begin, cancel, pace): (Begin, Cancel, Pace),
    queue: &str,
    wanted: &[WorkloadKey],
    waiting: usize,
) -> Result<Known, Refusal> {
    let (since, assumed) = (Instant::now(), begin.assumed);
    let (manifests, options) = world((begin, cancel.clone()), None);
    let at = options.start;
    let mut present = present(&manifests, options)?;
    present.advance(SignedDuration::ZERO).map_err(|_| unplayable())?;
    if let Some(why) = why_not(&present, queue) {
        return Ok(Known { why_not: Some(why), ..Known::blank(at, waiting) });
    }
    let barred = barred(&manifests, &present, wanted, at);
    drop(manifests);
    let wanted: Vec<_> = wanted.iter().filter(|key| !barred.contains_key(*key)).cloned().collect();
    if wanted.is_empty() {
        return Ok(Known { barred, ..Known::blank(at, waiting) });
    }
    let over = || cancel.is_cancelled() || pace.is_over(since, |stops| stops.one);
    let mut expected =
        expected(&present, &wanted, HORIZON, Patience::until(&over)).map_err(|_| unplayable())?;
    if assumed {
        expected.basis.push_str(ASSUMED);
    }
    let late = expected.futures == 0;
    let why_not = late.then(|| format!("the simulation takes longer than {PLAYING:?}"));
    Ok(Known { at, expected, why_not, barred, waiting })
}

/// Why of some Workloads no start is expected: a person or program has to act first, or the manager refuses them for what is not seen here.
fn barred(
    manifests: &Manifests,
    present: &Simulation,
    wanted: &[WorkloadKey],
    now: Timestamp,
) -> BTreeMap<WorkloadKey, String> {
    let (read, at_once) = (AsRead::new(manifests, now), at_once(present, wanted));
    let why = |key: &WorkloadKey| Some((key.clone(), read.why_not(key, at_once.contains(key))?));
    wanted.iter().filter_map(why).collect()
}

/// The part that the viewer may know: the starts of their own Workloads.
fn shown(known: &Known, queue: &str, viewer: &Viewer) -> Value {
    let own = known.expected.starts.iter().filter(|(key, _)| viewer.sees(&key.namespace));
    let mut items: Vec<Value> = own.map(|(key, start)| item(key, start, known.at, viewer)).collect();
    let barred = known.barred.iter().filter(|(key, _)| viewer.sees(&key.namespace));
    items.extend(barred.map(|(key, why)| {
        json!({"namespace": key.namespace, "workload": key.name, "whyNot": why, "starts": 0, "others": 0, "preempts": []})
    }));
    json!({
        "name": queue,
        "at": known.at.to_string(),
        "whyNot": known.why_not,
        "futures": known.expected.futures,
        "complete": known.expected.complete,
        "basis": known.expected.basis,
        "hours": HORIZON.as_hours(),
        "waiting": known.waiting,
        "first": FIRST,
        "items": items,
    })
}

fn item(key: &WorkloadKey, start: &Start, now: Timestamp, viewer: &Viewer) -> Value {
    let time = |seconds: Option<i64>| {
        seconds.and_then(|s| now.checked_add(SignedDuration::from_secs(s)).ok()).map(|at| at.to_string())
    };
    let sees = |job: &&String| {
        viewer.all || job.split_once('/').is_some_and(|(namespace, _)| viewer.sees(namespace))
    };
    let own: Vec<&String> = start.preempts.iter().filter(sees).collect();
    json!({
        "namespace": key.namespace,
        "workload": key.name,
        "early": time(start.p10),
        "expected": time(start.p50),
        "late": time(start.p90),
        "starts": start.starts,
        "others": start.preempts.len() - own.len(),
        "preempts": own,
    })
}

#[cfg(test)]
mod tests;
