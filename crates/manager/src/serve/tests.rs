#![expect(clippy::disallowed_methods, reason = "a test ends with its tasks")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::certs::Serving;
use crate::certs::server::TlsOptions;
use crate::shutdown::{Stopper, pair};

const SHORT: Duration = Duration::from_millis(200);
/// Longer than any test takes.
const LONG: Duration = Duration::from_mins(10);

fn patience() -> Patience {
    Patience {
        opening: LONG,
        idle: LONG,
        receiving: LONG,
        sending: LONG,
        settling: Duration::ZERO,
        holding: LONG,
    }
}

/// A server on a free port, until the `Stopper` is dropped.
async fn start(
    tls: Option<Tls>,
    router: Router,
    connections: usize,
    patience: Patience,
) -> (SocketAddr, Stopper) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stopper, stop) = pair();
    tokio::spawn(serve(listener, tls, router, Bounds { connections, patience }, stop));
    (address, stopper)
}

fn hello() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// What the server says after `request`, until it closes the connection.
async fn said(stream: &mut TcpStream, request: &[u8]) -> String {
    // The server may have closed the connection in the middle of it.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn connections_that_say_nothing_keep_no_others_out() {
    let (address, _stopper) = start(None, hello(), 4, patience()).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(connect(address).await);
    }
    for _ in 0..3 {
        assert!(said(&mut connect(address).await, ASK).await.ends_with("hello"));
    }
    // The first ones were closed.
    assert_eq!(said(&mut silent[0], b"").await, "");
}

#[tokio::test]
async fn a_connection_that_was_of_use_outlives_those_that_were_not() {
    let (address, _stopper) = start(None, hello(), 2, patience()).await;
    let mut used = connect(address).await;
    let mut answer = [0; 512];
    let ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    used.write_all(ask).await.unwrap();
    assert!(used.read(&mut answer).await.unwrap() > 0);
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(connect(address).await);
    }
    assert_eq!(said(&mut silent[48], b"").await, "", "the one before the last was closed for it");
    used.write_all(ask).await.unwrap();
    assert!(used.read(&mut answer).await.unwrap() > 0);
}

#[tokio::test]
async fn what_is_being_answered_is_never_closed_and_never_more_than_the_limit_at_once() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counts, open) = ((Arc::clone(&now), Arc::clone(&most)), Arc::new(Semaphore::new(0)));
    let gate = Arc::clone(&open);
    let slow = move || {
        let ((now, most), gate) = (counts.clone(), Arc::clone(&gate));
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let _permit = gate.acquire().await;
            now.fetch_sub(1, Ordering::SeqCst);
            "done"
        }
    };
    // Those that wait for their turn are not closed as silent ones, however slow the machine is.
    let patience = Patience { settling: Duration::from_mins(1), ..Patience::default() };
    let (address, _stopper) = start(None, Router::new().route("/", get(slow)), 3, patience).await;
    let mut asked = JoinSet::new();
    for _ in 0..12 {
        asked.spawn(async move { said(&mut connect(address).await, ASK).await });
    }
    while now.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    open.add_permits(1);
    while let Some(answer) = asked.join_next().await {
        assert!(answer.unwrap().ends_with("done"));
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

fn endless() -> Body {
    Body::from_stream(futures::stream::repeat_with(|| Ok::<_, Infallible>(vec![0_u8; 1 << 16])))
}

#[tokio::test]
async fn each_step_must_be_done_in_its_time() {
    let echo = Router::new()
        .route("/", post(|body: String| async { body }))
        .route("/much", get(|| async { endless() }));
    let quick = |change: fn(&mut Patience)| {
        let mut patience = patience();
        change(&mut patience);
        start(None, echo.clone(), 8, patience)
    };
    let (address, _opening) = quick(|p| p.opening = SHORT).await;
    assert_eq!(said(&mut connect(address).await, b"POST / HTTP/1.1\r\nHost: ").await, "");
    let (address, _receiving) = quick(|p| p.receiving = SHORT).await;
    let half = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf";
    assert_eq!(said(&mut connect(address).await, half).await, "");
    let (address, _idle) = quick(|p| p.idle = SHORT).await;
    let whole = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nhalf";
    assert!(said(&mut connect(address).await, whole).await.ends_with("half"), "and then it is closed");
    let (address, _sending) = quick(|p| p.sending = SHORT).await;
    let mut stream = connect(address).await;
    stream.write_all(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let (mut piece, mut bytes) = (vec![0; 1 << 16], 0);
    // The answer has no end: only the server can end the connection.
    while let Ok(more @ 1..) = stream.read(&mut piece).await {
        bytes += more;
    }
    assert!(bytes > 0);
}

#[tokio::test]
async fn a_tls_handshake_must_be_done_in_its_time_and_a_long_head_is_refused() {
    let tls = Serving::provisional(TlsOptions::default()).unwrap().config;
    let short = Patience { opening: SHORT, ..patience() };
    let (address, _stopper) = start(Some(tls), hello(), 8, short).await;
    assert_eq!(said(&mut connect(address).await, b"").await, "");
    let (address, _stopper) = start(None, hello(), 8, patience()).await;
    let head = |headers: usize, bytes: usize| {
        let header = |n| format!("X-{n}: {}\r\n", "x".repeat(bytes));
        let headers: String = (0..headers).map(header).collect();
        format!("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
    };
    let status = async |head: String| {
        let answer = said(&mut connect(address).await, head.as_bytes()).await;
        answer.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(status(head(2, 4000)).await, "HTTP/1.1 200 OK");
    assert_eq!(status(head(100, 10)).await, "HTTP/1.1 431 Request Header Fields Too Large");
    assert_eq!(status(head(1, HEAD_BYTES)).await, "HTTP/1.1 431 Request Header Fields Too Large");
}

#[tokio::test]
async fn a_stopped_server_finishes_what_it_answers_and_takes_no_more() {
    let (address, stopper) = start(None, hello(), 8, patience()).await;
    let mut idle = connect(address).await;
    let ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    idle.write_all(ask).await.unwrap();
    assert!(idle.read(&mut [0; 512]).await.unwrap() > 0);
    stopper.stop();
    assert_eq!(said(&mut idle, b"").await, "");
    let refused = async { while TcpStream::connect(address).await.is_ok() {} };
    tokio::time::timeout(Duration::from_mins(1), refused).await.unwrap();
}
