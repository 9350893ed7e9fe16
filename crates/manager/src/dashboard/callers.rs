//! Callers of the manager: owners of tokens, and the namespaces in which the API server lets them read Workloads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use futures::StreamExt as _;
use kube::Client;
use serde_json::json;
use sluice_engine::Name;
use tokio::sync::Semaphore;

use super::source::{Callers, Found};
use super::store::Store;
use super::viewer::Viewer;
use crate::access::{Access, Attributes, Rate, User, bearer};
use crate::visibility::route::{EXPLAIN_GROUP, EXPLAIN_VERSION};
use crate::visibility::server::{MASTERS, refused};
use crate::visibility::status::Refusal;

/// What a user may see is asked again after this time.
const REMEMBER: Duration = Duration::from_secs(30);
/// Users who are remembered at most.
const MOST_USERS: usize = 256;
/// Namespaces of which it is asked whether a user may see them.
const MOST_NAMESPACES: usize = 1000;
/// Questions to the API server at once, for one user.
const AT_ONCE: usize = 16;
/// Users of whom it is asked at once, and how long the others wait.
const USERS_AT_ONCE: usize = 4;
const TURN: Duration = Duration::from_secs(10);
/// Questions about one user, and about all.
const EACH: Rate = Rate { burst: 1100, per_second: 50 };
const ALL: Rate = Rate { burst: 5000, per_second: 500 };

struct Known {
    since: Instant,
    viewer: Viewer,
}

/// Owners of tokens.
pub struct Tokens {
    access: Access,
    store: Arc<Store>,
    /// By what the API server says of a user.
    known: Mutex<BTreeMap<String, Known>>,
    asking: Semaphore,
}

impl Tokens {
    /// Callers whom the API server of the client knows; their namespaces are those of the store.
    pub fn new(client: Client, store: Arc<Store>) -> Self {
        let access = Access::with_rates(client, REMEMBER, EACH, ALL);
        Self { access, store, known: Mutex::default(), asking: Semaphore::new(USERS_AT_ONCE) }
    }

    fn known(&self, key: &str) -> Option<Viewer> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|known| known.since.elapsed() < REMEMBER).map(|known| known.viewer.clone())
    }

    fn remember(&self, key: String, viewer: &Viewer) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_USERS {
            known.retain(|_, known| known.since.elapsed() < REMEMBER);
        }
        if known.len() >= MOST_USERS {
            known.clear();
        }
        known.insert(key, Known { since: Instant::now(), viewer: viewer.clone() });
    }

    async fn of_user(&self, user: &User) -> Result<Viewer, Refusal> {
        let key = json!(user).to_string();
        if let Some(viewer) = self.known(&key) {
            return Ok(viewer);
        }
        let Ok(Ok(_turn)) = tokio::time::timeout(TURN, self.asking.acquire()).await else {
            return Err(Refusal::TooMany("too many callers are being checked: try again".to_owned()));
        };
        // The one before may have asked the same.
        if let Some(viewer) = self.known(&key) {
            return Ok(viewer);
        }
        let viewer = self.ask(user).await?;
        self.remember(key, &viewer);
        Ok(viewer)
    }

    /// What a user may see.
    async fn ask(&self, user: &User) -> Result<Viewer, Refusal> {
        let mut viewer = Viewer { user: user.username.clone(), ..Viewer::default() };
        let master = user.groups.iter().any(|group| group == MASTERS);
        viewer.all = master || self.may(user, &workloads("")).await?;
        viewer.nodes = master || self.may(user, &Attributes::list_nodes()).await?;
        if viewer.all {
            return Ok(viewer);
        }
        let not_yet = || Refusal::Unavailable("not everything has been listed yet".to_owned());
        let snapshot = self.store.snapshot().ok_or_else(not_yet)?;
        let all: BTreeSet<&Name> = snapshot.local_queues.keys().map(|(namespace, _)| namespace).collect();
        let namespaces: Vec<Name> = all.into_iter().take(MOST_NAMESPACES).cloned().collect();
        let asked = futures::stream::iter(namespaces).map(|namespace| async move {
            let may = self.may(user, &workloads(&namespace)).await?;
            Ok::<_, Refusal>(may.then_some(namespace))
        });
        let mut asked = asked.buffer_unordered(AT_ONCE);
        while let Some(answer) = asked.next().await {
            viewer.namespaces.extend(answer?);
        }
        Ok(viewer)
    }

    async fn may(&self, user: &User, what: &Attributes) -> Result<bool, Refusal> {
        self.access.may(user, what).await.map_err(refused)
    }

    async fn user(&self, headers: &HeaderMap) -> Result<User, Refusal> {
        let Some(token) = bearer(headers) else { return Err(Refusal::Unauthorized) };
        self.access.user_of(token).await.map_err(refused)?.ok_or(Refusal::Unauthorized)
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

/// The same right that the visibility API asks for.
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
    fn viewer<'a>(&'a self, headers: &'a HeaderMap) -> Found<'a, Viewer> {
        Box::pin(async move {
            let user = self.user(headers).await?;
            self.of_user(&user).await
        })
    }

    fn explains<'a>(&'a self, headers: &'a HeaderMap, namespace: &'a str) -> Found<'a, bool> {
        Box::pin(async move {
            let user = self.user(headers).await?;
            if user.groups.iter().any(|group| group == MASTERS) || self.may(&user, &explanations("")).await? {
                return Ok(true);
            }
            if self.may(&user, &explanations(namespace)).await? {
                return Ok(false);
            }
            let what = format!("workloads/explain of {EXPLAIN_GROUP} in the namespace {namespace:?}");
            Err(Refusal::Forbidden(format!("User {:?} cannot get {what}", user.username)))
        })
    }
}
