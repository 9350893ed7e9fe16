//! A server with the dashboard's page and the answers of the simulated cluster.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use sluice_testkit::assets;
use tokio::sync::watch;

use super::data::{self, DISPLACED, POLICY, QUEUES, WORKLOADS};

/// The token that is accepted.
pub const TOKEN: &str = "secret";
/// The Workloads where there are few: 200 times fewer of everything that is listed.
pub const FEW: usize = 100;
/// The most bytes of a question.
const MOST_BYTES: usize = 1 << 20;

/// What the server does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// It offers neither nodes nor futures.
    Less,
    /// Its lists are no JSON.
    Broken,
    /// None, but there are few queues and Workloads.
    Few,
    /// No more pages may follow the changes.
    Full,
}

/// What happens at the server, and what it is asked for.
#[derive(Debug)]
pub struct State {
    fault: Fault,
    /// Streams of changes that are open.
    pub open: AtomicUsize,
    /// How often something has changed: each time another Workload is admitted.
    pub news: watch::Sender<usize>,
    /// Since when the cluster cannot be read.
    pub old: Mutex<Option<String>>,
    /// How many times the view Now is refused.
    pub refuses: AtomicUsize,
    /// How many times rows are refused that are not the first of a list.
    pub refuses_rows: AtomicUsize,
    /// Whether the token is no longer accepted. A stream that is open goes on.
    pub expired: AtomicBool,
}

/// A server on a free port, which ends with the test. Its URL.
pub async fn serve(fault: Fault) -> String {
    start(fault).await.0
}

/// The same, and its state.
pub async fn start(fault: Fault) -> (String, Arc<State>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let state = Arc::new(State {
        fault,
        open: AtomicUsize::new(0),
        news: watch::Sender::new(0),
        old: Mutex::default(),
        refuses: AtomicUsize::new(0),
        refuses_rows: AtomicUsize::new(0),
        expired: AtomicBool::new(false),
    });
    let known = Arc::clone(&state);
    let app = axum::Router::new().fallback(move |request: Request| answer(request, Arc::clone(&known)));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, state)
}

async fn answer(request: Request, state: Arc<State>) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MOST_BYTES).await.unwrap();
    let path = head.uri.path().to_owned();
    let mut response = match path.strip_prefix("/api/") {
        None => file(&path),
        Some(_) if state.expired.load(Ordering::Relaxed) || !is_known(&head.headers) => {
            refused(StatusCode::UNAUTHORIZED, "who are you?")
        }
        Some("changes") if state.fault == Fault::Full => {
            refused(StatusCode::TOO_MANY_REQUESTS, "too many pages follow the changes: close one")
        }
        Some("changes") => changes(&state),
        Some(what) => {
            let query: Vec<(String, String)> = queries(head.uri.query().unwrap_or_default());
            said(what, &query, &body, &state)
        }
    };
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, POLICY.parse().unwrap());
    response
}

fn is_known(headers: &HeaderMap) -> bool {
    headers.get(AUTHORIZATION).is_some_and(|given| *given == *format!("Bearer {TOKEN}"))
}

fn file(path: &str) -> Response {
    let name = if path == "/" { "index.html" } else { path.trim_start_matches('/') };
    let folder = assets::workspace().join("crates/manager/src/dashboard/assets");
    let kind = match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    };
    match fs::read_to_string(folder.join(name)) {
        Ok(text) if !name.contains('/') => ([(CONTENT_TYPE, kind)], text).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, axum::Json(data::refusal(status.as_u16(), message))).into_response()
}

/// A stream that is open.
struct Open(Arc<State>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that says that all changed, at first and whenever there are news.
fn changes(state: &Arc<State>) -> Response {
    state.open.fetch_add(1, Ordering::Relaxed);
    let mut news = state.news.subscribe();
    news.mark_changed();
    let events = futures::stream::unfold((news, Open(Arc::clone(state))), |(mut news, open)| async move {
        news.changed().await.ok()?;
        let revision = 8 + *news.borrow_and_update();
        let old = open.0.old.lock().unwrap().clone();
        let data =
            json!({"revision": revision, "views": ["now", "queues", "workloads", "nodes"], "old": old});
        let event = Bytes::from(format!("event: changed\ndata: {data}\n\n"));
        Some((Ok::<_, std::convert::Infallible>(event), (news, open)))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

/// The parameters of a query; `+` and percent signs stand for what a browser puts there.
fn queries(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (plain(name), plain(value))).collect()
}

fn plain(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                rest = after;
            }
            (b'+', _) => bytes.push(b' '),
            (byte, _) => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

fn said(what: &str, query: &[(String, String)], body: &[u8], state: &State) -> Response {
    let given = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let number = |name: &str, unset: usize| given(name).and_then(|text| text.parse().ok()).unwrap_or(unset);
    let (offset, limit) = (number("offset", 0), number("limit", 100).min(1000));
    let parts: Vec<String> = what.split('/').map(plain).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let page = |all: &[usize], item: fn(usize) -> Value| {
        let items: Vec<_> = all.iter().skip(offset).take(limit).map(|n| item(*n)).collect();
        json!({"total": all.len(), "items": items})
    };
    let is_refused = |left: &AtomicUsize| {
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    };
    if what == "now" && is_refused(&state.refuses) || offset > 0 && is_refused(&state.refuses_rows) {
        return refused(StatusCode::TOO_MANY_REQUESTS, "too many answers are being made: try again");
    }
    let few = |all: usize| if state.fault == Fault::Few { all * FEW / WORKLOADS } else { all };
    let value = match (&parts[..], state.fault) {
        (["nodes" | "tomorrow" | "topologies", ..], Fault::Less) => {
            return refused(StatusCode::NOT_FOUND, "there is no such view");
        }
        (["workloads" | "now"], Fault::Broken) => return "<html>a proxy".into_response(),
        (["who"], _) => data::who(),
        (["now"], _) => {
            let mut now = data::now(*state.news.borrow());
            now["clusterQueues"].as_array_mut().unwrap().truncate(few(QUEUES).max(10));
            now
        }
        (["queues", _, "starts"], _) => data::starts(&(0..100).collect::<Vec<_>>()),
        (["queues", name], _) => {
            let mut page = page(&(0..few(WORKLOADS) / 10).collect::<Vec<_>>(), data::item);
            page["name"] = (*name).into();
            page
        }
        (["workloads"], _) => {
            let wanted = given("search").unwrap_or_default();
            let found = |n: &usize| {
                wanted.is_empty()
                    || data::item(*n)["workload"].as_str().is_some_and(|name| name.contains(wanted))
            };
            page(&(0..few(WORKLOADS)).filter(found).collect::<Vec<_>>(), data::found)
        }
        (["workloads", namespace, name], _) => data::workload(namespace, name),
        (["workloads", namespace, name, "start"], _) => {
            let mut one = data::starts(&[4]);
            (one["items"][0]["namespace"], one["items"][0]["workload"]) =
                ((*namespace).into(), (*name).into());
            one
        }
        (["workloads", _, name, "explain"], _) => {
            json!({"text": format!("{name} waits.\n{}", data::MESSAGE), "explanation": {}})
        }
        (["nodes"], _) => data::nodes(offset, limit),
        (["displaced"], _) => {
            let mut all = data::displaced(offset, limit);
            let total = few(DISPLACED).max(30);
            all["total"] = total.into();
            let items = all["items"].as_array_mut().unwrap();
            items.truncate(total.saturating_sub(offset));
            all
        }
        (["topologies"], _) => data::topologies(),
        (["topologies", _, path @ ..], _) => data::domains(path, offset, limit),
        (["tomorrow"], _) => {
            let asked: Value = serde_json::from_slice(body).unwrap();
            let changes = asked["changes"].as_array().unwrap().len();
            let report = || data::report_of(few(WORKLOADS));
            let difference: Vec<_> =
                (0..changes).map(|_| format!("{} starts 1m sooner.", data::HOSTILE)).collect();
            json!({"base": report(), "changed": (changes > 0).then(report), "difference": difference})
        }
        _ => return refused(StatusCode::NOT_FOUND, "there is no such thing"),
    };
    axum::Json(value).into_response()
}
