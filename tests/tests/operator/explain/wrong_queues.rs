//! Jobs whose queue is another than they named, does not take their namespace, or is too small for their pods: each starts as the answer says.

use sluice_tests::place::{Place, QUEUE_NAME, job, patch};

use super::advice::{follow, found, found_and, remedy, wait_for_pods};
use super::*;
use crate::bed::bed;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_names_no_local_queue_of_its_namespace_starts_when_it_names_one_that_is_there() {
    let place = Place::new(bed().await.plane, "explain-other-queue", 4).await.unwrap();
    place.make_job(&job("mine", "none", 1, 1, 3_600)).await.unwrap();
    let answer = found(&place, "mine", &["LocalQueueMissing"]).await;
    remedy(&answer, "name one of the LocalQueues that there are (lq) in the label kueue.x-k8s.io/queue-name");
    place.patch_job("mine", json!({"metadata": {"labels": {QUEUE_NAME: "lq"}}})).await.unwrap();
    wait_for_pods(&place, "mine", 1).await;
    found(&place, "mine", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_cluster_queue_is_missing_starts_when_it_is_made() {
    let place = Place::bare(bed().await.plane, "explain-no-queue").await.unwrap();
    place.flavor(&place.name).await.unwrap();
    place.local_queue("lq", &place.name).await.unwrap();
    place.make_job(&job("mine", "lq", 1, 1, 3_600)).await.unwrap();
    let answer =
        found_and(&place, "mine", &["ClusterQueueMissing"], "explain-no-queue/lq is for, does not exist")
            .await;
    remedy(
        &answer,
        "create the ClusterQueue explain-no-queue, or name a LocalQueue that is for one that exists",
    );
    place.cluster_queue(&place.name, 4, &json!({"namespaceSelector": {}})).await.unwrap();
    wait_for_pods(&place, "mine", 1).await;
    found(&place, "mine", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_gets_the_labels_that_meet_a_selector_with_expressions() {
    let place = Place::bare(bed().await.plane, "explain-expressions").await.unwrap();
    place.flavor(&place.name).await.unwrap();
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let expressions = json!([
        expression("explain-team", "In", &["blue", "red"]),
        expression("explain-old", "DoesNotExist", &[])
    ]);
    let selector = json!({"namespaceSelector": {"matchExpressions": expressions}});
    kubectl(place.plane, &["label", "namespace", &place.name, "explain-old=yes", "explain-team=green"])
        .await
        .unwrap();
    place.cluster_queue(&place.name, 4, &selector).await.unwrap();
    place.local_queue("lq", &place.name).await.unwrap();
    place.make_job(&job("mine", "lq", 1, 1, 3_600)).await.unwrap();
    let answer = found(&place, "mine", &["NamespaceNotSelected"]).await;
    let label = remedy(&answer, "starts now: label the namespace explain-expressions");
    assert!(label["command"].as_str().unwrap().contains("--overwrite"), "{label}");
    follow(&place, label).await;
    wait_for_pods(&place, "mine", 1).await;
    found(&place, "mine", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_too_large_starts_with_as_much_for_each_pod_as_is_said() {
    let place = Place::new(bed().await.plane, "explain-each-pod", 10).await.unwrap();
    place.make_job(&job("mine", "lq", 5, 4, 3_600)).await.unwrap();
    let answer = found(&place, "mine", &["TooLarge"]).await;
    remedy(&answer, "ask for at most 2500m cpu for each of the 4 pod(s)");
    // The resources of a Job's pods cannot be changed: another one asks for less.
    let mut smaller = job("smaller", "lq", 1, 4, 3_600);
    smaller["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2500m");
    place.make_job(&smaller).await.unwrap();
    wait_for_pods(&place, "smaller", 4).await;
    found(&place, "smaller", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_asks_for_a_resource_without_quota_starts_when_its_queue_has_some() {
    let place = Place::new(bed().await.plane, "explain-resource", 4).await.unwrap();
    let mut more = job("mine", "lq", 1, 1, 3_600);
    more["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("1Gi");
    place.make_job(&more).await.unwrap();
    let answer = found(&place, "mine", &["ResourceNotCovered"]).await;
    remedy(&answer, "take memory out of the requests and limits of the pods, or add it to coveredResources");
    let resources = json!([{"name": "cpu", "nominalQuota": 4}, {"name": "memory", "nominalQuota": "4Gi"}]);
    let flavors = json!([{"name": place.name, "resources": resources}]);
    let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": flavors}]);
    patch(&place.cluster_queues(), &place.name, json!({"spec": {"resourceGroups": groups}})).await.unwrap();
    wait_for_pods(&place, "mine", 1).await;
    found(&place, "mine", &[]).await;
}
