//! Request bodies that record their progress.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use super::ConnectionHandle;
use super::connections::Phase;

/// An answer is handed out in pieces, so that a reader that does not read is noticed.
const PIECE: usize = 64 << 10;

/// As an extension of a response: kept until the answer was sent.
#[derive(Clone)]
pub struct Keep(pub Arc<dyn Any + Send + Sync>);

/// The body of a request; its connection is receiving until it is dropped.
pub struct Received {
    inner: Incoming,
    entry: Arc<ConnectionHandle>,
}

impl Received {
    pub(super) fn new(inner: Incoming, entry: Arc<ConnectionHandle>) -> Self {
        entry.enter(if inner.is_end_stream() { Phase::Answering } else { Phase::Receiving });
        Self { inner, entry }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.entry.received();
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of an answer; its connection is sending until it is dropped.
pub struct Sent {
    inner: Body,
    rest: Bytes,
    entry: Arc<ConnectionHandle>,
    _kept: Option<Keep>,
}

impl Sent {
    pub(super) fn of(mut response: Response, entry: Arc<ConnectionHandle>) -> Response<Self> {
        entry.enter(Phase::Sending);
        let kept = response.extensions_mut().remove::<Keep>();
        response.map(|inner| Self { inner, rest: Bytes::new(), entry, _kept: kept })
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.entry.enter(Phase::Idle);
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
