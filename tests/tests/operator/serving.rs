//! Deployments whose pods wait for quota themselves, with Kubernetes' own controllers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, nodes};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME};

use crate::pods::{delete, make, place, pods, states, urgent, wait_for_workload, wait_until_gone};

/// `replicas` pods that ask for one processor each.
pub fn deployment(name: &str, queue: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "labels": {QUEUE_NAME: queue}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {"sluice.dev/run-seconds": "3600"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    })
}

fn deployments(place: &Place<'_>) -> Api<Deployment> {
    Api::namespaced(place.client.clone(), &place.name)
}

async fn deploy(place: &Place<'_>, object: Value) -> kube::Result<Deployment> {
    deployments(place).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
}

async fn change(place: &Place<'_>, name: &str, patch: Value) -> kube::Result<Deployment> {
    deployments(place).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn scale(place: &Place<'_>, name: &str, replicas: i32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    deployments(place).patch_scale(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until `runs` pods whose names begin so run, and `waits` wait, and there are no others.
pub async fn wait_for_pods(place: &Place<'_>, begins: &str, runs: usize, waits: usize) {
    let what = format!("{runs} pods of {}/{begins} to run and {waits} to wait", place.name);
    eventually(&what, DEADLINE, || async {
        let states = states(place).await?;
        let states: Vec<_> = states.iter().filter(|(name, _)| name.starts_with(begins)).collect();
        let count = |wanted: &str| states.iter().filter(|(_, state)| *state == wanted).count();
        let done = (count("runs"), count("waits"), states.len()) == (runs, waits, runs + waits);
        Ok(progress(done, format!("{states:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_deployment_run_as_quota_allows() {
    let place = place("deployed", 2).await;
    deploy(&place, deployment("web", "lq", 3)).await.unwrap();
    wait_for_pods(&place, "web-", 2, 1).await;
    eventually("each pod to have its own Workload", DEADLINE, || async {
        let count = place.workloads().list(&ListParams::default()).await?.items.len();
        Ok(progress(count == 3, count))
    })
    .await
    .unwrap();
    // The queue is fixed by now.
    let moved = change(&place, "web", json!({"metadata": {"labels": {QUEUE_NAME: "other"}}})).await;
    assert!(moved.unwrap_err().to_string().contains("field is immutable"));
    // The one that waits goes first; what is freed is given to others.
    scale(&place, "web", 2).await;
    wait_for_pods(&place, "web-", 2, 0).await;
    deploy(&place, deployment("other", "lq", 1)).await.unwrap();
    wait_for_pods(&place, "other-", 0, 1).await;
    scale(&place, "web", 1).await;
    wait_for_pods(&place, "other-", 1, 0).await;
    // A preempted pod is deleted, and its successor waits.
    make(&place, urgent(&place, "urgent")).await.unwrap();
    wait_for_pods(&place, "urgent", 1, 0).await;
    eventually("one replica to run and one to wait", DEADLINE, || async {
        let states = states(&place).await?;
        let count = |wanted: &str| states.iter().filter(|(_, state)| *state == wanted).count();
        Ok(progress((count("runs"), count("waits"), states.len()) == (2, 1, 3), format!("{states:?}")))
    })
    .await
    .unwrap();
    delete(&place, "urgent").await;
    wait_for_pods(&place, "web-", 1, 0).await;
    wait_for_pods(&place, "other-", 1, 0).await;
    // A new template replaces the pods one by one, each on the quota of the one before.
    let container = json!([{"name": "main", "image": "newer", "resources": {"requests": {"cpu": "1"}}}]);
    change(&place, "other", json!({"spec": {"template": {"spec": {"containers": container}}}}))
        .await
        .unwrap();
    eventually("the new pod to run", DEADLINE, || async {
        let all = pods(&place).list(&ListParams::default().labels("app=other")).await?.items;
        let images: Vec<_> =
            all.iter().map(|pod| pod.spec.clone().unwrap().containers[0].image.clone()).collect();
        Ok(progress(images == [Some("newer".to_owned())], format!("{images:?}")))
    })
    .await
    .unwrap();
    wait_for_pods(&place, "other-", 1, 0).await;
    // Deleted while some of its pods run and some wait.
    scale(&place, "web", 4).await;
    wait_for_pods(&place, "web-", 1, 3).await;
    for name in ["web", "other"] {
        deployments(&place).delete(name, &DeleteParams::background()).await.unwrap();
    }
    wait_until_gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_a_queue_that_is_not_there_and_for_one_that_their_deployment_names_later() {
    let place = place("deployed-nowhere", 1).await;
    deploy(&place, deployment("web", "nowhere", 1)).await.unwrap();
    wait_for_workload(&place, "pod-web-", "QuotaReserved", "False/Misconfigured").await;
    wait_for_pods(&place, "web-", 0, 1).await;
    // None is ready: the queue may change, and with it the pods.
    change(&place, "web", json!({"metadata": {"labels": {QUEUE_NAME: "lq"}}})).await.unwrap();
    wait_for_pods(&place, "web-", 1, 0).await;
    // A pod that forges what suspends it waits like any other.
    let mut forged = urgent(&place, "forged");
    forged["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] = json!("statefulset");
    forged["metadata"]["labels"][QUEUE_NAME] = json!("nowhere");
    make(&place, forged).await.unwrap();
    wait_for_workload(&place, "pod-forged-", "QuotaReserved", "False/Misconfigured").await;
    wait_for_pods(&place, "forged", 0, 1).await;
    let taken_off =
        Patch::Merge(json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": null}}}));
    let refused = pods(&place).patch("forged", &PatchParams::default(), &taken_off).await.unwrap_err();
    assert!(refused.to_string().contains("field is immutable"), "{refused}");
    delete(&place, "forged").await;
    deployments(&place).delete("web", &DeleteParams::background()).await.unwrap();
    wait_until_gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_only_deployments_are_queued_other_pods_are_left_alone_also_by_a_stopped_manager() {
    // Its own: the manager has one framework, and is stopped.
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    let client = plane.client().await.unwrap();
    nodes::pool("plain", 1).make(&client).await.unwrap();
    let configuration = json!({
        "integrations": {"frameworks": ["deployment"]},
        "managedJobsNamespaceSelector": {"matchLabels": {"queued": "yes"}},
    });
    let setup = Setup::new(&plane).unwrap().with(&configuration);
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    let selected = Place::bare(&plane, "selected").await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"queued": "yes"}}}));
    namespaces.patch("selected", &PatchParams::default(), &labelled).await.unwrap();
    selected.flavor("selected").await.unwrap();
    selected.cluster_queue("selected", 1, &json!({})).await.unwrap();
    selected.local_queue("lq", "selected").await.unwrap();
    let other = Place::bare(&plane, "other").await.unwrap();
    eventually("the webhook to mark a Deployment", DEADLINE, || async {
        deployments(&selected).delete("probe", &DeleteParams::background()).await.ok();
        let made = deploy(&selected, deployment("probe", "lq", 0)).await?;
        let annotations = made.spec.unwrap().template.metadata.unwrap().annotations.unwrap_or_default();
        let marked = annotations.contains_key("kueue.x-k8s.io/pod-suspending-parent");
        Ok(progress(marked, format!("{annotations:?}")))
    })
    .await
    .unwrap();
    deploy(&selected, deployment("web", "lq", 2)).await.unwrap();
    wait_for_pods(&selected, "web-", 1, 1).await;
    // Nothing suspends these: their kind is not listed.
    let mut plain = urgent(&selected, "plain");
    plain["metadata"]["labels"] = json!({QUEUE_NAME: "lq"});
    make(&selected, plain.clone()).await.unwrap();
    wait_for_pods(&selected, "plain", 1, 0).await;
    manager.stop().await.unwrap();
    plain["metadata"]["name"] = json!("plain-too");
    make(&selected, plain.clone()).await.unwrap();
    wait_for_pods(&selected, "plain", 2, 0).await;
    assert!(deploy(&selected, deployment("late", "lq", 1)).await.is_err(), "it would run without quota");
    // Its pods cannot be made either: they would run.
    scale(&selected, "web", 3).await;
    deploy(&other, deployment("elsewhere", "lq", 1)).await.unwrap();
    wait_for_pods(&other, "elsewhere-", 1, 0).await;
    wait_for_pods(&selected, "web-", 1, 1).await;
    let system = Place { name: "kube-system".to_owned(), ..other };
    deploy(&system, deployment("of-the-system", "lq", 1)).await.unwrap();
    wait_for_pods(&system, "of-the-system-", 1, 0).await;
}
