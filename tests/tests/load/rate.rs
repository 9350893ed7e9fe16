//! The throughput of Jobs and the number of writes, counted at the API server and, on demand, compared with a loop that only makes the same writes in
//! the same run. Figures are printed; only the counts can fail the test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::kubectl::apply;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, FaultProxy, Manager, Setup, Write, client_of, crds, workloads};
use sluice_tests::place::QUEUE_NAME;

/// How many Jobs `SLUICE_RATE_JOBS` asks for. The bare loop is played only where it is set: its rate proves nothing, and it takes as long as most of
/// the rest.
static WANTED: LazyLock<Option<usize>> = LazyLock::new(|| {
    let said = std::env::var("SLUICE_RATE_JOBS").ok()?;
    Some(said.parse().unwrap_or_else(|why| panic!("SLUICE_RATE_JOBS={said}: {why}")))
});
const QUEUES: usize = 20;
/// Jobs of the bare loop, whose rate alone is of interest: as few as give it.
const BARE: usize = 400;
const DEADLINE: Duration = Duration::from_mins(5);
/// How often the measurement is tried at most: a machine that stands still spoils it.
const TRIES: usize = 3;
/// Jobs that their users make at once.
const USERS: usize = 16;
/// As many writes at once as the manager makes.
const AT_ONCE: usize = 64;
const NAMESPACE: &str = "default";
/// For how long nothing is written when all is done.
const REST: Duration = Duration::from_secs(2);
/// The writes that are counted.
const COUNTED: [&str; 3] = ["workloads", "workloads/status", "jobs"];

const SETUP: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: kueue-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: rate, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rate}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, namespace: default, name: rate}]
";

/// How many Jobs there are.
fn number_of_jobs() -> usize {
    WANTED.unwrap_or(1_000)
}

/// One flavor and the queues, each with room for its share of the Jobs.
fn queues() -> String {
    let mut text =
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: default}\n".to_owned();
    for number in 0..QUEUES {
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": {"name": format!("cq-{number}")},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": number_of_jobs().div_ceil(QUEUES)}]}],
            }]},
        });
        let local = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": {"name": format!("lq-{number}"), "namespace": NAMESPACE},
            "spec": {"clusterQueue": format!("cq-{number}")},
        });
        text = format!("{text}---\n{queue}\n---\n{local}\n");
    }
    text
}

/// Suspended as the webhook leaves it: admission webhooks are none of the manager's writes, and not part of this plane.
fn job(name: &str, queue: usize, template: &Value) -> Job {
    let labels = if queue < QUEUES { json!({QUEUE_NAME: format!("lq-{queue}")}) } else { json!({}) };
    let object = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"suspend": true, "template": template},
    });
    serde_json::from_value(object).unwrap()
}

fn template() -> Value {
    json!({"spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    }})
}

/// Makes a Job, as its user does: not through the door at which the writes are counted.
async fn make_job(jobs: &Api<Job>, prefix: &str, number: usize, queue: usize) {
    let job = job(&format!("{prefix}-{number}"), queue, &template());
    jobs.create(&PostParams::default(), &job).await.unwrap();
}

/// What a write was on, without names; what reports on pods comes after the start, and is counted apart.
fn sort(write: &Write) -> String {
    if write.is_housekeeping() {
        return "leases, events, reviews".to_owned();
    }
    if write.query.contains("PodsReady") {
        return "workloads/status of pods".to_owned();
    }
    let path = &write.path;
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    let kinds = ["jobs", "workloads", "clusterqueues", "localqueues", "resourceflavors"];
    let Some(at) = parts.iter().position(|part| kinds.contains(part)) else { return "other".to_owned() };
    if parts.last() == Some(&"status") { format!("{}/status", parts[at]) } else { parts[at].to_owned() }
}

/// The writes that Sluice makes for a Job, without decisions.
struct Bare {
    jobs: Api<Job>,
    workloads: Api<DynamicObject>,
    workload: Value,
    status: Value,
}

impl Bare {
    /// Copies one of the Workloads that Sluice made.
    fn like(client: &Client, model: &Value) -> Self {
        let kept =
            ["finalizers", "labels", "ownerReferences"].map(|key| (key, model["metadata"][key].clone()));
        let (version, kind) = ("kueue.x-k8s.io/v1beta2", "Workload");
        Self {
            jobs: Api::namespaced(client.clone(), NAMESPACE),
            workloads: workloads::namespaced(client, NAMESPACE, "Workload", "workloads"),
            workload: json!({
                "apiVersion": version, "kind": kind, "metadata": BTreeMap::from(kept), "spec": model["spec"],
            }),
            status: json!({"apiVersion": version, "kind": kind, "metadata": {}, "status": model["status"]}),
        }
    }

    async fn write(&self, number: usize) {
        let name = format!("bare-{number}");
        let (mut workload, mut status) = (self.workload.clone(), self.status.clone());
        workload["metadata"]["name"] = json!(name);
        status["metadata"]["name"] = json!(name);
        let object = serde_json::from_value(workload).unwrap();
        self.workloads.create(&PostParams::default(), &object).await.unwrap();
        let apply = PatchParams::apply("bare-loop").force();
        self.workloads.patch_status(&name, &apply, &Patch::Apply(status)).await.unwrap();
        let start = Patch::Merge(json!({"spec": {"suspend": false}}));
        self.jobs.patch(&name, &PatchParams::default(), &start).await.unwrap();
    }
}

/// A Workload that is made before its queue is known has a message about that, with a write that is not one of the three.
async fn wait_for_queues(client: &Client) {
    let queues = workloads::namespaced(client, NAMESPACE, "LocalQueue", "localqueues");
    eventually("all LocalQueues to be ready", DEADLINE, || async {
        let all = queues.list(&ListParams::default()).await?.items;
        let ready = |queue: &&DynamicObject| queue.data["status"]["conditions"][0]["status"] == "True";
        let count = all.iter().filter(ready).count();
        Ok(progress(count == QUEUES, format!("{count} of {QUEUES}")))
    })
    .await
    .unwrap();
}

/// Waits until nothing was written on a Job or a Workload for a while: what comes late counts, too.
async fn wait_for_rest(proxy: &FaultProxy) {
    let counted = || proxy.writes().iter().filter(|write| COUNTED.contains(&&*sort(write))).count();
    let last = Mutex::new((counted(), Instant::now()));
    eventually("writes to rest", DEADLINE, || async {
        let (now, mut last) = (counted(), last.lock().unwrap());
        if now != last.0 {
            *last = (now, Instant::now());
        }
        Ok(progress(last.1.elapsed() > REST, format!("{now} writes")))
    })
    .await
    .unwrap();
}

/// How often each object was written, by name; what is made has none in its path.
fn by_name(writes: &[Write], of: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes.iter().filter(|write| write.method != "POST" && sort(write) == of) {
        *counts.entry(write.path.clone()).or_default() += 1;
    }
    counts
}

#[expect(clippy::cast_precision_loss, reason = "for a printed figure")]
fn rate(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_jobs_take_three_writes_each() {
    // A write that hangs beside others is given up and made again: a machine that stands still may show that, and then says nothing of the others.
    for _ in 0..TRIES {
        if take_three_writes_each(number_of_jobs()).await {
            return;
        }
    }
    panic!("in each of {TRIES} runs a write was given up");
}

/// Makes so many Jobs, and waits until all are started and nothing more is written: how long the start took, and how many writes had no answer.
async fn start_all(jobs: &Api<Job>, proxy: &FaultProxy, number_of_jobs: usize) -> (Duration, usize) {
    proxy.forget_writes();
    let began = Instant::now();
    futures::stream::iter(0..number_of_jobs)
        .for_each_concurrent(USERS, |number| make_job(jobs, "job", number, number % QUEUES))
        .await;
    eventually("all Jobs to be started", DEADLINE, || async {
        let started = proxy.writes().iter().filter(|write| sort(write) == "jobs").count();
        let known = started == number_of_jobs || proxy.unanswered_writes() > 0;
        Ok(progress(known, format!("{started} of {number_of_jobs}")))
    })
    .await
    .unwrap();
    let took = began.elapsed();
    wait_for_rest(proxy).await;
    (took, proxy.unanswered_writes())
}

/// Plays the bare loop; how long it took.
async fn play_bare(plane: &ControlPlane, setup: Setup, client: &Client, user: &Api<Job>) -> Duration {
    let model = workloads::list(client, NAMESPACE).await.unwrap().swap_remove(0);
    // The API server converts each Workload for clients that watch the older version, whatever client writes it.
    let converting = Manager::start(plane, setup.arg("--controllers=webhooks,certificates")).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    let bare = Bare::like(client, &model);
    let began = Instant::now();
    futures::stream::iter(0..BARE)
        .map(|number| async move {
            make_job(user, "bare", number, QUEUES).await;
            number
        })
        .buffer_unordered(USERS)
        .for_each_concurrent(AT_ONCE, |number| bare.write(number))
        .await;
    let took = began.elapsed();
    converting.stop().await.unwrap();
    took
}

/// Counts the writes of so many Jobs; false if one of them was given up without an answer.
async fn take_three_writes_each(number_of_jobs: usize) -> bool {
    let plane = ControlPlane::builder().start().await.unwrap();
    apply(&plane, SETUP).await.unwrap();
    let proxy = FaultProxy::start(&plane).await.unwrap();
    // Both go through the same server, so that it costs both the same.
    let kubeconfig = plane.kubeconfig_through(&proxy.url(), NAMESPACE, "rate").await.unwrap();
    let client = client_of(&kubeconfig).await.unwrap();
    // Leases are not the subject, and a busy machine could lose one in between.
    let setup = Setup::new(&plane).unwrap().acting_as(kubeconfig).alone();
    crds::install(&plane.client().await.unwrap(), Some(&setup.webhook_url())).await.unwrap();
    let manager = Manager::start(&plane, setup.clone()).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    apply(&plane, &queues()).await.unwrap();
    wait_for_queues(&plane.client().await.unwrap()).await;
    let jobs: Api<Job> = Api::namespaced(plane.client().await.unwrap(), NAMESPACE);

    let user = &jobs;
    let (took, given_up) = start_all(user, &proxy, number_of_jobs).await;
    if given_up > 0 {
        println!("{given_up} writes had no answer in time");
        manager.stop().await.unwrap();
        plane.stop();
        return false;
    }

    let mut counts = BTreeMap::<String, usize>::new();
    let mut refused = Vec::new();
    let writes = proxy.writes();
    for write in &writes {
        if write.status >= 400 && !write.is_housekeeping() {
            refused.push(write.clone());
        }
        *counts.entry(sort(write)).or_default() += 1;
    }
    manager.stop().await.unwrap();
    let with_sluice = rate(number_of_jobs, took);
    println!("{number_of_jobs} Jobs in {QUEUES} queues: {with_sluice:.0}/s with Sluice");
    if WANTED.is_some() {
        let bare = rate(BARE, play_bare(&plane, setup, &client, user).await);
        println!(
            "{bare:.0}/s by a bare loop of the same writes, of which that is {:.0} %",
            100.0 * with_sluice / bare
        );
    }
    println!("writes: {counts:?}, of which refused: {refused:?}");
    for sort in COUNTED {
        assert_eq!(counts.get(sort), Some(&number_of_jobs), "{sort}: {counts:?}");
    }
    for sort in ["workloads/status", "jobs"] {
        let often: Vec<_> = by_name(&writes, sort).into_iter().filter(|(_, times)| *times != 1).collect();
        assert!(often.is_empty(), "{sort}: {often:?}");
    }
    assert!(refused.is_empty(), "{refused:?}");
    plane.stop();
    true
}
