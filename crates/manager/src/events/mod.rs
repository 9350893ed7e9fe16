//! Kubernetes events (events.k8s.io/v1): bounded, deduplicated, cut to what the API takes, and never in the way of
//! admission: what does not fit into the queue is dropped, the least important first, and counted.

pub mod dedup;
pub mod queue;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as WireEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use serde_json::json;
use sluice_api::labels;
use sluice_client::error_chain::Chain;
use sluice_engine::effect::{Event, EventType};
use sluice_engine::input::ObjectRef;
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, warn};

use crate::api_call::{Call, CallError, Content};
use crate::supervise::Supervisor;
use crate::traces::Sampling;
use crate::writer::traffic::Traffic;
use dedup::{Dedup, EventAction, Update};
use queue::Queue;

/// Events that may wait to be sent.
const WAITING: usize = 8192;
/// Events that are remembered for deduplication.
const REMEMBERED: usize = 4096;
/// Requests at once: few, so that events never crowd out admissions.
const IN_FLIGHT: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(10);
/// Any time at all: nothing is due.
const IDLE: Duration = Duration::from_hours(1);
/// A note is at most 1 kB long (docs/reference/03-conditions-events.md).
const NOTE_BYTES: usize = 1024;
/// Reasons and actions are at most 128 bytes long.
const WORD_BYTES: usize = 128;

/// Events of one key are one series; their notes may differ.
type Key = (ObjectRef, Arc<str>, &'static str, String, String, Option<u32>);

/// Takes events from anywhere.
#[derive(Clone, Debug)]
pub struct EventSink {
    queue: Arc<Door>,
    dropped: Arc<AtomicU64>,
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
        Self { queue: Arc::new(Door(Arc::clone(queue))), dropped: Arc::default() }
    }

    /// Queues an event, cut to what the API takes, or drops the least important one when too many wait.
    pub fn record(&self, mut event: Event) {
        for (text, bytes) in
            [(&mut event.note, NOTE_BYTES), (&mut event.reason, WORD_BYTES), (&mut event.action, WORD_BYTES)]
        {
            if text.len() > bytes {
                *text = cut(text, bytes);
            }
        }
        if self.queue.0.push(event) && self.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            warn!("events come faster than they can be written: some are dropped");
        }
    }

    /// How many events were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
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
    let reporter = Reporter { instance: cut(instance, 128), sampling };
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
    let started = Instant::now();
    let slots = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut dedup = Dedup::new(REMEMBERED);
    // Each request that is under way sends one at most. They are taken before each further request, so that there is room: those of all that were
    // under way then, and of that one.
    let (failed, mut failures) = mpsc::channel::<Key>(2 * IN_FLIGHT);
    loop {
        let due = dedup.next_due().map(|at| at.saturating_sub(started.elapsed()));
        let event = tokio::select! {
            event = waiting.next() => match event {
                Some(event) => Some(event),
                None => break,
            },
            () = tokio::time::sleep(due.unwrap_or(IDLE)), if due.is_some() => None,
        };
        forget_failed(&mut dedup, &mut failures);
        let mut calls = Vec::new();
        let now = started.elapsed();
        for (key, pending) in dedup.due(now) {
            calls.push((update(&key.0, &pending, Timestamp::now()), key));
        }
        if let Some(event) = event {
            let key = key(&event);
            match dedup.offer(&key, &event.note, now, || event_name(&event.object.name)) {
                EventAction::Create(name) => {
                    calls.push((create(&event, name, &reporter, Timestamp::now()), key));
                }
                EventAction::Update(pending) => {
                    calls.push((update(&event.object, &pending, Timestamp::now()), key));
                }
                EventAction::Counted => {}
            }
        }
        for (call, key) in calls {
            forget_failed(&mut dedup, &mut failures);
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            // They share the limit of writes, and come last.
            traffic.room_for_event(IN_FLIGHT - 1 - slots.available_permits()).await;
            let (client, failed) = (client.clone(), failed.clone());
            supervisor.spawn_finite("event", async move {
                if let Err(error) = send(&client, &call).await {
                    debug!(error = %Chain(&error), "an event was not recorded");
                    // The receiver lives as long as this loop does.
                    let _ = failed.try_send(key);
                }
                drop(slot);
            });
        }
    }
    // Wait for those that are being sent.
    drop(slots.acquire_many(u32::try_from(IN_FLIGHT).unwrap_or(1)).await);
}

/// What was not recorded is made anew when it happens again.
fn forget_failed(dedup: &mut Dedup<Key>, failures: &mut mpsc::Receiver<Key>) {
    while let Ok(key) = failures.try_recv() {
        dedup.forget(&key);
    }
}

async fn send(client: &Client, call: &Call) -> Result<(), CallError> {
    match call.send(client, TIMEOUT).await {
        Err(error) if error.is_transient() => {
            tokio::time::sleep(error.retry_after().unwrap_or(Duration::from_secs(1)).min(TIMEOUT)).await;
            call.send(client, TIMEOUT).await.map(drop)
        }
        other => other.map(drop),
    }
}

fn key(event: &Event) -> Key {
    (
        event.object.clone(),
        Arc::clone(&event.uid),
        event.reporter,
        format!("{}/{}", event.type_.as_str(), event.reason),
        event.action.clone(),
        event.attempt,
    )
}

fn event_name(object: &str) -> String {
    // 253 characters for the whole name, of which a dot and 16 digits are ours.
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

/// The same events by the older API, which lets their text change.
fn core_uri(object: &ObjectRef) -> String {
    format!("/api/v1/namespaces/{}/events", event_namespace(object))
}

/// The component that reports.
struct Reporter {
    /// Its name, no longer than an event takes.
    instance: String,
    /// Which attempts to admit a Workload have a trace, if there are traces.
    sampling: Option<Sampling>,
}

impl Reporter {
    /// The id of the trace that an event belongs to.
    fn annotations(&self, event: &Event) -> Option<BTreeMap<String, String>> {
        let id = self.sampling?.trace(&event.uid, event.attempt?)?;
        Some(BTreeMap::from([(labels::TRACE_ID.to_owned(), id.to_string())]))
    }
}

fn create(event: &Event, name: String, reporter: &Reporter, now: Timestamp) -> Call {
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
        event_time: Some(MicroTime(now)),
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
    Call::with_body(Method::POST, uri(object), Content::Json, &body)
}

fn update(object: &ObjectRef, pending: &Update, now: Timestamp) -> Call {
    let mut body = json!({"series": {"count": pending.count, "lastObservedTime": MicroTime(now)}});
    let uri = match &pending.note {
        None => uri(object),
        Some(note) => {
            body["message"] = json!(note);
            core_uri(object)
        }
    };
    Call::with_body(Method::PATCH, format!("{uri}/{}", pending.name), Content::MergePatch, &body)
}

/// Cuts a text to at most `bytes`, at a character's end, showing that something is missing.
fn cut(text: &str, bytes: usize) -> String {
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
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::fake_api;
    use crate::supervise::tests::supervisor;
    use sluice_engine::input::Kind;

    fn event(object: ObjectRef, note: &str) -> Event {
        of_manager(object, "u1".into(), "QuotaReserved", note.to_owned())
    }

    fn reporter(sampling: Option<Sampling>) -> Reporter {
        Reporter { instance: "sluice-0".to_owned(), sampling }
    }

    #[test]
    fn an_event_of_an_attempt_says_its_trace() {
        let mut event = event(ObjectRef::namespaced(Kind::Workload, "ns", "job-a"), "reserved");
        let annotations = |event: &Event, sampling| reporter(sampling).annotations(event);
        assert_eq!(annotations(&event, Some(Sampling::new(1.0))), None);
        event.attempt = Some(2);
        let id = crate::traces::TraceId::of("u1", 2).to_string();
        let expected = BTreeMap::from([("sluice.dev/trace-id".to_owned(), id)]);
        assert_eq!(annotations(&event, Some(Sampling::new(1.0))), Some(expected));
        // What is not sampled has none that could be looked up.
        assert_eq!(annotations(&event, Some(Sampling::new(0.0))), None);
        assert_eq!(annotations(&event, None), None);
    }

    #[test]
    fn an_event_names_its_object_in_full() {
        let event = event(ObjectRef::namespaced(Kind::Workload, "ns", "job-a"), "reserved");
        let call = create(&event, "job-a.1".to_owned(), &reporter(None), Timestamp::UNIX_EPOCH);
        assert_eq!(call.uri, "/apis/events.k8s.io/v1/namespaces/ns/events");
        insta::assert_json_snapshot!(serde_json::from_slice::<serde_json::Value>(&call.body).unwrap(), @r#"
        {
          "action": "QuotaReserved",
          "apiVersion": "events.k8s.io/v1",
          "eventTime": "1970-01-01T00:00:00.000000Z",
          "kind": "Event",
          "metadata": {
            "name": "job-a.1",
            "namespace": "ns"
          },
          "note": "reserved",
          "reason": "QuotaReserved",
          "regarding": {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "name": "job-a",
            "namespace": "ns",
            "uid": "u1"
          },
          "reportingController": "kueue-workload-controller",
          "reportingInstance": "sluice-0",
          "type": "Warning"
        }
        "#);
    }

    #[test]
    fn an_event_on_a_cluster_scoped_object_lives_in_default() {
        let event = event(ObjectRef::cluster(Kind::ClusterQueue, "cq"), "note");
        assert_eq!(uri(&event.object), "/apis/events.k8s.io/v1/namespaces/default/events");
        let again = |note: Option<&str>| {
            let pending = Update { name: "cq.1".to_owned(), count: 7, note: note.map(str::to_owned) };
            let call = update(&event.object, &pending, Timestamp::UNIX_EPOCH);
            (call.uri, String::from_utf8(call.body).unwrap())
        };
        let (uri, body) = again(None);
        assert_eq!(uri, "/apis/events.k8s.io/v1/namespaces/default/events/cq.1");
        assert!(body.contains("\"count\":7") && !body.contains("message"));
        let (uri, body) = again(Some("more"));
        assert_eq!(uri, "/api/v1/namespaces/default/events/cq.1");
        assert!(body.contains("\"message\":\"more\""));
    }

    /// The largest event that anything can cause.
    fn largest(number: usize) -> Event {
        let name = format!("{number:0>253}");
        let object = ObjectRef::namespaced(Kind::Workload, "n".repeat(63), name);
        let mut event = event(object, &"note".repeat(1_000));
        event.reason = "reason".repeat(100);
        event.action = "action".repeat(100);
        event
    }

    #[test]
    fn what_waits_and_what_is_remembered_is_bounded_in_bytes() {
        let waiting = Arc::new(Queue::new(WAITING));
        let sink = EventSink::new(&waiting);
        let next = || waiting.next().now_or_never().flatten();
        let cost = allocation_counter::measure(|| {
            for number in 0..WAITING + 10 {
                sink.record(largest(number));
            }
        });
        assert_eq!(sink.dropped(), 10);
        assert!(cost.bytes_current < 20 << 20, "{cost:?}");
        while next().is_some() {}

        let mut dedup = Dedup::new(REMEMBERED);
        let cost = allocation_counter::measure(|| {
            for number in 0..2 * REMEMBERED {
                sink.record(largest(number));
                let event = next().unwrap();
                // Counted, and waiting to be told.
                for _ in 0..2 {
                    dedup.offer(&key(&event), &event.note, Duration::ZERO, || event_name(&event.object.name));
                }
            }
        });
        assert!(cost.bytes_current < 20 << 20, "{cost:?}");
    }

    #[test]
    fn events_that_differ_in_their_note_alone_are_one_series() {
        let object = || ObjectRef::namespaced(Kind::Workload, "ns", "w");
        let one = || event(object(), "Preempted workload a");
        let first = key(&one());
        assert_eq!(key(&event(object(), "Preempted workload b")), first);
        let differs: [fn(&mut Event); 7] = [
            |event| event.object = ObjectRef::namespaced(Kind::Workload, "ns", "other"),
            |event| event.uid = "other".into(),
            |event| event.reporter = "other",
            |event| event.type_ = EventType::Normal,
            |event| event.reason = "Other".to_owned(),
            |event| event.action = "Other".to_owned(),
            |event| event.attempt = Some(2),
        ];
        for (at, change) in differs.into_iter().enumerate() {
            let mut other = one();
            change(&mut other);
            assert_ne!(key(&other), first, "{at}");
        }
    }

    #[tokio::test]
    async fn every_event_that_was_not_recorded_is_made_anew_when_it_happens_again() {
        const EVENTS: usize = 100;
        let made = Arc::new(tokio::sync::watch::Sender::new(0_usize));
        let answer = {
            let made = Arc::clone(&made);
            move |method: Method, _, _| {
                assert_eq!(method, Method::POST, "each event is a new one, so none is patched");
                made.send_modify(|made| *made += 1);
                std::future::ready(fake_api::failed(403, "Forbidden"))
            }
        };
        let (supervisor, _fatals, _stopper) = supervisor();
        let client = fake_api::client(answer);
        let (sink, task) = start(&supervisor, client, ("sluice-0", None), Traffic::default());
        let record = |number: usize| {
            let object = ObjectRef::namespaced(Kind::Workload, "ns", format!("w-{number}"));
            sink.record(event(object, "note"));
        };
        let mut counted = made.subscribe();
        for round in 1..=3 {
            (0..EVENTS).for_each(record);
            // When the last of these is sent, there is no place for one before them.
            (round * EVENTS..round * EVENTS + IN_FLIGHT).for_each(record);
            counted.wait_for(|made| *made == round * (EVENTS + IN_FLIGHT)).await.unwrap();
        }
        drop(sink);
        task.await.unwrap();
    }

    #[test]
    fn long_notes_are_cut_at_a_character() {
        let cut_text = cut(&"ä".repeat(600), NOTE_BYTES);
        assert!(cut_text.len() <= NOTE_BYTES && cut_text.ends_with('…'));
        assert_eq!(cut("short", NOTE_BYTES), "short");
    }

    #[test]
    fn names_of_events_fit_into_a_name() {
        assert!(event_name(&"x".repeat(253)).len() <= 253);
    }
}
