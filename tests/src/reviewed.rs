//! Writes of a user who tries again while webhooks do not answer.

use anyhow::{Context as _, Result};
use kube::core::Status;
use sluice_testkit::wait::{Progress, eventually};

use crate::place::DEADLINE;

/// Messages about reviews that fail in every attempt, so that it is of no use to try again.
const NEVER: [&str; 4] = [
    "the review is larger than",
    "the review has too many values",
    "the review cannot be read",
    "the review failed",
];

/// Whether a write was not carried out, as a webhook or the API server itself had no time for it.
fn had_no_time(status: &Status) -> bool {
    let why = &status.message;
    let unanswered = why.contains("failed calling webhook") && !NEVER.iter().any(|never| why.contains(never));
    unanswered || status.reason == "Timeout" || status.reason == "TooManyRequests"
}

/// Repeats a write until it is answered by all that have to review it: after the manager was killed, the API server still sends a first request on
/// its connection to the dead one, and on a busy machine an answer may come too late.
///
/// # Errors
///
/// If the API server cannot be reached or refuses the write, or there still is no answer after three minutes ([`DEADLINE`]).
pub async fn reviewed<T, F>(what: &str, write: impl Fn() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let written = eventually(what, DEADLINE, || async {
        Ok(match write().await {
            Err(kube::Error::Api(status)) if had_no_time(&status) => Progress::NotYet(status.message),
            other => Progress::Done(other),
        })
    });
    written.await.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
}

/// As [`reviewed`], without the answer.
///
/// # Errors
///
/// As [`reviewed`].
pub async fn answered<T, F>(what: &str, write: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = kube::Result<T>>,
{
    reviewed(what, write).await.map(drop).with_context(|| what.to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often a write is sent whose first attempt is answered so, and its last answer.
    async fn attempts(code: u16, reason: &str, message: &str) -> (u32, kube::Result<()>) {
        let sent = Cell::new(0);
        let answer = reviewed("a write", || async {
            sent.set(sent.get() + 1);
            if sent.get() > 1 {
                return Ok(());
            }
            Err(kube::Error::Api(Box::new(Status::failure(message, reason).with_code(code))))
        });
        let answer = answer.await;
        (sent.get(), answer)
    }

    #[tokio::test]
    async fn what_no_webhook_had_time_for_is_written_again() {
        for (code, reason, message) in [
            (500, "InternalError", "failed calling webhook \"a\": context deadline exceeded"),
            (500, "InternalError", "failed calling webhook \"a\": net/http: TLS handshake timeout"),
            (500, "InternalError", "failed calling webhook \"a\": too many reviews at once"),
            (504, "Timeout", "the request did not complete"),
            (429, "TooManyRequests", "try again"),
        ] {
            let (sent, answer) = attempts(code, reason, message).await;
            assert!(sent == 2 && answer.is_ok(), "{message}: {sent} {answer:?}");
        }
    }

    #[tokio::test]
    async fn a_refused_write_is_not_repeated() {
        for (code, reason, message) in [
            (403, "Forbidden", "admission webhook \"a\" denied the request"),
            (500, "InternalError", "failed calling webhook \"a\": the review has too many values"),
            (409, "AlreadyExists", "it is there"),
        ] {
            let (sent, answer) = attempts(code, reason, message).await;
            assert!(sent == 1 && answer.is_err(), "{message}: {sent} {answer:?}");
        }
    }
}
