//! The rules of the webhooks, through a real API server and a manager that answers although it does not lead: in both versions, with gates on and
//! off, and what all users can still do when it has stopped. Each rule by itself is tested in `sluice-api`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod cases;
mod older;

use crate::bed::reviewed;
use crate::rules::table::Table;
use kube::Client;
use serde_json::{Value, json};
use sluice_testkit::kubectl::{self, Output, apply, try_kubectl};
use sluice_testkit::{ControlPlane, Manager, chart, crds};
use sluice_tests::place::DEADLINE;

/// The gates whose rules are tested on and off, the other way round than they are by default.
const GATES: &str = "WorkloadValidateResourcesAreNonNegative=false,WorkloadValidationForPodSetMetadata=false,\
                     TASValidateWorkloadSliceSize=false,PartialAdmission=false,PriorityBoost=true,ConcurrentAdmission=true";

#[tokio::test]
async fn rules_hold_through_the_webhooks_and_no_others_are_held_up_without_them() {
    let (_turn, plane, setup) = reviewed().await;
    let client = plane.client().await.unwrap();
    let manager = Manager::start(plane, setup.clone()).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    wait_for_webhooks(&client).await;

    let mut reports = vec![
        ("cluster_queue", cases::cluster_queue(Table::new(&client, "ClusterQueue", cases::queue())).await),
        ("cohort", cases::cohort(Table::new(&client, "Cohort", json!({}))).await),
        ("resource_flavor", cases::resource_flavor(Table::new(&client, "ResourceFlavor", json!({}))).await),
        ("workload", cases::workload(Table::new(&client, "Workload", cases::workload_base())).await),
        ("gates_by_default", cases::gates(&client, true).await),
        ("v1beta1", older::rules(&client).await),
    ];
    mutations(plane, true).await;
    the_older_version_obeys_the_same_rules(plane).await;
    a_check_that_an_older_manifest_replaces_is_gone(plane).await;
    manager.stop().await.unwrap();

    without_the_manager(plane).await;

    let manager = Manager::start(plane, setup.arg(&format!("--feature-gates={GATES}"))).await.unwrap();
    wait_for_webhooks(&client).await;
    reports.push(("gates_the_other_way", cases::gates(&client, false).await));
    mutations(plane, false).await;
    for (name, report) in reports {
        insta::assert_snapshot!(format!("api_webhooks_{name}"), report);
    }
    manager.stop().await.unwrap();
}

/// The API server takes a moment to trust a new certificate authority.
async fn wait_for_webhooks(client: &Client) {
    use sluice_testkit::wait::{eventually, progress};
    let flavors = sluice_testkit::workloads::all(client, "ResourceFlavor", "resourceflavors");
    let params = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
    let flavor = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "try"}});
    let flavor = serde_json::from_value(flavor).unwrap();
    eventually("the webhooks to be called", DEADLINE, || async {
        let made = flavors.create(&params, &flavor).await;
        Ok(progress(made.is_ok(), format!("{made:?}")))
    })
    .await
    .unwrap();
}

async fn created(plane: &ControlPlane, object: &Value) -> Output {
    let args = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    try_kubectl(&plane.kubeconfig_path(), &args, Some(&object.to_string())).await.unwrap()
}

/// What the webhooks fill in, or take away without the gate PartialAdmission.
async fn mutations(plane: &ControlPlane, partial_admission: bool) {
    let read = |output: Output| -> Value {
        assert!(output.success, "{output:?}");
        serde_json::from_str(&output.stdout).unwrap()
    };
    let finalizer = json!(["kueue.x-k8s.io/resource-in-use"]);
    for version in ["v1beta1", "v1beta2"] {
        let flavor = json!({
            "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ResourceFlavor", "metadata": {"name": "f"},
        });
        assert_eq!(read(created(plane, &flavor).await)["metadata"]["finalizers"], finalizer, "{version}");
    }
    let mut queue = cases::queue();
    queue["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
    queue["kind"] = "ClusterQueue".into();
    queue["metadata"]["name"] = "q".into();
    queue["spec"]["resourceGroups"][0].as_object_mut().unwrap().remove("coveredResources");
    let queue = read(created(plane, &queue).await);
    assert_eq!(queue["metadata"]["finalizers"], finalizer);
    assert_eq!(queue["spec"]["resourceGroups"][0]["coveredResources"], json!(["cpu", "memory"]));
    let mut workload = cases::workload_base();
    workload["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
    workload["kind"] = "Workload".into();
    workload["metadata"] = json!({"name": "w", "namespace": "default"});
    workload["spec"]["podSets"][0]["minCount"] = 1.into();
    let workload = read(created(plane, &workload).await);
    assert_eq!(workload["spec"]["podSets"][0]["minCount"].is_null(), !partial_admission);
}

/// Requests in v1beta1 come to the webhooks of v1beta2, converted.
async fn the_older_version_obeys_the_same_rules(plane: &ControlPlane) {
    let queue = |checks: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "old"},
            "spec": {
                "cohort": "c",
                "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                    {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1, "lendingLimit": 1}]},
                ]}],
                "admissionChecksStrategy": checks,
            },
        })
    };
    let on = |flavor: &str| json!({"admissionChecks": [{"name": "a", "onFlavors": [flavor]}]});
    let accepted = created(plane, &queue(on("f"))).await;
    assert!(accepted.success, "{accepted:?}");
    let warning = "v1beta1 ClusterQueue is deprecated";
    assert!(
        accepted.stderr.contains("Use v1beta2 instead") || accepted.stderr.contains(warning),
        "{accepted:?}"
    );
    let refused = created(plane, &queue(on("g"))).await;
    assert!(!refused.success && refused.stderr.contains("onFlavors[0]: Invalid value: \"g\""), "{refused:?}");
}

/// `kubectl apply` sends only what changed in a manifest, and v1beta1 returns the names of before as a strategy.
async fn a_check_that_an_older_manifest_replaces_is_gone(plane: &ControlPlane) {
    for names in [json!(["a"]), json!(["b"]), json!(["b", "c"])] {
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "replaced"},
            "spec": {"admissionChecks": names},
        });
        apply(plane, &queue.to_string()).await.unwrap();
        let get = ["get", "clusterqueues.v1beta2.kueue.x-k8s.io", "replaced", "-o", "json"];
        let stored: Value = serde_json::from_str(&kubectl::kubectl(plane, &get).await.unwrap()).unwrap();
        let rules = stored["spec"]["admissionChecksStrategy"]["admissionChecks"].as_array().unwrap();
        assert_eq!(rules.iter().map(|rule| rule["name"].clone()).collect::<Value>(), names);
    }
}

/// What the webhooks leave alone: jobs without a queue name, pods, everything in system namespaces.
async fn without_the_manager(plane: &ControlPlane) {
    let job = |namespace: &str, labels: Value| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "namespace": namespace, "labels": labels},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        })
    };
    let queued = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "labels": queued},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let free = [
        job("default", json!({})),
        job("kube-system", queued.clone()),
        job(chart::NAMESPACE, queued.clone()),
        pod,
    ];
    for object in free {
        let made = created(plane, &object).await;
        assert!(made.success, "{object}: {made:?}");
    }
    let refused = created(plane, &job("default", queued)).await;
    assert!(!refused.success && refused.stderr.contains("failed calling webhook"), "{refused:?}");
    let refused = created(
        plane,
        &json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"},
        }),
    )
    .await;
    assert!(!refused.success && refused.stderr.contains("failed calling webhook"), "{refused:?}");
    kubectl::kubectl(plane, &["get", "clusterqueues.v1beta2.kueue.x-k8s.io"]).await.unwrap();
}
