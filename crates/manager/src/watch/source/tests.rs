//! The real source, on a stand-in for the API server.

use std::sync::{Arc, Mutex};

use axum::body::{Body as AxumBody, Bytes};
use axum::http::{Method, Uri};
use axum::response::Response;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};

use super::*;
use crate::fake_api::{self, failed, found, list};

/// An object as a list has it.
pub(crate) fn seen(object: &Value) -> Seen {
    Seen::item(object.to_string().into_bytes()).unwrap()
}

fn object(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}})
}

fn line(type_: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": type_, "object": object}))
}

fn said(event: Event) -> String {
    match event {
        Event::Init => "init".to_owned(),
        Event::InitApply(seen) => format!("listed {}", seen.meta.name),
        Event::InitDone(_) => "done".to_owned(),
        Event::Apply(seen) => {
            let object: Value = seen.read().unwrap();
            format!("applied {}@{}", object["metadata"]["name"].as_str().unwrap(), seen.meta.resource_version)
        }
        Event::Delete(seen) => format!("deleted {}", seen.meta.name),
    }
}

/// Plays answers, one after the other; the last request hangs. What was asked, and what was delivered.
async fn play(answers: Vec<Response>) -> (Vec<String>, Vec<String>) {
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&asked);
    let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
        noted.lock().unwrap().push(uri.to_string());
        let answer = answers.lock().unwrap().next();
        async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    });
    let selector = Selector { fields: Some("spec.nodeName!="), ..Selector::default() };
    let mut source = Source::new(client, "/api/v1/pods", selector);
    // Every watch here ends at once, however slow the machine is.
    source.silence = Silence { least: Duration::from_hours(1), ..Silence::USUAL };
    let (mut reported, mut quiet) = (Vec::new(), 0);
    // The client answers from a task of its own: it gets a few turns before it is quiet.
    while quiet < 50 {
        let next = source.next();
        tokio::pin!(next);
        let mut event = None;
        while event.is_none() && quiet < 50 {
            event = next.as_mut().now_or_never();
            quiet = if event.is_some() { 0 } else { quiet + 1 };
            tokio::task::yield_now().await;
        }
        match event {
            Some(Ok(event)) => reported.push(said(event)),
            Some(Err(error)) => reported.push(format!("error: {error}")),
            None => {}
        }
    }
    let asked = asked.lock().unwrap().clone();
    (asked, reported)
}

fn page(version: &str, next: &str, items: &[Value]) -> Response {
    let mut page = list(version, items);
    page["metadata"]["continue"] = json!(next);
    found(&page)
}

fn stream(lines: &[String]) -> Response {
    Response::new(AxumBody::from(lines.concat()))
}

#[tokio::test]
async fn pages_follow_each_other_and_the_watch_continues_where_they_end() {
    let bookmark = line("BOOKMARK", &object("", 12));
    let (asked, reported) = play(vec![
        page("9", "more", &[object("a", 1), object("b", 2)]),
        page("9", "", &[object("c", 3)]),
        stream(&[line("MODIFIED", &object("a", 10)), line("DELETED", &object("b", 11)), bookmark]),
    ])
    .await;
    let list = "/api/v1/pods?&fieldSelector=spec.nodeName%21%3D&limit=500";
    let watch = "/api/v1/pods?&watch=true&timeoutSeconds=290&fieldSelector=spec.nodeName%21%3D&allowWatchBookmarks=true";
    assert_eq!(
        asked,
        [
            list.to_owned(),
            format!("{list}&continue=more"),
            format!("{watch}&resourceVersion=9"),
            format!("{watch}&resourceVersion=12"),
        ]
    );
    assert_eq!(
        reported,
        ["init", "listed a", "listed b", "listed c", "done", "applied a@10", "deleted b"],
        "nothing is reported twice"
    );
}

#[tokio::test]
async fn everything_is_listed_again_when_changes_were_missed() {
    let gone = json!({"kind": "Status", "code": 410, "message": "too old"});
    for answer in [stream(&[line("ERROR", &gone)]), failed(410, "Expired")] {
        let (asked, reported) =
            play(vec![page("9", "", &[]), answer, page("20", "", &[object("a", 20)])]).await;
        assert!(asked[3].ends_with("&resourceVersion=20"), "{asked:?}");
        assert_eq!(
            (reported.len(), reported[3].as_str(), reported[5].as_str()),
            (6, "init", "done"),
            "{reported:?}"
        );
    }
}

#[tokio::test]
async fn a_page_that_breaks_off_or_has_expired_begins_the_list_again() {
    let half = |text: &str| Response::new(AxumBody::from(text.to_owned()));
    let (_, reported) = play(vec![
        half(r#"{"items":[{"metadata":{"name":"a"}},{"meta"#),
        page("9", "more", &[object("a", 1)]),
        failed(410, "Expired"),
        page("9", "", &[]),
    ])
    .await;
    let reported: Vec<_> = reported.iter().map(|text| text.split(':').next().unwrap()).collect();
    assert_eq!(reported, ["init", "listed a", "error", "init", "listed a", "error", "init", "done"]);
}

#[tokio::test]
async fn a_watch_that_is_refused_is_asked_for_again_from_the_same_version() {
    let (asked, reported) =
        play(vec![page("9", "", &[]), failed(500, "InternalError"), failed(404, "NotFound")]).await;
    assert!(asked[1..].iter().all(|uri| uri.ends_with("&resourceVersion=9")), "{asked:?}");
    assert_eq!(reported.len(), 4, "{reported:?}");
}

#[tokio::test]
async fn everything_is_listed_again_when_no_watch_from_a_version_comes_about() {
    let why = json!({"kind": "Status", "code": 504, "message": "Too large resource version"});
    let event = || stream(&[line("ERROR", &why)]);
    let answer = || failed(504, "Timeout");
    let later = stream(&[line("BOOKMARK", &object("", 9)), line("ERROR", &why)]);
    for refusals in [
        vec![event(), event(), event()],
        vec![answer(), event(), answer()],
        vec![answer(), answer(), failed(429, "TooManyRequests"), answer()],
        vec![event(), event(), later, event(), event()],
    ] {
        let tried = refusals.len();
        let mut answers = vec![page("9", "", &[])];
        answers.extend(refusals);
        answers.push(page("5", "", &[object("a", 5)]));
        let (asked, reported) = play(answers).await;
        assert!(asked[1..=tried].iter().all(|uri| uri.ends_with("&resourceVersion=9")), "{asked:?}");
        assert_eq!(reported[2 + tried..], ["init", "listed a", "done"], "{reported:?}");
        assert!(asked[tried + 2].ends_with("&resourceVersion=5"), "{asked:?}");
    }
}

#[tokio::test]
async fn a_watch_that_ends_at_once_without_a_message_has_failed() {
    let bookmark = line("BOOKMARK", &object("", 12));
    let (asked, reported) =
        play(vec![page("9", "", &[]), stream(&[]), stream(&[bookmark]), stream(&[])]).await;
    let broken = "error: the answer broke off";
    assert_eq!(reported, ["init", "done", broken, broken]);
    let from: Vec<_> = asked[1..].iter().map(|uri| uri.rsplit('=').next().unwrap()).collect();
    assert_eq!(from, ["9", "9", "12", "12"]);
}

/// What comes within this time of a watch on which this comes, and then nothing more.
async fn after(said: String, within: Duration) -> Option<Result<Event, Error>> {
    let client = fake_api::client(move |_: Method, uri: Uri, _: Bytes| {
        let line = said.clone();
        async move {
            if !uri.to_string().contains("watch=true") {
                return found(&list("9", &[]));
            }
            let line = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(line))]);
            Response::new(AxumBody::from_stream(line.chain(futures::stream::pending())))
        }
    });
    let mut source = Source::new(client, "/api/v1/pods", Selector::default());
    source.silence = Silence { bookmarked: Duration::from_millis(20), ..Silence::USUAL };
    let mut next = async || {
        loop {
            match source.next().await {
                Ok(Event::Init | Event::InitDone(_)) => {}
                other => return other,
            }
        }
    };
    tokio::time::timeout(within, next()).await.ok()
}

#[tokio::test]
async fn a_watch_without_the_next_bookmark_is_dead() {
    let bookmark = after(line("BOOKMARK", &object("", 12)), Duration::from_mins(1)).await;
    assert!(matches!(bookmark, Some(Err(Error::Broken(_)))), "{bookmark:?}");
    let silence = after(String::new(), Duration::from_millis(200)).await;
    assert!(silence.is_none(), "it sends none: nothing may have happened");
}
