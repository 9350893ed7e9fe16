//! The shipped definitions, applied by kubectl client-side and server-side: on a fresh API server, and over existing definitions with objects in both
//! versions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::Value;
use sluice_testkit::assets::workspace;
use sluice_testkit::kubectl::{apply, kubectl, try_kubectl};
use sluice_testkit::{ControlPlane, crds};

/// What converts without our webhook, one object in each version.
const OBJECTS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: new}
spec: {nodeLabels: {pool: a}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: old}
value: 7
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: new, resources: [{name: cpu, nominalQuota: 5}]}]
";

/// What one kind of `kubectl apply` says of each definition, in order.
async fn applied(plane: &ControlPlane, how: &[&str]) -> Vec<String> {
    let folder = workspace().join("config/crd").display().to_string();
    let printed = kubectl(plane, &[&["apply", "-k", &folder], how].concat()).await.unwrap();
    printed.lines().map(str::to_owned).collect()
}

/// The definitions' specs, as the API server keeps them.
async fn specs(plane: &ControlPlane) -> Vec<Value> {
    let list: Value =
        serde_json::from_str(&kubectl(plane, &["get", "crd", "-o", "json"]).await.unwrap()).unwrap();
    list["items"].as_array().unwrap().iter().map(|crd| crd["spec"].clone()).collect()
}

async fn wait_until_served(plane: &ControlPlane) {
    crds::wait_until_served(&plane.client().await.unwrap(), &sluice_api::crds()).await.unwrap();
}

/// Applies in one way to a fresh API server, then the same way again, then in the other way.
async fn everything_applies(first: &[&str], second: &[&str]) -> Vec<Value> {
    let plane = ControlPlane::builder().start().await.unwrap();
    let kinds = sluice_api::crds().len();
    let lines = applied(&plane, first).await;
    let fresh = |line: &String| line.ends_with(" created") || line.ends_with(" serverside-applied");
    assert!(lines.len() == kinds && lines.iter().all(fresh), "{lines:#?}");
    wait_until_served(&plane).await;
    apply(&plane, OBJECTS).await.unwrap();
    let before = specs(&plane).await;
    for how in [first, second] {
        let lines = applied(&plane, how).await;
        let quiet = |line: &String| {
            [" unchanged", " configured", " serverside-applied"].iter().any(|said| line.ends_with(said))
        };
        assert!(lines.len() == kinds && lines.iter().all(quiet), "{how:?}: {lines:#?}");
        // Plainly applied again, nothing is even written.
        let again = how == first && how.is_empty();
        assert!(!again || lines.iter().all(|line| line.ends_with(" unchanged")), "{lines:#?}");
        assert_eq!(specs(&plane).await, before, "{how:?}: the same definitions");
    }
    wait_until_served(&plane).await;
    for (object, path, expected) in [
        ("resourceflavors.v1beta1.kueue.x-k8s.io/new", "{.spec.nodeLabels.pool}", "a"),
        ("workloadpriorityclasses.v1beta2.kueue.x-k8s.io/old", "{.value}", "7"),
        ("clusterqueues.v1beta2.kueue.x-k8s.io/cq", "{.spec.queueingStrategy}", "BestEffortFIFO"),
    ] {
        let path = format!("jsonpath={path}");
        assert_eq!(kubectl(&plane, &["get", object, "-o", &path]).await.unwrap(), expected, "{object}");
    }
    // Strictly, as kubectl asks: what no version has is refused in both ways.
    let wrong = OBJECTS.replace("nodeLabels", "nodeLabel");
    for how in [first, second] {
        let args = [&["apply", "--dry-run=server", "-f", "-"], how].concat();
        let output = try_kubectl(&plane.kubeconfig_path(), &args, Some(&wrong)).await.unwrap();
        let reported = ["unknown field \"spec.nodeLabel\"", ".spec.nodeLabel: field not declared in schema"];
        assert!(!output.success && reported.iter().any(|t| output.stderr.contains(t)), "{how:?}: {output:?}");
    }
    plane.stop();
    before
}

/// The annotation of a plain apply holds the whole definition; the API server's limit for all annotations is 256 KiB.
const ROOM: usize = 240 * 1024;

#[test]
fn each_definition_fits_into_the_annotation_of_a_plain_apply_with_room_to_spare() {
    for crd in sluice_api::crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < ROOM, "{}: {size} bytes", crd.metadata.name.unwrap());
    }
}

#[tokio::test]
async fn definitions_apply_plainly_and_server_side_to_a_fresh_api_server_and_over_each_other() {
    let server_side = ["--server-side", "--force-conflicts"];
    let plain_first = everything_applies(&[], &server_side).await;
    let server_side_first = everything_applies(&server_side, &[]).await;
    assert_eq!(plain_first, server_side_first, "both ways come to the same definitions");
}
