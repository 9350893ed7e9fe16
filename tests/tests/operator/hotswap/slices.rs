//! Where the real scheduler puts slices: never on a partly healthy pool, and not on a pool with announced maintenance while others are free.

use kube::api::ListParams;
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};

use super::bed::{DEADLINE, HIGH, LOW, POOL, World};

const TIME: &str = "cloud.google.com/scheduled-maintenance-time";

/// One node of a pool fails; the three others could take three pods of four.
#[tokio::test]
async fn a_slice_is_not_put_on_the_rest_of_a_pool() {
    let world = World::new("rest-of-pool", 64, 4).await;
    let (before, _) = world.both_run().await;
    let lost = before.first().unwrap().clone();
    let node = format!("{lost}-2");
    world.kubectl(&["annotate", "node", &node, "sluice.dev/not-ready=yes"]).await;
    let after = world.runs(HIGH, Some(&lost)).await;
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!(world.evictions(HIGH).await, [("NodeFailures".to_owned(), 1)]);
    let pods = world.pods(HIGH).await;
    let required = &pods[0]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"];
    let not_in = json!({"key": POOL, "operator": "NotIn", "values": [lost]});
    assert_eq!(*required, json!([{"matchExpressions": [not_in]}]));
    world.reported(LOW, "QuotaReserved", "WaitingForCapacity").await;
    world.kubectl(&["annotate", "node", &node, "sluice.dev/not-ready-"]).await;
    assert!(world.runs(LOW, None).await.contains(&lost));
}

/// The affinity in the template of a batch Job.
async fn template(world: &World, job: &str) -> Value {
    world.get("Job", job).await["spec"]["template"]["spec"]["affinity"].clone()
}

#[tokio::test]
async fn work_keeps_off_nodes_whose_maintenance_is_announced() {
    let world = World::new("announced", 64, 3).await;
    for pool in ["announced-1", "announced-2"] {
        let selector = format!("{POOL}={pool}");
        world.kubectl(&["label", "nodes", "-l", &selector, &format!("{TIME}=4102444800")]).await;
    }
    let own = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname"}}]}});
    let job = |name: &str, deadline: Option<i64>| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "announced",
            "labels": {"kueue.x-k8s.io/queue-name": "default-queue"}},
            "spec": {"activeDeadlineSeconds": deadline, "template": {
                "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
                "spec": {"restartPolicy": "Never", "affinity": own, "containers": [{"name": "c", "image": "i",
                    "resources": {"limits": {"google.com/tpu": 4}}}]}}}})
    };
    for (name, deadline) in [("unknown", None), ("short", Some(3_600))] {
        world.apply(&job(name, deadline).to_string()).await;
        world.reported(name, "Admitted", "Admitted").await;
    }
    eventually("the Jobs to be started", DEADLINE, || async {
        let jobs = world.list("Job", &ListParams::default()).await;
        Ok(progress(jobs.iter().all(|job| job["spec"]["suspend"] != true), "some are suspended"))
    })
    .await
    .unwrap();
    let avoids = json!([{"weight": 100, "preference":
        {"matchExpressions": [{"key": TIME, "operator": "DoesNotExist"}]}}]);
    let found = template(&world, "unknown").await;
    assert_eq!(found["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"], avoids);
    assert_eq!(found["podAntiAffinity"], own["podAntiAffinity"]);
    assert!(template(&world, "short").await["nodeAffinity"].is_null(), "it ends in time");
    let workload = world.workload("unknown").await["metadata"]["name"].as_str().unwrap().to_owned();
    world
        .kubectl(&["patch", "workload", &workload, "--type=merge", "-p", "{\"spec\":{\"active\":false}}"])
        .await;
    eventually("the affinity to be restored", DEADLINE, || async {
        let found = template(&world, "unknown").await;
        Ok(progress(found == own, found))
    })
    .await
    .unwrap();
    world.kubectl(&["delete", "jobs", "--all"]).await;

    // One of the three pools is free of maintenance, and two are needed.
    world.submit(LOW).await;
    let pools = world.runs(LOW, None).await;
    assert!(pools.contains("announced-3"), "{pools:?}");
    let jobset = world.get("JobSet", LOW).await;
    let template = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
    assert!(template["spec"]["affinity"].is_null(), "JobSet refuses a changed affinity");
    assert!(template["metadata"]["annotations"]["sluice.dev/node-affinity"].is_string(), "{template}");
    let pods = world.pods(LOW).await;
    let preferred =
        &pods[0]["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(preferred[0], avoids[0]);
    let workload = world.workload(LOW).await["metadata"]["name"].as_str().unwrap().to_owned();
    world
        .kubectl(&["patch", "workload", &workload, "--type=merge", "-p", "{\"spec\":{\"active\":false}}"])
        .await;
    eventually("the JobSet to be as it was", DEADLINE, || async {
        let jobset = world.get("JobSet", LOW).await;
        let template = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        let wish = template["metadata"]["annotations"]["sluice.dev/node-affinity"].clone();
        Ok(progress(jobset["spec"]["suspend"] == true && wish.is_null(), wish))
    })
    .await
    .unwrap();

    // It starts again while no maintenance is announced: nothing is left of the wish, in no child Job and no pod.
    for pool in ["announced-1", "announced-2"] {
        let selector = format!("{POOL}={pool}");
        world.kubectl(&["label", "nodes", "-l", &selector, &format!("{TIME}-")]).await;
    }
    world
        .kubectl(&["patch", "workload", &workload, "--type=merge", "-p", "{\"spec\":{\"active\":true}}"])
        .await;
    world.runs(LOW, None).await;
    let jobs = world.list("Job", &ListParams::default()).await;
    assert_eq!(jobs.len(), 2, "the two Jobs of the JobSet");
    for job in &jobs {
        assert!(!wishes(&job["spec"]["template"]), "{job}");
    }
    let pods = world.pods(LOW).await;
    let alive: Vec<_> = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
    assert_eq!(alive.len(), 8);
    for pod in alive {
        assert!(!wishes(pod), "{pod}");
    }
}

/// Whether a pod, or what makes pods, would keep off nodes.
fn wishes(pod: &Value) -> bool {
    let annotation = &pod["metadata"]["annotations"]["sluice.dev/node-affinity"];
    annotation.as_str().is_some_and(|wish| !wish.is_empty()) || pod.to_string().contains(TIME)
}
