//! From Kueue to Sluice and back on a real API server: nothing is lost in either stored version, and storage is migrated by a step that may be
//! interrupted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

pub mod kueue;

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::assets::workspace;
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::{ControlPlane, FaultProxy, Manager, Setup, binary, chart, crds};
use sluice_tests::place::DEADLINE;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const WORKLOADS: u32 = 60;

/// What leaving removes again, as the book says.
const REMOVED: [&[&str]; 3] = [
    &["delete", "deployment", "kueue-controller-manager", "-n", "kueue-system"],
    &["delete", "mutatingwebhookconfiguration", "kueue-mutating-webhook-configuration"],
    &["delete", "apiservice", "v1beta1.visibility.kueue.x-k8s.io"],
];

async fn command(kubeconfig: &Path, args: &[&str]) -> Command {
    let program = tokio::task::spawn_blocking(binary).await.unwrap().unwrap();
    let mut command = Command::new(program);
    command.arg("migrate").args(args).arg("--kubeconfig").arg(kubeconfig);
    command.env_remove("KUBECONFIG").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The exit code and what was printed.
async fn migrate(plane: &ControlPlane, args: &[&str]) -> (i32, String) {
    let output = command(&plane.kubeconfig_path(), args).await.output().await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap() + &error)
}

/// Quantities as Kubernetes writes them: a program that writes an object in another version writes `10` as `"10"`, whenever that is.
fn canonical(quotas: &mut Value) {
    match quotas {
        Value::Array(all) => all.iter_mut().for_each(canonical),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Number(quantity)
                        if ["nominalQuota", "borrowingLimit", "lendingLimit"].contains(&name.as_str()) =>
                    {
                        *value = quantity.to_string().into();
                    }
                    _ => canonical(value),
                }
            }
        }
        _ => {}
    }
}

/// Everything that users made, in one version; without what every write changes.
async fn everything(plane: &ControlPlane, version: &str) -> Value {
    let crds = sluice_api::crds();
    let resources: Vec<_> =
        crds.iter().map(|crd| format!("{}.{version}.kueue.x-k8s.io", crd.spec.names.plural)).collect();
    let list = kubectl(plane, &["get", &resources.join(","), "-A", "-o", "json"]).await.unwrap();
    let mut list: Value = serde_json::from_str(&list).unwrap();
    for item in list["items"].as_array_mut().unwrap() {
        let metadata = item["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| ["name", "namespace", "uid", "labels"].contains(&key.as_str()));
        // The manager writes it.
        item.as_object_mut().unwrap().remove("status");
        canonical(&mut item["spec"]);
        // Dead, only in v1beta1, and there by default.
        item.pointer_mut("/spec").and_then(Value::as_object_mut).map(|spec| spec.remove("retryDelayMinutes"));
    }
    list["items"].take()
}

async fn stored_versions(plane: &ControlPlane, plural: &str) -> String {
    let name = format!("{plural}.kueue.x-k8s.io");
    kubectl(plane, &["get", "crd", &name, "-o", "jsonpath={.status.storedVersions}"]).await.unwrap()
}

/// A cluster of a Kueue that knows only v1beta1, with its objects.
async fn cluster_of_kueue() -> ControlPlane {
    let plane = ControlPlane::builder().start().await.unwrap();
    plane.make_namespace(chart::NAMESPACE).await.unwrap();
    let client = plane.client().await.unwrap();
    crds::apply(&client, &kueue::definitions("v1beta1", true)).await.unwrap();
    apply(&plane, kueue::OBJECTS).await.unwrap();
    let workloads: String = (0..WORKLOADS).map(kueue::workload).collect();
    apply(&plane, &workloads).await.unwrap();
    apply(&plane, kueue::MANAGER).await.unwrap();
    plane
}

/// Installs the chart over what is there, and starts its manager. Only that can read what is stored in v1beta1, so nothing is waited for before.
pub async fn install(plane: &ControlPlane) -> Manager {
    // A lease that outlasts a busy machine: with the manager gone nothing can be written.
    let lease =
        json!({"leaderElection": {"leaseDuration": "60s", "renewDeadline": "40s", "retryPeriod": "2s"}});
    let setup = Setup::new(plane).unwrap().with(&lease);
    let values = json!({
        "controllerManager": {"replicas": 0},
        "webhooks": {"urlBase": setup.webhook_url()},
        "visibility": {"apiServices": false},
        "managerConfig": {"controllerManagerConfigYaml": format!("{:#}", setup.configuration)},
    });
    let file = plane.folder().join("values-over.json");
    std::fs::write(&file, values.to_string()).unwrap();
    let (folder, file) =
        (workspace().join("charts/sluice").display().to_string(), file.display().to_string());
    let args = ["install", chart::RELEASE, &folder, "-n", chart::NAMESPACE, "--values", &file];
    let over = ["--take-ownership", "--force-conflicts"];
    chart::helm(plane, &[&args[..], &over].concat()).await.unwrap();
    let kubeconfig =
        plane.kubeconfig_for_service_account(chart::NAMESPACE, chart::SERVICE_ACCOUNT).await.unwrap();
    let manager = Manager::start(plane, setup.acting_as(kubeconfig)).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    manager
}

#[tokio::test]
async fn kueues_objects_survive_the_switch_and_the_way_back() {
    let plane = cluster_of_kueue().await;
    let before = everything(&plane, "v1beta1").await;

    let (code, report) = migrate(&plane, &["check"]).await;
    assert_eq!(code, 3, "{report}");
    insta::assert_snapshot!("migrate_check_before", report);
    for removal in REMOVED {
        kubectl(&plane, removal).await.unwrap();
    }
    renewed_elsewhere(&plane).await;
    let manager = install(&plane).await;

    // What was stored in v1beta1 alone is there in both versions, and the same in the one that it was written in.
    assert_eq!(mapped(everything(&plane, "v1beta1").await), mapped(before.clone()));
    let new = everything(&plane, "v1beta2").await;
    assert_eq!(new.as_array().unwrap().len(), before.as_array().unwrap().len());
    let queue = new.as_array().unwrap().iter().find(|item| item["kind"] == "ClusterQueue").unwrap();
    assert_eq!(queue["spec"]["cohortName"], "team");
    assert_eq!(stored_versions(&plane, "workloads").await, r#"["v1beta1","v1beta2"]"#);

    interrupted(&plane).await;
    let (code, printed) = migrate(&plane, &["storage"]).await;
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains(&format!("workloads: done, {WORKLOADS} rewritten")), "{printed}");
    let (_, again) = migrate(&plane, &["storage"]).await;
    assert!(again.lines().all(|line| line.ends_with(": nothing to do")), "{again}");
    // Nothing depends on v1beta1 any more: without it, and without conversion, everything can be read.
    assert_eq!(everything(&plane, "v1beta2").await, new);
    let client = plane.client().await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in kueue::definitions("v1beta2", true) {
        let name = crd.metadata.name.clone().unwrap();
        assert_eq!(stored_versions(&plane, &crd.spec.names.plural).await, r#"["v1beta2"]"#);
        let only = json!({"spec": {"versions": crd.spec.versions, "conversion": {"strategy": "None", "webhook": null}}});
        definitions.patch(&name, &PatchParams::default(), &Patch::Merge(only)).await.unwrap();
    }
    assert_eq!(everything(&plane, "v1beta2").await, new);
    manager.stop().await.unwrap();
    plane.stop();
}

/// A holder that renews the lease is in the way, also where there is no deployment.
async fn renewed_elsewhere(plane: &ControlPlane) {
    let lease = ["lease", "c1f6bfd2.kueue.x-k8s.io", "-n", chart::NAMESPACE];
    let renewed = json!({"spec": {"renewTime": "2999-01-01T00:00:00.000000Z"}}).to_string();
    kubectl(plane, &[&["patch"], &lease[..], &["--type=merge", "-p", &renewed]].concat()).await.unwrap();
    let (code, report) = migrate(plane, &["check"]).await;
    assert!(code == 3 && report.contains("no deployment kueue-system/kueue-controller-manager"), "{report}");
    assert!(
        report.contains("kueue-controller-manager-0_1 holds the lease kueue-system/c1f6bfd2"),
        "{report}"
    );
    kubectl(plane, &[&["delete"], &lease[..]].concat()).await.unwrap();
}

/// What a round trip through v1beta2 leaves of an object of v1beta1 (docs/reference/01-api.md: the documented losses).
fn mapped(mut all: Value) -> Value {
    for item in all.as_array_mut().unwrap() {
        if item["kind"] == "ClusterQueue" {
            item["spec"]["flavorFungibility"]["whenCanBorrow"] = "MayStopSearch".into();
        }
    }
    all
}

/// Kills the step in the middle of the Workloads: it cannot finish before, however late the signal comes, because the others are refused.
async fn interrupted(plane: &ControlPlane) {
    let proxy = FaultProxy::start(plane).await.unwrap();
    let kubeconfig = proxy.administrator(plane, chart::NAMESPACE).await.unwrap();
    let rewritten = AtomicU32::new(0);
    let refused = move |method: &Method, path: &str| {
        method == Method::PATCH
            && path.contains("/workloads/")
            && rewritten.fetch_add(1, Ordering::Relaxed) > WORKLOADS / 2
    };
    proxy.refuse_matching(403, Duration::from_mins(30), refused).unwrap();
    let mut command = command(&kubeconfig, &["storage", "--page-size", "1"]).await;
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let some = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line == "workloads: 5 rewritten so far" {
                return true;
            }
        }
        false
    };
    assert!(tokio::time::timeout(DEADLINE, some).await.unwrap(), "it came to the Workloads");
    // It may have ended.
    let _ = child.kill().await;
    assert_eq!(stored_versions(plane, "workloads").await, r#"["v1beta1","v1beta2"]"#, "not cleaned up early");
    assert_eq!(stored_versions(plane, "clusterqueues").await, r#"["v1beta2"]"#, "finished before");
}

#[tokio::test]
async fn a_rollback_to_a_release_that_stores_v1beta1_loses_nothing() {
    let plane = ControlPlane::builder().start().await.unwrap();
    plane.make_namespace(chart::NAMESPACE).await.unwrap();
    let client = plane.client().await.unwrap();
    let setup = Setup::new(&plane).unwrap();
    crds::install(&client, Some(&setup.webhook_url())).await.unwrap();
    let manager = Manager::start(&plane, setup.arg("--controllers=*,-scheduler")).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    apply(&plane, kueue::OBJECTS).await.unwrap();
    apply(&plane, &kueue::workload(0)).await.unwrap();
    let (old, new) = (everything(&plane, "v1beta1").await, everything(&plane, "v1beta2").await);

    // Only the stored version goes back; both are served, and the manager converts.
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in kueue::definitions("v1beta1", false) {
        let patch = json!({"spec": {"versions": crd.spec.versions}});
        let name = crd.metadata.name.unwrap();
        definitions.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
    apply(&plane, &kueue::workload(1)).await.unwrap();
    kubectl(&plane, &["delete", "workload", "w1", "--wait=false"]).await.unwrap();
    kubectl(
        &plane,
        &["patch", "workload", "w1", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#],
    )
    .await
    .ok();
    let (code, printed) = migrate(&plane, &["storage"]).await;
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("stored only in v1beta1"), "{printed}");
    assert_eq!(stored_versions(&plane, "workloads").await, r#"["v1beta1"]"#);
    assert_eq!(everything(&plane, "v1beta1").await, old);
    assert_eq!(everything(&plane, "v1beta2").await, new);

    manager.stop().await.unwrap();
    let (code, report) = migrate(&plane, &["check"]).await;
    // The conversion webhook is gone, and yet the stored version can be read.
    assert!(code == 3 && !report.contains("cannot be read"), "{code} {report}");
    plane.stop();
}
