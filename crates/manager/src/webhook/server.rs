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

use super::bounds::{Bounds, Refusal, Unread, deadline};
use crate::serve::body::Keep;
use crate::serve::{self, ConnectionHandle, Tls};
use crate::shutdown::Stop;

/// Answers reviews, without waiting for anything.
pub trait Reviewer: Send + Sync + 'static {
    /// Whether reviews are posted to this path.
    fn has(&self, path: &str) -> bool;
    /// How many bytes an answer on this path may have beyond those of the review.
    fn max_answer(&self, path: &str) -> usize;
    /// Whether [`Reviewer::turned_away`] may answer on this path.
    fn reads_heads(&self, path: &str) -> bool;
    /// The answer to a review that is not decoded, from its `head`: the part that was read. `None` if the failure of the webhook is answer enough; if
    /// the API server ignores that failure, a write would be accepted that a review would have changed or refused.
    fn turned_away(&self, path: &str, head: &[u8], why: Refusal) -> Option<Vec<u8>>;
    /// The answer to a review posted to `path`; `None` for an unknown path, an error for a body that is not a review.
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
    let until = deadline(uri.query());
    let unread = match reviewed(&shared, entry, path, body, until).await {
        Ok(response) => return response,
        Err(unread) => unread,
    };
    let refusal = unread.why;
    warn!(%path, %refusal, "a review was not answered");
    let answer = shared.reviewer.turned_away(path, &unread.head, refusal);
    // Otherwise, what is left of the body is not read.
    let close = [(header::CONNECTION, "close")];
    let Some(answer) = answer else { return (close, refusal).into_response() };
    unread.drain(until).await;
    (close, json(answer)).into_response()
}

fn json(answer: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body::Bytes::from(answer)).into_response()
}

async fn reviewed(
    shared: &Arc<Shared>,
    entry: Arc<ConnectionHandle>,
    path: &str,
    body: Body,
    until: Instant,
) -> Result<Response, Unread> {
    let heads = shared.reviewer.reads_heads(path);
    let (body, mut granted) = shared.bounds.read(body, entry, heads, until).await?;
    let turn = match shared.bounds.turn(&body, shared.reviewer.max_answer(path), until).await {
        Ok(turn) => turn,
        Err(why) => return Err(Unread::whole(why, Arc::new(body), granted)),
    };
    let began = Instant::now();
    let body = Arc::new(body);
    let (reviewer, asked, read) = (Arc::clone(&shared.reviewer), path.to_owned(), Arc::clone(&body));
    // A large review takes a while: not on the threads that serve the others.
    let review = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        reviewer.review(&asked, &read)
    });
    let why = match tokio::time::timeout_at(until.into(), review).await {
        Ok(Ok(Some(Ok(answer)))) => {
            let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            debug!(%path, us, "reviewed");
            match shared.bounds.grant(&mut granted, answer.len(), until).await {
                Ok(()) => {
                    let mut response = json(answer);
                    response.extensions_mut().insert(Keep(Arc::new(granted)));
                    return Ok(response);
                }
                Err(why) => why,
            }
        }
        Ok(Ok(Some(Err(error)))) => {
            debug!(%path, %error, "not a review");
            Refusal::Unreadable
        }
        Ok(Ok(None)) => return Ok(unknown()),
        Ok(Err(panic)) => {
            error!(%path, %panic, "a review failed");
            Refusal::Failed
        }
        Err(_) => Refusal::Busy,
    };
    Err(Unread::whole(why, body, granted))
}

fn unknown() -> Response {
    (StatusCode::NOT_FOUND, "no such webhook\n").into_response()
}

#[cfg(test)]
mod tests;
