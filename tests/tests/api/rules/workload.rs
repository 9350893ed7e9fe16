//! Workload: rules over spec and status, before and after.

use serde_json::{Value, json};

use super::table::Table;

pub fn base() -> Value {
    pod_sets(vec![pod_set("main", json!({}))])
}

fn pod_set(name: &str, extra: Value) -> Value {
    let mut pod_set = json!({
        "name": name, "count": 2,
        "template": {"spec": {"containers": [{"name": "c"}]}},
    });
    for (key, value) in extra.as_object().unwrap() {
        pod_set[key] = value.clone();
    }
    pod_set
}

fn pod_sets(list: Vec<Value>) -> Value {
    json!({"spec": {"podSets": list}})
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "Because", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    })
}

fn assignment(name: &str) -> Value {
    json!({"name": name, "count": 2})
}

/// A workload with a reservation, admitted, and with more in its spec.
fn admitted(spec: Value) -> Value {
    json!({
        "spec": spec,
        "status": {
            "conditions": [condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment("main")]},
        },
    })
}

fn class(group: &str, kind: &str, name: &str) -> Value {
    json!({"priority": 1, "priorityClassRef": {"group": group, "kind": kind, "name": name}})
}

fn queueing_class(name: &str) -> Value {
    class("kueue.x-k8s.io", "WorkloadPriorityClass", name)
}

fn pod_class(name: &str) -> Value {
    class("scheduling.k8s.io", "PriorityClass", name)
}

pub async fn rules(mut t: Table<'_>) -> String {
    spec(&mut t).await;
    immutable(&mut t).await;
    status(&mut t).await;
    topology(&mut t).await;
    t.report
}

async fn spec(t: &mut Table<'_>) {
    t.create("there are pod sets, if any", json!({}), pod_sets(vec![])).await;
    let named = |names: &[&str]| pod_sets(names.iter().map(|n| pod_set(n, json!({}))).collect());
    t.create("pod sets have names of their own", named(&["a", "b"]), named(&["a", "a"])).await;
    t.create("the names of pod sets are labels", named(&["a-b"]), named(&["a.b"])).await;
    let many: Vec<String> = (0..19).map(|n| format!("p{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    t.create("at most 18 pod sets", named(&many[1..]), named(&many)).await;
    let one = |extra: Value| pod_sets(vec![pod_set("main", extra)]);
    t.create("a pod set has a template", json!({}), json!({"spec": {"podSets": [{"name": "main"}]}})).await;
    t.create("count is not negative", one(json!({"count": 0})), one(json!({"count": -1}))).await;
    t.create("minCount is positive", one(json!({"minCount": 1})), one(json!({"minCount": 0}))).await;
    t.create("minCount is at most count", one(json!({"minCount": 2})), one(json!({"minCount": 3}))).await;
    let request = |request: Value| one(json!({"topologyRequest": request}));
    t.create(
        "slices are not empty",
        request(json!({"podSetSliceSize": 1, "podsetSliceRequiredTopologyConstraints": [{"topology": "a", "size": 1}]})),
        request(json!({"podSetSliceSize": 0, "podsetSliceRequiredTopologyConstraints": [{"topology": "", "size": 0}]})),
    )
    .await;
    let with = |spec: Value| json!({"spec": spec});
    t.create(
        "execution time is positive",
        with(json!({"maximumExecutionTimeSeconds": 1})),
        with(json!({"maximumExecutionTimeSeconds": 0})),
    )
    .await;
    t.create("the queue is a subdomain", with(json!({"queueName": "a"})), with(json!({"queueName": ""})))
        .await;
    t.create(
        "the class belongs to its group",
        with(queueing_class("high")),
        with(class("kueue.x-k8s.io", "PriorityClass", "high")),
    )
    .await;
    t.create(
        "and the other way round",
        with(pod_class("high")),
        with(class("scheduling.k8s.io", "WorkloadPriorityClass", "high")),
    )
    .await;
    t.create(
        "the group of the class is known",
        with(pod_class("high")),
        with(class("example.com", "PriorityClass", "high")),
    )
    .await;
    let mut unvalued = queueing_class("high");
    unvalued["priority"] = Value::Null;
    t.create("a class comes with its value", with(queueing_class("high")), with(unvalued)).await;
}

async fn immutable(t: &mut Table<'_>) {
    let with = |spec: Value| json!({"spec": spec});
    let queue = |name: &str| json!({"queueName": name});
    t.update("the queue is free before a reservation", with(queue("a")), with(queue("b")), with(queue("B")))
        .await;
    t.update(
        "the queue is fixed while quota is reserved",
        admitted(queue("a")),
        admitted(queue("a")),
        admitted(queue("b")),
    )
    .await;
    t.update(
        "the queue is not taken away either",
        admitted(queue("a")),
        admitted(queue("a")),
        admitted(json!({})),
    )
    .await;
    let time = |seconds: u32| json!({"maximumExecutionTimeSeconds": seconds});
    t.update(
        "the execution time is fixed while admitted",
        admitted(time(1)),
        admitted(time(1)),
        admitted(time(2)),
    )
    .await;
    t.update(
        "a queueing class may be exchanged",
        admitted(queueing_class("a")),
        admitted(queueing_class("b")),
        admitted(pod_class("a")),
    )
    .await;
    t.update(
        "a pod class may not",
        admitted(pod_class("a")),
        admitted(pod_class("a")),
        admitted(pod_class("b")),
    )
    .await;
    t.update(
        "a class is not added",
        admitted(json!({"priority": 1})),
        admitted(json!({"priority": 2})),
        admitted(queueing_class("a")),
    )
    .await;
    t.update(
        "a class is not taken away",
        admitted(queueing_class("a")),
        admitted(queueing_class("a")),
        admitted(json!({"priority": 1})),
    )
    .await;
}

async fn status(t: &mut Table<'_>) {
    let reserved = |names: &[&str]| {
        let assignments: Vec<Value> = names.iter().map(|n| assignment(n)).collect();
        json!({"conditions": [condition("QuotaReserved")], "admission": {"clusterQueue": "cq", "podSetAssignments": assignments}})
    };
    t.status("an assignment for each pod set", json!({}), reserved(&["main"]), reserved(&["main", "more"]))
        .await;
    let on = |cluster: &str| json!({"clusterName": cluster});
    let placed = json!({"status": on("a")});
    t.status("the worker cluster is fixed", placed.clone(), json!({"clusterName": null}), on("b")).await;
    t.status(
        "a worker cluster ends the nomination",
        json!({"status": {"nominatedClusterNames": ["a"]}}),
        json!({"clusterName": "a", "nominatedClusterNames": []}),
        on("a"),
    )
    .await;
    let check = |state: &str| {
        json!({"admissionChecks": [{
            "name": "a", "state": state, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]})
    };
    t.status("the state of a check is known", json!({}), check("Retry"), check("Done")).await;
    let update = |toleration: Value| {
        let mut status = check("Ready");
        status["admissionChecks"][0]["podSetUpdates"] =
            json!([{"name": "main", "tolerations": [toleration]}]);
        status
    };
    t.status(
        "what a check adds are tolerations",
        json!({}),
        update(json!({"operator": "Exists"})),
        update(json!({"operator": "Equal", "effect": "Never"})),
    )
    .await;
    let gate = |position: &str| {
        json!({"preemptionGates": [{
            "name": "g", "position": position, "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]})
    };
    t.status("a preemption gate is open or closed", json!({}), gate("Open"), gate("Ajar")).await;
    let reclaimable = |count: i32| json!({"reclaimablePods": [{"name": "main", "count": count}]});
    t.status("reclaimable pods are counted from 0", json!({}), reclaimable(0), reclaimable(-1)).await;
    let nodes = |count: u32| -> Value {
        json!({"unhealthyNodes": (0..count).map(|n| json!({"name": format!("n{n}")})).collect::<Vec<_>>()})
    };
    t.status("at most 8 unhealthy nodes", json!({}), nodes(8), nodes(9)).await;
}

async fn topology(t: &mut Table<'_>) {
    let assigned = |slice: Value| {
        json!({"admission": {"clusterQueue": "cq", "podSetAssignments": [{
            "name": "main",
            "topologyAssignment": {"levels": ["block", "rack"], "slices": [slice]},
        }]}})
    };
    let slice = |values: Value, counts: Value| {
        assigned(json!({"domainCount": 2, "valuesPerLevel": values, "podCounts": counts}))
    };
    let block = json!({"universal": "b"});
    let racks = |roots: &[&str]| json!({"individual": {"prefix": "r-", "roots": roots}});
    let counts = json!({"universal": 1});
    let good = slice(json!([block, racks(&["1", "2"])]), counts.clone());
    for (rule, bad) in [
        ("values for each level", slice(json!([block]), counts.clone())),
        ("roots for each domain", slice(json!([block, racks(&["1"])]), counts.clone())),
        (
            "values are universal or individual",
            slice(json!([block, {"universal": "r", "individual": {"roots": ["1", "2"]}}]), counts.clone()),
        ),
        ("values are there", slice(json!([block, {}]), counts.clone())),
        ("pod counts for each domain", slice(json!([block, racks(&["1", "2"])]), json!({"individual": [1]}))),
        (
            "pod counts are universal or individual",
            slice(json!([block, racks(&["1", "2"])]), json!({"universal": 1, "individual": [1, 1]})),
        ),
        ("pod counts are there", slice(json!([block, racks(&["1", "2"])]), json!({}))),
        ("domains have pods", slice(json!([block, racks(&["1", "2"])]), json!({"individual": [1, 0]}))),
    ] {
        t.status(rule, json!({}), good.clone(), bad).await;
    }
}
