//! The webhook port is flooded from outside: idle connections, large bodies, small requests with large answers, and reviews of the largest objects of
//! each kind. Then the ports of metrics, of the aggregated APIs and of the dashboard: invalid tokens, idle connections, endless heads and bodies. The
//! manager's memory hardly grows, its health endpoint answers at once, its lease is kept, and honest reviews are answered. Then it starts in a
//! cluster that is full of large Jobs that it does not manage.
//!
//! A machine that stands still for a moment makes answers late: where one was late, that flood is repeated.
//!
//! All of this runs under the chart's memory limit (in a real cgroup if the machine allows one) and with few descriptors.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use sluice_testkit::free_ports;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{ControlPlane, Limits, Manager, Setup, chart, crds};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, job};

use crate::reviews::{Hook, hooks};
use crate::strangers::{Flood, flood};

/// How much memory the manager may use above what it uses at rest.
const MEMORY: u64 = 128 << 20;
/// How long a look at its health may take: the kubelet's own patience is a second. What fails sooner was not late.
const HEALTH: Duration = Duration::from_secs(1);
/// How long an honest request may take under the flood: the API server's patience with a webhook that must answer.
const HONEST: Duration = Duration::from_secs(5);
/// How often a flood is played in which something was late.
const TRIES: usize = 3;
/// The namespace with a LocalQueue `default`.
const DEFAULTED: &str = "defaulted";
/// How much a start may take above what it uses at rest, with [`STRANGE_JOBS`] of a megabyte.
const START: u64 = 64 << 20;
/// Jobs without a queue.
const STRANGE_JOBS: usize = 98;
/// Jobs without a queue that are small, and have as many labels as fit.
const LABELLED_JOBS: usize = 20;

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
        let is_healthy = matches!(answer, Ok(Ok((200, _))));
        seen.unhealthy += usize::from(!is_healthy && began.elapsed() < HEALTH);
        seen.looks += 1;
        seen.most_memory = seen.most_memory.max(manager.anonymous_memory().unwrap());
    }
    seen
}

/// Who has the lease, how often it had changed hands by then, and when it was renewed last.
async fn lease(client: &Client) -> Result<((String, i32), String)> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), chart::NAMESPACE);
    let spec = leases.get("c1f6bfd2.kueue.x-k8s.io").await?.spec.context("reading the lease")?;
    let holder = (spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default());
    Ok((holder, format!("{:?}", spec.renew_time)))
}

/// The leader of then leads on: it renews the lease, and no other had it meanwhile.
async fn leads_on(client: &Client, (leader, renewed): &((String, i32), String)) {
    eventually("the lease to be renewed", DEADLINE, || async {
        let (holder, now) = lease(client).await?;
        if holder != *leader {
            return Ok(Progress::Never(format!("{holder:?} leads, and not {leader:?}")));
        }
        Ok(progress(now != *renewed, now))
    })
    .await
    .unwrap();
}

/// The queue that the webhook gives a Job without one, where a LocalQueue `default` is. The API server waits for this webhook for two seconds, and
/// lets the Job pass if there is no answer.
async fn given_queue(place: &Place<'_>) -> Result<Option<String>> {
    let mut unqueued = job("unqueued", "", 1, 1, 3_600);
    unqueued["metadata"]["labels"] = json!({});
    let jobs: Api<Job> = Api::namespaced(place.client.clone(), DEFAULTED);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let made = jobs.create(&params, &serde_json::from_value(unqueued)?).await?;
    Ok(made.metadata.labels.unwrap_or_default().remove(QUEUE_NAME))
}

/// A user whose requests go through the webhooks: Jobs are defaulted, one with a queue and one without, and a Workload list is converted. How long
/// the slowest took.
async fn honest(place: &Place<'_>, name: &str) -> Result<Duration> {
    let began = Instant::now();
    place.make_job_once(&job(name, "lq", 1, 1, 3_600)).await?;
    let made = began.elapsed();
    let queue = given_queue(place).await?;
    ensure!(queue.as_deref() == Some("default"), "a Job without a queue passed without an answer");
    let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta1", "LocalQueue");
    let older: Api<DynamicObject> = Api::namespaced_with(
        place.client.clone(),
        &place.name,
        &ApiResource::from_gvk_with_plural(&kind, "localqueues"),
    );
    let began = Instant::now();
    older.get("lq").await.context("reading a queue in v1beta1")?;
    Ok(made.max(began.elapsed()))
}

/// What users saw during a flood.
#[derive(Debug, Default)]
struct Served {
    /// The Jobs that they made.
    made: Vec<String>,
    slowest: Duration,
    /// What failed after a while, or by a connection that was closed.
    late: Vec<String>,
}

/// Users make Jobs, with names that begin so, until it is over.
async fn users(place: &Place<'_>, prefix: &str, over: &AtomicBool) -> Served {
    let mut served = Served::default();
    for number in 1.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let (name, began) = (format!("{prefix}-{number}"), Instant::now());
        match honest(place, &name).await {
            Ok(took) => {
                served.slowest = served.slowest.max(took);
                served.made.push(name);
            }
            Err(why) => {
                let why = format!("{name} after {:?}: {why:#}", began.elapsed());
                // A connection that the API server is slow to open may be closed as one of the flood.
                let closed =
                    ["EOF", "connection reset", "broken pipe"].iter().any(|broken| why.contains(broken));
                assert!(began.elapsed() >= HEALTH || closed, "{why}");
                served.late.push(why);
            }
        }
    }
    served
}

/// The manager that is flooded.
struct Flooded<'a> {
    here: Place<'a>,
    manager: Manager,
    hooks: Arc<Vec<Hook>>,
    /// Its memory at rest.
    idle: u64,
}

impl Flooded<'_> {
    /// Floods a port once. What was late.
    async fn withstands(&mut self, name: &str, kind: Flood, target: (u16, &'static str)) -> Vec<String> {
        let over = AtomicBool::new(false);
        let before = lease(&self.here.client).await.unwrap();
        let attack = async {
            let count = flood(kind, target, &self.hooks).await;
            over.store(true, Ordering::Relaxed);
            count
        };
        let (count, seen, served) =
            tokio::join!(attack, observe(&self.manager, &over), users(&self.here, name, &over));
        let above = seen.most_memory.saturating_sub(self.idle);
        let Served { made, slowest, mut late } = served;
        println!(
            "{name}: {count}, {} MiB above idle, {} honest, slowest {slowest:?}; {seen:?}",
            above >> 20,
            made.len()
        );
        assert!(above <= MEMORY, "{name}: {} MiB above idle", above >> 20);
        assert!(count > 0, "{name} was no flood");
        assert_eq!(seen.unhealthy, 0, "{name}: {seen:?}");
        assert_eq!(self.manager.ended(), None, "{name}");
        leads_on(&self.here.client, &before).await;
        if seen.looks <= 10 || seen.slowest_health >= HEALTH {
            late.push(format!("{seen:?}"));
        }
        if slowest >= HONEST {
            late.push(format!("an answer after {slowest:?}"));
        }
        // What was made meanwhile is admitted.
        match made.first() {
            Some(job) => self.here.wait_until(job, true).await.unwrap(),
            None => late.push("no Job was made".to_owned()),
        }
        late
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flooded_webhook_port_costs_neither_memory_nor_health_nor_leadership() {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let client = plane.client().await.unwrap();
    let setup = Setup::new(&plane).unwrap().limited(Limits::CHART);
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let pages = free_ports(1).unwrap()[0];
    let setup = setup.with(&json!({"dashboard": {"bindAddress": "127.0.0.1", "port": pages}}));
    let manager = Manager::start(&plane, setup).await.unwrap();
    manager.must_be_limited();
    crds::wait_until_converting(&client).await.unwrap();
    let here = Place::new(&plane, "honest", 100_000).await.unwrap();
    let defaulted = Place::bare(&plane, DEFAULTED).await.unwrap();
    defaulted.local_queue("default", "honest").await.unwrap();
    eventually("the webhook to know the default queue", DEADLINE, || async {
        let queue = given_queue(&here).await?;
        Ok(progress(queue.is_some(), "none"))
    })
    .await
    .unwrap();
    here.job("before", "lq", 1).await.unwrap();
    here.wait_until("before", true).await.unwrap();
    let idle = manager.anonymous_memory().unwrap();
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
    let mut flooded = Flooded { here, manager, hooks, idle };
    for (name, kind, target) in floods {
        let mut late = Vec::new();
        for number in 1..=TRIES {
            late = flooded.withstands(&format!("{name}-{number}"), kind, target).await;
            if late.is_empty() {
                break;
            }
            println!("late in {name}: {late:?}");
        }
        assert!(late.is_empty(), "{name}, each of {TRIES} times: {late:?}");
    }
    let Flooded { here, manager, .. } = flooded;
    // The memory is not kept.
    memory_comes_back(&manager, idle + MEMORY / 2).await;
    large_jobs(&here, &plane, manager, idle).await;
}

/// Waits until the manager uses no more memory than this, in bytes.
async fn memory_comes_back(manager: &Manager, most: u64) {
    eventually("memory to come back", DEADLINE, || async {
        let used = manager.anonymous_memory()?;
        Ok(progress(used <= most, format!("{} MiB instead of {}", used >> 20, most >> 20)))
    })
    .await
    .unwrap();
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
    memory_comes_back(&manager, idle + START).await;
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
