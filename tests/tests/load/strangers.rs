//! Anyone who reaches a port of the manager, and floods it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderValue, Request};
use hyper_util::client::legacy::{self, connect::Connect};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::reviews::{Hook, flood_of_reviews};

/// How long each kind of flood lasts.
pub const PERIOD: Duration = Duration::from_secs(3);

fn bomb() -> Vec<u8> {
    let slices = json!([{"domainCount": 8_000_000, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"universal": 1}}]);
    let set = json!({"topologyAssignment": {"levels": ["a"], "slices": slices}});
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"},
        "status": {"admission": {"podSetAssignments": [set]}},
    });
    conversion(&[workload]).to_string().into_bytes()
}

fn conversion(objects: &[Value]) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
        "uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta1", "objects": objects,
    }})
}

/// A body of so many bytes that is one small object.
fn large(bytes: usize) -> Vec<u8> {
    let metadata = json!({"name": "w", "annotations": {"a": "x".repeat(bytes)}});
    let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": "c"}});
    conversion(&[object]).to_string().into_bytes()
}

/// Many small values, which take far more memory than their text.
fn dense() -> Vec<u8> {
    let text = format!("[{}]", vec![r#"{"":0}"#; 1_000_000].join(","));
    text.into_bytes()
}

/// Anyone who reaches the port.
pub fn stranger(port: u16) -> Client {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.default_retry = false;
    config.accept_invalid_certs = true;
    Client::try_from(config).unwrap()
}

pub async fn post(client: &Client, path: &str, body: Vec<u8>) -> Option<u16> {
    let request =
        Request::post(path).header("content-type", "application/json").body(Body::from(body)).unwrap();
    let answer = client.send(request).await.ok()?;
    let status = answer.status().as_u16();
    // The whole answer: what is not read is not sent.
    drop(answer.into_body().collect_bytes().await);
    Some(status)
}

/// Asks for something with a token that is asked with once.
async fn ask(client: &Client, path: &str, worker: usize, turn: usize) -> Option<u16> {
    let token = format!("Bearer made-up-{worker}-{turn}");
    let request = Request::get(path).header("authorization", token).body(Body::empty()).unwrap();
    let answer = client.send(request).await.ok()?;
    Some(answer.status().as_u16())
}

/// Anyone who reaches the port and writes requests that kube's client would not write. It is made once: to load the roots of trust for
/// each request costs the test more than the manager.
fn raw(port: u16) -> legacy::Client<impl Connect + Clone + Send + Sync + 'static, axum::body::Body> {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.accept_invalid_certs = true;
    let connector = config.rustls_https_connector().unwrap();
    // Each request has a connection of its own.
    legacy::Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector)
}

/// A request whose head is far too large, or whose body comes by the byte and does not end.
async fn endless(
    client: &legacy::Client<impl Connect + Clone + Send + Sync + 'static, axum::body::Body>,
    port: u16,
    head: Option<HeaderValue>,
) -> Option<u16> {
    let request = Request::post(format!("https://127.0.0.1:{port}/apis"));
    let request = if let Some(head) = head {
        request.header("x-large", head).body(axum::body::Body::empty()).unwrap()
    } else {
        let bytes = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Some((Ok::<_, std::io::Error>("x"), ()))
        });
        request.body(axum::body::Body::from_stream(bytes)).unwrap()
    };
    Some(client.request(request).await.ok()?.status().as_u16())
}

/// A kind of flood.
#[derive(Clone, Copy, Debug)]
pub enum Flood {
    /// Connections without a byte, and with the first bytes of a handshake.
    HalfOpen,
    /// Bodies that the API server would never send, and the largest that it could.
    Large,
    /// Small requests with large answers.
    Bombs,
    /// Many small values.
    Dense,
    /// Reviews of objects of each kind, as large as they may be.
    Reviews,
    /// Questions, each with another made-up token.
    Tokens,
    /// Heads of requests that have no end, and bodies that come by the byte.
    Heads,
}

/// Sixty-four at a time, on a thread of their own: what they cost the test must not keep it from its looks at the manager.
fn flood_of_heads(port: u16, count: &AtomicUsize) {
    let client = raw(port);
    let large = HeaderValue::try_from("x".repeat(1 << 20)).unwrap();
    let until = Instant::now() + PERIOD;
    let one = async |worker: usize| {
        let header = worker.is_multiple_of(2).then(|| large.clone());
        while Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let _ = tokio::time::timeout(left, endless(&client, port, header.clone())).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(futures::future::join_all((0..64).map(one)));
}

/// Floods the port for a while. How many connections there were, or requests that were answered; of those without an end, how many there were.
pub async fn flood(kind: Flood, (port, path): (u16, &'static str), hooks: &Arc<Vec<Hook>>) -> usize {
    let count = Arc::new(AtomicUsize::default());
    let mut held = Vec::new();
    match kind {
        Flood::HalfOpen => {
            let until = Instant::now() + PERIOD;
            for number in 0..3_000 {
                let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                if number % 2 == 0 {
                    // A record of 512 bytes is announced, and never comes. A closed connection is no news here.
                    let _ = stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await;
                }
                count.fetch_add(1, Ordering::Relaxed);
                held.push(stream);
            }
            tokio::time::sleep_until(until.into()).await;
        }
        Flood::Tokens => {
            let until = Instant::now() + PERIOD;
            let tasks: Vec<_> = (0..16)
                .map(|worker| {
                    let count = Arc::clone(&count);
                    tokio::spawn(async move {
                        let client = stranger(port);
                        for turn in 0.. {
                            let left = until.saturating_duration_since(Instant::now());
                            let asked = tokio::time::timeout(left, ask(&client, path, worker, turn)).await;
                            let Ok(status) = asked else { return };
                            assert_ne!(status, Some(200), "a made-up token reads {path}");
                            count.fetch_add(usize::from(status.is_some()), Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
        Flood::Heads => {
            let count = Arc::clone(&count);
            tokio::task::spawn_blocking(move || flood_of_heads(port, &count)).await.unwrap();
        }
        Flood::Reviews => return flood_of_reviews(port, hooks).await,
        Flood::Large | Flood::Bombs | Flood::Dense => {
            let bodies: Vec<Vec<u8>> = match kind {
                Flood::Large => vec![large(12 << 20), large(3 << 20), large(6 << 20)],
                Flood::Bombs => vec![bomb()],
                _ => vec![dense()],
            };
            let bodies = Arc::new(bodies);
            let until = Instant::now() + PERIOD;
            let tasks: Vec<_> = (0..16)
                .map(|worker| {
                    let (count, bodies) = (Arc::clone(&count), Arc::clone(&bodies));
                    tokio::spawn(async move {
                        let client = stranger(port);
                        for turn in worker.. {
                            let body = bodies[turn % bodies.len()].clone();
                            let left = until.saturating_duration_since(Instant::now());
                            let posted = tokio::time::timeout(left, post(&client, "/convert", body)).await;
                            let Ok(answer) = posted else { return };
                            count.fetch_add(usize::from(answer.is_some()), Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
    }
    drop(held);
    count.load(Ordering::Relaxed)
}
