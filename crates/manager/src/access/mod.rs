//! Authentication and authorization: the API server is asked (TokenReview, SubjectAccessReview), and its answers are cached for a short while.
//!
//! Both are bounded: the cache in number and bytes, and the questions that requests cause, per address and in total.

pub mod front_proxy;
pub mod headers;
mod known;
mod one_each;
mod turns;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, header};
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::warn;

use crate::api_call::{Call, CallError, Content};
use known::Known;

pub use one_each::OneEach;
pub use turns::{Rate, Turns, TurnsByUser, party};

const TIMEOUT: Duration = Duration::from_secs(5);
/// The longest token, in bytes; those of service accounts have some hundreds.
const LONGEST: usize = 16 << 10;
/// Questions about unknown tokens from one address: this many at once, and then this many per second. Behind a proxy many users share one address.
const STRANGER: Rate = Rate { burst: 20, per_second: 1 };
/// The same for all addresses together.
const STRANGERS: Rate = Rate { burst: 40, per_second: 10 };
/// How often it is said at most that strangers are turned away.
const REPORT: Duration = Duration::from_mins(1);
/// Tokens that the API server authenticated last time: they do not wait behind unknown ones.
const RENEWALS: Rate = Rate { burst: 100, per_second: 20 };
/// Questions about the rights of one user.
const USER: Rate = Rate { burst: 40, per_second: 10 };
/// Questions about the rights of all users together.
const USERS: Rate = Rate { burst: 400, per_second: 100 };

/// A user that the API server has authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// The name.
    pub username: String,
    /// Distinguishes users of the same name.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator.
    pub extra: Value,
}

/// What a user wants to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Attributes {
    /// A request for a path instead of an object: verb and path.
    #[serde(rename = "nonResourceAttributes")]
    Path {
        /// As in `get`.
        verb: &'static str,
        /// The path.
        path: String,
    },
    /// With an object.
    #[serde(rename = "resourceAttributes")]
    Object {
        /// As in `get`.
        verb: &'static str,
        /// The API group.
        group: &'static str,
        /// The version of the group.
        version: &'static str,
        /// The plural name of the kind.
        resource: &'static str,
        /// The part of the object.
        subresource: &'static str,
        /// Its namespace; empty for all, and for kinds without.
        namespace: String,
        /// Its name; empty for all.
        name: String,
    },
}

impl Attributes {
    /// Broader requests: the same for all objects of all namespaces, and for all of its namespace.
    pub fn broader(&self) -> Vec<Self> {
        let Self::Object { verb, group, version, resource, subresource, namespace, name } = self else {
            return Vec::new();
        };
        let with = |namespace: &str| Self::Object {
            verb,
            group,
            version,
            resource,
            subresource,
            namespace: namespace.to_owned(),
            name: String::new(),
        };
        let mut all = Vec::new();
        if !name.is_empty() || !namespace.is_empty() {
            all.push(with(""));
        }
        if !name.is_empty() && !namespace.is_empty() {
            all.push(with(namespace));
        }
        all
    }

    /// To list ClusterQueues: other users see only the names of those that their namespaces use.
    pub fn list_cluster_queues() -> Self {
        Self::Object {
            verb: "list",
            group: sluice_api::GROUP,
            version: "v1beta2",
            resource: "clusterqueues",
            subresource: "",
            namespace: String::new(),
            name: String::new(),
        }
    }

    /// To list nodes: other users do not see the names of nodes.
    pub fn list_nodes() -> Self {
        Self::Object {
            verb: "list",
            group: "",
            version: "v1",
            resource: "nodes",
            subresource: "",
            namespace: String::new(),
            name: String::new(),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Too many questions of this user, or of strangers: later.
    #[error("too many questions")]
    TooMany,
    /// The API server cannot be asked.
    #[error(transparent)]
    Call(#[from] CallError),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenReview {
    status: TokenReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenReviewStatus {
    authenticated: bool,
    user: Option<User>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessReview {
    status: AccessReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccessReviewStatus {
    allowed: bool,
}

/// Asks the API server, and remembers.
pub struct Access {
    client: Client,
    /// By token; `None` for one that the API server does not accept.
    users: Mutex<Known<Option<User>>>,
    /// By what the API server was asked.
    rights: Mutex<Known<bool>>,
    /// Unknown tokens must not keep the API server busy: an unknown token waits for a turn.
    strangers: Mutex<TurnsByUser>,
    /// When it was last said that there was none.
    reported: Mutex<Option<Instant>>,
    /// The turns of tokens that were good.
    renewals: Mutex<Turns>,
    askers: Mutex<TurnsByUser>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Access {
    /// Starts empty. Answers are remembered for `remember`.
    pub fn new(client: Client, remember: Duration) -> Self {
        let now = Instant::now();
        Self {
            client,
            users: Mutex::new(Known::new(remember)),
            rights: Mutex::new(Known::new(remember)),
            strangers: Mutex::new(TurnsByUser::new(STRANGER, STRANGERS, now)),
            reported: Mutex::default(),
            renewals: Mutex::new(Turns::new(RENEWALS, now)),
            askers: Mutex::new(TurnsByUser::new(USER, USERS, now)),
        }
    }

    /// Whose token this is, that came from an address; nothing if the API server does not know it.
    ///
    /// # Errors
    ///
    /// If too many tokens from there or from everywhere that are not remembered were asked about lately, or the API server cannot be reached, refuses the review or does not answer
    /// within 5 s.
    pub async fn user_of(&self, token: &str, from: Option<IpAddr>) -> Result<Option<User>, AccessError> {
        self.user_at(token, from, Instant::now()).await
    }

    async fn user_at(
        &self,
        token: &str,
        from: Option<IpAddr>,
        now: Instant,
    ) -> Result<Option<User>, AccessError> {
        if let Some(user) = lock(&self.users).get(token, now) {
            return Ok(user);
        }
        let was_good = lock(&self.users).valued(token);
        let has_turn =
            if was_good { lock(&self.renewals).take(now) } else { self.has_stranger_turn(from, now) };
        if !has_turn {
            return Err(AccessError::TooMany);
        }
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let uri = "/apis/authentication.k8s.io/v1/tokenreviews";
        let call = Call::with_body(Method::POST, uri, Content::Json, &review);
        let review: TokenReview = call.send_as(&self.client, TIMEOUT).await?;
        let user = review.status.user.filter(|_| review.status.authenticated);
        let bytes = user.as_ref().map_or(0, |user| json!(user).to_string().len());
        lock(&self.users).put(token, user.clone(), bytes, user.is_some(), now);
        Ok(user)
    }

    /// Takes a turn for an unknown token from this address, if there is one. Otherwise logs it, at a limited rate.
    fn has_stranger_turn(&self, from: Option<IpAddr>, now: Instant) -> bool {
        if lock(&self.strangers).take(&network(from), now) {
            return true;
        }
        let mut reported = lock(&self.reported);
        if reported.is_none_or(|at| now.saturating_duration_since(at) >= REPORT) {
            *reported = Some(now);
            let from = from.map(|from| from.to_string()).unwrap_or_default();
            warn!(
                from,
                "there are too many unknown tokens: this one is refused without asking the API server"
            );
        }
        false
    }

    /// Whether a user may do something.
    ///
    /// # Errors
    ///
    /// If this user or all users together were asked about too often lately, or the API server cannot be reached, refuses the review or does not
    /// answer within 5 s.
    pub async fn may(&self, user: &User, what: &Attributes) -> Result<bool, AccessError> {
        self.may_at(user, what, Instant::now()).await
    }

    async fn may_at(&self, user: &User, what: &Attributes, now: Instant) -> Result<bool, AccessError> {
        let spec = spec(user, what);
        let key = spec.to_string();
        if let Some(may) = lock(&self.rights).get(&key, now) {
            return Ok(may);
        }
        if !lock(&self.askers).take(&user.username, now) {
            return Err(AccessError::TooMany);
        }
        let may = self.reviewed(spec).await?;
        lock(&self.rights).put(&key, may, 0, may, Instant::now());
        Ok(may)
    }

    /// The same without the cache: the caller limits and remembers.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, refuses the review or does not answer within 5 s.
    pub async fn review(&self, user: &User, what: &Attributes) -> Result<bool, AccessError> {
        self.reviewed(spec(user, what)).await
    }

    async fn reviewed(&self, spec: Value) -> Result<bool, AccessError> {
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let uri = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let call = Call::with_body(Method::POST, uri, Content::Json, &review);
        let review: AccessReview = call.send_as(&self.client, TIMEOUT).await?;
        Ok(review.status.allowed)
    }
}

/// The origin of unknown tokens: for IPv6 the network, as one host has all its addresses.
fn network(from: Option<IpAddr>) -> String {
    match from.map(|from| from.to_canonical()) {
        None => String::new(),
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_string()
        }
    }
}

fn spec(user: &User, what: &Attributes) -> Value {
    let mut spec = json!(what);
    spec["user"] = json!(user.username);
    spec["uid"] = json!(user.uid);
    spec["groups"] = json!(user.groups);
    if user.extra.is_object() {
        spec["extra"] = user.extra.clone();
    }
    spec
}

/// Who sent a request.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its address, if that is known.
    pub from: Option<IpAddr>,
}

/// Where a request comes from, as the server noted it.
pub fn address(connection: Option<&ConnectInfo<SocketAddr>>) -> Option<IpAddr> {
    connection.map(|ConnectInfo(from)| from.ip())
}

/// The bearer token of a request, if it has one of acceptable size.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let fits = !token.is_empty() && token.len() <= LONGEST;
    (scheme.eq_ignore_ascii_case("bearer") && fits).then_some(token)
}

#[cfg(test)]
mod tests;
