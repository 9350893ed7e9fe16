//! Admitted jobs whose pods get no node, with the messages of the real scheduler: each remedy is carried out, and the pods run.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use sluice_testkit::nodes::{self, Pool};
use sluice_tests::place::{Place, create, job, patch, quota};

use super::advice::{follow, found, found_and, remedy, wait_for_pods};
use super::*;
use crate::bed::bed;
use crate::flavors::POOL;

/// A place whose flavor is for nodes of its own, with more quota than these have.
async fn place(name: &'static str, more: &Value) -> Place<'static> {
    let place = Place::bare(bed().await.plane, name).await.unwrap();
    let mut spec = json!({"nodeLabels": {POOL: name}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let flavors = place.global("ResourceFlavor", "resourceflavors");
    create(&flavors, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    let spec = json!({"namespaceSelector": {}, "resourceGroups": [quota(name, 1_000)]});
    create(&place.cluster_queues(), json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    place.local_queue("lq", name).await.unwrap();
    place
}

fn pool(place: &Place<'_>, name: &str) -> Pool {
    nodes::pool(&format!("{}-{name}", place.name), 1).label(POOL, &place.name)
}

/// A Job of one pod, with this in the pod's spec.
async fn make(place: &Place<'_>, cpu: u32, more: Value) {
    let mut job = job("mine", "lq", cpu, 1, 3_600);
    for (key, value) in more.as_object().into_iter().flatten() {
        job["spec"]["template"]["spec"][key] = value.clone();
    }
    place.make_job(&job).await.unwrap();
}

/// The answer, once the scheduler has said that.
async fn pending(place: &Place<'_>, said: &str) -> Value {
    found_and(place, "mine", &["PodsNotReady", "PodsPending"], said).await
}

/// Nothing is left to say.
async fn is_well(place: &Place<'_>) {
    wait_for_pods(place, "mine", 1).await;
    found(place, "mine", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_without_room_run_after_a_preemption_or_on_a_node_that_is_added() {
    let place = place("explain-room", &json!({})).await;
    pool(&place, "small").allocatable("cpu", "2").make(&place.client).await.unwrap();
    make(&place, 4, json!({})).await;
    let answer = pending(&place, "Insufficient cpu").await;
    follow(&place, remedy(&answer, "or stop the Workload, lower the quota")).await;
    let gone = "\"state\": \"deactivated\"";
    let answer = found_and(&place, "mine", &["EvictedBefore", "Inactive"], gone).await;
    let text = answer["findings"].to_string();
    assert!(text.contains("it is deactivated by a user or another program"), "{text}");
    follow(&place, remedy(&answer, "starts now: fix the cause, then activate the Workload again")).await;
    let answer = pending(&place, "Insufficient cpu").await;
    remedy(&answer, "add nodes: the quota of the flavor promises more");
    // That it was evicted its conditions do not say any more.
    let history = answer["history"].to_string();
    assert!(history.contains(" EvictedDueToDeactivated: "), "{history}");
    pool(&place, "large").allocatable("cpu", "8").make(&place.client).await.unwrap();
    is_well(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_do_not_tolerate_their_nodes_run_when_the_flavor_knows_the_taint() {
    let place = place("explain-taint", &json!({})).await;
    pool(&place, "costly").taint("costly", "yes", "NoSchedule").make(&place.client).await.unwrap();
    make(&place, 1, json!({})).await;
    let answer = pending(&place, "untolerated taint").await;
    let advice =
        remedy(&answer, "add the taint to nodeTaints and a toleration to tolerations of the ResourceFlavor");
    let taint = json!({"key": "costly", "value": "yes", "effect": "NoSchedule"});
    let tolerates = json!({"key": "costly", "operator": "Exists", "effect": "NoSchedule"});
    let spec = json!({"spec": {"nodeTaints": [taint], "tolerations": [tolerates]}});
    patch(&place.global("ResourceFlavor", "resourceflavors"), &place.name, spec).await.unwrap();
    follow(&place, advice).await;
    is_well(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_whose_nodes_lack_labels_or_are_cordoned_run_when_these_are_mended() {
    let place = place("explain-labels", &json!({})).await;
    nodes::pool(&place.name, 1).make(&place.client).await.unwrap();
    let node = format!("{}-0", place.name);
    kubectl(place.plane, &["cordon", &node]).await.unwrap();
    make(&place, 1, json!({})).await;
    let answer = pending(&place, "node affinity/selector").await;
    remedy(&answer, "give nodes the labels that the flavor (nodeLabels) and the pods ask for");
    kubectl(place.plane, &["label", "node", &node, &format!("{POOL}={}", place.name)]).await.unwrap();
    let answer = pending(&place, "were unschedulable").await;
    remedy(&answer, "make the nodes that are cordoned schedulable again (kubectl uncordon NODE)");
    kubectl(place.plane, &["uncordon", &node]).await.unwrap();
    is_well(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_without_their_volume_run_when_it_is_made() {
    let place = place("explain-volume", &json!({})).await;
    pool(&place, "one").make(&place.client).await.unwrap();
    let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data"}});
    make(&place, 1, json!({"volumes": [claim]})).await;
    let answer = pending(&place, "persistentvolumeclaim").await;
    let advice = remedy(&answer, "create the PersistentVolumeClaims that the pods name");
    follow(&place, advice).await;
    let size = json!({"storage": "1Gi"});
    let modes = json!(["ReadWriteOnce"]);
    let volume = json!({
        "metadata": {"name": place.name},
        "spec": {"capacity": size, "accessModes": modes, "storageClassName": "", "hostPath": {"path": "/none"}},
    });
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": modes, "storageClassName": "", "volumeName": place.name, "resources": {"requests": size}},
    });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(place.client.clone(), &place.name);
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    // It is there now, and nothing is bound to it.
    let answer = pending(&place, "unbound immediate PersistentVolumeClaims").await;
    let described = follow(&place, remedy(&answer, "create the PersistentVolumeClaims")).await;
    assert!(described.contains("Name:          data") && described.contains("Pending"), "{described}");
    let volumes: Api<PersistentVolume> = Api::all(place.client.clone());
    volumes.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    is_well(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_want_a_port_that_others_have_run_when_it_is_free() {
    let place = place("explain-ports", &json!({})).await;
    pool(&place, "one").make(&place.client).await.unwrap();
    let with_port = async |name: &str| {
        let mut job = job(name, "lq", 1, 1, 3_600);
        let ports = json!([{"containerPort": 80, "hostPort": 8_080}]);
        job["spec"]["template"]["spec"]["containers"][0]["ports"] = ports;
        place.make_job(&job).await.unwrap();
    };
    with_port("first").await;
    wait_for_pods(&place, "first", 1).await;
    with_port("mine").await;
    let answer = pending(&place, "didn't have free ports").await;
    let advice = remedy(&answer, "change the nodes or the pods as the scheduler's message says");
    let described = follow(&place, advice).await;
    assert!(described.contains("8080/TCP"), "{described}");
    place.delete_job("first").await.unwrap();
    is_well(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_with_a_gate_of_another_program_run_when_it_takes_the_gate_away() {
    let place = place("explain-gate", &json!({})).await;
    pool(&place, "one").make(&place.client).await.unwrap();
    make(&place, 1, json!({"schedulingGates": [{"name": "example.com/hold"}]})).await;
    let answer = pending(&place, "SchedulingGated").await;
    remedy(&answer, "see which scheduling gates the pods have");
    let name = answer["pendingPods"][0]["name"].as_str().unwrap();
    let free = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    place.pods().patch(name, &PatchParams::default(), &free).await.unwrap();
    is_well(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_scheduler_that_does_not_run_run_when_it_does() {
    let place = place("explain-scheduler", &json!({})).await;
    pool(&place, "one").make(&place.client).await.unwrap();
    make(&place, 1, json!({"schedulerName": "example.com-other"})).await;
    let answer = pending(&place, "").await;
    remedy(&answer, "see whether the scheduler runs that the pods name in spec.schedulerName");
    let pod = answer["pendingPods"][0]["name"].as_str().unwrap();
    // What that scheduler would do.
    let node = format!("{}-one-0", place.name);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let pods: Api<Pod> = place.pods();
    let _: Value = pods.create_subresource("binding", pod, &PostParams::default(), &binding).await.unwrap();
    is_well(&place).await;
}
