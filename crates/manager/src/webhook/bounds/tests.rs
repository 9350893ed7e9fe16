use std::sync::atomic::{AtomicUsize, Ordering};

use super::weights::{COPIES, OBJECT, VALUE};
use super::*;
use axum::body::Bytes;
use futures::stream;
use serde_json::json;
use sluice_api::conversion::MAX_ANSWER;

impl Bounds {
    /// Waits until a review without an answer may be worked on.
    async fn turn_of(&self, body: &[u8], until: Instant) -> Result<Turn, Refusal> {
        self.turn(&Arc::new(body.to_vec()), 0, until).await
    }
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
        async |old, new, more| bounds.turn_of(&review(old, new, more), deadline(None)).await.map(drop);
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
            let env: Vec<_> = (0..500)
                .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(100)}))
                .collect();
            let container = json!({"name": "c", "image": "i", "env": env});
            json!({"name": format!("p{n}"), "count": 1, "template": {"spec": {"containers": [container]}}})
        })
        .collect();
    let object = json!({"kind": "Workload", "spec": {"podSets": pods}});
    let review = json!({"request": {"uid": "u", "object": object, "oldObject": object}}).to_string();
    assert!(review.len() > 1 << 20);
    assert!(weights(review.as_bytes()).all > review.len());
    assert!(bounds.turn_of(review.as_bytes(), deadline(None)).await.is_ok());
    let bomb = format!("[{}]", vec![r#"{"":0}"#; 200_000].join(","));
    assert!(bomb.len() < BODY_BYTES);
    assert_eq!(bounds.turn_of(bomb.as_bytes(), deadline(None)).await.unwrap_err(), Refusal::TooMany);
}

/// A list of this number of objects.
fn objects(count: usize) -> Vec<u8> {
    format!("[{}]", vec!["{}"; count].join(",")).into_bytes()
}

#[tokio::test]
async fn a_review_that_has_no_turn_in_time_gets_the_reason() {
    let bounds = Bounds::default();
    let (now, later) = (Instant::now(), deadline(None));
    let all = objects(ALL_WORK / (OBJECT + VALUE + 3 * COPIES) - 1);
    let turn = bounds.turn_of(&all, later).await.unwrap();
    let second = objects(SMALL / OBJECT);
    assert_eq!(bounds.turn_of(&second, now).await.unwrap_err(), Refusal::Busy);
    drop(turn);
    assert!(bounds.turn_of(&second, later).await.is_ok());
}

#[tokio::test]
async fn large_reviews_have_as_many_turns_as_there_are_threads() {
    let bounds = Bounds::default();
    let (now, later) = (Instant::now(), deadline(None));
    let large = objects(SMALL / OBJECT);
    assert!(!is_small(&large, 0));
    let mut turns = Vec::new();
    for _ in 0..threads::large() {
        turns.push(bounds.turn_of(&large, later).await.unwrap());
    }
    assert_eq!(bounds.turn_of(&large, now).await.unwrap_err(), Refusal::Busy);
    drop(turns);
    assert!(bounds.turn_of(&large, now).await.is_ok());
    let small = objects(SMALL / (OBJECT + VALUE + 3 * COPIES) - 1);
    assert!(is_small(&small, 0), "it needs none");
    assert!(!is_small("x".repeat(SMALL_BODY + 1).as_bytes(), 0));
}

/// The beginning of a body whose length is not announced, in pieces.
fn pieces(count: usize) -> Body {
    let piece = Bytes::from(vec![b' '; 64 << 10]);
    Body::from_stream(stream::iter((0..count).map(move |_| Ok::<_, std::io::Error>(piece.clone()))))
}

#[tokio::test]
async fn bodies_of_large_reviews_take_nothing_from_those_of_small_ones() {
    let bounds = Bounds::default();
    let (now, entry) = (Instant::now(), ConnectionHandle::alone);
    let mut held = Vec::new();
    // More than all may have, and the beginning of as many as would take all that small ones have.
    for _ in 0..(ALL_BODIES + SMALL_BODIES) / SMALL_BODY {
        let read = bounds.read(pieces(SMALL_BODY >> 16), entry(), true, now).await;
        held.push(read.map(|(_, granted)| granted));
    }
    assert!(held.iter().any(|read| read.as_ref().is_err_and(|unread| unread.why == Refusal::Busy)));
    let small = bounds.read(Body::from("{}"), entry(), true, now).await;
    assert_eq!(small.unwrap().0, b"{}");
}

#[tokio::test]
async fn a_small_body_takes_the_room_that_a_large_one_leaves() {
    let bounds = Bounds::default();
    let all = |pool: &Arc<Semaphore>| {
        Arc::clone(pool).try_acquire_many_owned(u32::try_from(pool.available_permits()).unwrap())
    };
    let large = all(&bounds.bodies).unwrap();
    let _small = all(&bounds.small_bodies).unwrap();
    let reading = bounds.read(Body::from("{}"), ConnectionHandle::alone(), true, deadline(None));
    let mut reading = std::pin::pin!(reading);
    assert!(futures::poll!(reading.as_mut()).is_pending());
    drop(large);
    assert_eq!(reading.await.unwrap().0, b"{}");
}

#[tokio::test]
async fn what_had_no_room_in_time_is_read_to_its_end_before_it_is_answered() {
    let bounds = Bounds::default();
    let _all =
        Arc::clone(&bounds.bodies).acquire_many_owned(u32::try_from(ALL_BODIES).unwrap()).await.unwrap();
    let left = Arc::new(AtomicUsize::new(10));
    let counted = Arc::clone(&left);
    let pieces = (0..10).map(move |_| {
        counted.fetch_sub(1, Ordering::Relaxed);
        Ok::<_, std::io::Error>(Bytes::from_static(b"piece"))
    });
    let body = Body::from_stream(stream::iter(pieces));
    let now = Instant::now();
    let unread = bounds.read(body, ConnectionHandle::alone(), true, now).await.unwrap_err();
    assert_eq!((unread.why, unread.head.as_slice()), (Refusal::Busy, &b"piece"[..]));
    unread.drain(now).await;
    assert_eq!(left.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn answers_that_may_be_large_are_not_made_all_at_once() {
    let bounds = Bounds::default();
    let (now, later) = (Instant::now(), deadline(None));
    let body = Arc::new(br#"{"topologyAssignment":{}}"#.to_vec());
    let large = async |until| bounds.turn(&body, MAX_ANSWER, until).await;
    let turns = [large(later).await.unwrap(), large(later).await.unwrap()];
    assert_eq!(large(now).await.unwrap_err(), Refusal::Busy);
    assert!(!is_small(&body, MAX_ANSWER));
    assert!(is_small(b"{}", MAX_ANSWER), "what has a short answer need not wait");
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
