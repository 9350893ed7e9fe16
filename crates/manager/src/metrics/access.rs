//! Who may read metrics: users whom the API server knows (TokenReview) and lets GET `/metrics` (SubjectAccessReview), as
//! controller-runtime has it (docs/reference/08-tooling.md). Answers are remembered for a short while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_client::error_chain::Chain;
use tracing::warn;

use crate::api_call::{Call, CallError, Content};

const TIMEOUT: Duration = Duration::from_secs(5);
const REMEMBER: Duration = Duration::from_mins(1);
/// Tokens that are remembered: a bound, for floods of wrong ones.
const REMEMBERED: usize = 512;
/// The longest token, in bytes; those of service accounts have some hundreds.
const LONGEST: usize = 16 << 10;
/// Readers that the API server is asked about: so many at once, and then this many per second.
const BURST: u32 = 20;
const PER_SECOND: f64 = 2.0;

/// The outcome for one token and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// The API server does not know the token.
    Unknown,
    /// It does, and its user has no right.
    Forbidden,
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
struct User {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: Value,
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
    known: Mutex<Known>,
    /// Unknown tokens must not keep the API server busy: an unknown token waits for a turn.
    turns: Mutex<Turns>,
}

/// How many questions may still be asked.
struct Turns {
    left: f64,
    since: Instant,
}

impl Turns {
    fn new(now: Instant) -> Self {
        Self { left: f64::from(BURST), since: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * PER_SECOND).min(f64::from(BURST));
        self.since = now;
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }
}

#[derive(Default)]
struct Known(BTreeMap<(String, String), (Verdict, Instant)>);

impl Known {
    fn get(&self, key: &(String, String), now: Instant) -> Option<Verdict> {
        let (verdict, since) = self.0.get(key)?;
        (now.saturating_duration_since(*since) < REMEMBER).then_some(*verdict)
    }

    fn put(&mut self, key: (String, String), verdict: Verdict, now: Instant) {
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, (_, since)| now.saturating_duration_since(*since) < REMEMBER);
        }
        // Readers whom the API server knows are not forgotten because of a flood of unknown tokens.
        if self.0.len() >= REMEMBERED {
            self.0.retain(|_, (verdict, _)| *verdict == Verdict::Allowed);
        }
        if self.0.len() >= REMEMBERED {
            self.0.clear();
        }
        self.0.insert(key, (verdict, now));
    }
}

impl Access {
    /// Nothing is known yet.
    pub fn new(client: Client) -> Self {
        Self { client, known: Mutex::default(), turns: Mutex::new(Turns::new(Instant::now())) }
    }

    /// Nothing when there are too many unknown tokens.
    async fn verdict(&self, token: &str, path: &str) -> Result<Option<Verdict>, CallError> {
        let key = (token.to_owned(), path.to_owned());
        if let Some(verdict) =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key, Instant::now())
        {
            return Ok(Some(verdict));
        }
        if !self.turns.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now()) {
            return Ok(None);
        }
        let verdict = self.ask(token, path).await?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).put(key, verdict, Instant::now());
        Ok(Some(verdict))
    }

    async fn ask(&self, token: &str, path: &str) -> Result<Verdict, CallError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let uri = "/apis/authentication.k8s.io/v1/tokenreviews";
        let call = Call::with_body(Method::POST, uri, Content::Json, &review);
        let review: TokenReview = call.send_as(&self.client, TIMEOUT).await?;
        let Some(user) = review.status.user.filter(|_| review.status.authenticated) else {
            return Ok(Verdict::Unknown);
        };
        let uri = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let call = Call::with_body(Method::POST, uri, Content::Json, &access_review(&user, path));
        let review: AccessReview = call.send_as(&self.client, TIMEOUT).await?;
        Ok(if review.status.allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }
}

fn access_review(user: &User, path: &str) -> Value {
    let mut spec = json!({
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "nonResourceAttributes": {"path": path, "verb": "get"},
    });
    if user.extra.is_object() {
        spec["extra"] = user.extra.clone();
    }
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})
}

/// Lets a request pass, or answers 401 or 403; 500 when the API server cannot be asked.
pub async fn guard(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let Some(token) = bearer(&request) else {
        return (StatusCode::UNAUTHORIZED, "Unauthorized\n").into_response();
    };
    match access.verdict(&token, request.uri().path()).await {
        Ok(Some(Verdict::Allowed)) => next.run(request).await,
        Ok(Some(Verdict::Unknown)) => (StatusCode::UNAUTHORIZED, "Unauthorized\n").into_response(),
        Ok(None) => (StatusCode::TOO_MANY_REQUESTS, "too many unknown readers\n").into_response(),
        Ok(Some(Verdict::Forbidden)) => (StatusCode::FORBIDDEN, "Forbidden\n").into_response(),
        Err(error) => {
            warn!(error = %Chain(&error), "a reader of metrics could not be checked");
            (StatusCode::INTERNAL_SERVER_ERROR, "the API server cannot be asked\n").into_response()
        }
    }
}

fn bearer(request: &Request) -> Option<String> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let fits = !token.is_empty() && token.len() <= LONGEST;
    (scheme.eq_ignore_ascii_case("bearer") && fits).then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn request(authorization: Option<&str>) -> Request {
        let mut request = Request::new(Body::empty());
        if let Some(value) = authorization {
            request.headers_mut().insert(header::AUTHORIZATION, value.parse().unwrap());
        }
        request
    }

    #[test]
    fn only_bearer_tokens_count() {
        assert_eq!(bearer(&request(Some("Bearer abc"))).as_deref(), Some("abc"));
        assert_eq!(bearer(&request(Some("bearer  abc"))).as_deref(), Some("abc"));
        assert_eq!(bearer(&request(Some("Basic abc"))), None);
        assert_eq!(bearer(&request(Some("Bearer "))), None);
        assert_eq!(bearer(&request(None)), None);
        assert_eq!(bearer(&request(Some(&format!("Bearer {}", "x".repeat(LONGEST + 1))))), None);
    }

    #[test]
    fn verdicts_are_remembered_for_a_while_and_within_bounds() {
        let key = |n: usize| (format!("token{n}"), "/metrics".to_owned());
        let mut known = Known::default();
        let now = Instant::now();
        for n in 0..REMEMBERED {
            known.put(key(n), Verdict::Allowed, now);
        }
        assert_eq!(known.get(&key(0), now), Some(Verdict::Allowed));
        assert_eq!(known.get(&key(0), now + REMEMBER), None);
        known.put(key(REMEMBERED), Verdict::Forbidden, now);
        assert!(known.0.len() <= REMEMBERED);
        assert_eq!(known.get(&key(REMEMBERED), now), Some(Verdict::Forbidden));
    }

    #[test]
    fn a_flood_of_strangers_forgets_no_reader_and_asks_the_api_server_seldom() {
        let (mut known, now) = (Known::default(), Instant::now());
        let key = |name: &str| (name.to_owned(), "/metrics".to_owned());
        known.put(key("prometheus"), Verdict::Allowed, now);
        for n in 0..5 * REMEMBERED {
            known.put(key(&n.to_string()), Verdict::Unknown, now);
        }
        assert_eq!(known.get(&key("prometheus"), now), Some(Verdict::Allowed));
        let mut turns = Turns::new(now);
        let second = |n| now + Duration::from_secs(n);
        assert_eq!((0..1000).filter(|_| turns.take(now)).count(), 20);
        assert_eq!((0..1000).filter(|_| turns.take(second(3))).count(), 6);
        assert_eq!((0..1000).filter(|_| turns.take(second(1000))).count(), 20);
    }

    #[test]
    fn the_review_asks_for_the_path_in_the_users_name() {
        let user = User {
            username: "prometheus".to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            ..User::default()
        };
        let review = access_review(&user, "/metrics");
        assert_eq!(review["spec"]["user"], "prometheus");
        assert_eq!(review["spec"]["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
        assert!(review["spec"].get("extra").is_none());
    }
}
