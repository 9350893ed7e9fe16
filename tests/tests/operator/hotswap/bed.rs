//! The plane with its manager, and the page's world in a namespace.

use std::collections::BTreeSet;
use std::fs;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::{
    Complete, ControlPlane, Manager, Setup, assets, autoscaler, chart, crds, kubectl, workloads,
};
pub use sluice_tests::place::DEADLINE;
use tokio::sync::{Mutex, OnceCell};

/// The label that makes pools.
pub const POOL: &str = "cloud.google.com/gke-nodepool";

/// A plane of its own: the manager is killed here, and nodes of the whole cluster fail.
static PLANE: OnceCell<Complete> = OnceCell::const_new();
/// The manager of all tests, which some of them kill and start again.
static MANAGER: OnceCell<Mutex<Option<Manager>>> = OnceCell::const_new();
/// What answers provisioning requests.
static AUTOSCALER: OnceCell<autoscaler::StandIn> = OnceCell::const_new();
/// Tests that kill the manager and those that look at what happens only once go one after the other.
pub static TURN: Mutex<()> = Mutex::const_new(());

/// The plane with a manager that runs.
pub async fn plane() -> &'static ControlPlane {
    let plane = PLANE.get_or_try_init(Complete::start).await.unwrap();
    MANAGER
        .get_or_init(|| async {
            let served = autoscaler::Served::Both;
            let autoscaler =
                || async { autoscaler::StandIn::start(&plane.kubeconfig_path(), served).await.unwrap() };
            AUTOSCALER.get_or_init(autoscaler).await;
            let setup = chart::install(plane, Setup::new(plane).unwrap().alone(), &json!({})).await.unwrap();
            let manager = Manager::start(plane, setup).await.unwrap();
            crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
            // The scheduler's own preemption would blur whose work it is.
            let classes = manifest("priority-classes.yaml")
                .replace("globalDefault: false", "globalDefault: false\npreemptionPolicy: Never");
            kubectl::apply(plane, &classes).await.unwrap();
            Mutex::new(Some(manager))
        })
        .await;
    plane
}

/// Kills the manager (SIGKILL) and starts it again.
pub async fn kill_and_restart(plane: &ControlPlane) {
    let setup = stop().await;
    start(plane, setup).await;
}

/// Kills the manager (SIGKILL), for [`start`].
pub async fn stop() -> Setup {
    MANAGER.get().expect("plane() was called").lock().await.take().expect("one runs").kill()
}

/// Starts the manager after [`stop`].
pub async fn start(plane: &ControlPlane, setup: Setup) {
    let manager = Manager::start(plane, setup).await.unwrap();
    *MANAGER.get().expect("plane() was called").lock().await = Some(manager);
}

/// Starts the manager anew with other configuration.
#[cfg(feature = "bench-hotswap")]
pub async fn restart_with(plane: &ControlPlane, overrides: &Value) {
    let setup = stop().await.with(overrides);
    start(plane, setup).await;
}

/// Repeats what kubectl could not do while the manager's webhooks do not answer, as its user would: another test may have killed the manager.
async fn answered<F>(what: &str, ask: impl Fn() -> F) -> String
where
    F: Future<Output = anyhow::Result<String>>,
{
    eventually(what, DEADLINE, || async {
        Ok(match ask().await {
            Ok(said) => Progress::Done(said),
            Err(why) => {
                let why = format!("{why:#}");
                let is_for_now = why.contains("failed calling webhook");
                if is_for_now { Progress::NotYet(why) } else { Progress::Never(why) }
            }
        })
    })
    .await
    .unwrap()
}

/// A file of the example.
pub fn manifest(name: &str) -> String {
    fs::read_to_string(assets::workspace().join("examples/hotswap").join(name)).unwrap()
}

/// The page's queue and JobSets in a namespace, on pools of its own.
pub struct World {
    /// The plane.
    pub plane: &'static ControlPlane,
    /// The namespace; flavor and ClusterQueue have its name, pools begin with it.
    pub name: &'static str,
    client: Client,
}

impl World {
    /// The page's queue with so many chips for all namespaces, and so many pools of four nodes with four chips.
    pub async fn new(name: &'static str, chips: u32, pools: u32) -> Self {
        let plane = plane().await;
        let world = Self { plane, name, client: plane.client().await.unwrap() };
        world.plane.make_namespace(name).await.unwrap();
        for number in (1..=pools).step_by(2) {
            let text = manifest("nodes.yaml")
                .replace("v6e-pool-1", &format!("{name}-{number}"))
                .replace("v6e-pool-2", &format!("{name}-{}", number + 1));
            let nodes = text
                .split("\n---\n")
                .filter(|node| number < pools || !node.contains(&format!("{POOL}: {name}-{}\n", number + 1)));
            let text = nodes.collect::<Vec<_>>().join("\n---\n");
            world.apply(&world.own(&text)).await;
        }
        // Work that starts while a pool is not well keeps off it for good.
        let own = format!("cloud.google.com/gke-tpu-accelerator={name}");
        let ready = ["wait", "nodes", "-l", &own, "--for=condition=Ready", "--timeout=120s"];
        kubectl::kubectl(world.plane, &ready).await.unwrap();
        let queues = world
            .own(&manifest("queues.yaml"))
            .replace("nominalQuota: 32", &format!("nominalQuota: {chips}"))
            .replace("spec:\n  resourceGroups", "spec:\n  namespaceSelector: {}\n  resourceGroups");
        world.apply(&queues).await;
        world
    }

    /// A text of the page with the names of this world.
    fn own(&self, text: &str) -> String {
        text.replace("tpu-v6e-slice", self.name)
            .replace("tpu-training-cq", self.name)
            .replace("namespace: default", &format!("namespace: {}", self.name))
    }

    /// Applies one of the page's JobSets, whose pods run until they are stopped.
    pub async fn submit(&self, jobset: &str) {
        let all = manifest("jobs.yaml");
        let own =
            all.split("\n---\n").find(|document| document.contains(&format!("name: {jobset}\n"))).unwrap();
        let metadata = "          metadata:\n";
        assert!(own.contains(metadata), "{own}");
        let text = own
            .replace(
                metadata,
                &format!("{metadata}            annotations: {{sluice.dev/run-seconds: \"3600\"}}\n"),
            )
            .replacen("metadata:\n", &format!("metadata:\n  namespace: {}\n", self.name), 1);
        self.apply(&self.own(&text)).await;
    }

    /// Applies manifests.
    pub async fn apply(&self, manifests: &str) {
        answered("applying manifests", || kubectl::apply(self.plane, manifests)).await;
    }

    /// What kubectl says in this namespace.
    pub async fn kubectl(&self, args: &[&str]) -> String {
        let all: Vec<&str> = ["-n", self.name].iter().chain(args).copied().collect();
        answered(&all.join(" "), || kubectl::kubectl(self.plane, &all)).await
    }

    /// The objects of a kind here that these parameters select.
    pub async fn list(&self, kind: &str, selected: &ListParams) -> Vec<Value> {
        let all = self.api(kind).list(selected).await.unwrap().items;
        all.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    /// An object of a kind here.
    pub async fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::to_value(self.api(kind).get(name).await.unwrap()).unwrap()
    }

    /// The pods of a JobSet.
    pub async fn pods(&self, jobset: &str) -> Vec<Value> {
        let selector = format!("jobset.sigs.k8s.io/jobset-name={jobset}");
        self.list("Pod", &ListParams::default().labels(&selector)).await
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Pod" => ("", "v1"),
            "Job" => ("batch", "v1"),
            "JobSet" => ("jobset.x-k8s.io", "v1alpha2"),
            "Event" => ("events.k8s.io", "v1"),
            other => unreachable!("no test looks at {other}"),
        };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), self.name, &kind)
    }

    /// The pools on which the pods of a JobSet run that are not about to go, if all eight run.
    pub async fn pools(&self, jobset: &str) -> Result<BTreeSet<String>, String> {
        let pods = self.pods(jobset).await;
        let running = pods.iter().filter(|pod| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
        });
        let nodes: Vec<String> =
            running.filter_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.to_owned())).collect();
        if nodes.len() != 8 {
            return Err(format!("{} pods of {jobset} run", nodes.len()));
        }
        Ok(nodes.iter().filter_map(|node| Some(node.rsplit_once('-')?.0.to_owned())).collect())
    }

    /// Waits until all pods of a JobSet run, none of them in `not`.
    pub async fn runs(&self, jobset: &str, not: Option<&str>) -> BTreeSet<String> {
        eventually(&format!("{jobset} to run"), DEADLINE, || async {
            Ok(match self.pools(jobset).await {
                Ok(pools) if not.is_none_or(|not| !pools.contains(not)) => Progress::Done(pools),
                Ok(pools) => Progress::NotYet(format!("it runs on {pools:?}")),
                Err(seen) => Progress::NotYet(seen),
            })
        })
        .await
        .unwrap()
    }

    /// The Workload of a job.
    pub async fn workload(&self, job: &str) -> Value {
        workloads::of_job(&self.client, self.name, job).await.unwrap().unwrap_or_default()
    }

    /// Waits until a condition of a job's Workload has this reason, and gives its message.
    pub async fn reported(&self, job: &str, condition: &str, reason: &str) -> String {
        eventually(&format!("{condition}/{reason} of {job}"), DEADLINE, || async {
            let workload = self.workload(job).await;
            let found = workloads::condition(&workload, condition).cloned().unwrap_or_default();
            let message = found["message"].as_str().unwrap_or_default().to_owned();
            let as_wanted = found["reason"] == reason;
            Ok(if as_wanted { Progress::Done(message) } else { Progress::NotYet(found.to_string()) })
        })
        .await
        .unwrap()
    }

    /// What the manager answers to the question why a JobSet waits.
    pub async fn explained(&self, jobset: &str) -> anyhow::Result<String> {
        let manager = MANAGER.get().expect("plane() was called").lock().await;
        let path = format!("/debug/explain/{}/{jobset}?kind=jobset", self.name);
        Ok(manager.as_ref().expect("one runs").health(&path).await?.1)
    }

    /// How often a job's Workload was evicted, by reason.
    pub async fn evictions(&self, job: &str) -> Vec<(String, i64)> {
        let workload = self.workload(job).await;
        let all = workload["status"]["schedulingStats"]["evictions"].as_array().cloned().unwrap_or_default();
        all.iter().map(|e| (e["reason"].as_str().unwrap().to_owned(), e["count"].as_i64().unwrap())).collect()
    }

    /// Puts the signals of a coming termination on a pool, or takes them away.
    pub async fn departs(&self, pool: &str, departs: bool) {
        let selector = format!("{POOL}={pool}");
        let (label, taint) = if departs { ("=true", "=:NoSchedule") } else { ("-", ":NoSchedule-") };
        let label = format!("cloud.google.com/active-node-maintenance{label}");
        let taint = format!("cloud.google.com/impending-node-termination{taint}");
        self.kubectl(&["taint", "nodes", "-l", &selector, &taint]).await;
        self.kubectl(&["label", "nodes", "-l", &selector, &label]).await;
    }

    /// The page's start: `high` runs on two pools, then `low` on two others. Gives the pools of both.
    pub async fn both_run(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        self.submit(HIGH).await;
        let high = self.runs(HIGH, None).await;
        self.submit(LOW).await;
        let low = self.runs(LOW, None).await;
        assert!(high.is_disjoint(&low) && high.len() == 2 && low.len() == 2, "{high:?} {low:?}");
        (high, low)
    }
}

/// The page's JobSet of high priority.
pub const HIGH: &str = "high-jax-trillium";
/// The page's JobSet of low priority.
pub const LOW: &str = "low-jax-trillium";
