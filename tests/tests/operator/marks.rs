//! An admission check whose controller marks pods by their admitted flavor, with labels and annotations, as provisioning marks the pods for its
//! nodes. The test is that controller.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::pin::pin;

use futures::StreamExt as _;
use futures::future::{Either, select};
use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sluice_testkit::workloads::holds;
use sluice_tests::place::{Place, create, patch};

use crate::flavors::{of_flavor, of_nodes};

/// The keys of labels and annotations. Pods of the first flavor have both: what merges the marks of two flavors keeps the second.
const MARKS: [&str; 2] = ["test-mark", "test-old-mark"];

/// The marks of a flavor.
fn of(flavor: &str) -> Value {
    let [mark, old] = MARKS;
    if flavor.ends_with("-old") { json!({mark: flavor, old: "yes"}) } else { json!({mark: flavor}) }
}

/// What every start adds to a template besides, and every stop takes away: the Workload, its pod set and its queues.
const ADDED: [(&str, &str); 5] = [
    ("annotations", "kueue.x-k8s.io/workload"),
    ("annotations", "kueue.x-k8s.io/podset-unconstrained-topology"),
    ("labels", "kueue.x-k8s.io/podset"),
    ("labels", "kueue.x-k8s.io/local-queue-name"),
    ("labels", "kueue.x-k8s.io/cluster-queue-name"),
];

/// Those of them that what was admitted without a topology has.
fn added(is_admitted: bool) -> Vec<&'static str> {
    let added = ADDED.into_iter().map(|(_, key)| key).filter(|key| !key.ends_with("topology"));
    added.filter(|_| is_admitted).collect()
}

/// What a pod, or a template, says of nodes, how it is marked, and what a start has added to it.
pub fn of_pod(pod: impl Serialize) -> Value {
    let pod = json!(pod);
    let has = |(map, key): &(&str, &str)| !pod["metadata"][*map][*key].is_null();
    let added: Vec<_> = ADDED.into_iter().filter(has).map(|(_, key)| key).collect();
    let marked = |map: &str| -> Map<String, Value> {
        let all = pod["metadata"][map].as_object().into_iter().flatten();
        let marks = all.filter(|(key, _)| MARKS.contains(&key.as_str()));
        marks.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let nodes = of_nodes(&pod["spec"]);
    with_marks(nodes, &pod["spec"]["affinity"], &added, ["labels", "annotations"].map(marked))
}

fn with_marks(
    mut nodes: Value,
    affinity: &Value,
    added: &[&str],
    [labels, annotations]: [impl Serialize; 2],
) -> Value {
    nodes["affinity"] = affinity.clone();
    nodes["added"] = json!(added);
    nodes["labels"] = json!(labels);
    nodes["annotations"] = json!(annotations);
    nodes
}

/// The same of what was admitted to a flavor of the place, or to none.
pub async fn expected(place: &Place<'_>, flavor: Option<&str>) -> Value {
    let queue = place.cluster_queues().get(&place.name).await.unwrap();
    let is_on = queue.data["spec"]["admissionChecksStrategy"].is_object();
    let marks = flavor.filter(|_| is_on).map_or(json!({}), of);
    with_marks(of_flavor(flavor), &Value::Null, &added(flavor.is_some()), [&marks, &marks])
}

/// Plays a story in a place whose queue has the check.
pub async fn while_marking<T>(place: &Place<'_>, story: impl Future<Output = T>) -> T {
    let checks = place.global("AdmissionCheck", "admissionchecks");
    let check =
        json!({"metadata": {"name": place.name}, "spec": {"controllerName": "test.sluice.dev/marks"}});
    create(&checks, check).await.unwrap();
    let active = json!({
        "type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": Timestamp::now().to_string(),
    });
    let status = Patch::Merge(json!({"status": {"conditions": [active]}}));
    checks.patch_status(&place.name, &PatchParams::default(), &status).await.unwrap();
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": place.name}]}});
    patch(&place.cluster_queues(), &place.name, json!({"spec": strategy})).await.unwrap();
    match select(Box::pin(story), Box::pin(answer(place))).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => unreachable!("the watch of {} ended", place.name),
    }
}

/// Answers for each Workload that has quota.
async fn answer(place: &Place<'_>) {
    let watch = watcher(place.workloads(), watcher::Config::default()).default_backoff();
    let mut changed = pin!(watch.applied_objects());
    while let Some(seen) = changed.next().await {
        // What was missed is seen again.
        let Ok(object) = seen else { continue };
        let workload = json!(object);
        let waits = workload["status"]["admissionChecks"][0]["state"] == "Pending";
        if waits && holds(&workload, "QuotaReserved") && !holds(&workload, "Evicted") {
            mark(place, &object, &workload["status"]["admission"]["podSetAssignments"]).await;
        }
    }
}

async fn mark(place: &Place<'_>, object: &DynamicObject, assignments: &Value) {
    let update = |assignment: &Value| {
        let marks = of(assignment["flavors"]["cpu"].as_str().unwrap());
        json!({"name": assignment["name"], "labels": marks, "annotations": marks})
    };
    let updates: Vec<_> = assignments.as_array().unwrap().iter().map(update).collect();
    let check = json!({
        "name": place.name, "state": "Ready", "message": "", "podSetUpdates": updates,
        "lastTransitionTime": Timestamp::now().to_string(),
    });
    let answer = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version}, "status": {"admissionChecks": [check]},
    });
    let name = object.metadata.name.as_deref().unwrap();
    match place.workloads().patch_status(name, &PatchParams::default(), &Patch::Merge(answer)).await {
        // It changed, so that it is seen again; or it is gone.
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
        answered => drop(answered.unwrap()),
    }
}
