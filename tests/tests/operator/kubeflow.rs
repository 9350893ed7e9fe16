//! Kubeflow's jobs, run by the real controllers: queued, admitted, moved to another flavor, ended and deleted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::controllers::{self, Controllers};
use sluice_testkit::kubeflow;
use sluice_testkit::needs;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, reported};
use tokio::sync::OnceCell;

use crate::bed::bed;
use crate::flavors::{POOL, flavors, set_quota, two_flavors};
use crate::marks::{expected, of_pod, while_marking};

/// The label with the job's name that both controllers give to pods.
const JOB_NAME: &str = "training.kubeflow.org/job-name";

static CONTROLLERS: OnceCell<Controllers> = OnceCell::const_new();

/// A kind with the name that its controller wants for a container, and its replica types with their numbers of pods.
pub struct TestKind {
    pub kind: JobKind,
    pub field: &'static str,
    pub container: &'static str,
    pub replicas: &'static [(&'static str, u32)],
}

const JAX: TestKind = TestKind {
    kind: JobKind::JAX_JOB,
    field: "jaxReplicaSpecs",
    container: "jax",
    replicas: &[("Worker", 2)],
};
pub const MPI: TestKind = TestKind {
    kind: JobKind::MPI_JOB,
    field: "mpiReplicaSpecs",
    container: "mpi",
    replicas: &[("Launcher", 1), ("Worker", 2)],
};
const PADDLE: TestKind = TestKind {
    kind: JobKind::PADDLE_JOB,
    field: "paddleReplicaSpecs",
    container: "paddle",
    replicas: &[("Master", 1), ("Worker", 1)],
};
pub const PYTORCH: TestKind = TestKind {
    kind: JobKind::PYTORCH_JOB,
    field: "pytorchReplicaSpecs",
    container: "pytorch",
    replicas: &[("Master", 1), ("Worker", 2)],
};
pub const TF: TestKind = TestKind {
    kind: JobKind::TF_JOB,
    field: "tfReplicaSpecs",
    container: "tensorflow",
    replicas: &[("Chief", 1), ("PS", 1), ("Worker", 1)],
};
const XGBOOST: TestKind = TestKind {
    kind: JobKind::XGBOOST_JOB,
    field: "xgbReplicaSpecs",
    container: "xgboost",
    replicas: &[("Master", 1), ("Worker", 1)],
};

impl TestKind {
    /// A job whose pods ask for one processor each and run until they receive SIGTERM.
    pub fn job(&self, name: &str) -> DynamicObject {
        let of = |(role, pods): &(&str, u32)| {
            let container =
                json!({"name": self.container, "image": "none", "resources": {"requests": {"cpu": "1"}}});
            let template = json!({
                "metadata": {"annotations": {"sluice.dev/run-seconds": "600"}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            });
            ((*role).to_owned(), json!({"replicas": pods, "restartPolicy": "Never", "template": template}))
        };
        let specs: serde_json::Map<_, _> = self.replicas.iter().map(of).collect();
        let object = json!({
            "apiVersion": self.kind.api_version(), "kind": self.kind.kind(),
            "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
            "spec": {self.field: specs},
        });
        serde_json::from_value(object).unwrap()
    }

    fn pods(&self) -> usize {
        self.replicas.iter().map(|(_, pods)| *pods as usize).sum()
    }
}

/// A namespace with two flavors of one node pool each, and the jobs of a kind in it.
struct Bench<'a> {
    place: &'a Place<'a>,
    kind: TestKind,
}

pub async fn place(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    CONTROLLERS.get_or_try_init(|| async { kubeflow::start(bed().await.plane).await }).await.unwrap();
    two_flavors(name, quota).await
}

impl Bench<'_> {
    fn api(&self) -> Api<DynamicObject> {
        let (kind, client) = (self.kind.kind, self.place.client.clone());
        let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), kind.kind());
        Api::namespaced_with(
            client,
            &self.place.name,
            &ApiResource::from_gvk_with_plural(&gvk, kind.plural()),
        )
    }

    async fn make(&self, name: &str) {
        self.api().create(&PostParams::default(), &self.kind.job(name)).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        self.api().delete(name, &DeleteParams::background()).await.unwrap();
    }

    async fn pods(&self, name: &str) -> Vec<Value> {
        self.place.pods_with(&format!("{JOB_NAME}={name}")).await.unwrap()
    }

    /// Waits until all pods of a job run, and there is none of it but on the nodes of this flavor; nothing that its controller made
    /// names another.
    async fn wait_until_it_runs_on(&self, name: &str, flavor: &str) {
        let place = self.place;
        eventually(&format!("{}/{name} to run on {flavor}", place.name), DEADLINE, || async {
            let pods = self.pods(name).await;
            let right = |pod: &&Value| {
                pod["status"]["phase"] == "Running" && pod["spec"]["nodeSelector"][POOL] == *flavor
            };
            let of = |pod: &Value| {
                let pool = &pod["spec"]["nodeSelector"][POOL];
                format!("{} {} {pool}", pod["metadata"]["name"], pod["status"]["phase"])
            };
            let all = pods.iter().filter(right).count() == self.kind.pods() && pods.len() == self.kind.pods();
            let status = self.api().get(name).await?.data["status"]["conditions"].to_string();
            let runs =
                sluice_jobs::observe(self.kind.kind, &serde_json::to_value(self.api().get(name).await?)?);
            let running = runs.active && runs.pods_ready;
            Ok(progress(all && running, format!("{:?} {status}", pods.iter().map(of).collect::<Vec<_>>())))
        })
        .await
        .unwrap();
        let job = serde_json::to_value(self.api().get(name).await.unwrap()).unwrap();
        assert_eq!(job["spec"]["runPolicy"]["suspend"], false);
        let marked = expected(place, Some(flavor)).await;
        for group in sluice_jobs::pod_groups(self.kind.kind, &job) {
            assert_eq!(of_pod(&group.template), marked, "{}", group.path());
        }
        for part in place.jobs().list(&ListParams::default()).await.unwrap() {
            let owners = part.metadata.owner_references.unwrap_or_default();
            if owners.iter().any(|owner| owner.name == name) {
                assert_eq!(of_pod(part.spec.unwrap().template), marked, "the template of its part");
            }
        }
        for pod in self.pods(name).await {
            assert_eq!(of_pod(&pod), marked, "{}", pod["metadata"]["name"]);
        }
    }

    /// Waits until a job is suspended and has no pods.
    async fn wait_until_it_waits(&self, name: &str) {
        eventually(&format!("{}/{name} to wait", self.place.name), DEADLINE, || async {
            let job = self.api().get(name).await?;
            let suspended = job.data["spec"]["runPolicy"]["suspend"] == true;
            let pods = self.pods(name).await.len();
            let reported = format!("{pods} pods, {}", job.data["status"]);
            let seen = job.data["status"]["conditions"].to_string().contains("Suspended");
            Ok(progress(suspended && pods == 0 && seen, reported))
        })
        .await
        .unwrap();
    }

    /// Ends a pod well.
    async fn end_pod(&self, pod: &Value) {
        let container = json!({"name": self.kind.container, "image": "none", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": 0}}});
        let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [container]}});
        let name = pod["metadata"]["name"].as_str().unwrap();
        let params = PatchParams::default();
        self.place.pods().patch_status(name, &params, &Patch::Merge(status)).await.unwrap();
    }

    /// Ends all pods of a job well.
    async fn end(&self, name: &str) {
        for pod in self.pods(name).await {
            self.end_pod(&pod).await;
        }
        self.place.wait_for_condition(name, "Finished", "True/Succeeded").await.unwrap();
    }
}

/// The group of JAXJobs that only a declaration describes. Their controller is that of Kubeflow's JAXJobs.
const OTHER_GROUP: &str = "other.sluice.dev";

/// The CRD of these: that of Kubeflow's JAXJobs, in the other group.
pub async fn crd_of_other_group() -> CustomResourceDefinition {
    let crds = controllers::crds(Tool::KubeflowControllers).await.unwrap();
    let mut crd = crds.into_iter().find(|crd| crd.spec.names.kind == "JAXJob").unwrap();
    OTHER_GROUP.clone_into(&mut crd.spec.group);
    crd.metadata.name = Some(format!("{}.{OTHER_GROUP}", crd.spec.names.plural));
    crd
}

/// Their declaration.
pub fn declaration_of_other_group() -> Value {
    let is = |condition: &str| {
        format!("self.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')")
    };
    json!({
        "group": OTHER_GROUP, "version": "v1", "kind": "JAXJob",
        "suspend": {"path": "spec.runPolicy.suspend"},
        "podSets": [{
            "name": "worker",
            "template": "spec.jaxReplicaSpecs.Worker.template",
            "countPath": "spec.jaxReplicaSpecs.Worker.replicas",
        }],
        "active": "self.status.replicaStatuses.Worker.active > 0",
        "ready": is("Running"),
        "finished": format!("{} || {}", is("Succeeded"), is("Failed")),
        "success": is("Succeeded"),
    })
}

/// Everything that can become of a job whose controller is a real one.
async fn whole_life(name: &'static str, kind: TestKind) {
    let place = place(name, [0, 0]).await;
    while_marking(&place, live(&place, name, kind)).await;
}

async fn live(place: &Place<'_>, name: &'static str, kind: TestKind) {
    let most = u32::try_from(kind.pods()).unwrap();
    let [old, new] = flavors(name);
    let bench = Bench { place, kind };

    bench.make("first").await;
    bench.wait_until_it_waits("first").await;
    let admitted = reported(&place.workload("first").await.unwrap(), "Admitted");
    assert!(!admitted.starts_with("True"), "{admitted}");
    set_quota(place, [most, 0]).await;
    bench.wait_until_it_runs_on("first", &old).await;

    // One that waits is deleted.
    bench.make("second").await;
    bench.wait_until_it_waits("second").await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    bench.delete("second").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor.
    place.make_urgent(name, most).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    bench.wait_until_it_waits("first").await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(place, [most, most]).await;
    bench.wait_until_it_runs_on("first", &new).await;
    bench.end("first").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // One that runs is deleted.
    bench.make("third").await;
    bench.wait_until_it_runs_on("third", &new).await;
    bench.delete("third").await;
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test]
async fn a_pytorchjob_lives_through_everything_that_can_become_of_it() {
    needs!(Tool::KubeflowControllers);
    whole_life("pytorch", PYTORCH).await;
}

#[tokio::test]
async fn an_mpijob_lives_through_everything_and_its_launcher_goes_where_its_workers_go() {
    needs!(Tool::KubeflowControllers);
    whole_life("mpi", MPI).await;
}

/// The operator leaves them as they are, unless the job says otherwise, and does not count them.
#[tokio::test]
async fn workers_that_an_ended_mpijob_leaves_use_its_quota_until_they_are_gone() {
    needs!(Tool::KubeflowControllers);
    let place = place("mpi-left", [3, 0]).await;
    let bench = Bench { place: &place, kind: MPI };
    let [old, _] = flavors("mpi-left");
    bench.make("first").await;
    bench.wait_until_it_runs_on("first", &old).await;
    let is_launcher = |pod: &Value| pod["metadata"]["labels"]["training.kubeflow.org/job-role"] == "launcher";
    for pod in bench.pods("first").await.iter().filter(|pod| is_launcher(pod)) {
        bench.end_pod(pod).await;
    }
    place.wait_for_condition("first", "Finished", "True/Succeeded").await.unwrap();
    let left = bench.pods("first").await;
    assert!(left.iter().all(|pod| pod["status"]["phase"] == "Succeeded"), "{left:?}");
    assert!(left.iter().any(is_launcher), "what ended stays");
    place.wait_for_event("MPIJob/first", "StopEnforced", "2 still ran").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn jaxjobs_paddlejobs_tfjobs_and_xgboostjobs_live_through_everything_that_can_become_of_them() {
    needs!(Tool::KubeflowControllers);
    let kinds = [("jax", JAX), ("paddle", PADDLE), ("tf", TF), ("xgboost", XGBOOST)];
    join_all(kinds.map(|(name, kind)| Box::pin(whole_life(name, kind)))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declared_kind_lives_through_everything_that_can_become_of_it_with_a_real_controller() {
    const NAME: &str = "jax-declared";
    needs!(Tool::KubeflowControllers);
    let plane = bed().await.plane;
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"declared": [declaration_of_other_group()]},
    });
    sluice_jobs::declare(&Configuration::parse(&configuration.to_string()).unwrap().0).unwrap();
    let kind = JobKind::named(&format!("{OTHER_GROUP}/jaxjob")).unwrap();
    let arguments = ["--group", OTHER_GROUP];
    let _controller = Controllers::start(plane, Tool::KubeflowControllers, &arguments).await.unwrap();
    let team = two_flavors(NAME, [0, 0]).await;
    while_marking(&team, live(&team, NAME, TestKind { kind, ..JAX })).await;
}
