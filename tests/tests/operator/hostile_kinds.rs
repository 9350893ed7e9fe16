//! A tenant tries to bypass the queue with each kind of job, run by its real controller: waiting jobs never run, and running jobs never use more than
//! their queue has, for any writes in any order. (`faults`, `hostile`, does the same with more means for Jobs and JobSets.)

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use futures::future::join_all;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{
    Complete, ControlPlane, Disruption, FaultProxy, Harm, Limits, Manager, Setup, chart, controllers, crds,
    needs, nodes, workloads,
};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create};

use crate::{appwrapper, flavors, kubeflow, leader_worker_sets, pods, ray, serving, serving_sets, trainjob};

/// For how long something is looked at that must not happen: several rounds of every controller.
const WATCHED: Duration = Duration::from_secs(2);
/// A queue without quota.
const FULL: &str = "full";
/// The processors of the tenant's other queue, of which `runs` needs all, or all but one.
const QUOTA: u32 = 4;

/// A kind and what its users can write.
struct Attack {
    place: Place<'static>,
    kind: JobKind,
    /// An object of this name, in the queue `lq`, that needs at most [`QUOTA`] processors.
    made: Box<dyn Fn(&str) -> Value>,
    /// Merge patches that ask for more pods or larger ones.
    grow: Vec<Value>,
}

impl Attack {
    async fn new(place: Place<'static>, kind: JobKind, made: impl Fn(&str) -> Value + 'static) -> Self {
        let name = format!("{}-{FULL}", place.name);
        let spec = json!({"namespaceSelector": {}, "resourceGroups": flavors::groups(&place.name, [0, 0])});
        create(&place.cluster_queues(), json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
        place.local_queue(FULL, &name).await.unwrap();
        Self { place, kind, made: Box::new(made), grow: Vec::new() }
    }

    fn grown_by(mut self, grow: impl IntoIterator<Item = Value>) -> Self {
        self.grow.extend(grow);
        self
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = self.kind;
        let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), kind.kind());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        Api::namespaced_with(self.place.client.clone(), &self.place.name, &resource)
    }

    /// Makes an object; a webhook may refuse it.
    async fn make(&self, object: Value) -> kube::Result<DynamicObject> {
        self.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
    }

    /// The same, again and again while the manager does not answer.
    async fn must_make(&self, object: Value) {
        let what = format!("{} to be made in {}", object["metadata"]["name"], self.place.name);
        eventually(&what, DEADLINE, || async {
            match self.make(object.clone()).await {
                Ok(_) => Ok(Progress::Done(())),
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Progress::Done(())),
                Err(kube::Error::Api(status)) if status.code >= 500 => Ok(Progress::NotYet(status.message)),
                Err(error) => Err(error.into()),
            }
        })
        .await
        .unwrap();
    }

    /// An object that would run at once, in a queue.
    fn unsuspended(&self, name: &str, queue: &str) -> Value {
        let mut object = (self.made)(name);
        object["metadata"]["labels"][QUEUE_NAME] = json!(queue);
        json_patch::merge(&mut object, &self.run());
        object
    }

    /// The patch that lets it run; of a kind that no field suspends, nothing.
    fn run(&self) -> Value {
        let path = sluice_jobs::suspend_path(self.kind);
        if path.last() != Some(&"suspend") {
            return json!({});
        }
        path.iter().rev().fold(json!(false), |inner, part| json!({*part: inner}))
    }

    /// Writes as the tenant does, who does not care for refusals.
    async fn write(&self, name: &str, patch: &Value) {
        drop(self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await);
    }

    /// The pods use at most `processors`; a controller may make some a moment after it was stopped, which then go.
    async fn at_most(&self, processors: u32, when: &str) {
        let what = format!("{} to have pods of {processors} processors at most, {when}", self.place.name);
        for _ in 0..2 {
            eventually(&what, DEADLINE, || async {
                let (milli, names) = self.place.live_cpu().await?;
                Ok(progress(milli <= u64::from(processors) * 1_000, format!("{milli}m {names:?}")))
            })
            .await
            .unwrap();
            self.stays_within_quota().await;
        }
    }

    /// The queue's use stays within its quota for a while: at the beginning, at the end, and at each change between them.
    async fn stays_within_quota(&self) {
        let (queues, name) = (self.place.cluster_queues(), self.place.name.as_str());
        let is_within = |queue: &DynamicObject| {
            assert!(used(queue) <= QUOTA, "{name} uses more than its quota: {}", queue.data["status"]);
        };
        is_within(&queues.get(name).await.unwrap());
        let mut changes = pin!(watch_object(queues.clone(), name).default_backoff());
        let watched = async {
            while let Some(change) = changes.next().await {
                // A watch that breaks is begun again, with the queue as it is then.
                if let Ok(Some(queue)) = change {
                    is_within(&queue);
                }
            }
        };
        // The watch never ends by itself.
        let _ = tokio::time::timeout(WATCHED, watched).await;
        is_within(&queues.get(name).await.unwrap());
    }

    /// The processors that the tenant's queue has in use.
    async fn used(&self) -> Result<u32> {
        Ok(used(&self.place.cluster_queues().get(&self.place.name).await?))
    }

    /// What has no quota never runs: as it was made, unsuspended by hand, with a forged owner, with the Workload of another.
    async fn nothing_runs_without_quota(&self) {
        self.must_make(self.unsuspended("waits", FULL)).await;
        let owner = |api_version: &str, kind: &str, uid: &str| json!([{"apiVersion": api_version, "kind": kind, "name": "waits", "uid": uid, "controller": true}]);
        let owners = [
            owner(self.kind.api_version(), self.kind.kind(), "00000000-0000-0000-0000-000000000000"),
            owner("jobset.x-k8s.io/v9", "JobSet", "00000000-0000-0000-0000-000000000001"),
        ];
        for (number, owner) in owners.into_iter().enumerate() {
            let mut forged = self.unsuspended(&format!("forged-{number}"), FULL);
            forged["metadata"]["ownerReferences"] = owner;
            drop(self.make(forged).await);
        }
        for _ in 0..3 {
            self.write("waits", &self.run()).await;
        }
        for patch in &self.grow {
            self.write("waits", patch).await;
            self.write("waits", &self.run()).await;
        }
        self.at_most(0, "as nothing is admitted").await;
    }

    /// What runs takes no more than it was admitted with, or than its queue has.
    async fn nothing_grows_beyond_quota(&self) {
        self.must_make(self.unsuspended("runs", "lq")).await;
        self.runs().await;
        let admitted = eventually("an admitted Workload", DEADLINE, || async {
            let all = workloads::list(&self.place.client, &self.place.name).await?;
            let found = all.into_iter().find(|workload| workloads::holds(workload, "Admitted"));
            Ok(found.map_or_else(|| Progress::NotYet("none".to_owned()), Progress::Done))
        })
        .await
        .unwrap();
        let mut named = self.unsuspended("named", FULL);
        let theirs = admitted["metadata"]["name"].clone();
        named["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = theirs.clone();
        drop(self.make(named).await);
        let prebuilt = json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": theirs}}});
        self.write("waits", &prebuilt).await;
        self.write("waits", &self.run()).await;
        // A job that runs keeps its queue. One that was stopped may leave it, and is not queued from then on.
        let label = |queue: Value| json!({"metadata": {"labels": {QUEUE_NAME: queue}}});
        self.write("runs", &label(Value::Null)).await;
        for patch in &self.grow {
            self.write("runs", patch).await;
        }
        self.at_most(QUOTA, "as it grew").await;
        for patch in [&label(json!(FULL))].into_iter().chain(&self.grow).chain([&self.run()]) {
            self.write("runs", patch).await;
        }
        self.at_most(QUOTA, "as it changed its queue").await;
    }

    async fn runs(&self) {
        eventually(&format!("{}/runs to run", self.place.name), DEADLINE, || async {
            let (milli, names) = self.place.live_cpu().await?;
            Ok(progress(milli > u64::from(QUOTA - 2) * 1_000, format!("{milli}m {names:?}")))
        })
        .await
        .unwrap();
    }

    /// What was deleted leaves no pods, and holds no quota.
    async fn all_goes(&self) {
        let left = self.api().list(&ListParams::default()).await.unwrap();
        for name in left.items.iter().filter_map(|object| object.metadata.name.as_deref()) {
            drop(self.api().delete(name, &DeleteParams::background()).await);
        }
        eventually(&format!("everything in {} to go", self.place.name), DEADLINE, || async {
            let ((milli, names), used) = (self.place.live_cpu().await?, self.used().await?);
            Ok(progress(milli == 0 && used == 0, format!("{used} used, {milli}m {names:?}")))
        })
        .await
        .unwrap();
    }

    async fn gains_nothing(&self) {
        self.nothing_runs_without_quota().await;
        self.nothing_grows_beyond_quota().await;
        self.all_goes().await;
    }
}

/// The processors that the admitted Workloads of a queue hold, rounded up.
fn used(queue: &DynamicObject) -> u32 {
    let flavors = queue.data["status"]["flavorsReservation"].as_array().cloned().unwrap_or_default();
    let of = |flavor: &Value| -> u32 {
        let resources = flavor["resources"].as_array().cloned().unwrap_or_default();
        let cpu = resources.iter().find(|resource| resource["name"] == "cpu").cloned();
        let total = cpu.map(|cpu| cpu["total"].clone()).unwrap_or_default();
        let text = total.as_str().map_or_else(|| total.to_string(), str::to_owned);
        match text.strip_suffix('m') {
            Some(milli) => milli.parse::<u32>().unwrap_or(0).div_ceil(1_000),
            None => text.parse().unwrap_or(0),
        }
    };
    flavors.iter().map(of).sum()
}

fn containers(name: &str, cpu: u32) -> Value {
    json!([{"name": name, "image": "none", "resources": {"requests": {"cpu": cpu.to_string()}}}])
}

/// One of Kubeflow's kinds.
async fn of_kubeflow(name: &'static str, kind: kubeflow::TestKind) {
    attack_by_kubeflow(kubeflow::place(name, [QUOTA, 0]).await, kind).await.gains_nothing().await;
}

async fn attack_by_kubeflow(place: Place<'static>, kind: kubeflow::TestKind) -> Attack {
    let of = kind.kind;
    let (role, _) = *kind.replicas.last().unwrap();
    let (field, container) = (kind.field, kind.container);
    let made = move |name: &str| serde_json::to_value(kind.job(name)).unwrap();
    let spec = |change: Value| json!({"spec": {field: {role: change}}});
    Attack::new(place, of, made).await.grown_by([
        spec(json!({"replicas": 9})),
        spec(json!({"template": {"spec": {"containers": containers(container, 9)}}})),
        spec(json!({"replicas": -1})),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn mpi_jobs_gain_nothing() {
    // The mpi-operator (v0.7.0) does not repeat a pass in which its write of the launcher met a conflict: it is given an event after a while.
    needs!(Tool::KubeflowControllers);
    of_kubeflow("hostile-mpi", kubeflow::MPI).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pytorch_jobs_gain_nothing() {
    needs!(Tool::KubeflowControllers);
    of_kubeflow("hostile-pytorch", kubeflow::PYTORCH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tf_jobs_gain_nothing() {
    needs!(Tool::KubeflowControllers);
    of_kubeflow("hostile-tf", kubeflow::TF).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ray_clusters_gain_nothing() {
    needs!(Tool::KubeRayOperator);
    let place = ray::place("hostile-ray", [QUOTA, 0]).await;
    let kind = JobKind::RAY_CLUSTER;
    let workers = |count: u32, cpu: u32| {
        let mut template = ray::template();
        template["spec"]["containers"] = containers("ray", cpu);
        let group = json!({"groupName": "workers", "replicas": count, "minReplicas": count, "maxReplicas": count, "template": template});
        json!({"spec": {"workerGroupSpecs": [group]}})
    };
    let hosts = json!({"spec": {"workerGroupSpecs": [
        {"groupName": "workers", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "numOfHosts": 4, "template": ray::template()},
    ]}});
    Attack::new(place, kind, move |name| serde_json::to_value(ray::object(kind, name)).unwrap())
        .await
        .grown_by([workers(9, 1), workers(2, 9), hosts])
        .gains_nothing()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn app_wrappers_gain_nothing() {
    needs!(Tool::AppWrapperController);
    let place = appwrapper::place("hostile-wrapper", [QUOTA, 0]).await;
    let larger = |pointer: &'static str, value: Value| {
        let mut spec = appwrapper::wrapper("runs")["spec"].clone();
        *spec.pointer_mut(pointer).unwrap() = value;
        json!({ "spec": spec })
    };
    Attack::new(place, JobKind::APP_WRAPPER, appwrapper::wrapper)
        .await
        .grown_by([
            larger("/components/1/template/spec/parallelism", json!(9)),
            larger("/components/3/template/spec/containers", containers("main", 9)),
            larger("/components/2/template/spec/replicatedJobs/0/replicas", json!(9)),
        ])
        .gains_nothing()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn train_jobs_gain_nothing() {
    needs!(Tool::TrainerControllers);
    let place = trainjob::place("hostile-train", [QUOTA, 0]).await;
    trainjob::make_runtime(&place, "torch").await;
    let large = json!({"spec": {"trainer": {"resourcesPerNode": {"requests": {"cpu": "9"}}}}});
    Attack::new(place, JobKind::TRAIN_JOB, |name| trainjob::trainjob(name, "torch"))
        .await
        .grown_by([json!({"spec": {"trainer": {"numNodes": 9}}}), large])
        .gains_nothing()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_worker_sets_gain_nothing() {
    needs!(Tool::LwsControllers);
    let place = leader_worker_sets::place("hostile-lws", [QUOTA, 0]).await;
    let mut template = leader_worker_sets::template("none");
    template["spec"]["containers"] = containers("main", 9);
    Attack::new(place, JobKind::LEADER_WORKER_SET, |name| leader_worker_sets::set(name, 2))
        .await
        .grown_by([
            json!({"spec": {"replicas": 9}}),
            json!({"spec": {"leaderWorkerTemplate": {"size": 9}}}),
            json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": template}}}),
        ])
        .gains_nothing()
        .await;
}

async fn attack_by_deployment(place: Place<'static>) -> Attack {
    let template = json!({"spec": {"containers": containers("main", 9)}});
    Attack::new(place, JobKind::DEPLOYMENT, |name| serving::deployment(name, "lq", 4))
        .await
        .grown_by([json!({"spec": {"replicas": 9}}), json!({"spec": {"template": template}})])
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_gain_nothing() {
    let place = flavors::two_flavors("hostile-deployment", [QUOTA, 0]).await;
    attack_by_deployment(place).await.gains_nothing().await;
}

async fn attack_by_set(place: Place<'static>) -> Attack {
    let template = json!({"spec": {"containers": containers("main", 9)}});
    Attack::new(place, JobKind::STATEFUL_SET, |name| serving_sets::set(name, 4))
        .await
        .grown_by([json!({"spec": {"replicas": 9}}), json!({"spec": {"template": template}})])
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_sets_gain_nothing() {
    let place = flavors::two_flavors("hostile-set", [QUOTA, 0]).await;
    attack_by_set(place).await.gains_nothing().await;
}

/// Its user may take the gates of a pod off, and the marks by which it is known; then it is deleted, or stays where it is.
async fn attack_by_pod(place: Place<'static>) -> Attack {
    let one = |name: &str| {
        let mut pod = pods::pod(name, 3_600);
        pod["spec"]["containers"] = containers("main", QUOTA);
        pod
    };
    let metadata = |change: Value| json!({ "metadata": change });
    Attack::new(place, JobKind::POD, one)
        .await
        .grown_by([
            json!({"spec": {"schedulingGates": []}}),
            metadata(json!({"labels": {"kueue.x-k8s.io/managed": null}})),
            metadata(json!({"labels": {"kueue.x-k8s.io/pod-group-name": "others"}, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "1"}})),
            metadata(json!({"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}})),
            json!({"spec": {"schedulingGates": [], "containers": containers("main", 1)}}),
        ])
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_gain_nothing() {
    let place = flavors::two_flavors("hostile-pod", [QUOTA, 0]).await;
    attack_by_pod(place).await.gains_nothing().await;
}

/// How long each fault lasts.
const PERIOD: Duration = Duration::from_secs(1);
/// How often all of them happen.
const ROUNDS: usize = 4;

/// A few times, or until the attacks are over: the API server conflicts, fails, is slow and breaks off for the manager, which is killed then.
async fn troubles(
    plane: &ControlPlane,
    proxy: &FaultProxy,
    mut manager: Manager,
    over: &AtomicBool,
) -> Manager {
    let harms =
        [(Harm::Refuse(409), 2), (Harm::Refuse(500), 3), (Harm::Slow(PERIOD / 4), 1), (Harm::LoseAnswer, 3)];
    for _ in 0..ROUNDS {
        if over.load(Ordering::Relaxed) {
            break;
        }
        for (harm, one_in) in harms {
            proxy.disrupt(Disruption { harm, one_in, period: PERIOD });
            tokio::time::sleep(PERIOD).await;
        }
        proxy.heal();
        manager = manager.restart(plane).await.unwrap();
    }
    manager
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_gained_while_the_leader_is_killed_and_the_api_server_fails() {
    needs!(Tool::KubeflowControllers);
    // Its own: the manager is killed. It lives as long as the test process; the watchdog stops it with that.
    let plane: &'static Complete = Box::leak(Box::new(Complete::start().await.unwrap()));
    let plane: &'static ControlPlane = plane;
    let client = plane.client().await.unwrap();
    nodes::pool("plain", 4).make(&client).await.unwrap();
    controllers::install_crds(&client, Tool::KubeflowControllers).await.unwrap();
    let kinds = [JobKind::POD, JobKind::DEPLOYMENT, JobKind::STATEFUL_SET, JobKind::PYTORCH_JOB];
    let frameworks = json!({"integrations": {"frameworks": kinds.map(JobKind::framework)}});
    let setup = Setup::new(plane).unwrap().alone().with(&frameworks).limited(Limits::CHART);
    let setup = chart::install(plane, setup, &json!({})).await.unwrap();
    let proxy = FaultProxy::start(plane).await.unwrap();
    let account = (chart::NAMESPACE, chart::SERVICE_ACCOUNT);
    let kubeconfig = plane.kubeconfig_through(&proxy.url(), account.0, account.1).await.unwrap();
    let manager = Manager::start(plane, setup.acting_as(kubeconfig)).await.unwrap();
    manager.must_be_limited();
    crds::wait_until_converting(&client).await.unwrap();
    let _kubeflow = sluice_testkit::kubeflow::start(plane).await.unwrap();
    let queues = |name: &'static str| flavors::two_flavors_on(plane, name, [QUOTA, 0]);
    let attacks = [
        attack_by_pod(queues("faulty-pod").await).await,
        attack_by_deployment(queues("faulty-deployment").await).await,
        attack_by_set(queues("faulty-set").await).await,
        attack_by_kubeflow(queues("faulty-pytorch").await, kubeflow::PYTORCH).await,
    ];
    let over = AtomicBool::new(false);
    let attacked = async {
        join_all(attacks.iter().map(Attack::gains_nothing)).await;
        over.store(true, Ordering::Relaxed);
    };
    let (_manager, ()) = tokio::join!(troubles(plane, &proxy, manager, &over), attacked);
    assert!(proxy.harmed() > 0, "no request was harmed");
}
