//! Parents that other controllers manage (`integrations.externalFrameworks`), of an invented kind whose CRD has its own plural. The test is their
//! controller: it makes their Workloads and unsuspends their jobs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create, job};

use crate::bed::bed;
use crate::flavors::{set_quota, two_flavors};

const GROUP: &str = "external.sluice.dev";
/// The plural of the CRD: not the usual one.
pub const PLURAL: &str = "voyages";
/// The kind in the configuration.
pub const ENTRY: &str = "Tour.v1.external.sluice.dev";

/// The kind's CRD.
pub fn crd() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{PLURAL}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": [version],
            "names": {"kind": "Tour", "plural": PLURAL, "singular": "tour", "listKind": "TourList"},
        },
    }))
    .unwrap()
}

fn tours(place: &Place<'_>) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", "Tour");
    Api::namespaced_with(place.client.clone(), &place.name, &ApiResource::from_gvk_with_plural(&kind, PLURAL))
}

/// Makes a tour, in a queue or in none; its UID.
async fn tour(place: &Place<'_>, name: &str, queue: Option<&str>) -> String {
    let labels = queue.map(|queue| json!({QUEUE_NAME: queue}));
    let object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Tour",
        "metadata": {"name": name, "labels": labels}, "spec": {"anything": [1, "two"]}});
    let made = tours(place).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
    made.unwrap().metadata.uid.unwrap()
}

fn owner(name: &str, uid: &str) -> Value {
    owner_in("v1", name, uid)
}

fn owner_in(version: &str, name: &str, uid: &str) -> Value {
    json!([{"apiVersion": format!("{GROUP}/{version}"), "kind": "Tour", "name": name, "uid": uid,
        "controller": true}])
}

/// A job of a processor that a tour controls, or that says so. It is to run at once.
async fn child(place: &Place<'_>, name: &str, queue: Option<&str>, owners: &Value) {
    let mut child = job(name, "lq", 1, 1, 3_600);
    child["metadata"]["labels"] = json!(queue.map(|queue| json!({QUEUE_NAME: queue})));
    child["metadata"]["ownerReferences"] = owners.clone();
    child["spec"]["suspend"] = json!(false);
    place.make_job(&child).await.unwrap();
}

/// The Workload that the controller of tours makes: for one pod.
async fn workload(place: &Place<'_>, name: &str, uid: &str) {
    let template = job("any", "lq", 1, 1, 1)["spec"]["template"].clone();
    let spec = json!({"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]});
    let metadata = json!({"name": format!("tour-{name}"), "ownerReferences": owner(name, uid)});
    create(&place.workloads(), json!({"metadata": metadata, "spec": spec})).await.unwrap();
}

async fn resume(place: &Place<'_>, name: &str) {
    place.patch_job(name, json!({"spec": {"suspend": false}})).await.unwrap();
}

/// Waits until a job runs as it says: it has an active pod.
async fn wait_until_active(place: &Place<'_>, name: &str) {
    eventually(&format!("{}/{name} to have a pod", place.name), DEADLINE, || async {
        let status = place.jobs().get(name).await?.status.unwrap_or_default();
        Ok(progress(status.active == Some(1), format!("{status:?}")))
    })
    .await
    .unwrap();
}

/// Waits until a job has a Workload of its own that waits.
async fn wait_until_it_is_queued(place: &Place<'_>, name: &str) {
    place.wait_for_condition(name, "QuotaReserved", "False").await.unwrap();
    assert!(place.suspended(name).await.unwrap(), "{name}");
}

/// What the manager says of a Job.
async fn explanation(place: &Place<'_>, job: &str) -> String {
    let page = format!("/debug/explain/{}/{job}?kind=job", place.name);
    let (status, text) = bed().await.manager.health(&page).await.unwrap();
    assert_eq!(status, 200, "{text}");
    text
}

/// A pod that a tour controls, or that says so; its scheduling gates.
async fn pod(place: &Place<'_>, name: &str, owners: &Value) -> usize {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}, "ownerReferences": owners},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    });
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.name);
    let made = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    made.spec.unwrap().scheduling_gates.unwrap_or_default().len()
}

#[tokio::test]
async fn jobs_of_a_parent_that_others_manage_run_on_its_quota_alone() {
    let place = two_flavors("external", [0, 0]).await;
    let of = tour(&place, "grand", Some("lq")).await;
    child(&place, "plain", None, &owner("grand", &of)).await;
    child(&place, "queued", Some("lq"), &owner("grand", &of)).await;
    let both = ["plain", "queued"];
    for name in both {
        place.wait_until(name, false).await.unwrap();
    }
    place.wait_for_event("Job/plain", "Suspended", "Kueue managed child job suspended").await.unwrap();
    workload(&place, "grand", &of).await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    let explained = explanation(&place, "plain").await;
    assert!(explained.contains("it runs on the quota of the tour grand"), "{explained}");
    assert!(explained.contains("kubectl kueue explain workload tour-grand -n external"), "{explained}");
    // What its controller releases too early is held again.
    resume(&place, "plain").await;
    place.wait_until("plain", false).await.unwrap();

    set_quota(&place, [1, 0]).await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    for name in both {
        resume(&place, name).await;
        wait_until_active(&place, name).await;
    }

    // What only names it does not run: with a UID that is not its, or in the name of a tour that is not there. Kubernetes' garbage collector takes
    // it away.
    let free = tour(&place, "free", None).await;
    for (name, owners) in [("another-uid", owner("grand", &free)), ("made-up", owner("nothing", &of))] {
        child(&place, name, Some("lq"), &owners).await;
        eventually(&format!("{name} to be collected"), DEADLINE, || async {
            let job = place.jobs().get_opt(name).await?;
            let held =
                job.as_ref().is_none_or(|job| job.spec.as_ref().is_some_and(|s| s.suspend == Some(true)));
            assert!(held, "{name} runs");
            Ok(progress(job.is_none(), "it is there".to_owned()))
        })
        .await
        .unwrap();
    }
    // It leaves what names a version that is not served: that is queued like any other, and so is what names a tour without a queue.
    for (name, owners) in
        [("made-up-version", owner_in("v9", "nothing", &of)), ("of-a-free-tour", owner("free", &free))]
    {
        child(&place, name, Some("lq"), &owners).await;
        wait_until_it_is_queued(&place, name).await;
    }
    child(&place, "free", None, &owner("free", &free)).await;
    wait_until_active(&place, "free").await;
    let explained = explanation(&place, "free").await;
    assert!(explained.contains("it names no queue, so it is not managed and runs at once"), "{explained}");
    place.wait_for_counts([2, 1, 1]).await.unwrap();

    // Pods are queued themselves here, but not those of a tour that is.
    assert_eq!(pod(&place, "of-it", &owner("grand", &of)).await, 0);
    for (name, owners) in [("forged", owner("grand", "none")), ("of-a-free-one", owner("free", &free))] {
        assert_ne!(pod(&place, name, &owners).await, 0, "{name}");
    }

    // Its quota is gone: so are its jobs.
    place.workloads().delete("tour-grand", &DeleteParams::default()).await.unwrap();
    for name in both {
        place.wait_until(name, false).await.unwrap();
    }
}
