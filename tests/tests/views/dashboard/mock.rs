//! A server that gives the dashboard's page and the answers of the made-up cluster.

use std::fs;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use sluice_testkit::assets;

use super::data::{self, POLICY, WORKLOADS};

/// The token that is accepted.
pub const TOKEN: &str = "secret";
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
}

/// A server on a free port, which ends with the test. Its URL.
pub async fn serve(fault: Fault) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(move |request: Request| answer(request, fault));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

async fn answer(request: Request, fault: Fault) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MOST_BYTES).await.unwrap();
    let path = head.uri.path().to_owned();
    let mut response = match path.strip_prefix("/api/") {
        None => file(&path),
        Some(_) if !is_known(&head.headers) => refused(StatusCode::UNAUTHORIZED, "who are you?"),
        Some("changes") => changes(),
        Some(what) => {
            let query: Vec<(String, String)> = queries(head.uri.query().unwrap_or_default());
            said(what, &query, &body, fault)
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

/// A stream that says once that all changed, and stays open.
fn changes() -> Response {
    let event = "event: changed\ndata: {\"revision\":8,\"views\":[\"now\",\"nodes\"]}\n\n";
    let first =
        futures::stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from_static(event.as_bytes()))]);
    let body = futures::StreamExt::chain(first, futures::stream::pending());
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
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

fn said(what: &str, query: &[(String, String)], body: &[u8], fault: Fault) -> Response {
    let given = |name: &str| query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let number = |name: &str, unset: usize| given(name).and_then(|text| text.parse().ok()).unwrap_or(unset);
    let (offset, limit) = (number("offset", 0), number("limit", 100).min(1000));
    let parts: Vec<String> = what.split('/').map(plain).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let page = |all: &[usize], item: fn(usize) -> Value| {
        let items: Vec<_> = all.iter().skip(offset).take(limit).map(|n| item(*n)).collect();
        json!({"total": all.len(), "items": items})
    };
    let value = match (&parts[..], fault) {
        (["nodes" | "tomorrow" | "topologies", ..], Fault::Less) => {
            return refused(StatusCode::NOT_FOUND, "there is no such view");
        }
        (["workloads" | "now"], Fault::Broken) => return "<html>a proxy".into_response(),
        (["who"], _) => data::who(),
        (["now"], _) => data::now(),
        (["queues", _, "starts"], _) => data::starts(&(0..100).collect::<Vec<_>>()),
        (["queues", name], _) => {
            let mut page = page(&(0..WORKLOADS / 10).collect::<Vec<_>>(), data::item);
            page["name"] = (*name).into();
            page
        }
        (["workloads"], _) => {
            let wanted = given("search").unwrap_or_default();
            let found = |n: &usize| {
                wanted.is_empty()
                    || data::item(*n)["workload"].as_str().is_some_and(|name| name.contains(wanted))
            };
            page(&(0..WORKLOADS).filter(found).collect::<Vec<_>>(), data::found)
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
        (["displaced"], _) => data::displaced(offset, limit),
        (["topologies"], _) => data::topologies(),
        (["topologies", _, path @ ..], _) => data::domains(path, offset, limit),
        (["tomorrow"], _) => {
            let asked: Value = serde_json::from_slice(body).unwrap();
            let changes = asked["changes"].as_array().unwrap().len();
            let difference: Vec<_> =
                (0..changes).map(|_| format!("{} starts 1m sooner.", data::HOSTILE)).collect();
            json!({"base": data::report(), "changed": (changes > 0).then(data::report), "difference": difference})
        }
        _ => return refused(StatusCode::NOT_FOUND, "there is no such thing"),
    };
    axum::Json(value).into_response()
}
