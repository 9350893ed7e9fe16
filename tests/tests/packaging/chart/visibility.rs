//! The aggregated APIs in the chart: registered only if the manager serves them.

use super::{OUTSIDE, objects, render};

/// Whether the APIs are registered, their Service is there and the manager has the port, under these feature gates.
fn served(gates: &str) -> [bool; 3] {
    let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration";
    let config = format!("{head}\nfeatureGates: {gates}\n").replace(',', "\\,");
    let objects = objects(&[&format!("managerConfig.controllerManagerConfigYaml={config}")]);
    let container =
        &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"]["containers"][0];
    let port = container["ports"].as_array().unwrap().iter().any(|port| port["name"] == "visibility");
    let any = |kind: &str| objects.keys().any(|name| name.starts_with(kind));
    [any("APIService/"), any("Service/kueue-visibility-server"), port]
}

#[test]
fn apis_that_the_manager_does_not_serve_are_not_registered() {
    // An APIService without a server keeps every namespace from being deleted.
    for (gates, expected) in [
        ("{}", true),
        ("{VisibilityOnDemand: false}", false),
        ("{AllBeta: false}", false),
        ("{AllBeta: true}", true),
        ("{AllBeta: false, VisibilityOnDemand: true}", true),
        ("{AllBeta: true, VisibilityOnDemand: false}", false),
    ] {
        assert_eq!(served(gates), [expected; 3], "{gates}");
        let parsed: std::collections::BTreeMap<String, bool> = serde_saphyr::from_str(gates).unwrap();
        let parsed = parsed.iter().map(|(name, on)| (name.as_str(), *on));
        let (enabled, _) = sluice_api::gates::Gates::from_entries(parsed).unwrap();
        assert_eq!(enabled.enabled(sluice_api::gates::Gate::VisibilityOnDemand), expected, "{gates}");
    }
}

#[test]
fn the_apis_of_a_manager_outside_lead_to_it_or_are_not_registered() {
    let apis =
        |values: &[&str]| objects(values).keys().filter(|name| name.starts_with("APIService/")).count();
    assert_eq!(apis(&OUTSIDE), 3);
    assert_eq!(objects(&OUTSIDE)["Service/kueue-visibility-server"]["spec"]["type"], "ExternalName");
    let [replicas, url, _] = OUTSIDE;
    assert_eq!(apis(&[replicas, url, "visibility.apiServices=false"]), 0);
    let gate = [
        "controllerManager.featureGates[0].name=VisibilityOnDemand",
        "controllerManager.featureGates[0].enabled=false",
    ];
    assert_eq!(apis(&[replicas, url, gate[0], gate[1]]), 0);
    assert!(render(&[replicas, url]).is_err());
}
