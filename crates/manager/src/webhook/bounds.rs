//! How much a review may take of this process: bytes on the wire, memory, and time to wait for either.
//!
//! The API server takes requests of at most 3 MiB and stores objects of at most 1.5 MiB (etcd's limit). An admission review has the new and the old
//! object, so 4.5 MiB and a few kB about the request, and more where JSON escapes characters. A conversion review has one object: the API server
//! decodes and converts lists item by item. Larger reviews are answered with 413, which the API server reports as a failure of the webhook. If that
//! would admit a job that should be queued, the review is answered from its head (see
//! [`Reviewer::turned_away`](super::server::Reviewer::turned_away)).
//!
//! Large reviews never keep small ones waiting: these have memory of their own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::serve::ConnectionHandle;

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
/// The memory of small reviews that are being worked on.
const SMALL_WORK: usize = 8 << 20;
/// The share of a small review.
const SMALL: usize = 1 << 20;
/// How much of a body is let come in after it was refused.
const MOST_DRAINED: usize = 64 << 20;
/// How long a review waits for its turn. The API server waits 10 s for an answer by default.
const TURN: Duration = Duration::from_secs(5);

/// The least memory of a JSON object: a node of its map; or the Rust struct that is read from it.
const OBJECT: usize = 960;
/// The memory of any other value.
const VALUE: usize = 64;
/// How many copies of a text exist while a review is worked on, beside its body: decoded, converted, and in the buffer of the answer, which grows by
/// doubling.
const COPIES: usize = 4;

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

/// The memory that is left for reviews.
#[derive(Debug)]
pub struct Bounds {
    bodies: Arc<Semaphore>,
    small_bodies: Arc<Semaphore>,
    work: Arc<Semaphore>,
    small_work: Arc<Semaphore>,
}

impl Default for Bounds {
    fn default() -> Self {
        let bytes = |bytes| Arc::new(Semaphore::new(bytes));
        Self {
            bodies: bytes(ALL_BODIES),
            small_bodies: bytes(SMALL_BODIES),
            work: bytes(ALL_WORK),
            small_work: bytes(SMALL_WORK),
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

    /// Reads the rest of the body, and drops it: a client that is still sending might miss an answer.
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
        // The API server does not wait longer, either.
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
        let announced = usize::try_from(hyper::body::Body::size_hint(&body).lower()).unwrap_or(usize::MAX);
        let (mut read, mut granted) = (Vec::new(), Granted { permits: Vec::new(), entry });
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
        let small = Some(&self.small_bodies).filter(|_| bytes <= SMALL_BODY);
        for pool in std::iter::once(&self.bodies).chain(small) {
            if let Ok(more) = Arc::clone(pool).try_acquire_many_owned(permits) {
                granted.add(more);
                return Ok(());
            }
        }
        granted.entry.make_room(missing);
        let more =
            tokio::time::timeout_at(until.into(), Arc::clone(&self.bodies).acquire_many_owned(permits)).await;
        granted.add(more.map_err(|_| Refusal::Busy)?.map_err(|_| Refusal::Busy)?);
        Ok(())
    }

    /// Waits until the review may be worked on. An answer may take `most` bytes, however short the review is.
    ///
    /// # Errors
    ///
    /// If the review would take more memory than all reviews together may, or its object grows and would take more than nearly half of that; or if
    /// there is no room for it in time.
    pub async fn turn(
        &self,
        body: &[u8],
        most: usize,
        until: Instant,
    ) -> Result<OwnedSemaphorePermit, Refusal> {
        let Weights { all, object, old } = weights(body);
        let weight = all.saturating_add(most);
        if weight > ALL_WORK || object > ONE_OBJECT.max(old) {
            return Err(Refusal::TooMany);
        }
        let pool = if weight <= SMALL { &self.small_work } else { &self.work };
        let weight = u32::try_from(weight).map_err(|_| Refusal::TooMany)?;
        let turn = tokio::time::timeout_at(until.into(), Arc::clone(pool).acquire_many_owned(weight)).await;
        turn.map_err(|_| Refusal::Busy)?.map_err(|_| Refusal::Busy)
    }
}

/// The memory that parts of a review take once they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weights {
    /// All of it.
    all: usize,
    /// `request.object`.
    object: usize,
    /// `request.oldObject`.
    old: usize,
}

/// The memory that a JSON text takes once it is read, at most, without reading it. A few bytes of text can stand for a hundred times
/// as much.
fn weights(json: &[u8]) -> Weights {
    let mut weights = Weights::default();
    // The last text, and the position of the scan: in which field of the request, and how deep.
    let (mut last, mut field, mut depth) = (&json[..0], &json[..0], 0_usize);
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        let (mut next, mut weight) = (at + 1, 0);
        match byte {
            b'"' => {
                next = end_of_text(json, next);
                last = json.get(at + 1..next.saturating_sub(1)).unwrap_or_default();
            }
            b'{' => (depth, weight) = (depth + 1, OBJECT),
            b'[' => (depth, weight) = (depth + 1, VALUE),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => weight = VALUE,
            _ => {}
        }
        weight += (next - at).saturating_mul(COPIES);
        weights.all += weight;
        match field {
            b"object" => weights.object += weight,
            b"oldObject" => weights.old += weight,
            _ => {}
        }
        match (depth, byte) {
            (2, b':') => field = last,
            (2, b',') | (0..2, _) => field = &json[..0],
            _ => {}
        }
        at = next;
    }
    weights
}

/// The position after the text that begins at `at`, after its first quotation mark.
fn end_of_text(json: &[u8], mut at: usize) -> usize {
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sluice_api::conversion::MAX_ANSWER;

    #[test]
    fn small_texts_that_become_large_weigh_what_they_become() {
        let weight = |json: &[u8]| weights(json).all;
        assert_eq!(weight(b"{}"), 2 * COPIES + OBJECT);
        assert_eq!(weight(br#"["{,:[\"{","x"]"#), 15 * COPIES + 2 * VALUE, "nothing inside of a text counts");
        assert_eq!((weight(b"\"\\"), weight(b"]]\"")), (2 * COPIES, 3 * COPIES), "whatever is no JSON");
        let objects = format!("[{}]", vec![r#"{"":0}"#; 1000].join(","));
        assert!(weight(objects.as_bytes()) > 700 * 1000);
        let lists = format!("[{}]", vec!["[]"; 1000].join(","));
        assert!(weight(lists.as_bytes()) > 2 * VALUE * 1000 - VALUE);
    }

    #[test]
    fn the_objects_of_a_review_weigh_what_they_weigh_alone() {
        let object = json!({"object": {"oldObject": [{"object": 1}, "a:b"]}, "spec": [[], {}]});
        let old = json!({"object": "request", "spec": {"x": [1, 2, 3]}});
        let request = json!({"uid": "object", "object": object, "oldObject": old, "options": {"object": {}}});
        let review = json!({"kind": "oldObject", "request": request}).to_string();
        let alone = |value: &Value| weights(value.to_string().as_bytes()).all;
        // The colon before it is the field's, the comma or brace after it counts as its own.
        let end = COPIES + VALUE;
        let seen = weights(review.as_bytes());
        assert_eq!((seen.object, seen.old), (alone(&object) + end, alone(&old) + end));
        assert!(seen.all > seen.object + seen.old);
        assert_eq!(weights(br#"{"request":{"objects":[{},{}]}}"#).object, 0);
    }

    /// A review of an old object with this number of variables, and a new one with this number and size of annotations.
    fn review(old: Option<usize>, new: usize, more: usize) -> Vec<u8> {
        let object = |variables: usize, more: usize| {
            let env = vec![r#"{"name":"A"}"#; variables].join(",");
            format!(r#"{{"metadata":{{"annotations":{{"a":"{}"}}}},"env":[{env}]}}"#, "x".repeat(more))
        };
        let old = old.map_or("null".to_owned(), |variables| object(variables, 0));
        let object = object(new, more);
        format!(r#"{{"request":{{"uid":"u","object":{object},"oldObject":{old}}}}}"#).into_bytes()
    }

    #[tokio::test]
    async fn what_can_be_stored_can_be_changed_and_deleted() {
        let bounds = Bounds::default();
        let judge =
            async |old, new, more| bounds.turn(&review(old, new, more), 0, deadline(None)).await.map(drop);
        // The largest that can be created.
        let (mut most, mut step) = (0, 1 << 16);
        while step > 0 {
            if judge(None, most + step, 0).await.is_ok() {
                most += step;
            }
            step /= 2;
        }
        assert!(most > 20_000, "{most}");
        assert_eq!(judge(Some(most), most, 0).await, Ok(()));
        assert_eq!(judge(Some(most), 10, 0).await, Ok(()));
        assert_eq!(judge(Some(most), most + 1, 0).await, Err(Refusal::TooMany), "it grows in no other way");
        assert_eq!(judge(Some(most), most - 100, 200_000).await, Err(Refusal::TooMany));
    }

    #[tokio::test]
    async fn reviews_as_they_are_have_a_turn_and_bombs_have_none() {
        let bounds = Bounds::default();
        let pods: Vec<_> = (0..8)
            .map(|n| {
                let env: Vec<_> = (0..500).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(100)})).collect();
                let container = json!({"name": "c", "image": "i", "env": env});
                json!({"name": format!("p{n}"), "count": 1, "template": {"spec": {"containers": [container]}}})
            })
            .collect();
        let object = json!({"kind": "Workload", "spec": {"podSets": pods}});
        let review = json!({"request": {"uid": "u", "object": object, "oldObject": object}}).to_string();
        assert!(review.len() > 1 << 20);
        let turn = bounds.turn(review.as_bytes(), 0, deadline(None)).await.unwrap();
        assert!(turn.num_permits() > review.len());
        let bomb = format!("[{}]", vec![r#"{"":0}"#; 200_000].join(","));
        assert!(bomb.len() < BODY_BYTES);
        assert_eq!(bounds.turn(bomb.as_bytes(), 0, deadline(None)).await.unwrap_err(), Refusal::TooMany);
    }

    /// A list of this number of objects.
    fn objects(count: usize) -> Vec<u8> {
        format!("[{}]", vec!["{}"; count].join(",")).into_bytes()
    }

    #[tokio::test]
    async fn a_review_that_has_no_turn_in_time_gets_the_reason() {
        let bounds = Bounds::default();
        let (now, later) = (Instant::now(), deadline(None));
        let turn =
            bounds.turn(&objects(ALL_WORK / (OBJECT + VALUE + 3 * COPIES) - 1), 0, later).await.unwrap();
        let second = objects(SMALL / OBJECT);
        assert_eq!(bounds.turn(&second, 0, now).await.unwrap_err(), Refusal::Busy);
        drop(turn);
        assert!(bounds.turn(&second, 0, later).await.is_ok());
    }

    #[tokio::test]
    async fn large_reviews_keep_small_ones_not_from_their_turn() {
        let bounds = Bounds::default();
        let (now, later) = (Instant::now(), deadline(None));
        let half = objects(ALL_WORK / 2 / (OBJECT + VALUE + 3 * COPIES) - 1);
        let large =
            [bounds.turn(&half, 0, later).await.unwrap(), bounds.turn(&half, 0, later).await.unwrap()];
        assert_eq!(bounds.turn(&half, 0, now).await.unwrap_err(), Refusal::Busy);
        let small = objects(SMALL / (OBJECT + VALUE + 3 * COPIES) - 1);
        let mut turns = Vec::new();
        for _ in 0..SMALL_WORK / SMALL {
            turns.push(bounds.turn(&small, 0, now).await.unwrap());
        }
        assert_eq!(bounds.turn(&small, 0, now).await.unwrap_err(), Refusal::Busy, "they are bounded, too");
        drop((large, turns));
    }

    #[tokio::test]
    async fn answers_that_may_be_large_are_not_made_all_at_once() {
        let bounds = Bounds::default();
        let (now, later) = (Instant::now(), deadline(None));
        let large = async |until| bounds.turn(b"{}", MAX_ANSWER, until).await;
        let turns = [large(later).await.unwrap(), large(later).await.unwrap()];
        assert_eq!(large(now).await.unwrap_err(), Refusal::Busy);
        assert!(bounds.turn(b"{}", 0, now).await.is_ok(), "what has a short answer continues");
        drop(turns);
        assert!(large(later).await.is_ok());
    }

    #[test]
    fn an_answer_comes_before_the_api_server_gives_up() {
        let cases = [("timeout=2s", 1.5), ("a=b&timeout=4s", 3.0), ("timeout=30s", 5.0), ("timeout=1m", 5.0)];
        let odd = [("timeout=99999999999s", 5.0), ("", 5.0)];
        for (query, seconds) in cases.into_iter().chain(odd) {
            let query = Some(query).filter(|query| !query.is_empty());
            let patience = Duration::from_secs_f64(seconds);
            let (before, until, after) = (Instant::now(), deadline(query), Instant::now());
            assert!((before + patience..=after + patience).contains(&until), "{query:?}");
        }
    }
}
