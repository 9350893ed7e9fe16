//! `/api/tomorrow`: what is expected from now on, and with changes; a simulation of the cluster as it is.
//!
//! It never runs on the engine's thread: on one of its own, one simulation at a time, for a limited time and for a cluster of a limited
//! size.

pub mod changed;
pub mod seen;
pub mod starts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_sim::live::Extent;
use sluice_sim::whatif::Difference;
use sluice_sim::{Manifests, Options, Simulation, duration, prepare};
use tokio::sync::Semaphore;
use tracing::error;

use self::changed::Change;
use super::answers::OneEach;
use super::source::{Begin, Found, Source};
use super::store::Store;
use super::viewer::Viewer;
use crate::access::Rate;
use crate::visibility::status::Refusal;

/// Simulations, of one user and of all.
const EACH: Rate = Rate { burst: 5, per_second: 1 };
const ALL: Rate = Rate { burst: 10, per_second: 1 };
/// Waiting for the one before.
const TURN: Duration = Duration::from_secs(5);
/// Both simulations together.
const SIMULATING: Duration = Duration::from_mins(1);
/// A step that is being taken when time is over may take this much longer.
const GRACE: Duration = Duration::from_secs(10);
/// Days that are looked ahead, usually and at most.
const USUAL: SignedDuration = SignedDuration::from_hours(24);
const FURTHEST: SignedDuration = SignedDuration::from_hours(168);
/// Changes at most.
const MOST_CHANGES: usize = 20;

/// What is asked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Asked {
    #[serde(rename = "for")]
    lasts: Option<String>,
    changes: Vec<Change>,
}

/// Makes simulations.
pub struct Tomorrow {
    store: Arc<Store>,
    source: Arc<dyn Source>,
    users: OneEach,
    one: Arc<Semaphore>,
    starts: starts::Cache,
}

impl Tomorrow {
    /// Of what the source reads.
    pub fn new(store: Arc<Store>, source: Arc<dyn Source>) -> Self {
        let users = OneEach::new("simulations", EACH, ALL);
        Self { store, source, users, one: Arc::new(Semaphore::new(1)), starts: starts::Cache::default() }
    }

    /// The answer for a viewer.
    pub async fn answer(&self, viewer: &Viewer, body: &[u8]) -> Result<Value, Refusal> {
        let (lasts, changes) = read(viewer, body)?;
        let _turn = self.users.take(&viewer.user)?;
        check_size(self.store.workloads(), self.source.most_simulated())?;
        let begin = self.source.begin(Extent::All);
        let viewer = viewer.clone();
        self.play(begin, SIMULATING, move |begin| simulated(begin, lasts, &changes, &viewer)).await
    }

    /// Reads the world and plays with it, one at a time, for so long.
    async fn play<T: Send + 'static>(
        &self,
        begin: Found<'_, Begin>,
        most: Duration,
        work: impl FnOnce(Begin) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let one = tokio::time::timeout(TURN, Arc::clone(&self.one).acquire_owned()).await;
        let Ok(Ok(one)) = one else {
            return Err(Refusal::TooMany("another simulation is running: try again".to_owned()));
        };
        let begin = begin.await?;
        // The thread keeps the turn until it is done, also when no caller waits for it any more.
        let simulating = tokio::task::spawn_blocking(move || {
            let _one = one;
            work(begin)
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
            Err(_) => Err(too_long()),
        }
    }
}

fn check_size(count: usize, most: usize) -> Result<(), Refusal> {
    if count <= most {
        return Ok(());
    }
    let why = format!(
        "the cluster has {count} Workloads, and at most {most} are simulated here: use kubectl kueue simulate --from-cluster"
    );
    Err(Refusal::Other(StatusCode::PAYLOAD_TOO_LARGE, why))
}

fn too_long() -> Refusal {
    let why = format!("the simulation takes longer than {SIMULATING:?}: ask for less time");
    Refusal::Other(StatusCode::GATEWAY_TIMEOUT, why)
}

/// What is asked. Lists of values are refused: serde would take one for an object, its fields in their order.
fn parsed(body: &[u8]) -> Result<Asked, String> {
    if body.is_empty() {
        return Ok(Asked::default());
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

/// What is asked, within its bounds.
fn read(viewer: &Viewer, body: &[u8]) -> Result<(SignedDuration, Vec<Change>), Refusal> {
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
        change.check(viewer)?;
    }
    Ok((lasts, asked.changes))
}

/// What a simulation begins with, now.
fn world(begin: Begin, until: Option<SignedDuration>) -> (Manifests, Options) {
    let Begin { live, configuration } = begin;
    let start = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
    let options = Options { start, until, ..Options::new(configuration) };
    (Manifests { objects: live.objects, observed: live.observed, ..Manifests::default() }, options)
}

fn simulated(
    begin: Begin,
    lasts: SignedDuration,
    wanted: &[Change],
    viewer: &Viewer,
) -> Result<Value, Refusal> {
    let (manifests, options) = world(begin, Some(lasts));
    let deadline = Instant::now() + SIMULATING;
    let with_changes = if wanted.is_empty() {
        None
    } else {
        let mut changed = manifests.clone();
        changed::apply(&mut changed.objects, wanted)?;
        Some(changed)
    };
    let base = play(&manifests, options.clone(), deadline)?;
    drop(manifests);
    let seed = options.seed;
    let report =
        |simulation: &Simulation| seen::report(simulation.record(), simulation.lasted(), seed, viewer);
    let (mut changed, mut difference) = (Value::Null, Vec::new());
    if let Some(manifests) = with_changes {
        let other = play(&manifests, options, deadline)?;
        let compared = Difference::new(base.record(), base.lasted(), other.record(), other.lasted(), seed);
        difference = seen::words(&compared, viewer);
        changed = report(&other);
    }
    Ok(json!({"base": report(&base), "changed": changed, "difference": difference}))
}

/// What the cluster has is not the caller's: errors about it do not say what is in it.
fn unplayable() -> Refusal {
    Refusal::Other(StatusCode::CONFLICT, "the cluster's objects cannot be simulated".to_owned())
}

/// The world as it is now.
fn present(manifests: &Manifests, options: Options) -> Result<Simulation, Refusal> {
    let prepared = prepare(manifests, &BTreeMap::new(), options);
    let mut simulation = prepared.map_err(|errors| {
        error!(errors = errors.len(), first = %errors.first().map(ToString::to_string).unwrap_or_default(), "the cluster cannot be simulated");
        unplayable()
    })?;
    simulation.settle().map_err(|_| unplayable())?;
    Ok(simulation)
}

/// Simulates up to the end, or as long as there is time.
fn play(manifests: &Manifests, options: Options, deadline: Instant) -> Result<Simulation, Refusal> {
    let mut simulation = present(manifests, options)?;
    loop {
        if Instant::now() >= deadline {
            return Err(too_long());
        }
        if !simulation.step().map_err(|_| unplayable())? {
            return Ok(simulation);
        }
    }
}

#[cfg(test)]
mod tests;
