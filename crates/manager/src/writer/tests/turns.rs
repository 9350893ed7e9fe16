//! When nothing waits any more, and which write has the next slot.

use std::pin::pin;

use futures::FutureExt as _;

use super::*;

#[tokio::test]
async fn what_was_queued_a_moment_ago_is_waited_for_before_the_pool_took_it() {
    const QUEUED: usize = 20;
    let client = fake_api::client(|_: Method, uri: Uri, _: Bytes| async move {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        object_named(&name)
    });
    let (answering, mut answered) = noting();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    settled().await;
    for id in 0..QUEUED {
        writer.write(0, request(u64::try_from(id).unwrap(), &format!("w-{id}")));
    }
    let mut drained = pin!(writer.clone().drain(Duration::from_mins(1)));
    let mut is_quiet = pin!(writer.is_quiet(Duration::from_mins(1)));
    // The pool has no turn meanwhile, as on another thread that is busy: what it said last is that it has nothing to do.
    for _ in 0..10 {
        assert_eq!(drained.as_mut().now_or_never(), None);
        assert_eq!(is_quiet.as_mut().now_or_never(), None);
    }
    assert!(drained.await && is_quiet.await);
    let all = std::iter::from_fn(|| answered.try_recv().ok()).filter(|(_, is_done)| *is_done).count();
    assert_eq!(all, QUEUED);
}

#[tokio::test]
async fn a_start_that_paused_is_sent_again_while_others_wait() {
    let refused = Arc::new(Mutex::new(0));
    let count = Arc::clone(&refused);
    let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        let is_first = name == "start" && std::mem::replace(&mut *count.lock().unwrap(), 1) == 0;
        async move {
            if is_first {
                return fake_api::failed(503, "ServiceUnavailable");
            }
            object_named(&name)
        }
    });
    let (answering, mut answered) = noting();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let (writer, _kept) = started(server, answering);
    writer.write(0, WriteRequest { purpose: Purpose::StartJob, ..request(0, "start") });
    for id in 1..200 {
        writer.write(0, request(id, &format!("w-{id}")));
    }
    // As many wait all the time.
    for id in 200.. {
        let (done, is_ok) = answered.recv().await.unwrap();
        assert!(is_ok, "{done} is given back");
        if done == 0 {
            break;
        }
        writer.write(0, request(id, &format!("w-{id}")));
    }
    assert_eq!(*refused.lock().unwrap(), 1);
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}

#[tokio::test]
async fn a_start_has_the_next_slot_although_lesser_writes_come_back_from_their_pauses() {
    const REFUSED: u64 = 40;
    let (client, gate, sent) = gated(|name| match name.split_once('-') {
        Some(("refused", _)) => (false, fake_api::failed(503, "ServiceUnavailable")),
        Some(("busy", _)) => (true, fake_api::failed(404, "NotFound")),
        _ => (false, object_named(name)),
    });
    let (answering, mut answered) = noting();
    let traffic = Traffic::default();
    let slots = u64::try_from(traffic.limit()).unwrap();
    let server = Server::new(client, Deadline::never(), traffic.clone());
    let (writer, _kept) = started(server, answering);
    for id in 0..REFUSED {
        writer.write(0, request(id, &format!("refused-{id}")));
    }
    // These have all slots while the others pause.
    for id in REFUSED..REFUSED + slots {
        writer.write(0, request(id, &format!("busy-{id}")));
    }
    // The first one is given back: the others have looked for a slot, too.
    assert!(!answered.recv().await.unwrap().1);
    assert_eq!(traffic.returning(), 0, "they wait for no slot in order");
    let busy = || sent.lock().unwrap().iter().filter(|name| name.starts_with("busy")).count();
    while busy() < traffic.limit() {
        tokio::task::yield_now().await;
    }
    let before = sent.lock().unwrap().len();
    writer.write(0, WriteRequest { purpose: Purpose::StartJob, ..request(1_000, "start") });
    settled().await;
    gate.add_permits(1);
    while sent.lock().unwrap().len() == before {
        tokio::task::yield_now().await;
    }
    assert_eq!(sent.lock().unwrap()[before], "start");
    writer.abandon();
    assert!(writer.is_quiet(Duration::from_mins(1)).await);
}
