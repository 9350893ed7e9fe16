//! Pods that are stuck on lost nodes (docs/reference/06-algorithm.md 6.27).

use json_patch::merge;
use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_engine::{EngineConfig, Kind, ObjectRef, Part, Purpose, WriteError};

use crate::model::Cluster;

const NOTE: &str = "Pod forcefully terminated after 1m0.00000003s grace period due to unreachable node `n` (triggered by \
                    `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)";

fn cluster() -> Cluster {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.gates = config.gates.with(Gate::FailureRecoveryPolicy, true);
    Cluster::new(config)
}

/// A node that cannot be reached, or can.
fn node(c: &mut Cluster, name: &str, unreachable: bool) -> ObjectRef {
    let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    let taints = if unreachable { taints } else { json!([]) };
    c.api.put(Kind::Node, json!({"metadata": {"name": name}, "spec": {"taints": taints}}))
}

/// A pod of node `n` that was deleted now with 30 seconds of grace and may be forced, but for what is merged into it.
fn pod(c: &mut Cluster, name: &str, more: &Value) -> ObjectRef {
    let mut value = json!({
        "metadata": {
            "name": name, "namespace": "team-a",
            "annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": "true"},
            "deletionTimestamp": c.now.checked_add(jiff::SignedDuration::from_secs(30)).unwrap().to_string(),
            "deletionGracePeriodSeconds": 30,
        },
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running"},
    });
    merge(&mut value, more);
    c.api.put(Kind::Pod, value)
}

fn forced(c: &Cluster) -> [usize; 2] {
    [c.written(Purpose::FailPod), c.written(Purpose::DeletePod)]
}

#[test]
fn a_pod_of_a_lost_node_is_failed_and_removed_a_minute_after_its_time() {
    let mut c = cluster();
    node(&mut c, "n", true);
    let held = pod(&mut c, "p", &json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}));
    c.advance(89);
    assert_eq!(forced(&c), [0, 0]);
    c.advance(1);
    let status = &c.api.json(&held).unwrap()["status"];
    assert_eq!(status["phase"], "Failed");
    assert_eq!(
        status["conditions"],
        json!([{"type": "KueueFailureRecovery", "status": "True", "reason": "KueueForcefullyDeleted",
            "message": NOTE, "lastTransitionTime": "2027-01-15T08:01:30Z"}])
    );
    let reported = c.events.iter().map(|e| (e.type_.as_str(), &*e.reason, &*e.action, &*e.note, e.reporter));
    let recovery = "kueue-pod-termination-controller";
    assert_eq!(
        reported.collect::<Vec<_>>(),
        [("Warning", "KueueForcefullyDeleted", "ForcefulTermination", NOTE, recovery)]
    );
    assert_eq!(forced(&c), [1, 1]);
    c.advance(600);
    assert_eq!(forced(&c), [1, 1], "what a finalizer holds is not deleted again and again");
    c.api.edit(&held, &json!({"metadata": {"finalizers": null}}));
    c.api.delete(&held);
    c.advance(600);
    assert_eq!(forced(&c), [1, 1]);
}

#[test]
fn a_pod_that_nothing_holds_is_gone() {
    let mut c = cluster();
    node(&mut c, "n", true);
    let gone = pod(&mut c, "p", &json!({}));
    c.advance(90);
    assert!(c.api.json(&gone).is_none());
    c.advance(600);
    assert_eq!((forced(&c), c.events.len()), ([1, 1], 1));
}

#[test]
fn a_pod_that_did_not_agree_or_is_not_stuck_is_left_alone() {
    let mut c = cluster();
    node(&mut c, "n", true);
    node(&mut c, "well", false);
    let annotation = |value: Value| json!({"metadata": {"annotations": {"kueue.x-k8s.io/safe-to-forcefully-delete": value}}});
    pod(&mut c, "silent", &annotation(Value::Null));
    pod(&mut c, "unwilling", &annotation(json!("false")));
    pod(&mut c, "on-a-node-that-answers", &json!({"spec": {"nodeName": "well"}}));
    pod(&mut c, "on-a-node-that-is-gone", &json!({"spec": {"nodeName": "gone"}}));
    pod(&mut c, "unbound", &json!({"spec": {"nodeName": null}}));
    pod(
        &mut c,
        "running",
        &json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": null}}),
    );
    c.advance(3600);
    assert_eq!((forced(&c), c.events.len()), ([0, 0], 0));
}

#[test]
fn nothing_is_forced_without_the_gate() {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    node(&mut c, "n", true);
    pod(&mut c, "p", &json!({}));
    c.advance(3600);
    assert_eq!(forced(&c), [0, 0]);
}

#[test]
fn a_node_that_is_lost_later_has_its_pods_looked_at() {
    let mut c = cluster();
    let lost = node(&mut c, "n", false);
    let stuck = pod(&mut c, "p", &json!({}));
    c.advance(3600);
    assert_eq!(forced(&c), [0, 0]);
    let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]);
    c.api.edit(&lost, &json!({"spec": {"taints": taints}}));
    c.settle();
    assert!(c.api.json(&stuck).is_none());
}

#[test]
fn a_pod_that_ended_keeps_how_it_ended() {
    let mut c = cluster();
    node(&mut c, "n", true);
    let held = json!({"metadata": {"finalizers": ["a.b/c"]}, "status": {"phase": "Succeeded"}});
    let held = pod(&mut c, "p", &held);
    c.advance(90);
    let status = &c.api.json(&held).unwrap()["status"];
    assert_eq!(
        (&status["phase"], &status["conditions"][0]["type"]),
        (&json!("Succeeded"), &json!("KueueFailureRecovery"))
    );
    assert_eq!(forced(&c), [1, 1]);
}

#[test]
fn what_failed_is_tried_again_and_reported_once() {
    let mut c = cluster();
    node(&mut c, "n", true);
    let stuck = pod(&mut c, "p", &json!({}));
    c.fail.push_back((Purpose::FailPod, WriteError::Transient("down".to_owned())));
    c.fail.push_back((Purpose::DeletePod, WriteError::Transient("down".to_owned())));
    c.advance(90);
    assert!(c.api.json(&stuck).is_some());
    c.advance(60);
    assert!(c.api.json(&stuck).is_none());
    assert_eq!((forced(&c), c.events.len()), ([2, 2], 1));
}

#[test]
fn a_manager_that_starts_between_the_two_writes_continues_with_the_second() {
    let mut c = cluster();
    node(&mut c, "n", true);
    let stuck = pod(&mut c, "p", &json!({}));
    c.writes_left = Some(1);
    c.advance(90);
    assert_eq!(c.api.json(&stuck).unwrap()["status"]["phase"], "Failed");
    c.writes_left = None;
    c.restart();
    c.settle();
    assert!(c.api.json(&stuck).is_none());
    assert_eq!(c.written(Purpose::FailPod), 1);
}

#[test]
fn without_its_part_no_pod_of_a_lost_node_is_touched() {
    for (without, wanted) in [(None, [1, 1]), (Some(Part::PodTermination), [0, 0])] {
        let mut c = cluster();
        c.config.without = without.into_iter().collect();
        c.restart();
        node(&mut c, "n", true);
        pod(&mut c, "p", &json!({"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}));
        c.advance(3600);
        assert_eq!(forced(&c), wanted, "without {without:?}");
    }
}
