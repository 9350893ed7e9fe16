//! Liveness and readiness over plain HTTP, and debug pages for callers on the same host.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::BoxFuture;
use tokio::net::TcpListener;
use tracing::warn;

use crate::error_chain::Chain;
use crate::explain::{Answer, Asked, Format};
use crate::shutdown::Stop;

/// One line of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is checked.
    pub name: &'static str,
    /// What is wrong; nothing when it is in order.
    pub problem: Option<String>,
    /// Said also when all is well.
    pub detail: Option<String>,
}

/// What the endpoints ask.
pub trait Probe: Send + Sync + 'static {
    /// The readiness checks.
    fn checks(&self) -> Vec<Check>;
    /// Whether the process works at all: the engine's thread answers.
    fn alive(&self) -> BoxFuture<'_, bool>;
    /// The engine's state, for people.
    fn state(&self) -> BoxFuture<'_, Option<String>>;
    /// Differences between the engine's incremental state and a recomputation, for people.
    fn audit(&self) -> BoxFuture<'_, Option<String>>;
    /// Why a Workload or job waits, and what would help.
    fn explain(&self, namespace: String, name: String, asked: Asked) -> BoxFuture<'_, Answer>;
}

/// Serves until stopped. `readiness` and `liveness` are endpoint names without the slash.
pub async fn serve(
    listener: TcpListener,
    readiness: &str,
    liveness: &str,
    probe: Arc<dyn Probe>,
    mut stop: Stop,
) {
    let router = Router::new()
        .route(&path(liveness), get(live))
        .route(&path(readiness), get(ready))
        .route("/debug/state", get(state))
        .route("/debug/audit", get(audit))
        .route("/debug/explain/{namespace}/{name}", get(explain))
        .with_state(probe)
        .into_make_service_with_connect_info::<SocketAddr>();
    let stopped = async move { stop.stopped().await };
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
        warn!(error = %Chain(&error), "the health server ended");
    }
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

async fn state(from: ConnectInfo<SocketAddr>, State(probe): State<Arc<dyn Probe>>) -> Response {
    debug_page(from, probe.state()).await
}

async fn audit(from: ConnectInfo<SocketAddr>, State(probe): State<Arc<dyn Probe>>) -> Response {
    debug_page(from, probe.audit()).await
}

async fn explain(
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    State(probe): State<Arc<dyn Probe>>,
    Path((namespace, name)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Response {
    if !is_here(from) {
        return elsewhere();
    }
    let media = match asked.output {
        Format::Text => "text/plain; charset=utf-8",
        Format::Json => "application/json",
    };
    match probe.explain(namespace, name, asked).await {
        Ok(text) => ([(header::CONTENT_TYPE, media)], text).into_response(),
        Err(refused) => (refused.0, refused.1 + "\n").into_response(),
    }
}

/// Whether a caller is on this host; one that comes through `kubectl port-forward` is.
fn is_here(from: SocketAddr) -> bool {
    from.ip().to_canonical().is_loopback()
}

fn elsewhere() -> Response {
    (StatusCode::FORBIDDEN, "debug pages are for callers on this host\n").into_response()
}

/// Names and requests of all workloads are nobody's business but the operator's: only for callers on this host.
async fn debug_page(
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    page: BoxFuture<'_, Option<String>>,
) -> Response {
    if !is_here(from) {
        return elsewhere();
    }
    match page.await {
        Some(text) => text.into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn endpoint_names_may_have_a_slash() {
        assert_eq!(path("readyz"), "/readyz");
        assert_eq!(path("/readyz"), "/readyz");
    }
}
