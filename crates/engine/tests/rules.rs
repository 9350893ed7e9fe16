//! Rules of docs/reference/06-algorithm.md that the engine applies before the core does: what a pod asks for (6.2), and its place in
//! the queue (6.4). The list of all rules and their tests is in the core's `tests/rules/README.md`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod model;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use model::build::job;
use model::{Api, Cluster, condition, reported};
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobView;
use sluice_engine::{EngineConfig, Kind, ResourceConfig, Transformation};

/// A cluster with plenty of quota for everything that these tests ask for.
fn cluster(resources: ResourceConfig) -> Cluster {
    let config = EngineConfig { status_interval_ms: 0, resources, ..EngineConfig::default() };
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    let names = ["cpu", "memory", "example.com/card", "example.com/units", "example.com/slots"];
    let quotas: Vec<Value> =
        names.iter().map(|name| json!({"name": name, "nominalQuota": "1000Gi"})).collect();
    let group = json!([{"coveredResources": names, "flavors": [{"name": "default", "resources": quotas}]}]);
    c.api.simple("1", &json!({"resourceGroups": group}));
    c
}

/// A job with this pod spec.
fn asking(name: &str, spec: &Value) -> JobView {
    let mut view = job("team-a", name, "lq", 1, "1");
    let template: k8s_openapi::api::core::v1::PodTemplateSpec =
        serde_json::from_value(json!({"spec": spec})).unwrap();
    view.pod_sets[0].containers_hash = sluice_api::names::containers_hash(template.spec.as_ref().unwrap());
    view.pod_sets[0].template = Some(Arc::new(template));
    view
}

fn container(name: &str, requests: &Value) -> Value {
    json!({"name": name, "image": "i", "resources": {"requests": requests}})
}

/// What the admission of a job's Workload records.
fn usage(c: &Cluster, job: &str) -> BTreeMap<String, String> {
    let workload = c.workload(job);
    let why = reported(&workload, "QuotaReserved");
    let admission = workload.status.unwrap().admission.unwrap_or_else(|| panic!("{job}: {why}"));
    admission.pod_set_assignments[0].resource_usage.iter().map(|(k, v)| (k.clone(), v.0.clone())).collect()
}

/// What one pod of this spec uses.
fn used(c: &mut Cluster, spec: &Value) -> BTreeMap<String, String> {
    let name = format!("j{}", c.api.workloads().len());
    c.api.add_job(asking(&name, spec));
    c.settle();
    usage(c, &name)
}

fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn containers_add_up_and_the_largest_init_container_counts_if_it_is_larger() {
    let mut c = cluster(ResourceConfig::default());
    let spec = json!({
        "initContainers": [
            container("i1", &json!({"cpu": "3", "memory": "1Gi"})),
            container("i2", &json!({"cpu": "2", "memory": "1Gi"})),
        ],
        "containers": [
            container("c1", &json!({"cpu": "1", "memory": "1Gi"})),
            container("c2", &json!({"cpu": "500m", "memory": "1Gi"})),
        ],
    });
    assert_eq!(used(&mut c, &spec), pairs(&[("cpu", "3"), ("memory", "2Gi")]));
}

#[test]
fn sidecars_run_beside_the_containers_and_beside_later_init_containers() {
    let mut c = cluster(ResourceConfig::default());
    let mut sidecar = container("side", &json!({"cpu": "1"}));
    sidecar["restartPolicy"] = json!("Always");
    let with = |init: &str, main: &str| {
        json!({
            "initContainers": [
                container("before", &json!({"cpu": "4"})),
                sidecar.clone(),
                container("after", &json!({"cpu": init})),
            ],
            "containers": [container("main", &json!({"cpu": main}))],
        })
    };
    assert_eq!(used(&mut c, &with("2", "5")), pairs(&[("cpu", "6")]), "beside the container");
    assert_eq!(used(&mut c, &with("6", "5")), pairs(&[("cpu", "7")]), "beside the later init container");
    assert_eq!(
        used(&mut c, &with("2", "1")),
        pairs(&[("cpu", "4")]),
        "the earlier init container runs alone"
    );
}

#[test]
fn requests_of_the_pod_as_a_whole_count_where_they_are_more_than_those_of_its_containers() {
    // A cluster that does not know them drops them: what is left is what the containers ask for.
    for (whole, counts) in [("8", "8250m"), ("1m", "5250m")] {
        let mut c = cluster(ResourceConfig::default());
        let spec = json!({
            "resources": {"requests": {"cpu": whole}},
            "containers": [container("main", &json!({"cpu": "5", "memory": "1Gi", "example.com/card": "1"}))],
            "overhead": {"cpu": "250m"},
        });
        let expected = [("cpu", counts), ("example.com/card", "1"), ("memory", "1Gi")];
        assert_eq!(used(&mut c, &spec), pairs(&expected), "{whole}");
    }
}

#[test]
fn a_limit_stands_in_for_a_request_that_is_missing() {
    let mut c = cluster(ResourceConfig::default());
    let resources = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}});
    let spec = json!({"containers": [{"name": "main", "image": "i", "resources": resources}]});
    assert_eq!(used(&mut c, &spec), pairs(&[("cpu", "1"), ("memory", "1Gi")]));
}

fn limit_range(c: &mut Cluster, name: &str, item: &Value) {
    c.api.put(
        Kind::LimitRange,
        json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": {"limits": [item]}}),
    );
}

#[test]
fn of_several_limit_ranges_the_first_default_and_the_narrowest_range_count() {
    let mut c = cluster(ResourceConfig::default());
    limit_range(
        &mut c,
        "l1",
        &json!({"type": "Container", "defaultRequest": {"cpu": "1"}, "max": {"cpu": "8"},
        "min": {"cpu": "500m"}}),
    );
    limit_range(
        &mut c,
        "l2",
        &json!({"type": "Container", "defaultRequest": {"cpu": "2"}, "max": {"cpu": "4"},
        "min": {"cpu": "100m"}}),
    );
    assert_eq!(used(&mut c, &json!({"containers": [container("main", &json!({}))]})), pairs(&[("cpu", "1")]));
    for (name, cpu, wrong) in
        [("large", "5", "above the limitRange max"), ("small", "200m", "below the limitRange min")]
    {
        c.api.add_job(asking(name, &json!({"containers": [container("main", &json!({"cpu": cpu}))]})));
        c.settle();
        assert_eq!(
            reported(&c.workload(name), "QuotaReserved"),
            format!(
                "False/Misconfigured: resources didn't satisfy LimitRange constraints: \
                 spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: requests must not be {wrong}"
            )
        );
    }
}

#[test]
fn requests_above_their_limits_are_refused_and_named() {
    let mut c = cluster(ResourceConfig::default());
    let resources = json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}});
    c.api.add_job(asking(
        "a",
        &json!({"containers": [{"name": "main", "image": "i", "resources": resources}]}),
    ));
    c.settle();
    assert_eq!(
        reported(&c.workload("a"), "QuotaReserved"),
        "False/Misconfigured: resources validation failed: spec.podSets[0].template.spec.containers[0]: Invalid value: \
         [\"cpu\"]: requests must not exceed its limits"
    );
}

#[test]
fn defaults_are_never_written_into_the_workload() {
    let mut c = cluster(ResourceConfig::default());
    limit_range(&mut c, "l", &json!({"type": "Container", "defaultRequest": {"cpu": "2"}}));
    c.api.put(
        Kind::RuntimeClass,
        json!({"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "500m"}}}),
    );
    let spec = json!({"runtimeClassName": "kata", "containers": [container("main", &json!({}))]});
    assert_eq!(used(&mut c, &spec), pairs(&[("cpu", "2500m")]));
    let pod = c.workload("j0").spec.pod_sets[0].template.spec.clone().unwrap();
    assert_eq!(pod.overhead, None);
    let requests = pod.containers[0].resources.clone().and_then(|resources| resources.requests);
    assert!(requests.is_none_or(|requests| requests.is_empty()));
}

#[test]
fn a_change_of_a_limit_range_re_evaluates_waiting_workloads() {
    let mut c = cluster(ResourceConfig::default());
    limit_range(
        &mut c,
        "l",
        &json!({"type": "Container", "defaultRequest": {"cpu": "2"}, "max": {"cpu": "1"}}),
    );
    c.api.add_job(asking("a", &json!({"containers": [container("main", &json!({}))]})));
    c.settle();
    assert!(reported(&c.workload("a"), "QuotaReserved").starts_with("False/Misconfigured"));
    limit_range(&mut c, "l", &json!({"type": "Container", "defaultRequest": {"cpu": "3"}}));
    c.settle();
    assert_eq!(usage(&c, "a"), pairs(&[("cpu", "3")]));
}

fn rule(retain: bool, multiply_by: Option<&str>, outputs: &[(&str, &str)]) -> Transformation {
    let outputs = outputs.iter().map(|(name, per)| ((*name).to_owned(), per.parse().unwrap())).collect();
    Transformation { retain, multiply_by: multiply_by.map(str::to_owned), outputs }
}

fn transforming(rules: &[(&str, Transformation)]) -> Cluster {
    let transformations = rules.iter().map(|(input, rule)| ((*input).to_owned(), rule.clone())).collect();
    cluster(ResourceConfig { transformations, ..ResourceConfig::default() })
}

fn one(requests: &Value) -> Value {
    json!({"containers": [container("main", requests)]})
}

#[test]
fn outputs_of_several_inputs_are_summed_and_retain_keeps_the_input() {
    let mut c = transforming(&[
        ("example.com/card", rule(true, None, &[("example.com/units", "4")])),
        ("example.com/small", rule(false, None, &[("example.com/units", "1"), ("cpu", "500m")])),
    ]);
    let requests = json!({"cpu": "1", "example.com/card": "2", "example.com/small": "3"});
    let expected = [("cpu", "2500m"), ("example.com/card", "2"), ("example.com/units", "11")];
    assert_eq!(used(&mut c, &one(&requests)), pairs(&expected));
    assert_eq!(used(&mut c, &one(&json!({"cpu": "1"}))), pairs(&[("cpu", "1")]), "no input, no change");
}

#[test]
fn multiply_by_counts_only_if_that_resource_is_requested() {
    let mut c = transforming(&[(
        "example.com/memory",
        rule(false, Some("example.com/card"), &[("example.com/units", "2")]),
    )]);
    let requests = json!({"example.com/memory": "5", "example.com/card": "3"});
    assert_eq!(
        used(&mut c, &one(&requests)),
        pairs(&[("example.com/card", "3"), ("example.com/units", "30")])
    );
    assert_eq!(
        used(&mut c, &one(&json!({"example.com/memory": "5"}))),
        pairs(&[("example.com/units", "10")])
    );
}

#[test]
fn a_negative_output_is_nothing() {
    let mut c = transforming(&[(
        "example.com/card",
        rule(false, None, &[("example.com/units", "-2"), ("cpu", "1")]),
    )]);
    let expected = [("cpu", "4"), ("example.com/units", "0")];
    assert_eq!(used(&mut c, &one(&json!({"cpu": "1", "example.com/card": "3"}))), pairs(&expected));
}

/// `a` was created first and gave its quota back because of its check; then `b` ended, and `a` and `c` waited.
#[test]
fn after_an_eviction_by_a_check_the_eviction_orders_the_queue() {
    let mut c = Cluster::plain();
    c.api.active_check("prov");
    c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.advance(10);
    c.api.add_job(job("team-a", "b", "lq", 3, "1"));
    c.api.add_job(job("team-a", "c", "lq", 3, "1"));
    c.advance(10);
    let reference = Api::workload_ref(&c.workload("a"));
    let now = c.now.to_string();
    c.api.edit_status(&reference, |s| {
        s["admissionChecks"][0]["state"] = json!("Retry");
        s["admissionChecks"][0]["lastTransitionTime"] = json!(now);
    });
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Evicted"), "True");
    let reserved =
        |c: &Cluster| ["a", "b", "c"].map(|name| condition(&c.workload(name), "QuotaReserved") == "True");
    c.advance(10);
    assert_eq!(reserved(&c), [false, true, false]);
    c.api.delete_job("b");
    c.settle();
    let reserved =
        |c: &Cluster| ["a", "c"].map(|name| condition(&c.workload(name), "QuotaReserved") == "True");
    assert_eq!(reserved(&c), [false, true], "c was created before a was evicted");
}

#[test]
fn behind_its_gate_the_priority_boost_counts() {
    for (on, first) in [(false, "a"), (true, "b")] {
        let gates = Gates::default().with(Gate::PriorityBoost, on);
        let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, gates, ..EngineConfig::default() });
        c.api.namespace("team-a", &[]);
        c.api.simple("0", &json!({}));
        for name in ["a", "b"] {
            c.api.add_job(job("team-a", name, "lq", 1, "1"));
            c.settle();
            c.now = c.now.checked_add(SignedDuration::from_secs(1)).unwrap();
            c.api.now = c.now;
        }
        let reference = Api::workload_ref(&c.workload("b"));
        c.api.edit(&reference, &json!({"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": "5"}}}));
        c.settle();
        c.api.cluster_queue("cq", "default", "1", &json!({}));
        c.settle();
        let running: Vec<_> = ["a", "b"].into_iter().filter(|name| !c.api.job(name).view.suspended).collect();
        assert_eq!(running, [first], "gate {on}");
    }
}
