//! Kubernetes events (events.k8s.io/v1): bounded, deduplicated, cut to the API's limits, and never slowing admission: if the queue is full the least
//! important events are dropped and counted. An event carries the time when it happened, however late it is sent.

pub mod dedup;
pub mod queue;
mod rates;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as WireEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use serde_json::json;
use sluice_api::labels;
use sluice_client::error_chain::Chain;
use sluice_engine::Backoff;
use sluice_engine::effect::{Event, EventType};
use sluice_engine::input::ObjectRef;
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use crate::api_call::{Call, CallError, Content};
use crate::supervise::Supervisor;
use crate::traces::Sampling;
use crate::writer::traffic::Traffic;
use dedup::{Dedup, EventAction, Update};
use queue::{Happened, Importance, Queue};
use rates::Rates;

/// Events that may wait to be sent.
const WAITING: usize = 8192;
/// Events that are remembered for deduplication.
const REMEMBERED: usize = 4096;
/// Requests at once: few, so that events never crowd out admissions.
const IN_FLIGHT: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses of a request while the API server is away. The few that there are keep all others waiting in the queue, which is long.
const PAUSES: Backoff = Backoff::seconds(1, 10);
/// The longest pause that the API server may ask for, as for writes.
const LONGEST_ASKED: Duration = Duration::from_mins(1);
/// How often one is sent before it is given up: for a minute, or as long as the API server asks for, so that one that can never succeed does not keep
/// the others for good.
const ATTEMPTS: u32 = 9;
/// The same where only this event may be concerned: a webhook of its namespace does not answer, say, or its namespace has its own limit of events.
const FEW_ATTEMPTS: u32 = 2;
/// Any time at all: nothing is due.
const IDLE: Duration = Duration::from_hours(1);
/// A note is at most 1 kB long (docs/reference/03-conditions-events.md).
pub(crate) const NOTE_BYTES: usize = 1024;
/// Reasons and actions are at most 128 bytes long.
pub(crate) const WORD_BYTES: usize = 128;

/// Events with one key are one series; their notes may differ. Thousands are remembered, each in several places.
type Key = Arc<(ObjectRef, Arc<str>, &'static str, String, String, Option<u32>)>;

/// Takes events from anywhere.
#[derive(Clone, Debug)]
pub struct EventSink {
    queue: Arc<Door>,
}

/// Closes the queue with the last sink.
#[derive(Debug)]
struct Door(Arc<Queue>);

impl Drop for Door {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl EventSink {
    fn new(queue: &Arc<Queue>) -> Self {
        Self { queue: Arc::new(Door(Arc::clone(queue))) }
    }

    /// Queues an event, cut to the API's limits, or drops the least important one if too many wait.
    pub fn record(&self, mut event: Event) {
        for (text, bytes) in
            [(&mut event.note, NOTE_BYTES), (&mut event.reason, WORD_BYTES), (&mut event.action, WORD_BYTES)]
        {
            if text.len() > bytes {
                *text = cut(text, bytes);
            }
        }
        let queue = &self.queue.0;
        if queue.push(event, Instant::now()) && queue.count_dropped(1) {
            warn!("events come faster than they can be written: some are dropped");
        }
    }

    /// How many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.queue.0.dropped()
    }
}

/// Starts the task that sends events; it ends when every sink is gone and what waited was sent.
pub fn start(
    supervisor: &Supervisor,
    client: Client,
    (instance, sampling): (&str, Option<Sampling>),
    traffic: Traffic,
) -> (EventSink, tokio::task::JoinHandle<()>) {
    let waiting = Arc::new(Queue::new(WAITING));
    let sink = EventSink::new(&waiting);
    let reporter = Reporter { instance: cut(instance, 128), sampling, pauses: PAUSES };
    let all = send_all(supervisor.clone(), client, reporter, waiting, traffic);
    let task = supervisor.spawn_finite("events", all);
    (sink, task)
}

async fn send_all(
    supervisor: Supervisor,
    client: Client,
    reporter: Reporter,
    waiting: Arc<Queue>,
    traffic: Traffic,
) {
    let (started, pauses) = (Instant::now(), reporter.pauses);
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut outgoing = Outgoing::new(reporter, started);
    // Each request in progress sends one answer. They are received before each further request, so that there is room for those of all requests in
    // progress and of that one.
    let (answered, mut answers) = mpsc::channel::<(Key, bool)>(2 * IN_FLIGHT);
    loop {
        let due = outgoing.dedup.next_due().map(|at| at.saturating_sub(started.elapsed()));
        let event = tokio::select! {
            // Series come with each event that does.
            biased;
            // An update may have waited for it. The sender lives as long as this loop does.
            Some((key, recorded)) = answers.recv() => {
                outgoing.dedup.answered(&key, recorded);
                continue;
            }
            event = waiting.next() => match event {
                Some(event) => Some(event),
                None => break,
            },
            () = tokio::time::sleep(due.unwrap_or(IDLE)), if due.is_some() => None,
        };
        let calls = outgoing.next(event, started.elapsed(), &waiting);
        for (call, key) in calls {
            receive(&mut outgoing.dedup, &mut answers);
            let wait = outgoing.rates.wait(started.elapsed());
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            // They share the limit of writes, and come last.
            traffic.room_for_event(IN_FLIGHT - 1 - slots.available_permits()).await;
            let (client, answered, queue) = (client.clone(), answered.clone(), Arc::clone(&waiting));
            let traffic = traffic.clone();
            supervisor.spawn_finite("event", async move {
                let outcome = send(&client, &call, pauses, &traffic).await;
                if let Err(error) = &outcome {
                    debug!(error = %Chain(error), "an event was not recorded");
                    if error.is_transient() && queue.count_dropped(1) {
                        warn!(error = %Chain(error), "the API server does not record events: some are dropped");
                    }
                }
                // There is room for it.
                let _ = answered.try_send((key, outcome.is_ok()));
                drop(slot);
            });
        }
    }
    // Wait for events that are being sent.
    drop(slots.acquire_many(u32::try_from(IN_FLIGHT).unwrap_or(1)).await);
}

/// The events to be sent.
struct Outgoing {
    reporter: Reporter,
    started: Instant,
    dedup: Dedup<Key>,
    rates: Rates,
}

impl Outgoing {
    /// Nothing was sent yet.
    fn new(reporter: Reporter, started: Instant) -> Self {
        Self { reporter, started, dedup: Dedup::new(REMEMBERED), rates: Rates::new(REMEMBERED) }
    }

    /// The next requests, at this time after the start: one for a series that has to be updated, and one for the event, so that neither delays the
    /// other however many there are. An event beyond its object's limit is counted as dropped.
    fn next(&mut self, event: Option<Happened>, now: Duration, queue: &Queue) -> Vec<(Call, Key)> {
        let last = |update: &Update| before(now.saturating_sub(update.last));
        let mut calls = Vec::new();
        if let Some((key, due)) = self.dedup.next_update(now) {
            calls.push((update(&key.0, &due, last(&due)), key));
        }
        let Some((event, happened)) = event else { return calls };
        let key = key(&event);
        let (at, happened) = (before(happened.elapsed()), happened.saturating_duration_since(self.started));
        let is_new = self.dedup.is_new(&key, happened);
        if is_new && !self.rates.allow(&event.object, Importance::of(&event), happened) {
            queue.count_dropped(1);
            return calls;
        }
        match self.dedup.offer(&key, &event.note, (happened, now), || event_name(&event.object.name)) {
            EventAction::Create(name) => calls.push((create(&event, name, &self.reporter, at), key)),
            EventAction::Update(due) => calls.push((update(&event.object, &due, last(&due)), key)),
            EventAction::Counted => {}
        }
        calls
    }
}

/// The time that long ago.
fn before(ago: Duration) -> Timestamp {
    let ago = SignedDuration::try_from(ago).unwrap_or_default();
    Timestamp::now().checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Takes the answers in that came.
fn receive(dedup: &mut Dedup<Key>, answers: &mut mpsc::Receiver<(Key, bool)>) {
    while let Ok((key, recorded)) = answers.try_recv() {
        dedup.answered(&key, recorded);
    }
}

/// Sends a request until it is answered, refused, or given up. Fewer writes are sent if the API server has too many requests: such a refusal says when
/// to try again, and one by a limit of events alone (the admission plugin `EventRateLimit`) does not.
async fn send(client: &Client, call: &Call, pauses: Backoff, traffic: &Traffic) -> Result<(), CallError> {
    let mut failures = 0;
    loop {
        let error = match call.send(client, TIMEOUT).await {
            Ok(_) => return Ok(()),
            // An attempt without an answer made it.
            Err(error) if failures > 0 && call.method == Method::POST && error.code() == Some(409) => {
                return Ok(());
            }
            Err(error) => error,
        };
        let too_many = error.code() == Some(429);
        let is_its_own = error.is_of_admission()
            || matches!(error, CallError::Timeout { .. })
            || too_many && error.retry_after().is_none();
        if too_many && !is_its_own {
            traffic.refused(Instant::now());
        }
        failures += 1;
        let attempts = if is_its_own { FEW_ATTEMPTS } else { ATTEMPTS };
        if !error.is_transient() || failures >= attempts {
            return Err(error);
        }
        tokio::time::sleep(pause(pauses, failures - 1, error.retry_after())).await;
    }
}

/// The pause after so many others, if the API server asks for this one.
fn pause(pauses: Backoff, before: u32, asked: Option<Duration>) -> Duration {
    pauses.pause(before).max(asked.unwrap_or_default().min(LONGEST_ASKED))
}

fn key(event: &Event) -> Key {
    Arc::new((
        event.object.clone(),
        Arc::clone(&event.uid),
        event.reporter,
        format!("{}/{}", event.type_.as_str(), event.reason),
        event.action.clone(),
        event.attempt,
    ))
}

/// A new name for an event on an object of that name.
pub(crate) fn event_name(object: &str) -> String {
    // A name may have 253 characters, of which a dot and 16 digits are added here.
    let stem: String = object.chars().take(236).collect();
    format!("{stem}.{:016x}", crate::random::bits())
}

/// Events on cluster-scoped objects live in `default`, as everywhere in Kubernetes.
fn event_namespace(object: &ObjectRef) -> &str {
    if object.namespace.is_empty() { "default" } else { &object.namespace }
}

fn uri(object: &ObjectRef) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{}/events", event_namespace(object))
}

/// The same events through the older API, which allows their text to change.
fn core_uri(object: &ObjectRef) -> String {
    format!("/api/v1/namespaces/{}/events", event_namespace(object))
}

/// The component that reports.
struct Reporter {
    /// Its name, no longer than an event takes.
    instance: String,
    /// Which attempts to admit a Workload have a trace, if there are traces.
    sampling: Option<Sampling>,
    /// How long failed requests pause.
    pauses: Backoff,
}

impl Reporter {
    /// The id of the trace that an event belongs to.
    fn annotations(&self, event: &Event) -> Option<BTreeMap<String, String>> {
        let id = self.sampling?.trace(&event.uid, event.attempt?)?;
        Some(BTreeMap::from([(labels::TRACE_ID.to_owned(), id.to_string())]))
    }
}

fn create(event: &Event, name: String, reporter: &Reporter, at: Timestamp) -> Call {
    let object = &event.object;
    let (group, version) = (object.kind.group(), object.kind.version());
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let body = WireEvent {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(event_namespace(object).to_owned()),
            annotations: reporter.annotations(event),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(at)),
        type_: Some(event.type_.as_str().to_owned()),
        reason: Some(event.reason.clone()),
        action: Some(event.action.clone()),
        note: Some(event.note.clone()),
        reporting_controller: Some(event.reporter.to_owned()),
        reporting_instance: Some(reporter.instance.clone()),
        regarding: Some(ObjectReference {
            api_version: Some(api_version),
            kind: Some(object.kind.as_str().to_owned()),
            name: Some(object.name.to_string()),
            namespace: (!object.namespace.is_empty()).then(|| object.namespace.to_string()),
            uid: (!event.uid.is_empty()).then(|| event.uid.to_string()),
            ..ObjectReference::default()
        }),
        ..WireEvent::default()
    };
    Call::with_body(Method::POST, uri(object), Content::Json, &body).unread()
}

fn update(object: &ObjectRef, pending: &Update, last: Timestamp) -> Call {
    let mut body = json!({"series": {"count": pending.count, "lastObservedTime": MicroTime(last)}});
    let uri = match &pending.note {
        None => uri(object),
        Some(note) => {
            body["message"] = json!(note);
            core_uri(object)
        }
    };
    Call::with_body(Method::PATCH, format!("{uri}/{}", pending.name), Content::MergePatch, &body).unread()
}

/// Cuts a text to at most `bytes`, at a character's end, showing that something is missing.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    const MORE: &str = "…";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut end = bytes - MORE.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // With no more room than it takes: thousands may wait.
    [&text[..end], MORE].concat()
}

/// An event that the manager itself reports, with the action equal to the reason.
pub fn of_manager(object: ObjectRef, uid: Arc<str>, reason: &str, note: String) -> Event {
    Event {
        object,
        uid,
        type_: EventType::Warning,
        reason: reason.to_owned(),
        action: reason.to_owned(),
        note,
        reporter: "kueue-workload-controller",
        attempt: None,
    }
}

#[cfg(test)]
mod tests;
