//! Requests for nodes: the real controller of provisioning checks, and a stand-in for the cluster autoscaler.
#![expect(clippy::disallowed_methods, reason = "a test reads its files")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue stops")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_engine::Kind;
use sluice_sim::{File, Manifests, Options, Simulation, Source, prepare};

/// The example's job under a play, with requests that fail tried again `retries` times after a minute and more.
fn dws(play: &str, retries: i64) -> Simulation {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/dws");
    let read = |name: &str| File {
        name: name.to_owned(),
        text: fs::read_to_string(folder.join(name)).unwrap(),
        named: true,
    };
    let mut manifests = Manifests::read(&["nodes.yaml", "queues.yaml", "job.yaml"].map(read)).unwrap();
    for manifest in manifests.objects.iter_mut().filter(|m| m.kind == Kind::ProvisioningRequestConfig) {
        manifest.object["spec"]["retryStrategy"] = json!({"backoffLimitCount": retries});
    }
    let provisioning = json!({"delay": "5m", "play": play});
    let scenario = json!({"spec": {"runTime": "10m", "provisioning": provisioning}});
    manifests.scenarios.push((Source::default(), serde_json::from_value(scenario).unwrap()));
    let mut options = Options::new(Options::default_configuration());
    options.audit = true;
    prepare(&manifests, &BTreeMap::new(), options).unwrap()
}

/// What happened, in words, with minutes and seconds.
fn story(simulation: &Simulation) -> Vec<String> {
    let entries = simulation.record().entries.iter();
    let line = |at: i64, word: &str| format!("{}:{:02} {word}", at / 60_000, at / 1000 % 60);
    entries.map(|e| line(e.at, e.what.word())).collect()
}

fn check(simulation: &Simulation) -> Value {
    let workload = simulation.objects(Kind::Workload).next().unwrap().1;
    workload["status"]["admissionChecks"][0].clone()
}

#[test]
fn a_job_starts_when_its_nodes_have_come_and_leaves_nothing_behind() {
    let mut simulation = dws("Accepted,Provisioned", 0);
    simulation.advance(SignedDuration::from_mins(1)).unwrap();
    let request = simulation.objects(Kind::ProvisioningRequest).next().unwrap().1.clone();
    assert_eq!(request["spec"]["provisioningClassName"], "queued-provisioning.gke.io");
    assert_eq!(request["spec"]["parameters"]["maxRunDurationSeconds"], "600");
    let template = simulation.objects(Kind::PodTemplate).next().unwrap().1;
    assert_eq!(template["metadata"]["ownerReferences"][0]["uid"], request["metadata"]["uid"]);
    assert_eq!(check(&simulation)["state"], "Pending");
    simulation.run(|_| {}).unwrap();
    // In the first instant the check is not active yet.
    assert_eq!(
        story(&simulation),
        ["0:00 submitted", "0:00 waiting", "0:00 reserved", "5:00 admitted", "15:00 finished"]
    );
    for kind in [Kind::ProvisioningRequest, Kind::PodTemplate] {
        assert_eq!(simulation.objects(kind).count(), 0);
    }
}

#[test]
fn a_request_that_fails_is_made_again_after_its_backoff() {
    let mut simulation = dws("Failed;Failed;Accepted,Provisioned", 3);
    simulation.run(|_| {}).unwrap();
    let happened = story(&simulation);
    assert_eq!(happened.iter().filter(|e| e.ends_with("evicted")).count(), 2, "{happened:?}");
    // Five minutes for each attempt, one and two for the backoffs.
    assert_eq!(happened[happened.len() - 2..], ["18:00 admitted", "28:00 finished"], "{happened:?}");
}

#[test]
fn a_request_that_fails_too_often_ends_it() {
    let mut simulation = dws("Failed", 1);
    simulation.run(|_| {}).unwrap();
    let workload = simulation.objects(Kind::Workload).next().unwrap().1;
    assert_eq!(workload["spec"]["active"], false);
    assert!(!story(&simulation).iter().any(|e| e.ends_with("admitted")));
}

#[test]
fn the_providers_quota_keeps_it_waiting() {
    let mut simulation = dws("QuotaExceeded,Provisioned", 0);
    simulation.advance(SignedDuration::from_mins(6)).unwrap();
    let message = check(&simulation)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("Quota 'NVIDIA_P4_GPUS' exceeded"), "{message}");
    simulation.run(|_| {}).unwrap();
    assert_eq!(story(&simulation).last().unwrap(), "20:00 finished");
}

#[test]
fn an_unknown_state_is_refused() {
    let scenario = json!({"spec": {"provisioning": {"play": "Perhaps"}}});
    let mut manifests = Manifests::default();
    manifests.scenarios.push((Source::default(), serde_json::from_value(scenario).unwrap()));
    let options = Options::new(Options::default_configuration());
    let errors = prepare(&manifests, &BTreeMap::new(), options).unwrap_err();
    assert!(
        errors[0].to_string().contains("spec.provisioning.play: expected one of Waiting"),
        "{}",
        errors[0]
    );
}
