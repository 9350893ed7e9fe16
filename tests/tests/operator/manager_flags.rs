//! The flags of the manager and their effects: its user, the active parts, its input files and its log.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::similar_names, reason = "a place is on a plane")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::json;
use sluice_testkit::kubectl::apply;
use sluice_testkit::wait::{consistently, eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, binary, workloads};
use sluice_tests::place::{DEADLINE, Place, job, reported};

use crate::bare::{plane, turn};

const ADMIN: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: manager, namespace: kueue-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: manager}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, namespace: kueue-system, name: manager}]
";

/// For managers that only have to start, beside others that act.
const IDLE: &str = "--controllers=webhooks,certificates";

/// A setup with a lease of its own, so that many lead beside each other.
fn setup(plane: &ControlPlane, lease: &str) -> Setup {
    Setup::new(plane).unwrap().with(&json!({"leaderElection": {"resourceName": lease}}))
}

async fn suspended_job(place: &Place<'_>, name: &str) {
    let mut job = job(name, "lq", 1, 1, 1);
    job["spec"]["suspend"] = json!(true);
    place.make_job(&job).await.unwrap();
}

/// What `sluice manager` prints when it ends by itself.
async fn ends(args: &[&str]) -> Output {
    let mut command = Command::new(binary().unwrap());
    command.args(args).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    let ended = tokio::task::spawn_blocking(move || command.output());
    tokio::time::timeout(DEADLINE, ended).await.unwrap().unwrap().unwrap()
}

async fn refusal(args: &[&str]) -> String {
    let output = ends(args).await;
    assert!(!output.status.success(), "it ended well: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

fn write(plane: &ControlPlane, name: &str, text: &str) -> PathBuf {
    let path = plane.folder().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// A kubeconfig whose credentials come from a program.
fn exec_kubeconfig(plane: &ControlPlane, token: &str) -> PathBuf {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token},
    });
    let script = write(plane, "credential.sh", &format!("#!/bin/sh\necho '{credential}'\n"));
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": plane.url(), "certificate-authority": plane.ca_path()}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "users": [{"name": "c", "user": {"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": script, "interactiveMode": "Never",
        }}}],
    });
    write(plane, "exec.kubeconfig", &config.to_string())
}

#[tokio::test]
async fn it_acts_as_the_kubeconfig_says_by_certificate_token_or_program() {
    let plane = plane().await;
    apply(plane, ADMIN).await.unwrap();
    let token = plane.token_of_service_account("kueue-system", "manager").await.unwrap();
    let by_token = plane.kubeconfig_for_service_account("kueue-system", "manager").await.unwrap();
    let by_program = exec_kubeconfig(plane, &token);
    for (lease, kubeconfig) in
        [("by-certificate", plane.kubeconfig_path()), ("by-token", by_token), ("by-program", by_program)]
    {
        let manager =
            Manager::start(plane, setup(plane, lease).acting_as(kubeconfig).arg(IDLE)).await.unwrap();
        let (took, status) = manager.stop().await.unwrap();
        assert!(status.success() && took < Duration::from_secs(10), "{lease}: {status} after {took:?}");
    }
    let why = refusal(&["manager", "--kubeconfig", "/nonexistent/kubeconfig"]).await;
    assert!(why.contains("reading the kubeconfig /nonexistent/kubeconfig"), "{why}");
    let why = refusal(&["manager"]).await;
    assert!(why.contains("no --kubeconfig, no KUBECONFIG, and not inside a cluster"), "{why}");
}

#[tokio::test]
async fn parts_are_left_out_by_name() {
    let plane = plane().await;
    let place = Place::bare(plane, "parts").await.unwrap();
    let setup = setup(plane, "parts").arg("--controllers=*,-scheduler,-localqueue");
    let _turn = turn().await;
    let manager = Manager::start(plane, setup).await.unwrap();
    place.flavor("parts").await.unwrap();
    place.cluster_queue("parts", 1, &json!({})).await.unwrap();
    place.local_queue("lq", "parts").await.unwrap();
    suspended_job(&place, "a").await;
    // The job's part runs, that of the ClusterQueue too.
    place.workload("a").await.unwrap();
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    consistently("nothing to be admitted", Duration::from_secs(2), || async {
        let workload = workloads::of_job(&place.client, "parts", "a").await?.unwrap_or_default();
        let queue = place.local_queues().get("lq").await?;
        let idle = workload["status"]["admission"].is_null() && queue.data["status"].is_null();
        Ok(progress(idle, format!("{} {}", reported(&workload, "QuotaReserved"), queue.data["status"])))
    })
    .await
    .unwrap();
    manager.stop().await.unwrap();
    let why = refusal(&["manager", "--controllers", "*,-schedular"]).await;
    assert!(why.contains("unknown controller \"-schedular\"") && why.contains("jobset"), "{why}");
}

#[tokio::test]
async fn a_job_kind_that_is_left_out_is_left_alone() {
    let plane = plane().await;
    let place = Place::bare(plane, "without-jobs").await.unwrap();
    let setup = setup(plane, "without-jobs").arg("--controllers=*,-job");
    let _turn = turn().await;
    let manager = Manager::start(plane, setup).await.unwrap();
    place.flavor("without-jobs").await.unwrap();
    place.cluster_queue("without-jobs", 1, &json!({})).await.unwrap();
    place.local_queue("lq", "without-jobs").await.unwrap();
    suspended_job(&place, "a").await;
    place.wait_for_queue(&place.local_queues(), "lq", "True/Ready").await.unwrap();
    let mine = || async {
        let found = workloads::list(&place.client, "without-jobs").await?;
        Ok(progress(found.is_empty(), format!("{found:?}")))
    };
    consistently("no Workload", Duration::from_secs(2), mine).await.unwrap();
    manager.stop().await.unwrap();
}

async fn check(path: &Path, more: &[&str]) -> Output {
    let path = path.to_str().unwrap();
    let args: Vec<_> = ["config", "check", path].into_iter().chain(more.iter().copied()).collect();
    ends(&args).await
}

#[tokio::test]
async fn configuration_files_of_both_versions_are_read_and_bad_ones_are_refused() {
    let plane = plane().await;
    for version in ["v1beta1", "v1beta2"] {
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/{version}\nkind: Configuration\nmanageJobsWithoutQueueName: true\n"
        );
        let output = check(&write(plane, &format!("{version}.yaml"), &text), &[]).await;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert!(printed.contains("manageJobsWithoutQueueName: true"), "{printed}");
    }
    let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    let bad = write(plane, "bad.yaml", &format!("{head}leaderElection: {{leaseDuration: soon}}\n"));
    let why = refusal(&["manager", "--config", bad.to_str().unwrap()]).await;
    assert!(why.contains("leaseDuration") || why.contains("soon"), "{why}");
    let why = refusal(&["manager", "--config", "/nonexistent/config.yaml"]).await;
    assert!(why.contains("/nonexistent/config.yaml"), "{why}");
}

#[tokio::test]
async fn feature_gates_are_known_by_name_and_come_from_one_place() {
    let plane = plane().await;
    let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    let plain = write(plane, "plain.yaml", head);
    let gates = ["--feature-gates", "PartialAdmission=false"];
    let output = check(&plain, &gates).await;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("PartialAdmission: false"), "{output:?}");
    for (given, named) in
        [("NoSuchGate=true", "NoSuchGate"), ("PartialAdmission=perhaps", "PartialAdmission")]
    {
        let why = refusal(&["manager", "--feature-gates", given]).await;
        assert!(why.contains(named), "{given}: {why}");
    }
    let both = write(plane, "gates.yaml", &format!("{head}featureGates: {{PartialAdmission: true}}\n"));
    let path = both.to_str().unwrap();
    let why = refusal(&["manager", "--config", path, gates[0], gates[1]]).await;
    assert!(why.contains("featureGates"), "{why}");
}

#[tokio::test]
async fn the_log_level_has_three_names_and_its_verbosity_lists_gates_without_effect() {
    let plane = plane().await;
    for (flag, shown, hidden) in [
        ("--zap-log-level=5", Some("\"level\":\"DEBUG\""), None),
        ("--zap-log-level=info", Some("\"level\":\"INFO\""), Some("\"level\":\"DEBUG\"")),
        ("--log-level=info", Some("--v=1 lists them"), Some("these feature gates are on")),
        (
            "--v=1",
            Some("these feature gates are on, but what they switch is not built yet: "),
            Some("lists them"),
        ),
        ("--log-level=error", None, Some("\"level\":\"INFO\"")),
    ] {
        let lease = flag.trim_start_matches('-').replace('=', "-");
        let manager = Manager::start(plane, setup(plane, &lease).arg(flag).arg(IDLE)).await.unwrap();
        eventually("the manager to have led", DEADLINE, || async {
            let (_, text) = manager.health("/readyz").await?;
            Ok(progress(text.contains("leading"), text))
        })
        .await
        .unwrap();
        let log = manager.log().unwrap();
        assert!(shown.is_none_or(|shown| log.contains(shown)), "{flag}: {log}");
        assert!(hidden.is_none_or(|hidden| !log.contains(hidden)), "{flag}: {log}");
        manager.stop().await.unwrap();
    }
}
