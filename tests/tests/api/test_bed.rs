//! The test components around the control plane: the chart, the CRDs, the fault proxy.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use serde_json::json;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, FaultProxy, Setup, chart, client_of, kubectl, shared};
use sluice_tests::place::DEADLINE;

use crate::bed::{definitions, uncharted};

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

#[tokio::test]
async fn the_chart_installs_for_a_manager_outside_and_uninstalls_without_deleting_crds() {
    let (_turn, plane) = uncharted().await;
    let setup = Setup::new(plane).unwrap();
    let url = setup.webhook_url();
    let setup = chart::install(plane, setup, &json!({})).await.unwrap();
    assert_eq!(
        setup.configuration["internalCertManagement"]["webhookSecretName"],
        "kueue-webhook-server-cert"
    );
    assert_eq!(
        setup.configuration["health"]["healthProbeBindAddress"],
        format!("127.0.0.1:{}", setup.health)
    );
    let who = kubectl::try_kubectl(&setup.kubeconfig, &["auth", "whoami", "-o", "json"], None).await.unwrap();
    assert!(who.stdout.contains("system:serviceaccount:kueue-system:kueue-controller-manager"), "{who:?}");
    let definitions: Api<CustomResourceDefinition> = Api::all(plane.client().await.unwrap());
    let queue = definitions.get("clusterqueues.kueue.x-k8s.io").await.unwrap();
    let webhook = queue.spec.conversion.unwrap().webhook.unwrap().client_config.unwrap();
    assert_eq!(webhook.url.unwrap(), format!("{url}/convert"));
    chart::uninstall(plane).await.unwrap();
    definitions.get("clusterqueues.kueue.x-k8s.io").await.unwrap();
}

#[tokio::test]
async fn sluices_own_crds_install_without_the_chart() {
    let plane = definitions().await;
    let flavor = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: plain}\n";
    kubectl::apply(plane, flavor).await.unwrap();
    let got = kubectl::kubectl(plane, &["get", "resourceflavors", "plain", "-o", "name"]).await.unwrap();
    assert_eq!(got.trim(), "resourceflavor.kueue.x-k8s.io/plain");
}

async fn through(plane: &ControlPlane, proxy: &FaultProxy, namespace: &str) -> Client {
    plane.make_namespace(namespace).await.unwrap();
    client_of(&proxy.administrator(plane, namespace).await.unwrap()).await.unwrap()
}

fn code(error: &kube::Error) -> u16 {
    if let kube::Error::Api(status) = error { status.code } else { 0 }
}

#[tokio::test]
async fn the_proxy_refuses_for_a_while_and_counts_writes() {
    let plane = shared().await.unwrap();
    let proxy = FaultProxy::start(plane).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(through(plane, &proxy, "proxy-refuse").await, "proxy-refuse");
    maps.create(&PostParams::default(), &map("one")).await.unwrap();
    proxy.refuse_matching(429, DEADLINE, |method, _| method == "POST").unwrap();
    let refused = maps.create(&PostParams::default(), &map("two")).await.unwrap_err();
    assert_eq!(code(&refused), 429);
    // Only what matches is refused.
    maps.get("one").await.unwrap();
    proxy.refuse(500, DEADLINE).unwrap();
    assert_eq!(code(&maps.get("one").await.unwrap_err()), 500);
    assert_eq!(proxy.refused(), 2);
    proxy.heal();
    maps.create(&PostParams::default(), &map("two")).await.unwrap();
    let writes = proxy.writes();
    assert_eq!(writes.len(), 2);
    assert!(
        writes.iter().all(|write| write.path.ends_with("/configmaps") && write.status == 201),
        "{writes:?}"
    );
}

#[tokio::test]
async fn the_proxy_cuts_after_a_write_that_was_carried_out() {
    let plane = shared().await.unwrap();
    let proxy = FaultProxy::start(plane).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(through(plane, &proxy, "proxy-cut").await, "proxy-cut");
    proxy.cut_after_writes(2);
    maps.create(&PostParams::default(), &map("one")).await.unwrap();
    maps.create(&PostParams::default(), &map("two")).await.unwrap_err();
    assert!(proxy.is_cut());
    maps.list(&ListParams::default()).await.unwrap_err();
    let direct: Api<ConfigMap> = Api::namespaced(plane.client().await.unwrap(), "proxy-cut");
    direct.get("two").await.unwrap();
    proxy.heal();
    eventually("the proxy to serve again", DEADLINE, || async {
        Ok(progress(maps.list(&ListParams::default()).await?.items.len() >= 2, "fewer than two"))
    })
    .await
    .unwrap();
}
