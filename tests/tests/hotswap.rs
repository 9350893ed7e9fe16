//! The guide's page on a control plane, with its own manifests: quota for both JobSets, four pools; one pool announces that it goes; `low`
//! makes way, `high` runs on its other pool and a freed one; the pool returns, `low` runs again.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_testkit::wait::{Look, eventually, look};
use sluice_testkit::{ControlPlane, Manager, Setup, assets, chart, kubectl, shared, workloads};

const DEADLINE: Duration = Duration::from_mins(2);
const POOL: &str = "cloud.google.com/gke-nodepool";

fn manifest(name: &str) -> String {
    fs::read_to_string(assets::workspace().join("examples/hotswap").join(name)).unwrap()
}

/// The page's JobSet, whose pods run until they are stopped.
fn jobset(name: &str) -> String {
    let all = manifest("jobs.yaml");
    let own = all.split("\n---\n").find(|document| document.contains(&format!("name: {name}\n"))).unwrap();
    let metadata = "          metadata:\n";
    assert!(own.contains(metadata), "{own}");
    own.replace(
        metadata,
        &format!("{metadata}            annotations: {{sluice.dev/run-seconds: \"3600\"}}\n"),
    )
}

async fn run(plane: &ControlPlane, args: &[&str]) -> String {
    kubectl::kubectl(plane, args).await.unwrap()
}

/// The pools on which pods of a JobSet run that are not about to go, if all eight run.
async fn pools(plane: &ControlPlane, jobset: &str) -> Result<BTreeSet<String>, String> {
    let selector = format!("jobset.sigs.k8s.io/jobset-name={jobset}");
    let pods: Value =
        serde_json::from_str(&run(plane, &["get", "pods", "-l", &selector, "-o", "json"]).await).unwrap();
    let running =
        pods["items"].as_array().unwrap().iter().filter(|pod| {
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
async fn runs(plane: &ControlPlane, jobset: &str, not: Option<&str>) -> BTreeSet<String> {
    eventually(&format!("{jobset} to run"), DEADLINE, || async {
        Ok(match pools(plane, jobset).await {
            Ok(pools) if not.is_none_or(|not| !pools.contains(not)) => Look::Done(pools),
            Ok(pools) => Look::NotYet(format!("it runs on {pools:?}")),
            Err(seen) => Look::NotYet(seen),
        })
    })
    .await
    .unwrap()
}

/// Waits until a condition of a JobSet's Workload has this reason, and gives its message.
async fn told(plane: &ControlPlane, jobset: &str, condition: &str, reason: &str) -> String {
    let client = plane.client().await.unwrap();
    eventually(&format!("{condition}/{reason} of {jobset}"), DEADLINE, || async {
        let workload = workloads::of_job(&client, "default", jobset).await?.unwrap_or_default();
        let found = workloads::condition(&workload, condition).cloned().unwrap_or_default();
        let message = found["message"].as_str().unwrap_or_default().to_owned();
        Ok(if found["reason"] == reason { Look::Done(message) } else { Look::NotYet(found.to_string()) })
    })
    .await
    .unwrap()
}

/// Puts the signals of a coming termination on a pool, or takes them away.
async fn departs(plane: &ControlPlane, pool: &str, departs: bool) {
    let selector = format!("{POOL}={pool}");
    let (label, taint) = if departs { ("=true", "=:NoSchedule") } else { ("-", ":NoSchedule-") };
    let label = format!("cloud.google.com/active-node-maintenance{label}");
    let taint = format!("cloud.google.com/impending-node-termination{taint}");
    run(plane, &["taint", "nodes", "-l", &selector, &taint]).await;
    run(plane, &["label", "nodes", "-l", &selector, &label]).await;
}

#[tokio::test]
async fn the_page_on_four_pools_of_which_one_goes_and_comes_back() {
    let plane = shared().await.unwrap();
    let setup = chart::install(plane, Setup::new(plane).unwrap(), &json!({})).await.unwrap();
    let manager = Manager::start(plane, setup).await.unwrap();
    let more = manifest("nodes.yaml").replace("v6e-pool-1", "v6e-pool-3").replace("v6e-pool-2", "v6e-pool-4");
    // The scheduler's own preemption would blur whose work it is.
    let classes = manifest("priority-classes.yaml")
        .replace("globalDefault: false", "globalDefault: false\npreemptionPolicy: Never");
    for text in [manifest("nodes.yaml"), more, classes, manifest("queues.yaml")] {
        kubectl::apply(plane, &text).await.unwrap();
    }
    let both = json!([
        {"op": "add", "path": "/spec/namespaceSelector", "value": {}},
        {"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "value": 64},
    ]);
    run(plane, &["patch", "clusterqueue", "tpu-training-cq", "--type=json", "-p", &both.to_string()]).await;
    kubectl::apply(plane, &jobset("high-jax-trillium")).await.unwrap();
    let before = runs(plane, "high-jax-trillium", None).await;
    kubectl::apply(plane, &jobset("low-jax-trillium")).await.unwrap();
    let low = runs(plane, "low-jax-trillium", None).await;
    assert!(before.is_disjoint(&low) && before.len() == 2 && low.len() == 2, "{before:?} {low:?}");

    let lost = before.first().unwrap().clone();
    let failed = Instant::now();
    departs(plane, &lost, true).await;
    let message = told(plane, "low-jax-trillium", "Preempted", "OutOfCohortReclamation").await;
    assert!(
        message.contains("preemptor path: /tpu-training-cq; preemptee path: /tpu-training-cq"),
        "{message}"
    );
    let decided = failed.elapsed();
    let after = runs(plane, "high-jax-trillium", Some(&lost)).await;
    println!("recovered {:?} after the signal, decided after {decided:?}", failed.elapsed());
    assert!(
        after.contains(before.last().unwrap()) && !after.is_disjoint(&low),
        "{before:?} {low:?} {after:?}"
    );
    let message = told(plane, "low-jax-trillium", "QuotaReserved", "WaitingForCapacity").await;
    assert!(message.ends_with("for google.com/tpu in flavor tpu-v6e-slice, 16 more needed"), "{message}");
    let client = plane.client().await.unwrap();
    let high = workloads::of_job(&client, "default", "high-jax-trillium").await.unwrap().unwrap();
    let evictions = &high["status"]["schedulingStats"]["evictions"];
    assert_eq!((&evictions[0]["reason"], &evictions[0]["count"]), (&json!("NodeFailures"), &json!(1)));

    let returned = Instant::now();
    departs(plane, &lost, false).await;
    let again = runs(plane, "low-jax-trillium", None).await;
    println!("the victim runs {:?} after the pool came back", returned.elapsed());
    assert!(again.contains(&lost), "{again:?}");
    eventually("high to be left alone", DEADLINE, || async {
        let seen = pools(plane, "high-jax-trillium").await;
        Ok(look(seen.as_ref() == Ok(&after), format!("{seen:?}")))
    })
    .await
    .unwrap();
    manager.stop().await.unwrap();
}
