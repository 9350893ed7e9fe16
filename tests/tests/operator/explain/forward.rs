//! The usual way of users: the plugin finds the leading manager and asks it through a forwarded port. A stand-in forwards it, because there is no
//! kubelet; the lease and the manager are real.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sluice_testkit::forwarding::{Answer, Forwarding};
use sluice_testkit::kubectl::kubectl;
use sluice_testkit::{ControlPlane, Manager, plugin};

use super::{NAMESPACE, run, text};

/// What it prints is the page of the manager whose pod the lease names.
pub async fn the_leader_answers(plane: &ControlPlane, manager: &Manager) {
    let lease = ["get", "lease", "c1f6bfd2.kueue.x-k8s.io", "-n", NAMESPACE, "-o", "json"];
    let lease: Value = serde_json::from_str(&kubectl(plane, &lease).await.unwrap()).unwrap();
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
    let pod = holder.strip_prefix("sluice_").unwrap().rsplit_once('_').unwrap().0.to_owned();
    let health = SocketAddr::from(([127, 0, 0, 1], manager.setup().health));
    let forward = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}/portforward?&ports=8081");
    let wanted = forward.clone();
    let forwarding = Forwarding::start(move |path| match path {
        path if path == wanted => Answer::Forward(health),
        path if path.contains("/leases/") => Answer::Document(200, lease.clone()),
        path => Answer::Document(
            404,
            json!({"kind": "Status", "status": "Failure", "code": 404, "message": path}),
        ),
    })
    .await
    .unwrap();
    let kubeconfig = plane.folder().join("forwarding.kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],
        "clusters": [{"name": "c", "cluster": {"server": forwarding.url()}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    let asked = tokio::task::spawn_blocking(move || {
        run(&plugin().unwrap(), &["explain", "job/second", "--kubeconfig", &kubeconfig])
    });
    let said = text(&asked.await.unwrap());
    let (status, page) = manager.health("/debug/explain/default/second?kind=job&output=text").await.unwrap();
    assert_eq!(status, 200, "{page}");
    // The first line names what is asked about; waiting times continue meanwhile.
    assert_eq!(said.lines().next(), page.lines().next());
    assert!(said.contains("starts now with parallelism 1"), "{said}");
    assert_eq!(forwarding.asked().last(), Some(&forward));
}
