//! StatefulSets, which are admitted as a whole, with Kubernetes' own controller.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME};

use crate::pods::{delete, make, place, pods, states, urgent, wait_for_workload, wait_until_gone};
use crate::serving::wait_for_pods;

fn containers(image: &str, cpu: &str) -> Value {
    json!([{"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}])
}

/// `replicas` pods that ask for one processor each.
pub fn set(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {"sluice.dev/run-seconds": "3600"}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": containers("none", "1")},
            },
        },
    })
}

fn sets(place: &Place<'_>) -> Api<StatefulSet> {
    Api::namespaced(place.client.clone(), &place.name)
}

async fn create(place: &Place<'_>, object: Value) {
    sets(place).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn change(place: &Place<'_>, name: &str, patch: Value) -> kube::Result<StatefulSet> {
    sets(place).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Scales once it may be: after all pods of a former scale have gone.
async fn scale(place: &Place<'_>, name: &str, replicas: i32) {
    eventually("the StatefulSet to be scaled", DEADLINE, || async {
        let answer = change(place, name, json!({"spec": {"replicas": replicas}})).await;
        Ok(progress(answer.is_ok(), format!("{answer:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_is_admitted_held_preempted_and_deleted_as_a_whole() {
    let place = place("set", 2).await;
    create(&place, set("web", 2)).await;
    wait_for_workload(&place, "statefulset-web-", "Admitted", "True").await;
    wait_for_pods(&place, "web-", 2, 0).await;
    let pod = pods(&place).get("web-1").await.unwrap();
    let annotations = pod.metadata.annotations.unwrap();
    for (key, value) in [
        ("pod-suspending-parent", "statefulset"),
        ("pod-group-total-count", "2"),
        ("pod-group-fast-admission", "true"),
        ("pod-group-serving", "true"),
        ("role-hash", "main"),
    ] {
        assert_eq!(annotations[&format!("kueue.x-k8s.io/{key}")], value, "{key}");
    }
    assert!(annotations["kueue.x-k8s.io/pod-group-name"].starts_with("statefulset-web-"));
    assert!(pod.metadata.finalizers.is_none(), "nothing keeps it");
    // What its quota is for does not change while it has replicas.
    for patch in [
        json!({"spec": {"replicas": 3}}),
        json!({"spec": {"replicas": 1}}),
        json!({"spec": {"template": {"spec": {"containers": containers("none", "2")}}}}),
        json!({"metadata": {"labels": {QUEUE_NAME: "other"}}}),
        json!({"metadata": {"labels": {QUEUE_NAME: null}}}),
    ] {
        let refused = change(&place, "web", patch.clone()).await;
        assert!(refused.unwrap_err().to_string().contains("immutable"), "{patch}");
    }
    // Another image is rolled out pod by pod, on the quota that it has.
    let newer = json!({"spec": {"template": {"spec": {"containers": containers("newer", "1")}}}});
    change(&place, "web", newer).await.unwrap();
    eventually("both pods to have the new image", DEADLINE, || async {
        let all = pods(&place).list(&ListParams::default()).await?.items;
        let image = |pod: &Pod| pod.spec.clone().unwrap().containers[0].image.clone();
        let images: Vec<_> = all.iter().filter_map(image).collect();
        Ok(progress(images == ["newer", "newer"], format!("{images:?}")))
    })
    .await
    .unwrap();
    wait_for_pods(&place, "web-", 2, 0).await;
    // Without replicas its quota is free, and its Workload stays.
    scale(&place, "web", 0).await;
    let held = "False/OnHold: StatefulSet scaled to zero; workload on hold";
    wait_for_workload(&place, "statefulset-web-", "QuotaReserved", held).await;
    create(&place, set("other", 1)).await;
    wait_for_pods(&place, "other-", 1, 0).await;
    scale(&place, "web", 2).await;
    wait_for_pods(&place, "web-", 0, 1).await;
    scale(&place, "other", 0).await;
    wait_for_pods(&place, "web-", 2, 0).await;
    // It is preempted as a whole, and comes back.
    make(&place, urgent(&place, "urgent")).await.unwrap();
    wait_for_pods(&place, "urgent", 1, 0).await;
    // Its controller makes the second pod, too, if that goes while the first one still runs.
    eventually("no pod of it to run, and one to wait", DEADLINE, || async {
        let states = states(&place).await?;
        let own: Vec<_> = states.into_iter().filter(|(name, _)| name.starts_with("web-")).collect();
        let waits = !own.is_empty() && own.iter().all(|(_, state)| *state == "waits");
        Ok(progress(waits, format!("{own:?}")))
    })
    .await
    .unwrap();
    delete(&place, "urgent").await;
    wait_for_pods(&place, "web-", 2, 0).await;
    // A pod that is deleted is made again on the same quota.
    delete(&place, "web-0").await;
    wait_for_pods(&place, "web-", 2, 0).await;
    for name in ["web", "other"] {
        sets(&place).delete(name, &DeleteParams::background()).await.unwrap();
    }
    wait_until_gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_that_waits_is_deleted_and_leaves_nothing() {
    let place = place("set-waits", 1).await;
    create(&place, set("web", 2)).await;
    wait_for_workload(&place, "statefulset-web-", "QuotaReserved", "False/ExceedsMaxQuota").await;
    wait_for_pods(&place, "web-", 0, 1).await;
    sets(&place).delete("web", &DeleteParams::background()).await.unwrap();
    wait_until_gone(&place).await;
}
