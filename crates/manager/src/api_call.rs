//! One request to the API server, with its own timeout and without the client's retries.
//!
//! kube's client retries 429, 503 and 504 by itself for minutes; lease renewals and admission writes must fail at once, so every client here is built
//! without retries ([`sluice_client::kubeconfig`]) and this module classifies the answers.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Bytes, HttpBody as _};
use axum::http::{Method, Request, StatusCode, header};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The body's media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// `application/json`: create and replace.
    Json,
    /// RFC 7386 merge patch.
    MergePatch,
    /// RFC 6902 JSON patch.
    JsonPatch,
    /// Kubernetes' strategic merge patch.
    StrategicPatch,
    /// Server-side apply.
    ApplyPatch,
}

impl Content {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MergePatch => "application/merge-patch+json",
            Self::JsonPatch => "application/json-patch+json",
            Self::StrategicPatch => "application/strategic-merge-patch+json",
            // Every JSON document is YAML; the server has no JSON spelling of this type before 1.33.
            Self::ApplyPatch => "application/apply-patch+yaml",
        }
    }
}

/// A request, ready to be sent more than once.
#[derive(Clone, Debug)]
pub struct Call {
    /// The HTTP method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// The body's media type.
    pub content: Content,
    /// The body, shared by all times that it is sent; empty for GET and most deletes.
    pub body: Bytes,
    /// The form of the answer.
    pub accept: &'static str,
    /// Whether the answer, if it is a success, is passed over.
    pub unread: bool,
}

const WHOLE: &str = "application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The API server answered with an error status.
    #[error("{method} {uri}: {message} ({code} {reason})")]
    Status {
        /// The method that was tried.
        method: Method,
        /// On what.
        uri: String,
        /// The HTTP code.
        code: u16,
        /// The `reason` of the Status, such as `Conflict`.
        reason: String,
        /// The `message` of the Status.
        message: String,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// No answer within the request's timeout.
    #[error("{method} {uri}: no answer within {timeout:?}")]
    Timeout {
        /// The method that was tried.
        method: Method,
        /// On what.
        uri: String,
        /// The timeout.
        timeout: Duration,
    },
    /// The request did not get through.
    #[error("{method} {uri}")]
    Transport {
        /// The method that was tried.
        method: Method,
        /// On what.
        uri: String,
        /// The cause.
        source: kube::Error,
    },
    /// The answer is not what was asked for.
    #[error("{method} {uri}: the answer cannot be read")]
    Decode {
        /// The method that was tried.
        method: Method,
        /// On what.
        uri: String,
        /// The cause.
        source: serde_json::Error,
    },
}

impl CallError {
    /// The HTTP code, if the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the API server says that the object is not there. What stands before it, and an API server that does not serve the group yet, say 404,
    /// too, without that reason.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, reason, .. } if reason == "NotFound")
    }

    /// Whether the same request may work a little later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Status { code, .. } => *code == 429 || *code >= 500,
            Self::Timeout { .. } | Self::Transport { .. } => true,
            Self::Decode { .. } => false,
        }
    }

    /// Whether the server has too much to do. A connection that breaks says nothing about that.
    pub fn is_overload(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(*code, 429 | 504),
            Self::Timeout { .. } => true,
            Self::Transport { .. } | Self::Decode { .. } => false,
        }
    }

    /// Whether webhooks caused it: one of them denied the request, or could not be called.
    pub fn is_of_admission(&self) -> bool {
        match self {
            Self::Status { message, .. } => {
                message.contains("admission webhook") || message.contains("failed calling webhook")
            }
            _ => false,
        }
    }

    /// How long the server asks to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// The relevant fields of a Kubernetes `Status` answer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct StatusAnswer {
    message: String,
    reason: String,
}

impl Call {
    /// A GET.
    pub fn get(uri: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            uri: uri.into(),
            content: Content::Json,
            body: Bytes::new(),
            accept: WHOLE,
            unread: false,
        }
    }

    /// The same call, for callers that need no more than its success: the answer is empty then.
    #[must_use]
    pub fn unread(mut self) -> Self {
        self.unread = true;
        self
    }

    /// The same call, with only the metadata of the object in the answer.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.accept = METADATA;
        self
    }

    /// The same for a list.
    #[must_use]
    pub fn list_of_metadata(mut self) -> Self {
        self.accept = METADATA_LIST;
        self
    }

    /// A call with a JSON body.
    pub fn with_body(
        method: Method,
        uri: impl Into<String>,
        content: Content,
        body: &impl serde::Serialize,
    ) -> Self {
        Self::written(method, uri, content, body).expect("maps have string keys and values serialize")
    }

    /// The same with a body of any type.
    ///
    /// # Errors
    ///
    /// If the body cannot be written as JSON.
    pub fn written(
        method: Method,
        uri: impl Into<String>,
        content: Content,
        body: &impl serde::Serialize,
    ) -> serde_json::Result<Self> {
        let body = serde_json::to_vec(body)?.into();
        Ok(Self { method, uri: uri.into(), content, body, accept: WHOLE, unread: false })
    }

    /// The same with a body that was written already.
    pub fn of_text(method: Method, uri: impl Into<String>, content: Content, body: &str) -> Self {
        let body = Bytes::copy_from_slice(body.as_bytes());
        Self { method, uri: uri.into(), content, body, accept: WHOLE, unread: false }
    }

    /// Sends it once and returns the raw answer.
    ///
    /// # Errors
    ///
    /// If the URI is not one, the API server cannot be reached or does not answer within `timeout`, or its answer has an error status.
    pub async fn send(&self, client: &Client, timeout: Duration) -> Result<Vec<u8>, CallError> {
        let failed =
            |source| CallError::Transport { method: self.method.clone(), uri: self.uri.clone(), source };
        let request = Request::builder()
            .method(self.method.clone())
            .uri(&self.uri)
            .header(header::CONTENT_TYPE, self.content.media_type())
            .header(header::ACCEPT, self.accept)
            .body(Body::from(self.body.clone()))
            .map_err(|e| failed(kube::Error::HttpError(e)))?;
        let exchange = async {
            let answer = client.send(request).await.map_err(failed)?;
            let status = answer.status();
            let retry_after = answer
                .headers()
                .get(header::RETRY_AFTER)
                .and_then(|v| v.to_str().ok())
                .and_then(|v| v.parse().ok())
                .map(Duration::from_secs);
            let mut body = answer.into_body();
            if self.unread && status.is_success() {
                // To its end: then the connection is free for the next request.
                while let Some(piece) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                    piece.map_err(failed)?;
                }
                return Ok(Vec::new());
            }
            let body = body.collect_bytes().await.map_err(failed)?;
            if status.is_success() {
                // Without another copy of what may be large.
                Ok(Vec::from(body))
            } else {
                Err(self.refused(status, retry_after, &body))
            }
        };
        tokio::time::timeout(timeout, exchange).await.unwrap_or_else(|_| {
            Err(CallError::Timeout { method: self.method.clone(), uri: self.uri.clone(), timeout })
        })
    }

    /// Sends it once and decodes the answer.
    ///
    /// # Errors
    ///
    /// As [`Self::send`]; and if the answer is not JSON of this type.
    pub async fn send_as<T: DeserializeOwned>(
        &self,
        client: &Client,
        timeout: Duration,
    ) -> Result<T, CallError> {
        let answer = self.send(client, timeout).await?;
        serde_json::from_slice(&answer).map_err(|source| CallError::Decode {
            method: self.method.clone(),
            uri: self.uri.clone(),
            source,
        })
    }

    pub(crate) fn refused(
        &self,
        status: StatusCode,
        retry_after: Option<Duration>,
        body: &[u8],
    ) -> CallError {
        let answer: StatusAnswer = serde_json::from_slice(body).unwrap_or_else(|_| StatusAnswer {
            message: String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned(),
            reason: String::new(),
        });
        let reason = if answer.reason.is_empty() {
            status.canonical_reason().unwrap_or("unknown").to_owned()
        } else {
            answer.reason
        };
        CallError::Status {
            method: self.method.clone(),
            uri: self.uri.clone(),
            code: status.as_u16(),
            reason,
            message: answer.message,
            retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::Uri;
    use axum::response::Response;

    use super::*;
    use crate::fake_api;

    fn refused(code: u16, body: &str) -> CallError {
        Call::get("/api").refused(StatusCode::from_u16(code).unwrap(), None, body.as_bytes())
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_is_taken_in_to_its_end_and_not_kept() {
        const PIECES: usize = 1000;
        let taken = Arc::new(AtomicUsize::new(0));
        let given = Arc::clone(&taken);
        let client = fake_api::client(move |method: Method, _: Uri, _: Bytes| {
            let given = Arc::clone(&given);
            let pieces = (0..PIECES).map(move |_| {
                given.fetch_add(1, Ordering::Relaxed);
                Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 1024]))
            });
            let answer = if method == Method::POST {
                Response::new(axum::body::Body::from_stream(futures::stream::iter(pieces)))
            } else {
                fake_api::failed(409, "Conflict")
            };
            std::future::ready(answer)
        });
        let call = |method| Call::with_body(method, "/api", Content::Json, &()).unread();
        let answer = call(Method::POST).send(&client, Duration::from_mins(1)).await.unwrap();
        assert_eq!((answer.capacity(), taken.load(Ordering::Relaxed)), (0, PIECES));
        let refused = call(Method::PATCH).send(&client, Duration::from_mins(1)).await.unwrap_err();
        assert_eq!(refused.to_string(), "PATCH /api: Conflict (409 Conflict)");
    }

    #[test]
    fn a_status_answer_gives_its_reason_and_message() {
        let error = refused(409, r#"{"kind":"Status","reason":"Conflict","message":"changed meanwhile"}"#);
        assert_eq!(error.to_string(), "GET /api: changed meanwhile (409 Conflict)");
        assert_eq!(error.code(), Some(409));
        assert!(!error.is_transient());
    }

    #[test]
    fn an_answer_that_is_no_status_is_quoted() {
        let error = refused(503, "no backend");
        assert_eq!(error.to_string(), "GET /api: no backend (503 Service Unavailable)");
        assert!(error.is_transient());
    }

    #[test]
    fn only_the_api_server_says_that_an_object_is_not_there() {
        assert!(refused(404, r#"{"kind":"Status","reason":"NotFound"}"#).is_not_found());
        for other in ["404 page not found", "{}", r#"{"error":"no such cluster"}"#] {
            assert!(!refused(404, other).is_not_found(), "{other}");
        }
        assert!(!refused(410, r#"{"kind":"Status","reason":"NotFound"}"#).is_not_found());
    }

    #[test]
    fn too_many_requests_and_server_errors_are_transient_and_refusals_are_not() {
        assert!(refused(429, "{}").is_transient());
        assert!(refused(500, "{}").is_transient());
        assert!(!refused(404, "{}").is_transient());
        assert!(!refused(422, "{}").is_transient());
    }
}
