//! RayJobs and RayServices that are made unreadable while they wait and while they run: each gets a reason, nothing of it runs, and other jobs are
//! not affected. Repaired ones continue.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::needs;

use crate::flavors::flavors;
use crate::ray::{Bench, NEEDS, place, template};

/// Where the spec of the cluster is.
fn cluster(kind: JobKind) -> &'static str {
    if kind == JobKind::RAY_JOB { "/spec/rayClusterSpec" } else { "/spec/rayClusterConfig" }
}

/// Changes a field of the spec of an object's cluster, as its user would.
async fn change(bench: &Bench<'_>, name: &str, field: &str, value: &Value) -> kube::Result<()> {
    let path = format!("{}/{field}", cluster(bench.kind));
    let changes = serde_json::from_value(json!([{"op": "replace", "path": path, "value": value}])).unwrap();
    bench.api().patch(name, &PatchParams::default(), &Patch::Json::<()>(changes)).await.map(drop)
}

/// `number` groups of workers.
fn groups(number: usize) -> Value {
    let group = |at: usize| json!({"groupName": format!("g{at}"), "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "template": template()});
    (0..number).map(group).collect()
}

/// The name of the first group, and the template of its pods.
const GROUP_NAME: &str = "workerGroupSpecs/0/groupName";
const TEMPLATE: &str = "workerGroupSpecs/0/template";

/// What the webhook finds in a change itself is refused, whatever the object does.
async fn refused(bench: &Bench<'_>, name: &str) {
    for (field, value, why) in [
        (GROUP_NAME, json!("head"), "is reserved for the head group"),
        ("workerGroupSpecs", groups(18), "Too many: 19: must have at most 18 items"),
    ] {
        let said = change(bench, name, field, &value).await.unwrap_err().to_string();
        assert!(said.contains(why), "{name}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rayjob_or_rayservice_that_becomes_unreadable_says_why_and_disturbs_nothing() {
    needs!(Tool::KubeRayOperator);
    let place = place("ray-unreadable", [3 * NEEDS - 2, 0]).await;
    let [old, _] = flavors("ray-unreadable");
    let bench = |kind| Bench { place: &place, kind };
    let sound = bench(JobKind::RAY_CLUSTER);
    let [jobs, services] = [JobKind::RAY_JOB, JobKind::RAY_SERVICE].map(bench);
    for (bench, name) in [(&sound, "sound"), (&jobs, "runs-job"), (&services, "runs-service")] {
        bench.make(name).await;
        bench.wait_until_it_runs_on(name, &old).await;
    }
    let uids = async || -> Vec<String> {
        sound.pods("sound").await.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect()
    };
    let before = uids().await;

    // While they wait. A RayJob's submitter is a pod set, too.
    for (bench, name) in [(&jobs, "waits-job"), (&services, "waits-service")] {
        bench.make(name).await;
        bench.wait_until_it_waits(name).await;
        refused(bench, name).await;
    }
    place.wait_for_counts([2, 3, 3]).await.unwrap();
    change(&jobs, "waits-job", "workerGroupSpecs", &groups(17)).await.unwrap();
    place
        .wait_for_event("RayJob/waits-job", "ErrWorkloadCompose", "too many pod sets: 19, at most 18")
        .await
        .unwrap();
    change(&services, "waits-service", TEMPLATE, &json!({})).await.unwrap();
    let why = "spec.rayClusterConfig.workerGroupSpecs[0].template.spec: required";
    place.wait_for_event("RayService/waits-service", "ErrWorkloadCompose", why).await.unwrap();
    place.wait_for_counts([0, 3, 3]).await.unwrap();
    for (bench, name) in [(&jobs, "waits-job"), (&services, "waits-service")] {
        bench.wait_until_it_waits(name).await;
    }
    change(&jobs, "waits-job", "workerGroupSpecs", &groups(2)).await.unwrap();
    place.wait_for_counts([1, 3, 3]).await.unwrap();
    jobs.delete("waits-job").await;
    services.delete("waits-service").await;
    place.wait_for_counts([0, 3, 3]).await.unwrap();

    // While they run: KubeRay may follow the change, so they are stopped.
    for (bench, name, field, value) in
        [(&jobs, "runs-job", GROUP_NAME, json!("Head")), (&services, "runs-service", TEMPLATE, json!({}))]
    {
        refused(bench, name).await;
        change(bench, name, field, &value).await.unwrap();
        bench.wait_until_it_waits(name).await;
    }
    place
        .wait_for_event(
            "RayJob/runs-job",
            "ErrWorkloadCompose",
            "spec.rayClusterSpec.workerGroupSpecs[0].groupName",
        )
        .await
        .unwrap();
    place.wait_for_event("RayService/runs-service", "ErrWorkloadCompose", why).await.unwrap();
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    assert_eq!(uids().await, before, "the pods of the other one are still there");

    change(&jobs, "runs-job", GROUP_NAME, &json!("workers")).await.unwrap();
    change(&services, "runs-service", TEMPLATE, &template()).await.unwrap();
    for (bench, name) in [(&jobs, "runs-job"), (&services, "runs-service")] {
        bench.wait_until_it_runs_on(name, &old).await;
        bench.delete(name).await;
    }
    assert_eq!(uids().await, before);
    sound.delete("sound").await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}
