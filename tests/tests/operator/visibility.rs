//! The positions of Workloads by the aggregated API on a real control plane: the API server's own proxy, the chart's roles, every replica.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod book;
mod upstream;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use sluice_api::visibility::PendingWorkloadsSummary;
use sluice_testkit::kubectl::{apply, kubectl, try_kubectl};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, plugin};
use sluice_tests::place::{DEADLINE, Place};

const API: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2";

/// A team's user: they may look at the queues of their own namespace, and ask why their Workloads wait.
const ALICE: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: alice, namespace: vis-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice, namespace: vis-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-batch-user-role}
subjects: [{kind: ServiceAccount, name: alice, namespace: vis-a}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: bob, namespace: vis-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: bob, namespace: vis-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-pending-workloads-lq-viewer-role}
subjects: [{kind: ServiceAccount, name: bob, namespace: vis-a}]
";

/// Who may see what waits in ClusterQueues.
const CAROL: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: carol, namespace: vis-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: vis-carol}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-pending-workloads-cq-viewer-role}
subjects: [{kind: ServiceAccount, name: carol, namespace: vis-a}]
";

/// An administrator of queues who is not a cluster administrator.
const DORA: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: dora, namespace: vis-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: vis-dora}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-batch-admin-role}
subjects: [{kind: ServiceAccount, name: dora, namespace: vis-a}]
";

/// A queue of another team, which would take every namespace.
const SECRET_TEAM: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: secret-team}
spec: {namespaceSelector: {}}
";

/// A plane of its own with the chart, and its manager: it serves the aggregated APIs, which are cluster-wide.
async fn plane() -> (ControlPlane, Manager) {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let setup = Setup::new(&plane).unwrap();
    let values = json!({"visibility": {"apiServices": true}, "enableVisibilityAPF": true});
    let setup = chart::install(&plane, setup, &values).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    (plane, manager)
}

/// The API server finds the API available, over TLS with the CA that the manager put in.
async fn wait_until_available(plane: &ControlPlane) {
    for name in [
        "v1beta1.visibility.kueue.x-k8s.io",
        "v1beta2.visibility.kueue.x-k8s.io",
        "v1alpha1.visibility.sluice.dev",
    ] {
        eventually(&format!("{name} to be available"), DEADLINE, || async {
            let found: Value =
                serde_json::from_str(&kubectl(plane, &["get", "apiservice", name, "-o", "json"]).await?)?;
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let available = conditions.iter().any(|c| c["type"] == "Available" && c["status"] == "True");
            let verified =
                found["spec"]["caBundle"].is_string() && found["spec"]["insecureSkipTLSVerify"].is_null();
            Ok(progress(available && verified, format!("{:#}", found["status"])))
        })
        .await
        .unwrap();
    }
}

async fn raw(kubeconfig: &Path, path: &str) -> Result<Value, String> {
    let output = try_kubectl(kubeconfig, &["get", "--raw", path], None).await.unwrap();
    if output.success { Ok(serde_json::from_str(&output.stdout).unwrap()) } else { Err(output.stderr) }
}

/// Job, place in the ClusterQueue and place in the LocalQueue of each item.
fn places(summary: Value) -> Vec<String> {
    let summary: PendingWorkloadsSummary = serde_json::from_value(summary).unwrap();
    let items = summary.items.into_iter().map(|item| {
        let job = item.metadata.owner_references[0].name.clone();
        format!("{job} {} {}", item.position_in_cluster_queue, item.position_in_local_queue)
    });
    items.collect()
}

async fn wait_for_places(kubeconfig: &Path, path: &str, wanted: &[&str]) {
    eventually(&format!("{path} to say {wanted:?}"), DEADLINE, || async {
        Ok(match raw(kubeconfig, path).await {
            Ok(found) => {
                let found = places(found);
                progress(found == wanted, format!("{found:?}"))
            }
            Err(why) => Progress::NotYet(why),
        })
    })
    .await
    .unwrap();
}

fn of(namespace: &str) -> String {
    format!("{API}/namespaces/{namespace}/localqueues/lq/pendingworkloads")
}

/// Runs the plugin as a user.
fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    let config = format!("--kubeconfig={}", kubeconfig.display());
    Command::new(plugin().unwrap()).args(args).arg(config).env_remove("KUBECONFIG").output().unwrap()
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn users_see_where_their_workloads_stand_and_no_more_than_they_may() {
    let (plane, manager) = plane().await;
    let admin = plane.kubeconfig_path();
    // No job fits: all wait, two of one team and one of another between them.
    let ours = Place::new(&plane, "vis-a", 0).await.unwrap();
    let theirs = Place::bare(&plane, "vis-b").await.unwrap();
    theirs.local_queue("lq", "vis-a").await.unwrap();
    apply(&plane, ALICE).await.unwrap();
    wait_until_available(&plane).await;
    let users = users(&plane).await;
    for (place, name) in [(&ours, "first"), (&theirs, "secret"), (&ours, "second")] {
        place.job(name, "lq", 1).await.unwrap();
        place.workload(name).await.unwrap();
        // Those of one second are in the order of their UIDs.
        a_second_later(&plane).await;
    }
    let in_cluster_queue = format!("{API}/clusterqueues/vis-a/pendingworkloads");
    wait_for_places(&admin, &in_cluster_queue, &["first 0 0", "secret 1 0", "second 2 1"]).await;
    users_see_their_own(&users, &in_cluster_queue).await;
    the_plugin_shows_places(&users[0], &users[1]);
    explanations_name_no_others(&plane, &users[0]);
    a_replica_that_waits_answers_too(&plane, &manager, &users[0]).await;

    ours.delete_job("first").await.unwrap();
    wait_for_places(&users[0], &of("vis-a"), &["second 1 0"]).await;
    wait_for_places(&admin, &in_cluster_queue, &["secret 0 0", "second 1 0"]).await;
    let old = in_cluster_queue.replace("v1beta2", "v1beta1");
    wait_for_places(&admin, &format!("{old}?offset=1&limit=1"), &["second 1 0"]).await;
    let missing = raw(&admin, &format!("{API}/clusterqueues/none/pendingworkloads")).await.unwrap_err();
    assert!(missing.contains("\"none\" not found"), "{missing}");
    let resources = raw(&admin, API).await.unwrap();
    assert_eq!(resources["kind"], "APIResourceList");
    the_api_server_s_documents_contain_ours(&plane).await;
    ours.make_urgent("vis-urgent", 1).await.unwrap();
    a_viewer_of_cluster_queues_sees_them_with_priorities(&plane, &in_cluster_queue).await;
    an_administrator_of_queues_sees_all(&plane, &in_cluster_queue).await;
    // kubectl's own commands are not led astray.
    assert!(
        kubectl(&plane, &["get", "clusterqueues", "vis-a", "-o", "name"])
            .await
            .unwrap()
            .contains("kueue.x-k8s.io/vis-a")
    );
    upstream::works_with_kueue_s_own_command_line(&plane).await;
    book::its_pages_work_as_they_are_typed(&plane).await;
    queues_of_others_are_not_named(&plane, &ours, &users[0]).await;
}

/// Discovery and the descriptions of all types, as kubectl and generated clients read them from the API server.
async fn the_api_server_s_documents_contain_ours(plane: &ControlPlane) {
    let ask = async |path: &str, accept: &str| -> anyhow::Result<Value> {
        let request = http::Request::get(path).header("Accept", accept).body(Vec::new())?;
        Ok(plane.client().await?.request(request).await?)
    };
    let explain = "/apis/visibility.sluice.dev/v1alpha1/namespaces/{namespace}/workloads/{name}/explain";
    let pending = format!("{API}/clusterqueues/{{name}}/pendingworkloads");
    eventually("the second version of OpenAPI to have our paths", DEADLINE, || async {
        let paths = ask("/openapi/v2", "application/json").await?["paths"].clone();
        let has = [explain, pending.as_str()].map(|path| paths[path]["get"].is_object());
        Ok(progress(has == [true, true], format!("{has:?}")))
    })
    .await
    .unwrap();
    for (group, path) in
        [("visibility.sluice.dev/v1alpha1", explain), ("visibility.kueue.x-k8s.io/v1beta2", pending.as_str())]
    {
        eventually(&format!("the third version of OpenAPI to have {group}"), DEADLINE, || async {
            let index = ask("/openapi/v3", "application/json").await?;
            let url = index["paths"][format!("apis/{group}")]["serverRelativeURL"].clone();
            let Some(url) = url.as_str() else { return Ok(Progress::NotYet(index["paths"].to_string())) };
            let paths = ask(url, "application/json").await?["paths"].clone();
            Ok(progress(paths[path]["get"].is_object(), paths))
        })
        .await
        .unwrap();
    }
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    eventually("the one document of discovery to have our groups", DEADLINE, || async {
        let all = ask("/apis", accept).await?;
        let groups = all["items"].as_array().cloned().unwrap_or_default();
        let versions = |group: &str| -> Vec<String> {
            let own = groups.iter().find(|one| one["metadata"]["name"] == group);
            let versions = own.and_then(|own| own["versions"].as_array()).into_iter().flatten();
            let fresh = versions.filter(|version| version["freshness"] == "Current");
            fresh
                .flat_map(|version| {
                    let resources = version["resources"].as_array().into_iter().flatten();
                    let subs = resources.filter_map(|one| one["subresources"].as_array()).flatten();
                    subs.map(|sub| format!("{} {}", version["version"], sub["subresource"]).replace('"', ""))
                })
                .collect()
        };
        let found = [versions("visibility.sluice.dev"), versions("visibility.kueue.x-k8s.io")];
        let wanted = [
            ["v1alpha1 explain", "v1alpha1 whatif"].as_slice(),
            ["v1beta1 pendingworkloads", "v1beta2 pendingworkloads"].as_slice(),
        ];
        let has = found
            .iter()
            .zip(wanted)
            .all(|(found, wanted)| wanted.iter().all(|one| found.iter().any(|found| found == one)));
        Ok(progress(has, format!("{found:?}")))
    })
    .await
    .unwrap();
}

/// The role for what waits in ClusterQueues lets its user read that, each with its priority, and no LocalQueue.
async fn a_viewer_of_cluster_queues_sees_them_with_priorities(plane: &ControlPlane, in_cluster_queue: &str) {
    apply(plane, CAROL).await.unwrap();
    let carol = plane.kubeconfig_for_service_account("vis-a", "carol").await.unwrap();
    wait_for_places(&carol, in_cluster_queue, &["urgent 0 0", "secret 1 0", "second 2 1"]).await;
    let summary: PendingWorkloadsSummary =
        serde_json::from_value(raw(&carol, in_cluster_queue).await.unwrap()).unwrap();
    let priorities: Vec<_> = summary.items.iter().map(|item| item.priority).collect();
    assert_eq!(priorities, [1_000, 0, 0]);
    let refused = raw(&carol, &of("vis-a")).await.unwrap_err();
    assert!(refused.contains("Forbidden"), "{refused}");
}

/// The role for administrators lets its user read what waits in every queue, and see the work of all in explanations.
async fn an_administrator_of_queues_sees_all(plane: &ControlPlane, in_cluster_queue: &str) {
    apply(plane, DORA).await.unwrap();
    let dora = plane.kubeconfig_for_service_account("vis-a", "dora").await.unwrap();
    for (path, places) in [
        (in_cluster_queue.to_owned(), &["urgent 0 0", "secret 1 0", "second 2 1"][..]),
        (of("vis-b"), &["secret 1 0"]),
    ] {
        wait_for_places(&dora, &path, places).await;
    }
    let text = printed(&run(&dora, &["explain", "job/second", "-n", "vis-a", "-A"]));
    is_about_second(&text);
    assert!(text.contains("vis-b/"), "{text}");
    let text = printed(&run(&dora, &["explain", "job/secret", "-n", "vis-b"]));
    assert!(text.starts_with("vis-b/secret "), "{text}");
}

/// What there is to choose from is for those who may list ClusterQueues.
async fn queues_of_others_are_not_named(plane: &ControlPlane, ours: &Place<'_>, alice: &Path) {
    apply(plane, SECRET_TEAM).await.unwrap();
    ours.job("lost", "none", 1).await.unwrap();
    ours.workload("lost").await.unwrap();
    let question = ["explain", "job/lost", "-n", "vis-a"];
    let admin = plane.kubeconfig_path();
    eventually("the administrator to be shown the queue", DEADLINE, || async {
        let text = printed(&run(&admin, &question));
        Ok(progress(text.contains("secret-team"), text))
    })
    .await
    .unwrap();
    let text = printed(&run(alice, &question));
    assert!(text.contains("the LocalQueue none does not exist") && text.contains("-c vis-a"), "{text}");
    assert!(!text.contains("secret-team"), "{text}");
}

/// The kubeconfigs of the users.
async fn users(plane: &ControlPlane) -> [PathBuf; 2] {
    let of = async |name| plane.kubeconfig_for_service_account("vis-a", name).await.unwrap();
    [of("alice").await, of("bob").await]
}

/// Waits until a second has passed on the API server's clock, as the times of objects show it.
async fn a_second_later(plane: &ControlPlane) {
    let stamp = async || {
        let review = [
            "create",
            "configmap",
            "clock",
            "-n",
            "vis-a",
            "--dry-run=server",
            "-o",
            "jsonpath={.metadata.creationTimestamp}",
        ];
        kubectl(plane, &review).await
    };
    let before = stamp().await.unwrap();
    eventually("a second to pass", DEADLINE, || async {
        let now = stamp().await?;
        Ok(progress(now != before, now))
    })
    .await
    .unwrap();
}

async fn users_see_their_own(users: &[PathBuf], in_cluster_queue: &str) {
    for user in users {
        assert_eq!(places(raw(user, &of("vis-a")).await.unwrap()), ["first 0 0", "second 2 1"]);
        for path in [of("vis-b"), in_cluster_queue.to_owned()] {
            let refused = raw(user, &path).await.unwrap_err();
            assert!(refused.contains("Forbidden") && !refused.contains("secret"), "{refused}");
        }
    }
}

fn the_plugin_shows_places(alice: &Path, bob: &Path) {
    let table = printed(&run(alice, &["list", "workload", "-n", "vis-a"]));
    let column = |job: &str| {
        let line = table.lines().find(|line| line.split_whitespace().any(|word| word == job)).unwrap();
        line.split_whitespace().nth(6).unwrap().to_owned()
    };
    assert!(table.contains("POSITION IN QUEUE"), "{table}");
    assert_eq!((column("first").as_str(), column("second").as_str()), ("0", "1"), "{table}");
    // This user may see the queue, and not why a Workload waits.
    let refused = run(bob, &["explain", "job/second", "-n", "vis-a"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("workloads/explain"), "{why}");
}

/// Whether an explanation is that of the job `second`, and says that it waits.
fn is_about_second(text: &str) {
    let first = text.lines().next().unwrap_or_default();
    let is =
        first.starts_with("vis-a/second (Workload job-second-") && first.ends_with(", priority 0): waiting");
    assert!(is, "{text}");
}

fn explanations_name_no_others(plane: &ControlPlane, alice: &Path) {
    // By the API alone: she may not forward ports.
    let text = printed(&run(alice, &["explain", "job/second", "-n", "vis-a"]));
    is_about_second(&text);
    // The same place as the API and the list say.
    assert!(text.lines().any(|line| line == "place 2 in ClusterQueue vis-a"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    let all = printed(&run(alice, &["explain", "job/second", "-n", "vis-a", "-A", "-o", "json"]));
    assert!(serde_json::from_str::<Value>(&all).unwrap().is_object() && !all.contains("secret"), "{all}");
    let admin = printed(&run(&plane.kubeconfig_path(), &["explain", "job/second", "-n", "vis-a", "-A"]));
    assert!(admin.contains("secret"), "{admin}");
    let refused = run(alice, &["explain", "job/secret", "-n", "vis-b"]);
    assert!(!refused.status.success());
    // Less than nothing is free, so no smaller job helps; one without a request does.
    let change = r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let text = printed(&run(alice, &["explain", "job/second", "-n", "vis-a", "--what-if", change]));
    assert!(
        text.contains("without the change: waits") && text.contains("with the change: starts now"),
        "{text}"
    );
    let refused = run(alice, &["explain", "job/secret", "-n", "vis-b", "--what-if", change]);
    assert!(!refused.status.success() && !String::from_utf8_lossy(&refused.stderr).contains("starts"));
}

/// A second replica does not lead; it is asked itself, with a user's token.
async fn a_replica_that_waits_answers_too(plane: &ControlPlane, leader: &Manager, alice: &Path) {
    let setup = leader.setup().replica().unwrap();
    let port = setup.visibility;
    let follower = Manager::start(plane, setup).await.unwrap();
    eventually("the second replica to say that the first leads", DEADLINE, || async {
        let (_, ready) = follower.health("/readyz").await?;
        Ok(progress(ready.contains("leads"), ready))
    })
    .await
    .unwrap();
    let mut kubeconfig = Kubeconfig::read_from(alice).unwrap();
    let cluster = kubeconfig.clusters[0].cluster.as_mut().unwrap();
    cluster.server = Some(format!("https://127.0.0.1:{port}"));
    cluster.certificate_authority = None;
    let secret = [
        "get",
        "secret",
        "kueue-webhook-server-cert",
        "-n",
        chart::NAMESPACE,
        "-o",
        "jsonpath={.data.ca\\.crt}",
    ];
    cluster.certificate_authority_data = Some(kubectl(plane, &secret).await.unwrap());
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let ask = async |path: String| -> kube::Result<Value> {
        client.request(http::Request::get(path).body(Vec::new()).unwrap()).await
    };
    eventually("the replica that waits to answer", DEADLINE, || async {
        Ok(match ask(of("vis-a")).await {
            Ok(found) => progress(places(found.clone()) == ["first 0 0", "second 2 1"], found),
            Err(error) => Progress::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
    let refused = ask(of("vis-b")).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    let forged = http::Request::get(of("vis-b"))
        .header("X-Remote-User", "admin")
        .header("X-Remote-Group", "system:masters");
    let refused = client.request::<Value>(forged.body(Vec::new()).unwrap()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    let why = ask(
        "/apis/visibility.sluice.dev/v1alpha1/namespaces/vis-a/workloads/second/explain?kind=job&output=text"
            .to_owned(),
    );
    let why = why.await.unwrap();
    is_about_second(why["text"].as_str().unwrap());
}
