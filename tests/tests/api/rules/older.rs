//! Rules of v1beta1, of the kinds that the API server converts by itself. Some are stricter than in v1beta2.

use kube::Client;
use serde_json::json;

use super::table::Table;
use super::{check_base, class, clusters, levels, spec};

pub async fn rules(client: &Client) -> String {
    const HOST: &str = "kubernetes.io/hostname";
    let mut topologies = Table::older(client, "Topology", levels(&["a", HOST]));
    let same = json!({"metadata": {"labels": {"a": "b"}}});
    topologies.update("Topology: levels are immutable", json!({}), same.clone(), levels(&["b", HOST])).await;
    topologies.create("Topology: levels are unique", json!({}), levels(&["a", "a"])).await;
    let mut checks = Table::older(client, "AdmissionCheck", check_base());
    let other = json!({"spec": {"controllerName": "other"}});
    checks.update("AdmissionCheck: controllerName is immutable", json!({}), same.clone(), other).await;
    checks
        .create(
            "AdmissionCheck: retryDelayMinutes is a number",
            spec("retryDelayMinutes", 5),
            spec("retryDelayMinutes", "5m"),
        )
        .await;
    let tas = json!({"spec": {"topologyName": "t", "nodeLabels": {"a": "b"}}});
    let mut flavors = Table::older(client, "ResourceFlavor", tas);
    flavors
        .update("ResourceFlavor: topologyName is immutable", json!({}), same, spec("topologyName", "u"))
        .await;
    let effect = |effect: &str| spec("nodeTaints", json!([{"key": "a", "effect": effect}]));
    flavors.create("ResourceFlavor: effects are known", effect("NoExecute"), effect("Never")).await;
    let mut configs = Table::older(client, "MultiKueueConfig", clusters(&["a"]));
    configs
        .create("MultiKueueConfig: clusters are a set", clusters(&["a", "b"]), clusters(&["a", "a"]))
        .await;
    configs
        .create(
            "MultiKueueConfig: quotaManagement is not known yet",
            json!({}),
            spec("quotaManagement", "Manual"),
        )
        .await;
    let mut classes = Table::older(client, "WorkloadPriorityClass", json!({"value": 1}));
    classes
        .create(
            "WorkloadPriorityClass: value is required, a description has no limit",
            json!({"description": "x".repeat(2049)}),
            json!({"value": null}),
        )
        .await;
    let mut provisioning = Table::older(client, "ProvisioningRequestConfig", class("c"));
    let managed = |names: &[&str]| spec("managedResources", json!(names));
    provisioning
        .create(
            "ProvisioningRequestConfig: managed resources are unique",
            managed(&["a", "b"]),
            managed(&["a", "a"]),
        )
        .await;
    [topologies, checks, flavors, configs, classes, provisioning].map(|table| table.report).concat()
}
