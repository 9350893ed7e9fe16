//! The status of admission fair sharing (docs/reference/06-algorithm.md 6.9; docs/reference/11-observed.md 11.1.18).

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_core::AdmissionFairSharing;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::model::Cluster;
use crate::model::build::job;

const INTERVAL: i64 = 300;

fn config(half_life_seconds: i64) -> EngineConfig {
    let sharing = AdmissionFairSharing {
        half_life_seconds,
        sampling_interval_seconds: INTERVAL,
        resource_weights: Vec::new(),
    };
    EngineConfig { status_interval_ms: 0, admission_fair_sharing: Some(sharing), ..EngineConfig::default() }
}

/// A queue of processors and memory that no usage orders, and a LocalQueue.
fn cluster(config: EngineConfig) -> Cluster {
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    let group = json!([{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": [
        {"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "8Gi"}]}]}]);
    c.api.simple("4", &json!({"resourceGroups": group}));
    c.settle();
    c
}

fn lq() -> ObjectRef {
    ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq")
}

fn shares(c: &Cluster) -> Value {
    c.api.json(&lq()).unwrap()["status"]["fairSharing"].clone()
}

fn consumed(c: &Cluster) -> Value {
    shares(c)["admissionFairSharingStatus"]["consumedResources"].clone()
}

/// How often the LocalQueue's status was written.
fn written(c: &Cluster) -> usize {
    c.writes.iter().filter(|(object, purpose)| (object, *purpose) == (&lq(), Purpose::QueueStatus)).count()
}

#[test]
fn an_idle_queue_lists_every_resource_with_zero_and_is_written_once() {
    let mut c = cluster(config(600));
    assert_eq!(consumed(&c), json!({"cpu": "0", "memory": "0"}));
    assert_eq!(shares(&c)["admissionFairSharingStatus"]["lastUpdate"], json!(c.now.to_string()));
    assert_eq!(written(&c), 1);
    c.advance(20 * INTERVAL);
    assert_eq!(written(&c), 1, "no sample found anything new");
    c.restart();
    c.advance(20 * INTERVAL);
    assert_eq!(written(&c), 1, "nor did those of another leader");
}

#[test]
fn what_is_used_is_sampled_and_decays_to_nothing_again() {
    let mut c = cluster(config(INTERVAL));
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.advance(INTERVAL);
    assert_eq!(consumed(&c), json!({"cpu": "1", "memory": "0"}), "half of two after a half-life");
    c.api.finish_job("a", true);
    c.settle();
    let before = written(&c);
    c.advance(4 * INTERVAL);
    assert_eq!(consumed(&c), json!({"cpu": "63m", "memory": "0"}));
    assert_eq!(written(&c), before + 4, "one write for each sample that found something new");
    c.advance(20 * INTERVAL);
    assert_eq!(consumed(&c), json!({"cpu": "0", "memory": "0"}));
    let before = written(&c);
    c.advance(20 * INTERVAL);
    assert_eq!(written(&c), before);
}

#[test]
fn a_resource_that_comes_or_goes_is_listed_or_not_at_once() {
    let mut c = cluster(config(600));
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    for (resources, expected) in [
        (vec!["cpu"], json!({"cpu": "0"})),
        (vec!["cpu", "example.com/card"], json!({"cpu": "0", "example.com/card": "0"})),
    ] {
        let quota: Vec<_> = resources.iter().map(|r| json!({"name": r, "nominalQuota": "4"})).collect();
        let group =
            json!([{"coveredResources": resources, "flavors": [{"name": "default", "resources": quota}]}]);
        c.api.edit(&queue, &json!({"spec": {"resourceGroups": group}}));
        let before = written(&c);
        c.settle();
        assert_eq!(consumed(&c), expected);
        assert_eq!(written(&c), before + 1);
    }
}

#[test]
fn a_queue_whose_cluster_queue_does_not_exist_has_consumed_nothing() {
    let mut c = cluster(config(600));
    c.api.local_queue("team-a", "lost", "no-such-queue");
    c.advance(2 * INTERVAL);
    let lost = ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lost");
    let status = &c.api.json(&lost).unwrap()["status"]["fairSharing"]["admissionFairSharingStatus"];
    assert_eq!(status["consumedResources"], json!({}));
    assert_eq!(c.writes.iter().filter(|(object, _)| *object == lost).count(), 1);
}

#[test]
fn without_a_half_life_nothing_is_remembered_and_what_was_goes() {
    let mut c = cluster(config(600));
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.advance(INTERVAL);
    assert_ne!(consumed(&c), json!({}));
    c.config = config(0);
    c.restart();
    c.advance(2 * INTERVAL);
    assert_eq!(consumed(&c), json!({}));
    let before = written(&c);
    c.advance(4 * INTERVAL);
    assert_eq!(written(&c), before);
}

#[test]
fn without_the_configuration_or_the_gate_there_is_none() {
    let gates = EngineConfig::default().gates.with(Gate::AdmissionFairSharing, false);
    for config in
        [EngineConfig { admission_fair_sharing: None, ..config(600) }, EngineConfig { gates, ..config(600) }]
    {
        let mut c = cluster(config);
        c.advance(2 * INTERVAL);
        assert_eq!(shares(&c), Value::Null);
        assert_eq!(written(&c), 1);
    }
}
