//! When writes are sent: tokens, importance, and pauses that the server requests.

use sluice_api::job::JobKind;
use sluice_engine::{EndPods, PodsOf};

use super::super::lanes::TURN;
use super::*;

/// An API server that answers each request once the gate lets it through, and the names of what was sent.
fn all_gated() -> (kube::Client, Arc<tokio::sync::Semaphore>, Seen<String>) {
    gated(|name| (true, object_named(name)))
}

#[tokio::test]
async fn what_waits_for_a_token_waits_behind_what_is_more_important_and_may_be_withdrawn() {
    // On a machine that stands still that long, others get tokens before the pool knows of the two: then all is done again, with more time.
    let mut token = Duration::from_millis(100);
    loop {
        let began = Instant::now();
        let (client, gate, sent) = all_gated();
        gate.add_permits(1_000);
        let (answering, mut answered) = noting();
        let (supervisor, _fatals, _stopper) = supervisor();
        let server = Server::new(client, Deadline::never(), Traffic::default());
        let qps = 1.0 / token.as_secs_f64();
        let writer = Writer::start(&supervisor, server, Versions::default(), qps, 1, answering);
        for id in 0..30 {
            let create = WriteRequest { purpose: Purpose::CreateWorkload, ..request(id, &format!("w{id}")) };
            writer.write(0, create);
        }
        writer.write(0, WriteRequest { purpose: Purpose::Pend, ..request(30, "report") });
        let first = answered.recv().await.unwrap();
        writer.write(0, WriteRequest { purpose: Purpose::StartJob, ..request(31, "start") });
        writer.withdraw(0, EffectId(30));
        let second = answered.recv().await.unwrap();
        if began.elapsed() >= token {
            writer.abandon();
            assert!(writer.is_quiet(Duration::from_mins(1)).await);
            token *= 2;
            continue;
        }
        assert_eq!([first, second], [(0, true), (30, false)], "the report was not sent");
        while !sent.lock().unwrap().contains(&"start".to_owned()) {
            answered.recv().await.unwrap();
        }
        let at = sent.lock().unwrap().iter().position(|name| name == "start");
        assert!(at <= Some(2), "one of the others has its turn: {:?}", sent.lock().unwrap());
        writer.abandon();
        assert!(writer.is_quiet(Duration::from_mins(1)).await);
        break;
    }
}

#[tokio::test]
async fn each_request_takes_a_token() {
    let pace = Arc::new(Pace::new(1e-6, 3));
    let sent = Arc::new(Mutex::new(0));
    let count = Arc::clone(&sent);
    let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
        *count.lock().unwrap() += 1;
        async { soon(503) }
    });
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (first, generations) = watch::channel(0);
    pace.take(Instant::now());
    let sending = Sending::new(server, Arc::clone(&pace), Kind::Workload, Class::Jobs, 0, generations, false);
    let call = Call::get("/x");
    let mut persisting = std::pin::pin!(persist(&sending, &call));
    let used_up = async {
        while !pace.is_used_up() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        outcome = &mut persisting => unreachable!("it waits for no token: {outcome:?}"),
        () = used_up => {}
    }
    first.send_replace(1);
    assert_eq!(persisting.await, Err(WriteError::Withdrawn), "it waited for a token");
    assert_eq!(*sent.lock().unwrap(), 3);
}

#[tokio::test]
async fn a_start_goes_with_the_next_answer_however_many_lesser_writes_are_under_way() {
    let (client, gate, sent) = all_gated();
    let (answering, mut answered) = noting();
    let traffic = Traffic::default();
    let limit = traffic.limit();
    let server = Server::new(client, Deadline::never(), traffic);
    let began = Instant::now();
    let (writer, _kept) = started(server, answering);
    for id in 0..100 {
        let purpose = if id % 2 == 0 { Purpose::Pend } else { Purpose::Finish };
        writer.write(0, WriteRequest { purpose, ..request(id, &format!("w{id}")) });
    }
    let count = || sent.lock().unwrap().len();
    while count() < limit {
        tokio::task::yield_now().await;
    }
    writer.write(0, WriteRequest { purpose: Purpose::StartJob, ..request(100, "start") });
    let next = async || {
        let before = count();
        gate.add_permits(1);
        while count() == before {
            tokio::task::yield_now().await;
        }
        sent.lock().unwrap().last().cloned().unwrap()
    };
    let mut last = next().await;
    if began.elapsed() >= TURN && last != "start" {
        // The machine stood still, and it was the turn of the others. They have no second one before the start.
        last = next().await;
    }
    assert_eq!(last, "start");
    assert!(answered.recv().await.unwrap().1);
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn reports_use_half_of_the_places_while_nothing_else_is_there_and_delay_no_decision() {
    let (client, gate, sent) = all_gated();
    let (answering, mut answered) = noting();
    let backlogs: Seen<WaitingWrites> = Arc::default();
    let backlog = Arc::clone(&backlogs);
    let backlog: Backlog = Arc::new(move |waiting| backlog.lock().unwrap().push(waiting));
    let traffic = Traffic::default();
    let limit = traffic.limit();
    let server = Server::new(client, Deadline::never(), traffic);
    let answering = Answering { backlog, ..answering };
    let (writer, _kept) = started(server, answering);
    for id in 0..100 {
        writer.write(0, WriteRequest { purpose: Purpose::Pend, ..request(id, &format!("w{id}")) });
    }
    let start = |id| WriteRequest { purpose: Purpose::StartJob, ..request(id, &format!("start-{id}")) };
    let names = || sent.lock().unwrap().clone();
    while names().len() < limit / 2 {
        tokio::task::yield_now().await;
    }
    writer.write(0, start(100));
    while !names().contains(&"start-100".to_owned()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(names().len(), limit / 2 + 1, "the reports before it, and itself: {:?}", names());
    assert!(backlogs.lock().unwrap().iter().any(|waiting| waiting.all >= 80));
    assert!(backlogs.lock().unwrap().iter().all(|waiting| waiting.ahead == 0));
    // Beside it they have an eighth.
    gate.add_permits(1);
    assert!(answered.recv().await.unwrap().1);
    writer.write(0, start(101));
    while !names().contains(&"start-101".to_owned()) {
        tokio::task::yield_now().await;
    }
    assert_eq!(names().len(), limit / 2 + 2, "no report in the place of the first: {:?}", names());
    for id in 200..240 {
        writer.write(0, WriteRequest { purpose: Purpose::Evict, ..request(id, &format!("w{id}")) });
    }
    let ahead = || backlogs.lock().unwrap().last().map(|waiting| waiting.ahead);
    while ahead() != Some(32) {
        tokio::task::yield_now().await;
    }
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

/// The same, with the numbers of waiting writes that the engine receives.
fn reporting_backlog(answering: Answering) -> (Answering, mpsc::UnboundedReceiver<WaitingWrites>) {
    let (sender, backlogs) = mpsc::unbounded_channel();
    (Answering { backlog: Arc::new(move |waiting| sender.send(waiting).unwrap()), ..answering }, backlogs)
}

#[tokio::test]
async fn an_engine_that_was_rebuilt_learns_that_nothing_waits() {
    let (client, gate, _) = all_gated();
    let (answering, _answered) = noting();
    let (answering, mut backlogs) = reporting_backlog(answering);
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    for id in 0..100 {
        writer.write(0, WriteRequest { purpose: Purpose::Pend, ..request(id, &format!("w{id}")) });
    }
    while backlogs.recv().await.unwrap().all < 80 {}
    // That is still on its way to the engine when the new one is built.
    writer.rebuilt(1, || {});
    gate.add_permits(1_000);
    assert!(writer.clone().is_quiet(Duration::from_mins(1)).await);
    let mut last = None;
    while let Ok(waiting) = backlogs.try_recv() {
        last = Some(waiting);
    }
    assert_eq!(last, Some(WaitingWrites::default()));
}

#[tokio::test]
async fn that_the_api_server_is_not_busy_any_more_is_reported_although_nothing_else_happens() {
    let (client, gate, _) = all_gated();
    let (answering, mut answered) = noting();
    let (answering, mut backlogs) = reporting_backlog(answering);
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    for id in 0..40 {
        writer.write(0, WriteRequest { purpose: Purpose::Evict, ..request(id, &format!("w{id}")) });
    }
    // It is noted with whatever happens: withdrawals of what is not there.
    let busy = async { while !backlogs.recv().await.unwrap().busy {} };
    let happening = async {
        loop {
            writer.withdraw(0, EffectId(1_000));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = busy => {}
        () = happening => {}
    }
    gate.add_permits(1_000);
    for _ in 0..40 {
        answered.recv().await.unwrap();
    }
    let calm = async { while backlogs.recv().await.unwrap() != WaitingWrites::default() {} };
    tokio::time::timeout(Duration::from_secs(30), calm).await.expect("nothing is reported");
}

/// A look for the pods of a job.
fn look(id: u64, then: EndPods) -> WriteRequest {
    let object = ObjectRef::namespaced(Kind::Job(JobKind::MPI_JOB), "ns", format!("job-{id}"));
    let write = Write::EndPods { of: PodsOf { uids: vec!["a".into()], ..PodsOf::default() }, then };
    WriteRequest { id: EffectId(id), object, purpose: Purpose::EndPods, write }
}

#[tokio::test]
async fn a_start_goes_although_very_many_looks_for_pods_wait_for_each_other() {
    let sent: Seen<String> = Arc::default();
    let noted = Arc::clone(&sent);
    let client = fake_api::client(move |method: Method, uri: Uri, _: Bytes| {
        noted.lock().unwrap().push(uri.path().rsplit('/').next().unwrap().to_owned());
        async move {
            if method == Method::GET {
                std::future::pending::<()>().await;
            }
            object_named("x")
        }
    });
    let (answering, mut answered) = noting();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    for id in 0..200 {
        writer.write(0, look(id, EndPods::Look));
    }
    while sent.lock().unwrap().len() < 4 {
        tokio::task::yield_now().await;
    }
    writer.write(0, WriteRequest { purpose: Purpose::StartJob, ..request(200, "start") });
    assert_eq!(answered.recv().await.unwrap(), (200, true));
    assert_eq!(sent.lock().unwrap().iter().filter(|name| *name == "pods").count(), 4, "lists take turns");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn once_what_waits_is_forgotten_writes_under_way_send_no_further_request() {
    let (client, gate, sent) = all_gated();
    let (answering, _answered) = noting();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    for id in 0..200 {
        writer.write(0, look(id, EndPods::Look));
    }
    while sent.lock().unwrap().len() < 4 {
        tokio::task::yield_now().await;
    }
    settled().await;
    writer.forget_waiting();
    settled().await;
    gate.add_permits(1_000);
    assert!(writer.clone().is_quiet(Duration::from_mins(1)).await);
    writer.write(0, request(200, "late"));
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
    assert_eq!(sent.lock().unwrap().len(), 4, "the other looks waited for their turn");
}

#[tokio::test]
async fn a_start_goes_at_once_although_hundreds_of_deletions_could_use_all_slots() {
    let sent: Seen<(Method, String)> = Arc::default();
    let noted = Arc::clone(&sent);
    let client = fake_api::client(move |method: Method, uri: Uri, _: Bytes| {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        noted.lock().unwrap().push((method.clone(), name));
        async move {
            if method == Method::GET {
                let pod = |at: u32| {
                    json!({"metadata": {"name": format!("p{at}"), "uid": format!("u{at}"),
                    "ownerReferences": [{"uid": "a", "controller": true}]}})
                };
                return found(&json!({"metadata": {}, "items": (0..200).map(pod).collect::<Vec<_>>()}));
            }
            if method == Method::DELETE {
                std::future::pending::<()>().await;
            }
            object_named("x")
        }
    });
    let (answering, _answered) = noting();
    let server = Server::new(client, Deadline::never(), after_an_outage(Instant::now()));
    let (writer, _kept) = started(server, answering);
    let deletions = || sent.lock().unwrap().iter().filter(|(method, _)| *method == Method::DELETE).count();
    for id in 0..2 {
        writer.write(0, look(id, EndPods::Delete));
    }
    while deletions() == 0 {
        tokio::task::yield_now().await;
    }
    settled().await;
    writer.write(0, WriteRequest { purpose: Purpose::StartJob, ..request(2, "start") });
    settled().await;
    assert_eq!(sent.lock().unwrap().last().map(|(_, name)| name.clone()), Some("start".to_owned()));
    assert_eq!(deletions(), 1, "they leave a slot");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn what_was_answered_gives_its_slot_to_others_while_it_waits_for_the_engine() {
    let (client, gate, sent) = all_gated();
    gate.add_permits(1_000);
    let (answering, mut answered) = noting();
    let full = answering.intake.place(usize::MAX).await;
    let traffic = after_an_outage(Instant::now());
    let server = Server::new(client, Deadline::never(), traffic.clone());
    let (writer, _kept) = started(server, answering);
    for id in 0..4 {
        writer.write(0, request(id, &format!("w{id}")));
    }
    settled().await;
    assert_eq!(sent.lock().unwrap().len(), 4, "2 may be in flight");
    assert!(answered.try_recv().is_err(), "there is no room");
    drop(full);
    for _ in 0..4 {
        assert!(answered.recv().await.unwrap().1);
    }
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
    assert_eq!(*traffic.pausing().borrow(), 0);
}

#[tokio::test]
async fn however_many_lesser_writes_pause_a_start_and_an_admission_have_places() {
    let (client, gate, sent) = all_gated();
    gate.add_permits(1_000);
    let (answering, _answered) = noting();
    let full = answering.intake.place(usize::MAX).await;
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    for id in 0..200 {
        writer.write(0, WriteRequest { purpose: Purpose::CreateWorkload, ..request(id, &format!("w{id}")) });
    }
    settled().await;
    let count = || sent.lock().unwrap().len();
    assert_eq!(count(), limit::HIGHEST * 5 / 4, "the others wait");
    for (id, purpose) in [(200, Purpose::StartJob), (201, Purpose::ReserveQuota)] {
        writer.write(0, WriteRequest { purpose, ..request(id, &format!("first-{id}")) });
    }
    settled().await;
    let last: Vec<_> = sent.lock().unwrap().iter().skip(limit::HIGHEST * 5 / 4).cloned().collect();
    assert_eq!(last, ["first-200", "first-201"]);
    drop(full);
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn a_write_of_many_requests_does_not_keep_tokens_from_a_start() {
    let client = fake_api::client(|method: Method, _: Uri, _: Bytes| async move {
        if method == Method::GET {
            let pod = |at: u32| {
                json!({"metadata": {"name": format!("p{at}"), "uid": format!("u{at}"),
                "ownerReferences": [{"uid": "a", "controller": true}]}})
            };
            return found(&json!({"metadata": {}, "items": (0..100).map(pod).collect::<Vec<_>>()}));
        }
        object_named("x")
    });
    let (answering, mut answered) = noting();
    let (supervisor, _fatals, _stopper) = supervisor();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let writer = Writer::start(&supervisor, server, Versions::default(), 50.0, 1, answering);
    writer.write(0, look(0, EndPods::Delete));
    writer.write(0, WriteRequest { purpose: Purpose::StartJob, ..request(1, "start") });
    assert_eq!(answered.recv().await.unwrap(), (1, true), "before the hundred pods are deleted");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn what_is_withdrawn_before_it_is_sent_is_answered_and_never_sent() {
    let (client, gate, sent) = all_gated();
    let (reported, mut answered) = mpsc::unbounded_channel();
    let backlogs: Seen<WaitingWrites> = Arc::default();
    let backlog = Arc::clone(&backlogs);
    let answering = Answering {
        backlog: Arc::new(move |waiting| backlog.lock().unwrap().push(waiting)),
        meter: Arc::new(|_, _, _| {}),
        answers: Arc::new(move |_, id, answer, _, _| reported.send((id.0, answer)).unwrap()),
        poison: Arc::new(|_, _| {}),
        intake: Intake::default(),
    };
    let traffic = Traffic::default();
    let limit = u64::try_from(traffic.limit()).unwrap();
    let server = Server::new(client, Deadline::never(), traffic);
    let (writer, _kept) = started(server, answering);
    let waiting = limit + 20;
    for id in 0..waiting {
        writer.write(0, WriteRequest { purpose: Purpose::Pend, ..request(id, &format!("w{id}")) });
    }
    writer.withdraw(0, EffectId(waiting - 1));
    assert_eq!(answered.recv().await.unwrap(), (waiting - 1, Err(WriteError::Withdrawn)));
    // Of another engine, and sent already: nothing comes of these.
    writer.withdraw(1, EffectId(waiting - 2));
    writer.withdraw(0, EffectId(0));
    gate.add_permits(1_000);
    assert!(writer.clone().is_quiet(Duration::from_mins(1)).await);
    assert_eq!(u64::try_from(sent.lock().unwrap().len()).unwrap(), waiting - 1);
    assert!(!sent.lock().unwrap().contains(&format!("w{}", waiting - 1)));
    let all: Vec<_> = backlogs.lock().unwrap().iter().map(|waiting| waiting.all).collect();
    assert_eq!((all.first(), all.last()), (Some(&16), Some(&0)));
    assert!(
        backlogs.lock().unwrap().iter().all(|waiting| waiting.ahead == 0),
        "a decision goes before reports"
    );
}

#[tokio::test]
async fn readiness_that_admissions_wait_for_is_withdrawn_as_a_report_is() {
    let (client, gate, sent) = all_gated();
    let (answering, mut answered) = noting();
    let traffic = Traffic::default();
    let last = u64::try_from(traffic.limit()).unwrap();
    let (writer, _kept) = started(Server::new(client, Deadline::never(), traffic), answering);
    for id in 0..=last {
        writer.write(0, WriteRequest { purpose: Purpose::Unblock, ..request(id, &format!("w{id}")) });
    }
    writer.withdraw(0, EffectId(last));
    assert_eq!(answered.recv().await.unwrap(), (last, false));
    gate.add_permits(1_000);
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
    assert!(!sent.lock().unwrap().contains(&format!("w{last}")));
}
