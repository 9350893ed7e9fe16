//! How much a review may take of this process: bytes on the wire, memory, and time to wait for either.
//!
//! The API server takes requests of at most 3 MiB and stores objects of at most 1.5 MiB (etcd's limit). An admission review has the new and the old
//! object, so 4.5 MiB and a few kB about the request, and more where JSON escapes characters. A conversion review has one object: the API server
//! decodes and converts lists item by item. Larger reviews are answered with 413, which the API server reports as a failure of the webhook. If that
//! would admit a job that should be queued, the review is answered from its head (see
//! [`Reviewer::turned_away`](super::server::Reviewer::turned_away)).
//!
//! Large reviews never keep small ones waiting: these have memory of their own, and are worked on where they are received. Large ones have a few
//! threads, and as much memory as those need. See [`threads`](super::threads).

mod weights;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::threads;
use crate::serve::ConnectionHandle;
use crate::supervise::blocking;
use weights::weights;

/// The bytes of a review.
pub const BODY_BYTES: usize = 8 << 20;
/// The bytes of all reviews that are being received, worked on or answered, and of the answers.
const ALL_BODIES: usize = 32 << 20;
/// The memory of all reviews that are being worked on, as [`weights`] has it.
const ALL_WORK: usize = 64 << 20;
/// The share of a review's object, if the write makes it larger: a later review contains the object twice, new and old, so that a stored object can
/// be stopped, changed and deleted.
const ONE_OBJECT: usize = ALL_WORK / 2 - (2 << 20);
/// The bytes of small reviews, beyond [`ALL_BODIES`], while these are taken.
const SMALL_BODIES: usize = 4 << 20;
/// The bytes of a small review and its answer.
const SMALL_BODY: usize = 256 << 10;
/// The memory of a small review that is being worked on.
const SMALL: usize = 1 << 20;
/// How much of a body is let come in after it was refused.
const MOST_DRAINED: usize = 64 << 20;
/// How long that may take after a review has waited for all of its time: less than the API server waits for the answer then (see [`deadline`]).
const DRAINING: Duration = Duration::from_millis(200);
/// How long a review waits for its turn. The API server waits 10 s for an answer by default.
const TURN: Duration = Duration::from_secs(5);

/// Why a review is not worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its body is too long.
    #[error("the review is larger than {} MiB", BODY_BYTES >> 20)]
    TooLong,
    /// Its values would take too much memory.
    #[error("the review has too many values")]
    TooMany,
    /// Too much is being worked on.
    #[error("too many reviews at once")]
    Busy,
    /// The body broke off.
    #[error("the review is incomplete")]
    Incomplete,
    /// It is not a review, or its object cannot be read.
    #[error("the review cannot be read")]
    Unreadable,
    /// The reviewer panicked.
    #[error("the review failed")]
    Failed,
}

impl Refusal {
    /// As a status of HTTP.
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLong | Self::TooMany => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Incomplete | Self::Unreadable => StatusCode::BAD_REQUEST,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status(), format!("{self}\n")).into_response()
    }
}

/// The memory and the threads that are left for reviews.
#[derive(Debug)]
pub struct Bounds {
    bodies: Arc<Semaphore>,
    small_bodies: Arc<Semaphore>,
    work: Arc<Semaphore>,
    large: Arc<Semaphore>,
    heads: Arc<Semaphore>,
}

impl Default for Bounds {
    fn default() -> Self {
        let of = |permits| Arc::new(Semaphore::new(permits));
        Self {
            bodies: of(ALL_BODIES),
            small_bodies: of(SMALL_BODIES),
            work: of(ALL_WORK),
            large: of(threads::large()),
            heads: of(threads::HEADS),
        }
    }
}

/// Until when a review that was posted just now must be answered. The API server says in the query how long it waits (`timeout=2s`): what is
/// late is the failure of the webhook, which may let everything pass, so that the answer must have time to arrive.
pub fn deadline(query: Option<&str>) -> Instant {
    let mut fields = query.unwrap_or_default().split('&');
    let seconds: Option<u32> =
        fields.find_map(|field| field.strip_prefix("timeout=")?.strip_suffix('s')?.parse().ok());
    let patience = seconds.map_or(TURN, |seconds| TURN.min(Duration::from_secs(seconds.into()) * 3 / 4));
    Instant::now() + patience
}

/// Memory that was granted to the request of a connection; given back when dropped.
#[derive(Debug)]
pub struct Granted {
    permits: Vec<OwnedSemaphorePermit>,
    /// It was announced as small: the beginning of a large one takes nothing from those.
    is_small: bool,
    entry: Arc<ConnectionHandle>,
}

impl Granted {
    fn add(&mut self, more: OwnedSemaphorePermit) {
        let of_same = |permit: &&mut OwnedSemaphorePermit| Arc::ptr_eq(permit.semaphore(), more.semaphore());
        match self.permits.iter_mut().find(of_same) {
            Some(permit) => permit.merge(more),
            None => self.permits.push(more),
        }
        self.entry.hold(self.bytes());
    }

    fn bytes(&self) -> usize {
        self.permits.iter().map(OwnedSemaphorePermit::num_permits).sum()
    }
}

/// A review that is not decoded.
#[derive(Debug)]
pub struct Unread {
    /// Why.
    pub why: Refusal,
    /// The part of its body that was read.
    pub head: Arc<Vec<u8>>,
    rest: Option<BodyDataStream>,
    _granted: Option<Granted>,
}

impl Unread {
    /// A review whose body was read.
    pub fn whole(why: Refusal, head: Arc<Vec<u8>>, granted: Granted) -> Self {
        Self { why, head, rest: None, _granted: Some(granted) }
    }

    /// Whether all of its body was read.
    pub const fn is_whole(&self) -> bool {
        self.rest.is_none()
    }

    /// Reads the rest of the body, and drops it: a client that is still sending might miss an answer. One that had to wait to the end has a moment
    /// left for that.
    pub async fn drain(self, until: Instant) {
        let Some(mut rest) = self.rest else { return };
        let drained = async {
            let mut bytes = 0;
            while bytes < MOST_DRAINED
                && let Some(Ok(piece)) = rest.next().await
            {
                bytes += piece.len();
            }
        };
        // The API server does not wait much longer, either.
        let until = until.max(Instant::now() + DRAINING);
        let _ = tokio::time::timeout_at(until.into(), drained).await;
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.entry.hold(0);
    }
}

impl Bounds {
    /// Reads a body. Its bytes are granted as they are received: a request that only announces bytes takes none from others. If none are left,
    /// requests that hold many bytes for long are closed. If the body is too large its head is read if that `matters`.
    ///
    /// # Errors
    ///
    /// If the body is larger than 8 MiB or breaks off, or there is no room for it in time.
    pub async fn read(
        &self,
        body: Body,
        entry: Arc<ConnectionHandle>,
        head_matters: bool,
        until: Instant,
    ) -> Result<(Vec<u8>, Granted), Unread> {
        let size = hyper::body::Body::size_hint(&body);
        let announced = usize::try_from(size.lower()).unwrap_or(usize::MAX);
        let is_small = size.upper().is_some_and(|bytes| bytes <= SMALL_BODY as u64);
        let (mut read, mut granted) = (Vec::new(), Granted { permits: Vec::new(), is_small, entry });
        let most = match announced {
            0..=BODY_BYTES => BODY_BYTES,
            _ if head_matters => SMALL_BODY,
            _ => 0,
        };
        let mut pieces = body.into_data_stream();
        let why = loop {
            if most == 0 {
                break Refusal::TooLong;
            }
            let piece = match pieces.next().await {
                None => return Ok((read, granted)),
                Some(Ok(piece)) => piece,
                Some(Err(_)) => break Refusal::Incomplete,
            };
            let bytes = read.len() + piece.len();
            if bytes > most {
                break Refusal::TooLong;
            }
            let got = self.grant(&mut granted, bytes, until).await;
            if read.is_empty() {
                // The announced size, and at most BODY_BYTES: memory that is not written to is not used.
                read.reserve_exact(announced.min(most));
            }
            read.extend_from_slice(&piece);
            if let Err(why) = got {
                break why;
            }
        };
        Err(Unread { why, head: Arc::new(read), rest: Some(pieces), _granted: Some(granted) })
    }

    /// Grants the missing bytes up to this number.
    ///
    /// # Errors
    ///
    /// If they are not free in time.
    pub async fn grant(&self, granted: &mut Granted, bytes: usize, until: Instant) -> Result<(), Refusal> {
        let missing = bytes.saturating_sub(granted.bytes());
        if missing == 0 {
            return Ok(());
        }
        let permits = u32::try_from(missing).map_err(|_| Refusal::TooLong)?;
        // Small ones do not stand in the line of large ones.
        let small = granted.is_small && bytes <= SMALL_BODY;
        let own = if small { &self.small_bodies } else { &self.bodies };
        for pool in [&self.bodies, own] {
            if let Ok(more) = Arc::clone(pool).try_acquire_many_owned(permits) {
                granted.add(more);
                return Ok(());
            }
        }
        granted.entry.make_room(missing);
        // Room was made wherever most was held, so a small one takes what is free first.
        let more = tokio::select! {
            more = acquired(own, permits, until) => more,
            more = acquired(&self.bodies, permits, until), if small => more,
        };
        granted.add(more?);
        Ok(())
    }

    /// Waits until a large review may be worked on. An answer may take `most` bytes, however short the review is.
    ///
    /// # Errors
    ///
    /// If the review would take more memory than all reviews together may, or its object grows and would take more than nearly half of that; or if
    /// there is no thread or no memory for it in time.
    pub async fn turn(&self, body: &Arc<Vec<u8>>, most: usize, until: Instant) -> Result<Turn, Refusal> {
        let thread = acquired(&self.large, 1, until).await?;
        let body = Arc::clone(body);
        // Reading through a large body takes milliseconds. The thread is taken until that ends, even if no caller waits for it any more.
        let weighing = blocking("weighing a review", move || (weights(&body), thread));
        let (weights, thread) = weighing.await.map_err(|_| Refusal::Failed)?;
        let weight = weights.with_answer(most);
        if weight > ALL_WORK || weights.object > ONE_OBJECT.max(weights.old) {
            return Err(Refusal::TooMany);
        }
        let weight = u32::try_from(weight).map_err(|_| Refusal::TooMany)?;
        Ok(Turn { _memory: acquired(&self.work, weight, until).await?, _thread: thread })
    }

    /// Waits until the head of a review may be looked at that was not read.
    pub async fn head(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.heads).acquire_owned().await.ok()
    }
}

/// Permits, if they are free in time.
async fn acquired(
    semaphore: &Arc<Semaphore>,
    permits: u32,
    until: Instant,
) -> Result<OwnedSemaphorePermit, Refusal> {
    let acquiring = Arc::clone(semaphore).acquire_many_owned(permits);
    let acquired = tokio::time::timeout_at(until.into(), acquiring).await;
    acquired.map_err(|_| Refusal::Busy)?.map_err(|_| Refusal::Busy)
}

/// A thread and memory for a review; given back when dropped.
#[derive(Debug)]
pub struct Turn {
    _memory: OwnedSemaphorePermit,
    _thread: OwnedSemaphorePermit,
}

/// Whether working on a review takes so little time and memory that it need not wait for anything. An answer may take `most` bytes.
pub fn is_small(body: &[u8], most: usize) -> bool {
    is_short(body) && weights(body).with_answer(most) <= SMALL
}

/// Whether reading through a text takes next to no time.
pub fn is_short(text: &[u8]) -> bool {
    text.len() <= SMALL_BODY
}

#[cfg(test)]
mod tests;
