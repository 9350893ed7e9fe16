//! Why a Job waits, on a real control plane: the manager's page, the plugin, the remedy applied to the cluster, the simulator with the live objects,
//! and the replay of the recorded decisions.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod advice;
mod forward;
mod pods;
mod remedies;
pub mod states;
mod unqueued;
mod wrong_queues;

use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, FaultProxy, Manager, Setup, binary, client_of, plugin};
use sluice_tests::place::DEADLINE;
use sluice_tests::queues;
use sluice_tests::rights::wait_until_allowed;
use tokio::sync::MutexGuard;

use crate::bare::{self, NAMESPACE};

/// Another namespace with a door to the same ClusterQueue.
const OTHER: &str = r"
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: other}
spec: {clusterQueue: cq}
";

/// The user that the simulator runs as: it may look at everything and change nothing.
const READER: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reads-everything}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reads-everything}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reads-everything}
subjects: [{kind: ServiceAccount, name: reader, namespace: default}]
";

/// The plane for managers that are configured, started and stopped, with nothing on it, for as long as the test keeps its turn.
pub async fn plane() -> (MutexGuard<'static, ()>, &'static ControlPlane, Client, Setup) {
    let (turn, plane) = (bare::turn().await, bare::plane().await);
    (turn, plane, plane.client().await.unwrap(), Setup::new(plane).unwrap())
}

/// Without webhooks in this plane, the test suspends the Job as they would.
pub async fn make_job(client: &Client, namespace: &str, name: &str, pods: i32) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    let job = json!({
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "parallelism": pods, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        }}},
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
}

pub async fn wait_until_started(client: &Client, namespace: &str, name: &str) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    eventually(&format!("{name} to be started"), DEADLINE, || async {
        let suspended = jobs.get(name).await?.spec.and_then(|spec| spec.suspend).unwrap_or(false);
        Ok(progress(!suspended, format!("suspended: {suspended}")))
    })
    .await
    .unwrap();
}

async fn wait_until_it_says_why(plane: &ControlPlane) {
    eventually("the second Job to say why it waits", DEADLINE, || async {
        let all = kubectl(plane, &["get", "workloads", "-n", "default", "-o", "json"]).await?;
        Ok(progress(all.contains("insufficient unused quota"), all))
    })
    .await
    .unwrap();
}

/// Runs a binary without anything that the surroundings say of clusters.
fn run(program: &Path, args: &[&str]) -> Output {
    Command::new(program).args(args).env_remove("KUBECONFIG").output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_job_is_explained_and_the_remedy_lets_it_start() {
    let (_turn, plane, client, setup) = plane().await;
    let log = plane.folder().join("decisions.jsonl");
    let manager = Manager::start(plane, setup.arg(&format!("--record={}", log.display()))).await.unwrap();
    apply(plane, &(queues::one(4) + OTHER)).await.unwrap();
    make_job(&client, "other", "first", 3).await;
    wait_until_started(&client, "other", "first").await;
    make_job(&client, "default", "second", 3).await;
    wait_until_it_says_why(plane).await;

    the_page_says_why(&manager).await;
    let remedy = the_plugin_names_a_remedy(&manager).await;
    the_plugin_finds_the_leader(plane);
    forward::the_leader_answers(plane, &manager).await;
    the_simulator_only_reads(plane, &client).await;

    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    jobs.patch("second", &PatchParams::default(), &Patch::Merge(remedy)).await.unwrap();
    wait_until_started(&client, "default", "second").await;
    let (_, status) = manager.stop().await.unwrap();
    assert!(status.success(), "{status}");
    the_record_replays(&log).await;
}

/// The page names the cause and what holds the quota, and other namespaces only when asked to.
async fn the_page_says_why(manager: &Manager) {
    let (status, page) = manager.health("/debug/explain/default/second").await.unwrap();
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("waiting") && page.contains("insufficient unused quota"), "{page}");
    assert!(page.contains("needs 3, can have 1"), "{page}");
    assert!(page.contains("held by a job of another namespace (3 by cq)"), "{page}");
    assert!(page.contains("starts now with parallelism 1"), "{page}");
    let (_, page) = manager.health("/debug/explain/default/second?all=true").await.unwrap();
    assert!(page.contains("held by other/first (3 by cq)"), "{page}");
    let (status, page) = manager.health("/debug/explain/default/missing").await.unwrap();
    assert_eq!((status, page.contains("default/missing")), (404, true), "{page}");
    let (status, page) = manager.health("/debug/explain/default/second?kind=node").await.unwrap();
    assert_eq!(status, 400, "{page}");
}

/// The plugin says the same, for programs; the patch of the first remedy.
async fn the_plugin_names_a_remedy(manager: &Manager) -> Value {
    let url = format!("http://127.0.0.1:{}", manager.setup().health);
    let args = ["explain", "job", "second", "-n", "default", "-o", "json", "--manager-url", &url];
    let answer =
        tokio::task::spawn_blocking(plugin).await.unwrap().map(|program| run(&program, &args)).unwrap();
    let explained: Value = serde_json::from_str(&text(&answer)).unwrap();
    assert_eq!((&explained["state"], &explained["position"]), (&json!("waiting"), &json!(0)), "{explained}");
    assert_eq!(explained["flavors"][0]["free"], "1", "{explained}");
    assert_eq!(explained["incomplete"], false, "{explained}");
    let remedy = &explained["remedies"][0];
    assert_eq!(remedy["text"], "starts now with parallelism 1", "{explained}");
    assert_eq!(
        (&remedy["patches"][0]["kind"], &remedy["patches"][0]["name"]),
        (&json!("Job"), &json!("second"))
    );
    remedy["patches"][0]["merge"].clone()
}

/// Here is no kubelet that could forward a port: that the leader is looked up shows in what cannot be reached.
fn the_plugin_finds_the_leader(plane: &ControlPlane) {
    let kubeconfig = plane.kubeconfig_path().display().to_string();
    let program = plugin().unwrap();
    let refused = run(&program, &["explain", "job", "second", "-n", "default", "--kubeconfig", &kubeconfig]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success(), "{error}");
    assert!(error.contains("forwarding port 8081 of pod kueue-system/"), "{error}");
    let listed = text(&run(&program, &["list", "workloads", "-A", "--kubeconfig", &kubeconfig]));
    let rows: Vec<Vec<&str>> = listed.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| rows.iter().find(|row| row[3] == name).unwrap_or_else(|| unreachable!("{listed}"));
    assert_eq!((row("first")[5], row("first")[6]), ("cq", "ADMITTED"), "{listed}");
    assert_eq!((row("second")[5], row("second")[6]), ("cq", "PENDING"), "{listed}");
}

/// The simulator begins with the cluster's objects, and writes none.
async fn the_simulator_only_reads(plane: &ControlPlane, client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let metadata = ObjectMeta { name: Some("reader".to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    accounts.create(&PostParams::default(), &account).await.unwrap();
    apply(plane, READER).await.unwrap();
    let reader = plane.kubeconfig_for_service_account("default", "reader").await.unwrap();
    let reader = client_of(&reader).await.unwrap();
    wait_until_allowed(&reader, None, "list", ("kueue.x-k8s.io", "workloads")).await.unwrap();
    let proxy = FaultProxy::start(plane).await.unwrap();
    let kubeconfig = plane.kubeconfig_through(&proxy.url(), "default", "reader").await.unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    let simulated = tokio::task::spawn_blocking(move || {
        let args = ["simulate", "--from-cluster", "--quiet", "-o", "json", "--kubeconfig", &kubeconfig];
        (run(&plugin().unwrap(), &args), run(&binary().unwrap(), &args))
    });
    let (by_plugin, by_sluice) = simulated.await.unwrap();
    for output in [by_plugin, by_sluice] {
        let report: Value = serde_json::from_str(&text(&output)).unwrap();
        // Both Jobs run to their end, one after the other.
        assert_eq!(report["totals"]["finished"], 2, "{report}");
    }
    assert_eq!(proxy.writes(), []);
}

/// What was recorded is a whole run, and the engine does the same again.
async fn the_record_replays(log: &Path) {
    let file = log.display().to_string();
    let replayed =
        tokio::task::spawn_blocking(move || run(&binary().unwrap(), &["replay", &file])).await.unwrap();
    let said = text(&replayed);
    assert!(said.contains("every cycle came out as it was recorded"), "{said}");
}
