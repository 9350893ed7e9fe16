//! `/api/changes`: server-sent events that say which views have changed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::store::Revisions;
use crate::access::party;
use crate::visibility::status::Refusal;

/// Streams of one user, or [`party`] of users, at once: the visible windows. A browser has six connections to a server without HTTP/2, and answers
/// need one.
const EACH: usize = 5;
/// Between two events of a stream.
const APART: Duration = Duration::from_secs(1);
/// How long an event is delayed so that the answers are as new as it says.
const SETTLED: Duration = Duration::from_millis(300);
/// A comment is sent after this time without anything else.
const QUIET: Duration = Duration::from_secs(15);
/// After this a stream ends. The caller comes again, and is checked again.
pub const LIFE: Duration = Duration::from_mins(5);

/// The streams that are open.
#[derive(Debug)]
pub struct Streams {
    most: usize,
    by_party: Mutex<BTreeMap<String, usize>>,
}

/// An open stream.
#[derive(Debug)]
struct Open {
    streams: Arc<Streams>,
    party: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut parties = self.streams.by_party.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = parties.get_mut(&self.party) {
            *count -= 1;
            if *count == 0 {
                parties.remove(&self.party);
            }
        }
    }
}

struct Progress {
    revisions: watch::Receiver<Revisions>,
    /// The last reported revisions; none at first.
    reported: Option<Revisions>,
    last: Instant,
    end: Instant,
    _open: Open,
}

impl Streams {
    /// With at most this number of streams at once.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, by_party: Mutex::default() })
    }

    fn open(self: &Arc<Self>, user: &str) -> Result<Open, Refusal> {
        let party = party(user);
        let mut parties = self.by_party.lock().unwrap_or_else(PoisonError::into_inner);
        let own = parties.get(party).copied().unwrap_or(0);
        if own >= EACH || parties.values().sum::<usize>() >= self.most {
            return Err(Refusal::TooMany("too many pages follow the changes: close one".to_owned()));
        }
        parties.insert(party.to_owned(), own + 1);
        Ok(Open { streams: Arc::clone(self), party: party.to_owned() })
    }

    /// Opens a stream for a user.
    ///
    /// # Errors
    ///
    /// If this user has five streams already, or all users together have as many as there may be.
    pub fn answer(
        self: &Arc<Self>,
        user: &str,
        revisions: watch::Receiver<Revisions>,
    ) -> Result<Response, Refusal> {
        let now = Instant::now();
        let progress =
            Progress { revisions, reported: None, last: now, end: now + LIFE, _open: self.open(user)? };
        let events = futures::stream::unfold(progress, |mut progress| async move {
            let text = progress.next().await?;
            Some((Ok::<_, Infallible>(text), progress))
        });
        Ok(([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response())
    }
}

impl Progress {
    /// The next event or comment; nothing at the end.
    async fn next(&mut self) -> Option<String> {
        let quiet = self.last + QUIET;
        if self.reported.is_some() {
            match timeout_at(quiet.min(self.end), self.revisions.changed()).await {
                // A stream whose source has ended is of no use.
                Ok(Err(_)) => return None,
                Ok(Ok(())) => sleep_until((self.last + APART).max(Instant::now() + SETTLED)).await,
                Err(_) if Instant::now() >= self.end => return None,
                Err(_) => {
                    self.last = Instant::now();
                    return Some(":\n\n".to_owned());
                }
            }
        }
        let now = *self.revisions.borrow_and_update();
        let text = event(self.reported.as_ref(), now);
        (self.reported, self.last) = (Some(now), Instant::now());
        Some(text)
    }
}

/// The event with what changed since the last one.
fn event(reported: Option<&Revisions>, now: Revisions) -> String {
    let mut views = Vec::new();
    if reported.is_none_or(|reported| reported.queues != now.queues) {
        views.extend(["now", "queues", "workloads"]);
    }
    if reported.is_none_or(|reported| reported.nodes != now.nodes) {
        views.push("nodes");
    }
    let old = now.old.map(|old| old.to_string());
    let data = json!({"revision": now.all, "views": views, "old": old});
    format!("event: changed\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_the_views_that_changed() {
        let (old, new) = (
            Revisions { all: 4, queues: 4, nodes: 2, old: None },
            Revisions { all: 5, queues: 4, nodes: 5, old: None },
        );
        assert_eq!(
            event(Some(&old), new),
            "event: changed\ndata: {\"old\":null,\"revision\":5,\"views\":[\"nodes\"]}\n\n"
        );
        assert!(event(None, old).contains(r#"["now","queues","workloads","nodes"]"#));
        let cut_off = Revisions { old: Some(jiff::Timestamp::UNIX_EPOCH), ..old };
        let reported = event(Some(&old), cut_off);
        assert!(reported.contains(r#"{"old":"1970-01-01T00:00:00Z","revision":4,"views":[]}"#), "{reported}");
    }

    #[test]
    fn streams_are_bounded_for_each_user_and_for_all() {
        let streams = Streams::new(EACH + 2);
        let bobs: Vec<_> = (0..EACH).map(|_| streams.open("bob").unwrap()).collect();
        assert!(matches!(streams.open("bob"), Err(Refusal::TooMany(_))));
        let alices: Vec<_> = (0..2).map(|_| streams.open("alice").unwrap()).collect();
        assert!(streams.open("carol").is_err());
        drop(bobs);
        assert!(streams.open("carol").is_ok());
        drop(alices);
        let account = |number: usize| streams.open(&format!("system:serviceaccount:a:account-{number}"));
        let accounts: Vec<_> = (0..EACH).map(|number| account(number).unwrap()).collect();
        assert!(account(EACH).is_err() && streams.open("alice").is_ok(), "a namespace has as many as a user");
        drop(accounts);
        assert!(streams.by_party.lock().unwrap().is_empty(), "nothing is kept of users who are gone");
    }

    #[tokio::test]
    async fn a_stream_sends_the_state_at_once_and_then_changes() {
        let revisions = watch::Sender::new(Revisions { all: 1, queues: 1, ..Revisions::default() });
        let now = Instant::now();
        let open = Streams::new(1).open("bob").unwrap();
        let mut progress = Progress {
            revisions: revisions.subscribe(),
            reported: None,
            last: now,
            end: now + LIFE,
            _open: open,
        };
        assert!(progress.next().await.unwrap().contains("\"revision\":1"));
        for all in 2..5 {
            revisions.send_replace(Revisions { all, queues: all, ..Revisions::default() });
        }
        let text = progress.next().await.unwrap();
        assert!(text.contains("\"revision\":4") && !text.contains("nodes"), "{text}");
        drop(revisions);
        assert_eq!(progress.next().await, None);
    }
}
