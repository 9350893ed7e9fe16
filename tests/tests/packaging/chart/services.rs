//! The Services, and how Prometheus reads the metrics: what values files of Kueue's chart say of them.

use serde_json::{Value, json};

use super::{objects, render};

const METRICS: &str = "Service/kueue-controller-manager-metrics-service";

/// The only endpoint of the ServiceMonitor with these values.
fn endpoint(values: &[&str]) -> Value {
    let objects = objects(&[&["enablePrometheus=true"], values].concat());
    let endpoints = &objects["ServiceMonitor/kueue-controller-manager-metrics-monitor"]["spec"]["endpoints"];
    assert_eq!(endpoints.as_array().map(Vec::len), Some(1));
    endpoints[0].clone()
}

#[test]
fn the_port_of_a_service_has_the_name_and_the_node_port_that_the_values_give_it() {
    let with = |service: &str, port: u16| {
        let first = format!("{service}.ports[0]");
        let values = [
            format!("{service}.type=NodePort"),
            format!("{first}.port={port}"),
            format!("{first}.targetPort=9999"),
            format!("{first}.name=mine"),
            format!("{first}.nodePort=30443"),
            format!("{first}.appProtocol=https"),
        ];
        objects(&values.each_ref().map(String::as_str))
    };
    let expected = |port: u16, target: &str| {
        json!([{
            "name": "mine", "port": port, "protocol": "TCP", "targetPort": target, "nodePort": 30443, "appProtocol": "https",
        }])
    };
    assert_eq!(with("metricsService", 8443)[METRICS]["spec"]["ports"], expected(8443, "metrics"));
    let webhook = &with("webhookService", 443)["Service/kueue-webhook-service"];
    assert_eq!(webhook["spec"]["ports"], expected(443, "webhook-server"));
    let renamed = ["metricsService.ports[0].port=8443", "metricsService.ports[0].name=mine"];
    assert_eq!(endpoint(&renamed)["port"], "mine");
}

#[test]
fn what_the_chart_would_leave_out_of_a_port_is_refused() {
    for (key, says) in [("[0].hostPort=1", "'hostPort' not allowed"), ("[1].port=8443", "maxItems")] {
        let more = format!("metricsService.ports{key}");
        let refused = render(&["metricsService.ports[0].port=8443", &more]).expect_err(key);
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn a_scrape_verifies_the_certificate_once_it_has_a_ca() {
    let tls = |values: &[&str]| {
        let set: Vec<_> =
            values.iter().map(|value| format!("metrics.serviceMonitor.tlsConfig.{value}")).collect();
        let set: Vec<_> = set.iter().map(String::as_str).collect();
        endpoint(&set)["tlsConfig"].clone()
    };
    assert_eq!(tls(&[]), json!({"insecureSkipVerify": true}));
    // helm merges this into the values of Kueue's chart, which say the other.
    assert_eq!(tls(&["serverName=x"]), json!({"insecureSkipVerify": true, "serverName": "x"}));
    assert_eq!(tls(&["insecureSkipVerify=false"]), json!({"insecureSkipVerify": false}));
    assert_eq!(tls(&["caFile=/ca.crt"]), json!({"caFile": "/ca.crt"}));
    let secret = tls(&["serverName=x", "ca.secret.name=s", "ca.secret.key=ca.crt"]);
    assert_eq!(secret, json!({"serverName": "x", "ca": {"secret": {"name": "s", "key": "ca.crt"}}}));
}

#[test]
fn the_refusal_of_cert_manager_names_every_place_for_the_ca() {
    let refused = render(&["enableCertManager=true"]).unwrap_err();
    for place in ["webhooks.annotations", "crds.annotations", "visibility.annotations"] {
        assert!(refused.contains(place), "{refused}");
    }
}
