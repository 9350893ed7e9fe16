//! A kind that only the configuration describes: its whole lifecycle, with a small controller for it.
//!
//! Nothing of the kind is built in. The chart derives the webhooks and the manager's rights from the declaration.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_testkit::plugin;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, reported};

use crate::bed::bed;
use crate::flavors::{flavors, of_flavor, of_nodes, set_quota, two_flavors};
use crate::passes::Passes;

pub const GROUP: &str = "declared.sluice.dev";
/// Pods of an errand, each of one processor.
const PODS: u32 = 2;
/// The label of a pod with the name of its errand.
const OF: &str = "errand";

/// The declaration.
pub fn declaration() -> Value {
    json!({
        "group": GROUP, "version": "v1", "kind": "Errand",
        "suspend": {"path": "spec.state", "suspended": "Paused", "running": "Going"},
        "podSets": [{"name": "main", "template": "spec.pod", "count": "self.spec.?workers.orValue(1)"}],
        "active": "self.status.running > 0",
        "ready": "self.status.running == self.spec.workers",
        "finished": "self.status.phase in ['Done', 'Broken']",
        "success": "self.status.phase == 'Done'",
        "message": "'the errand is ' + self.status.phase",
    })
}

/// The kind's CRD.
pub fn crd() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    });
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("errands.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "versions": [version],
            "names": {"kind": "Errand", "plural": "errands", "singular": "errand", "listKind": "ErrandList"},
        },
    }))
    .unwrap()
}

fn errands(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", "Errand");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, "errands"))
}

/// What runs errands: pods of those that are going, none of the others.
async fn pass(client: Client, namespace: String) -> kube::Result<()> {
    let (all, pods) = (errands(&client, &namespace), Api::<Pod>::namespaced(client.clone(), &namespace));
    for errand in all.list(&ListParams::default()).await? {
        let name = errand.metadata.name.clone().unwrap();
        let own = pods.list(&ListParams::default().labels(&format!("{OF}={name}"))).await?.items;
        let over = ["Done", "Broken"].iter().any(|phase| errand.data["status"]["phase"] == *phase);
        let goes =
            errand.data["spec"]["state"] != "Paused" && !over && errand.metadata.deletion_timestamp.is_none();
        // Also those that were made of what was read before it was held, and let go with other pods.
        let selector = &errand.data["spec"]["pod"]["spec"]["nodeSelector"];
        let is_stale =
            |pod: &Pod| json!(pod.spec.as_ref().and_then(|s| s.node_selector.as_ref())) != *selector;
        let wrong = own.iter().filter(|pod| !goes || is_stale(pod));
        for pod in wrong.filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
            let _ = pods.delete(pod.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await;
        }
        let wanted = errand.data["spec"]["workers"].as_u64().unwrap_or(1);
        for index in 0..wanted {
            let pod_name = format!("{name}-{index}");
            if !goes || own.iter().any(|pod| pod.metadata.name.as_deref() == Some(&*pod_name)) {
                continue;
            }
            let mut pod = errand.data["spec"]["pod"].clone();
            pod["metadata"]["name"] = json!(pod_name);
            pod["metadata"]["labels"][OF] = json!(name);
            pod["metadata"]["ownerReferences"] = json!([{
                "apiVersion": format!("{GROUP}/v1"), "kind": "Errand", "name": name, "controller": true,
                "uid": errand.metadata.uid,
            }]);
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await?;
        }
        if errand.data["status"]["running"].as_u64() != Some(own.len() as u64) {
            let status = Patch::Merge(json!({"status": {"running": own.len()}}));
            all.patch_status(&name, &PatchParams::default(), &status).await?;
        }
    }
    Ok(())
}

pub async fn make(place: &Place<'_>, name: &str) -> DynamicObject {
    let errand = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Errand",
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
        // Its user lets it go at once: the webhook holds it.
        "spec": {"state": "Going", "workers": PODS, "pod": {
            "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
            },
        }},
    });
    let errand: DynamicObject = serde_json::from_value(errand).unwrap();
    errands(&place.client, &place.name).create(&PostParams::default(), &errand).await.unwrap()
}

async fn delete(place: &Place<'_>, name: &str) {
    errands(&place.client, &place.name).delete(name, &DeleteParams::background()).await.unwrap();
}

/// Waits until all pods of an errand run on a flavor; until it is held and has no pods, if none is given.
async fn wait_until_on(place: &Place<'_>, name: &str, flavor: Option<&str>) {
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.name);
    eventually(&format!("{}/{name} to be on {flavor:?}", place.name), DEADLINE, || async {
        let errand = errands(&place.client, &place.name).get(name).await?;
        let own = pods.list(&ListParams::default().labels(&format!("{OF}={name}"))).await?;
        let runs = |pod: &&Pod| {
            pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
                && of_nodes(&pod.spec) == of_flavor(flavor)
        };
        let right = own.iter().filter(runs).count();
        let spec = &errand.data["spec"];
        let nodes = of_nodes(&spec["pod"]["spec"]) == of_flavor(flavor);
        let done = match flavor {
            Some(_) => {
                spec["state"] == "Going"
                    && right == PODS as usize
                    && own.items.len() == PODS as usize
                    && nodes
            }
            None => spec["state"] == "Paused" && own.items.is_empty() && nodes,
        };
        Ok(progress(done, format!("{} of {} pods, {spec}", right, own.items.len())))
    })
    .await
    .unwrap();
}

/// What `kubectl kueue` says.
pub async fn plugin_says(words: &[&str]) -> String {
    let kubeconfig = bed().await.plane.kubeconfig_path().display().to_string();
    let words: Vec<_> = words.iter().map(ToString::to_string).collect();
    let ran = tokio::task::spawn_blocking(move || {
        Command::new(plugin().unwrap()).args(&words).args(["--kubeconfig", &kubeconfig]).output().unwrap()
    });
    let output = ran.await.unwrap();
    let (said, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}{errors}");
    said
}

/// The plugin has no configuration of its own: of the kind, only the manager knows.
async fn the_plugin_knows_it(place: &Place<'_>, workload: &str) {
    let manager = format!("http://127.0.0.1:{}", bed().await.manager.setup().health);
    let namespace = place.name.as_str();
    for word in ["errand/first", "errands.declared.sluice.dev/first"] {
        let words = ["explain", word, "-n", namespace, "-o", "json", "--manager-url", &manager];
        let explained: Value = serde_json::from_str(&plugin_says(&words).await).unwrap();
        assert_eq!(explained["state"], "waiting", "{explained}");
    }
    let words = ["list", "workload", "--for", "errand.declared.sluice.dev/first", "-n", namespace];
    let listed = plugin_says(&words).await;
    assert!(listed.contains(workload) && listed.contains("errand"), "{listed}");
    plugin_says(&["stop", "workload", workload, "-n", namespace]).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    plugin_says(&["resume", "workload", workload, "-n", namespace]).await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
}

/// The policy that keeps a job from losing its pods looks at conditions, which may be anything.
async fn is_written_whatever_its_conditions_are(place: &Place<'_>, name: &str) {
    let all = errands(&place.client, &place.name);
    let odd = [
        json!(null),
        json!({"a": "b"}),
        json!("ready"),
        json!(["ready", null]),
        json!([{"type": 1, "status": []}]),
    ];
    for (round, conditions) in odd.into_iter().enumerate() {
        eventually(&format!("conditions {conditions}"), DEADLINE, || async {
            let mut errand = all.get(name).await?;
            errand.data["status"]["conditions"] = conditions.clone();
            let written = all.replace_status(name, &PostParams::default(), &errand).await;
            Ok(progress(written.is_ok(), format!("{written:?}")))
        })
        .await
        .unwrap();
        let note =
            Patch::Merge(json!({"metadata": {"annotations": {"example.com/round": round.to_string()}}}));
        let written = all.patch(name, &PatchParams::default(), &note).await.unwrap();
        assert_eq!(written.data["status"]["conditions"], conditions);
    }
}

#[tokio::test]
async fn a_declared_kind_lives_through_everything_that_can_become_of_a_job() {
    const NAME: &str = "declared";
    let place = two_flavors(NAME, [0, 0]).await;
    let _controller = Passes::start(&place, pass);
    let [old, new] = flavors(NAME);
    let made = make(&place, "first").await;
    assert_eq!(made.data["spec"]["state"], "Paused", "the webhook holds what names a queue");
    wait_until_on(&place, "first", None).await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    let workload = place.workload("first").await.unwrap();
    assert_eq!(workload["spec"]["podSets"][0]["count"], PODS);

    the_plugin_knows_it(&place, workload["metadata"]["name"].as_str().unwrap()).await;

    // One that its user lets go without quota is held again.
    let go = Patch::Merge(json!({"spec": {"state": "Going"}}));
    errands(&place.client, NAME).patch("first", &PatchParams::default(), &go).await.unwrap();
    wait_until_on(&place, "first", None).await;

    set_quota(&place, [PODS, 0]).await;
    wait_until_on(&place, "first", Some(&old)).await;
    place.wait_for_condition("first", "PodsReady", "True").await.unwrap();

    // One that waits is deleted.
    make(&place, "second").await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    is_written_whatever_its_conditions_are(&place, "second").await;
    delete(&place, "second").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor.
    place.make_urgent(NAME, PODS).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    wait_until_on(&place, "first", None).await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(&place, [PODS, PODS]).await;
    wait_until_on(&place, "first", Some(&new)).await;

    // It ends.
    let done = Patch::Merge(json!({"status": {"phase": "Done"}}));
    errands(&place.client, NAME).patch_status("first", &PatchParams::default(), &done).await.unwrap();
    place.wait_for_condition("first", "Finished", "True/Succeeded").await.unwrap();
    let finished = reported(&place.workload("first").await.unwrap(), "Finished");
    assert!(finished.contains("the errand is Done"), "{finished}");
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // An object that cannot be read gets a reason, and does not run.
    let broken = errands(&place.client, NAME);
    make(&place, "broken").await;
    let unreadable = Patch::Merge(json!({"spec": {"workers": "many"}}));
    broken.patch("broken", &PatchParams::default(), &unreadable).await.unwrap();
    place.wait_for_event("Errand/broken", "ErrWorkloadCompose", "must be an integer").await.unwrap();
    wait_until_on(&place, "broken", None).await;
    delete(&place, "broken").await;

    // One that runs is deleted.
    make(&place, "third").await;
    wait_until_on(&place, "third", Some(&new)).await;
    delete(&place, "third").await;
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}
