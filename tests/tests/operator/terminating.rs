//! When the quota of stopped and deleted jobs is free again, on a real control plane: terminating pods hold it, and pods on a lost node do not. Only
//! JobSets are managed here; their Jobs are still recognized, within the rights that the chart gives the manager.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::similar_names, reason = "a place is on a plane")]

use std::time::Duration;

use anyhow::Result;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::jobset::{JOBSET_NAME, JobSet};
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::wait::{consistently, eventually, progress};
use sluice_testkit::{Complete, Manager, Setup, chart, crds, nodes};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, patch};

/// A JobSet of two Jobs with a pod each, on the nodes of a pool; `pods` is their metadata.
fn jobset(place: &Place<'_>, name: &str, pool: &str, pods: &Value) -> String {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "namespace": place.name, "labels": {QUEUE_NAME: "lq"}},
        "spec": {"replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"template": {
            "metadata": pods,
            "spec": {
                "nodeSelector": {"cloud.google.com/gke-nodepool": pool},
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            },
        }}}}]},
    })
    .to_string()
}

/// What belongs to a JobSet.
fn of(name: &str) -> ListParams {
    ListParams::default().labels(&format!("{JOBSET_NAME}={name}"))
}

/// What a JobSet and its Jobs say of pods that run, and its Jobs of those that terminate. The client reads it: that happens many times a second, and
/// two calls of kubectl take a good part of a second.
async fn pods(place: &Place<'_>, name: &str) -> Result<(i32, i32, i32)> {
    let sets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    let set = sets.get_opt(name).await?.and_then(|set| set.status).unwrap_or_default();
    let of_set = set.replicated_jobs_status.first().map_or(0, |group| group.active);
    let (mut active, mut terminating) = (0, 0);
    for status in place.jobs().list(&of(name)).await?.items.into_iter().filter_map(|job| job.status) {
        active += status.active.unwrap_or(0);
        terminating += status.terminating.unwrap_or(0);
    }
    Ok((of_set, active, terminating))
}

async fn wait_for_pods(place: &Place<'_>, name: &str, expected: (i32, i32, i32)) {
    eventually("the pods to be as expected", DEADLINE, || async {
        let seen = pods(place, name).await?;
        Ok(progress(seen == expected, format!("{seen:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_stopped_or_deleted_jobset_holds_its_quota_until_its_pods_ended_or_their_node_is_lost() {
    // Its own: the manager manages JobSets alone.
    let plane = Complete::start().await.unwrap();
    let plane = &*plane;
    let client = plane.client().await.unwrap();
    for pool in ["well", "dies"] {
        nodes::pool(pool, 1).make(&client).await.unwrap();
    }
    let setup = Setup::new(plane).unwrap().with(&json!({
        "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]},
        "hotswap": {"notReadyAfter": "5s"},
    }));
    let setup = chart::install(plane, setup, &json!({})).await.unwrap();
    let _manager = Manager::start(plane, setup).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();

    // Its pods never end: something holds them.
    let place = Place::new(plane, "terminating", 2).await.unwrap();
    let held = json!({"finalizers": ["example.com/hold"], "annotations": {"sluice.dev/stay-pending": "yes"}});
    apply(plane, &jobset(&place, "old", "dies", &held)).await.unwrap();
    wait_for_pods(&place, "old", (2, 2, 0)).await;
    apply(plane, &jobset(&place, "new", "well", &held)).await.unwrap();
    place.wait_for_condition("new", "QuotaReserved", "False/WaitingForQuota").await.unwrap();

    // The status of the queue follows within a second.
    place.wait_for_reserved_cpu("2").await.unwrap();

    let workload = place.workload("old").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    patch(&place.workloads(), name, json!({"spec": {"active": false}})).await.unwrap();
    wait_for_pods(&place, "old", (0, 0, 2)).await;
    consistently("the quota to be held", Duration::from_secs(4), || async {
        let reserved = place.reserved_cpu().await?;
        Ok(progress(reserved == "2", reserved))
    })
    .await
    .unwrap();
    place.wait_for_condition("old", "QuotaReserved", "True").await.unwrap();

    kubectl(plane, &["annotate", "node", "dies-0", "sluice.dev/not-ready=yes"]).await.unwrap();
    place.wait_for_condition("old", "QuotaReserved", "False/Deactivated").await.unwrap();
    wait_for_pods(&place, "new", (2, 2, 0)).await;
    assert_eq!(pods(&place, "old").await.unwrap(), (0, 0, 2), "they are still there");

    let_end(&place, "old").await;
    wait_for_pods(&place, "old", (0, 0, 0)).await;

    // A JobSet that is deleted has pods as long, though nothing says so but they.
    apply(plane, &jobset(&place, "last", "well", &held)).await.unwrap();
    place.wait_for_condition("last", "QuotaReserved", "False/WaitingForQuota").await.unwrap();
    place.wait_for_reserved_cpu("2").await.unwrap();
    kubectl(plane, &["delete", "-n", &place.name, "jobset", "new", "--wait=false"]).await.unwrap();
    eventually("the Jobs to be gone", DEADLINE, || async {
        let seen = pods(&place, "new").await?;
        Ok(progress(seen == (0, 0, 0), format!("{seen:?}")))
    })
    .await
    .unwrap();
    consistently("the quota to be held", Duration::from_secs(4), || async {
        let reserved = place.reserved_cpu().await?;
        let waits = pods(&place, "last").await? == (0, 0, 0);
        Ok(progress(reserved == "2" && waits, reserved))
    })
    .await
    .unwrap();
    let_end(&place, "new").await;
    wait_for_pods(&place, "last", (2, 2, 0)).await;
    let_end(&place, "last").await;
}

/// Takes away what holds the pods of a JobSet.
async fn let_end(place: &Place<'_>, name: &str) {
    let free = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    for pod in place.pods().list(&of(name)).await.unwrap() {
        let pod = pod.metadata.name.unwrap();
        place.pods().patch(&pod, &PatchParams::default(), &free).await.unwrap();
    }
}
