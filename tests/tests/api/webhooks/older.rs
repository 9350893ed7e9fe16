//! The rules of v1beta1 for kinds that are converted by webhook: those of its own schema, and those of the webhooks of v1beta2.

use kube::Client;
use serde_json::{Value, json};

use crate::rules::table::Table;

fn spec(field: &str, value: impl Into<Value>) -> Value {
    json!({"spec": {field: value.into()}})
}

pub async fn rules(client: &Client) -> String {
    let mut reports = vec![cluster_queue(client).await, local_queue(client).await];
    reports.push(workload(client).await);
    let mut workers = Table::older(client, "MultiKueueCluster", spec("kubeConfig", json!({"location": "s"})));
    let by = |kind: &str| spec("kubeConfig", json!({"location": "s", "locationType": kind}));
    workers.create("MultiKueueCluster: a location is a Secret or a path", by("Path"), by("Url")).await;
    reports.push(workers.report);
    reports.concat()
}

async fn cluster_queue(client: &Client) -> String {
    let quota = |limits: &Value| {
        let mut quota = json!({"name": "cpu", "nominalQuota": 1});
        for (key, value) in limits.as_object().unwrap() {
            quota[key] = value.clone();
        }
        let group = json!({"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]});
        json!({"cohort": "c", "resourceGroups": [group]})
    };
    let mut t = Table::older(client, "ClusterQueue", json!({"spec": quota(&json!({}))}));
    let limited = |cohort: Value, limit: &str| {
        let mut spec = quota(&json!({limit: 1}));
        spec["cohort"] = cohort;
        json!({"spec": spec})
    };
    for limit in ["borrowingLimit", "lendingLimit"] {
        let rule = format!("ClusterQueue: {limit} needs a cohort");
        t.create(&rule, limited("c".into(), limit), limited(Value::Null, limit)).await;
    }
    t.create(
        "ClusterQueue: cohortName is not known yet",
        spec("cohort", "d"),
        json!({"spec": {"cohort": null, "cohortName": "c"}}),
    )
    .await;
    let fungibility = |borrow: &str| spec("flavorFungibility", json!({"whenCanBorrow": borrow}));
    t.create("ClusterQueue: whenCanBorrow has an older name", fungibility("Borrow"), fungibility("Lend"))
        .await;
    let borrow = json!({"policy": "LowerPriority"});
    t.create(
        "ClusterQueue: borrowing by preemption needs reclaiming",
        spec("preemption", json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": borrow})),
        spec("preemption", json!({"borrowWithinCohort": borrow})),
    )
    .await;
    t.create(
        "ClusterQueue: a weight is not negative",
        spec("fairSharing", json!({"weight": 0})),
        spec("fairSharing", json!({"weight": -1})),
    )
    .await;
    t.report
}

async fn local_queue(client: &Client) -> String {
    let mut t = Table::older(client, "LocalQueue", spec("clusterQueue", "a"));
    t.update(
        "LocalQueue: clusterQueue is immutable",
        json!({}),
        spec("stopPolicy", "Hold"),
        spec("clusterQueue", "b"),
    )
    .await;
    t.report
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "Because", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    })
}

/// A workload that is admitted, with more in its spec.
fn admitted(spec: &Value) -> Value {
    json!({"spec": spec, "status": {
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2}]},
    }})
}

async fn workload(client: &Client) -> String {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pod_sets = json!([{"name": "main", "count": 2, "template": template}]);
    let mut t = Table::older(client, "Workload", spec("podSets", pod_sets));
    let class = |source: &str, name: &str| json!({"priority": 1, "priorityClassSource": source, "priorityClassName": name});
    let (ours, pods) = ("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass");
    t.create(
        "Workload: a class comes with its value",
        json!({"spec": class(ours, "high")}),
        json!({"spec": {"priorityClassSource": ours, "priorityClassName": "high"}}),
    )
    .await;
    t.create(
        "Workload: the source of a class is known",
        json!({"spec": class(pods, "high")}),
        json!({"spec": class("example.com/class", "high")}),
    )
    .await;
    t.update(
        "Workload: a queueing class may be exchanged, its source not",
        admitted(&class(ours, "a")),
        admitted(&class(ours, "b")),
        admitted(&class(pods, "a")),
    )
    .await;
    t.update(
        "Workload: a pod class is fixed while quota is reserved",
        admitted(&class(pods, "a")),
        admitted(&class(pods, "a")),
        admitted(&class(pods, "b")),
    )
    .await;
    let queue = |name: &str| json!({"queueName": name});
    t.update(
        "Workload: the queue is fixed while quota is reserved",
        admitted(&queue("a")),
        admitted(&queue("a")),
        admitted(&queue("b")),
    )
    .await;
    let time = |seconds: u32| json!({"maximumExecutionTimeSeconds": seconds});
    t.update(
        "Workload: the execution time is fixed while admitted",
        admitted(&time(1)),
        admitted(&time(1)),
        admitted(&time(2)),
    )
    .await;
    let on = |cluster: &str| json!({"clusterName": cluster, "nominatedClusterNames": []});
    t.status(
        "Workload: a worker cluster was nominated",
        json!({"status": {"nominatedClusterNames": ["a"]}}),
        on("a"),
        on("b"),
    )
    .await;
    t.report
}
