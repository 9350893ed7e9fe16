//! The chart's objects for kinds whose pods wait for admission themselves.

use serde_json::{Value, json};

use crate::chart::{objects, webhooks};

#[test]
fn a_kind_that_suspends_its_pods_brings_webhooks_and_rights_for_these_alone() {
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  managedJobsNamespaceSelector: {matchLabels: {team: ml}}\nintegrations: {frameworks: [deployment]}\n";
    let objects =
        objects(&[&format!("managerConfig.controllerManagerConfigYaml={}", config.replace(',', "\\,"))]);
    let of = |resource: &str| -> Vec<Value> {
        let found = webhooks(&objects).into_iter();
        found.filter(|webhook| webhook["rules"][0]["resources"] == json!([resource])).cloned().collect()
    };
    let (pods, deployments) = (of("pods"), of("deployments"));
    // Pods that nothing suspends are not looked at.
    assert_eq!((pods.len(), deployments.len()), (2, 4));
    let ours = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]});
    for webhook in pods.iter().chain(&deployments) {
        let selected = json!({"matchLabels": {"team": "ml"}, "matchExpressions": [ours]});
        assert_eq!(webhook["namespaceSelector"], selected);
    }
    for webhook in &pods {
        let conditions = webhook["matchConditions"].as_array().unwrap();
        assert!(conditions.iter().any(|one| one["name"] == "is-suspended-by-its-parent"), "{webhook}");
    }
    for webhook in &deployments {
        assert_eq!(webhook["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
    }
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    let may = |resource: &str| rules.iter().any(|rule| rule["resources"] == json!([resource]));
    assert!(may("pods/status") && may("pods") && !may("deployments"));
}
