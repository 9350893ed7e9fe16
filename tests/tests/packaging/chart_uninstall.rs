//! Uninstalling with queued and running jobs present, following the book: which jobs continue to run or wait, and that no object of ours blocks the
//! deletion of a namespace or a definition.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use anyhow::Result;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use sluice_testkit::assets;
use sluice_testkit::kubectl::{self, kubectl, try_kubectl};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, nodes};
use sluice_tests::book::{blocks, typed};
use sluice_tests::place::DEADLINE;

use crate::migrate::{self, kueue};

/// Written in the older version, as many a user's manifests are: later changes of these objects need a conversion.
const QUEUES: &str = r"
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: queue}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: lq, namespace: tenant}
spec: {clusterQueue: queue}
";

fn job(name: &str) -> String {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": "tenant", "labels": { "kueue.x-k8s.io/queue-name": "lq" } },
        "spec": { "template": {
            "metadata": { "annotations": { "sluice.dev/run-seconds": "3600" } },
            "spec": {
                "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": "busybox", "resources": { "requests": { "cpu": "1" } } }],
            },
        } },
    })
    .to_string()
}

/// A pod that is queued itself, with a gate and a finalizer of its owner's besides.
fn pod(name: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "tenant", "labels": { "kueue.x-k8s.io/queue-name": "lq" }, "finalizers": ["example.com/mine"],
        },
        "spec": {
            "schedulingGates": [{ "name": "example.com/mine" }],
            "containers": [{ "name": "main", "image": "busybox", "resources": { "requests": { "cpu": "1" } } }],
        },
    })
    .to_string()
}

/// What places pods by topology, and a job that is placed so.
fn placed() -> String {
    let queues = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: hosts}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: by-host}
spec: {topologyName: hosts, nodeLabels: {pool: machines}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: by-host}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: by-host, resources: [{name: cpu, nominalQuota: 1}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: by-host, namespace: tenant}
spec: {clusterQueue: by-host}
---
";
    let mut job: Value = serde_json::from_str(&job("placed")).unwrap();
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("by-host");
    job["spec"]["completions"] = json!(2);
    let annotations = &mut job["spec"]["template"]["metadata"]["annotations"];
    annotations["kueue.x-k8s.io/podset-required-topology"] = json!("kubernetes.io/hostname");
    format!("{queues}{job}")
}

/// Waits until the one pod of that job is held by a gate, or by none.
async fn wait_until_placed(plane: &ControlPlane, gated: bool) {
    let all: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), "tenant");
    let own = ListParams::default().labels("job-name=placed");
    eventually("the pod of the job that is placed", DEADLINE, || async {
        let pods = all.list(&own).await?.items;
        let pods = pods.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        let live: Vec<&Value> =
            pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
        let is = |pod: &Value| {
            let all = &pod["spec"]["schedulingGates"];
            all[0]["name"] == "kueue.x-k8s.io/topology" && pod["spec"]["nodeName"].is_null()
        };
        let reached = live.len() == 1 && is(live[0]) == gated;
        Ok(progress(reached && (gated || live[0]["status"]["phase"] == "Running"), format!("{pods:?}")))
    })
    .await
    .unwrap();
}

async fn get(plane: &ControlPlane, args: &[&str]) -> Result<Value> {
    let args: Vec<&str> = ["get"].iter().chain(args).chain(&["-o", "json"]).copied().collect();
    Ok(serde_json::from_str(&kubectl(plane, &args).await?)?)
}

async fn wait_for_active_pods(plane: &ControlPlane, name: &str, wanted: i32) {
    let jobs: Api<Job> = Api::namespaced(plane.client().await.unwrap(), "tenant");
    eventually("the job's active pods", DEADLINE, || async {
        let status = jobs.get(name).await?.status.unwrap_or_default();
        Ok(progress(status.active.unwrap_or(0) == wanted, format!("{status:?}")))
    })
    .await
    .unwrap();
}

/// The page's blocks about helm: what removes the release, what lets waiting pods go, and what cleans up.
fn blocks_of_the_book() -> [String; 3] {
    let page = blocks("docs/tasks/upgrade-uninstall.md", "sh").unwrap();
    let begins = "sluice migrate storage && helm uninstall ";
    assert!(page.len() > 3 && page[0].starts_with(begins), "{page:?}");
    [page[0].clone(), page[1].clone(), page[2].clone()]
}

async fn paste(plane: &ControlPlane, script: &str) {
    typed(plane, &assets::workspace(), script).await.unwrap();
}

/// The blocks that switch something on by `helm upgrade`: the manager's configuration has it then, and what it had before.
async fn switched_on_as_the_pages_say(plane: &ControlPlane) {
    let mut fields = vec!["/integrations/frameworks"];
    for (page, field) in
        [("docs/tasks/journal.md", "/journal/directory"), ("docs/tasks/tracing.md", "/tracing/endpoint")]
    {
        let upgrade = &blocks(page, "sh").unwrap()[0];
        assert!(upgrade.starts_with("helm upgrade "), "{upgrade}");
        paste(plane, upgrade).await;
        fields.push(field);
        let map = get(plane, &["configmap", "kueue-manager-config", "-n", chart::NAMESPACE]).await.unwrap();
        let text = map["data"]["controller_manager_config.yaml"].as_str().unwrap();
        let configuration: Value = serde_saphyr::from_str(text).unwrap();
        let missing = fields.iter().filter(|field| configuration.pointer(field).is_none());
        assert_eq!(missing.collect::<Vec<_>>(), [&""; 0], "{page}: {text}");
    }
}

#[tokio::test]
async fn with_queued_and_running_jobs_nothing_stops_and_everything_can_be_removed() {
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    nodes::pool("machines", 1).label("pool", "machines").make(&plane.client().await.unwrap()).await.unwrap();
    plane.make_namespace("tenant").await.unwrap();
    let setup =
        Setup::new(&plane).unwrap().with(&json!({"integrations": {"frameworks": ["batch/job", "pod"]}}));
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    kubectl::apply(&plane, QUEUES).await.unwrap();
    kubectl::apply(&plane, &job("runs")).await.unwrap();
    wait_for_active_pods(&plane, "runs", 1).await;
    kubectl::apply(&plane, &placed()).await.unwrap();
    wait_until_placed(&plane, false).await;
    kubectl::apply(&plane, &job("waits")).await.unwrap();
    kubectl::apply(&plane, &pod("gated")).await.unwrap();
    eventually("a Workload of each job", DEADLINE, || async {
        let workloads = get(&plane, &["workloads", "-n", "tenant"]).await?;
        Ok(progress(workloads["items"].as_array().map_or(0, Vec::len) == 4, &workloads))
    })
    .await
    .unwrap();

    switched_on_as_the_pages_say(&plane).await;
    let [uninstall, gates, clean_up] = blocks_of_the_book();
    paste(&plane, &uninstall).await;
    manager.stop().await.unwrap();

    // What ran runs on, what waited waits, and both are still described.
    wait_for_active_pods(&plane, "runs", 1).await;
    let waiting = get(&plane, &["job", "waits", "-n", "tenant"]).await.unwrap();
    assert_eq!(waiting["spec"]["suspend"], true);
    let workloads = get(&plane, &["workloads", "-n", "tenant"]).await.unwrap();
    assert_eq!(workloads["items"].as_array().unwrap().len(), 4);
    // No webhook without a server is left: jobs come, change and go.
    kubectl::apply(&plane, &job("later")).await.unwrap();
    wait_for_active_pods(&plane, "later", 1).await;
    let resume = ["-n", "tenant", "patch", "job", "waits", "-p", r#"{"spec":{"suspend":false}}"#];
    kubectl(&plane, &resume).await.unwrap();
    wait_for_active_pods(&plane, "waits", 1).await;

    // The next pod of a job that was placed by topology is held, and no manager is there to place it.
    let args = ["delete", "pods", "-n", "tenant", "-l", "job-name=placed", "--wait=false"];
    kubectl(&plane, &args).await.unwrap();
    wait_until_placed(&plane, true).await;

    paste(&plane, &gates).await;
    wait_until_placed(&plane, false).await;
    let waits = get(&plane, &["pod", "gated", "-n", "tenant"]).await.unwrap();
    assert_eq!(waits["spec"]["schedulingGates"], json!([{ "name": "example.com/mine" }]));
    // The commands help, too, where the namespace was deleted before.
    kubectl(&plane, &["delete", "namespace", "tenant", "--wait=false"]).await.unwrap();
    paste(&plane, &clean_up).await;
    let waits = get(&plane, &["pod", "gated", "-n", "tenant"]).await.unwrap();
    assert_eq!(waits["metadata"]["finalizers"], json!(["example.com/mine"]));
    let free = [
        "-n",
        "tenant",
        "patch",
        "pod",
        "gated",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ];
    kubectl(&plane, &free).await.unwrap();
    let kubeconfig = plane.kubeconfig_path();
    eventually("the namespace to go", DEADLINE, || async {
        let args = ["get", "namespace", "tenant", "-o", "json"];
        let seen = try_kubectl(&kubeconfig, &args, None).await?;
        Ok(progress(!seen.success && seen.stderr.contains("NotFound"), seen.stdout))
    })
    .await
    .unwrap();
    let left = kubectl(&plane, &["get", "crd", "-o", "name"]).await.unwrap();
    assert!(!left.contains("kueue.x-k8s.io"), "{left}");
}

#[tokio::test]
async fn queues_that_came_from_kueue_keep_their_cohort_when_finalizers_are_removed() {
    let plane = ControlPlane::builder().start().await.unwrap();
    plane.make_namespace(chart::NAMESPACE).await.unwrap();
    crds::apply(&plane.client().await.unwrap(), &kueue::definitions("v1beta1", true)).await.unwrap();
    kubectl::apply(&plane, kueue::OBJECTS).await.unwrap();
    let manager = migrate::install(&plane).await;
    let [uninstall, _, clean_up] = blocks_of_the_book();
    paste(&plane, &uninstall).await;
    manager.stop().await.unwrap();
    let (free, _) = clean_up.split_once("# Deletes every queue and Workload:").unwrap();
    paste(&plane, free).await;
    // As it is stored: kubectl still knows the versions of Kueue, and would read another one.
    let queue = get(&plane, &["clusterqueues.v1beta2.kueue.x-k8s.io", "cq"]).await.unwrap();
    assert_eq!(
        (&queue["spec"]["cohortName"], &queue["metadata"]["finalizers"]),
        (&json!("team"), &Value::Null),
        "{queue:#}"
    );
    plane.stop();
}
