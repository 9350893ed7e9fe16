//! The rules in the definitions (schema and CEL), on a real API server without a manager: for each rule an accepted object and a refused one, with
//! the refusal as a snapshot. The rules of the webhooks are tested in `sluice-api`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::needless_pass_by_value, reason = "cases are written where they are passed")]

mod older;
pub mod table;
mod workload;

use std::fmt::Write as _;

use serde_json::{Value, json};
use sluice_testkit::kubectl;
use table::Table;

use crate::bed::definitions;

#[tokio::test]
async fn rules_hold_without_the_manager() {
    let client = definitions().await.client().await.unwrap();
    let mut reports = Vec::new();
    for (name, report) in [
        ("admission_check", admission_check(Table::new(&client, "AdmissionCheck", check_base())).await),
        ("cluster_queue", cluster_queue(Table::new(&client, "ClusterQueue", queue_base())).await),
        ("cohort", cohort(Table::new(&client, "Cohort", json!({}))).await),
        (
            "local_queue",
            local_queue(Table::new(&client, "LocalQueue", json!({"spec": {"clusterQueue": "a"}}))).await,
        ),
        (
            "multikueue_config",
            multikueue_config(Table::new(&client, "MultiKueueConfig", clusters(&["a"]))).await,
        ),
        ("multikueue_cluster", multikueue_cluster(Table::new(&client, "MultiKueueCluster", worker())).await),
        (
            "provisioning_request_config",
            provisioning(Table::new(&client, "ProvisioningRequestConfig", class("c"))).await,
        ),
        ("resource_flavor", resource_flavor(Table::new(&client, "ResourceFlavor", json!({}))).await),
        ("topology", topology(Table::new(&client, "Topology", levels(&["block"]))).await),
        (
            "workload_priority_class",
            priority_class(Table::new(&client, "WorkloadPriorityClass", json!({"value": 1}))).await,
        ),
        ("workload", workload::rules(Table::new(&client, "Workload", workload::base())).await),
        ("v1beta1", older::rules(&client).await),
    ] {
        reports.push((name, report));
    }
    // All first, then compared: one changed message does not hide the others.
    for (name, report) in reports {
        insta::assert_snapshot!(format!("api_rules_{name}"), report);
    }
}

fn check_base() -> Value {
    json!({"spec": {
        "controllerName": "c",
        "parameters": {"apiGroup": "a.b", "kind": "Kind", "name": "n"},
    }})
}

async fn admission_check(mut t: Table<'_>) -> String {
    let parameters = |field: &str, value: &str| json!({"spec": {"parameters": {field: value}}});
    t.create("controllerName is not empty", json!({}), json!({"spec": {"controllerName": ""}})).await;
    t.create("controllerName is required", json!({}), json!({"spec": {"controllerName": null}})).await;
    t.create("parameters have a group", parameters("apiGroup", "x.y"), parameters("apiGroup", "X")).await;
    t.create("parameters have a kind", parameters("kind", "lower"), parameters("kind", "-")).await;
    t.create("the parameters' name is a label", parameters("name", "a-b"), parameters("name", "a.b")).await;
    let other = json!({"spec": {"controllerName": "other"}});
    t.update("controllerName is immutable", json!({}), parameters("name", "m"), other).await;
    t.report
}

fn quota(name: &str) -> Value {
    json!({"name": name, "nominalQuota": 1})
}

fn flavor(name: &str, resources: &[&str]) -> Value {
    json!({"name": name, "resources": resources.iter().map(|r| quota(r)).collect::<Vec<_>>()})
}

fn queue_base() -> Value {
    json!({"spec": {
        "cohortName": "c",
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor("f", &["cpu"])]}],
    }})
}

fn group(covered: &Value, flavors: &Value) -> Value {
    json!({"spec": {"resourceGroups": [{"coveredResources": covered, "flavors": flavors}]}})
}

fn spec(field: &str, value: impl Into<Value>) -> Value {
    json!({"spec": {field: value.into()}})
}

async fn cluster_queue(mut t: Table<'_>) -> String {
    let cpu = json!(["cpu"]);
    let flavors = json!([flavor("f", &["cpu"])]);
    t.create("names are subdomains", spec("cohortName", "a.b"), spec("cohortName", "A")).await;
    t.create(
        "quotas are quantities",
        json!({}),
        group(
            &cpu,
            &json!([{"name": "f", "resources": [
                {"name": "cpu", "nominalQuota": "lots"},
            ]}]),
        ),
    )
    .await;
    t.create("coveredResources is required", json!({}), group(&Value::Null, &flavors)).await;
    t.create("coveredResources is not empty", json!({}), group(&json!([]), &flavors)).await;
    t.create(
        "flavors have as many resources as are covered",
        group(&json!(["cpu", "memory"]), &json!([flavor("f", &["cpu", "memory"])])),
        group(&json!(["cpu", "memory"]), &flavors),
    )
    .await;
    t.create(
        "flavors are listed once",
        group(&cpu, &json!([flavor("f", &["cpu"]), flavor("g", &["cpu"])])),
        group(&cpu, &json!([flavor("f", &["cpu"]), flavor("f", &["cpu"])])),
    )
    .await;
    let many: Vec<Value> = (0..17)
        .map(|n| json!({"coveredResources": [format!("r{n}")], "flavors": [flavor(&format!("f{n}"), &[&format!("r{n}")])]}))
        .collect();
    t.create("at most 16 groups", spec("resourceGroups", many[1..].to_vec()), spec("resourceGroups", many))
        .await;
    let mut limited = group(
        &cpu,
        &json!([{"name": "f", "resources": [
            {"name": "cpu", "nominalQuota": 1, "borrowingLimit": 1},
        ]}]),
    );
    let in_cohort = limited.clone();
    limited["spec"]["cohortName"] = Value::Null;
    t.create("borrowing needs a cohort", in_cohort, limited).await;
    for (field, good, bad) in
        [("queueingStrategy", "StrictFIFO", "LIFO"), ("stopPolicy", "HoldAndDrain", "Stop")]
    {
        t.create(&format!("{field} is one of a few"), spec(field, good), spec(field, bad)).await;
    }
    let fungibility = |change: Value| spec("flavorFungibility", change);
    t.create(
        "the names of v1beta1 are gone",
        fungibility(json!({"whenCanBorrow": "MayStopSearch"})),
        fungibility(json!({"whenCanBorrow": "Borrow"})),
    )
    .await;
    t.create(
        "a preference needs both to try the next flavor",
        fungibility(json!({"whenCanBorrow": "TryNextFlavor", "preference": "BorrowingOverPreemption"})),
        fungibility(json!({"preference": "BorrowingOverPreemption"})),
    )
    .await;
    let borrow = json!({"policy": "LowerPriority"});
    t.create(
        "borrowing by preemption needs reclaiming",
        spec("preemption", json!({"reclaimWithinCohort": "Any", "borrowWithinCohort": borrow})),
        spec("preemption", json!({"borrowWithinCohort": borrow})),
    )
    .await;
    t.create(
        "our addition is known, its neighbours are not",
        spec(
            "preemption",
            json!({"reclaimOutOfCohort": {"enable": true, "reclaimMoreThanNominalQuota": false}}),
        ),
        spec("preemption", json!({"reclaimOutOfCohort": {"enabled": true}})),
    )
    .await;
    let checks = |rules: Value| spec("admissionChecksStrategy", json!({"admissionChecks": rules}));
    t.create("a strategy has checks", checks(json!([{"name": "a"}])), checks(json!([]))).await;
    t.create(
        "a check is listed once",
        checks(json!([{"name": "a"}, {"name": "b"}])),
        checks(json!([{"name": "a"}, {"name": "a"}])),
    )
    .await;
    t.create(
        "a flavor is named once",
        checks(json!([{"name": "a", "onFlavors": ["f", "g"]}])),
        checks(json!([{"name": "a", "onFlavors": ["f", "f"]}])),
    )
    .await;
    t.create(
        "admissionMode is one of two",
        spec("admissionScope", json!({"admissionMode": "NoAdmissionFairSharing"})),
        spec("admissionScope", json!({"admissionMode": "Fair"})),
    )
    .await;
    t.create(
        "the mode of migration is one of two",
        spec("concurrentAdmissionPolicy", json!({"migration": {"mode": "RetainFirstAdmission"}})),
        spec("concurrentAdmissionPolicy", json!({"migration": {}})),
    )
    .await;
    t.report
}

async fn cohort(mut t: Table<'_>) -> String {
    t.create("parentName is a subdomain", spec("parentName", "a.b"), spec("parentName", "a_b")).await;
    t.create(
        "flavors have as many resources as are covered",
        group(&json!(["cpu"]), &json!([flavor("f", &["cpu"])])),
        group(&json!(["cpu"]), &json!([flavor("f", &["cpu", "memory"])])),
    )
    .await;
    t.create(
        "a weight is a quantity",
        spec("fairSharing", json!({"weight": "500m"})),
        spec("fairSharing", json!({"weight": "half"})),
    )
    .await;
    t.report
}

async fn local_queue(mut t: Table<'_>) -> String {
    t.create("clusterQueue is a subdomain", json!({}), spec("clusterQueue", "A")).await;
    t.create("stopPolicy is one of a few", spec("stopPolicy", "Hold"), spec("stopPolicy", "Stop")).await;
    t.update("clusterQueue is immutable", json!({}), spec("stopPolicy", "Hold"), spec("clusterQueue", "b"))
        .await;
    t.report
}

fn clusters(names: &[&str]) -> Value {
    spec("clusters", json!(names))
}

async fn multikueue_config(mut t: Table<'_>) -> String {
    let many: Vec<String> = (0..21).map(|n| format!("c{n}")).collect();
    t.create("there are clusters", json!({}), clusters(&[])).await;
    t.create("at most 20 clusters", spec("clusters", many[1..].to_vec()), spec("clusters", many)).await;
    t.create("clusters are unique", clusters(&["a", "b"]), clusters(&["a", "b", "a"])).await;
    t.create(
        "quotaManagement is one of two",
        spec("quotaManagement", "Automated"),
        spec("quotaManagement", "Magic"),
    )
    .await;
    t.report
}

fn worker() -> Value {
    spec("clusterSource", json!({"kubeConfig": {"location": "secret"}}))
}

async fn multikueue_cluster(mut t: Table<'_>) -> String {
    let profile = json!({"kubeConfig": null, "clusterProfileRef": {"name": "p"}});
    let both = json!({"clusterProfileRef": {"name": "p"}});
    t.create("one source", spec("clusterSource", profile), spec("clusterSource", both)).await;
    t.create("not no source", json!({}), spec("clusterSource", json!({"kubeConfig": null}))).await;
    let config = |change: Value| spec("clusterSource", json!({"kubeConfig": change}));
    t.create(
        "a location is a Secret or a path",
        config(json!({"locationType": "Path"})),
        config(json!({"locationType": "Url"})),
    )
    .await;
    t.create("a location is not empty", json!({}), config(json!({"location": ""}))).await;
    t.report
}

fn class(name: &str) -> Value {
    spec("provisioningClassName", name)
}

async fn provisioning(mut t: Table<'_>) -> String {
    t.create("the class is named", class("a.b"), class("")).await;
    t.create("the class is required", class("c"), json!({"spec": {"provisioningClassName": null}})).await;
    let long = "x".repeat(256);
    t.create(
        "parameters have at most 255 characters",
        spec("parameters", json!({"a": &long[1..]})),
        spec("parameters", json!({"a": long})),
    )
    .await;
    t.create(
        "managed resources are unique",
        spec("managedResources", json!(["a", "b"])),
        spec("managedResources", json!(["a", "a"])),
    )
    .await;
    let selectors = |keys: &[&str]| {
        let list: Vec<Value> =
            keys.iter().map(|k| json!({"key": k, "valueFromProvisioningClassDetail": "d"})).collect();
        spec("podSetUpdates", json!({"nodeSelector": list}))
    };
    t.create("node selectors are unique", selectors(&["a", "b"]), selectors(&["a", "a"])).await;
    t.create("node selectors are qualified names", selectors(&["a/b"]), selectors(&["a b"])).await;
    t.create(
        "the merge policy is one of two",
        spec("podSetMergePolicy", "IdenticalPodTemplates"),
        spec("podSetMergePolicy", "All"),
    )
    .await;
    t.report
}

async fn resource_flavor(mut t: Table<'_>) -> String {
    let many = |count: u32| -> Value {
        spec("nodeLabels", Value::Object((0..count).map(|n| (format!("l{n}"), "v".into())).collect()))
    };
    t.create("at most 8 labels", many(8), many(9)).await;
    let taint = |effect: &str| spec("nodeTaints", json!([{"key": "a", "effect": effect}]));
    t.create("taint effects are known", taint("PreferNoSchedule"), taint("Never")).await;
    let toleration = |toleration: Value| spec("tolerations", json!([toleration]));
    for (rule, good, bad) in [
        ("no key is for Exists", json!({"operator": "Exists"}), json!({"value": "v"})),
        (
            "an empty key is no key",
            json!({"key": "", "operator": "Exists"}),
            json!({"key": "", "operator": "Equal"}),
        ),
        (
            "seconds are for NoExecute",
            json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 1}),
            json!({"key": "a", "tolerationSeconds": 1}),
        ),
        (
            "operators are known",
            json!({"key": "a", "operator": "Equal"}),
            json!({"key": "a", "operator": "Lt"}),
        ),
        (
            "Exists has no value",
            json!({"key": "a", "operator": "Exists"}),
            json!({"key": "a", "operator": "Exists", "value": "v"}),
        ),
        (
            "toleration effects are known",
            json!({"key": "a", "effect": "NoSchedule"}),
            json!({"key": "a", "effect": "Never"}),
        ),
    ] {
        t.create(rule, toleration(good), toleration(bad)).await;
    }
    let tas = json!({"spec": {"topologyName": "t", "nodeLabels": {"a": "b"}}});
    t.create("a topology needs a label", tas.clone(), spec("topologyName", "t")).await;
    let labelled = json!({"spec": {"topologyName": "t", "nodeLabels": {"a": "c"}}});
    let other = json!({"spec": {"topologyName": "u", "nodeLabels": {"a": "b"}}});
    t.update("the topology is immutable", tas.clone(), labelled, other).await;
    t.update("the topology can be set once", json!({}), tas.clone(), spec("topologyName", "t")).await;
    t.update("the topology cannot be removed", tas.clone(), tas, spec("nodeLabels", json!({"a": "b"}))).await;
    t.report
}

fn levels(labels: &[&str]) -> Value {
    spec("levels", labels.iter().map(|l| json!({"nodeLabel": l})).collect::<Vec<_>>())
}

async fn topology(mut t: Table<'_>) -> String {
    const HOST: &str = "kubernetes.io/hostname";
    t.create("there are levels", levels(&["a"]), levels(&[])).await;
    t.create("levels are labels", levels(&["a.b/c"]), levels(&["a b"])).await;
    t.create("levels are unique", levels(&["a", "b"]), levels(&["a", "b", "a"])).await;
    t.create("the host name comes last", levels(&["a", HOST]), levels(&[HOST, "a"])).await;
    t.update(
        "levels change only above the host name",
        levels(&["a", HOST]),
        levels(&["b", "c", HOST]),
        levels(&["a"]),
    )
    .await;
    t.update(
        "levels without the host name are immutable",
        levels(&["a"]),
        levels(&["a"]),
        levels(&["a", HOST]),
    )
    .await;
    t.report
}

async fn priority_class(mut t: Table<'_>) -> String {
    t.create("value is required", json!({"value": -5}), json!({"value": null})).await;
    let described = |length: usize| json!({"description": "x".repeat(length)});
    t.create("a description has at most 2048 characters", described(2048), described(2049)).await;
    t.report
}

#[tokio::test]
async fn defaults_are_those_of_the_schema() {
    let plane = definitions().await;
    let manifests = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: plain}
spec: {clusterQueue: plain, fairSharing: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: plain}
spec: {provisioningClassName: c}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: plain}
spec: {clusterSource: {kubeConfig: {location: s}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: with-spec}
spec: {fairSharing: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: plain}
spec:
  podSets:
  - template:
      metadata: {labels: {a: b}, annotations: {c: d}}
      spec: {containers: [{name: c, ports: [{containerPort: 80}]}]}
";
    kubectl::apply(plane, manifests).await.unwrap();
    let mut report = String::new();
    for object in [
        "clusterqueue/plain",
        "clusterqueue/with-spec",
        "localqueue/plain",
        "provisioningrequestconfig/plain",
        "multikueuecluster/plain",
        "workload/plain",
    ] {
        let printed = kubectl::kubectl(plane, &["get", object, "-o", "json"]).await.unwrap();
        let document: Value = serde_json::from_str(&printed).unwrap();
        writeln!(report, "{object} {:#}", document["spec"]).unwrap();
    }
    insta::assert_snapshot!("api_rules_defaults", report);
}
