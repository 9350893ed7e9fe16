//! The HTTPS side of the webhooks: one POST per review, answered from memory, on every replica.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::error_chain::Chain;
use crate::shutdown::Stop;

/// A conversion request holds up to 500 objects of up to 1.5 MB each; real ones stay far below this.
const BODY_BYTES: usize = 256 << 20;
/// Reviews that are worked on at once: what large ones need of memory is bounded by this.
const AT_ONCE: usize = 16;

/// Answers reviews, without waiting for anything.
pub trait Reviewer: Send + Sync + 'static {
    /// The answer to a review posted to `path`; nothing for an unknown path, an error for a body that is no review.
    fn review(&self, path: &str, body: &[u8]) -> Option<Result<Vec<u8>, serde_json::Error>>;
}

struct Shared {
    reviewer: Arc<dyn Reviewer>,
    slots: Semaphore,
}

/// Serves until stopped.
pub async fn serve(listener: TcpListener, tls: RustlsConfig, reviewer: Arc<dyn Reviewer>, mut stop: Stop) {
    let shared = Arc::new(Shared { reviewer, slots: Semaphore::new(AT_ONCE) });
    let router =
        Router::new().fallback(post(answer)).layer(DefaultBodyLimit::max(BODY_BYTES)).with_state(shared);
    let handle = Handle::new();
    let stopping = handle.clone();
    tokio::spawn(async move {
        stop.stopped().await;
        stopping.graceful_shutdown(Some(Duration::from_secs(2)));
    });
    let server = match axum_server::from_tcp_rustls(listener, tls) {
        Ok(server) => server.handle(handle),
        Err(error) => {
            warn!(error = %Chain(&error), "the webhook server could not start");
            return;
        }
    };
    if let Err(error) = server.serve(router.into_make_service()).await {
        warn!(error = %Chain(&error), "the webhook server ended");
    }
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, body: Bytes) -> Response {
    let Ok(_slot) = shared.slots.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let began = Instant::now();
    let reviewer = Arc::clone(&shared.reviewer);
    let path = uri.path().to_owned();
    // A conversion of hundreds of objects takes a while: not on the threads that serve the others.
    let outcome = tokio::task::spawn_blocking(move || (reviewer.review(&path, &body), path)).await;
    let Ok((answer, path)) = outcome else {
        return (StatusCode::INTERNAL_SERVER_ERROR, "the review failed\n").into_response();
    };
    match answer {
        Some(Ok(body)) => {
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            debug!(%path, us, "reviewed");
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Some(Err(error)) => (StatusCode::BAD_REQUEST, format!("not a review: {error}\n")).into_response(),
        None => (StatusCode::NOT_FOUND, "no such webhook\n").into_response(),
    }
}
