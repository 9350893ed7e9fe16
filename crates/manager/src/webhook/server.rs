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

use super::bounds::{Bounds, Refusal, Unread, deadline, is_short, is_small};
use crate::serve::body::Keep;
use crate::serve::{self, ConnectionHandle, Tls};
use crate::shutdown::Stop;
use crate::supervise::{blocking, guarded};

/// Answers reviews, without waiting for anything.
pub trait Reviewer: Send + Sync + 'static {
    /// Whether reviews are posted to this path.
    fn has(&self, path: &str) -> bool;
    /// How many bytes an answer on this path may have beyond those of the review, if that has a topology assignment.
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

/// Serves until stopped, on the runtime that awaits this: see [`Threads`](super::threads::Threads).
pub async fn serve(
    listener: std::net::TcpListener,
    tls: Option<Tls>,
    reviewer: Arc<dyn Reviewer>,
    bounds: serve::Bounds,
    stop: Stop,
) {
    match TcpListener::from_std(listener) {
        Ok(listener) => serve::serve(listener, tls, router(reviewer), bounds, stop).await,
        Err(error) => error!(%error, "the webhooks cannot be served"),
    }
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
    let answer = shared.turned_away(path, &unread.head, refusal).await;
    // What is left of a body is not read; after a whole one the next review comes without another handshake.
    let close = (!unread.is_whole()).then_some([(header::CONNECTION, "close")]);
    let Some(answer) = answer else { return (close, refusal).into_response() };
    unread.drain(until).await;
    (close, json(answer)).into_response()
}

fn json(answer: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body::Bytes::from(answer)).into_response()
}

async fn reviewed(
    shared: &Shared,
    entry: Arc<ConnectionHandle>,
    path: &str,
    body: Body,
    until: Instant,
) -> Result<Response, Unread> {
    let heads = shared.reviewer.reads_heads(path);
    let (body, mut granted) = shared.bounds.read(body, entry, heads, until).await?;
    let body = Arc::new(body);
    let why = match shared.work_on(path, &body, until).await {
        Ok(None) => return Ok(unknown()),
        Ok(Some(answer)) => match shared.bounds.grant(&mut granted, answer.len(), until).await {
            Ok(()) => {
                let mut response = json(answer);
                response.extensions_mut().insert(Keep(Arc::new(granted)));
                return Ok(response);
            }
            Err(why) => why,
        },
        Err(why) => why,
    };
    Err(Unread::whole(why, body, granted))
}

impl Shared {
    /// The answer to a review; `None` for an unknown path.
    async fn work_on(
        &self,
        path: &str,
        body: &Arc<Vec<u8>>,
        until: Instant,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let most = self.reviewer.max_answer(path);
        let began = Instant::now();
        let review = if is_small(body, most) {
            guarded(|| self.reviewer.review(path, body))
        } else {
            let turn = self.bounds.turn(body, most, until).await?;
            let (reviewer, asked, read) = (Arc::clone(&self.reviewer), path.to_owned(), Arc::clone(body));
            let review = blocking("a review", move || {
                let _turn = turn;
                guarded(|| reviewer.review(&asked, &read))
            });
            let review = tokio::time::timeout_at(until.into(), review).await.map_err(|_| Refusal::Busy)?;
            review.unwrap_or_else(|panic| Err(panic.to_string()))
        };
        match review {
            Ok(Some(Ok(answer))) => {
                let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
                debug!(%path, us, "reviewed");
                Ok(Some(answer))
            }
            Ok(Some(Err(error))) => {
                debug!(%path, %error, "not a review");
                Err(Refusal::Unreadable)
            }
            Ok(None) => Ok(None),
            Err(panic) => {
                error!(%path, %panic, "a review failed");
                Err(Refusal::Failed)
            }
        }
    }

    /// The answer to a review that is not decoded, if there is one. The API server's patience is nearly over by then, so this waits for other heads
    /// only.
    async fn turned_away(&self, path: &str, head: &Arc<Vec<u8>>, why: Refusal) -> Option<Vec<u8>> {
        if !self.reviewer.reads_heads(path) {
            return None;
        }
        let answer = if is_short(head) {
            guarded(|| self.reviewer.turned_away(path, head, why))
        } else {
            let turn = self.bounds.head().await?;
            let (reviewer, asked, head) = (Arc::clone(&self.reviewer), path.to_owned(), Arc::clone(head));
            let answer = blocking("a review", move || {
                let _turn = turn;
                guarded(|| reviewer.turned_away(&asked, &head, why))
            });
            answer.await.unwrap_or_else(|panic| Err(panic.to_string()))
        };
        answer.unwrap_or_else(|panic| {
            error!(%path, %panic, "the answer to a review that was not read failed");
            None
        })
    }
}

fn unknown() -> Response {
    (StatusCode::NOT_FOUND, "no such webhook\n").into_response()
}

#[cfg(test)]
mod tests;
