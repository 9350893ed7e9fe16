//! Ray's kinds, run by the real KubeRay: queued, admitted, moved to another flavor, ended and deleted.
//!
//! No pod of the test answers like Ray's dashboard. Where KubeRay would ask it for the result of a RayJob, the test writes the answer into the
//! RayJob's status, with the state of its cluster; where KubeRay would ask whether the applications of a RayService serve, the test writes the
//! condition `Ready` of the RayService.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::controllers::Controllers;
use sluice_testkit::needs;
use sluice_testkit::ray;
use sluice_testkit::wait::{consistently, eventually, progress};
use sluice_tests::amounts::{self, Amounts, amount};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create, reported};
use tokio::sync::OnceCell;

use crate::bed::bed;
use crate::flavors::{flavors, of_flavor, of_nodes, set_quota, two_flavors};
use crate::marks::{expected, of_pod, while_marking};

/// The label of all pods of all clusters.
const OF_RAY: &str = "ray.io/is-ray-node=yes";
/// Pods of a cluster: a head and two workers.
const PODS: usize = 3;
/// Processors that a job of any kind needs at most: one for each pod, and half of one for what submits.
pub const NEEDS: u32 = 4;

static OPERATOR: OnceCell<Controllers> = OnceCell::const_new();

/// A template whose pods ask for one processor and run until they are deleted.
pub fn template() -> Value {
    json!({
        "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "ray", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

pub fn object(kind: JobKind, name: &str) -> DynamicObject {
    let workers = json!({"groupName": "workers", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "template": template()});
    let cluster = json!({
        "headGroupSpec": {"rayStartParams": {}, "template": template()},
        "workerGroupSpecs": [workers],
    });
    let mut spec = cluster.clone();
    if kind == JobKind::RAY_JOB {
        spec = json!({"entrypoint": "true", "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster});
    } else if kind == JobKind::RAY_SERVICE {
        spec = json!({"serveConfigV2": "", "rayClusterConfig": cluster});
    }
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(),
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}}, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// A namespace with two flavors of one node pool each, and the jobs of a kind in it.
pub struct Bench<'a> {
    pub place: &'a Place<'a>,
    pub kind: JobKind,
}

pub async fn place(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    OPERATOR.get_or_try_init(|| async { ray::start(bed().await.plane).await }).await.unwrap();
    two_flavors(name, quota).await
}

impl Bench<'_> {
    pub fn api_of(&self, kind: JobKind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), kind.kind());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        Api::namespaced_with(self.place.client.clone(), &self.place.name, &resource)
    }

    pub fn api(&self) -> Api<DynamicObject> {
        self.api_of(self.kind)
    }

    pub async fn make(&self, name: &str) {
        self.api().create(&PostParams::default(), &object(self.kind, name)).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.api().delete(name, &DeleteParams::background()).await.unwrap();
    }

    pub async fn get(&self, name: &str) -> Value {
        serde_json::to_value(self.api().get(name).await.unwrap()).unwrap()
    }

    /// The pods of a job's clusters.
    pub async fn pods(&self, name: &str) -> Vec<Value> {
        let pods: Api<Pod> = Api::namespaced(self.place.client.clone(), &self.place.name);
        let all = pods.list(&ListParams::default().labels(OF_RAY)).await.unwrap();
        let all = all.iter().map(|pod| serde_json::to_value(pod).unwrap());
        let own = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().starts_with(&format!("{name}-"));
        all.filter(own).collect()
    }

    /// Waits until all pods of a job run, and there is none of it but on the nodes of this flavor; nothing that KubeRay made names another.
    pub async fn wait_until_it_runs_on(&self, name: &str, flavor: &str) {
        let place = self.place;
        let marked = expected(place, Some(flavor)).await;
        eventually(&format!("{}/{name} to run on {flavor}", place.name), DEADLINE, || async {
            let pods = self.pods(name).await;
            let right = |pod: &&Value| pod["status"]["phase"] == "Running" && of_pod(pod) == marked;
            let of = |pod: &Value| {
                format!("{} {} {}", pod["metadata"]["name"], pod["status"]["phase"], of_pod(pod))
            };
            let all = pods.iter().filter(right).count() == PODS && pods.len() == PODS;
            let job = self.get(name).await;
            // A RayService is ready once its dashboard says so.
            let ready = sluice_jobs::observe(self.kind, &job).active || self.kind == JobKind::RAY_SERVICE;
            let submitted = self.kind != JobKind::RAY_JOB || !self.submitters().await.is_empty();
            let reported = format!("{:?} {}", pods.iter().map(of).collect::<Vec<_>>(), job["status"]);
            Ok(progress(all && ready && submitted, reported))
        })
        .await
        .unwrap();
        let job = self.get(name).await;
        assert!(!sluice_jobs::is_suspended(self.kind, &job));
        for group in sluice_jobs::pod_groups(self.kind, &job) {
            assert_eq!(of_pod(&group.template), marked, "{}", group.path());
        }
        for template in self.submitters().await {
            assert_eq!(template, marked, "what submits");
        }
        // What waits of a RayService before its start is removed after it.
        eventually(&format!("the clusters of {}/{name}", place.name), DEADLINE, || async {
            let clusters = self.api_of(JobKind::RAY_CLUSTER).list(&ListParams::default()).await?;
            let own = clusters.iter().filter(|one| one.metadata.name.as_deref().unwrap().starts_with(name));
            // A head and a group of workers each.
            let templates = |one: &DynamicObject| {
                let cluster = json!(one);
                let groups = sluice_jobs::pod_groups(JobKind::RAY_CLUSTER, &cluster);
                groups.iter().map(|group| of_pod(&group.template)).collect::<Vec<_>>()
            };
            let reported: Vec<_> = own.flat_map(templates).collect();
            Ok(progress(reported == [marked.clone(), marked.clone()], format!("{reported:?}")))
        })
        .await
        .unwrap();
    }

    /// What the pods of a job request in each of its groups, init containers and all, is what its Workload holds.
    pub async fn is_counted(&self, name: &str) {
        let workload = self.place.workload(name).await.unwrap();
        let mut requested: BTreeMap<String, Amounts> = BTreeMap::new();
        for pod in self.pods(name).await {
            let group = pod["metadata"]["labels"]["ray.io/group"].as_str().unwrap();
            let set = if group == "headgroup" { "head" } else { group };
            let sum = requested.entry(set.to_owned()).or_default();
            for (resource, asked) in amounts::of_pod(&pod["spec"]).unwrap() {
                *sum.entry(resource).or_default() += asked;
            }
        }
        let sets = workload["status"]["admission"]["podSetAssignments"].as_array().unwrap();
        let of_pods = sets.iter().filter(|set| set["name"] != "submitter");
        let held = of_pods.map(|set| {
            let usage = set["resourceUsage"].as_object().unwrap().iter();
            let amounts = usage.map(|(resource, text)| (resource.clone(), amount(text).unwrap())).collect();
            (set["name"].as_str().unwrap().to_owned(), amounts)
        });
        let held: BTreeMap<_, Amounts> = held.collect();
        // What no template names is not counted, also where KubeRay's init container requests it.
        for (set, amounts) in &mut requested {
            amounts.retain(|resource, _| held.get(set).is_some_and(|held| held.contains_key(resource)));
        }
        assert_eq!(requested, held);
    }

    /// What the templates of the Jobs that hand work to clusters say of nodes.
    async fn submitters(&self) -> Vec<Value> {
        let jobs = self.place.jobs().list(&ListParams::default()).await.unwrap();
        let made = jobs.into_iter().filter(|job| {
            let owners = job.metadata.owner_references.as_deref().unwrap_or_default();
            owners.iter().any(|owner| owner.kind == "RayJob")
        });
        made.map(|job| of_pod(job.spec.unwrap().template)).collect()
    }

    /// Waits until a job is suspended and has no pods.
    pub async fn wait_until_it_waits(&self, name: &str) {
        eventually(&format!("{}/{name} to wait", self.place.name), DEADLINE, || async {
            let job = self.get(name).await;
            let suspended = sluice_jobs::is_suspended(self.kind, &job);
            let pods = self.pods(name).await.len();
            let status = &job["status"];
            let seen = match self.kind.kind() {
                "RayCluster" => status["state"] == "suspended",
                "RayJob" => status["jobDeploymentStatus"] == "Suspended",
                _ => true,
            };
            Ok(progress(suspended && pods == 0 && seen, format!("{pods} pods, {status}")))
        })
        .await
        .unwrap();
    }

    /// Waits until its Workload says that its pods are ready. Where that depends on the dashboard, the test answers in its place.
    pub async fn wait_until_ready(&self, name: &str) {
        eventually(&format!("{}/{name} to be ready", self.place.name), DEADLINE, || async {
            self.serves(name, true).await;
            let ready = reported(&self.place.workload(name).await?, "PodsReady");
            let status = &self.get(name).await["status"];
            Ok(progress(ready.starts_with("True"), format!("{ready}: {status}")))
        })
        .await
        .unwrap();
    }

    /// Answers in the place of the dashboard whether the applications of a RayService serve. KubeRay writes the state of a RayJob's cluster down only
    /// once that has answered.
    async fn serves(&self, name: &str, ready: bool) {
        let status = match self.kind.kind() {
            "RayService" => {
                let condition = json!({
                    "type": "Ready", "status": if ready { "True" } else { "False" },
                    "reason": if ready { "NonZeroServeEndpoints" } else { "ZeroServeEndpoints" },
                    "message": "answered by the test", "lastTransitionTime": Timestamp::now().to_string(),
                });
                json!({"conditions": [condition], "numServeEndpoints": u8::from(ready)})
            }
            "RayJob" if ready => json!({"rayClusterStatus": {"state": "ready"}}),
            _ => return,
        };
        let status = Patch::Merge(json!({"status": status}));
        self.api().patch_status(name, &PatchParams::default(), &status).await.unwrap();
    }

    /// Answers for the dashboard that the work of a RayJob is done.
    pub async fn end(&self, name: &str) {
        let status = json!({"status": {
            "jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "message": "done",
            "endTime": Timestamp::now().to_string(),
        }});
        self.api().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        self.place.wait_for_condition(name, "Finished", "True/Succeeded").await.unwrap();
        let clusters = self.api_of(JobKind::RAY_CLUSTER).list(&ListParams::default()).await.unwrap();
        let own = |one: &DynamicObject| one.metadata.name.as_deref().unwrap().starts_with(name);
        assert!(!clusters.iter().any(own), "its cluster is gone before its quota is given back");
    }
}

/// Everything that can become of a job.
async fn whole_life(name: &'static str, kind: JobKind) {
    let place = place(name, [0, 0]).await;
    while_marking(&place, live(&place, name, kind)).await;
}

async fn live(place: &Place<'_>, name: &str, kind: JobKind) {
    let [old, new] = flavors(name);
    let bench = Bench { place, kind };

    bench.make("first").await;
    bench.wait_until_it_waits("first").await;
    let admitted = reported(&place.workload("first").await.unwrap(), "Admitted");
    assert!(!admitted.starts_with("True"), "{admitted}");
    set_quota(place, [NEEDS, 0]).await;
    bench.wait_until_it_runs_on("first", &old).await;
    bench.is_counted("first").await;
    bench.wait_until_ready("first").await;
    // Nothing that KubeRay made for it is queued.
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // One that waits is deleted.
    bench.make("second").await;
    bench.wait_until_it_waits("second").await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    bench.delete("second").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor.
    let class = json!({"metadata": {"name": name}, "value": 1_000});
    create(&place.global("WorkloadPriorityClass", "workloadpriorityclasses"), class).await.unwrap();
    let mut urgent = sluice_tests::place::job("urgent", "lq", NEEDS, 1, 3_600);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(name);
    place.make_job(&urgent).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    bench.wait_until_it_waits("first").await;
    bench.serves("first", false).await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(place, [NEEDS, NEEDS]).await;
    bench.wait_until_it_runs_on("first", &new).await;
    if kind.integration().ends {
        bench.end("first").await;
    } else {
        bench.delete("first").await;
    }
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // One that runs is deleted.
    bench.make("third").await;
    bench.wait_until_it_runs_on("third", &new).await;
    bench.delete("third").await;
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test]
async fn a_raycluster_lives_through_everything_that_can_become_of_it() {
    needs!(Tool::KubeRayOperator);
    whole_life("raycluster", JobKind::RAY_CLUSTER).await;
}

#[tokio::test]
async fn a_rayjob_gets_another_cluster_for_another_flavor_and_ends() {
    needs!(Tool::KubeRayOperator);
    whole_life("rayjob", JobKind::RAY_JOB).await;
}

#[tokio::test]
async fn a_rayservice_takes_its_clusters_along() {
    needs!(Tool::KubeRayOperator);
    whole_life("rayservice", JobKind::RAY_SERVICE).await;
}

#[tokio::test]
async fn a_cluster_that_a_user_makes_in_the_name_of_a_rayjob_waits_for_quota_of_its_own() {
    needs!(Tool::KubeRayOperator);
    let place = place("ray-forged", [NEEDS, 0]).await;
    let [old, _] = flavors("ray-forged");
    let bench = Bench { place: &place, kind: JobKind::RAY_JOB };
    bench.make("first").await;
    bench.wait_until_it_runs_on("first", &old).await;
    let owner = bench.get("first").await;
    let mut forged = object(JobKind::RAY_CLUSTER, "first-forged");
    let reference = json!([{
        "apiVersion": "ray.io/v1", "kind": "RayJob", "name": "first", "uid": owner["metadata"]["uid"], "controller": true,
    }]);
    forged.metadata.owner_references = Some(serde_json::from_value(reference).unwrap());
    let clusters = bench.api_of(JobKind::RAY_CLUSTER);
    let made = clusters.create(&PostParams::default(), &forged).await.unwrap();
    assert_eq!(made.data["spec"]["suspend"], true);
    let run = Patch::Merge(json!({"spec": {"suspend": false}}));
    clusters.patch("first-forged", &PatchParams::default(), &run).await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    eventually("the forged cluster to be suspended", DEADLINE, || async {
        let forged = clusters.get("first-forged").await?;
        Ok(progress(forged.data["spec"]["suspend"] == true, forged.data["spec"]["suspend"].to_string()))
    })
    .await
    .unwrap();
    bench.delete("first").await;
    clusters.delete("first-forged", &DeleteParams::background()).await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

/// KubeRay follows a change of a cluster that runs: one that cannot be read any more may ask for any number of pods.
#[tokio::test]
async fn a_cluster_that_is_changed_into_what_cannot_be_queued_is_stopped_and_no_other_is() {
    needs!(Tool::KubeRayOperator);
    let pods = u32::try_from(PODS).unwrap();
    let place = place("ray-broken", [2 * pods, 0]).await;
    let [old, _] = flavors("ray-broken");
    let bench = Bench { place: &place, kind: JobKind::RAY_CLUSTER };
    for name in ["broken", "sound"] {
        bench.make(name).await;
        bench.wait_until_it_runs_on(name, &old).await;
    }
    let uids = async |name: &str| -> Vec<String> {
        bench.pods(name).await.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
    };
    let before = uids("sound").await;

    let bounds = async |number: u32| {
        let of = |field: &str| json!({"op": "replace", "path": format!("/spec/workerGroupSpecs/0/{field}"), "value": number});
        let patch = serde_json::from_value(json!([of("minReplicas"), of("maxReplicas")])).unwrap();
        bench.api().patch("broken", &PatchParams::default(), &Patch::Json::<()>(patch)).await.unwrap();
    };
    bounds(9).await;
    let why = "spec.workerGroupSpecs[0].replicas: 2: KubeRay would make 9";
    place.wait_for_event("RayCluster/broken", "ErrWorkloadCompose", why).await.unwrap();
    bench.wait_until_it_waits("broken").await;
    // As often as its user lets it go.
    let run = Patch::Merge(json!({"spec": {"suspend": false}}));
    bench.api().patch("broken", &PatchParams::default(), &run).await.unwrap();
    bench.wait_until_it_waits("broken").await;
    assert_eq!(uids("sound").await, before, "the pods of the other one are still there");

    bounds(2).await;
    // KubeRay waits 30 s for pods that it made and never saw, as they were deleted at once, and looks again only when something changes.
    eventually("the pods of the mended cluster", DEADLINE, || async {
        let pods = bench.pods("broken").await.len();
        let nudge = Patch::Merge(
            json!({"metadata": {"annotations": {"example.com/at": Timestamp::now().to_string()}}}),
        );
        bench.api().patch("broken", &PatchParams::default(), &nudge).await?;
        Ok(progress(pods == PODS, pods))
    })
    .await
    .unwrap();
    bench.wait_until_it_runs_on("broken", &old).await;
    place.wait_for_counts([0, 2, 2]).await.unwrap();
    assert_eq!(uids("sound").await, before);
    for name in ["broken", "sound"] {
        bench.delete(name).await;
    }
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

/// The Job that removes the data of a fault-tolerant cluster from Redis runs in the place of the cluster. There is no Redis, and no process in its
/// pod: the test says that it ended.
#[tokio::test]
async fn a_rayservice_that_is_deleted_keeps_its_quota_until_its_data_is_removed_from_redis() {
    needs!(Tool::KubeRayOperator);
    let pods = u32::try_from(PODS).unwrap();
    let place = place("ray-redis", [pods, 0]).await;
    let [old, _] = flavors("ray-redis");
    let bench = Bench { place: &place, kind: JobKind::RAY_SERVICE };
    let mut service = object(bench.kind, "serve");
    service.data["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"] =
        json!({"redisAddress": "redis:6379"});
    bench.api().create(&PostParams::default(), &service).await.unwrap();
    bench.wait_until_it_runs_on("serve", &old).await;
    bench.wait_until_ready("serve").await;
    place.job("next", "lq", 1).await.unwrap();
    place.wait_for_counts([1, 1, 1]).await.unwrap();

    bench.delete("serve").await;
    let cleans = ListParams::default().labels("ray.io/node-type=redis-cleanup");
    eventually("the pod of the Job that cleans up", DEADLINE, || async {
        let jobs = place.jobs().list(&cleans).await?;
        let reported: Vec<_> = jobs.iter().map(|job| json!([job.spec, job.status])).collect();
        let left = bench.pods("serve").await;
        let runs = left.len() == 1 && left[0]["status"]["phase"] == "Running";
        let gone = bench.api().get_opt("serve").await?.is_none();
        Ok(progress(runs && gone && jobs.items.len() == 1, format!("{} pods, {reported:?}", left.len())))
    })
    .await
    .unwrap();
    let cleaner = bench.pods("serve").await.remove(0);
    assert_eq!(cleaner["metadata"]["labels"]["ray.io/node-type"], "redis-cleanup");
    assert_eq!(of_nodes(&cleaner["spec"]), of_flavor(Some(&old)));
    let holds = || async {
        let status = place.cluster_queues().get(&place.name).await?.data["status"].clone();
        let counts = ["pendingWorkloads", "admittedWorkloads"].map(|field| status[field].clone());
        let waits = place.suspended("next").await?;
        Ok(progress(waits && counts == [json!(1), json!(1)], format!("{waits} {counts:?}")))
    };
    consistently("the quota of the service to be kept", Duration::from_secs(5), holds).await.unwrap();

    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let name = cleaner["metadata"]["name"].as_str().unwrap();
    place.pods().patch_status(name, &PatchParams::default(), &ended).await.unwrap();
    place.wait_until("next", true).await.unwrap();
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    let clusters = bench.api_of(JobKind::RAY_CLUSTER).list(&ListParams::default()).await.unwrap();
    assert!(clusters.items.is_empty(), "KubeRay lets the cluster go when the Job is complete");
    place.delete_job("next").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}
