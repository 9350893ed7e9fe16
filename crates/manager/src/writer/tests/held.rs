//! What waits because a webhook is dead does not wait for the API server.

use futures::FutureExt as _;

use super::*;

#[tokio::test]
async fn what_a_dead_webhook_holds_back_makes_no_other_write_wait() {
    let traffic = Traffic::default();
    let (answering, mut answered) = noting();
    let (reported, mut reports) = mpsc::unbounded_channel();
    let numbers = traffic.clone();
    // With how many wait at that moment.
    let backlog: Backlog =
        Arc::new(move |waiting| reported.send((waiting, numbers.waiting(Class::Workloads))).unwrap());
    let server = Server::new(half_dead(), Deadline::never(), traffic.clone());
    let answering = Answering { backlog, ..answering };
    let (writer, _kept) = started(server, answering);
    for id in 0..300 {
        let object = ObjectRef::namespaced(Kind::Workload, "dead", format!("w{id}").as_str());
        writer.write(0, WriteRequest { object, ..request(id, "") });
    }
    let first = reports.recv().await.unwrap();
    assert_eq!((first.0.all, first.0.ahead), (288, 0), "the API server may be slow");
    // Later writes in another namespace show that it is not.
    let mut last = first;
    for id in 300.. {
        writer.write(0, request(id, &format!("live-{id}")));
        while answered.recv().await.unwrap() != (id, true) {}
        while let Ok(next) = reports.try_recv() {
            last = next;
        }
        if last.0.all == 0 {
            break;
        }
    }
    while last.0 != WaitingWrites::default() {
        last = reports.recv().await.unwrap();
    }
    assert!(last.1 >= 200, "{last:?}: they wait all the same");
    assert_eq!(traffic.room_for_event(0).now_or_never(), Some(()));
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn writes_that_were_queued_together_are_reported_to_the_engine_once() {
    let (answering, _answered) = noting();
    let (reported, mut reports) = mpsc::unbounded_channel();
    let answering = Answering { backlog: Arc::new(move |all| reported.send(all).unwrap()), ..answering };
    let server = Server::new(half_dead(), Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    for id in 0..100 {
        let object = ObjectRef::namespaced(Kind::Workload, "dead", format!("w{id}").as_str());
        writer.write(0, WriteRequest { object, ..request(id, "") });
    }
    settled().await;
    let mut reports: Vec<_> =
        std::iter::from_fn(|| reports.try_recv().ok()).map(|waiting| waiting.all).collect();
    // Whether the API server is busy is in these, too.
    reports.dedup();
    assert_eq!(reports, [80], "92 wait, and the engine learns that once");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}
