//! Events, and the task that sends them, on a stand-in for the API server.

use futures::FutureExt as _;

use super::*;
use crate::fake_api;
use crate::supervise::tests::supervisor;
use sluice_engine::input::Kind;

fn event(object: ObjectRef, note: &str) -> Event {
    of_manager(object, "u1".into(), "QuotaReserved", note.to_owned())
}

fn reporter(sampling: Option<Sampling>) -> Reporter {
    Reporter { instance: "sluice-0".to_owned(), sampling, pauses: Backoff::millis(1, 1) }
}

#[test]
fn an_event_of_an_attempt_says_its_trace() {
    let mut event = event(ObjectRef::namespaced(Kind::Workload, "ns", "job-a"), "reserved");
    let annotations = |event: &Event, sampling| reporter(sampling).annotations(event);
    assert_eq!(annotations(&event, Some(Sampling::new(1.0))), None);
    event.attempt = Some(2);
    let id = Sampling::new(1.0).trace("u1", 2).unwrap().to_string();
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
        let pending =
            Update { name: "cq.1".to_owned(), count: 7, note: note.map(str::to_owned), last: Duration::ZERO };
        let call = update(&event.object, &pending, Timestamp::UNIX_EPOCH);
        (call.uri, String::from_utf8(call.body.to_vec()).unwrap())
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
            let (event, _) = next().unwrap();
            // Counted, and waiting to be reported.
            for _ in 0..2 {
                let at = (Duration::ZERO, Duration::ZERO);
                dedup.offer(&key(&event), &event.note, at, || event_name(&event.object.name));
                dedup.answered(&key(&event), true);
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
async fn every_event_that_was_not_recorded_is_made_again_when_it_happens_again() {
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

/// What comes of so many events on an API server that answers each of the first `failures` requests with this failure: the requests, and what was
/// dropped.
async fn sent_to(failure: fn() -> axum::response::Response, failures: usize, events: usize) -> (usize, u64) {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let client = fake_api::client(move |_: Method, _, _| {
        let at = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::future::ready(if at < failures { failure() } else { fake_api::found(&json!({})) })
    });
    let (supervisor, _fatals, _stopper) = supervisor();
    let waiting = Arc::new(Queue::new(WAITING));
    for number in 0..events {
        let object = ObjectRef::namespaced(Kind::Workload, "ns", format!("w-{number}"));
        waiting.push(event(object, "note"), Instant::now());
    }
    waiting.close();
    send_all(supervisor.clone(), client, reporter(None), Arc::clone(&waiting), Traffic::default()).await;
    (asked.load(std::sync::atomic::Ordering::Relaxed), waiting.dropped())
}

#[tokio::test]
async fn events_wait_while_the_api_server_is_away_and_are_given_up_and_counted_after_a_while() {
    let away = || fake_api::failed(503, "ServiceUnavailable");
    assert_eq!(sent_to(away, 8, 20).await, (28, 0), "four wait, and the others behind them");
    let attempts = usize::try_from(ATTEMPTS).unwrap();
    assert_eq!(sent_to(away, usize::MAX, 6).await, (6 * attempts, 6));
}

#[tokio::test]
async fn an_event_that_a_webhook_keeps_from_being_recorded_does_not_keep_the_others() {
    let webhook = || fake_api::failed(500, r#"failed calling webhook "policy.example.com""#);
    assert_eq!(sent_to(webhook, usize::MAX, 6).await, (6 * 2, 6));
}

#[tokio::test]
async fn a_refused_event_is_not_sent_again_and_one_that_was_made_unseen_is_there() {
    let refused = || fake_api::failed(403, "Forbidden");
    assert_eq!(sent_to(refused, usize::MAX, 6).await, (6, 0), "its namespace is about to go, say");
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let asked = Arc::new(asked);
    let client = fake_api::client(move |_: Method, _, _| {
        let first = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let (code, reason) = if first { (504, "Timeout") } else { (409, "AlreadyExists") };
        std::future::ready(fake_api::failed(code, reason))
    });
    let event = event(ObjectRef::namespaced(Kind::Workload, "ns", "w"), "note");
    let call = create(&event, "w.1".to_owned(), &reporter(None), Timestamp::UNIX_EPOCH);
    assert!(send(&client, &call, Backoff::millis(1, 1), &Traffic::default()).await.is_ok());
}

#[test]
fn a_request_pauses_for_as_long_as_the_api_server_asks_up_to_a_minute() {
    let seconds =
        |before, asked: Option<u64>| pause(PAUSES, before, asked.map(Duration::from_secs)).as_secs();
    assert_eq!((seconds(0, None), seconds(1, None), seconds(9, None)), (1, 2, 10));
    assert_eq!((seconds(0, Some(30)), seconds(9, Some(3)), seconds(0, Some(600))), (30, 10, 60));
}

#[tokio::test]
async fn an_event_that_is_refused_for_too_many_requests_lowers_the_limit_of_writes() {
    let webhook = r#"admission webhook "policy.example.com" denied the request"#;
    let of_events = "limit reached on type Namespace for key ns";
    let (few, all) = (u64::from(FEW_ATTEMPTS), u64::from(ATTEMPTS));
    for (reason, asks, attempts) in
        [("TooManyRequests", true, all), (webhook, true, few), (webhook, false, few), (of_events, false, few)]
    {
        let asked = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let client = fake_api::client(move |_: Method, _, _| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut answer = fake_api::failed(429, reason);
            if asks {
                answer.headers_mut().insert("Retry-After", "0".parse().unwrap());
            }
            std::future::ready(answer)
        });
        let event = event(ObjectRef::namespaced(Kind::Workload, "ns", "w"), "note");
        let call = create(&event, "w.1".to_owned(), &reporter(None), Timestamp::UNIX_EPOCH);
        let traffic = Traffic::default();
        let before = traffic.limit();
        send(&client, &call, Backoff::millis(1, 1), &traffic).await.unwrap_err();
        assert_eq!(traffic.limit() < before, attempts == all, "{reason}");
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), attempts, "{reason}");
    }
}

#[test]
fn series_that_are_to_be_updated_leave_every_other_request_to_new_events() {
    let (queue, started) = (Queue::new(WAITING), Instant::now());
    let mut outgoing = Outgoing::new(reporter(None), started);
    let mut next = |number: Option<usize>, seconds| {
        let of = |number| event(ObjectRef::namespaced(Kind::Workload, "ns", format!("w-{number}")), "note");
        let event = number.map(|number| (of(number), started));
        let calls = outgoing.next(event, Duration::from_secs(seconds), &queue);
        let answered = calls.into_iter().map(|(call, key)| {
            outgoing.dedup.answered(&key, true);
            call.method
        });
        answered.collect::<Vec<_>>()
    };
    for series in 0..3_000 {
        assert_eq!(next(Some(series), 0), [Method::POST]);
        assert!(next(Some(series), 0).is_empty(), "it is counted");
    }
    for new in 3_000..3_100 {
        assert_eq!(next(Some(new), 11), [Method::PATCH, Method::POST]);
    }
    for _ in 100..3_000 {
        assert_eq!(next(None, 11), [Method::PATCH]);
    }
    assert!(next(None, 11).is_empty());
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

#[tokio::test]
async fn an_event_that_is_sent_late_says_when_it_happened() {
    let (made, mut is_made) = mpsc::unbounded_channel();
    let client = fake_api::client(move |_: Method, _, body: axum::body::Bytes| {
        made.send(serde_json::from_slice::<serde_json::Value>(&body).unwrap()).unwrap();
        std::future::ready(fake_api::found(&json!({})))
    });
    let (supervisor, _fatals, _stopper) = supervisor();
    let waiting = Arc::new(Queue::new(WAITING));
    let (before, began, minutes) = (Timestamp::now(), Instant::now(), Duration::from_mins(7));
    let event = event(ObjectRef::namespaced(Kind::Workload, "ns", "w"), "note");
    waiting.push(event, began.checked_sub(minutes).unwrap());
    waiting.close();
    let task = send_all(supervisor.clone(), client, reporter(None), waiting, Traffic::default());
    task.await;
    let time: Timestamp = is_made.recv().await.unwrap()["eventTime"].as_str().unwrap().parse().unwrap();
    let late = before.duration_since(time).as_secs();
    // Not more, as time passed since; and not much less.
    let passed = i64::try_from(began.elapsed().as_secs()).unwrap() + 1;
    assert!((420 - passed..=420).contains(&late), "{late} s");
}

#[tokio::test]
async fn one_object_has_a_burst_of_events_and_then_one_in_a_second() {
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let client = fake_api::client(move |_: Method, _, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::future::ready(fake_api::found(&json!({})))
    });
    let (supervisor, _fatals, _stopper) = supervisor();
    let began = Instant::now();
    let (sink, task) = start(&supervisor, client, ("sluice-0", None), Traffic::default());
    for attempt in 0..100 {
        let object = ObjectRef::namespaced(Kind::Workload, "ns", "w");
        sink.record(Event { attempt: Some(attempt), ..event(object, "note") });
    }
    let queue = Arc::clone(&sink.queue.0);
    drop(sink);
    task.await.unwrap();
    let made = made.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(u64::try_from(made).unwrap() + queue.dropped(), 100);
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!((25..=26 + seconds).contains(&made), "{made} in {seconds} s");
}
