//! Jobs with the wrong queue name, a queue that does not accept their namespace, or one that is too small: each starts as the answer says.

use k8s_openapi::api::core::v1::ResourceQuota;
use sluice_api::labels::{ADMISSION_GATED_BY, PRIORITY_CLASS};
use sluice_tests::place::{Place, QUEUE_NAME, create, job, patch};

use super::advice::{follow, found, found_and, remedy, wait_for_pods};
use super::*;
use crate::bed::bed;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_names_no_local_queue_of_its_namespace_starts_when_it_names_one_that_is_there() {
    let place = Place::new(bed().await.plane, "explain-other-queue", 4).await.unwrap();
    place.make_job(&job("mine", "none", 1, 1, 3_600)).await.unwrap();
    let answer = found(&place, "mine", &["LocalQueueMissing"]).await;
    remedy(&answer, "name one of the existing LocalQueues (lq) in the label kueue.x-k8s.io/queue-name");
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
    let resources = json!([{"name": "cpu", "nominalQuota": 4}, {"name": "memory", "nominalQuota": "4Gi"}]);
    let flavors = json!([{"name": place.name, "resources": resources}]);
    let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": flavors}]);
    let refused = async |name: &str| {
        let mut more = job(name, "lq", 1, 1, 3_600);
        more["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("1Gi");
        place.make_job(&more).await.unwrap();
        let answer = found(&place, name, &["ResourceNotCovered"]).await;
        let words = "take memory out of the requests and limits of the pods, or add it to coveredResources";
        let all = remedy(&answer, words)["text"].to_string();
        assert!(all.contains("or name a queue that has it"), "{all}");
    };
    let starts = async |name: &str| {
        wait_for_pods(&place, name, 1).await;
        found(&place, name, &[]).await;
    };
    refused("elsewhere").await;
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    create(&place.cluster_queues(), json!({"metadata": {"name": "explain-memory"}, "spec": spec}))
        .await
        .unwrap();
    place.local_queue("memory", "explain-memory").await.unwrap();
    place.patch_job("elsewhere", json!({"metadata": {"labels": {QUEUE_NAME: "memory"}}})).await.unwrap();
    starts("elsewhere").await;
    refused("mine").await;
    // The resources of a Job's pods cannot be changed: another one does not ask for it.
    place.job("less", "lq", 1).await.unwrap();
    starts("less").await;
    patch(&place.cluster_queues(), &place.name, json!({"spec": {"resourceGroups": groups}})).await.unwrap();
    starts("mine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_job_that_names_no_queue_starts_when_it_gets_the_label() {
    let place = Place::new(bed().await.plane, "explain-no-name", 4).await.unwrap();
    let mut unnamed = job("mine", "lq", 1, 1, 3_600);
    unnamed["metadata"].as_object_mut().unwrap().remove("labels");
    unnamed["spec"]["suspend"] = json!(true);
    place.make_job(&unnamed).await.unwrap();
    let answer = found(&place, "mine", &["QueueNameMissing"]).await;
    follow(&place, remedy(&answer, "name a LocalQueue in the label kueue.x-k8s.io/queue-name")).await;
    wait_for_pods(&place, "mine", 1).await;
    found(&place, "mine", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_priority_class_is_missing_starts_when_it_is_made() {
    let place = Place::new(bed().await.plane, "explain-class", 4).await.unwrap();
    let mut mine = job("mine", "lq", 1, 1, 3_600);
    mine["metadata"]["labels"][PRIORITY_CLASS] = json!("explain-class");
    place.make_job(&mine).await.unwrap();
    let answer = found(&place, "mine", &["PriorityClassMissing"]).await;
    remedy(&answer, "create the WorkloadPriorityClass explain-class, or name one that exists");
    let classes = place.global("WorkloadPriorityClass", "workloadpriorityclasses");
    create(&classes, json!({"metadata": {"name": "explain-class"}, "value": 7})).await.unwrap();
    wait_for_pods(&place, "mine", 1).await;
    let answer = found(&place, "mine", &[]).await;
    assert_eq!(answer["priority"], 7, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_a_program_holds_back_starts_when_that_takes_its_name_away() {
    let place = Place::new(bed().await.plane, "explain-gated", 4).await.unwrap();
    let mut held = job("mine", "lq", 1, 1, 3_600);
    held["metadata"]["annotations"] = json!({ADMISSION_GATED_BY: "example.com/budget"});
    place.make_job(&held).await.unwrap();
    let answer = found(&place, "mine", &["Gated"]).await;
    let words = "the program that set it must remove example.com/budget from the annotation of the job";
    remedy(&answer, words);
    let free = json!({"metadata": {"annotations": {ADMISSION_GATED_BY: null}}});
    place.patch_job("mine", free).await.unwrap();
    wait_for_pods(&place, "mine", 1).await;
    found(&place, "mine", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_pods_are_refused_runs_when_the_quota_of_its_namespace_takes_them() {
    let place = Place::new(bed().await.plane, "explain-refused", 4).await.unwrap();
    let quotas: Api<ResourceQuota> = Api::namespaced(place.client.clone(), &place.name);
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    // Until its status is written, it refuses all pods with other words.
    eventually("the quota to be counted", DEADLINE, || async {
        let quota = quotas.get("none").await?;
        let counted =
            quota.status.and_then(|status| status.hard).is_some_and(|hard| hard.contains_key("pods"));
        Ok(progress(counted, "not yet"))
    })
    .await
    .unwrap();
    place.job("mine", "lq", 1).await.unwrap();
    // Its controller says so in a write of its own.
    place.wait_for_event("Job/mine", "FailedCreate", "exceeded quota: none").await.unwrap();
    let answer = found(&place, "mine", &["PodsMissing", "PodsNotReady"]).await;
    let described =
        follow(&place, remedy(&answer, "find out why the controller of the job does not make its pods"))
            .await;
    assert!(described.contains("exceeded quota: none"), "{described}");
    let more = Patch::Merge(json!({"spec": {"hard": {"pods": "9"}}}));
    quotas.patch("none", &PatchParams::default(), &more).await.unwrap();
    wait_for_pods(&place, "mine", 1).await;
    found(&place, "mine", &[]).await;
}
