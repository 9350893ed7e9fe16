#![expect(clippy::disallowed_methods, reason = "a test ends with its tasks")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::*;
use crate::serve::connections::Patience;
use crate::shutdown::{Stopper, pair};
use crate::webhook::bounds::BODY_BYTES;
use crate::webhook::threads::{self, Threads};
use sluice_api::conversion::answer_review;

/// Converts, echoes, and panics.
struct Fake;

impl Reviewer for Fake {
    fn has(&self, path: &str) -> bool {
        path != "/nope"
    }

    fn max_answer(&self, _: &str) -> usize {
        0
    }

    fn reads_heads(&self, path: &str) -> bool {
        path.starts_with("/head")
    }

    fn turned_away(&self, path: &str, head: &[u8], why: Refusal) -> Option<Vec<u8>> {
        assert_ne!(path, "/head-poison", "a poisonous head");
        let head = std::str::from_utf8(head.get(..4)?).ok()?;
        self.reads_heads(path).then(|| format!("{head}: {why}").into_bytes())
    }

    fn review(&self, path: &str, body: &[u8]) -> Option<Result<Vec<u8>, serde_json::Error>> {
        match path {
            "/panic" | "/head-panic" | "/head-poison" => panic!("a poisonous review"),
            "/convert" | "/head" => Some(serde_json::from_slice(body).and_then(answer_review)),
            _ => Some(Ok(body.to_vec())),
        }
    }
}

async fn start() -> (SocketAddr, Stopper) {
    start_with(Fake).await
}

async fn start_with(reviewer: impl Reviewer) -> (SocketAddr, Stopper) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap().into_std().unwrap();
    let address = listener.local_addr().unwrap();
    let (stopper, stop) = pair();
    let bounds = serve::Bounds { connections: 64, patience: Patience::default() };
    let serving = serve(listener, None, Arc::new(reviewer), bounds, stop);
    tokio::spawn(Threads::start().unwrap().run(serving));
    (address, stopper)
}

fn head(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    )
}

/// The status and body of the answer to these bytes.
async fn answer_to(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.split(' ').nth(1).unwrap_or_default().parse().unwrap_or(0), body.to_owned())
}

async fn post_to(address: SocketAddr, path: &str, body: &str) -> (u16, String) {
    answer_to(address, (head(path, body.len()) + body).as_bytes()).await
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_before_it_is_read() {
    let (address, _stopper) = start().await;
    let (status, why) = answer_to(address, head("/convert", 256 << 20).as_bytes()).await;
    assert_eq!((status, why.as_str()), (413, "the review is larger than 8 MiB\n"));
    let mut chunked =
        "POST /convert HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for _ in 0..=BODY_BYTES / (1 << 20) {
        write!(chunked, "100000\r\n{}\r\n", " ".repeat(1 << 20)).unwrap();
    }
    assert_eq!(answer_to(address, chunked.as_bytes()).await.0, 413);
    let (status, _) = answer_to(address, head("/nope", 1 << 20).as_bytes()).await;
    assert_eq!(status, 404, "without a body");
}

#[tokio::test]
async fn the_bombs_of_conversion_and_of_json_are_refused() {
    let (address, _stopper) = start().await;
    let bomb = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u",
        "desiredAPIVersion":"kueue.x-k8s.io/v1beta1","objects":[{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload",
        "metadata":{"name":"w"},"status":{"admission":{"podSetAssignments":[{"topologyAssignment":{"levels":["a"],"slices":[
        {"domainCount":8000000,"valuesPerLevel":[{"universal":"x"}],"podCounts":{"universal":1}}]}}]}}}]}}"#;
    let (status, answer) = post_to(address, "/convert", bomb).await;
    assert_eq!(status, 200);
    assert!(answer.len() < 1000 && answer.contains("more than 100000 domains"), "{answer}");
    let values = format!("[{}]", vec![r#"{"":0}"#; 200_000].join(","));
    let (status, why) = post_to(address, "/convert", &values).await;
    assert_eq!((status, why.as_str()), (413, "the review has too many values\n"));
}

#[tokio::test]
async fn a_review_that_panics_is_a_failure_and_the_next_is_answered() {
    let (address, _stopper) = start().await;
    for _ in 0..20 {
        assert_eq!(post_to(address, "/panic", "{}").await.0, 500);
        assert_eq!(post_to(address, "/head-poison", "{}").await.0, 500);
    }
    let long = "x".repeat(2 * BODY_BYTES);
    assert_eq!(post_to(address, "/head-poison", &long).await.0, 413);
    assert_eq!(post_to(address, "/echo", "{}").await, (200, "{}".to_owned()));
}

#[tokio::test]
async fn bodies_that_never_end_take_no_memory_from_those_that_do() {
    let (address, _stopper) = start().await;
    let announced = BODY_BYTES;
    let mut slow = Vec::new();
    let most = vec![b' '; announced - 1];
    // More than all bodies may have together.
    for _ in 0..6 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head("/echo", announced).as_bytes()).await.unwrap();
        let sent = tokio::time::timeout(Duration::from_secs(2), stream.write_all(&most));
        let _ = sent.await;
        slow.push(stream);
    }
    let body = "x".repeat(1 << 20);
    for _ in 0..3 {
        let (status, echoed) = post_to(address, "/echo", &body).await;
        assert_eq!((status, echoed.len()), (200, body.len()));
    }
    let whole = " ".repeat(announced);
    assert_eq!(post_to(address, "/echo", &whole).await.0, 200);
}

#[tokio::test]
async fn what_is_not_worked_on_is_answered_by_its_head_where_that_matters() {
    let (address, _stopper) = start().await;
    let values = format!("head[{}]", vec![r#"{"":0}"#; 200_000].join(","));
    let many = (200, "head: the review has too many values".to_owned());
    assert_eq!(post_to(address, "/head", &values).await, many);
    // Its client sends all of it before it looks for an answer.
    let long = "head".to_owned() + &"x".repeat(2 * BODY_BYTES);
    let too_long = (200, "head: the review is larger than 8 MiB".to_owned());
    assert_eq!(post_to(address, "/head", &long).await, too_long);
    assert_eq!(
        post_to(address, "/head", "headless").await,
        (200, "head: the review cannot be read".to_owned())
    );
    assert_eq!(post_to(address, "/head-panic", "head").await, (200, "head: the review failed".to_owned()));
    assert_eq!(post_to(address, "/head", "x").await, (400, "the review cannot be read\n".to_owned()));
}

#[tokio::test]
async fn a_connection_continues_after_a_review_that_was_read_and_not_worked_on() {
    let (address, _stopper) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let keeping = |path: &str, body: &str| head(path, body.len()).replace("Connection: close\r\n", "") + body;
    stream.write_all(keeping("/head", "head of no review").as_bytes()).await.unwrap();
    let mut answer = vec![0; 1_000];
    let read = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection: close"), "{answer}");
    stream.write_all((head("/echo", 4) + "next").as_bytes()).await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("next"), "{rest}");
}

/// Does not come to an end with large reviews before the gate is opened.
struct Gated {
    /// How many large ones are being worked on.
    inside: watch::Sender<usize>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Reviewer for Gated {
    fn has(&self, _: &str) -> bool {
        true
    }

    fn max_answer(&self, _: &str) -> usize {
        0
    }

    fn reads_heads(&self, path: &str) -> bool {
        Fake.reads_heads(path)
    }

    fn turned_away(&self, path: &str, head: &[u8], why: Refusal) -> Option<Vec<u8>> {
        Fake.turned_away(path, head, why)
    }

    fn review(&self, _: &str, body: &[u8]) -> Option<Result<Vec<u8>, serde_json::Error>> {
        if body.len() > 1_000 {
            self.inside.send_modify(|inside| *inside += 1);
            // An error means that the gate is open.
            let _ = self.gate.lock().unwrap().recv();
        }
        Some(Ok(body.to_vec()))
    }
}

#[tokio::test]
async fn small_reviews_are_answered_however_many_large_ones_there_are_and_those_by_their_heads() {
    const LARGE: usize = 60;
    let (opener, gate) = mpsc::channel();
    let (inside, mut seen) = watch::channel(0);
    let (address, _stopper) = start_with(Gated { inside, gate: Mutex::new(gate) }).await;
    let body = "head".to_owned() + &"x".repeat(300 << 10);
    let large: Vec<_> = (0..LARGE)
        .map(|_| {
            let body = body.clone();
            tokio::spawn(async move { post_to(address, "/head?timeout=2s", &body).await })
        })
        .collect();
    seen.wait_for(|inside| *inside == threads::large()).await.unwrap();
    assert_eq!(post_to(address, "/echo", "{}").await, (200, "{}".to_owned()));
    for answer in large {
        assert_eq!(answer.await.unwrap(), (200, "head: too many reviews at once".to_owned()));
    }
    assert_eq!(*seen.borrow(), threads::large());
    drop(opener);
}
