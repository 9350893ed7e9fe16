//! The switch from Kueue as the book describes it: its shell block, line by line, on a cluster where helm installed a Kueue whose release has the
//! CRDs among its templates. Nothing that users made is lost, and nothing of Kueue's manager remains.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_api::crds::document;
use sluice_testkit::assets::workspace;
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, shell};

use crate::migrate::kueue;

/// The commands of the page's shell block about the switch, numbered as there.
fn steps() -> Vec<String> {
    let page = fs::read_to_string(workspace().join("docs/tasks/from-kueue.md")).unwrap();
    let (_, section) = page.split_once("\n## Switch over").unwrap();
    let block = section.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let steps: Vec<String> = block.split("\n\n").map(str::to_owned).collect();
    for (n, step) in steps.iter().enumerate() {
        assert!(step.starts_with(&format!("# {}. ", n + 1)), "{step}");
    }
    steps
}

/// Runs a step in a folder as a reader would; its exit code and what was printed.
async fn paste(plane: &ControlPlane, folder: &Path, step: &str) -> (i32, String) {
    let pasted = shell::paste(plane, folder, step).await.unwrap();
    (pasted.code.unwrap(), pasted.printed)
}

/// Kueue's release, with the CRDs among its templates as Kueue's chart has them.
async fn install_kueue(plane: &ControlPlane) {
    let folder = plane.folder().join("kueue-chart");
    fs::create_dir_all(folder.join("templates/crd")).unwrap();
    fs::write(folder.join("Chart.yaml"), "apiVersion: v2\nname: kueue\nversion: 0.14.4\n").unwrap();
    for crd in kueue::definitions("v1beta1", true) {
        let name = crd.metadata.name.clone().unwrap();
        let text = serde_saphyr::to_string(&document(&crd)).unwrap();
        // What looks like a template in a description is none.
        let text = text.replace("{{", "{ {").replace("}}", "} }");
        fs::write(folder.join(format!("templates/crd/{name}.yaml")), text).unwrap();
    }
    fs::write(folder.join("templates/manager.yaml"), kueue::MANAGER).unwrap();
    let folder = folder.display().to_string();
    let args = ["install", "kueue", &folder, "-n", chart::NAMESPACE, "--create-namespace"];
    chart::helm(plane, &args).await.unwrap();
    crds::wait_until_served(&plane.client().await.unwrap(), &kueue::definitions("v1beta1", true))
        .await
        .unwrap();
}

/// A folder as a reader has it: the chart, and values of their own.
fn readers_folder(plane: &ControlPlane, setup: &Setup) -> PathBuf {
    let folder = plane.folder().join("reader");
    fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(workspace().join("charts"), folder.join("charts")).unwrap();
    let values = json!({
        "controllerManager": {"replicas": 0},
        "webhooks": {"urlBase": setup.webhook_url()},
        "visibility": {"apiServices": false},
        "managerConfig": {"controllerManagerConfigYaml": format!("{:#}", setup.configuration)},
    });
    fs::write(folder.join("values.yaml"), values.to_string()).unwrap();
    folder
}

async fn names(plane: &ControlPlane, args: &[&str]) -> Vec<String> {
    let printed = kubectl(plane, &[&["get"], args, &["-o", "name"]].concat()).await.unwrap();
    printed.lines().map(str::to_owned).collect()
}

/// What users made, and with which UIDs.
async fn made_by_users(plane: &ControlPlane, version: &str) -> Vec<(String, String)> {
    let kinds =
        ["clusterqueues", "localqueues", "resourceflavors", "workloads", "cohorts", "admissionchecks"];
    let kinds: Vec<String> = kinds.iter().map(|kind| format!("{kind}.{version}.kueue.x-k8s.io")).collect();
    let list = kubectl(plane, &["get", &kinds.join(","), "-A", "-o", "json"]).await.unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |item: &Value| (text(&item["metadata"]["name"]), text(&item["metadata"]["uid"]));
    list["items"].as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn the_book_s_commands_switch_from_kueue_without_losing_anything() {
    let plane = ControlPlane::builder().start().await.unwrap();
    install_kueue(&plane).await;
    apply(&plane, kueue::OBJECTS).await.unwrap();
    apply(&plane, &(0..5).map(kueue::workload).collect::<String>()).await.unwrap();
    let before = made_by_users(&plane, "v1beta1").await;
    assert!(before.len() > 10, "{before:?}");

    // A lease that outlasts a busy machine: with the manager gone nothing can be written.
    let lease =
        json!({"leaderElection": {"leaseDuration": "60s", "renewDeadline": "40s", "retryPeriod": "2s"}});
    let setup = Setup::new(&plane).unwrap().with(&lease);
    let folder = readers_folder(&plane, &setup);
    let steps = steps();
    assert_eq!(steps.len(), 5);
    let (code, report) = paste(&plane, &folder, &steps[0]).await;
    assert_eq!(code, 3, "{report}");
    assert!(report.contains("stop Kueue, never run both"), "{report}");
    for step in &steps[1..3] {
        let (code, printed) = paste(&plane, &folder, step).await;
        assert_eq!(code, 0, "{step}\n{printed}");
    }
    // Of Kueue only the definitions and the namespace are left, and the objects as they were.
    let left = names(&plane, &["deployment,configmap,secret", "-n", chart::NAMESPACE]).await;
    assert!(!left.iter().any(|name| name.contains("kueue")), "{left:?}");
    assert_eq!(names(&plane, &["mutatingwebhookconfiguration"]).await, Vec::<String>::new());
    assert!(!names(&plane, &["apiservice"]).await.iter().any(|name| name.contains("visibility")));
    assert_eq!(chart::helm(&plane, &["list", "-A", "-q"]).await.unwrap(), "");
    assert_eq!(made_by_users(&plane, "v1beta1").await, before);
    let (_, report) = paste(&plane, &folder, &steps[0]).await;
    assert!(!report.contains("To be done first"), "{report}");

    let (code, printed) = paste(&plane, &folder, &steps[3]).await;
    assert_eq!(code, 0, "{printed}");
    let kubeconfig =
        plane.kubeconfig_for_service_account(chart::NAMESPACE, chart::SERVICE_ACCOUNT).await.unwrap();
    let manager = Manager::start(&plane, setup.acting_as(kubeconfig)).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    assert_eq!(made_by_users(&plane, "v1beta2").await, before);
    let (code, printed) = paste(&plane, &folder, &steps[4]).await;
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains("workloads: done, 5 rewritten"), "{printed}");

    // And away again: the definitions stay.
    chart::uninstall(&plane).await.unwrap();
    assert_eq!(made_by_users(&plane, "v1beta2").await, before);
    manager.stop().await.unwrap();
    plane.stop();
}

#[test]
fn conflicts_are_forced_where_helm_knows_how_to() {
    let step = steps().remove(3);
    for (help, flag) in [
        (
            "--force-conflicts  if set server-side apply will force changes against conflicts",
            " --force-conflicts",
        ),
        ("--force  force resource updates through a replacement strategy", ""),
    ] {
        let helm = format!("helm() {{ if [ \"$2\" = --help ]; then echo '{help}'; else echo \"$@\"; fi; }}");
        let output = Command::new("bash").args(["-ec", &format!("{helm}\n{step}")]).output().unwrap();
        let wanted = format!(
            "install sluice charts/sluice -n kueue-system --take-ownership{flag} --values values.yaml\n"
        );
        assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
    }
}
