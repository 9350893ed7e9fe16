//! The dashboard in the chart.

use serde_json::json;
use sluice_tests::book::blocks;

use super::objects;

#[test]
fn the_dashboard_is_off_by_default_and_has_a_port_and_a_service_of_its_own() {
    let off = objects(&["networkPolicy.enabled=true"]);
    assert!(!off.contains_key("Service/kueue-dashboard"));
    assert!(!off["NetworkPolicy/kueue-controller-manager"].to_string().contains("dashboard"));
    let on = objects(&["networkPolicy.enabled=true", "dashboard.enabled=true", "dashboard.port=8091"]);
    assert_eq!(on["Service/kueue-dashboard"]["spec"]["ports"][0]["targetPort"], "dashboard");
    let container = &on["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"]["containers"][0];
    let port = json!({"name": "dashboard", "containerPort": 8091, "protocol": "TCP"});
    assert!(container["ports"].as_array().unwrap().contains(&port));
    assert!(on["NetworkPolicy/kueue-controller-manager"].to_string().contains("\"dashboard\""));
    let configuration = on["ConfigMap/kueue-manager-config"]["data"].to_string();
    assert!(configuration.contains("dashboard:") && configuration.contains("port: 8091"), "{configuration}");
}

#[test]
fn the_page_forwards_a_port_that_the_service_has() {
    let page = blocks("docs/tasks/dashboard.md", "sh").unwrap();
    let command = page.iter().find(|block| block.contains(" port-forward ")).unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    let ["kubectl", "-n", namespace, "port-forward", service, ports] = words[..] else {
        unreachable!("{command}")
    };
    let name = service.strip_prefix("service/").unwrap();
    let (_, port) = ports.split_once(':').unwrap();
    let service = &objects(&["dashboard.enabled=true"])[&format!("Service/{name}")];
    assert_eq!(service["metadata"]["namespace"], namespace);
    assert_eq!(service["spec"]["ports"][0]["port"], port.parse::<u16>().unwrap());
}
