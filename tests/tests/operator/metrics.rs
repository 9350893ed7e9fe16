//! Access to metrics (docs/reference/08-tooling.md): over TLS only, for users whom the API server authenticates (TokenReview) and allows to GET
//! /metrics (SubjectAccessReview), with the chart's roles on both sides.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::{Duration, Instant};

use futures::future::join_all;
use http::Request;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use serde_json::json;
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::metrics::{Scraper, sum, wait_until_allowed};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{Manager, Setup};
use sluice_tests::place::DEADLINE;

use crate::bare;
use crate::bed::{Bed, bed};

const ACCOUNTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: kube-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: no-rights, namespace: kube-system}
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

/// The status of GET /metrics with this token, from this address.
async fn status_from(manager: &Manager, from: [u8; 4], token: &str) -> u16 {
    let address = format!("https://127.0.0.1:{}", manager.setup().metrics);
    let mut config = Config::new(address.parse().unwrap());
    config.accept_invalid_certs = true;
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_local_address(Some(from.into()));
    let connector = config.rustls_https_connector_with_connector(connector).unwrap();
    let client = legacy::Client::builder(TokioExecutor::new()).build(connector);
    let request =
        Request::get(format!("{address}/metrics")).header("authorization", format!("Bearer {token}"));
    let answer = client.request(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
    answer.status().as_u16()
}

#[tokio::test]
async fn made_up_tokens_from_one_address_do_not_keep_a_new_reader_at_another_waiting() {
    let Bed { plane, manager } = bed().await;
    let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: rotated, namespace: kube-system}\n";
    apply(plane, account).await.unwrap();
    let binding = ["create", "clusterrolebinding", "rotated", "--clusterrole=kueue-metrics-reader"];
    kubectl(plane, &[&binding[..], &["--serviceaccount=kube-system:rotated"]].concat()).await.unwrap();
    wait_until_allowed(plane, "kube-system", "rotated").await.unwrap();
    let rotated = plane.token_of_service_account("kube-system", "rotated").await.unwrap();
    // Several at once: on a slow machine a turn could come back before the next of one after the other.
    let mut statuses = Vec::new();
    let began = Instant::now();
    while !statuses.contains(&429) {
        assert!(began.elapsed() < DEADLINE, "{statuses:?}");
        let so_far = statuses.len();
        let asks = (0..10).map(|number| async move {
            status_from(manager, [127, 0, 0, 3], &format!("made-up-{}", so_far + number)).await
        });
        statuses.extend(join_all(asks).await);
    }
    assert!(statuses.contains(&401) && !statuses.contains(&200), "{statuses:?}");
    let read = status_from(manager, [127, 0, 0, 2], &rotated);
    // However busy the machine is.
    let status = tokio::time::timeout(Duration::from_secs(15), read).await;
    assert_eq!(status.expect("an answer soon"), 200);
}

#[tokio::test]
async fn only_users_with_the_right_read_metrics() {
    let Bed { plane, manager } = bed().await;
    apply(plane, ACCOUNTS).await.unwrap();
    let binding = ["create", "clusterrolebinding", "prometheus", "--clusterrole=kueue-metrics-reader"];
    let subject = ["--serviceaccount=kube-system:prometheus"];
    kubectl(plane, &[&binding[..], &subject].concat()).await.unwrap();
    wait_until_allowed(plane, "kube-system", "prometheus").await.unwrap();
    let reader = plane.token_of_service_account("kube-system", "prometheus").await.unwrap();
    let no_rights = plane.token_of_service_account("kube-system", "no-rights").await.unwrap();

    assert_eq!(get(manager, "/metrics", None).await.0, 401);
    assert_eq!(get(manager, "/metrics", Some("made-up")).await.0, 401);
    assert_eq!(get(manager, "/metrics", Some(&no_rights)).await.0, 403);
    let (status, text) = get(manager, "/metrics", Some(&reader)).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("# TYPE kueue_"), "{text}");
    // The right is for this path alone.
    assert_ne!(get(manager, "/debug/engine", Some(&reader)).await.0, 200);
    // Nothing is served without TLS.
    let plain = format!("http://127.0.0.1:{}", manager.setup().metrics);
    let client = Client::try_from(Config::new(plain.parse().unwrap())).unwrap();
    let answer = client.send(Request::get("/metrics").body(Body::empty()).unwrap()).await;
    assert!(answer.is_err() || !answer.unwrap().status().is_success());
}

const LABELLED: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: labelled}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: labelled}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: labelled, labels: {team: red}}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: labelled, resources: [{name: cpu, nominalQuota: "1"}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: labelled, annotations: {example.com/stage: prod}}
spec: {clusterQueue: labelled}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sample, namespace: labelled, labels: {kueue.x-k8s.io/queue-name: lq, class: train}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"#;

#[tokio::test]
async fn custom_labels_are_scraped_and_move_with_the_labels_of_the_objects() {
    // The manager has a gate and labels that no other test expects.
    let (_turn, plane) = (bare::turn().await, bare::plane().await);
    let setup = Setup::new(plane).unwrap().with(&json!({
        "featureGates": {"CustomMetricLabels": true},
        "metrics": {"customLabels": [
            {"name": "team"},
            {"name": "stage", "sourceKind": "LocalQueue", "sourceAnnotationKey": "example.com/stage"},
            {"name": "class", "sourceKind": "Workload", "trackedValues": ["train"]},
        ]},
    }));
    let manager = Manager::start(plane, setup).await.unwrap();
    apply(plane, LABELLED).await.unwrap();
    let scraper = Scraper::new(plane);
    let wait = async |name: &str, labels: &[&str]| {
        eventually("the series", DEADLINE, || async {
            let text = scraper.scrape(&manager).await?;
            Ok(progress(sum(&text, name, labels) == Some(1.0), text))
        })
        .await
        .unwrap();
        scraper.scrape(&manager).await.unwrap()
    };
    let admitted = "kueue_admitted_workloads_total";
    wait(admitted, &[r#"cluster_queue="labelled""#, r#"custom_team="red""#]).await;
    let local = [r#"name="lq""#, r#"custom_stage="prod""#, r#"custom_class="train""#];
    wait("kueue_local_queue_admitted_workloads_total", &local).await;
    let now = ["label", "clusterqueue", "labelled", "team=blue", "--overwrite"];
    kubectl(plane, &now).await.unwrap();
    let active = "kueue_admitted_active_workloads";
    let text = wait(active, &[r#"custom_team="blue""#, r#"custom_class="train""#]).await;
    assert!(!text.contains(r#"custom_team="red""#), "{text}");
    assert_eq!(sum(&text, admitted, &[]), None, "what was counted under the old label is gone: {text}");
    manager.stop().await.unwrap();
}
