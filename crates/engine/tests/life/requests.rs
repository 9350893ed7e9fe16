//! The requests of a workload: reclaimable pods, partial admission, limits, overhead, transformations (docs/reference/06-algorithm.md 6.2 and 6.19).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_api::job::JobView;
use sluice_engine::{EngineConfig, Kind, ObjectRef, ResourceConfig, Transformation};

use crate::model::build::job;
use crate::model::{Cluster, condition, reported};

fn with(resources: ResourceConfig) -> Cluster {
    let config = EngineConfig { status_interval_ms: 0, resources, ..EngineConfig::default() };
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c
}

/// A job whose container asks for these.
fn asking(name: &str, requests: &Value, change: impl FnOnce(&mut Value)) -> JobView {
    let mut view = job("team-a", name, "lq", 1, "1");
    let mut spec =
        json!({"containers": [{"name": "main", "image": "i", "resources": {"requests": requests}}]});
    change(&mut spec);
    let template: k8s_openapi::api::core::v1::PodTemplateSpec =
        serde_json::from_value(json!({"spec": spec})).unwrap();
    view.pod_sets[0].containers_hash = sluice_api::names::containers_hash(template.spec.as_ref().unwrap());
    view.pod_sets[0].template = Some(Arc::new(template));
    view
}

/// The usage that the admission of a job's workload records.
fn usage(c: &Cluster, job: &str) -> BTreeMap<String, String> {
    let admission = c.workload(job).status.unwrap().admission.expect("it holds quota");
    let usage = &admission.pod_set_assignments[0].resource_usage;
    usage.iter().map(|(k, v)| (k.clone(), v.0.clone())).collect()
}

fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn pods_that_ended_well_give_their_quota_back_at_once() {
    let mut c = with(ResourceConfig::default());
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.api.add_job(job("team-a", "b", "lq", 2, "1"));
    c.settle();
    assert!(c.api.job("b").view.suspended);
    c.api.edit_job("a", |j| j.view.reclaimable = vec![("main".to_owned(), 1)]);
    c.settle();
    assert!(c.api.job("b").view.suspended);
    c.api.edit_job("a", |j| j.view.reclaimable = vec![("main".to_owned(), 2)]);
    c.settle();
    assert!(!c.api.job("b").view.suspended, "two pods of a are done");
    let w = c.workload("a");
    assert_eq!(w.status.as_ref().unwrap().reclaimable_pods[0].count, 2);
    assert_eq!(condition(&w, "Admitted"), "True");
    c.api.edit_job("a", |j| j.view.reclaimable = vec![]);
    c.settle();
    assert_eq!(
        c.workload("a").status.unwrap().reclaimable_pods[0].count,
        2,
        "they never shrink while it runs"
    );
}

/// A queue with these processors, and a job of five that takes two.
fn takes_less(cpu: &str) -> Cluster {
    let mut c = with(ResourceConfig::default());
    c.api.simple(cpu, &json!({}));
    let mut view = job("team-a", "a", "lq", 5, "1");
    view.pod_sets[0].min_count = Some(2);
    c.api.add_job(view);
    c.settle();
    c
}

#[test]
fn a_job_that_takes_less_is_admitted_with_what_there_is_and_restored_in_full() {
    let mut c = takes_less("3");
    let w = c.workload("a");
    assert_eq!(w.spec.pod_sets[0].min_count, Some(2));
    let assigned = w.status.unwrap().admission.unwrap().pod_set_assignments[0].count;
    assert_eq!(assigned, Some(3));
    assert_eq!(c.api.job("a").view.pod_sets[0].count, 3);
    let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert_eq!(c.api.job("a").view.pod_sets[0].count, 5);
    assert!(c.api.job("a").view.suspended);
}

#[test]
fn less_than_the_least_is_not_admitted() {
    let c = takes_less("1");
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
}

#[test]
fn a_limit_range_gives_defaults_and_refuses_what_exceeds_it() {
    let mut c = with(ResourceConfig::default());
    c.api.simple("10", &json!({}));
    let limits = c.api.put(
        Kind::LimitRange,
        json!({"metadata": {"name": "l", "namespace": "team-a"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "2"}, "max": {"cpu": "3"}}]}}),
    );
    c.api.add_job(asking("defaulted", &json!({}), |_| {}));
    c.api.add_job(asking("large", &json!({"cpu": "4"}), |_| {}));
    c.settle();
    assert_eq!(usage(&c, "defaulted"), pairs(&[("cpu", "2")]));
    let text = reported(&c.workload("large"), "QuotaReserved");
    assert!(text.starts_with("False/Misconfigured: "), "{text}");
    c.api.delete(&limits);
    c.settle();
    assert_eq!(usage(&c, "large"), pairs(&[("cpu", "4")]));
}

#[test]
fn a_runtime_class_adds_its_overhead() {
    let mut c = with(ResourceConfig::default());
    c.api.simple("10", &json!({}));
    c.api.put(
        Kind::RuntimeClass,
        json!({"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "500m"}}}),
    );
    c.api.add_job(asking("a", &json!({"cpu": "1"}), |s| s["runtimeClassName"] = json!("kata")));
    c.settle();
    assert_eq!(usage(&c, "a"), pairs(&[("cpu", "1500m")]));
}

#[test]
fn resources_are_transformed_and_prefixes_excluded() {
    let outputs = [("example.com/units".to_owned(), "2".parse().unwrap())].into();
    let rule = Transformation { retain: false, multiply_by: None, outputs };
    let mut c = with(ResourceConfig {
        exclude_prefixes: vec!["ignored.example.com/".to_owned()],
        ignore_undeclared: false,
        transformations: [("example.com/card".to_owned(), rule)].into(),
    });
    let quota = |name: &str, n: &str| json!({"name": name, "nominalQuota": n});
    let group = json!([{"coveredResources": ["cpu", "example.com/units"], "flavors": [
        {"name": "default", "resources": [quota("cpu", "4"), quota("example.com/units", "6")]}]}]);
    c.api.simple("4", &json!({"resourceGroups": group}));
    let requests = json!({"cpu": "1", "example.com/card": "3", "ignored.example.com/x": "99"});
    c.api.add_job(asking("a", &requests, |_| {}));
    c.settle();
    assert_eq!(usage(&c, "a"), pairs(&[("cpu", "1"), ("example.com/units", "6")]));
}

#[test]
fn a_resource_that_no_quota_names_blocks_or_is_ignored_as_configured() {
    for ignore in [false, true] {
        let mut c = with(ResourceConfig { ignore_undeclared: ignore, ..ResourceConfig::default() });
        c.api.simple("4", &json!({}));
        c.api.add_job(asking("a", &json!({"cpu": "1", "memory": "1Gi"}), |_| {}));
        c.settle();
        let reserved = condition(&c.workload("a"), "QuotaReserved");
        assert_eq!(
            reserved,
            if ignore { "True" } else { "False" },
            "{}",
            reported(&c.workload("a"), "QuotaReserved")
        );
    }
}

#[test]
fn without_partial_admission_a_job_that_would_take_less_runs_whole() {
    let mut config = EngineConfig { status_interval_ms: 0, ..EngineConfig::default() };
    config.gates = config.gates.with(sluice_api::gates::Gate::PartialAdmission, false);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    for (name, pods) in [("whole", 3), ("waits", 4)] {
        let mut view = job("team-a", name, "lq", pods, "1");
        view.pod_sets[0].min_count = Some(2);
        c.api.add_job(view);
        c.settle();
    }
    assert!(!c.api.job("whole").view.suspended && c.api.job("waits").view.suspended);
    assert_eq!(c.workload("waits").spec.pod_sets[0].min_count, None);
    assert_eq!((c.notes("UpdatedWorkload").len(), c.notes("DeletedWorkload").len()), (0, 0));
}

#[test]
fn a_waiting_job_that_takes_less_no_longer_is_admitted_whole() {
    let mut c = takes_less("1");
    c.api.edit_job("a", |job| job.view.pod_sets[0].min_count = None);
    c.settle();
    assert_eq!(c.workload("a").spec.pod_sets[0].min_count, None);
    for (cpu, runs) in [("3", false), ("5", true)] {
        let quota = json!([{"coveredResources": ["cpu"],
            "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]);
        let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
        c.api.edit(&cq, &json!({"spec": {"resourceGroups": quota}}));
        c.settle();
        assert_eq!(!c.api.job("a").view.suspended, runs, "{cpu}");
    }
}

#[test]
fn more_than_can_be_counted_is_never_admitted_and_says_so() {
    let mut c = with(ResourceConfig::default());
    c.api.simple("9223372036854775807", &json!({}));
    let name = "example.com/card";
    let group = json!([{"coveredResources": [name], "flavors": [{"name": "default",
        "resources": [{"name": name, "nominalQuota": "9223372036854775807"}]}]}]);
    c.api.cluster_queue("cq", "default", "1", &json!({"resourceGroups": group}));
    let why = "False/Misconfigured: resources validation failed: spec.podSets[0].template.spec: Invalid value: \
               example.com/card: the pods ask for more in all than can be counted";
    for (job, count, each) in
        [("a", 3, "9223372036854775807"), ("b", 1, "9223372036854775807"), ("d", 3, "3074457345618258603")]
    {
        let mut view = asking(job, &json!({name: each}), |_| {});
        view.pod_sets[0].count = count;
        c.api.add_job(view);
        c.settle();
        assert_eq!(reported(&c.workload(job), "QuotaReserved"), why, "{job}");
        assert!(c.api.job(job).view.suspended);
    }
    // Nothing is written again and again.
    let before = c.writes.len();
    c.advance(3_600);
    assert_eq!(&c.writes[before..], []);
    // The most that can.
    let mut view = asking("e", &json!({name: "3074457345618258602"}), |_| {});
    view.pod_sets[0].count = 3;
    c.api.add_job(view);
    c.settle();
    assert_eq!(usage(&c, "e"), pairs(&[(name, "9223372036854775806")]));
}

#[test]
fn a_job_that_asks_for_more_beside_its_containers_is_queued_again() {
    let more = [
        json!({"overhead": {"cpu": "2"}}),
        json!({"resources": {"requests": {"cpu": "4"}}}),
        json!({"runtimeClassName": "kata"}),
        json!({"resourceClaims": [{"name": "gpu"}]}),
    ];
    for (more, checks) in more.iter().flat_map(|more| [(more, json!([])), (more, json!(["wait"]))]) {
        let mut c = with(ResourceConfig::default());
        c.api.active_check("wait");
        let rules: Vec<_> = checks.as_array().unwrap().iter().map(|name| json!({"name": name})).collect();
        c.api.simple("9", &json!({"admissionChecksStrategy": {"admissionChecks": rules}}));
        let kata =
            json!({"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "2"}}});
        c.api.put(Kind::RuntimeClass, kata);
        c.api.add_job(asking("a", &json!({"cpu": "1"}), |_| {}));
        c.settle();
        assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");
        let with_more = asking("a", &json!({"cpu": "1"}), |spec| json_patch(spec, more));
        c.api.edit_job("a", |job| job.view.pod_sets[0].template.clone_from(&with_more.pod_sets[0].template));
        c.settle();
        let spec = serde_json::to_value(&c.workload("a").spec.pod_sets[0].template).unwrap()["spec"].clone();
        for (field, value) in more.as_object().unwrap() {
            assert_eq!(&spec[field], value, "{checks}");
        }
    }
}

fn json_patch(spec: &mut Value, more: &Value) {
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
}
