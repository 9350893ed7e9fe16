//! Objects that cannot be queued: each gets a reason, none of them runs, and other queued objects are not affected.
//!
//! These are the kinds whose webhooks and CRDs accept such objects; a TrainJob's and an AppWrapper's are in their own files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::needs;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME};

use crate::bed::bed;

fn template() -> Value {
    json!({"spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
    }})
}

fn api(place: &Place<'_>, kind: JobKind) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(kind.group(), kind.version(), kind.kind());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    Api::namespaced_with(place.client.clone(), &place.name, &resource)
}

async fn make(place: &Place<'_>, kind: JobKind, name: &str, spec: Value) -> kube::Result<DynamicObject> {
    let object = json!({
        "apiVersion": kind.api_version(), "kind": kind.kind(),
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}}, "spec": spec,
    });
    api(place, kind).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
}

/// A pod of the group `g`, as its user makes it.
async fn member(place: &Place<'_>, name: &str, queue: &str, total: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "labels": {QUEUE_NAME: queue, "kueue.x-k8s.io/pod-group-name": "g"},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": total},
        },
        "spec": template()["spec"],
    });
    place.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// The names of the pods that no gate holds.
async fn free_pods(place: &Place<'_>) -> Vec<String> {
    let pods = place.pods_with("").await.unwrap();
    let free = |pod: &&Value| pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty);
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    pods.iter().filter(free).map(name).collect()
}

#[tokio::test]
async fn what_cannot_be_queued_says_why_and_disturbs_nothing() {
    needs!(Tool::KubeflowControllers);
    needs!(Tool::KubeRayOperator);
    let place = &Place::new(bed().await.plane, "bad-input", 2).await.unwrap();
    place.job("before", "lq", 1).await.unwrap();
    place.wait_until("before", true).await.unwrap();
    eventually("the pod of the first Job", DEADLINE, || async {
        let pods = free_pods(place).await;
        Ok(progress(pods.len() == 1, format!("{pods:?}")))
    })
    .await
    .unwrap();
    let running = free_pods(place).await;

    // More pod sets than a Workload may have.
    let job = |at: usize| json!({"name": format!("r{at}"), "replicas": 1, "template": {"spec": {"template": template()}}});
    let jobs: Vec<_> = (0..19).map(job).collect();
    make(place, JobKind::JOB_SET, "many", json!({"replicatedJobs": jobs})).await.unwrap();
    place
        .wait_for_event("JobSet/many", "ErrWorkloadCompose", "too many pod sets: 19, at most 18")
        .await
        .unwrap();

    // A replica type that its operator may run and that no quota would be counted for.
    let replicas = json!({"worker": {"replicas": 1, "template": template()}});
    make(place, JobKind::PYTORCH_JOB, "lower", json!({"pytorchReplicaSpecs": replicas})).await.unwrap();
    place.wait_for_event("PyTorchJob/lower", "ErrWorkloadCompose", "worker").await.unwrap();

    // A group that has the name of the head's pod set.
    let cluster = json!({
        "headGroupSpec": {"rayStartParams": {}, "template": template()},
        "workerGroupSpecs": [{"groupName": "head", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "template": template()}],
    });
    let refused = make(place, JobKind::RAY_CLUSTER, "head", cluster).await.unwrap_err().to_string();
    assert!(refused.contains("spec.workerGroupSpecs[0].groupName"), "{refused}");

    // Pods that name different queues, and then different numbers of pods.
    place.local_queue("other", &place.name).await.unwrap();
    member(place, "g-0", "lq", "2").await;
    member(place, "g-1", "other", "2").await;
    place
        .wait_for_event("Pod/g-0", "ErrWorkloadCompose", "has different queue names: lq!=other")
        .await
        .unwrap();
    member(place, "g-2", "lq", "3").await;
    place
        .wait_for_event("Pod/g-0", "ErrWorkloadCompose", "pod-group-total-count' values: 2!=3")
        .await
        .unwrap();

    // None of it runs; the Job does as before, and another one is admitted.
    for (kind, name, path) in [
        (JobKind::JOB_SET, "many", "/spec/suspend"),
        (JobKind::PYTORCH_JOB, "lower", "/spec/runPolicy/suspend"),
    ] {
        let object = serde_json::to_value(api(place, kind).get(name).await.unwrap()).unwrap();
        assert_eq!(object.pointer(path), Some(&json!(true)), "{name}");
    }
    assert_eq!(free_pods(place).await, running);
    place.job("after", "lq", 1).await.unwrap();
    place.wait_until("after", true).await.unwrap();
    place.wait_for_counts([0, 2, 2]).await.unwrap();
}
