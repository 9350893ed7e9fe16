//! Who may read metrics (reference 08): over TLS only, whoever the API server knows (TokenReview) and lets GET /metrics
//! (SubjectAccessReview), with the chart's roles on both sides.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use http::Request;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::json;
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::{ControlPlane, Manager, Setup, chart};

const ACCOUNTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: kube-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: kube-system}
";

/// The status and text of a GET with this token.
async fn get(manager: &Manager, path: &str, token: Option<&str>) -> (u16, String) {
    let address = format!("https://127.0.0.1:{}", manager.setup().metrics);
    let mut config = Config::new(address.parse().unwrap());
    config.default_retry = false;
    // The manager makes its own certificate.
    config.accept_invalid_certs = true;
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let client = Client::try_from(config).unwrap();
    let answer = client.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn only_those_read_metrics_who_may() {
    let plane = ControlPlane::builder().start().await.unwrap();
    let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    apply(&plane, ACCOUNTS).await.unwrap();
    let binding = ["create", "clusterrolebinding", "prometheus", "--clusterrole=kueue-metrics-reader"];
    let subject = ["--serviceaccount=kube-system:prometheus"];
    kubectl(&plane, &[&binding[..], &subject].concat()).await.unwrap();
    let reader = plane.token_of_service_account("kube-system", "prometheus").await.unwrap();
    let nobody = plane.token_of_service_account("kube-system", "nobody").await.unwrap();

    assert_eq!(get(&manager, "/metrics", None).await.0, 401);
    assert_eq!(get(&manager, "/metrics", Some("made-up")).await.0, 401);
    assert_eq!(get(&manager, "/metrics", Some(&nobody)).await.0, 403);
    let (status, text) = get(&manager, "/metrics", Some(&reader)).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("# TYPE kueue_"), "{text}");
    // The right is for this path alone.
    assert_ne!(get(&manager, "/debug/engine", Some(&reader)).await.0, 200);
    // Nothing is told without TLS.
    let plain = format!("http://127.0.0.1:{}", manager.setup().metrics);
    let client = Client::try_from(Config::new(plain.parse().unwrap())).unwrap();
    let answer = client.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    assert!(answer.is_err() || !answer.unwrap().status().is_success());
    manager.stop().await.unwrap();
    plane.stop();
}
