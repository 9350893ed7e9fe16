//! How the plugin finds a cluster, and its behaviour when a part of it does not answer, with a stand-in for an API server.

use super::*;
use sluice_testkit::binary;

const WORKLOADS: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads";
const LOCAL_QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues";
const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/kueue-system/deployments";

fn list(items: &Value) -> Answer {
    Answer::Document(200, json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
}

/// A cluster with a Workload that waits, whose manager is down.
async fn without_manager(local_queues: Answer) -> Forwarding {
    let metadata =
        |name: &str| json!({"name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:00Z"});
    let workload = json!({"metadata": metadata("waits"), "spec": {"queueName": "main", "podSets": []}});
    let answers = move |path: &str| match path.split('?').next().unwrap_or_default() {
        WORKLOADS => list(&json!([workload])),
        LOCAL_QUEUES => local_queues.clone(),
        QUEUES | DEPLOYMENTS => list(&json!([])),
        LEASE => refusal(404, "NotFound", "leases \"c1f6bfd2.kueue.x-k8s.io\" not found"),
        _ => refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    };
    Forwarding::start(answers).await.unwrap()
}

fn queue() -> Answer {
    list(&json!([{"metadata": {"name": "main", "namespace": "team"}, "spec": {"clusterQueue": "big"}}]))
}

#[tokio::test]
async fn what_the_manager_would_answer_is_asked_for_once_while_it_is_down() {
    let cluster = without_manager(queue()).await;
    let (_folder, kubeconfig) = kubeconfig_of(&cluster);
    let output = run(&kubeconfig, &["list", "wl"]).await;
    assert_eq!(words(&printed(&output))[1][..4], ["waits", "main", "big", "PENDING"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("warning: positions in 1 queue(s) are missing: the server is currently"),
        "{said}"
    );
    let asked = cluster.asked();
    assert_eq!(asked.iter().filter(|path| path.contains("pendingworkloads")).count(), 1, "{asked:?}");

    let output = run(&kubeconfig, &["explain", "job/train"]).await;
    assert_eq!(output.status.code(), Some(1));
    let asked = cluster.asked().split_off(asked.len());
    assert!(asked.len() == 2 && asked[0].starts_with(BY_API) && asked[1] == LEASE, "{asked:?}");

    let output = run(&kubeconfig, &["version"]).await;
    assert!(printed(&output).starts_with("client: "));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "There is no manager in namespace kueue-system.\n");
}

#[tokio::test]
async fn workloads_are_not_chosen_by_queues_that_cannot_be_read() {
    for (code, reason, is_shown) in [(403, "Forbidden", true), (500, "InternalError", false)] {
        let cluster = without_manager(refusal(code, reason, "no LocalQueues for you")).await;
        let (_folder, kubeconfig) = kubeconfig_of(&cluster);
        let output = run(&kubeconfig, &["list", "wl"]).await;
        assert_eq!(output.status.success(), is_shown, "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("no LocalQueues for you"), "{said}");
        let output = run(&kubeconfig, &["list", "wl", "-c", "big"]).await;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{output:?}");
    }
}

#[tokio::test]
async fn migrations_find_the_cluster_as_kubectl_does() {
    let cluster = Forwarding::start(|_| refusal(403, "Forbidden", "not you")).await.unwrap();
    let (folder, kubeconfig) = kubeconfig_of(&cluster);
    fs::create_dir(folder.path().join(".kube")).unwrap();
    fs::rename(kubeconfig, folder.path().join(".kube/config")).unwrap();
    let program = tokio::task::spawn_blocking(binary).await.unwrap().unwrap();
    for line in ["migrate check --context c --as eve", "migrate storage --context c"] {
        let before = cluster.asked().len();
        let mut command = tokio::process::Command::new(&program);
        command.args(line.split(' ')).env("HOME", folder.path()).env_remove("KUBECONFIG");
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("not you") && cluster.asked().len() > before, "{line}: {said}");
    }
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_not_for_this_computer() {
    let plane = plane().await;
    let kubeconfig = plane.kubeconfig_path();
    // Nothing listens there.
    let listed = async |kubeconfig: &Path, proxy: &str| {
        let mut command = tokio::process::Command::new(plugin().unwrap());
        command
            .args(["list", "cq", "--kubeconfig"])
            .arg(kubeconfig)
            .env("HTTPS_PROXY", proxy)
            .env_remove("NO_PROXY");
        command.env_remove("no_proxy").stdin(Stdio::null()).output().await.unwrap()
    };
    let output = listed(&kubeconfig, "http://127.0.0.1:1").await;
    assert_eq!(words(&printed(&output)).len(), 3);
    // Elsewhere it would be asked for, and it is said that none is.
    let elsewhere = kubeconfig.with_file_name("elsewhere.kubeconfig");
    let text = fs::read_to_string(&kubeconfig).unwrap().replace(&plane.url(), "https://192.0.2.1:6443");
    fs::write(&elsewhere, text).unwrap();
    let output = listed(&elsewhere, "http://127.0.0.1:1").await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("HTTPS_PROXY sets a proxy for https://192.0.2.1:6443/"), "{said}");
}
