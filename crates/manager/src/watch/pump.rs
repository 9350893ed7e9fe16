//! One watch: raw events of one kind, turned into inputs. `Init … InitDone` becomes a set difference.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use sluice_engine::input::{Input, Kind, Object, ObjectRef};
use tokio::sync::watch;
use tracing::{debug, warn};

use super::document::{Document, Documented};
use super::sync::SyncTracker;
use crate::error_chain::Chain;
use crate::shutdown::Stop;
use crate::takeover::{self, Lists};

/// The longest pause after failures: an API server that is back should not wait long for us.
const LONGEST: Duration = Duration::from_secs(5);

/// What a watch tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Feed {
    /// For the engine; with the document of the object that it carries, while documents are kept.
    Input(Input, Document),
    /// Everything has been listed in this epoch.
    Synced(u64),
}

/// Takes it to the engine.
pub type Sink = Arc<dyn Fn(Feed) + Send + Sync>;

/// What every pump shares.
#[derive(Clone)]
pub struct Shared {
    /// Where inputs go.
    pub sink: Sink,
    /// Which kinds were listed.
    pub sync: Arc<SyncTracker>,
    /// Changes when everything must be listed anew.
    pub epoch: watch::Receiver<u64>,
    /// Asks for lists of our own kinds and of jobs.
    pub lists: Lists,
    /// Which objects of the kind are watched.
    pub selector: Selector,
    /// Ends the pump.
    pub stop: Stop,
}

/// Which objects of a kind are watched: all, where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Selector {
    /// A field selector.
    pub fields: Option<&'static str>,
    /// A label selector.
    pub labels: Option<&'static str>,
}

/// What a list is for.
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

/// One decoded object, or what is known of one that could not be decoded.
pub enum Decoded {
    /// It is usable.
    Object(Object),
    /// It is malformed: what was known of it stays.
    Malformed(String),
}

/// Something that a watch can deliver and that becomes an engine's object.
pub trait Watched: Resource<DynamicType: Clone> + Clone + Debug + DeserializeOwned + Send + 'static {
    /// Decodes it.
    fn decode(self) -> Decoded;
}

impl<K> Watched for DeserializeGuard<K>
where
    K: Watched,
    K::DynamicType: Clone,
{
    fn decode(self) -> Decoded {
        match self.0 {
            Ok(object) => object.decode(),
            Err(invalid) => Decoded::Malformed(invalid.error),
        }
    }
}

/// Watches a kind until stopped or, if `optional`, until the kind is gone.
pub async fn pump<K: Watched>(
    api: Api<Documented<K>>,
    kind: Kind,
    optional: bool,
    mut shared: Shared,
) -> Ended {
    shared.lists.begin(kind);
    loop {
        let round = Round { epoch: *shared.epoch.borrow_and_update(), turn: shared.lists.turn() };
        debug!(kind = kind.plural(), ?round, "watching");
        if let Some(ended) = run(&api, kind, optional, round, &mut shared).await {
            shared.lists.end(kind);
            return ended;
        }
    }
}

/// Runs one watch; nothing when it must begin anew.
async fn run<K: Watched>(
    api: &Api<Documented<K>>,
    kind: Kind,
    optional: bool,
    round: Round,
    shared: &mut Shared,
) -> Option<Ended> {
    let Selector { fields, labels } = shared.selector;
    let config = watcher::Config {
        field_selector: fields.map(str::to_owned),
        label_selector: labels.map(str::to_owned),
        ..watcher::Config::default()
    };
    let mut stream = Box::pin(watcher(api.clone(), config));
    let mut listing = Listing::default();
    let mut failures = 0_u32;
    loop {
        let event = tokio::select! {
            event = stream.next() => event?,
            changed = shared.epoch.changed() => {
                return changed.is_err().then_some(Ended::Stopped);
            }
            () = shared.lists.asked(), if takeover::concerns(kind) => return None,
            () = shared.stop.stopped() => return Some(Ended::Stopped),
        };
        match event {
            Ok(event) => {
                failures = 0;
                deliver(event, kind, round, shared, &mut listing);
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                if optional && is_not_found(&error) {
                    return Some(Ended::Gone);
                }
                complain(kind, &error, failures);
                shared.sync.failing(kind, &Chain(&error).to_string());
                let pause = Duration::from_millis(200).saturating_mul(1 << failures.min(6)).min(LONGEST);
                if !shared.stop.sleep(pause).await {
                    return Some(Ended::Stopped);
                }
            }
        }
    }
}

/// A list that is under way.
#[derive(Default)]
struct Listing {
    present: Vec<ObjectRef>,
    /// The newest version in it. The list itself is at least as new; the watcher does not tell its version.
    as_of: u64,
}

fn deliver<K: Watched>(
    event: Event<Documented<K>>,
    kind: Kind,
    round: Round,
    shared: &Shared,
    listing: &mut Listing,
) {
    match event {
        Event::Init => *listing = Listing::default(),
        Event::InitApply(object) => {
            let found = reference(&object, kind);
            let version = object.resource_version().and_then(|version| version.parse().ok());
            listing.as_of = listing.as_of.max(version.unwrap_or(0));
            apply(object, &found, shared);
            listing.present.push(found);
        }
        Event::InitDone => {
            let Listing { present, as_of } = std::mem::take(listing);
            (shared.sink)(Feed::Input(Input::Listed { kind, present, as_of: Some(as_of) }, None));
            if shared.sync.listed(kind, round.epoch) {
                (shared.sink)(Feed::Synced(round.epoch));
            }
            shared.lists.delivered(kind, round.turn);
        }
        Event::Apply(object) => {
            let found = reference(&object, kind);
            apply(object, &found, shared);
        }
        Event::Delete(object) => {
            let uid = object.uid().map(Into::into);
            let object = reference(&object, kind);
            (shared.sink)(Feed::Input(Input::Deleted { object, uid }, None));
        }
    }
}

fn apply<K: Watched>(seen: Documented<K>, found: &ObjectRef, shared: &Shared) {
    match seen.object.decode() {
        Decoded::Object(object) => (shared.sink)(Feed::Input(Input::Applied(object), seen.document)),
        Decoded::Malformed(why) => {
            warn!(object = %found, %why, "malformed object: what was known of it stays in force");
        }
    }
}

fn reference<K: Resource>(object: &K, kind: Kind) -> ObjectRef {
    let meta = object.meta();
    ObjectRef {
        kind,
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
    }
}

/// Loud at first, then about once a minute.
fn complain(kind: Kind, error: &watcher::Error, failures: u32) {
    let desync = matches!(error, watcher::Error::WatchError(status) if status.code == 410);
    if !desync && (failures <= 2 || failures.is_multiple_of(12)) {
        warn!(kind = kind.plural(), failures, error = %Chain(error), "the watch failed; it goes on by itself");
    } else {
        debug!(kind = kind.plural(), failures, error = %Chain(error), "the watch failed");
    }
}

fn is_not_found(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(source) | watcher::Error::WatchStartFailed(source)) = error else {
        return false;
    };
    matches!(source, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use sluice_api::slim;

    fn shared() -> (Shared, Arc<Mutex<Vec<Feed>>>) {
        let inputs = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&inputs);
        let (_, stop) = crate::shutdown::pair();
        let shared = Shared {
            sink: Arc::new(move |feed| seen.lock().unwrap().push(feed)),
            sync: Arc::new(SyncTracker::new([Kind::Namespace])),
            epoch: watch::channel(0).1,
            lists: crate::takeover::pair().1,
            selector: Selector::default(),
            stop,
        };
        (shared, inputs)
    }

    fn namespace(name: &str) -> slim::Namespace {
        let version = Some(if name == "a" { "7" } else { "5" }.to_owned());
        let name = Some(name.to_owned());
        slim::Namespace { metadata: ObjectMeta { name, resource_version: version, ..ObjectMeta::default() } }
    }

    #[test]
    fn a_list_ends_with_everything_that_is_present_and_completes_the_sync() {
        let (shared, inputs) = shared();
        let mut listing = Listing::default();
        let events = [
            Event::Init,
            Event::InitApply(namespace("a").into()),
            Event::InitApply(namespace("b").into()),
            Event::InitDone,
            Event::Delete(namespace("b").into()),
        ];
        for event in events {
            deliver(event, Kind::Namespace, Round::default(), &shared, &mut listing);
        }
        let at = |name: &str| ObjectRef::cluster(Kind::Namespace, name);
        let inputs = inputs.lock().unwrap();
        assert_eq!(inputs.len(), 5);
        assert!(matches!(&inputs[0], Feed::Input(Input::Applied(o), None) if o.object_ref() == at("a")));
        let present = vec![at("a"), at("b")];
        assert_eq!(
            inputs[2],
            Feed::Input(Input::Listed { kind: Kind::Namespace, present, as_of: Some(7) }, None)
        );
        assert_eq!(inputs[3], Feed::Synced(0));
        assert_eq!(inputs[4], Feed::Input(Input::Deleted { object: at("b"), uid: None }, None));
    }

    #[test]
    fn a_malformed_object_is_left_as_it_was_known() {
        let (shared, inputs) = shared();
        let mut listing = Listing::default();
        let invalid = kube::core::error_boundary::InvalidObject {
            error: "wrong type".to_owned(),
            metadata: ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() },
        };
        for event in [
            Event::Init,
            Event::InitApply(DeserializeGuard::<slim::Namespace>(Err(invalid)).into()),
            Event::InitDone,
        ] {
            deliver(event, Kind::Namespace, Round::default(), &shared, &mut listing);
        }
        let inputs = inputs.lock().unwrap();
        let present = vec![ObjectRef::cluster(Kind::Namespace, "a")];
        let listed = Feed::Input(Input::Listed { kind: Kind::Namespace, present, as_of: Some(0) }, None);
        assert_eq!(*inputs, [listed, Feed::Synced(0)]);
    }
}
