//! The webhook port is flooded from outside: idle connections, large bodies, small requests with large answers, and reviews of the largest objects of
//! each kind. Then the ports of metrics, of the aggregated APIs and of the dashboard: invalid tokens, idle connections, endless heads and bodies. The
//! manager's memory hardly grows, its health endpoint answers at once, its lease is kept, and honest reviews are answered. Then it starts in a
//! cluster that is full of large Jobs that it does not manage.
//!
//! All of this runs under the chart's memory limit (in a real cgroup if the machine allows one) and with few descriptors.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderValue, Request};
use hyper_util::client::legacy::{self, connect::Connect};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use serde_json::{Value, json};
use sluice_testkit::free_ports;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{ControlPlane, Limits, Manager, Setup, chart, crds};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, job};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::reviews::{Hook, flood_of_reviews, hooks};

/// How much memory the manager may use above what it uses at rest.
const MEMORY: u64 = 128 << 20;
/// How long a look at its health may take: the kubelet's own patience is a second.
const HEALTH: Duration = Duration::from_secs(1);
/// How long an honest request may take under the flood: the API server's patience with a webhook that must answer.
const HONEST: Duration = Duration::from_secs(5);
/// The namespace with a LocalQueue `default`.
const DEFAULTED: &str = "defaulted";
/// How long each kind of flood lasts.
pub const PERIOD: Duration = Duration::from_secs(3);

/// How much a start may take above that, with [`STRANGE_JOBS`] of a megabyte.
const START: u64 = 64 << 20;
/// Jobs without a queue.
const STRANGE_JOBS: usize = 98;
/// Jobs without a queue that are small, and have as many labels as fit.
const LABELLED_JOBS: usize = 20;
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

/// A body of `bytes` bytes that is one small object.
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

/// What was seen of the manager during a flood.
#[derive(Debug, Default)]
struct Seen {
    slowest_health: Duration,
    unhealthy: usize,
    looks: usize,
    most_memory: u64,
}

/// Looks at health and memory until it is stopped.
async fn observe(manager: &Manager, over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    while !over.load(Ordering::Relaxed) {
        pace.tick().await;
        let began = Instant::now();
        let answer = tokio::time::timeout(HEALTH * 5, manager.health("/healthz")).await;
        seen.slowest_health = seen.slowest_health.max(began.elapsed());
        seen.unhealthy += usize::from(!matches!(answer, Ok(Ok((200, _)))));
        seen.looks += 1;
        seen.most_memory = seen.most_memory.max(manager.anonymous_memory().unwrap());
    }
    seen
}

async fn lease(client: &Client) -> (String, String) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), chart::NAMESPACE);
    let spec = leases.get("c1f6bfd2.kueue.x-k8s.io").await.unwrap().spec.unwrap();
    (spec.holder_identity.unwrap_or_default(), format!("{:?}", spec.renew_time))
}

/// The queue that the webhook gives a Job without one, where a LocalQueue `default` is. The API server waits for this webhook for two seconds, and
/// lets the Job pass if there is no answer.
async fn given_queue(place: &Place<'_>) -> Option<String> {
    let mut unqueued = job("unqueued", "", 1, 1, 3_600);
    unqueued["metadata"]["labels"] = json!({});
    let jobs: Api<Job> = Api::namespaced(place.client.clone(), DEFAULTED);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let made = jobs.create(&params, &serde_json::from_value(unqueued).unwrap()).await.unwrap();
    made.metadata.labels.unwrap_or_default().remove(QUEUE_NAME)
}

/// A user whose requests go through the webhooks: Jobs are defaulted, one with a queue and one without, and a Workload list is converted. How long
/// the slowest took.
async fn honest(place: &Place<'_>, name: &str) -> Duration {
    let began = Instant::now();
    place.make_job(&job(name, "lq", 1, 1, 3_600)).await.unwrap();
    let made = began.elapsed();
    assert_eq!(given_queue(place).await.as_deref(), Some("default"), "{name}: it passed without an answer");
    let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta1", "LocalQueue");
    let older: Api<DynamicObject> = Api::namespaced_with(
        place.client.clone(),
        &place.name,
        &ApiResource::from_gvk_with_plural(&kind, "localqueues"),
    );
    let began = Instant::now();
    older.get("lq").await.unwrap();
    made.max(began.elapsed())
}

#[derive(Clone, Copy, Debug)]
enum Flood {
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
async fn flood(kind: Flood, (port, path): (u16, &'static str), hooks: &Arc<Vec<Hook>>) -> usize {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_flooded_webhook_port_costs_neither_memory_nor_health_nor_leadership() {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let client = plane.client().await.unwrap();
    let setup = Setup::new(&plane).unwrap().limited(Limits::CHART);
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let pages = free_ports(1).unwrap()[0];
    let setup = setup.with(&json!({"dashboard": {"bindAddress": "127.0.0.1", "port": pages}}));
    let mut manager = Manager::start(&plane, setup).await.unwrap();
    manager.must_be_limited();
    crds::wait_until_converting(&client).await.unwrap();
    let here = Place::new(&plane, "honest", 100_000).await.unwrap();
    let defaulted = Place::bare(&plane, DEFAULTED).await.unwrap();
    defaulted.local_queue("default", "honest").await.unwrap();
    eventually("the webhook to know the default queue", DEADLINE, || async {
        let queue = given_queue(&here).await;
        Ok(progress(queue.is_some(), "none"))
    })
    .await
    .unwrap();
    honest(&here, "before").await;
    here.wait_until("before", true).await.unwrap();
    let idle = manager.anonymous_memory().unwrap();
    let (leader, _) = lease(&client).await;
    let setup = manager.setup();
    let hooks = Arc::new(hooks(&client).await);
    assert!(hooks.len() > 12, "{hooks:?}");
    let webhooks = (setup.webhook, "/convert");
    let metrics = (setup.metrics, "/metrics");
    let queues =
        (setup.visibility, "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/honest/pendingworkloads");
    let pages = (pages, "/api/now");
    let floods = [
        ("half-open", Flood::HalfOpen, webhooks),
        ("large", Flood::Large, webhooks),
        ("bombs", Flood::Bombs, webhooks),
        ("dense", Flood::Dense, webhooks),
        ("reviews", Flood::Reviews, webhooks),
        ("tokens", Flood::Tokens, metrics),
        ("queues-half-open", Flood::HalfOpen, queues),
        ("queues-heads", Flood::Heads, queues),
        ("queues-tokens", Flood::Tokens, queues),
        ("pages-half-open", Flood::HalfOpen, pages),
        ("pages-heads", Flood::Heads, pages),
        ("pages-tokens", Flood::Tokens, pages),
    ];
    for (name, kind, target) in floods {
        let over = AtomicBool::new(false);
        let (_, renewed) = lease(&client).await;
        let attack = async {
            let count = flood(kind, target, &hooks).await;
            over.store(true, Ordering::Relaxed);
            count
        };
        let users = async {
            let mut slowest = Duration::ZERO;
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                number += 1;
                slowest = slowest.max(honest(&here, &format!("{name}-{number}")).await);
            }
            (slowest, number)
        };
        let (count, seen, (slowest, served)) = tokio::join!(attack, observe(&manager, &over), users);
        let above = seen.most_memory.saturating_sub(idle);
        println!(
            "{name}: {count}, {} MiB above idle, {served} honest, slowest {slowest:?}; {seen:?}",
            above >> 20
        );
        assert!(above <= MEMORY, "{name}: {} MiB above idle", above >> 20);
        assert!(count > 0, "{name} was no flood");
        assert_eq!(seen.unhealthy, 0, "{name}: {seen:?}");
        assert!(seen.looks > 10 && seen.slowest_health < HEALTH, "{name}: {seen:?}");
        assert!(served > 0 && slowest < HONEST, "{name}: {served} in {slowest:?}");
        let (holder, now) = lease(&client).await;
        assert!(holder == leader && now != renewed, "{name}: {holder} leads, {now}");
        assert_eq!(manager.ended(), None, "{name}");
        // What was made meanwhile is admitted.
        here.wait_until(&format!("{name}-1"), true).await.unwrap();
    }
    // The memory is not kept.
    eventually("memory to come back", DEADLINE, || async {
        let above = manager.anonymous_memory()?.saturating_sub(idle);
        Ok(if above < MEMORY / 2 {
            Progress::Done(())
        } else {
            Progress::NotYet(format!("{} MiB", above >> 20))
        })
    })
    .await
    .unwrap();
    large_jobs(&here, &plane, manager, idle).await;
}

/// A megabyte in the template of a Job, and no queue.
fn large_job(number: usize) -> Value {
    let mut job = job(&format!("strange-{number}"), "", 1, 1, 3_600);
    job["metadata"]["labels"] = json!({});
    job["spec"]["suspend"] = json!(true);
    job["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(1_000_000)]);
    job
}

/// As many labels as fit into a Job that has no queue.
fn labelled_job(number: usize) -> Value {
    let mut job = job(&format!("labelled-{number}"), "", 1, 1, 3_600);
    job["metadata"]["labels"] = (0..60_000).map(|n| (format!("l{n}"), json!(""))).collect();
    job["spec"]["suspend"] = json!(true);
    job
}

/// A manager sees large Jobs that it does not manage: one after the other, then all of them at its start.
async fn large_jobs(here: &Place<'_>, plane: &ControlPlane, manager: Manager, idle: u64) {
    for number in 0..STRANGE_JOBS {
        here.make_job(&large_job(number)).await.unwrap();
    }
    for number in 0..LABELLED_JOBS {
        here.make_job(&labelled_job(number)).await.unwrap();
    }
    here.job("behind-them", "lq", 1).await.unwrap();
    here.wait_until("behind-them", true).await.unwrap();
    let above = manager.anonymous_memory().unwrap().saturating_sub(idle);
    println!("{STRANGE_JOBS} large Jobs: {} MiB above idle", above >> 20);
    assert!(above <= START, "{} MiB above idle", above >> 20);

    let setup = manager.setup().clone();
    manager.stop().await.unwrap();
    let manager = Manager::launch(plane, setup).await.unwrap();
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    let (began, mut most, mut ready) = (Instant::now(), 0, false);
    while !ready {
        assert!(began.elapsed() < DEADLINE, "not ready:\n{}", manager.log_tail(20));
        looks.tick().await;
        most = most.max(manager.anonymous_memory().unwrap());
        ready = matches!(manager.health("/readyz").await, Ok((200, _)));
    }
    let above = most.saturating_sub(idle);
    println!("a start with {STRANGE_JOBS} large Jobs: {} MiB above idle, {:?}", above >> 20, began.elapsed());
    assert!(above <= START, "{} MiB above idle", above >> 20);
    manager.stop().await.unwrap();
}
