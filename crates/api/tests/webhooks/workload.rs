//! Workloads.

use json_patch::merge;
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};

use crate::table::Table;

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "Because", "message": "m",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    })
}

fn template(container: Value) -> Value {
    let mut container = container;
    container["name"] = "c".into();
    json!({"spec": {"containers": [container]}})
}

pub fn pod_set(name: &str, extra: Value) -> Value {
    let mut pod_set = json!({"name": name, "count": 3, "template": template(json!({}))});
    merge(&mut pod_set, &extra);
    pod_set
}

pub fn pod_sets(list: Vec<Value>) -> Value {
    json!({"spec": {"podSets": list}})
}

fn admission() -> Value {
    json!({"clusterQueue": "cq", "podSetAssignments": [{
        "name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"},
    }]})
}

fn reserved() -> Value {
    json!({"status": {"conditions": [condition("QuotaReserved", "True")], "admission": admission()}})
}

/// A reserved workload with further changes.
fn and(change: Value) -> Value {
    let mut object = reserved();
    merge(&mut object, &change);
    object
}

fn assignment(change: Value) -> Value {
    let mut assigned = admission();
    merge(&mut assigned["podSetAssignments"][0], &change);
    and(json!({"status": {"admission": assigned}}))
}

fn workloads() -> Table {
    Table::new(
        "Workload",
        json!({"metadata": {"namespace": "ns"}, "spec": {"podSets": [pod_set("main", json!({}))]}}),
    )
}

#[test]
fn workload_rules_of_the_spec() {
    let mut t = workloads();
    let reducible = |name| pod_set(name, json!({"minCount": 1}));
    t.create(
        "one pod set may use minCount",
        pod_sets(vec![reducible("a"), pod_set("b", json!({}))]),
        pod_sets(vec![reducible("a"), reducible("b")]),
    );
    let mut elastic = pod_sets(vec![reducible("main")]);
    elastic["metadata"] = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
    let gate = Gate::ElasticJobsViaWorkloadSlices;
    t.gated(gate, true, "minCount and elastic jobs exclude each other", elastic, None);
    let asks = |list: &str, resource: &str, amount: &str| {
        let container = json!({"resources": {list: {resource: amount}}});
        pod_sets(vec![pod_set("main", json!({"template": template(container)}))])
    };
    for list in ["requests", "limits"] {
        let rule = format!("{list} of containers do not name pods");
        t.create(&rule, asks(list, "cpu", "1"), asks(list, "pods", "1"));
    }
    let whole = |resource: &str| {
        let mut template = template(json!({}));
        template["spec"]["resources"] = json!({"requests": {resource: "1"}});
        pod_sets(vec![pod_set("main", json!({"template": template}))])
    };
    t.create("requests of whole pods do not name pods", whole("cpu"), whole("pods"));
    let init = |resource: &str| {
        let mut template = template(json!({}));
        template["spec"]["initContainers"] = json!([{"name": "i", "resources": {"limits": {resource: "1"}}}]);
        pod_sets(vec![pod_set("main", json!({"template": template}))])
    };
    t.create("limits of init containers do not name pods", init("cpu"), init("pods"));
    let gate = Gate::WorkloadValidateResourcesAreNonNegative;
    t.gated(gate, true, "requests are not negative", asks("requests", "cpu", "-1"), None);
    let metadata = |field: &str, key: &str| {
        let mut template = template(json!({}));
        template["metadata"] = json!({field: {key: "v"}});
        pod_sets(vec![pod_set("main", json!({"template": template}))])
    };
    for field in ["labels", "annotations"] {
        t.gated(
            Gate::WorkloadValidationForPodSetMetadata,
            true,
            &format!("{field} of pod sets are well formed"),
            metadata(field, "a b"),
            None,
        );
    }
    let slices = |request: Value| pod_sets(vec![pod_set("main", json!({"topologyRequest": request}))]);
    let gate = Gate::TASValidateWorkloadSliceSize;
    t.gated(gate, true, "a slice has a size", slices(json!({"podSetSliceRequiredTopology": "rack"})), None);
    t.gated(gate, true, "a slice has a level", slices(json!({"podSetSliceSize": 2})), None);
    let empty = slices(json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0}));
    t.gated(gate, true, "a slice is not empty", empty, None);
    let boost = |boost: &str| json!({"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": boost}}});
    t.gated(Gate::PriorityBoost, true, "a priority boost is a number", boost("high"), None);
    t.gates = Gates::default().with(Gate::PriorityBoost, true);
    assert_eq!(t.validate(&boost("-5"), None), None);
    insta::assert_snapshot!(t.report);
}

#[test]
fn workload_rules_of_the_status() {
    let mut t = workloads();
    t.create("a reservation is in the status", reserved(), and(json!({"status": {"admission": null}})));
    let broken = and(json!({"status": {"admission": null}}));
    assert_eq!(t.validate(&broken, Some(&broken)), None, "what was broken before is let through");
    t.create("assignments name pod sets", reserved(), assignment(json!({"name": "other"})));
    t.create(
        "usage is a multiple of the count",
        assignment(json!({"resourceUsage": {"cpu": "300m", "memory": "3Ki"}})),
        assignment(json!({"resourceUsage": {"cpu": "100m", "memory": "4Ki"}})),
    );
    let conditions = |list: Vec<Value>| json!({"status": {"conditions": list}});
    t.create(
        "conditions are well formed",
        conditions(vec![condition("A", "True"), condition("b.c/D", "Unknown")]),
        conditions(vec![condition("A", "true"), condition("A", "True"), condition("@", "False")]),
    );
    let mut unreasonable = condition("A", "True");
    unreasonable["reason"] = "".into();
    let mut odd = condition("B", "True");
    odd["reason"] = "no way".into();
    t.refuse("conditions have reasons", conditions(vec![unreasonable, odd]), None);
    let reclaimable =
        |name: &str, count: i32| json!({"status": {"reclaimablePods": [{"name": name, "count": count}]}});
    t.create("reclaimable pods name pod sets", reclaimable("main", 3), reclaimable("other", 1));
    t.create("not more pods are reclaimable than there are", reclaimable("main", 3), reclaimable("main", 4));
    let updates = |update: Value| json!({"status": {"admissionChecks": [check("Ready", update)]}});
    for (rule, refused) in [
        ("updates name pod sets", json!({"name": "other"})),
        ("updates have valid labels", json!({"name": "main", "labels": {"a b": "c"}})),
        ("updates have valid annotations", json!({"name": "main", "annotations": {"a b": "c"}})),
        ("updates have valid node selectors", json!({"name": "main", "nodeSelector": {"a": "c c"}})),
        ("updates have valid tolerations", json!({"name": "main", "tolerations": [{"operator": "Equal"}]})),
    ] {
        t.create(rule, updates(json!({"name": "main", "labels": {"a": "b"}})), updates(refused));
    }
    insta::assert_snapshot!(t.report);
}

fn check(state: &str, update: Value) -> Value {
    json!({
        "name": "check", "state": state, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
        "podSetUpdates": [update],
    })
}

#[test]
fn workload_rules_of_updates() {
    let mut t = workloads();
    let resized = |count: i32| pod_sets(vec![pod_set("main", json!({"count": count}))]);
    assert_eq!(t.validate(&resized(5), Some(&json!({}))), None, "free before a reservation");
    t.update("pod sets are fixed while quota is reserved", reserved(), reserved(), and(resized(2)));
    let elastic = |count: i32| {
        let mut change = resized(count);
        change["metadata"] = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
        and(change)
    };
    t.update("an elastic job may shrink, not grow", elastic(3), elastic(2), elastic(4));
    t.gated(
        Gate::ElasticJobsViaWorkloadSlices,
        false,
        "an elastic job may not shrink without the gate",
        elastic(2),
        Some(elastic(3)),
    );
    let gated_by =
        |gates: &str| json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": gates}}});
    t.update("gates can only be removed", gated_by("a,b"), gated_by("b"), gated_by("b, c"));
    t.gated(Gate::AdmissionGatedBy, true, "gates cannot be added", gated_by("a"), Some(json!({})));
    let reclaimable =
        |count: i32| and(json!({"status": {"reclaimablePods": [{"name": "main", "count": count}]}}));
    t.update("reclaimable pods do not become fewer", reclaimable(1), reclaimable(2), reclaimable(0));
    t.refuse("reclaimable pods do not vanish", reserved(), Some(reclaimable(1)));
    let evicted = json!({"status": {"conditions": [condition("QuotaReserved", "False")]}});
    assert_eq!(t.validate(&evicted, Some(&reclaimable(1))), None, "all is free with the reservation gone");
    let shrunk = |count: i32, reclaimable: i32| {
        let mut change = elastic(count);
        change["status"]["reclaimablePods"] = json!([{"name": "main", "count": reclaimable}]);
        change
    };
    assert_eq!(t.validate(&shrunk(1, 1), Some(&shrunk(3, 2))), None, "a slice that shrank gives back less");
    for (rule, change) in [
        ("the flavors of a reservation are fixed", json!({"flavors": {"cpu": "g"}})),
        ("the usage of a reservation is fixed", json!({"resourceUsage": {"cpu": "6"}})),
        ("the count of a reservation is fixed", json!({"count": 1})),
    ] {
        let later =
            json!({"topologyAssignment": {"levels": ["h"], "slices": []}, "delayedTopologyRequest": "Ready"});
        t.update(rule, reserved(), assignment(later), assignment(change));
    }
    let mut elsewhere = reserved();
    elsewhere["status"]["admission"]["clusterQueue"] = "other".into();
    t.refuse("the queue of a reservation is fixed", elsewhere, Some(reserved()));
    let mut fewer = reserved();
    fewer["status"]["admission"]["podSetAssignments"] = json!([]);
    t.refuse("the assignments of a reservation are fixed", fewer, Some(reserved()));
    let cluster = |name: &str| json!({"status": {"clusterName": name}});
    let nominated = json!({"status": {"nominatedClusterNames": ["a", "b"]}});
    t.update("a worker cluster was nominated", nominated.clone(), cluster("a"), cluster("c"));
    let mut replacement = cluster("c");
    replacement["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"}});
    assert_eq!(t.validate(&replacement, Some(&json!({}))), None, "a slice follows the one that it replaces");
    let checks = |state: &str, value: &str| {
        let update = json!({"name": "main", "labels": {"a": value}});
        json!({"status": {"admissionChecks": [check(state, update)]}})
    };
    t.update(
        "what a check adds is fixed while it is ready",
        checks("Ready", "x"),
        checks("Retry", "y"),
        checks("Ready", "y"),
    );
    insta::assert_snapshot!(t.report);
}
