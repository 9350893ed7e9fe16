//! Liveness and readiness over plain HTTP, and debug pages for callers on the same host.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Path, Query, Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::explain::{Answer, Asked, Format};
use crate::serve::{self, Bounds};
use crate::shutdown::Stop;

/// One line of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// The problem; `None` if there is none.
    pub problem: Option<String>,
    /// Said also when all is well.
    pub detail: Option<String>,
}

/// The state that the endpoints report.
pub trait Probe: Send + Sync + 'static {
    /// The readiness checks.
    fn checks(&self) -> Vec<Check>;
    /// Whether the process works at all: the engine's thread answers.
    fn alive(&self) -> BoxFuture<'_, bool>;
    /// The engine's state, as text.
    fn state(&self) -> BoxFuture<'_, Option<String>>;
    /// Differences between the engine's incremental state and a recomputation, as text. `pause`: also if the engine stops for that.
    fn audit(&self, pause: bool) -> BoxFuture<'_, Option<String>>;
    /// Why a Workload or job waits, and what would help.
    fn explain(&self, namespace: String, name: String, asked: Asked) -> BoxFuture<'_, Answer>;
}

/// Serves until stopped. `readiness` and `liveness` are endpoint names without the slash.
pub async fn serve(
    listener: TcpListener,
    readiness: &str,
    liveness: &str,
    probe: Arc<dyn Probe>,
    bounds: Bounds,
    stop: Stop,
) {
    serve::serve(listener, None, router(readiness, liveness, probe), bounds, stop).await;
}

fn router(readiness: &str, liveness: &str, probe: Arc<dyn Probe>) -> Router {
    let debug = Router::new()
        .route("/debug/state", get(state))
        .route("/debug/audit", get(audit))
        .route("/debug/explain/{namespace}/{name}", get(explain))
        .layer(middleware::from_fn(local));
    Router::new()
        .route(&path(liveness), get(live))
        .route(&path(readiness), get(ready))
        .merge(debug)
        .with_state(probe)
}

fn path(name: &str) -> String {
    format!("/{}", name.trim_start_matches('/'))
}

async fn live(State(probe): State<Arc<dyn Probe>>) -> Response {
    if probe.alive().await {
        "ok".into_response()
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "the engine does not answer").into_response()
    }
}

async fn ready(State(probe): State<Arc<dyn Probe>>) -> Response {
    let (ready, text) = render(&probe.checks());
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, text).into_response()
}

/// The text of `/readyz`, in the manner of the API server's own.
fn render(checks: &[Check]) -> (bool, String) {
    let ready = checks.iter().all(|check| check.problem.is_none());
    let mut text = String::new();
    for check in checks {
        let (sign, outcome) = match &check.problem {
            None => ('+', "ok".to_owned()),
            Some(problem) => ('-', format!("failed: {problem}")),
        };
        let detail = check.detail.as_ref().map(|d| format!(" ({d})")).unwrap_or_default();
        // Writing into a String does not fail.
        let _ = writeln!(text, "[{sign}]{} {outcome}{detail}", check.name);
    }
    text.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
    (ready, text)
}

async fn state(State(probe): State<Arc<dyn Probe>>) -> Response {
    page(probe.state().await)
}

/// How to audit.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Audit {
    /// Also if the engine stops for that.
    pause: bool,
}

async fn audit(State(probe): State<Arc<dyn Probe>>, Query(how): Query<Audit>) -> Response {
    page(probe.audit(how.pause).await)
}

fn page(text: Option<String>) -> Response {
    match text {
        Some(text) => text.into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n").into_response(),
    }
}

async fn explain(
    State(probe): State<Arc<dyn Probe>>,
    Path((namespace, name)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    // A caller who may see the names of all namespaces here may see those of nodes, too.
    let asked = Asked { nodes: asked.all, ..asked };
    let media = match asked.output {
        Format::Text => "text/plain; charset=utf-8",
        Format::Json | Format::Both => "application/json",
    };
    match probe.explain(namespace, name, asked).await {
        Ok(text) => ([(header::CONTENT_TYPE, media)], text).into_response(),
        Err(refused) => (refused.0, refused.1 + "\n").into_response(),
    }
}

/// Names and requests of all workloads are for the operator only: debug pages are for callers on this host, such as `kubectl port-forward`. A foreign
/// page that is open in a browser on this host is refused: its own name can resolve to this host, and that name is then in the Host header.
async fn local(ConnectInfo(from): ConnectInfo<SocketAddr>, request: Request, next: Next) -> Response {
    if !from.ip().to_canonical().is_loopback() {
        return (StatusCode::FORBIDDEN, "debug pages are for callers on this host\n").into_response();
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(names_this_host) {
        return (StatusCode::FORBIDDEN, "debug pages are under localhost, 127.0.0.1 and [::1] only\n")
            .into_response();
    }
    next.run(request).await
}

/// Whether a Host header names this host by a name that no name server gives: `localhost` or a loopback address.
fn names_this_host(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;
    use crate::serve::connections::Patience;
    use crate::shutdown::pair;

    #[test]
    fn readiness_names_what_is_missing() {
        let checks = [
            Check { name: "caches", problem: Some("workloads, nodes".to_owned()), detail: None },
            Check { name: "leadership", problem: None, detail: Some("sluice_b_2 leads".to_owned()) },
        ];
        let (ready, text) = render(&checks);
        assert!(!ready);
        assert_eq!(
            text,
            "[-]caches failed: workloads, nodes\n[+]leadership ok (sluice_b_2 leads)\nreadyz check failed\n"
        );
        assert!(render(&checks[1..]).0);
    }

    #[test]
    fn only_names_of_this_host_that_no_name_server_gives_count() {
        for host in
            ["localhost", "LOCALHOST:8081", "127.0.0.1:8081", "127.1.2.3", "[::1]:80", "[::ffff:127.0.0.1]"]
        {
            assert!(names_this_host(host), "{host}");
        }
        for host in [
            "",
            "evil.example:8081",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::]:1",
            "a b",
        ] {
            assert!(!names_this_host(host), "{host}");
        }
    }

    /// A probe that has something to say on every page.
    struct Talks;

    impl Probe for Talks {
        fn checks(&self) -> Vec<Check> {
            Vec::new()
        }
        fn alive(&self) -> BoxFuture<'_, bool> {
            Box::pin(async { true })
        }
        fn state(&self) -> BoxFuture<'_, Option<String>> {
            Box::pin(async { Some("secret".to_owned()) })
        }
        fn audit(&self, _: bool) -> BoxFuture<'_, Option<String>> {
            Box::pin(async { Some("secret".to_owned()) })
        }
        fn explain(&self, _: String, _: String, _: Asked) -> BoxFuture<'_, Answer> {
            Box::pin(async { Ok("secret".to_owned()) })
        }
    }

    /// The answer to a GET of a path by this host's name.
    async fn get(address: SocketAddr, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let ask = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn debug_pages_are_refused_to_foreign_pages_and_health_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stopper, stop) = pair();
        let bounds = Bounds { connections: 8, patience: Patience::default() };
        let served = serve(listener, "readyz", "healthz", Arc::new(Talks), bounds, stop);
        let asked = async {
            for path in ["/debug/state", "/debug/audit", "/debug/audit?pause=true", "/debug/explain/ns/w"] {
                let answer = get(address, path, "evil.example").await;
                assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
                assert!(!answer.contains("secret"), "{path}: {answer}");
                let answer = get(address, path, &format!("localhost:{}", address.port())).await;
                assert!(
                    answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("secret"),
                    "{path}: {answer}"
                );
            }
            for path in ["/healthz", "/readyz"] {
                let answer = get(address, path, "10.0.0.1").await;
                assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
            }
        };
        tokio::select! {
            () = served => panic!("it serves until it is stopped"),
            () = asked => {}
        }
    }

    #[test]
    fn endpoint_names_may_have_a_slash() {
        assert_eq!(path("readyz"), "/readyz");
        assert_eq!(path("/readyz"), "/readyz");
    }
}
