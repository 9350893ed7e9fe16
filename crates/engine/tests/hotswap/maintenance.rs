//! New jobs avoid nodes with announced maintenance, and incomplete slices; a job that runs there is asked once to leave when the time has come.

use serde_json::{Value, json};
use sluice_engine::{EngineConfig, ObjectRef};

use crate::bed::{Bed, POOL, TPU};
use crate::model::build::job;
use crate::page::page;

const TIME: &str = "cloud.google.com/scheduled-maintenance-time";

/// Announces the maintenance of pools, `seconds` seconds from now; returns when.
fn announce(bed: &mut Bed, pools: &[&str], seconds: i64) -> i64 {
    let at = bed.now().as_second() + seconds;
    for node in bed.nodes_of(pools) {
        bed.c.api.edit(&node, &json!({"metadata": {"labels": {TIME: at.to_string()}}}));
    }
    at
}

/// The node affinity in the templates of a job.
fn affinity(bed: &Bed, name: &str) -> Value {
    let job = bed.c.api.job(name);
    let affinity = job.view.pod_sets[0].scheduling.affinity.as_deref().map(|a| a.node_affinity.clone());
    json!(affinity.flatten())
}

fn absent() -> Value {
    json!({"weight": 100, "preference": {"matchExpressions": [{"key": TIME, "operator": "DoesNotExist"}]}})
}

/// A batch Job of one pod with four chips; it may run `deadline` seconds at most.
fn plain(bed: &mut Bed, name: &str, deadline: Option<i64>, most: Option<i32>) {
    let mut view = job("team-a", name, "q", 1, "1");
    let template = std::sync::Arc::make_mut(view.pod_sets[0].template.as_mut().unwrap());
    let resources = json!({"limits": {TPU: "4"}});
    let spec = template.spec.as_mut().unwrap();
    spec.containers[0].resources = serde_json::from_value(resources).unwrap();
    view.pod_sets[0].containers_hash = sluice_api::names::containers_hash(spec);
    view.active_deadline_seconds = deadline;
    view.maximum_execution_time_seconds = most;
    bed.c.api.add_job(view);
    bed.c.settle();
}

fn two_pools() -> Bed {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b"], 4);
    bed.settle();
    bed
}

#[test]
fn work_that_may_not_end_before_it_prefers_other_nodes_until_it_is_stopped() {
    let mut bed = two_pools();
    plain(&mut bed, "before", None, None);
    assert_eq!(affinity(&bed, "before"), Value::Null, "nothing is announced");
    let at = announce(&mut bed, &["a"], 3_600);
    plain(&mut bed, "unknown", None, None);
    assert_eq!(
        affinity(&bed, "unknown")["preferredDuringSchedulingIgnoredDuringExecution"],
        json!([absent()])
    );
    plain(&mut bed, "short", Some(3_600), None);
    plain(&mut bed, "short-too", None, Some(600));
    assert!(affinity(&bed, "short").is_null() && affinity(&bed, "short-too").is_null());
    plain(&mut bed, "long", Some(3_700), Some(3_601));
    let late = json!({"weight": 100, "preference":
        {"matchExpressions": [{"key": TIME, "operator": "Gt", "values": [at.to_string()]}]}});
    assert_eq!(
        affinity(&bed, "long")["preferredDuringSchedulingIgnoredDuringExecution"],
        json!([absent(), late]),
        "later maintenance does not matter to it"
    );
    assert!(affinity(&bed, "before").is_null(), "what runs is left alone");

    let workload = crate::model::Api::workload_ref(&bed.c.workload("unknown"));
    bed.c.api.edit(&workload, &json!({"spec": {"active": false}}));
    bed.c.settle();
    assert!(bed.c.api.job("unknown").view.suspended && affinity(&bed, "unknown").is_null());
}

#[test]
fn a_slice_prefers_groups_without_a_node_that_goes() {
    let mut bed = two_pools();
    let node = bed.nodes_of(&["a"]).remove(3);
    let at = bed.now().as_second() + 60;
    bed.c.api.edit(&node, &json!({"metadata": {"labels": {TIME: at.to_string()}}}));
    bed.jobset("one", "q", "low", 1);
    bed.settle();
    let group = json!({"weight": 100, "preference":
        {"matchExpressions": [{"key": POOL, "operator": "NotIn", "values": ["a"]}]}});
    let found = affinity(&bed, "one");
    assert_eq!(found["preferredDuringSchedulingIgnoredDuringExecution"], json!([absent(), group]));
    assert!(found["requiredDuringSchedulingIgnoredDuringExecution"].is_null());
}

#[test]
fn where_hotswap_does_not_act_nothing_is_preferred() {
    let mut gate = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    gate.gates = gate.gates.with(sluice_api::gates::Gate::Hotswap, false);
    let plain_config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    for (config, enable) in [(gate, true), (plain_config, false)] {
        let mut bed = Bed::with(config);
        bed.queue("q", 64, &json!({"enable": enable}), &json!({}));
        bed.pools(&["a"], 4);
        announce(&mut bed, &["a"], 60);
        plain(&mut bed, "one", None, None);
        assert!(!bed.c.api.job("one").view.suspended && affinity(&bed, "one").is_null());
    }
}

#[test]
fn the_label_is_as_configured() {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.hotswap.maintenance_time_label = "goes-at".to_owned();
    let mut bed = Bed::with(config);
    bed.page_queue(64);
    bed.pools(&["a"], 4);
    announce(&mut bed, &["a"], 60);
    plain(&mut bed, "one", None, None);
    assert!(affinity(&bed, "one").is_null());
    for node in bed.nodes_of(&["a"]) {
        bed.c.api.edit(&node, &json!({"metadata": {"labels": {"goes-at": "1"}}}));
    }
    plain(&mut bed, "two", None, None);
    let terms = &affinity(&bed, "two")["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(terms[0]["preference"]["matchExpressions"][0]["key"], "goes-at");
}

#[test]
fn a_moved_slice_is_kept_off_the_rest_of_its_broken_group() {
    let mut bed = page(64);
    assert!(affinity(&bed, "high").is_null() && affinity(&bed, "low").is_null(), "all groups are whole");
    let node = bed.nodes_of(&["a"]).remove(2);
    bed.ready(&node, "False");
    bed.pass(35);
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
    let broken = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": POOL, "operator": "NotIn", "values": ["a"]}]}]});
    assert_eq!(affinity(&bed, "high")["requiredDuringSchedulingIgnoredDuringExecution"], broken);
    assert!(affinity(&bed, "low").is_null(), "a stopped one has its templates back");
    bed.ready(&node, "True");
    bed.pass(3);
    assert!(bed.runs("low") && affinity(&bed, "low").is_null());
}

#[test]
fn after_a_restart_of_the_manager_a_start_that_was_due_still_keeps_off() {
    let mut bed = two_pools();
    announce(&mut bed, &["a"], 60);
    bed.c.settle();
    // Admitted, and the manager is gone before it could start the job.
    bed.c.writes_left = Some(1);
    plain(&mut bed, "one", None, None);
    while !bed.reported("one", "Admitted").starts_with("True") {
        bed.c.restart();
        bed.c.writes_left = Some(1);
        bed.c.settle();
    }
    assert!(bed.c.api.job("one").view.suspended, "the cut comes before the start");
    bed.c.writes_left = None;
    bed.c.restart();
    bed.c.settle();
    assert!(!bed.c.api.job("one").view.suspended);
    assert_eq!(affinity(&bed, "one")["preferredDuringSchedulingIgnoredDuringExecution"], json!([absent()]));
}

/// Pods that use all their time to save their work: nothing is hurried, and nothing is said twice.
#[test]
fn grace_belongs_to_the_pod() {
    let mut bed = page(64);
    let before = bed.c.writes.len();
    let node = bed.nodes_of(&["a"]).remove(0);
    bed.c
        .api
        .edit(&node, &json!({"metadata": {"labels": {"cloud.google.com/active-node-maintenance": "true"}}}));
    bed.c.settle();
    let pods: Vec<ObjectRef> = bed.pods().into_iter().map(|(_, _, pod)| pod).collect();
    for _ in 0..300 {
        bed.c.advance(1);
        bed.c.settle();
    }
    let written: Vec<String> = bed.c.writes[before..].iter().map(|write| format!("{write:?}")).collect();
    // That they are looked for is no write.
    assert!(!written.iter().any(|write| write.contains("kind: Pod,")), "no pod is touched: {written:?}");
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)], "asked once");
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)], "asked once");
    assert_eq!(bed.pods().len(), pods.len());
    assert!(bed.reported("high", "QuotaReserved").starts_with("True"), "the quota is kept while pods end");
    bed.pass(5);
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
    assert_eq!(bed.evictions("high").len() + bed.evictions("low").len(), 2);
}
