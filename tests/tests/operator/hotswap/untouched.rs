//! When no job is moved: all nodes look bad, as after a network failure, or nodes are added and removed with a provisioning check.

use kube::api::ListParams;
use serde_json::json;
use sluice_testkit::wait::{eventually, progress};

use super::bed::{DEADLINE, HIGH, LOW, TURN, World, start, stop};

/// The notes of the events of a reason in a namespace.
async fn notes(world: &World, reason: &str) -> Vec<String> {
    let events = world.list("Event", &ListParams::default().fields(&format!("reason={reason}"))).await;
    events.iter().map(|event| event["note"].as_str().unwrap_or_default().to_owned()).collect()
}

/// How many unhealthy nodes a job's Workload lists.
async fn listed(world: &World, job: &str) -> usize {
    world.workload(job).await["status"]["unhealthyNodes"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn a_manager_that_starts_while_no_node_is_ready_moves_nothing() {
    let _turn = TURN.lock().await;
    let world = World::new("dark", 64, 4).await;
    let before = world.both_run().await;
    let setup = stop().await;
    let nodes = "cloud.google.com/gke-tpu-accelerator=dark";
    world.kubectl(&["annotate", "nodes", "-l", nodes, "sluice.dev/not-ready=yes"]).await;
    start(world.plane, setup).await;
    eventually("the brake to hold", DEADLINE, || async {
        let reported = notes(&world, "HotswapNotPossible").await;
        let braked = |note: &String| note.ends_with("so nothing is evicted");
        let listed = listed(&world, HIGH).await;
        Ok(progress(
            reported.iter().any(braked) && listed == 8,
            format!("{reported:?}, {listed} of its eight nodes listed"),
        ))
    })
    .await
    .unwrap();
    world.kubectl(&["annotate", "nodes", "-l", nodes, "sluice.dev/not-ready-"]).await;
    eventually("the nodes to be listed no longer", DEADLINE, || async {
        let left = listed(&world, HIGH).await + listed(&world, LOW).await;
        Ok(progress(left == 0, left))
    })
    .await
    .unwrap();
    assert_eq!((world.runs(HIGH, None).await, world.runs(LOW, None).await), before, "where they were");
    assert!(world.evictions(HIGH).await.is_empty() && world.evictions(LOW).await.is_empty());
}

#[tokio::test]
async fn nodes_that_a_provisioning_check_asks_for_are_left_alone() {
    let _turn = TURN.lock().await;
    let world = World::new("dws", 64, 4).await;
    let check = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ProvisioningRequestConfig", "metadata": {"name": "dws"},
            "spec": {"provisioningClassName": "queued-provisioning.gke.io"}},
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "dws"},
            "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters":
                {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"}}},
    ]});
    world.apply(&check.to_string()).await;
    let checked = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "dws"}]}}});
    world
        .kubectl(&[
            "patch",
            "clusterqueues.v1beta2.kueue.x-k8s.io",
            "dws",
            "--type=merge",
            "-p",
            &checked.to_string(),
        ])
        .await;
    let (before, low) = world.both_run().await;
    let states = world.workload(HIGH).await["status"]["admissionChecks"][0]["state"].clone();
    assert_eq!(states, "Ready", "it is admitted by its check");
    // That one moves shows that nodes were looked at after the others were marked.
    let peer = World::new("dws-peer", 32, 3).await;
    peer.submit(HIGH).await;
    let lost = peer.runs(HIGH, None).await.first().unwrap().clone();
    world.departs(before.first().unwrap(), true).await;
    peer.departs(&lost, true).await;
    peer.runs(HIGH, Some(&lost)).await;
    assert_eq!(peer.evictions(HIGH).await, [("NodeFailures".to_owned(), 1)]);
    assert!(world.evictions(HIGH).await.is_empty() && world.evictions(LOW).await.is_empty());
    assert_eq!((world.pools(HIGH).await, world.pools(LOW).await), (Ok(before), Ok(low)));
    assert_eq!(listed(&world, HIGH).await, 0);
}
