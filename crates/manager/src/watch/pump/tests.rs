use super::*;
use std::sync::Mutex;

use axum::body::{Body, Bytes};
use axum::http::{Method, Uri};
use axum::response::Response;
use futures::FutureExt as _;
use serde_json::json;
use sluice_api::slim;
use sluice_engine::Backoff;
use tokio::sync::mpsc;

use crate::fake_api::{self, failed, found, list};
use crate::shutdown::Stopper;
use crate::takeover::Takeover;
use crate::watch::source::tests::seen;

pub(crate) fn shared() -> (Shared, Arc<Mutex<Vec<Feed>>>) {
    let inputs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&inputs);
    let (_, stop) = crate::shutdown::pair();
    let shared = Shared {
        sink: Arc::new(move |feed, _| seen.lock().unwrap().push(feed)),
        intake: Intake::default(),
        known: Arc::default(),
        sync: Arc::new(SyncTracker::new([Kind::Namespace])),
        pauses: Pauses::default(),
        epoch: watch::channel(0).1,
        lists: crate::takeover::pair().1,
        selector: Selector::default(),
        stop,
        supervisor: crate::supervise::tests::supervisor().0,
    };
    (shared, inputs)
}

fn namespace(name: &str) -> Seen {
    let version = if name == "a" { "7" } else { "5" };
    seen(&json!({"metadata": {"name": name, "resourceVersion": version}}))
}

/// A kind that cannot be read without a panic.
#[derive(serde::Deserialize)]
struct Poisonous(slim::Namespace);

impl Watched for Poisonous {
    fn decode(self, kind: Kind) -> Object {
        assert!(self.0.metadata.name.as_deref() != Some("a"), "a poisonous object");
        self.0.decode(kind)
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_without_a_panic_is_set_aside_and_the_others_are_seen() {
    let (shared, inputs) = shared();
    let mut listing = Listing::default();
    let object = |name| Event::InitApply(namespace(name));
    for event in [Event::Init, object("a"), object("b"), Event::InitDone(9)] {
        deliver::<Poisonous>(event, Kind::Namespace, Round::default(), &shared, &mut listing).await;
    }
    let seen = inputs.lock().unwrap();
    let poison = ObjectRef::cluster(Kind::Namespace, "a");
    assert_eq!(seen[0], Feed::Poison(poison.clone(), "a poisonous object".to_owned()));
    assert!(matches!(&seen[1], Feed::Input(Input::Applied(o), _) if o.object_ref().name.as_ref() == "b"));
    assert!(matches!(&seen[2], Feed::Input(Input::Listed { present, .. }, _) if present.contains(&poison)));
}

#[tokio::test]
async fn a_list_ends_with_everything_that_is_present_and_completes_the_sync() {
    let (shared, inputs) = shared();
    let mut listing = Listing::default();
    let events = [
        Event::Init,
        Event::InitApply(namespace("a")),
        Event::InitApply(namespace("b")),
        // The list is newer than all its items.
        Event::InitDone(120),
        Event::Delete(namespace("b")),
    ];
    for event in events {
        deliver::<slim::Namespace>(event, Kind::Namespace, Round::default(), &shared, &mut listing).await;
    }
    let at = |name: &str| ObjectRef::cluster(Kind::Namespace, name);
    let inputs = inputs.lock().unwrap();
    assert_eq!(inputs.len(), 5);
    assert!(matches!(&inputs[0], Feed::Input(Input::Applied(o), None) if o.object_ref() == at("a")));
    let present = vec![at("a"), at("b")];
    assert_eq!(
        inputs[2],
        Feed::Input(Input::Listed { kind: Kind::Namespace, present, as_of: Some(120) }, None)
    );
    assert_eq!(inputs[3], Feed::Synced(0));
    assert_eq!(inputs[4], Feed::Input(Input::Deleted { object: at("b"), uid: None }, None));
}

#[tokio::test]
async fn a_watch_waits_while_too_much_waits_for_the_engine() {
    let (shared, inputs) = shared();
    let full = shared.intake.place(usize::MAX).await;
    let (event, mut listing) = (Event::Apply(namespace("a")), Listing::default());
    let mut delivered =
        Box::pin(deliver::<slim::Namespace>(event, Kind::Namespace, Round::default(), &shared, &mut listing));
    assert!(delivered.as_mut().now_or_never().is_none());
    assert!(inputs.lock().unwrap().is_empty());
    drop(full);
    delivered.await;
    assert_eq!(inputs.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_malformed_object_is_left_as_it_was_known() {
    let (shared, inputs) = shared();
    let mut listing = Listing::default();
    let malformed = seen(&json!({"metadata": {"name": "a", "labels": "wrong type"}}));
    for event in [Event::Init, Event::InitApply(malformed), Event::InitDone(9)] {
        deliver::<slim::Namespace>(event, Kind::Namespace, Round::default(), &shared, &mut listing).await;
    }
    let inputs = inputs.lock().unwrap();
    let present = vec![ObjectRef::cluster(Kind::Namespace, "a")];
    let listed = Feed::Input(Input::Listed { kind: Kind::Namespace, present, as_of: Some(9) }, None);
    assert_eq!(*inputs, [listed, Feed::Synced(0)]);
}

#[tokio::test]
async fn the_event_of_a_write_whose_answer_the_engine_has_is_dropped_and_no_other() {
    let (shared, inputs) = shared();
    let shared = Shared { known: Arc::new(Known::with(|_| false)), ..shared };
    let workload = |uid: &str, version: &str| json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": version}});
    for (uid, is_taken) in [("taken", true), ("not-taken", false)] {
        let answer = serde_json::from_value(workload(uid, "7")).unwrap();
        assert_eq!(shared.known.copy_of(&Object::Workload(answer)), None);
        if is_taken {
            shared.known.taken(uid, "7");
        }
    }
    let mut listing = Listing::default();
    let full = shared.intake.place(usize::MAX).await;
    let echo = Event::Apply(seen(&workload("taken", "7")));
    deliver::<slim::Workload>(echo, Kind::Workload, Round::default(), &shared, &mut listing).await;
    drop(full);
    assert!(inputs.lock().unwrap().is_empty(), "it waits for no room either");
    shared.known.copy_of(&Object::Workload(serde_json::from_value(workload("taken", "7")).unwrap()));
    shared.known.taken("taken", "7");
    let events = [
        Event::InitApply(seen(&workload("taken", "7"))),
        Event::Apply(seen(&workload("not-taken", "7"))),
        Event::Apply(seen(&workload("taken", "8"))),
        Event::Delete(seen(&workload("taken", "7"))),
    ];
    let expected = ["taken 7", "not-taken 7", "taken 8", "taken is gone"];
    for event in events {
        deliver::<slim::Workload>(event, Kind::Workload, Round::default(), &shared, &mut listing).await;
    }
    let delivered = inputs.lock().unwrap();
    let said = |feed: &Feed| match feed {
        Feed::Input(Input::Applied(Object::Workload(workload)), _) => {
            let metadata = &workload.metadata;
            format!("{} {}", metadata.name.as_deref().unwrap(), metadata.resource_version.as_deref().unwrap())
        }
        Feed::Input(Input::Deleted { object, .. }, _) => format!("{} is gone", object.name),
        other => format!("{other:?}"),
    };
    assert_eq!(delivered.iter().map(said).collect::<Vec<_>>(), expected);
}

/// A pump of Workloads that runs: whether it asks for a watch each time, and what its rounds end with.
struct Running {
    asks: mpsc::UnboundedReceiver<bool>,
    sync: Arc<SyncTracker>,
    epoch: watch::Sender<u64>,
    takeover: Takeover,
    _stopper: Stopper,
}

impl Running {
    fn with(pauses: Backoff, answer: impl Fn(bool) -> Response + Clone + Send + Sync + 'static) -> Self {
        let (asked, asks) = mpsc::unbounded_channel();
        let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
            let watches = uri.query().is_some_and(|query| query.contains("watch=true"));
            // The test may be over.
            let _ = asked.send(watches);
            std::future::ready(answer(watches))
        });
        let (stopper, stop) = crate::shutdown::pair();
        let (epoch, epochs) = watch::channel(0);
        let (takeover, lists) = crate::takeover::pair();
        let sync = Arc::new(SyncTracker::new([Kind::Workload]));
        let (shared, _) = shared();
        let shared = Shared {
            sync: Arc::clone(&sync),
            pauses: Pauses::of(pauses),
            epoch: epochs,
            lists,
            stop,
            ..shared
        };
        let watch = pump::<slim::Workload>(client, Kind::Workload, false, shared.clone());
        drop(shared.supervisor.spawn_finite("watch", async move {
            watch.await;
        }));
        Self { asks, sync, epoch, takeover, _stopper: stopper }
    }
}

#[tokio::test]
async fn a_kind_without_changes_does_not_wait_longer_each_time_its_watch_breaks() {
    let broken = |watches: bool| {
        let breaks = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("broken"))]);
        if watches { Response::new(Body::from_stream(breaks)) } else { found(&list("9", &[])) }
    };
    let mut running = Running::with(Backoff::millis(1, 36_000_000), broken);
    let asks = async {
        for ask in 0..40 {
            assert_eq!(running.asks.recv().await, Some(ask > 0));
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), asks).await.unwrap();
}

#[tokio::test]
async fn a_pause_ends_when_everything_is_to_be_listed() {
    let wakes: [fn(&mut Running); 2] =
        [|running| running.takeover.ask(), |running| running.epoch.send(1).unwrap()];
    for wake in wakes {
        let mut running = Running::with(Backoff::seconds(36_000, 36_000), |_| failed(500, "InternalError"));
        assert_eq!(running.asks.recv().await, Some(false));
        while running.sync.missing() == ["workloads"] {
            tokio::task::yield_now().await;
        }
        wake(&mut running);
        assert_eq!(running.asks.recv().await, Some(false));
    }
}

#[tokio::test]
async fn a_watch_that_never_pauses_begins_again_when_everything_is_to_be_listed() {
    let wakes: [fn(&mut Running); 2] =
        [|running| running.takeover.ask(), |running| running.epoch.send(1).unwrap()];
    for wake in wakes {
        let busy = |watches: bool| {
            let line =
                json!({"type": "MODIFIED", "object": {"metadata": {"name": "w", "resourceVersion": "10"}}});
            let line = Bytes::from(format!("{line}\n"));
            let lines = futures::stream::repeat_with(move || Ok::<_, std::io::Error>(line.clone()));
            if watches { Response::new(Body::from_stream(lines)) } else { found(&list("9", &[])) }
        };
        let mut running = Running::with(Backoff::millis(1, 1), busy);
        for watches in [false, true] {
            assert_eq!(running.asks.recv().await, Some(watches));
        }
        wake(&mut running);
        assert_eq!(running.asks.recv().await, Some(false));
    }
}
