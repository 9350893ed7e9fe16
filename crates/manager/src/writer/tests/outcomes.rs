//! What comes of one write: how often it is sent, and what the engine learns.

use super::super::sending::LONG;
use super::*;

/// What comes of a write whose first attempt is answered like this after a while, and how often it is sent.
async fn outcome_of_slow(answer: fn() -> Response) -> (Result<Vec<u8>, WriteError>, usize) {
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        let first = std::mem::replace(&mut *count.lock().unwrap(), 1) == 0;
        let again = Arc::clone(&count);
        async move {
            if first {
                tokio::time::sleep(LONG).await;
                return answer();
            }
            *again.lock().unwrap() = 2;
            found(&json!({}))
        }
    });
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let outcome = persist(&Sending::alone(server), &Call::get("/x")).await;
    let sent = *sent.lock().unwrap();
    (outcome, sent)
}

#[tokio::test]
async fn a_write_that_took_long_is_given_back_unless_the_server_says_when_to_try_again() {
    let (outcome, sent) = outcome_of_slow(|| fake_api::failed(500, "InternalError")).await;
    assert!(matches!(outcome, Err(WriteError::Transient(_))), "{outcome:?}");
    assert_eq!(sent, 1);
    let later = || {
        let mut answer = fake_api::failed(429, "TooManyRequests");
        answer.headers_mut().insert("Retry-After", "1".parse().unwrap());
        answer
    };
    let (outcome, sent) = outcome_of_slow(later).await;
    assert!(outcome.is_ok() && sent == 2, "{outcome:?}");
}

#[tokio::test]
async fn a_webhook_that_has_too_many_requests_says_nothing_of_the_server_and_is_left_to_the_engine() {
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        *count.lock().unwrap() += 1;
        let mut answer =
            fake_api::failed(429, r#"admission webhook "policy.example.com" denied the request"#);
        answer.headers_mut().insert("Retry-After", "1".parse().unwrap());
        async move { answer }
    });
    let traffic = Traffic::default();
    let server = Server::new(client, Deadline::never(), traffic.clone());
    let outcome = persist(&Sending::alone(server), &Call::get("/x")).await;
    assert!(matches!(outcome, Err(WriteError::Later { seconds: 1, .. })), "{outcome:?}");
    assert_eq!((*sent.lock().unwrap(), traffic.limit()), (1, Traffic::default().limit()));
}

#[tokio::test]
async fn a_webhook_that_cannot_be_called_is_left_to_the_engine() {
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        *count.lock().unwrap() += 1;
        let why = r#"failed calling webhook "policy.example.com": connect: connection refused"#;
        async move { fake_api::failed(500, why) }
    });
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let outcome = persist(&Sending::alone(server), &Call::get("/x")).await;
    assert!(matches!(outcome, Err(WriteError::Transient(_))), "{outcome:?}");
    assert_eq!(*sent.lock().unwrap(), 1, "it keeps no place from others for more attempts");
}

#[tokio::test]
async fn a_write_that_finds_no_free_slot_after_its_pauses_is_given_back() {
    let (start, lesser) = (Class::Jobs, Class::Workloads);
    for (class, in_flight, expected) in [(start, 7, 5), (start, 8, 1), (lesser, 7, 5), (lesser, 8, 1)] {
        let traffic = Traffic::default();
        // With the pausing write itself.
        let numbers = Numbers { begun: in_flight + 1, in_flight: in_flight + 1, ..Numbers::default() };
        traffic.set(&numbers);
        let sent = Arc::new(Mutex::new(0));
        let count = Arc::clone(&sent);
        let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
            *count.lock().unwrap() += 1;
            async { fake_api::failed(503, "ServiceUnavailable") }
        });
        let server = Server::new(client, Deadline::never(), traffic.clone());
        let outcome = persist(&Sending::of_class(server, class), &Call::get("/x")).await;
        assert!(matches!(outcome, Err(WriteError::Transient(_))), "{outcome:?}");
        let known = (*sent.lock().unwrap(), *traffic.pausing().borrow());
        assert_eq!(known, (expected, 0), "{class:?}: {in_flight} of 8");
    }
}

#[tokio::test]
async fn a_write_for_which_the_server_asks_to_wait_long_is_given_back_at_once() {
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        *count.lock().unwrap() += 1;
        let mut answer = fake_api::failed(429, "TooManyRequests");
        answer.headers_mut().insert("Retry-After", "30".parse().unwrap());
        async move { answer }
    });
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let outcome = persist(&Sending::alone(server), &Call::get("/x")).await;
    assert!(matches!(outcome, Err(WriteError::Later { seconds: 30, .. })), "{outcome:?}");
    assert_eq!(*sent.lock().unwrap(), 1);
}

/// How often a write is sent whose first attempt is answered with this status as the process ends, and whether it was carried out.
async fn sent_at_the_end(status: u16) -> (usize, bool) {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let sent = Arc::new(Mutex::new(0));
    let (opened, count) = (Arc::clone(&gate), Arc::clone(&sent));
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        *count.lock().unwrap() += 1;
        let (first, opened) = (*count.lock().unwrap() == 1, Arc::clone(&opened));
        async move {
            if first {
                opened.acquire().await.unwrap().forget();
                return fake_api::failed(status, "NotNow");
            }
            object_named("w")
        }
    });
    let (answering, mut answered) = noting();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    writer.write(0, request(1, "w"));
    while *sent.lock().unwrap() < 1 {
        tokio::task::yield_now().await;
    }
    writer.forget_waiting();
    settled().await;
    gate.add_permits(1);
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
    let (_, done) = answered.recv().await.unwrap();
    let sent = *sent.lock().unwrap();
    (sent, done)
}

#[tokio::test]
async fn at_the_end_a_write_that_may_be_done_is_settled_and_one_that_is_not_is_left() {
    assert_eq!(sent_at_the_end(503).await, (2, true), "the API server may have carried it out");
    assert_eq!(sent_at_the_end(429).await, (1, false), "the next leader makes it, if it is still needed");
}
