//! Flux MiniClusters, which are queued as the Jobs that the Flux operator makes of them: queued, admitted, moved to another flavor, made
//! smaller, ended and deleted.
//!
//! The operator is a stand-in. See `sluice_testkit::flux`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_jobs::JobMaker;
use sluice_testkit::flux;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, reported};

use crate::bed::bed;
use crate::declared::plugin_says;
use crate::flavors::{flavors, of_flavor, of_nodes, set_quota, two_flavors};

/// A MiniCluster of `size` pods, each of which asks for one processor.
fn mini_cluster(name: &str, size: usize, seconds: u32) -> Value {
    json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "metadata": {"name": name},
        "spec": {
            "size": size,
            "jobLabels": {QUEUE_NAME: "lq"},
            "pod": {"annotations": {"sluice.dev/run-seconds": seconds.to_string()}},
            "containers": [{"image": "none", "command": "hostname", "resources": {"requests": {"cpu": 1}}}],
        },
    })
}

async fn make(place: &Place<'_>, name: &str, size: usize, seconds: u32) {
    let object = serde_json::from_value(mini_cluster(name, size, seconds)).unwrap();
    flux::mini_clusters(&place.client, &place.name).create(&PostParams::default(), &object).await.unwrap();
}

async fn delete(place: &Place<'_>, name: &str) {
    flux::mini_clusters(&place.client, &place.name).delete(name, &DeleteParams::background()).await.unwrap();
}

async fn resize(place: &Place<'_>, name: &str, size: usize) {
    let body = Patch::Merge(json!({"spec": {"size": size}}));
    flux::mini_clusters(&place.client, &place.name)
        .patch(name, &PatchParams::default(), &body)
        .await
        .unwrap();
}

async fn pods(place: &Place<'_>, name: &str) -> Vec<Value> {
    let all: Api<Pod> = Api::namespaced(place.client.clone(), &place.name);
    let own = ListParams::default().labels(&format!("job-name={name}"));
    let pods = all.list(&own).await.unwrap();
    pods.iter().map(|pod| serde_json::to_value(pod).unwrap()).collect()
}

async fn job(place: &Place<'_>, name: &str) -> Value {
    serde_json::to_value(place.jobs().get(name).await.unwrap()).unwrap()
}

/// Waits until `size` pods of it run, as many as are admitted, and none but on the nodes of this flavor.
async fn wait_until_it_runs_on(place: &Place<'_>, name: &str, flavor: &str, size: usize) {
    eventually(&format!("{}/{name} to run on {flavor}", place.name), DEADLINE, || async {
        let pods = pods(place, name).await;
        let right = |pod: &&Value| {
            pod["status"]["phase"] == "Running" && of_nodes(&pod["spec"]) == of_flavor(Some(flavor))
        };
        let all = pods.len() == size && pods.iter().filter(right).count() == size;
        let of = |pod: &Value| format!("{} {}", pod["status"]["phase"], pod["spec"]["nodeSelector"]);
        // Its controller may be faster than the one that suspends it.
        let workload = place.workload(name).await?;
        let (count, admitted) = (&workload["spec"]["podSets"][0]["count"], reported(&workload, "Admitted"));
        let in_order = *count == size && admitted.starts_with("True");
        let pods: Vec<_> = pods.iter().map(of).collect();
        Ok(progress(all && in_order, format!("{pods:?}, {count} in its Workload, {admitted}")))
    })
    .await
    .unwrap();
    let job = job(place, name).await;
    assert_eq!(of_nodes(&job["spec"]["template"]["spec"]), of_flavor(Some(flavor)));
    assert_eq!([&job["spec"]["parallelism"], &job["spec"]["completions"]], [size, size]);
}

/// Waits until its Job is suspended, has no pods, and nothing of an admission is left in it.
async fn wait_until_it_waits(place: &Place<'_>, name: &str) {
    eventually(&format!("{}/{name} to wait", place.name), DEADLINE, || async {
        let job = serde_json::to_value(place.jobs().get(name).await?)?;
        let suspended = job["spec"]["suspend"] == true;
        let nodes = &job["spec"]["template"]["spec"]["nodeSelector"];
        let left = pods(place, name).await.len();
        Ok(progress(
            suspended && left == 0 && nodes.is_null(),
            format!("suspended: {suspended}, {left} pods, for the nodes {nodes}"),
        ))
    })
    .await
    .unwrap();
}

/// The plugin takes its name for that of its Job.
async fn the_plugin_knows_it(place: &Place<'_>) {
    let manager = format!("http://127.0.0.1:{}", bed().await.manager.setup().health);
    for word in ["minicluster/first", "miniclusters.flux-framework.org/first"] {
        let words = ["explain", word, "-n", &place.name, "-o", "json", "--manager-url", &manager];
        let explained: Value = serde_json::from_str(&plugin_says(&words).await).unwrap();
        assert_eq!(explained["state"], "waiting", "{explained}");
        let listed = plugin_says(&["list", "workload", "--for", word, "-n", &place.name]).await;
        assert!(listed.contains("job-first-"), "{listed}");
    }
}

#[tokio::test]
async fn a_minicluster_is_queued_as_its_job() {
    const SIZE: usize = 3;
    let place = &two_flavors("flux", [0, 0]).await;
    let _operator = flux::start(&place.client, &place.name).await.unwrap();
    let [old, new] = flavors("flux");
    let most = u32::try_from(SIZE).unwrap();

    make(place, "first", SIZE, 3_600).await;
    let admitted = reported(&place.workload("first").await.unwrap(), "Admitted");
    assert!(!admitted.starts_with("True"), "{admitted}");
    wait_until_it_waits(place, "first").await;
    the_plugin_knows_it(place).await;
    set_quota(place, [most, 0]).await;
    wait_until_it_runs_on(place, "first", &old, SIZE).await;

    // One that waits is made smaller, and deleted.
    make(place, "second", SIZE, 3_600).await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    wait_until_it_waits(place, "second").await;
    resize(place, "second", 2).await;
    eventually("the smaller one to be queued", DEADLINE, || async {
        let count = place.workload("second").await?["spec"]["podSets"][0]["count"].clone();
        Ok(progress(count == 2, count))
    })
    .await
    .unwrap();
    wait_until_it_waits(place, "second").await;
    delete(place, "second").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor.
    place.make_urgent("flux", most).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    wait_until_it_waits(place, "first").await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(place, [most, most]).await;
    wait_until_it_runs_on(place, "first", &new, SIZE).await;

    // Made smaller while it runs, it is queued again with its new size. It may not grow beyond the one that it was made with.
    resize(place, "first", 2).await;
    wait_until_it_runs_on(place, "first", &new, 2).await;
    resize(place, "first", 50).await;
    wait_until_it_runs_on(place, "first", &new, SIZE).await;
    delete(place, "first").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // One that ends gives its quota back.
    make(place, "brief", 2, 1).await;
    place.wait_for_condition("brief", "Finished", "True/Succeeded").await.unwrap();
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

/// A value without the fields of maps that are null.
fn said(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key, said(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(said).collect(),
        other => other,
    }
}

/// `simulate` plays the one, the stories run the other.
#[test]
fn the_job_that_the_stand_in_makes_is_the_simulated_one() {
    let cluster = json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "metadata": {"name": "a", "uid": "u"},
        "spec": {
            "size": 3, "deadlineSeconds": 60, "backoffLimit": 2, "jobLabels": {QUEUE_NAME: "lq"},
            "pod": {
                "labels": {"team": "x"}, "annotations": {"sluice.dev/run-seconds": "5"}, "nodeSelector": {"zone": "a"},
                "tolerations": [{"key": "spot"}], "runtimeClassName": "r", "schedulerName": "s",
            },
            "containers": [
                {"image": "none", "command": "hostname", "resources": {"requests": {"cpu": 1}}},
                {"name": "side", "image": "other", "resources": {"limits": {"memory": "1Gi"}}},
            ],
        },
    });
    let simulated = JobMaker::of(&cluster).unwrap().job_of(&cluster).unwrap();
    let object: DynamicObject = serde_json::from_value(cluster).unwrap();
    let mut made = said(flux::job(&object));
    // What the operator needs for itself, and no queue.
    let template = &mut made["spec"]["template"];
    for own in ["app.kubernetes.io/name", "namespace", "hpa-selector"] {
        template["metadata"]["labels"].as_object_mut().unwrap().remove(own);
    }
    for own in ["subdomain", "setHostnameAsFQDN"] {
        template["spec"].as_object_mut().unwrap().remove(own).unwrap();
    }
    assert_eq!(made, simulated);
}
