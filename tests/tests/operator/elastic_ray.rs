//! Elastic jobs of Ray's kinds, with the real KubeRay. Ray's autoscaler is a container of the head, which does not run in the tests: the test changes
//! the numbers of workers, and says which of them end, as the autoscaler would.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::needs;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, job};

use crate::flavors::{flavor_of, flavors, set_quota};
use crate::pods::{delete, pods, states, wait_until_gone};
use crate::ray::{Bench, place, template};
use crate::serving::wait_for_pods;
use crate::slices::{self, ELASTIC, is_gated, make_urgent, wait_for_usage};

/// The job of these tests, and how the names of its pods begin.
const NAME: &str = "r";
const PODS: &str = "r-";
/// The groups of workers.
const GROUPS: [&str; 2] = ["small", "large"];

/// An elastic job of the kind with Ray's autoscaler and so many workers of each group. The head asks for two processors, any other pod for one.
fn elastic(kind: JobKind, workers: [u32; 2]) -> DynamicObject {
    let group = |(name, replicas): (&str, u32)| json!({"groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 9, "template": template()});
    let groups: Vec<_> = GROUPS.into_iter().zip(workers).map(group).collect();
    let requests =
        json!({"requests": {"cpu": "1", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Mi"}});
    let cluster = json!({
        "enableInTreeAutoscaling": true,
        "autoscalerOptions": {"resources": requests},
        "headGroupSpec": {"rayStartParams": {}, "template": template()},
        "workerGroupSpecs": groups,
    });
    let mut submitter = template();
    submitter["spec"]["restartPolicy"] = json!("Never");
    let spec = match kind.kind() {
        "RayJob" => json!({"entrypoint": "true", "shutdownAfterJobFinishes": true, "rayClusterSpec": cluster,
            "submitterPodTemplate": submitter}),
        "RayService" => json!({"serveConfigV2": "", "rayClusterConfig": cluster}),
        _ => cluster,
    };
    let metadata = json!({"name": NAME, "labels": {QUEUE_NAME: "lq"}, "annotations": {ELASTIC: "true"}});
    let object =
        json!({"apiVersion": kind.api_version(), "kind": kind.kind(), "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// A job, and the cluster whose size changes: its own, or that which KubeRay made for it.
struct Elastic<'a> {
    bench: Bench<'a>,
    place: &'a Place<'a>,
}

impl<'a> Elastic<'a> {
    fn new(place: &'a Place<'a>, kind: JobKind) -> Self {
        Self { bench: Bench { place, kind }, place }
    }

    async fn make(&self, workers: [u32; 2]) {
        self.bench.api().create(&PostParams::default(), &elastic(self.bench.kind, workers)).await.unwrap();
    }

    /// The name of the cluster that runs.
    async fn cluster(&self) -> String {
        if self.bench.kind == JobKind::RAY_CLUSTER {
            return NAME.to_owned();
        }
        let all = self.bench.api_of(JobKind::RAY_CLUSTER).list(&ListParams::default()).await.unwrap();
        let runs = all.items.into_iter().filter(|one| one.data["spec"]["suspend"] != true);
        let names: Vec<_> = runs.map(|one| one.metadata.name.unwrap()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        names.concat()
    }

    async fn patch_cluster(&self, patch: &Patch<Value>) {
        let clusters = self.bench.api_of(JobKind::RAY_CLUSTER);
        clusters.patch(&self.cluster().await, &PatchParams::default(), patch).await.unwrap();
    }

    /// Changes the number of workers of a group, and says which of them go.
    async fn scale(&self, group: usize, replicas: u32, gone: &[String]) {
        let at = format!("/spec/workerGroupSpecs/{group}");
        let operations = json!([
            {"op": "add", "path": format!("{at}/replicas"), "value": replicas},
            {"op": "add", "path": format!("{at}/scaleStrategy"), "value": {"workersToDelete": gone}},
        ]);
        let patch: json_patch::Patch = serde_json::from_value(operations).unwrap();
        self.patch_cluster(&Patch::Json::<Value>(patch)).await;
    }

    /// The names of the workers of a group that stand so.
    async fn workers(&self, group: &str, state: &str) -> Vec<String> {
        let all = states(self.place).await.unwrap();
        let own = all.into_iter().filter(|(name, now)| name.contains(&format!("-{group}-")) && *now == state);
        own.map(|(name, _)| name).collect()
    }

    /// The pods that may be scheduled, by UID, with the flavor whose nodes they are for.
    async fn free(&self) -> BTreeMap<String, String> {
        let all = pods(self.place).list(&ListParams::default()).await.unwrap().items;
        let own = all.into_iter().filter(|pod| pod.metadata.name.as_deref().unwrap().starts_with(PODS));
        let free = own.filter(|pod| !is_gated(pod));
        free.map(|pod| (pod.metadata.uid.unwrap(), flavor_of(pod.spec, &self.place.name))).collect()
    }

    /// Waits until the job has these slices, so many pods run and so many wait, and so many processors are used.
    async fn wait_until(&self, slices: &[&str], [runs, waits]: [usize; 2], cpu: u64) {
        slices::wait_for(self.place, NAME, slices).await;
        wait_for_pods(self.place, PODS, runs, waits).await;
        wait_for_usage(self.place, cpu).await;
    }

    /// Waits until the job is suspended, and has no pods.
    async fn wait_until_stopped(&self) {
        self.bench.wait_until_it_waits(NAME).await;
        wait_for_pods(self.place, PODS, 0, 0).await;
    }
}

/// Whether all of these pods are among those.
fn go_on(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> bool {
    before.iter().all(|pod| after.get_key_value(pod.0) == Some(pod))
}

/// From two pods to six: within the quota, and beyond it. One group has no pods at first.
async fn grows(ray: &Elastic<'_>) {
    let [old, _] = flavors(&ray.place.name);
    ray.make([1, 0]).await;
    slices::wait_for(ray.place, NAME, &["1+1+0 waits"]).await;
    ray.wait_until_stopped().await;
    set_quota(ray.place, [5, 5]).await;
    ray.wait_until(&["1+1+0 runs"], [2, 0], 3).await;
    let two = ray.free().await;
    ray.scale(1, 1, &[]).await;
    ray.wait_until(&["1+1+0 WorkloadSliceReplaced", "1+1+1 runs"], [3, 0], 4).await;
    let three = ray.free().await;
    assert!(go_on(&two, &three) && three.values().all(|flavor| *flavor == old), "{two:?} {three:?}");

    ray.scale(0, 4, &[]).await;
    let waits = ["1+1+0 WorkloadSliceReplaced", "1+1+1 runs", "1+4+1 waits"];
    ray.wait_until(&waits, [3, 3], 4).await;
    ray.place.wait_for_counts([1, 1, 1]).await.unwrap();
    assert_eq!(ray.free().await, three, "those that run go on");
    set_quota(ray.place, [7, 0]).await;
    let runs = ["1+1+0 WorkloadSliceReplaced", "1+1+1 WorkloadSliceReplaced", "1+4+1 runs"];
    ray.wait_until(&runs, [6, 0], 7).await;
    let six = ray.free().await;
    assert!(go_on(&three, &six) && six.values().all(|flavor| *flavor == old), "{three:?} {six:?}");
}

/// From six pods to three: what the others had is given to another Job once they are gone.
async fn shrinks(ray: &Elastic<'_>) {
    let over = ["1+1+0 WorkloadSliceReplaced", "1+1+1 WorkloadSliceReplaced"];
    let of = |last: &'static str| [over[0], over[1], last];
    ray.place.job("other", "lq", 2).await.unwrap();
    ray.place.wait_for_counts([1, 1, 1]).await.unwrap();
    let gone = ray.workers("small", "runs").await;
    ray.scale(0, 2, &gone[..2]).await;
    slices::wait_for(ray.place, NAME, &of("1+2+1 runs")).await;
    wait_for_pods(ray.place, PODS, 4, 0).await;
    // As many processors are used before.
    ray.place.wait_until("other", true).await.unwrap();
    wait_for_usage(ray.place, 7).await;
    ray.place.delete_job("other").await.unwrap();
    wait_for_usage(ray.place, 5).await;
    // With an autoscaler KubeRay ends only the pods that this one names.
    ray.scale(0, 1, &[]).await;
    ray.wait_until(&of("1+2+1 runs"), [4, 0], 5).await;
    ray.scale(0, 1, &gone[2..3]).await;
    ray.wait_until(&of("1+1+1 runs"), [3, 0], 4).await;
}

/// It makes way while it waits for more; it comes back with as many pods as it asks for then, in the other flavor.
async fn makes_way_and_comes_back(ray: &Elastic<'_>) {
    let [_, new] = flavors(&ray.place.name);
    let before = ray.free().await;
    ray.scale(1, 9, &[]).await;
    wait_for_pods(ray.place, PODS, 3, 8).await;
    make_urgent(ray.place, job("urgent", "lq", 6, 1, 3_600)).await;
    ray.place.wait_until("urgent", true).await.unwrap();
    ray.wait_until_stopped().await;
    wait_for_usage(ray.place, 6).await;
    ray.place.wait_for_counts([1, 1, 1]).await.unwrap();
    ray.scale(1, 2, &[]).await;
    set_quota(ray.place, [6, 5]).await;
    wait_for_pods(ray.place, PODS, 4, 0).await;
    wait_for_usage(ray.place, 11).await;
    let four = ray.free().await;
    assert!(four.iter().all(|(pod, flavor)| !before.contains_key(pod) && *flavor == new), "{four:?}");
    ray.place.delete_job("urgent").await.unwrap();
    // It grows where it is now.
    set_quota(ray.place, [0, 6]).await;
    ray.scale(1, 3, &[]).await;
    wait_for_pods(ray.place, PODS, 5, 0).await;
    wait_for_usage(ray.place, 6).await;
    let five = ray.free().await;
    assert!(go_on(&four, &five) && five.values().all(|flavor| *flavor == new), "{five:?}");
}

#[tokio::test]
async fn an_elastic_raycluster_lives_through_everything_that_can_become_of_it() {
    needs!(Tool::KubeRayOperator);
    let place = place("elastic-cluster", [0, 0]).await;
    let ray = Elastic::new(&place, JobKind::RAY_CLUSTER);
    Box::pin(grows(&ray)).await;
    Box::pin(shrinks(&ray)).await;
    Box::pin(makes_way_and_comes_back(&ray)).await;
    // Deleted while some of its pods run and some wait.
    ray.scale(0, 4, &[]).await;
    wait_for_pods(&place, PODS, 5, 3).await;
    ray.bench.delete(NAME).await;
    wait_until_gone(&place).await;
    wait_for_usage(&place, 0).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test]
async fn a_rayjob_has_the_size_of_its_cluster_and_ends() {
    needs!(Tool::KubeRayOperator);
    let place = place("elastic-rayjob", [6, 0]).await;
    let ray = Elastic::new(&place, JobKind::RAY_JOB);
    ray.make([1, 0]).await;
    ray.wait_until(&["1+1+0+1 runs"], [3, 0], 4).await;
    let three = ray.free().await;
    ray.scale(0, 3, &[]).await;
    ray.wait_until(&["1+1+0+1 WorkloadSliceReplaced", "1+3+0+1 runs"], [5, 0], 6).await;
    assert!(go_on(&three, &ray.free().await));
    // What a worker had is free once it is gone.
    let gone = ray.workers("small", "runs").await;
    ray.scale(0, 2, &gone[..1]).await;
    ray.wait_until(&["1+1+0+1 WorkloadSliceReplaced", "1+2+0+1 runs"], [4, 0], 5).await;
    ray.scale(1, 2, &[]).await;
    let slices = ["1+1+0+1 WorkloadSliceReplaced", "1+2+0+1 runs", "1+2+2+1 waits"];
    ray.wait_until(&slices, [4, 2], 5).await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();

    // It makes way with all that its cluster has, and comes back as it was made: its cluster is gone.
    make_urgent(&place, job("urgent", "lq", 6, 1, 3_600)).await;
    place.wait_until("urgent", true).await.unwrap();
    ray.wait_until_stopped().await;
    wait_for_usage(&place, 6).await;
    place.delete_job("urgent").await.unwrap();
    wait_for_pods(&place, PODS, 3, 0).await;
    wait_for_usage(&place, 4).await;

    // It ends while it waits for more.
    ray.scale(0, 9, &[]).await;
    wait_for_pods(&place, PODS, 3, 8).await;
    let ended = json!({"status": {
        "jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "message": "done",
        "endTime": Timestamp::now().to_string(),
    }});
    ray.bench.api().patch_status(NAME, &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    // Its quota is used until the last of its pods has ended: that which submitted it.
    wait_for_pods(&place, PODS, 1, 0).await;
    wait_for_usage(&place, 4).await;
    let submitter = pods(&place).list(&ListParams::default()).await.unwrap().items.remove(0);
    let succeeded = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    let name = submitter.metadata.name.unwrap();
    pods(&place).patch_status(&name, &PatchParams::default(), &succeeded).await.unwrap();
    wait_for_usage(&place, 0).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    ray.bench.delete(NAME).await;
    wait_until_gone(&place).await;
}

#[tokio::test]
async fn a_rayjob_that_grew_comes_back_on_another_flavor_and_is_deleted_while_it_waits_for_more() {
    needs!(Tool::KubeRayOperator);
    let place = place("elastic-rayjob-moves", [4, 0]).await;
    let [old, new] = flavors("elastic-rayjob-moves");
    let ray = Elastic::new(&place, JobKind::RAY_JOB);
    ray.make([1, 0]).await;
    ray.wait_until(&["1+1+0+1 runs"], [3, 0], 4).await;
    set_quota(&place, [6, 0]).await;
    ray.scale(0, 3, &[]).await;
    ray.wait_until(&["1+1+0+1 WorkloadSliceReplaced", "1+3+0+1 runs"], [5, 0], 6).await;
    let before = ray.free().await;
    assert!(before.values().all(|flavor| *flavor == old), "{before:?}");

    // It makes way as a whole, and there is room on the other flavor: for what it was made with, as its cluster is another one.
    make_urgent(&place, job("urgent", "lq", 6, 1, 3_600)).await;
    place.wait_until("urgent", true).await.unwrap();
    ray.wait_until_stopped().await;
    set_quota(&place, [6, 4]).await;
    wait_for_pods(&place, PODS, 3, 0).await;
    wait_for_usage(&place, 10).await;
    let three = ray.free().await;
    let moved = |pod: (&String, &String)| !before.contains_key(pod.0) && *pod.1 == new;
    assert!(three.iter().all(moved), "{three:?}");

    // It grows where it is now, within the quota and beyond it, and is deleted while some of its pods run and some wait. A group without pods has a
    // flavor, too, by which it is bound: the first one.
    set_quota(&place, [6, 5]).await;
    ray.scale(0, 2, &[]).await;
    wait_for_pods(&place, PODS, 4, 0).await;
    wait_for_usage(&place, 11).await;
    let four = ray.free().await;
    assert!(go_on(&three, &four) && four.values().all(|flavor| *flavor == new), "{four:?}");
    ray.scale(0, 4, &[]).await;
    wait_for_pods(&place, PODS, 4, 2).await;
    place.wait_for_counts([1, 2, 2]).await.unwrap();
    ray.bench.delete(NAME).await;
    wait_for_pods(&place, PODS, 0, 0).await;
    wait_for_usage(&place, 6).await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    place.delete_job("urgent").await.unwrap();
    wait_until_gone(&place).await;
}

#[tokio::test]
async fn a_rayservice_has_the_size_of_its_cluster() {
    needs!(Tool::KubeRayOperator);
    let place = place("elastic-service", [4, 0]).await;
    let [_, new] = flavors("elastic-service");
    let ray = Elastic::new(&place, JobKind::RAY_SERVICE);
    ray.make([1, 0]).await;
    ray.wait_until(&["1+1+0 runs"], [2, 0], 3).await;
    let two = ray.free().await;
    ray.scale(1, 1, &[]).await;
    ray.wait_until(&["1+1+0 WorkloadSliceReplaced", "1+1+1 runs"], [3, 0], 4).await;
    assert!(go_on(&two, &ray.free().await));
    // It shrinks to what it was, without its pods of then being stopped.
    let gone = ray.workers("large", "runs").await;
    ray.scale(1, 0, &gone).await;
    ray.wait_until(&["1+1+0 WorkloadSliceReplaced", "1+1+0 runs"], [2, 0], 3).await;
    assert_eq!(ray.free().await, two);
    ray.scale(1, 2, &[]).await;
    let slices = ["1+1+0 WorkloadSliceReplaced", "1+1+0 runs", "1+1+2 waits"];
    ray.wait_until(&slices, [2, 2], 3).await;
    make_urgent(&place, job("urgent", "lq", 4, 1, 3_600)).await;
    place.wait_until("urgent", true).await.unwrap();
    ray.wait_until_stopped().await;
    set_quota(&place, [4, 4]).await;
    wait_for_pods(&place, PODS, 2, 0).await;
    wait_for_usage(&place, 7).await;
    assert!(ray.free().await.values().all(|flavor| *flavor == new));
    place.delete_job("urgent").await.unwrap();
    ray.bench.delete(NAME).await;
    wait_until_gone(&place).await;
    wait_for_usage(&place, 0).await;
}

/// A Workload in the job's name that says that it takes over from its slice.
async fn forge(place: &Place<'_>, stands: &str) {
    let mut forged = slices::standing(place, NAME, stands).await;
    let old = forged["metadata"]["name"].as_str().unwrap().to_owned();
    let owners = forged["metadata"]["ownerReferences"].clone();
    let replaces = format!("{}/{old}", place.name);
    let annotations = json!({ELASTIC: "true", "kueue.x-k8s.io/workload-slice-name": old,
        "kueue.x-k8s.io/workload-slice-replacement-for": replaces});
    forged["metadata"] = json!({"name": "forged", "ownerReferences": owners, "annotations": annotations});
    forged["spec"]["podSets"][1]["count"] = json!(9);
    forged["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
    forged["kind"] = json!("Workload");
    forged.as_object_mut().unwrap().remove("status");
    let forged = serde_json::from_value(forged).unwrap();
    place.workloads().create(&PostParams::default(), &forged).await.unwrap();
}

#[tokio::test]
async fn what_users_do_to_an_elastic_rayjob_gets_it_no_more_than_its_quota() {
    needs!(Tool::KubeRayOperator);
    let place = place("elastic-ray-hostile", [4, 0]).await;
    let ray = Elastic::new(&place, JobKind::RAY_JOB);
    ray.make([1, 0]).await;
    ray.wait_until(&["1+1+0+1 runs"], [3, 0], 4).await;
    ray.scale(0, 3, &[]).await;
    ray.wait_until(&["1+1+0+1 runs", "1+3+0+1 waits"], [3, 2], 4).await;

    // A pod that a user lets go uses what others of its group were granted.
    let [granted, waits] = [ray.workers("small", "runs").await, ray.workers("small", "waits").await];
    let gate = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    pods(&place).patch(&waits[0], &PatchParams::default(), &gate).await.unwrap();
    wait_for_pods(&place, PODS, 4, 1).await;
    wait_for_usage(&place, 4).await;
    delete(&place, &granted[0]).await;
    wait_for_pods(&place, PODS, 3, 2).await;
    wait_for_usage(&place, 4).await;
    wait_for_pods(&place, PODS, 3, 2).await;

    // A slice that a user makes is none of the job's.
    let waits = ray.workers("small", "waits").await;
    ray.scale(0, 1, &waits).await;
    ray.wait_until(&["1+1+0+1 runs", "1+3+0+1 OutOfSync"], [3, 0], 4).await;
    forge(&place, "1+1+0+1 runs").await;
    let slices = ["1+1+0+1 runs", "1+3+0+1 OutOfSync", "1+9+0+1 OutOfSync"];
    ray.wait_until(&slices, [3, 0], 4).await;

    // A cluster whose template lost its gate does not run: KubeRay makes another.
    let before = ray.cluster().await;
    let at = "/spec/workerGroupSpecs/0";
    let operations = json!([
        {"op": "remove", "path": format!("{at}/template/spec/schedulingGates")},
        {"op": "add", "path": format!("{at}/replicas"), "value": 5},
    ]);
    let patch: json_patch::Patch = serde_json::from_value(operations).unwrap();
    ray.patch_cluster(&Patch::Json::<Value>(patch)).await;
    let clusters = ray.bench.api_of(JobKind::RAY_CLUSTER);
    eventually("the cluster to be made anew", DEADLINE, || async {
        let all = clusters.list(&ListParams::default()).await?.items;
        let reported: Vec<_> =
            all.iter().map(|one| (&one.metadata.uid, one.data["spec"].to_string())).collect();
        let whole = all.iter().all(|one| one.data["spec"]["workerGroupSpecs"][0]["replicas"] == 1);
        Ok(progress(all.len() == 1 && whole, format!("{before}: {reported:?}")))
    })
    .await
    .unwrap();
    // KubeRay may put its worker off for minutes: it expects a pod of the former cluster, which had the same name.
    eventually("no pod to run but the submitter, the head and a worker", DEADLINE, || async {
        let states = states(&place).await?;
        let run = states.iter().filter(|(name, state)| name.starts_with(PODS) && *state == "runs").count();
        Ok(progress((2..=3).contains(&run) && run == states.len(), format!("{states:?}")))
    })
    .await
    .unwrap();
    wait_for_usage(&place, 4).await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    ray.bench.delete(NAME).await;
    wait_until_gone(&place).await;
    wait_for_usage(&place, 0).await;
}
