//! Pods on a node whose kubelet does not answer (gate `FailureRecoveryPolicy`), with the rights of the chart.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use sluice_testkit::kubectl::kubectl;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart};
use sluice_tests::place::{Place, job};

use super::LONG;

/// The pod of the Job that is there and not being deleted.
async fn live_pod(pods: &Api<Pod>, but: &str) -> String {
    let selected = ListParams::default().labels("batch.kubernetes.io/job-name=j");
    eventually("a pod of the Job", LONG, || async {
        let all = pods.list(&selected).await?;
        let names = all.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let found = names.filter_map(|pod| pod.metadata.name).find(|name| name != but);
        Ok(found.map_or(Progress::NotYet("none".to_owned()), Progress::Done))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_job_gets_another_pod_for_one_that_is_stuck_on_a_lost_node() {
    // Without kwok: no node answers.
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let client = plane.client().await.unwrap();
    let gates =
        json!({"controllerManager": {"featureGates": [{"name": "FailureRecoveryPolicy", "enabled": true}]}});
    let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &gates).await.unwrap();
    let _manager = Manager::start(&plane, setup).await.unwrap();
    let place = Place::new(&plane, "stuck", 1).await.unwrap();
    let nodes = Api::<Node>::all(client.clone());
    let unreachable = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"});
    let node = json!({"metadata": {"name": "lost"}, "spec": {"taints": [unreachable]}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();

    let mut agreed = job("j", "lq", 1, 1, 3_600);
    let annotations = &mut agreed["spec"]["template"]["metadata"]["annotations"];
    annotations["kueue.x-k8s.io/safe-to-forcefully-delete"] = json!("true");
    agreed["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
    place.make_job(&agreed).await.unwrap();
    let pods = Api::<Pod>::namespaced(client.clone(), &place.name);
    let stuck = live_pod(&pods, "").await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": stuck},
        "target": {"kind": "Node", "name": "lost"}});
    let bound: serde_json::Value =
        pods.create_subresource("binding", &stuck, &PostParams::default(), &binding).await.unwrap();
    assert_eq!(bound["status"], "Success");
    pods.delete(&stuck, &DeleteParams::default()).await.unwrap();
    assert!(
        pods.get(&stuck).await.unwrap().metadata.deletion_timestamp.is_some(),
        "its end is not confirmed"
    );

    let next = live_pod(&pods, &stuck).await;
    assert_ne!(next, stuck);
    eventually("the stuck pod to be gone", LONG, || async {
        let found = pods.get_opt(&stuck).await?;
        Ok(progress(found.is_none(), format!("{:?}", found.map(|pod| pod.status))))
    })
    .await
    .unwrap();
    let note = "Pod forcefully terminated after 1m0.000000001s grace period due to unreachable node `lost` (triggered by \
                `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)";
    let args = [
        "get",
        "events.events.k8s.io",
        "-n",
        "stuck",
        "-o",
        "jsonpath={.items[?(@.reason=='KueueForcefullyDeleted')]['note', 'action']}",
    ];
    eventually("the event", LONG, || async {
        let reported = kubectl(&plane, &args).await?;
        Ok(progress(reported == format!("{note} ForcefulTermination"), reported))
    })
    .await
    .unwrap();
}
