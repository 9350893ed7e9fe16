//! A kind that only the configuration describes and that no field suspends: CloneSet of OpenKruise, with its real CRD. Its pods wait for admission
//! themselves.
//!
//! The controller is a **stand-in**: it makes as many pods as there are replicas, and replaces pods that end, as OpenKruise does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_testkit::assets::workspace;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, reported};

use crate::flavors::{flavors, of_flavor, of_nodes, set_quota, two_flavors};
use crate::passes::Passes;
use crate::pods::{wait_for_workload, workload};

/// Pods of a CloneSet, each of one processor.
const PODS: u32 = 2;

/// A document of the repository.
pub fn document<T: serde::de::DeserializeOwned>(path: &str) -> T {
    let path = workspace().join(Path::new(path));
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The declaration that is shipped as an example.
pub fn declaration() -> Value {
    document("examples/integrations/cloneset/declaration.yaml")
}

/// The kind's CRD.
pub fn crd() -> CustomResourceDefinition {
    document("tests/control-plane/cloneset-crd.yaml")
}

fn sets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apps.kruise.io", "v1alpha1", "CloneSet");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, "clonesets"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The stand-in.
async fn pass(client: Client, namespace: String) -> kube::Result<()> {
    let (all, pods) = (sets(&client, &namespace), Api::<Pod>::namespaced(client.clone(), &namespace));
    for set in all.list(&ListParams::default()).await? {
        let name = set.metadata.name.clone().unwrap();
        let own = pods.list(&ListParams::default().labels(&format!("app={name}"))).await?.items;
        let stays = |pod: &&Pod| pod.metadata.deletion_timestamp.is_none();
        let wanted = set.data["spec"]["replicas"].as_u64().unwrap_or(1);
        let there = own.iter().filter(stays).count();
        let leaves = set.metadata.deletion_timestamp.is_some();
        for _ in there as u64..if leaves { 0 } else { wanted } {
            let mut pod = set.data["spec"]["template"].clone();
            pod["metadata"]["generateName"] = json!(format!("{name}-"));
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": name, "controller": true,
                "uid": set.metadata.uid,
            }]);
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await?;
        }
        for pod in own.iter().filter(stays).skip(usize::try_from(wanted).unwrap()) {
            let _ = pods.delete(pod.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await;
        }
        let ready = own.iter().filter(stays).filter(|pod| is_ready(pod)).count();
        let status = json!({
            "replicas": there, "readyReplicas": ready, "availableReplicas": ready,
            "updatedReplicas": there, "updatedReadyReplicas": ready,
        });
        if set.data["status"]["readyReplicas"] != status["readyReplicas"] {
            let patch = Patch::Merge(json!({"status": status}));
            all.patch_status(&name, &PatchParams::default(), &patch).await?;
        }
    }
    Ok(())
}

async fn make(place: &Place<'_>, name: &str) -> DynamicObject {
    let set = json!({
        "apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet",
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
        "spec": {"replicas": PODS, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}, "annotations": {"sluice.dev/run-seconds": "3600"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
            },
        }},
    });
    let set: DynamicObject = serde_json::from_value(set).unwrap();
    sets(&place.client, &place.name).create(&PostParams::default(), &set).await.unwrap()
}

async fn delete(place: &Place<'_>, name: &str) {
    sets(&place.client, &place.name).delete(name, &DeleteParams::background()).await.unwrap();
}

async fn change(place: &Place<'_>, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    sets(&place.client, &place.name).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Waits until all its pods run on a flavor and on nothing of another one; until all wait, if none is given.
async fn wait_until_on(place: &Place<'_>, name: &str, flavor: Option<&str>) {
    eventually(&format!("{}/{name} to be on {flavor:?}", place.name), DEADLINE, || async {
        let own = place.pods().list(&ListParams::default().labels(&format!("app={name}"))).await?.items;
        let is_right = |pod: &&Pod| {
            let spec = pod.spec.clone().unwrap();
            let nodes = of_nodes(&spec);
            let gates = spec.scheduling_gates.unwrap_or_default();
            let held = gates.iter().any(|gate| gate.name == "kueue.x-k8s.io/admission");
            let runs = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"));
            pod.metadata.deletion_timestamp.is_none()
                && nodes == of_flavor(flavor)
                && if flavor.is_some() { runs && gates.is_empty() } else { held }
        };
        let right = own.iter().filter(is_right).count();
        let reported: Vec<_> = own
            .iter()
            .map(|pod| {
                json!([
                    pod.spec.as_ref().map(|s| &s.scheduling_gates),
                    pod.status.as_ref().and_then(|s| s.phase.clone())
                ])
            })
            .collect();
        Ok(progress(
            right == PODS as usize && own.len() == right,
            format!("{right} of {}: {reported:?}", own.len()),
        ))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_declared_kind_that_nothing_suspends_wait_in_its_place() {
    const NAME: &str = "gated";
    let place = two_flavors(NAME, [0, 0]).await;
    let _controller = Passes::start(&place, pass);
    let [old, new] = flavors(NAME);
    let made = make(&place, "first").await;
    let annotations = &made.data["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["kueue.x-k8s.io/pod-suspending-parent"], "apps.kruise.io/cloneset");
    assert_eq!(annotations["kueue.x-k8s.io/pod-group-total-count"], "2");
    wait_until_on(&place, "first", None).await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    let found = serde_json::to_value(workload(&place, "cloneset-first-").await.unwrap().unwrap()).unwrap();
    assert_eq!(
        (&found["spec"]["podSets"][0]["name"], &found["spec"]["podSets"][0]["count"]),
        (&json!("main"), &json!(PODS))
    );
    assert_eq!(found["metadata"]["annotations"]["kueue.x-k8s.io/is-group-workload"], "true");
    let owner = &found["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("CloneSet"), &json!("first")));

    set_quota(&place, [PODS, 0]).await;
    wait_until_on(&place, "first", Some(&old)).await;
    wait_for_workload(&place, "cloneset-first-", "PodsReady", "True").await;
    // What its quota is for is fixed now, and so is its queue, as soon as its controller says that pods are ready.
    eventually("the queue to be fixed", DEADLINE, || async {
        let set = sets(&place.client, &place.name).get("first").await?;
        Ok(progress(set.data["status"]["readyReplicas"] == PODS, set.data["status"].to_string()))
    })
    .await
    .unwrap();
    for patch in [json!({"spec": {"replicas": 3}}), json!({"metadata": {"labels": {QUEUE_NAME: "other"}}})] {
        let refused = change(&place, "first", patch.clone()).await;
        assert!(refused.unwrap_err().to_string().contains("immutable"), "{patch}");
    }

    // One that waits is deleted.
    make(&place, "second").await;
    wait_until_on(&place, "second", None).await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    delete(&place, "second").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor.
    place.make_urgent(NAME, PODS).await.unwrap();
    wait_for_workload(&place, "cloneset-first-", "Evicted", "True/Preempted").await;
    wait_until_on(&place, "first", None).await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(&place, [PODS, PODS]).await;
    wait_until_on(&place, "first", Some(&new)).await;

    // Without replicas its quota is free, and its Workload stays; then it is queued again.
    change(&place, "first", json!({"spec": {"replicas": 0}})).await.unwrap();
    wait_for_workload(&place, "cloneset-first-", "QuotaReserved", "False/OnHold").await;
    change(&place, "first", json!({"spec": {"replicas": PODS}})).await.unwrap();
    wait_until_on(&place, "first", Some(&new)).await;

    // A pod that goes is replaced, on the quota that it had.
    let pods = place.pods().list(&ListParams::default().labels("app=first")).await.unwrap().items;
    let gone = pods[0].metadata.name.clone().unwrap();
    place.pods().delete(&gone, &DeleteParams::default()).await.unwrap();
    eventually("another pod to come in its place", DEADLINE, || async {
        let there = place.pods().get_opt(&gone).await?;
        Ok(progress(there.is_none(), format!("{there:?}")))
    })
    .await
    .unwrap();
    wait_until_on(&place, "first", Some(&new)).await;
    let found = serde_json::to_value(workload(&place, "cloneset-first-").await.unwrap().unwrap()).unwrap();
    assert!(reported(&found, "Admitted").starts_with("True"), "{}", reported(&found, "Admitted"));

    // One that runs is deleted.
    delete(&place, "first").await;
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    place.wait_until_empty().await.unwrap();
}
