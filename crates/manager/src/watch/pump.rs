//! One watch: events of one kind, turned into inputs. `Init … InitDone` becomes a set difference.

use std::sync::Arc;

use kube::Client;
use serde::de::DeserializeOwned;
use sluice_client::error_chain::Chain;
use sluice_engine::input::{Input, Kind, Object, ObjectRef};
use tokio::sync::watch;
use tracing::{debug, warn};

use super::document::{Document, Documented};
use super::failures::{Failures, Pauses};
use super::known::Known;
use super::source::{Error, Event, Meta, Seen, Source};
use super::sync::SyncTracker;
use crate::intake::{Intake, Slot};
use crate::shutdown::Stop;
use crate::supervise::{Supervisor, guarded};
use crate::takeover::{self, Lists};

/// The size of an object in bytes if only its name is sent.
const NAME: usize = 128;

/// An item of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Feed {
    /// For the engine; with the document of the object that it carries, while documents are kept.
    Input(Input, Document),
    /// An object cannot be read without a panic.
    Poison(ObjectRef, String),
    /// Everything has been listed in this epoch.
    Synced(u64),
}

/// Takes it to the engine, where it keeps its place until it is taken in.
pub type Sink = Arc<dyn Fn(Feed, Slot) + Send + Sync>;

/// The state shared by all pumps.
#[derive(Clone)]
pub struct Shared {
    /// Where inputs go.
    pub sink: Sink,
    /// The inputs that wait for the engine.
    pub intake: Intake,
    /// Parts of objects that are known before a watch shows them.
    pub known: Arc<Known>,
    /// Which kinds were listed.
    pub sync: Arc<SyncTracker>,
    /// How long failed watches pause.
    pub pauses: Pauses,
    /// Changes when everything must be listed again.
    pub epoch: watch::Receiver<u64>,
    /// Asks for lists of our own kinds and of jobs.
    pub lists: Lists,
    /// Which objects of the kind are watched.
    pub selector: Selector,
    /// Ends the pump.
    pub stop: Stop,
    /// Watches over the pump.
    pub supervisor: Supervisor,
}

/// Which objects of a kind are watched: all by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selector {
    /// A field selector.
    pub fields: Option<&'static str>,
    /// A label selector.
    pub labels: Option<&'static str>,
    /// Whether only their metadata is wanted.
    pub metadata_only: bool,
}

/// The reason of a list.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    epoch: u64,
    /// The number of the list that was asked for last when it began.
    turn: u64,
}

/// Why a pump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By request.
    Stopped,
    /// The kind does not exist (any more).
    Gone,
}

/// Something that a watch can deliver and that becomes an engine's object.
pub trait Watched: DeserializeOwned + Send + 'static {
    /// Makes the object of it, which is of this kind.
    fn decode(self, kind: Kind) -> Object;

    /// Decodes an object, unless it is known already.
    ///
    /// # Errors
    ///
    /// If the text is not JSON of this type.
    fn read(seen: &Seen, _known: &Known) -> serde_json::Result<Documented<Self>> {
        seen.read()
    }

    /// The version in which it is watched.
    fn version(kind: Kind) -> &'static str {
        kind.version()
    }
}

/// Watches a kind until stopped or, if `optional`, until the kind is gone.
pub async fn pump<K: Watched>(client: Client, kind: Kind, optional: bool, mut shared: Shared) -> Ended {
    shared.lists.begin(kind);
    loop {
        let round = Round { epoch: *shared.epoch.borrow_and_update(), turn: shared.lists.turn() };
        debug!(kind = kind.plural(), ?round, "watching");
        if let Some(ended) = run::<K>(&client, kind, optional, round, &mut shared).await {
            shared.lists.end(kind);
            shared.sync.forget(kind);
            return ended;
        }
    }
}

/// Runs one watch; returns when it must begin again.
async fn run<K: Watched>(
    client: &Client,
    kind: Kind,
    optional: bool,
    round: Round,
    shared: &mut Shared,
) -> Option<Ended> {
    let source = Source::new(client.clone(), &kind.collection(K::version(kind), None), shared.selector);
    let mut failures = Failures::new(&shared.pauses);
    let (sync, answered) = (Arc::clone(&shared.sync), failures.answered());
    let mut source = source.on_sign_of_life(move || {
        sync.heard(kind);
        answered.report();
    });
    let mut listing = Listing::default();
    loop {
        let event = tokio::select! {
            event = source.next() => event,
            ended = ended(kind, shared) => return ended,
        };
        match event {
            Ok(event) => {
                if event.is_success() {
                    failures.succeeded();
                }
                deliver::<K>(event, kind, round, shared, &mut listing).await;
            }
            Err(error) => {
                if optional && error.is_not_found() {
                    return Some(Ended::Gone);
                }
                complain(kind, &error, failures.failed());
                shared.sync.failing(kind, &Chain(&error).to_string());
                if !error.is_desync() {
                    shared.sync.lost(kind);
                }
                tokio::select! {
                    () = failures.pause() => {}
                    ended = ended(kind, shared) => return ended,
                }
            }
        }
    }
}

/// Waits until a watch is to end, or, when it gives nothing, to begin again.
async fn ended(kind: Kind, shared: &mut Shared) -> Option<Ended> {
    tokio::select! {
        changed = shared.epoch.changed() => changed.is_err().then_some(Ended::Stopped),
        () = shared.lists.asked(), if takeover::concerns(kind) => None,
        () = shared.stop.stopped() => Some(Ended::Stopped),
    }
}

/// A list that is under way.
#[derive(Default)]
struct Listing {
    present: Vec<ObjectRef>,
}

async fn deliver<K: Watched>(event: Event, kind: Kind, round: Round, shared: &Shared, listing: &mut Listing) {
    match event {
        Event::Init => *listing = Listing::default(),
        Event::InitApply(seen) => {
            let found = reference(&seen.meta, kind);
            apply::<K>(&seen, &found, shared).await;
            listing.present.push(found);
        }
        Event::InitDone(as_of) => {
            let Listing { present } = std::mem::take(listing);
            let place = shared.intake.place(present.len() * NAME).await;
            (shared.sink)(Feed::Input(Input::Listed { kind, present, as_of: Some(as_of) }, None), place);
            if shared.sync.listed(kind, round.epoch) {
                (shared.sink)(Feed::Synced(round.epoch), Slot::default());
            }
            shared.lists.delivered(kind, round.turn);
        }
        Event::Apply(seen) => {
            let found = reference(&seen.meta, kind);
            apply::<K>(&seen, &found, shared).await;
        }
        Event::Delete(Seen { meta, .. }) => {
            let place = shared.intake.place(NAME).await;
            let object = reference(&meta, kind);
            let uid = (!meta.uid.is_empty()).then(|| meta.uid.into());
            (shared.sink)(Feed::Input(Input::Deleted { object, uid }, None), place);
        }
    }
}

/// Takes an object to the engine, decoded once there is room for it.
async fn apply<K: Watched>(seen: &Seen, found: &ObjectRef, shared: &Shared) {
    let place = shared.intake.place(seen.bytes()).await;
    let read = guarded(|| {
        let Documented { object, document } = K::read(seen, &shared.known)?;
        Ok::<_, serde_json::Error>((object.decode(found.kind), document))
    });
    match read {
        Ok(Ok((object, document))) => (shared.sink)(Feed::Input(Input::Applied(object), document), place),
        Ok(Err(why)) => {
            warn!(object = %found, %why, "malformed object: the last valid version stays in force");
        }
        Err(panic) => (shared.sink)(Feed::Poison(found.clone(), panic), place),
    }
}

fn reference(meta: &Meta, kind: Kind) -> ObjectRef {
    ObjectRef { kind, namespace: meta.namespace.as_str().into(), name: meta.name.as_str().into() }
}

/// Loud at first, then about once a minute.
fn complain(kind: Kind, error: &Error, failures: u32) {
    if !error.is_desync() && (failures <= 2 || failures.is_multiple_of(12)) {
        warn!(kind = kind.plural(), failures, error = %Chain(error), "the watch failed; it is retried");
    } else {
        debug!(kind = kind.plural(), failures, error = %Chain(error), "the watch failed");
    }
}

#[cfg(test)]
pub(crate) mod tests {
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
        assert!(
            matches!(&seen[2], Feed::Input(Input::Listed { present, .. }, _) if present.contains(&poison))
        );
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
        let mut delivered = Box::pin(deliver::<slim::Namespace>(
            event,
            Kind::Namespace,
            Round::default(),
            &shared,
            &mut listing,
        ));
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
            let mut running =
                Running::with(Backoff::seconds(36_000, 36_000), |_| failed(500, "InternalError"));
            assert_eq!(running.asks.recv().await, Some(false));
            while running.sync.missing() == ["workloads"] {
                tokio::task::yield_now().await;
            }
            wake(&mut running);
            assert_eq!(running.asks.recv().await, Some(false));
        }
    }
}
