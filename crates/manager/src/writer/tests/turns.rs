//! When nothing waits any more, and which write has the next slot.

use std::pin::pin;

use futures::FutureExt as _;

use super::*;

#[tokio::test]
async fn what_was_queued_a_moment_ago_is_waited_for_before_the_pool_took_it() {
    const QUEUED: usize = 20;
    let client = fake_api::client(|_: Method, uri: Uri, _: Bytes| async move {
        let name = uri.path().rsplit('/').next().unwrap().to_owned();
        let metadata = json!({"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "2"});
        found(&json!({"metadata": metadata, "spec": {}}))
    });
    let (answering, mut answered) = noting();
    let (supervisor, _fatals, _stopper) = supervisor();
    let server = Server::new(client, Deadline::never(), Traffic::default());
    let writer = Writer::start(&supervisor, server, Versions::default(), 0.0, 0, answering);
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
