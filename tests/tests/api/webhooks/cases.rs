//! An accepted object and a refused one for each rule that needs a webhook.

use kube::Client;
use serde_json::{Value, json};

use crate::rules::table::Table;

/// A ClusterQueue with two resources in two flavors.
pub fn queue() -> Value {
    let flavor = |name: &str| {
        json!({"name": name, "resources": [
            {"name": "cpu", "nominalQuota": 2}, {"name": "memory", "nominalQuota": "1Gi"},
        ]})
    };
    json!({"spec": {
        "cohortName": "c",
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [flavor("f"), flavor("g")]}],
    }})
}

fn groups(resources: &[&str], flavor: &str, quota: &Value) -> Value {
    let quotas: Vec<Value> = resources
        .iter()
        .map(|resource| {
            let mut one = quota.clone();
            one["name"] = (*resource).into();
            one
        })
        .collect();
    json!({"coveredResources": resources, "flavors": [{"name": flavor, "resources": quotas}]})
}

fn spec(field: &str, value: impl Into<Value>) -> Value {
    json!({"spec": {field: value.into()}})
}

fn plain() -> Value {
    json!({"nominalQuota": 1})
}

pub async fn cluster_queue(mut t: Table<'_>) -> String {
    let two = |resource: &str, flavor: &str| {
        spec("resourceGroups", vec![groups(&["cpu"], "f", &plain()), groups(&[resource], flavor, &plain())])
    };
    t.create("a resource belongs to one group", two("memory", "g"), two("cpu", "g")).await;
    t.create("a flavor belongs to one group", two("memory", "g"), two("memory", "f")).await;
    let lending = |amount: &str| {
        let limited = json!({"nominalQuota": 1, "lendingLimit": amount});
        spec("resourceGroups", vec![groups(&["cpu"], "f", &limited)])
    };
    t.create("lendingLimit is at most the nominal quota", lending("1"), lending("1001m")).await;
    let mut alone = lending("1");
    alone["spec"]["cohortName"] = Value::Null;
    t.create("lendingLimit needs a cohort", lending("1"), alone).await;
    let negative = json!({"nominalQuota": "-1"});
    t.create(
        "nominalQuota is not negative",
        json!({}),
        spec("resourceGroups", vec![groups(&["cpu"], "f", &negative)]),
    )
    .await;
    let mut disordered = queue();
    let quotas = disordered["spec"]["resourceGroups"][0]["flavors"][0]["resources"].as_array_mut().unwrap();
    quotas.reverse();
    t.create("resources stand in the order of coveredResources", json!({}), disordered).await;
    let weight = |weight: &str| spec("fairSharing", json!({"weight": weight}));
    t.create("a weight is not too small to divide by", weight("2n"), weight("1n")).await;
    let on = |flavor: &str| {
        spec("admissionChecksStrategy", json!({"admissionChecks": [{"name": "a", "onFlavors": [flavor]}]}))
    };
    t.create("onFlavors names flavors of the queue", on("f"), on("h")).await;
    let policy = |mode: &str| spec("concurrentAdmissionPolicy", json!({"migration": {"mode": mode}}));
    t.update(
        "concurrentAdmissionPolicy is immutable",
        policy("TryPreferredFlavors"),
        policy("TryPreferredFlavors"),
        policy("RetainFirstAdmission"),
    )
    .await;
    let selector = |key: &str| spec("namespaceSelector", json!({"matchLabels": {key: "v"}}));
    t.create("the namespace selector is well formed", selector("team"), selector("-team")).await;
    t.report
}

pub async fn cohort(mut t: Table<'_>) -> String {
    let limited = |parent: Value, limits: Value| {
        let mut quota = plain();
        for (key, value) in limits.as_object().unwrap() {
            quota[key] = value.clone();
        }
        json!({"spec": {"parentName": parent, "resourceGroups": [groups(&["cpu"], "f", &quota)]}})
    };
    for limit in ["borrowingLimit", "lendingLimit"] {
        let limits = json!({limit: 5});
        let rule = format!("{limit} needs a parent, and may exceed the nominal quota");
        t.create(&rule, limited(json!("p"), limits.clone()), limited(Value::Null, limits)).await;
    }
    t.create(
        "a weight is not negative",
        spec("fairSharing", json!({"weight": 0})),
        spec("fairSharing", json!({"weight": -1})),
    )
    .await;
    t.report
}

pub async fn resource_flavor(mut t: Table<'_>) -> String {
    t.create(
        "labels are well formed",
        spec("nodeLabels", json!({"cloud.google.com/gke-spot": "true"})),
        spec("nodeLabels", json!({"a b": "c"})),
    )
    .await;
    let taints = |second: &str| {
        spec("nodeTaints", json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": second}]))
    };
    t.create("taints are unique by key and effect", taints("NoExecute"), taints("NoSchedule")).await;
    t.create(
        "taint keys are well formed",
        spec("nodeTaints", json!([{"key": "a/b", "effect": "NoSchedule"}])),
        spec("nodeTaints", json!([{"key": "a b", "effect": "NoSchedule"}])),
    )
    .await;
    t.create(
        "toleration keys are well formed",
        spec("tolerations", json!([{"key": "a/b", "operator": "Exists"}])),
        spec("tolerations", json!([{"key": "a b", "operator": "Exists"}])),
    )
    .await;
    t.report
}

fn pod_set(name: &str, extra: &Value) -> Value {
    let mut pod_set = json!({
        "name": name, "count": 3, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    for (key, value) in extra.as_object().unwrap() {
        pod_set[key] = value.clone();
    }
    pod_set
}

/// A Workload of one pod set.
pub fn workload_base() -> Value {
    spec("podSets", vec![pod_set("main", &json!({}))])
}

fn condition(kind: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": "Because", "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    })
}

fn admission(change: &Value) -> Value {
    let mut assignment =
        json!({"name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}});
    for (key, value) in change.as_object().unwrap() {
        assignment[key] = value.clone();
    }
    json!({"conditions": [condition("QuotaReserved")], "admission": {
        "clusterQueue": "cq", "podSetAssignments": [assignment],
    }})
}

fn reserved(change: Value) -> Value {
    let mut object = change;
    object["status"] = admission(&json!({}));
    object
}

pub async fn workload(mut t: Table<'_>) -> String {
    let sets =
        |second: Value| spec("podSets", vec![pod_set("a", &json!({"minCount": 1})), pod_set("b", &second)]);
    t.create("one pod set may use minCount", sets(json!({})), sets(json!({"minCount": 1}))).await;
    let asks = |resource: &str| {
        let template = json!({"spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {resource: "1"}}},
        ]}});
        spec("podSets", vec![pod_set("main", &json!({"template": template}))])
    };
    t.create("requests do not name pods", asks("cpu"), asks("pods")).await;
    let resized = |count: u32| spec("podSets", vec![pod_set("main", &json!({"count": count}))]);
    t.update("pod sets are fixed while quota is reserved", reserved(json!({})), json!({}), resized(2)).await;
    let gated =
        |gates: &str| json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": gates}}});
    t.update("gates can only be removed", gated("a,b"), gated("b"), gated("b,c")).await;

    let conditions = json!({"conditions": [condition("QuotaReserved")]});
    t.status("a reservation is in the status", json!({}), admission(&json!({})), conditions).await;
    t.status(
        "assignments name pod sets",
        json!({}),
        admission(&json!({})),
        admission(&json!({"name": "other"})),
    )
    .await;
    let usage = |cpu: &str| admission(&json!({"resourceUsage": {"cpu": cpu}}));
    t.status("usage is a multiple of the count", json!({}), usage("300m"), usage("100m")).await;
    let reclaimable = |count: u32| json!({"reclaimablePods": [{"name": "main", "count": count}]});
    t.status("not more pods are reclaimable than there are", json!({}), reclaimable(3), reclaimable(4)).await;
    let mut old = reserved(json!({}));
    old["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
    t.status("reclaimable pods do not become fewer", old, reclaimable(2), reclaimable(0)).await;
    let placed = json!({"topologyAssignment": {
        "levels": ["h"],
        "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"universal": 3}}],
    }});
    t.status(
        "the flavors of a reservation are fixed",
        reserved(json!({})),
        admission(&placed),
        admission(&json!({"flavors": {"cpu": "g"}})),
    )
    .await;
    let cluster = |name: &str| json!({"clusterName": name, "nominatedClusterNames": []});
    let nominated = json!({"status": {"nominatedClusterNames": ["a", "b"]}});
    t.status("a worker cluster was nominated", nominated, cluster("a"), cluster("c")).await;
    t.report
}

/// A rule that a gate switches: whether it lets the object pass now.
async fn switched(t: &mut Table<'_>, gate: &str, object: Value, accepted: bool) {
    let answer = t.created(&object).await;
    if accepted {
        assert!(answer.is_ok(), "{gate}: should be accepted: {answer:?}");
        t.report.push_str(&[gate, "\n    accepted\n"].concat());
    } else {
        t.refused(gate, answer);
    }
}

/// Rules that gates switch; by default, and with [`super::GATES`].
pub async fn gates(client: &Client, default: bool) -> String {
    let mut t = Table::new(client, "Workload", workload_base());
    let asks = json!({"spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1"}}},
    ]}});
    let template = |template: Value| spec("podSets", vec![pod_set("main", &json!({"template": template}))]);
    switched(&mut t, "WorkloadValidateResourcesAreNonNegative", template(asks), !default).await;
    let labelled = json!({
        "metadata": {"labels": {"a b": "v"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    switched(&mut t, "WorkloadValidationForPodSetMetadata", template(labelled), !default).await;
    let slices = pod_set("main", &json!({"topologyRequest": {"podSetSliceSize": 2}}));
    switched(&mut t, "TASValidateWorkloadSliceSize", spec("podSets", vec![slices]), !default).await;
    let boost = json!({"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": "high"}}});
    switched(&mut t, "PriorityBoost", boost, default).await;
    let mut queues = Table::new(client, "ClusterQueue", queue());
    let policy = json!({"spec": {
        "queueingStrategy": "StrictFIFO",
        "concurrentAdmissionPolicy": {"migration": {"mode": "TryPreferredFlavors"}},
    }});
    switched(&mut queues, "ConcurrentAdmission", policy, default).await;
    t.report + &queues.report
}
