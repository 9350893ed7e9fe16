//! The real pool, on a stand-in for the API server.

use std::sync::Mutex;

use axum::body::Bytes;
use axum::http::{Method, Uri};
use axum::response::Response;
use serde_json::json;
use sluice_engine::effect::Purpose;
use sluice_engine::input::Kind;

use super::class::Class;
use super::sending::Outcome;
use super::traffic::{Numbers, Traffic};
use super::*;
use crate::fake_api::{self, found};
use crate::lease::deadline::{self, Deadline, Until};
use crate::supervise::tests::supervisor;

mod held;
mod outcomes;
mod paced;
mod turns;

type Seen<T> = Arc<Mutex<Vec<T>>>;

/// The answer of an API server that has carried out a write of the object of this name.
fn object_named(name: &str) -> Response {
    let metadata = json!({"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "2"});
    found(&json!({"metadata": metadata, "spec": {}}))
}

fn request(id: u64, name: &str) -> WriteRequest {
    let write = Write::MergePatch {
        subresource: None,
        body: json!({"metadata": {"labels": {"id": id.to_string()}}}),
    };
    let object = ObjectRef::namespaced(Kind::Workload, "ns", name);
    WriteRequest { id: EffectId(id), object, purpose: Purpose::UpdateWorkload, write }
}

/// Notes which writes were answered, and whether they were carried out.
fn noting() -> (Answering, mpsc::UnboundedReceiver<(u64, bool)>) {
    let (reported, answered) = mpsc::unbounded_channel();
    let answering = Answering {
        backlog: Arc::new(|_| {}),
        meter: Arc::new(|_, _, _| {}),
        answers: Arc::new(move |_, id, answer, _, _| reported.send((id.0, answer.is_ok())).unwrap()),
        poison: Arc::new(|_, _| {}),
        intake: Intake::default(),
    };
    (answering, answered)
}

/// A pool that sends to this API server without a limit of requests per second, and what is kept as long as it runs.
fn started(server: Server, answering: Answering) -> (Writer, impl Sized) {
    let (supervisor, fatals, stopper) = supervisor();
    let writer = Writer::start(&supervisor, server, Versions::default(), 0.0, 0, answering);
    (writer, (supervisor, fatals, stopper))
}

/// An API server, its gate, and the names of the objects for which there were requests. `answer` has the answer for a name, and whether it waits until
/// the gate lets it through.
fn gated(answer: fn(&str) -> (bool, Response)) -> (kube::Client, Arc<tokio::sync::Semaphore>, Seen<String>) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let sent: Seen<String> = Arc::default();
    let (noted, opened) = (Arc::clone(&sent), Arc::clone(&gate));
    let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        noted.lock().unwrap().push(name.clone());
        let opened = Arc::clone(&opened);
        async move {
            let (waits, answer) = answer(&name);
            if waits {
                opened.acquire().await.unwrap().forget();
            }
            answer
        }
    });
    (client, gate, sent)
}

#[tokio::test]
async fn a_write_that_panics_sets_its_object_aside_and_leaves_its_lane_open() {
    let client = fake_api::client(|_: Method, uri: Uri, body: Bytes| async move {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(!(name == "poison" && body.contains("\"1\"")), "a bug in a write");
        object_named(&name)
    });
    let (reported, mut answered) = mpsc::unbounded_channel();
    let aside: Seen<(String, String)> = Arc::default();
    let noted = Arc::clone(&aside);
    let answering = Answering {
        backlog: Arc::new(|_| {}),
        meter: Arc::new(|_, _, _| {}),
        answers: Arc::new(move |_, id, answer, _, _| reported.send((id.0, answer)).unwrap()),
        poison: Arc::new(move |object, why| noted.lock().unwrap().push((object.to_string(), why))),
        intake: Intake::default(),
    };
    let (supervisor, mut fatals, _stopper) = supervisor();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let writer = Writer::start(&supervisor, server, Versions::default(), 0.0, 0, answering);
    for request in [request(1, "poison"), request(2, "poison"), request(3, "other")] {
        writer.write(0, request);
    }
    let mut answers = std::collections::BTreeMap::new();
    while answers.len() < 3 {
        let (id, answer) = answered.recv().await.unwrap();
        answers.insert(id, answer);
    }
    let refused = WriteError::Refused("the write panicked: a bug in a write".to_owned());
    assert_eq!(answers[&1], Err(refused), "the engine learns what became of each write");
    assert!(answers[&2].is_ok(), "the lane is open: {:?}", answers[&2]);
    assert!(answers[&3].is_ok());
    let poison = ("Workload ns/poison".to_owned(), "a bug in a write".to_owned());
    assert_eq!(*aside.lock().unwrap(), [poison]);
    assert!(writer.clone().is_quiet(Duration::from_mins(1)).await);
    assert!(fatals.try_recv().is_err(), "one object does not end the process");
}

#[tokio::test]
async fn a_panic_of_the_pool_itself_ends_the_process() {
    let client = fake_api::client(|_: Method, _: Uri, _: Bytes| async { fake_api::failed(404, "NotFound") });
    let answering = Answering {
        backlog: Arc::new(|_| {}),
        meter: Arc::new(|_, _, _| {}),
        answers: Arc::new(|_, _, _, _, _| panic!("a bug in the pool")),
        poison: Arc::new(|_, _| {}),
        intake: Intake::default(),
    };
    let (supervisor, mut fatals, _stopper) = supervisor();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let writer = Writer::start(&supervisor, server, Versions::default(), 0.0, 0, answering);
    writer.write(0, request(1, "a"));
    assert_eq!(fatals.recv().await.unwrap(), "the task writer panicked: a bug in the pool");
    assert!(
        writer.is_quiet(Duration::from_mins(1)).await,
        "a manager that gives up need not wait for a dead pool"
    );
}

/// A failure of this status after which the write may be tried again soon, however long the answer took.
fn soon(status: u16) -> Response {
    let mut answer = fake_api::failed(status, if status == 403 { "Forbidden" } else { "" });
    answer.headers_mut().insert("Retry-After", "0".parse().unwrap());
    answer
}

/// What becomes of a write that is answered with these codes, one after the other.
async fn outcome(codes: &'static [u16]) -> WriteError {
    let attempts = Arc::new(Mutex::new(codes.iter()));
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        let code = *attempts.lock().unwrap().next().expect("no more attempts than answers");
        async move { soon(code) }
    });
    let server = Server::new(client, Deadline::never(), Traffic::default());
    persist(&Sending::alone(server), &Call::get("/x")).await.unwrap_err()
}

#[tokio::test]
async fn a_refusal_after_an_attempt_without_an_answer_leaves_open_what_became_of_the_write() {
    assert!(matches!(outcome(&[403]).await, WriteError::Refused(_)));
    assert!(matches!(outcome(&[429, 403]).await, WriteError::Refused(_)), "that attempt did nothing");
    assert!(
        matches!(outcome(&[503, 403]).await, WriteError::Transient(_)),
        "that one may have been carried out"
    );
    assert!(matches!(outcome(&[504, 429, 403]).await, WriteError::Transient(_)));
}

#[tokio::test]
async fn a_conflict_after_an_attempt_without_an_answer_may_be_with_that_attempt() {
    assert!(matches!(outcome(&[409]).await, WriteError::Conflict(_)));
    assert!(matches!(outcome(&[429, 409]).await, WriteError::Conflict(_)), "that attempt did nothing");
    assert!(matches!(outcome(&[503, 409]).await, WriteError::Transient(_)));
    assert!(matches!(outcome(&[504, 429, 409]).await, WriteError::Transient(_)));
}

#[test]
fn what_an_answer_shows_depends_on_how_long_it_took_and_on_others() {
    const S: Duration = Duration::from_secs(1);
    for (took, long, alone, beside) in [
        (S / 2, S, Some(Outcome::Soon), Some(Outcome::Soon)),
        (S, S, Some(Outcome::Late), None),
        (S * 2, S, Some(Outcome::Slow), None),
        (S * 2, S * 3, Some(Outcome::Soon), Some(Outcome::Soon)),
        (S * 5, S * 3, Some(Outcome::Late), None),
    ] {
        assert_eq!(Outcome::of_answer(took, long, true), alone, "{took:?} {long:?}");
        assert_eq!(Outcome::of_answer(took, long, false), beside, "{took:?} {long:?}");
    }
}

/// An API server that refused requests for five seconds, until this time.
fn after_an_outage(end: Instant) -> Traffic {
    let traffic = Traffic::default();
    for second in (0..5).rev() {
        traffic.refused(end.checked_sub(Duration::from_secs(second)).unwrap());
    }
    assert_eq!(traffic.limit(), 2);
    traffic
}

#[tokio::test]
async fn that_an_object_is_missing_shows_that_the_api_server_is_back() {
    let client = fake_api::client(|_: Method, _: Uri, _: Bytes| async { fake_api::failed(404, "NotFound") });
    let traffic = after_an_outage(Instant::now().checked_sub(Duration::from_secs(10)).unwrap());
    let server = Server::new(client, Deadline::never(), traffic.clone());
    for _ in 0..16 {
        let outcome = persist(&Sending::alone(server.clone()), &Call::get("/x")).await;
        assert!(matches!(outcome, Err(WriteError::NotFound(_))), "{outcome:?}");
    }
    assert!(traffic.limit() > 2);
}

#[tokio::test]
async fn the_next_term_begins_without_what_the_one_before_knew_of_the_api_server() {
    let client = fake_api::client(|_: Method, _: Uri, _: Bytes| async { fake_api::failed(404, "NotFound") });
    let (answering, _answered) = noting();
    let traffic = after_an_outage(Instant::now());
    let server = Server::new(client, Deadline::never(), traffic.clone());
    let (writer, _kept) = started(server, answering);
    writer.abandon();
    settled().await;
    assert_eq!(traffic.limit(), Traffic::default().limit());
}

/// Lets all tasks continue until each of them waits for something: they share this thread, and the stand-in answers without a network.
async fn settled() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nothing_is_sent_once_another_replica_may_lead() {
    let (until, deadline) = deadline::pair();
    let until = Arc::new(until);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (noted, ends) = (Arc::clone(&sent), Arc::clone(&until));
    // The first request gets no answer, and meanwhile the lease is not renewed.
    let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        noted.lock().unwrap().push(name.clone());
        let first = noted.lock().unwrap().len() == 1;
        if first {
            ends.send_replace(Until::At(Instant::now()));
        }
        let answer = object_named(&name);
        async move { if first { fake_api::failed(504, "Timeout") } else { answer } }
    });
    let (answering, mut answered) = noting();
    let traffic = Traffic::default();
    let mut pausing = traffic.pausing();
    let server = Server::new(client, deadline, traffic);
    let (writer, _kept) = started(server, answering);
    let sent = || sent.lock().unwrap().clone();

    writer.write(0, request(1, "a"));
    settled().await;
    assert_eq!(sent(), Vec::<String>::new(), "it does not lead");
    until.send_replace(Until::At(Instant::now() + Duration::from_mins(1)));
    for paused in [1, 0] {
        pausing.wait_for(|writes| *writes == paused).await.unwrap();
    }
    settled().await;
    assert_eq!(sent(), ["a"], "it is not tried again after the deadline");
    writer.write(0, request(2, "b"));
    settled().await;
    assert_eq!(sent(), ["a"]);
    // The renewal was late, and no other replica had taken the lease.
    until.send_replace(Until::At(Instant::now() + Duration::from_mins(1)));
    let mut done = [answered.recv().await.unwrap(), answered.recv().await.unwrap()];
    done.sort_unstable();
    assert_eq!(done, [(1, true), (2, true)]);

    until.send_replace(Until::Past);
    writer.write(0, request(3, "c"));
    settled().await;
    writer.abandon();
    assert!(writer.clone().is_quiet(Duration::from_mins(1)).await);
    until.send_replace(Until::Always);
    settled().await;
    assert!(
        !sent().contains(&"c".to_owned()),
        "what was decided in a term that is over is forgotten: {:?}",
        sent()
    );
}

#[tokio::test]
async fn writes_that_pause_do_not_hold_up_others() {
    let client = fake_api::client(|_: Method, uri: Uri, _: Bytes| async move {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        if name != "live" {
            return fake_api::failed(503, "ServiceUnavailable");
        }
        object_named(&name)
    });
    let (answering, mut answered) = noting();
    let traffic = Traffic::default();
    let (limit, dead) = (traffic.limit(), 3 * u64::try_from(traffic.limit()).unwrap());
    let server = Server::new(client, Deadline::never(), traffic.clone());
    let (writer, _kept) = started(server, answering);
    for id in 0..dead {
        writer.write(0, request(id, &format!("dead-{id}")));
    }
    writer.write(0, request(dead, "live"));
    // Each of the others is tried again for a second: on a slow machine the first ones may have failed by then.
    let mut failed = 0;
    while answered.recv().await.unwrap() != (dead, true) {
        failed += 1;
        assert!(failed <= limit, "it waits for those that pause");
    }
    assert_eq!(traffic.limit(), limit, "a server that fails is not a crowded one");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
    assert_eq!(*traffic.pausing().borrow(), 0);
}

#[tokio::test]
async fn what_was_decided_before_leadership_was_lost_is_not_sent_however_late_it_comes() {
    let (until, deadline) = deadline::pair();
    let sent: Seen<String> = Arc::default();
    let noted = Arc::clone(&sent);
    let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        noted.lock().unwrap().push(name.clone());
        async move { object_named(&name) }
    });
    let (answering, mut answered) = noting();
    let server = Server::new(client, deadline, Traffic::default());
    let (writer, _kept) = started(server, answering);
    writer.write(0, request(1, "before"));
    writer.abandon();
    // The engine was in the middle of a cycle.
    writer.write(0, request(2, "late"));
    until.send_replace(Until::Always);
    writer.rebuilt(1, || {});
    writer.write(1, request(3, "next"));
    assert_eq!(answered.recv().await.unwrap(), (3, true));
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
    assert_eq!(*sent.lock().unwrap(), ["next"]);
}

/// An API server on which writes in the namespace `dead` hang.
fn half_dead() -> kube::Client {
    fake_api::client(|_: Method, uri: Uri, _: Bytes| async move {
        let path = uri.path().to_owned();
        if path.contains("/dead/") {
            std::future::pending::<()>().await;
        }
        let name = path.rsplit('/').next().unwrap().to_owned();
        object_named(&name)
    })
}

#[tokio::test]
async fn at_the_highest_limit_too_it_turns_out_that_all_writes_under_way_hang() {
    let (answering, mut answered) = noting();
    let traffic = Traffic::default();
    traffic.set(&Numbers { in_flight: limit::HIGHEST, ..Numbers::default() });
    while traffic.limit() < limit::HIGHEST {
        traffic.answered(Kind::Workload, true, Instant::now(), Duration::from_millis(1));
    }
    let server = Server::new(half_dead(), Deadline::never(), traffic.clone());
    let (writer, _kept) = started(server, answering);
    for id in 0..100 {
        let object = ObjectRef::namespaced(Kind::Workload, "dead", format!("w{id}").as_str());
        writer.write(0, WriteRequest { object, ..request(id, "") });
    }
    settled().await;
    assert_eq!(traffic.in_flight(), limit::HIGHEST);
    writer.write(0, request(100, "live"));
    assert_eq!(answered.recv().await.unwrap(), (100, true), "it waits for those that hang");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn writes_that_hang_leave_places_to_others() {
    let client = half_dead();
    let (answering, mut answered) = noting();
    let traffic = Traffic::default();
    let limit = traffic.limit();
    let server = Server::new(client, Deadline::never(), traffic.clone());
    let (writer, _kept) = started(server, answering);
    for id in 0..100 {
        let object = ObjectRef::namespaced(Kind::Workload, "dead", format!("w{id}").as_str());
        writer.write(0, WriteRequest { object, ..request(id, "") });
    }
    let mut given_up = 0;
    for id in 100..200 {
        writer.write(0, request(id, &format!("live-{id}")));
        loop {
            let (next, done) = answered.recv().await.unwrap();
            assert_eq!(done, next >= 100, "a webhook of theirs does not answer");
            if done {
                assert_eq!(next, id);
                break;
            }
            // Those that hang are given up after two seconds.
            given_up += 1;
            assert!(given_up <= 100 - limit, "they wait for those that hang");
        }
    }
    assert!(traffic.limit() >= limit, "nor is it the API server that has too much to do");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn an_engine_that_was_rebuilt_waits_for_what_is_under_way_and_nothing_of_the_one_before_is_sent() {
    let (client, gate, sent) = gated(|name| match name {
        "old" => (true, fake_api::failed(503, "ServiceUnavailable")),
        _ => (false, object_named(name)),
    });
    let (answering, mut answered) = noting();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    writer.write(0, request(1, "old"));
    writer.write(0, request(2, "old"));
    while sent.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let (over, mut is_over) = mpsc::unbounded_channel();
    writer.rebuilt(1, move || over.send(()).unwrap());
    writer.write(0, request(3, "late"));
    writer.write(1, request(4, "new"));
    assert_eq!(answered.recv().await.unwrap(), (4, true));
    assert!(is_over.try_recv().is_err(), "a request of the engine before is under way");
    gate.add_permits(10);
    assert_eq!(is_over.recv().await, Some(()));
    assert_eq!(answered.recv().await.unwrap(), (1, false));
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
    assert_eq!(*sent.lock().unwrap(), ["old", "new"], "nor is it tried again");
}

#[tokio::test]
async fn a_request_without_an_answer_says_something_about_the_server_only_if_others_have_none_either() {
    for others in [true, false] {
        let traffic = Traffic::default();
        let limit = traffic.limit();
        let answers = traffic.clone();
        let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
            if others {
                answers.answered(Kind::Workload, false, Instant::now(), Duration::ZERO);
            }
            std::future::pending::<Response>()
        });
        let timeout = Duration::from_millis(50);
        let mut server = Server::new(client, Deadline::never(), traffic.clone());
        server.timeout = timeout;
        let outcome = persist(&Sending::alone(server), &Call::get("/x")).await;
        assert!(matches!(outcome, Err(WriteError::Transient(_))));
        assert_eq!(traffic.limit() == limit, others);
    }
}

#[tokio::test]
async fn a_request_that_hangs_where_others_did_is_given_up_soon_and_says_nothing_about_the_server() {
    let traffic = Traffic::default();
    let limit = traffic.limit();
    let sent = Arc::new(tokio::sync::Notify::new());
    let noted = Arc::clone(&sent);
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        noted.notify_one();
        std::future::pending::<Response>()
    });
    let mut server = Server::new(client, Deadline::never(), traffic.clone());
    // Its place is needed.
    let sending = Sending::alone(server.clone());
    let under_way = sending.under_way();
    let call = Call::get("/x");
    let (outcome, ()) = tokio::join!(persist(&sending, &call), async {
        sent.notified().await;
        let since = under_way.progress.borrow().since;
        under_way.given_up.send_replace(since);
    });
    assert!(matches!(outcome, Err(WriteError::Transient(_))), "{outcome:?}");
    assert!(under_way.progress.borrow().since.is_none());
    // It is known from others.
    server.timeout = Duration::from_millis(50);
    let pace = Arc::new(Pace::new(0.0, 0));
    let sending = Sending::new(server, pace, Kind::Workload, Class::Jobs, 0, watch::channel(0).1, true);
    assert!(matches!(persist(&sending, &call).await, Err(WriteError::Transient(_))));
    assert_eq!(traffic.limit(), limit);
}
