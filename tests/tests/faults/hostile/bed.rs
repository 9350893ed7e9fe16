//! The plane, the victim and the hostile tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams, VersionMatch,
};
use serde_json::{Value, json};
use sluice_testkit::wait::{Progress, consistently, eventually, progress};
use sluice_testkit::{
    ControlPlane, Limits, Manager, Setup, chart, client_of, crds, jobset, nodes, workloads,
};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create, job};
use sluice_tests::reviewed::reviewed;
use sluice_tests::rights::wait_until_allowed;
use tokio::sync::OnceCell;

/// For how long something is looked at that must not happen: several rounds of every controller.
const WATCHED: Duration = Duration::from_secs(2);
/// How long a job may be unsuspended without an admission. A stop that conflicts with its user's writes is repeated after pauses that grow.
const UNSTOPPED: Duration = Duration::from_mins(1);
/// How much memory the manager may use above what it uses at rest.
const MEMORY: u64 = 128 << 20;
/// The queue of all tenants, whose quota the victim holds.
pub const SHARED: &str = "shared";
/// The queue of a tenant's own, of two processors.
pub const OWN: &str = "lq";
/// The one of [`Tenant::queue_with_a_check`].
pub const CHECKED: &str = "with-checks";

pub struct Bed {
    pub plane: ControlPlane,
    _jobsets: jobset::Controller,
    manager: Manager,
    victim: String,
    /// The manager's memory before the first attack.
    idle: u64,
}

static BED: OnceCell<Bed> = OnceCell::const_new();

/// The plane lives as long as the test process; the watchdog stops it with that.
pub async fn bed() -> &'static Bed {
    BED.get_or_init(|| async {
        let plane = ControlPlane::builder().complete().start().await.unwrap();
        let client = plane.client().await.unwrap();
        let jobsets = jobset::Controller::start(&plane).await.unwrap();
        nodes::pool("plain", 4).make(&client).await.unwrap();
        let setup = Setup::new(&plane).unwrap().lasting_leases().limited(Limits::CHART);
        let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
        chart::wait_long_for_webhooks(&plane).await.unwrap();
        let manager = Manager::start(&plane, setup).await.unwrap();
        manager.must_be_limited();
        crds::wait_until_converting(&client).await.unwrap();
        let bystander = Place::new(&plane, "victim", 2).await.unwrap();
        bystander.make_job(&job("precious", OWN, 1, 2, 36_000)).await.unwrap();
        bystander.wait_until("precious", true).await.unwrap();
        let workload = bystander.workload("precious").await.unwrap();
        let victim = workload["metadata"]["uid"].as_str().unwrap().to_owned();
        drop(bystander);
        let idle = manager.anonymous_memory().unwrap();
        Bed { plane, _jobsets: jobsets, manager, victim, idle }
    })
    .await
}

/// The manager needs little memory until it is `over`, whatever is made.
pub async fn memory_stays(over: &AtomicBool) {
    let bed = bed().await;
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let mut most = 0;
    while !over.load(Ordering::Relaxed) {
        pace.tick().await;
        most = most.max(bed.manager.anonymous_memory().unwrap());
    }
    let above = most.saturating_sub(bed.idle);
    println!("{} MiB above idle", above >> 20);
    assert!(above <= MEMORY, "{} MiB above idle", above >> 20);
}

/// A tenant: an account with the rights of a batch user in a namespace of its own.
pub struct Tenant {
    pub place: Place<'static>,
    /// With the tenant's rights.
    pub user: Client,
}

/// What runs without an admitted Workload.
struct Unadmitted {
    /// Jobs and JobSets that are not suspended.
    jobs: Vec<String>,
    pods: Vec<String>,
}

/// A new tenant, with a queue of its own and one that is shared with the victim.
pub async fn tenant(name: &str) -> Tenant {
    let bed = bed().await;
    let place = Place::new(&bed.plane, name, 2).await.unwrap();
    place.local_queue(SHARED, "victim").await.unwrap();
    let bindings: Api<RoleBinding> = Api::namespaced(place.client.clone(), name);
    let binding = json!({
        "metadata": {"name": "batch-user"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-batch-user-role"},
        "subjects": [{"kind": "ServiceAccount", "namespace": name, "name": "default"}],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let kubeconfig = bed.plane.kubeconfig_for_service_account(name, "default").await.unwrap();
    let user = client_of(&kubeconfig).await.unwrap();
    for kind in [("batch", "jobs"), ("jobset.x-k8s.io", "jobsets")] {
        wait_until_allowed(&user, Some(name), "create", kind).await.unwrap();
    }
    Tenant { place, user }
}

/// A Job in a queue that begins unsuspended: what a hostile tenant would like to run.
pub fn attack(name: &str, queue: &str) -> Value {
    let mut job = job(name, queue, 1, 1, 36_000);
    job["spec"]["suspend"] = json!(false);
    job
}

/// A JobSet with `kinds` kinds of Jobs of one pod each.
pub fn set(name: &str, queue: &str, kinds: usize) -> Value {
    let template = job("t", queue, 1, 1, 36_000)["spec"].clone();
    let kinds: Vec<_> = (0..kinds)
        .map(|kind| json!({"name": format!("k{kind}"), "replicas": 1, "template": {"spec": template}}))
        .collect();
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "labels": {QUEUE_NAME: queue}},
        "spec": {"suspend": false, "replicatedJobs": kinds},
    })
}

fn api_of(client: &Client, namespace: &str, object: &Value) -> Api<DynamicObject> {
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap_or_default();
    let kind = object["kind"].as_str().unwrap();
    let kind_of = GroupVersionKind::gvk(group, version, kind);
    let plural = format!("{}s", kind.to_lowercase());
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind_of, &plural))
}

impl Tenant {
    /// Makes an object with the tenant's rights.
    pub async fn make(&self, object: &Value) -> kube::Result<Value> {
        reviewed("an object to be made", || self.make_once(object)).await
    }

    /// The same, and a webhook that has no time is a failure.
    pub async fn make_once(&self, object: &Value) -> kube::Result<Value> {
        self.post(object, &PostParams::default()).await
    }

    /// Whether the tenant could make an object.
    pub async fn dry_run(&self, object: &Value) -> kube::Result<Value> {
        reviewed("an object to be tried", || self.dry_run_once(object)).await
    }

    /// The same, and a webhook that has no time is a failure.
    pub async fn dry_run_once(&self, object: &Value) -> kube::Result<Value> {
        self.post(object, &PostParams { dry_run: true, ..PostParams::default() }).await
    }

    async fn post(&self, object: &Value, params: &PostParams) -> kube::Result<Value> {
        let api = api_of(&self.user, &self.place.name, object);
        let made = api.create(params, &serde_json::from_value(object.clone()).unwrap()).await?;
        Ok(serde_json::to_value(made).unwrap())
    }

    /// Changes a Job with the tenant's rights.
    pub async fn patch(&self, name: &str, patch: Value) -> kube::Result<Value> {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job"});
        let api = api_of(&self.user, &self.place.name, &job);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = reviewed("a Job to be changed", || api.patch(name, &params, &patch)).await?;
        Ok(serde_json::to_value(patched).unwrap())
    }

    /// Deletes a Job or a JobSet with the tenant's rights.
    pub async fn delete(&self, kind: &str, name: &str, how: &DeleteParams) -> kube::Result<()> {
        let version = if kind == "Job" { "batch/v1" } else { "jobset.x-k8s.io/v1alpha2" };
        let api = api_of(&self.user, &self.place.name, &json!({"apiVersion": version, "kind": kind}));
        reviewed("a job to be deleted", || api.delete(name, how)).await.map(drop)
    }

    /// A Job in the tenant's own queue that runs.
    pub async fn running(&self, name: &str) -> Value {
        self.make(&job(name, OWN, 1, 1, 36_000)).await.unwrap();
        self.place.wait_until(name, true).await.unwrap();
        serde_json::to_value(self.place.jobs().get(name).await.unwrap()).unwrap()
    }

    /// A queue of two processors whose check, called so, no controller answers.
    pub async fn queue_with_a_check(&self, check: &str) {
        let place = &self.place;
        let checks = place.global("AdmissionCheck", "admissionchecks");
        let spec = json!({"controllerName": "example.com/no-controller"});
        create(&checks, json!({"metadata": {"name": check}, "spec": spec})).await.unwrap();
        let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = Patch::Merge(json!({"status": {"conditions": [active]}}));
        checks.patch_status(check, &PatchParams::default(), &status).await.unwrap();
        let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
        let queue = format!("{CHECKED}-{check}");
        place.cluster_queue(&queue, 2, &strategy).await.unwrap();
        place.local_queue(CHECKED, &queue).await.unwrap();
    }

    /// A Job in the shared queue that waits.
    pub async fn waiting(&self, name: &str) -> Value {
        self.make(&attack(name, SHARED)).await.unwrap();
        self.place.wait_for_condition(name, "QuotaReserved", "False").await.unwrap();
        serde_json::to_value(self.place.jobs().get(name).await.unwrap()).unwrap()
    }

    /// What runs here that has no admitted Workload of its own. All is of one revision: what is admitted while others are read is no finding.
    async fn unadmitted(&self) -> Result<Unadmitted> {
        self.unadmitted_of(true).await
    }

    /// The jobs of that alone, which are looked at many times a second: the pods are not even listed.
    async fn unadmitted_jobs(&self) -> Result<Vec<String>> {
        Ok(self.unadmitted_of(false).await?.jobs)
    }

    async fn unadmitted_of(&self, pods_too: bool) -> Result<Unadmitted> {
        // The API server may know the revision of one kind a moment before it can list another at it.
        eventually("everything of one revision", DEADLINE, || async {
            Ok(Progress::Done(self.unadmitted_now(pods_too).await?))
        })
        .await
    }

    /// The same, or that some kind cannot be read at that revision yet.
    async fn unadmitted_now(&self, pods_too: bool) -> Result<Unadmitted> {
        let (client, namespace) = (&self.place.client, &self.place.name);
        let mut admitted = BTreeSet::new();
        let workloads = self.place.workloads().list(&ListParams::default()).await?;
        let revision = workloads.metadata.resource_version.context("a list has a version")?;
        let then = ListParams::default().at(&revision).matching(VersionMatch::Exact);
        for workload in workloads.items {
            let workload = serde_json::to_value(workload)?;
            if workloads::holds(&workload, "Admitted") && !workloads::holds(&workload, "Finished") {
                let owners = workload["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                let owner = owners.iter().find(|owner| owner["controller"] == true);
                admitted.extend(owner.and_then(|owner| owner["uid"].as_str()).map(str::to_owned));
            }
        }
        let (mut jobs, mut running) = (Vec::new(), Vec::new());
        // The garbage collector deletes a Workload, the Jobs and the pods of a JobSet that is deleted in foreground one after the other.
        let mut leaving = BTreeSet::new();
        // Sets before their Jobs, and Jobs before their pods: what runs by an admission above is admitted, too.
        let kinds = [
            json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}),
            json!({"apiVersion": "batch/v1", "kind": "Job"}),
        ];
        for kind in kinds {
            for job in api_of(client, namespace, &kind).list(&then).await?.items {
                let job = serde_json::to_value(job)?;
                let text = |pointer: &str| {
                    job.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
                };
                let over =
                    ["Complete", "Failed", "Completed"].iter().any(|kind| workloads::holds(&job, kind));
                let parent = text("/metadata/ownerReferences/0/uid");
                let mut finalizers = job["metadata"]["finalizers"].as_array().into_iter().flatten();
                let in_foreground = job["metadata"]["deletionTimestamp"].is_string()
                    && finalizers.any(|finalizer| finalizer == "foregroundDeletion");
                if in_foreground || leaving.contains(&parent) {
                    leaving.insert(text("/metadata/uid"));
                    continue;
                }
                // A made-up owner is not in this set: only what an admission lets run is.
                let real = text("/metadata/ownerReferences/0/name");
                // Each of a JobSet has one pod.
                let child = !real.is_empty()
                    && text("/metadata/name").starts_with(&real)
                    && admitted.contains(&parent)
                    && job["spec"]["parallelism"].as_i64().unwrap_or(1) <= 1;
                let queued = job["metadata"]["labels"][QUEUE_NAME].is_string();
                if child && !queued {
                    admitted.insert(text("/metadata/uid"));
                }
                if job["spec"]["suspend"] != true && !over && !admitted.contains(&text("/metadata/uid")) {
                    jobs.push(format!("{} {}", text("/kind"), text("/metadata/name")));
                }
            }
        }
        if !pods_too {
            return Ok(Unadmitted { jobs, pods: running });
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        for pod in pods.list(&then).await?.items {
            let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
            let owners = pod.metadata.owner_references.unwrap_or_default();
            let owner = owners.first().map(|owner| owner.uid.clone()).unwrap_or_default();
            let over = phase == "Succeeded" || phase == "Failed" || pod.metadata.deletion_timestamp.is_some();
            if !over && !admitted.contains(&owner) {
                running.push(format!("pod {}", pod.metadata.name.unwrap_or_default()));
            }
        }
        Ok(Unadmitted { jobs, pods: running })
    }

    /// Nothing runs here that is not admitted, now or a moment later; quota holds, and the victim's job continues.
    ///
    /// The Job controller may make pods a moment after their Job was suspended, as it sees that late. They go as soon as it does: a pod is
    /// looked for at the beginning and at the end, and a Job that is not suspended all the time between.
    pub async fn gained_nothing(&self) {
        self.is_stopped().await;
        consistently("no job to run unadmitted", WATCHED, || async {
            let jobs = self.unadmitted_jobs().await?;
            Ok(progress(jobs.is_empty(), format!("{jobs:?}")))
        })
        .await
        .unwrap();
        self.is_stopped().await;
        let bed = bed().await;
        for queue in ["victim", &self.place.name] {
            let status = self.status(queue).await;
            let total = status["flavorsReservation"][0]["resources"][0]["total"].clone();
            let total = total.as_str().map_or_else(|| total.to_string(), str::to_owned);
            let milli = total.strip_suffix('m').map(|milli| milli.parse::<u64>().unwrap());
            let milli = milli.unwrap_or_else(|| total.parse::<u64>().unwrap() * 1_000);
            assert!(milli <= 2_000, "{queue}: {status}");
        }
        self.has_pods_within_quota().await;
        let workload = workloads::of_job(&self.place.client, "victim", "precious").await.unwrap().unwrap();
        assert_eq!(workload["metadata"]["uid"].as_str(), Some(bed.victim.as_str()));
        assert!(workloads::holds(&workload, "Admitted") && !workloads::holds(&workload, "Evicted"));
        let (status, text) = bed.manager.health("/debug/audit?pause=true").await.unwrap();
        assert_eq!((status, text.as_str()), (200, "no differences\n"));
    }

    /// The pods that are here ask for no more than the tenant's queues have, two processors each, and the queue that is shared has nothing left.
    async fn has_pods_within_quota(&self) {
        eventually("pods of no more than the queues have", DEADLINE, || async {
            let queues = self.place.local_queues().list(&ListParams::default()).await?;
            let own = queues.iter().filter(|queue| queue.data["spec"]["clusterQueue"] != "victim").count();
            let (milli, names) = self.place.live_cpu().await?;
            Ok(progress(milli <= u64::try_from(own)? * 2_000, format!("{milli}m of {own} queues: {names:?}")))
        })
        .await
        .unwrap();
    }

    /// The status of a ClusterQueue. It comes after what jobs wait for, so a busy API server shows none of a new one for a while.
    async fn status(&self, queue: &str) -> Value {
        eventually(&format!("a status of {queue}"), DEADLINE, || async {
            let status = self.place.cluster_queues().get(queue).await?.data["status"].clone();
            Ok(if status.is_null() { Progress::NotYet("none".to_owned()) } else { Progress::Done(status) })
        })
        .await
        .unwrap()
    }

    /// What is unsuspended without an admission is suspended within [`UNSTOPPED`]; its pods go when their controller has seen that.
    async fn is_stopped(&self) {
        let first_seen = Mutex::new(BTreeMap::<String, Instant>::new());
        eventually("everything unadmitted to be stopped", DEADLINE, || async {
            let asked = Instant::now();
            let Unadmitted { jobs, pods } = self.unadmitted().await?;
            let mut first_seen = first_seen.lock().unwrap();
            first_seen.retain(|job, _| jobs.contains(job));
            for job in &jobs {
                let since = *first_seen.entry(job.clone()).or_insert_with(Instant::now);
                if asked.saturating_duration_since(since) > UNSTOPPED {
                    return Ok(Progress::Never(format!("{job} is not suspended for {UNSTOPPED:?}")));
                }
            }
            Ok(progress(jobs.is_empty() && pods.is_empty(), format!("{jobs:?} {pods:?}")))
        })
        .await
        .unwrap();
    }

    /// Others' jobs continue being admitted.
    pub async fn others_go_on(&self) {
        self.running("after").await;
    }
}

/// Whether the API server, a webhook or RBAC refuses a request.
pub fn refused<T: std::fmt::Debug>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => false,
        Err(kube::Error::Api(status)) if [400, 403, 422].contains(&status.code) => true,
        Err(other) => unreachable!("it fails in another way: {other}"),
    }
}
