//! `/api/tomorrow`: the expected future, as the cluster is and with changes; a simulation.
//!
//! It runs on a thread of its own, never on the engine's: one simulation at a time, for a limited time and in memory that is reserved before.

pub mod changed;
pub mod pool;
pub mod refused;
pub mod seen;
pub mod starts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_client::bounded::weight;
use sluice_sim::live::Extent;
use sluice_sim::starts::at_once;
use sluice_sim::whatif::Difference;
use sluice_sim::{
    Cancel, ManifestError, Manifests, Options, Packed, PodMemory, Record, Simulation, duration, prepare,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, error};

use self::changed::Change;
use self::seen::Seen;
use super::seen_queues::SeenQueues;
use super::snapshot::Snapshot;
use super::source::{Begin, Source};
use super::store::Store;
use super::viewer::Viewer;
use crate::access::{OneEach, Rate};
use crate::supervise::blocking;
use crate::visibility::status::Refusal;

/// Simulations of one user, and of all: one user, or a few, do not use up the turns of all.
const EACH: Rate = Rate { burst: 5, per_second: 1 };
const ALL: Rate = Rate { burst: 30, per_second: 5 };
/// How long a request waits for the previous simulation: longer than a simulation may take while another user waits.
const TURN: Duration = Duration::from_secs(20);
/// Both simulations together.
const SIMULATING: Duration = Duration::from_mins(1);
/// When a simulation stops and shows how far it came. What is left of [`SIMULATING`] is for the answer.
#[derive(Clone, Copy, Debug)]
struct Stops {
    one: Duration,
    first_of_two: Duration,
    second_of_two: Duration,
}

const STOPS: Stops = Stops {
    one: Duration::from_secs(50),
    first_of_two: Duration::from_secs(25),
    second_of_two: Duration::from_secs(52),
};
/// The limits while another user waits for a turn.
const SHARED: Stops = Stops {
    one: Duration::from_secs(8),
    first_of_two: Duration::from_secs(4),
    second_of_two: Duration::from_secs(8),
};
/// How much longer a step in progress may take when the time is over.
const GRACE: Duration = Duration::from_secs(10);
/// Days that are looked ahead, usually and at most.
const USUAL: SignedDuration = SignedDuration::from_hours(24);
const FURTHEST: SignedDuration = SignedDuration::from_hours(168);
/// Changes at most.
const MOST_CHANGES: usize = 20;
/// With more unfinished Workloads than this, a simulation would not end in its time.
const MOST_WORKLOADS: usize = 25_000;
/// The memory that a simulation takes in all, as a multiple of the bytes of the documents that are read.
pub(super) const PER_BYTE_READ: usize = 3;

/// The request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SimulationRequest {
    #[serde(rename = "for")]
    lasts: Option<String>,
    changes: Vec<Change>,
}

/// The answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    base: Seen,
    changed: Option<Seen>,
    difference: Vec<String>,
    refused: Value,
    /// How many objects cannot be simulated.
    not_played: usize,
    /// Whether the manager's configuration is not known, and the default one is simulated.
    default_configuration: bool,
}

/// Makes simulations.
pub struct Tomorrow {
    store: Arc<Store>,
    source: Arc<dyn Source>,
    users: OneEach,
    one: Arc<Semaphore>,
    waiting: Waiting,
    starts: starts::Cache,
    /// With more unfinished Workloads than this, none is begun.
    most: usize,
}

impl Tomorrow {
    /// Of what the source reads.
    pub fn new(store: Arc<Store>, source: Arc<dyn Source>) -> Self {
        let users = OneEach::new("simulations", EACH, ALL);
        let (one, starts) = (Arc::new(Semaphore::new(1)), starts::Cache::default());
        Self { store, source, users, one, waiting: Waiting::default(), starts, most: MOST_WORKLOADS }
    }

    /// The answer for a viewer.
    ///
    /// It is a JSON document as text: as a value it would take many times the memory.
    ///
    /// # Errors
    ///
    /// If the question cannot be read, is out of bounds, comes too often or is about what the viewer may not see; if the cluster has more than 25,000
    /// unfinished Workloads, or cannot be read or simulated; or if there is no turn within 20 s, too little memory, or no end within a minute.
    pub async fn answer(&self, viewer: &Viewer, body: &[u8]) -> Result<String, Refusal> {
        let snapshot = self.store.snapshot();
        let (lasts, changes) = read((viewer, &SeenQueues::of(snapshot.as_deref(), viewer)), body)?;
        let _turn = self.users.take(&viewer.user)?;
        check_size(snapshot.as_deref().map_or(0, Snapshot::unfinished), self.most)?;
        let viewer = viewer.clone();
        let pace = Pace { alone: STOPS, shared: SHARED, waiting: self.waiting.clone() };
        let simulating = move |begin, cancel| {
            simulated((begin, cancel), lasts, &changes, (&viewer, snapshot.as_deref()), &pace)
        };
        self.play(&self.turn().await?, Extent::All, SIMULATING, simulating).await
    }

    /// The turn to simulate: there is one.
    async fn turn(&self) -> Result<Arc<OwnedSemaphorePermit>, Refusal> {
        let _waits = self.waiting.enter();
        match tokio::time::timeout(TURN, Arc::clone(&self.one).acquire_owned()).await {
            Ok(Ok(one)) => Ok(Arc::new(one)),
            _ => Err(Refusal::TooMany("another simulation is running: try again".to_owned())),
        }
    }

    /// Reads the cluster and runs a simulation of it within the time limit. It keeps the turn until it is done, which may be after its caller has gone.
    async fn play<T: Send + 'static>(
        &self,
        one: &Arc<OwnedSemaphorePermit>,
        extent: Extent<'_>,
        most: Duration,
        work: impl FnOnce(Begin, Cancel) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let memory = self.source.reserve().ok_or_else(no_memory)?;
        let begin = self.source.begin(extent, memory.bytes() / PER_BYTE_READ).await?;
        let gone = CallerIsGone::default();
        let cancel = gone.or_at(Instant::now() + most);
        let one = Arc::clone(one);
        // The thread keeps its turn and its memory until it is done. It gives up soon after its last caller has gone.
        let simulating = blocking("a simulation", move || {
            let _kept = (one, memory);
            let answer = work(begin, cancel.clone());
            answer.map_err(|refused| if cancel.is_cancelled() { too_long(most) } else { refused })
        });
        match tokio::time::timeout(most + GRACE, simulating).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => {
                error!(%panic, "a simulation ended abnormally");
                Err(Refusal::Other(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the simulation ended abnormally".to_owned(),
                ))
            }
            Err(_) => Err(too_long(most)),
        }
    }
}

/// How many requests wait for the turn. Each comes from a user other than the one whose turn it is, since a user has one simulation at a time.
#[derive(Clone, Debug, Default)]
struct Waiting(Arc<AtomicUsize>);

/// A waiting request, until it is dropped.
struct Waits(Waiting);

impl Waiting {
    fn enter(&self) -> Waits {
        self.0.fetch_add(1, Ordering::Relaxed);
        Waits(self.clone())
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// When simulations stop: alone, and while another user waits.
#[derive(Clone, Debug)]
struct Pace {
    alone: Stops,
    shared: Stops,
    waiting: Waiting,
}

impl Pace {
    /// Whether the time of a simulation that began then is over.
    fn is_over(&self, since: Instant, time: impl Fn(&Stops) -> Duration) -> bool {
        since.elapsed() >= time(if self.waiting.any() { &self.shared } else { &self.alone })
    }
}

/// Makes a simulation give up once this is dropped: when the answer is made, or the caller is gone.
#[derive(Default)]
struct CallerIsGone(Arc<AtomicBool>);

impl CallerIsGone {
    /// A simulation gives up then, and at the deadline.
    fn or_at(&self, deadline: Instant) -> Cancel {
        let gone = Arc::clone(&self.0);
        Cancel::when(move || gone.load(Ordering::Relaxed) || Instant::now() >= deadline)
    }
}

impl Drop for CallerIsGone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn check_size(count: usize, most: usize) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    let why = format!(
        "there are {count} unfinished Workloads, and at most {most} are simulated here: use kubectl kueue simulate \
         --from-cluster"
    );
    Err(Refusal::Other(StatusCode::PAYLOAD_TOO_LARGE, why))
}

fn no_memory() -> Refusal {
    let why = "too little memory is free for a simulation: try again later, give the program more memory, or use kubectl \
               kueue simulate --from-cluster";
    Refusal::TooMany(why.to_owned())
}

fn too_long(most: Duration) -> Refusal {
    let why = format!(
        "the simulation takes longer than {most:?}: ask for less time, or use kubectl kueue simulate --from-cluster"
    );
    Refusal::Other(StatusCode::GATEWAY_TIMEOUT, why)
}

/// Parses the request. Lists of values are refused: serde would accept one for an object, with its fields in order.
fn parsed(body: &[u8]) -> Result<SimulationRequest, String> {
    if body.is_empty() {
        return Ok(SimulationRequest::default());
    }
    let unreadable = |error| format!("the body cannot be read: {error}");
    let body: Value = serde_json::from_slice(body).map_err(unreadable)?;
    if !body.is_object() {
        return Err("expected an object such as {\"for\": \"24h\", \"changes\": []}".to_owned());
    }
    if body["changes"].as_array().into_iter().flatten().any(|change| !change.is_object()) {
        return Err(
            "changes: expected objects such as {\"kind\": \"nodes\", \"like\": \"n1\", \"count\": 2}"
                .to_owned(),
        );
    }
    serde_json::from_value(body).map_err(unreadable)
}

/// Reads the request, within its bounds.
fn read(
    (viewer, queues): (&Viewer, &SeenQueues<'_>),
    body: &[u8],
) -> Result<(SignedDuration, Vec<Change>), Refusal> {
    let wrong = |why: String| Refusal::BadRequest(why);
    let asked = parsed(body).map_err(wrong)?;
    let lasts = match asked.lasts.as_deref() {
        None => USUAL,
        Some(text) => duration::parse(text).map_err(|why| wrong(format!("for: {why}")))?,
    };
    if lasts <= SignedDuration::ZERO || lasts > FURTHEST {
        return Err(wrong("for: expected more than 0s and at most 168h".to_owned()));
    }
    if asked.changes.len() > MOST_CHANGES {
        return Err(wrong(format!("changes: expected at most {MOST_CHANGES}")));
    }
    for change in &asked.changes {
        change.check(viewer, queues)?;
    }
    Ok((lasts, asked.changes))
}

/// The objects and options at the start of a simulation.
fn world((begin, cancel): (Begin, Cancel), until: Option<SignedDuration>) -> (Manifests, Options) {
    let Begin { live, configuration, left, .. } = begin;
    let start = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    let pod_memory = Some(PodMemory { most: left, weight });
    let options = Options { start, until, cancel, pod_memory, ..Options::new(configuration) };
    (Manifests { objects: live.objects, observed: live.observed, ..Manifests::default() }, options)
}

fn simulated(
    begin: (Begin, Cancel),
    lasts: SignedDuration,
    wanted: &[Change],
    (viewer, snapshot): (&Viewer, Option<&Snapshot>),
    pace: &Pace,
) -> Result<String, Refusal> {
    let (since, left, assumed) = (Instant::now(), begin.0.left, begin.0.assumed);
    let (mut manifests, mut options) = world(begin, Some(lasts));
    let candidates = refused::candidates(&manifests, options.start);
    // Only one simulation's documents are in memory at a time: the rest waits as text.
    let (base, with_changes) = if wanted.is_empty() {
        (Packed::new(manifests), None)
    } else {
        let base = Packed::of(&manifests);
        let left = changed::apply(&mut manifests.objects, wanted, left)?;
        // Both courses play the same objects.
        options.pod_memory = options.pod_memory.map(|memory| PodMemory { most: left, ..memory });
        (base, Some(Packed::new(manifests)))
    };
    let first = begun(&base, options.clone())?;
    let refused = at_once(&first, &candidates);
    let not_played = first.left_out().count;
    if let Some(why) = first.left_out().first.first() {
        debug!(count = not_played, first = %why, "objects of the cluster cannot be simulated");
    }
    let without = |mut world: Packed| {
        if !refused.is_empty() {
            refused::leave_out(&mut world, &refused);
        }
        world
    };
    let first = if refused.is_empty() {
        drop(base);
        first
    } else {
        drop(first);
        begun(&without(base), options.clone())?
    };
    let seed = options.seed;
    let report = |course: &Course| {
        let shown = seen::report(&course.record, course.lasted, seed, viewer, snapshot);
        if course.partial { shown.stopped() } else { shown }
    };
    let two = with_changes.is_some();
    let time = |stops: &Stops| if two { stops.first_of_two } else { stops.one };
    let mut base = play(first, || pace.is_over(since, time))?;
    let (mut changed, mut difference) = (None, Vec::new());
    if let Some(world) = with_changes {
        if base.partial {
            options.until = Some(SignedDuration::from_millis(base.lasted));
        }
        let over = || pace.is_over(since, |stops| stops.second_of_two);
        let mut other = play(begun(&without(world), options)?, over)?;
        // What only one of them got to is no difference.
        base.end_with(other.lasted);
        other.partial |= base.partial;
        let compared = Difference::new(&base.record, base.lasted, &other.record, other.lasted, seed);
        difference = seen::words(&compared, viewer, &SeenQueues::of(snapshot, viewer));
        changed = Some(report(&other));
    }
    let refused = refused::reported(&refused, viewer);
    let base = report(&base);
    let answer = Answer { base, changed, difference, refused, not_played, default_configuration: assumed };
    serde_json::to_string(&answer).map_err(|error| {
        let why = "the answer could not be made".to_owned();
        error!(%error, "{why}");
        Refusal::Other(StatusCode::INTERNAL_SERVER_ERROR, why)
    })
}

/// The objects of the cluster are not the caller's: errors about them do not quote them.
fn unplayable() -> Refusal {
    Refusal::Other(StatusCode::CONFLICT, "the cluster's objects cannot be simulated".to_owned())
}

/// The current world.
fn present(manifests: &Manifests, options: Options) -> Result<Simulation, Refusal> {
    let cancel = options.cancel.clone();
    settled(prepare(manifests, &BTreeMap::new(), options), &cancel)
}

fn settled(prepared: Result<Simulation, Vec<ManifestError>>, cancel: &Cancel) -> Result<Simulation, Refusal> {
    let mut simulation = prepared.map_err(|errors| {
        if cancel.is_cancelled() {
            return unplayable();
        }
        error!(errors = errors.len(), first = %errors.first().map(ToString::to_string).unwrap_or_default(), "the cluster cannot be simulated");
        unplayable()
    })?;
    simulation.settle().map_err(|_| unplayable())?;
    Ok(simulation)
}

/// The same, after the decisions that are made at once.
fn begun(world: &Packed, options: Options) -> Result<Simulation, Refusal> {
    let cancel = options.cancel.clone();
    let mut simulation = settled(world.prepare(options), &cancel)?;
    simulation.advance(SignedDuration::ZERO).map_err(|_| unplayable())?;
    Ok(simulation)
}

/// The course of a simulation.
struct Course {
    record: Record,
    /// How long it lasted, in milliseconds.
    lasted: i64,
    /// Whether it was stopped before its end: there was no more time.
    partial: bool,
}

impl Course {
    /// Forgets what came later than that.
    fn end_with(&mut self, end: i64) {
        if end < self.lasted {
            self.record.cut(end);
            (self.lasted, self.partial) = (end, true);
        }
    }
}

/// Simulates up to the end, or until the time is over.
///
/// # Errors
/// If it cannot continue, or nothing is done when the time is over.
fn play(mut simulation: Simulation, over: impl Fn() -> bool) -> Result<Course, Refusal> {
    let mut partial = false;
    while !partial && simulation.step().map_err(|_| unplayable())? {
        partial = over();
    }
    let now = simulation.record().millis(simulation.now());
    let lasted = if partial { now } else { simulation.lasted() };
    if partial && lasted <= 0 {
        return Err(too_long(SIMULATING));
    }
    Ok(Course { record: simulation.into_record(), lasted, partial })
}

#[cfg(test)]
mod tests;
