//! One watch: events of one kind, turned into inputs. `Init … InitDone` becomes a set difference.

use std::pin::pin;
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
        if let Some(ended) = run::<K>(&client, kind, optional, round, &shared).await {
            shared.lists.end(kind);
            match ended {
                Ended::Stopped => shared.sync.forget(kind),
                // It may be there all the same.
                Ended::Gone => shared.sync.lost(kind),
            }
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
    shared: &Shared,
) -> Option<Ended> {
    let source = Source::new(client.clone(), &kind.collection(K::version(kind), None), shared.selector);
    let mut failures = Failures::new(&shared.pauses);
    let (sync, answered) = (Arc::clone(&shared.sync), failures.answered());
    let mut source = source.on_sign_of_life(move || {
        sync.heard(kind);
        answered.report();
    });
    let mut listing = Listing::default();
    // One for all events: each would have to be waited for anew.
    let mut end = pin!(end_of(kind, shared));
    loop {
        let event = tokio::select! {
            event = source.next() => event,
            ended = &mut end => return ended,
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
                    ended = &mut end => return ended,
                }
            }
        }
    }
}

/// Waits until a watch that begins now is to end, or, when it gives nothing, to begin again.
fn end_of(kind: Kind, shared: &Shared) -> impl Future<Output = Option<Ended>> + use<> {
    let (mut epoch, mut lists, mut stop) = (shared.epoch.clone(), shared.lists.clone(), shared.stop.clone());
    async move {
        tokio::select! {
            changed = epoch.changed() => changed.is_err().then_some(Ended::Stopped),
            () = lists.asked(), if takeover::concerns(kind) => None,
            () = stop.stopped() => Some(Ended::Stopped),
        }
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
        // Its answer was first.
        Event::Apply(seen) if is_echo(&seen.meta, kind, shared) => {}
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

/// Whether an event shows nothing but our own write, which the engine has. What a list has is always taken to the engine.
fn is_echo(meta: &Meta, kind: Kind, shared: &Shared) -> bool {
    matches!(kind, Kind::Workload | Kind::Job(_)) && shared.known.is_echo(&meta.uid, &meta.resource_version)
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
pub(crate) mod tests;
