//! The HTTPS side of the webhooks: one POST per review, answered from memory, on every replica.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Router, body};
use tokio::net::TcpListener;
use tracing::{debug, error, warn};

use super::bounds::{Bounds, Refusal};
use crate::serve::body::Keep;
use crate::serve::{self, ConnectionHandle, Tls};
use crate::shutdown::Stop;

/// Answers reviews, without waiting for anything.
pub trait Reviewer: Send + Sync + 'static {
    /// Whether reviews are posted to this path.
    fn has(&self, path: &str) -> bool;
    /// The bytes that an answer on this path may have beyond those of the review.
    fn most(&self, path: &str) -> usize;
    /// The answer to a review posted to `path`; nothing for an unknown path, an error for a body that is no review.
    fn review(&self, path: &str, body: &[u8]) -> Option<Result<Vec<u8>, serde_json::Error>>;
}

struct Shared {
    reviewer: Arc<dyn Reviewer>,
    bounds: Bounds,
}

/// Serves until stopped.
pub async fn serve(
    listener: TcpListener,
    tls: Tls,
    reviewer: Arc<dyn Reviewer>,
    bounds: serve::Bounds,
    stop: Stop,
) {
    serve::serve(listener, Some(tls), router(reviewer), bounds, stop).await;
}

fn router(reviewer: Arc<dyn Reviewer>) -> Router {
    let shared = Arc::new(Shared { reviewer, bounds: Bounds::default() });
    Router::new().fallback(post(answer)).with_state(shared)
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    Extension(entry): Extension<Arc<ConnectionHandle>>,
    uri: Uri,
    body: Body,
) -> Response {
    let path = uri.path();
    if !shared.reviewer.has(path) {
        return unknown();
    }
    match reviewed(&shared, entry, path, body).await {
        Ok(response) => response,
        Err(refusal) => {
            warn!(%path, %refusal, "a review was not answered");
            // What is left of the body is not read.
            ([(header::CONNECTION, "close")], refusal).into_response()
        }
    }
}

async fn reviewed(
    shared: &Arc<Shared>,
    entry: Arc<ConnectionHandle>,
    path: &str,
    body: Body,
) -> Result<Response, Refusal> {
    let (body, mut granted) = shared.bounds.read(body, entry).await?;
    let turn = shared.bounds.turn(&body, shared.reviewer.most(path)).await?;
    let began = Instant::now();
    let (reviewer, asked) = (Arc::clone(&shared.reviewer), path.to_owned());
    // A large review takes a while: not on the threads that serve the others.
    let review = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        reviewer.review(&asked, &body)
    });
    let outcome = match review.await {
        Ok(outcome) => outcome,
        Err(panic) => {
            error!(%path, %panic, "a review failed");
            return Ok((StatusCode::INTERNAL_SERVER_ERROR, "the review failed\n").into_response());
        }
    };
    Ok(match outcome {
        Some(Ok(answer)) => {
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            debug!(%path, us, "reviewed");
            shared.bounds.grant(&mut granted, answer.len()).await?;
            let mut response =
                ([(header::CONTENT_TYPE, "application/json")], body::Bytes::from(answer)).into_response();
            response.extensions_mut().insert(Keep(Arc::new(granted)));
            response
        }
        Some(Err(error)) => (StatusCode::BAD_REQUEST, format!("not a review: {error}\n")).into_response(),
        None => unknown(),
    })
}

fn unknown() -> Response {
    (StatusCode::NOT_FOUND, "no such webhook\n").into_response()
}

#[cfg(test)]
mod tests;
