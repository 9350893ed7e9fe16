//! The journal's part of the chart.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_testkit::assets;

use super::objects;

#[test]
fn the_journal_comes_with_its_volume_its_configuration_and_its_role() {
    let objects = objects(&[
        "journal.enabled=true",
        "journal.volume.persistentVolumeClaim.claimName=kept",
        "journal.maxTotalSize=5Gi",
    ]);
    let pod = &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"];
    let named = |list: &Value| {
        list.as_array().unwrap().iter().find(|item| item["name"] == "journal").cloned().unwrap()
    };
    let volume = json!({"name": "journal", "persistentVolumeClaim": {"claimName": "kept"}});
    assert_eq!(named(&pod["volumes"]), volume, "without the default");
    let folder = named(&pod["containers"][0]["volumeMounts"])["mountPath"].clone();
    let text =
        objects["ConfigMap/kueue-manager-config"]["data"]["controller_manager_config.yaml"].as_str().unwrap();
    let (configuration, _) = Configuration::parse(text).unwrap();
    assert_eq!(json!(configuration.journal.directory), folder);
    assert_eq!(configuration.journal.total_bytes(), 5 << 30);
    let role = &objects["ClusterRole/kueue-journal-viewer-role"];
    assert_eq!(role["rules"][0]["resources"], json!(["clusterqueues/journal"]));
    let labels = role["metadata"]["labels"].as_object().unwrap();
    assert!(labels.contains_key("rbac.kueue.x-k8s.io/batch-admin"), "{labels:?}");
    assert!(!labels.contains_key("rbac.kueue.x-k8s.io/batch-user"), "names of all namespaces: {labels:?}");
}

#[test]
fn a_bucket_comes_with_its_keys_its_authority_and_an_identity() {
    let objects = objects(&[
        "journal.enabled=true",
        "journal.store.url=s3://journal/prod",
        "journal.store.endpoint=https://minio.storage:9000",
        "journal.store.every=1m",
        "journal.store.keysSecret=keys",
        "journal.store.caSecret.name=authority",
        "controllerManager.serviceAccountAnnotations.iam\\.gke\\.io/gcp-service-account=a@b",
    ]);
    let pod = &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"];
    let named = |list: &Value| {
        list.as_array().unwrap().iter().find(|item| item["name"] == "journal-store").cloned().unwrap()
    };
    let container = &pod["containers"][0];
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "keys"}}]));
    assert_eq!(named(&pod["volumes"])["secret"]["secretName"], "authority");
    let folder = named(&container["volumeMounts"])["mountPath"].clone();
    let text =
        objects["ConfigMap/kueue-manager-config"]["data"]["controller_manager_config.yaml"].as_str().unwrap();
    let store = Configuration::parse(text).unwrap().0.journal.store;
    assert_eq!(json!(store.ca_file), format!("{}/ca.crt", folder.as_str().unwrap()));
    assert_eq!((&*store.url, &*store.endpoint), ("s3://journal/prod", "https://minio.storage:9000"));
    assert_eq!(store.every.as_secs(), 60);
    let account = &objects["ServiceAccount/kueue-controller-manager"]["metadata"]["annotations"];
    assert_eq!(account["iam.gke.io/gcp-service-account"], "a@b");
    // Without a URL nothing of it is there.
    let objects = super::objects(&["journal.enabled=true", "journal.store.keysSecret=keys"]);
    let text = serde_json::to_string(&objects["Deployment/kueue-controller-manager"]).unwrap();
    assert!(!text.contains("envFrom") && !text.contains("journal-store"), "{text}");
}

#[test]
fn without_a_journal_nothing_of_it_is_there() {
    let objects = objects(&[]);
    assert!(!objects.contains_key("ClusterRole/kueue-journal-viewer-role"));
    let text = serde_json::to_string(&objects["Deployment/kueue-controller-manager"]).unwrap();
    assert!(!text.contains("journal"), "{text}");
}

/// `helm upgrade --reuse-values` takes the values of the release before, without the keys that are new.
#[test]
fn a_section_that_is_missing_is_taken_for_its_defaults_or_asked_for() {
    let text = std::fs::read_to_string(assets::workspace().join("charts/sluice/values.yaml")).unwrap();
    let values: BTreeMap<String, Value> = serde_saphyr::from_str(&text).unwrap();
    let all = super::render_whole(&[]).unwrap();
    let mut asked_for = Vec::new();
    for key in values.keys() {
        match super::render_whole(&[&format!("{key}=null")]) {
            Ok(rendered) => assert!(rendered == all, "{key}: not as by default"),
            Err(said) => {
                assert!(said.contains(&format!("{key}: this section is missing in the values.")), "{said}");
                asked_for.push(key.as_str());
            }
        }
    }
    assert_eq!(asked_for, ["controllerManager", "managerConfig"]);
    // What renders nothing by default.
    let (section, ours) = (["enablePrometheus=true"], ["enablePrometheus=true", "metrics=null"]);
    assert!(super::render(&section).unwrap() == super::render(&ours).unwrap());
}

#[test]
fn values_of_a_release_from_before_a_section_render_as_without_it() {
    let sections = [
        "journal=null",
        "tracing=null",
        "dashboard=null",
        "visibility=null",
        "metrics.prometheusRule=null",
        "metrics.grafanaDashboard=null",
    ];
    let (before, now) = (objects(&sections), objects(&[]));
    assert_eq!(before.keys().collect::<Vec<_>>(), now.keys().collect::<Vec<_>>());
    let configuration =
        |objects: &BTreeMap<String, Value>| objects["ConfigMap/kueue-manager-config"]["data"].clone();
    assert_eq!(configuration(&before), configuration(&now));
    // A journal from before it could be sent to a bucket, and a bucket from before it could have a CA.
    let journal = objects(&["journal.enabled=true", "journal.store=null", "journal.maxTotalSize=null"]);
    let text = configuration(&journal)["controller_manager_config.yaml"].clone();
    assert!(Configuration::parse(text.as_str().unwrap()).unwrap().0.journal.store.url.is_empty());
    let bucket = objects(&[
        "journal.enabled=true",
        "journal.store.url=gs://journal",
        "journal.store.caSecret=null",
        "journal.store.every=null",
        "tracing.endpoint=http://collector:4318",
        "tracing.caSecret=null",
        "tracing.headersSecret=null",
        "tracing.sampleRatio=null",
    ]);
    let text = configuration(&bucket)["controller_manager_config.yaml"].clone();
    let parsed = Configuration::parse(text.as_str().unwrap()).unwrap().0;
    assert_eq!((&*parsed.journal.store.url, parsed.journal.store.every.as_secs()), ("gs://journal", 300));
}
