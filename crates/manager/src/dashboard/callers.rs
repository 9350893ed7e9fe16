//! Callers of the manager: owners of tokens, and the namespaces in which the API server lets them read Workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use kube::Client;
use serde_json::json;
use sluice_api::names::dns1123_label_error;
use sluice_engine::Name;
use tokio::sync::Semaphore;

use super::rights::{REMEMBER, Right, Rights};
use super::source::{Callers, Found};
use super::store::Store;
use super::viewer::{Caller, Viewer};
use crate::access::{Access, AccessError, Asking, Attributes, Rate, TurnsByUser, User, bearer};
use crate::visibility::route::{EXPLAIN_GROUP, EXPLAIN_VERSION};
use crate::visibility::server::{MASTERS, refused};
use crate::visibility::status::Refusal;

/// The highest and the lowest number of users that are remembered, and the namespaces of all of them.
const MOST_USERS: usize = 256;
const LEAST_USERS: usize = 16;
const MOST_ANSWERS: usize = 400_000;
/// Simultaneous questions to the API server, for one user and for all.
const AT_ONCE: usize = 16;
const ALL_AT_ONCE: usize = 64;
/// How long a request waits for the answers about all namespaces: until the first permission is found, and after that.
const PATIENCE: Duration = Duration::from_secs(45);
const SHORT: Duration = Duration::from_secs(10);
/// Between two looks whether there are turns.
const REST: Duration = Duration::from_millis(50);
/// Questions about one user, and about all.
const EACH: Rate = Rate { burst: 1100, per_second: 100 };
const ALL: Rate = Rate { burst: 5000, per_second: 500 };

/// The current time, and how to wait.
#[derive(Clone)]
struct Clock {
    now: Arc<dyn Fn() -> Instant + Send + Sync>,
    rest: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { now: Arc::new(Instant::now), rest: Arc::new(|| Box::pin(tokio::time::sleep(REST))) }
    }
}

/// A known user. One request at a time asks questions.
#[derive(Debug)]
struct KnownUser {
    used: Instant,
    rights: Arc<tokio::sync::Mutex<Rights>>,
}

/// Owners of tokens.
pub struct Tokens {
    access: Access,
    store: Arc<Store>,
    /// By what the API server says of a user.
    known: Mutex<BTreeMap<String, KnownUser>>,
    turns: Mutex<TurnsByUser>,
    asking: Semaphore,
    clock: Clock,
}

impl Tokens {
    /// Callers that the client's API server authenticates; the namespaces are those of the store.
    pub fn new(client: Client, store: Arc<Store>) -> Self {
        Self {
            access: Access::new(client, REMEMBER),
            store,
            known: Mutex::default(),
            turns: Mutex::new(TurnsByUser::new(EACH, ALL, Instant::now())),
            asking: Semaphore::new(ALL_AT_ONCE),
            clock: Clock::default(),
        }
    }

    /// The known rights of a user; if there are too many users, others are dropped.
    fn rights(&self, key: String, namespaces: usize) -> Arc<tokio::sync::Mutex<Rights>> {
        let used = (self.clock.now)();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let most = (MOST_ANSWERS / namespaces.max(1)).clamp(LEAST_USERS, MOST_USERS);
        while known.len() >= most && !known.contains_key(&key) {
            let oldest = known.iter().min_by_key(|(_, known)| known.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            known.remove(&oldest);
        }
        let own = known.entry(key).or_insert_with(|| KnownUser { used, rights: Arc::default() });
        own.used = used;
        Arc::clone(&own.rights)
    }

    /// What a user may see; the question about the `named` namespace is always asked.
    async fn of_user(&self, user: &User, named: Option<&str>) -> Result<Caller, Refusal> {
        if user.groups.iter().any(|group| group == MASTERS) {
            let user = user.username.clone();
            let viewer = Viewer { user, all: true, nodes: true, queues: true, ..Viewer::default() };
            return Ok(Caller { viewer, unasked: 0 });
        }
        let snapshot = self.store.snapshot();
        let none = BTreeSet::new();
        let all = snapshot.as_ref().map_or(&none, |snapshot| snapshot.namespaces());
        let rights = self.rights(json!(user).to_string(), all.len());
        let Ok(mut rights) = tokio::time::timeout(PATIENCE, rights.lock_owned()).await else {
            return Err(Refusal::TooMany("your rights are still being asked about: try again".to_owned()));
        };
        let named = named.filter(|name| dns1123_label_error(name).is_none());
        let first: Vec<Name> = named.into_iter().chain(own(user)).map(Name::from).collect();
        let failed = self.ask(user, &mut rights, (all, &first)).await.err();
        let now = (self.clock.now)();
        let caller = rights.caller(&user.username, all, now);
        let viewer = &caller.viewer;
        let answered = named.is_none_or(|named| viewer.sees(named));
        match failed {
            Some(error) if !viewer.sees_any() || !answered => Err(refused(error)),
            _ if snapshot.is_none() && !viewer.all => {
                Err(Refusal::Unavailable("not everything has been listed yet".to_owned()))
            }
            _ => Ok(caller),
        }
    }

    /// Asks what is unknown or out of date, for as long as a request may wait.
    async fn ask(
        &self,
        user: &User,
        rights: &mut Rights,
        (all, named): (&BTreeSet<Name>, &[Name]),
    ) -> Result<(), AccessError> {
        let began = (self.clock.now)();
        loop {
            let now = (self.clock.now)();
            let questions = rights.questions(all, named, now);
            let waits = !questions.due.is_empty();
            let patience = if rights.sees_any(now) { SHORT } else { PATIENCE };
            if waits && now.saturating_duration_since(began) >= patience {
                return Ok(());
            }
            let wanted = if waits { questions.due } else { questions.soon };
            let mut wanted = wanted.into_iter().peekable();
            while wanted.peek().is_some() {
                let mut some = Vec::new();
                while some.len() < AT_ONCE && wanted.peek().is_some() && self.has_turn(user) {
                    some.extend(wanted.next());
                }
                if some.is_empty() {
                    break;
                }
                self.put(user, rights, some).await?;
            }
            if !waits {
                return Ok(());
            }
            if wanted.peek().is_some() {
                (self.clock.rest)().await;
            }
        }
    }

    fn has_turn(&self, user: &User) -> bool {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.take(&user.username, (self.clock.now)())
    }

    /// Asks these questions, all at once.
    async fn put(&self, user: &User, rights: &mut Rights, some: Vec<Right>) -> Result<(), AccessError> {
        let now = (self.clock.now)();
        let answers = futures::stream::iter(some).map(|right| async move {
            let _turn = self.asking.acquire().await;
            let may = self.access.review(user, &attributes(&right)).await;
            (right, may)
        });
        let answers: Vec<_> = answers.buffer_unordered(AT_ONCE).collect().await;
        let mut outcome = Ok(());
        for (right, may) in answers {
            match may {
                Ok(may) => rights.put(right, may, now),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    async fn may(&self, user: &User, what: &Attributes) -> Result<bool, Refusal> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(true);
        }
        self.access.may(user, what).await.map_err(refused)
    }

    async fn user(&self, Asking { headers, from }: Asking<'_>) -> Result<User, Refusal> {
        let Some(token) = bearer(headers) else { return Err(Refusal::Unauthorized) };
        self.access.user_of(token, from).await.map_err(refused)?.ok_or(Refusal::Unauthorized)
    }
}

/// The namespace of a ServiceAccount.
fn own(user: &User) -> Option<&str> {
    user.username.strip_prefix("system:serviceaccount:")?.split(':').next().filter(|name| !name.is_empty())
}

fn attributes(right: &Right) -> Attributes {
    match right {
        Right::All => workloads(""),
        Right::Nodes => Attributes::list_nodes(),
        Right::Queues => Attributes::list_cluster_queues(),
        Right::In(namespace) => workloads(namespace),
    }
}

fn workloads(namespace: &str) -> Attributes {
    Attributes::Object {
        verb: "get",
        group: "kueue.x-k8s.io",
        version: "v1beta2",
        resource: "workloads",
        subresource: "",
        namespace: namespace.to_owned(),
        name: String::new(),
    }
}

/// To read what happened to the objects of a namespace.
fn events(namespace: &str) -> Attributes {
    Attributes::Object {
        verb: "list",
        group: "",
        version: "v1",
        resource: "events",
        subresource: "",
        namespace: namespace.to_owned(),
        name: String::new(),
    }
}

/// The same right that the visibility API requires.
fn explanations(namespace: &str) -> Attributes {
    Attributes::Object {
        verb: "get",
        group: EXPLAIN_GROUP,
        version: EXPLAIN_VERSION,
        resource: "workloads",
        subresource: "explain",
        namespace: namespace.to_owned(),
        name: String::new(),
    }
}

impl Callers for Tokens {
    fn viewer<'a>(&'a self, asking: Asking<'a>, named: Option<&'a str>) -> Found<'a, Caller> {
        Box::pin(async move {
            let user = self.user(asking).await?;
            self.of_user(&user, named).await
        })
    }

    fn explains<'a>(&'a self, asking: Asking<'a>, namespace: &'a str) -> Found<'a, bool> {
        Box::pin(async move {
            let user = self.user(asking).await?;
            if self.may(&user, &explanations("")).await? {
                return Ok(true);
            }
            if self.may(&user, &explanations(namespace)).await? {
                return Ok(false);
            }
            let what = format!("workloads/explain of {EXPLAIN_GROUP} in the namespace {namespace:?}");
            Err(Refusal::Forbidden(format!("User {:?} cannot get {what}", user.username)))
        })
    }

    fn reads_events<'a>(&'a self, asking: Asking<'a>, namespace: &'a str) -> Found<'a, bool> {
        Box::pin(async move {
            let user = self.user(asking).await?;
            self.may(&user, &events(namespace)).await
        })
    }
}

#[cfg(test)]
mod tests;
