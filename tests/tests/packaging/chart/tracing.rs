//! The part of the chart about traces.

use serde_json::{Value, json};
use sluice_api::config::Configuration;

use super::objects;

fn configuration(objects: &std::collections::BTreeMap<String, Value>) -> Configuration {
    let text =
        objects["ConfigMap/kueue-manager-config"]["data"]["controller_manager_config.yaml"].as_str().unwrap();
    Configuration::parse(text).unwrap().0
}

#[test]
fn traces_come_with_their_configuration_and_the_secrets_that_it_names() {
    let objects = objects(&[
        "tracing.endpoint=https://collector.example.com:4318",
        "tracing.sampleRatio=0.25",
        "tracing.caSecret.name=otel-ca",
        "tracing.headersSecret.name=otel-headers",
        "tracing.headersSecret.key=all",
    ]);
    let tracing = configuration(&objects).tracing;
    assert_eq!(
        (tracing.endpoint.as_str(), tracing.sample_ratio),
        ("https://collector.example.com:4318", 0.25)
    );
    let pod = &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"];
    let named = |list: &Value, name: &str| {
        list.as_array().unwrap().iter().find(|item| item["name"] == name).cloned().unwrap()
    };
    for (name, secret, file) in [
        ("tracing-ca", "otel-ca", tracing.ca_file.strip_suffix("/ca.crt")),
        ("tracing-headers", "otel-headers", tracing.headers_file.strip_suffix("/all")),
    ] {
        assert_eq!(named(&pod["volumes"], name)["secret"]["secretName"], secret);
        let mount = named(&pod["containers"][0]["volumeMounts"], name);
        assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(file.unwrap()), &json!(true)));
    }
}

#[test]
fn without_an_endpoint_nothing_of_traces_is_there() {
    let objects = objects(&["tracing.caSecret.name=otel-ca"]);
    assert_eq!(configuration(&objects).tracing.endpoint, "");
    let text = serde_json::to_string(&objects["Deployment/kueue-controller-manager"]).unwrap();
    assert!(!text.contains("tracing"), "{text}");
}
