#![expect(clippy::disallowed_methods, reason = "tasks of tests have no supervisor")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Uri;
use axum::response::Response;
use serde_json::{Value, json};
use sluice_engine::Kind;

use super::*;
use crate::fake_api::{client, failed, found};

/// The value of a parameter of a query.
fn number(uri: &Uri, name: &str) -> usize {
    let pairs = uri.query().unwrap_or_default().split('&');
    let value = pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// A page of objects with `maps` small maps each, of a list without an end.
fn endless(uri: &Uri, maps: usize) -> Response {
    let object = json!({"metadata": {"name": "x", "namespace": "a", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"queueName": "lq", "many": vec![json!({"a": 0}); maps]}});
    let page = json!({"metadata": {"continue": "more"}, "items": vec![object; number(uri, "limit").min(50)]});
    found(&page)
}

/// The settings of one queue, and what of a path else.
fn cluster(uri: &Uri, other: impl Fn(&Uri) -> Response) -> Response {
    let named = |name: &str, spec: Value| json!({"items": [{"metadata": {"name": name, "namespace": "a"}, "spec": spec}]});
    match uri.path().rsplit('/').next().unwrap_or_default() {
        "clusterqueues" => found(&named("cq", json!({}))),
        "localqueues" => found(&named("lq", json!({"clusterQueue": "cq"}))),
        "workloads" | "pods" | "events" | "nodes" => other(uri),
        _ => found(&json!({"items": []})),
    }
}

const AROUND: Extent<'static> = Extent::Around { namespace: "a", local_queue: "lq", room: false };

fn weights(live: &Live) -> usize {
    live.objects.iter().map(|manifest| bounded::weight(&manifest.object)).sum()
}

/// Time is not what these tests are about.
const LONG: Duration = Duration::from_mins(5);
const SMALL: usize = 16 << 20;

#[tokio::test]
async fn a_list_without_an_end_is_cut_and_reported() {
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pages);
    let client = client(move |_, uri, _| {
        let counted = Arc::clone(&counted);
        async move {
            cluster(&uri, |uri| {
                counted.fetch_add(1, Ordering::Relaxed);
                endless(uri, 200)
            })
        }
    });
    let reads = Reads::within(client, LONG, SMALL, Slots::new(1, 1));
    let live = reads.world(AROUND, &[]).await;
    let unread: Vec<_> = live.unread.iter().map(|unread| (unread.what, unread.why.as_str())).collect();
    assert_eq!(unread, [("workloads", "the answer exceeds the limit of 16 MiB")]);
    let held = weights(&live);
    assert!(held <= SMALL && held > SMALL / 2, "{held}");
    // About 130 kilobytes each: a hundred, in pages of fifty.
    assert!(pages.load(Ordering::Relaxed) <= 3, "{pages:?}");
    assert!(reads.is_spent());
    // The settings were read before, and are in the answer.
    assert!(live.objects.iter().any(|manifest| manifest.kind == Kind::LocalQueue));
}

/// A page of objects of a megabyte each, with these names.
fn large(names: impl Iterator<Item = usize>, token: &str) -> Response {
    let big = "y".repeat(1 << 20);
    let items: Vec<_> =
        names.map(|n| format!(r#"{{"metadata":{{"name":"p{n}"}},"spec":"{big}"}}"#)).collect();
    let page = format!(r#"{{"metadata":{{"continue":"{token}"}},"items":[{}]}}"#, items.join(","));
    Response::new(page.into())
}

#[tokio::test]
async fn what_is_not_kept_is_not_read_without_an_end() {
    let pages = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&pages);
    let client = client(move |_, uri, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let size = number(&uri, "limit").min(4);
        async move { large(0..size, "more") }
    });
    let reads = Reads::within(client, LONG, SMALL, Slots::new(1, 1));
    let listed = reads.list("/api/v1/pods".to_owned(), String::new(), 10, Arc::new(|_| None)).await;
    assert_eq!((listed.found.len(), listed.unread.is_some()), (0, true));
    // Four times as much is read as may be kept, in pages of four megabytes.
    assert!(pages.load(Ordering::Relaxed) <= 17, "{pages:?}");
}

#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_in_parts() {
    let client = client(|_, uri: Uri, _| async move {
        let begin = number(&uri, "continue");
        let end = (begin + number(&uri, "limit")).min(12);
        large(begin..end, &if end < 12 { end.to_string() } else { String::new() })
    });
    let reads = Reads::within(client, LONG, 64 << 20, Slots::new(1, 1));
    let name: Keep = Arc::new(|object| Some(object["metadata"]["name"].clone()));
    let listed = reads.list("/api/v1/pods".to_owned(), String::new(), 1000, name).await;
    assert_eq!((listed.found.len(), listed.more, listed.unread), (12, false, None));
    assert_eq!((&listed.found[0], &listed.found[11]), (&json!("p0"), &json!("p11")));
}

#[tokio::test]
async fn the_number_taken_is_limited_and_a_missing_kind_has_none() {
    let client = client(|_, uri: Uri, _| async move {
        if uri.path().ends_with("/gone") {
            return failed(404, "NotFound");
        }
        endless(&uri, 1)
    });
    let reads = Reads::new(client, SMALL, Slots::new(1, 1));
    let all = || -> Keep { Arc::new(Some) };
    let listed = reads.list("/api/v1/pods".to_owned(), String::new(), 70, all()).await;
    assert_eq!((listed.found.len(), listed.more, listed.unread), (70, true, None));
    let listed = reads.list("/api/v1/gone".to_owned(), String::new(), 70, all()).await;
    assert_eq!(listed, Listed::default());
}

#[tokio::test]
async fn what_is_refused_or_never_answered_is_reported_and_the_rest_is_there() {
    let client = client(|_, uri: Uri, _| async move {
        if uri.path().ends_with("/workloads") {
            return std::future::pending::<Response>().await;
        }
        cluster(&uri, |_| failed(403, "Forbidden"))
    });
    let mut within = Duration::from_millis(500);
    let live = loop {
        let reads = Reads::within(client.clone(), within, SMALL, Slots::new(1, 1));
        let live = reads.world(Extent::Around { namespace: "a", local_queue: "lq", room: true }, &[]).await;
        let unread: Vec<_> = live.unread.iter().map(|unread| (unread.what, unread.why.as_str())).collect();
        let late = format!("the objects could not be read within {within:?}");
        let expected = [
            ("nodes", "reading /api/v1/nodes: Forbidden"),
            ("workloads", late.as_str()),
            ("provisioningrequests", late.as_str()),
        ];
        // On a busy machine what is answered may be late, too.
        if unread == expected {
            break live;
        }
        assert!(within < Duration::from_secs(30), "{unread:?}");
        within *= 10;
    };
    assert!(live.objects.iter().any(|manifest| manifest.kind == Kind::ClusterQueue));
}

#[tokio::test]
async fn reading_that_is_slow_ends_sooner_while_another_waits() {
    let silent = || client(|_, _: Uri, _| std::future::pending::<Response>());
    let slots = Slots::new(1, 1);
    let _taken = slots.take("a", LONG).await.unwrap();
    let why = async |within: Duration| {
        let reads = Reads::within(silent(), within, SMALL, Arc::clone(&slots));
        let reads = Reads { shared: Duration::ZERO, ..reads };
        reads.list("/api/v1/pods".to_owned(), String::new(), 1, Arc::new(Some)).await.unread.unwrap()
    };
    let alone = why(Duration::from_millis(50)).await;
    assert_eq!(alone, "the objects could not be read within 50ms", "no other question waits");
    let waiting = tokio::spawn({
        let slots = Arc::clone(&slots);
        async move { slots.take("b", LONG).await.is_some() }
    });
    slots.until_others_wait().await;
    assert_eq!(why(LONG).await, "the objects could not be read within 0ns");
    waiting.abort();
}
