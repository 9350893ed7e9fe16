//! Custom labels of metrics follow the objects from which they come.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_engine::metrics::METRICS;
use sluice_engine::{EngineConfig, Gather, Kind, ObjectRef};

use crate::model::build::job;
use crate::model::{Api, Cluster};

const ENTRIES: &str = "
    - {name: team}
    - {name: floor, sourceKind: Cohort, sourceAnnotationKey: example.com/floor}
    - {name: stage, sourceKind: LocalQueue, sourceLabelKey: example.com/stage}
    - {name: class, sourceKind: Workload, trackedValues: [train, serve]}
    - {name: note, sourceKind: Workload, sourceAnnotationKey: example.com/note, trackedValues: [hot]}";

fn config(gate: bool) -> EngineConfig {
    let text = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {{CustomMetricLabels: {gate}}}\n\
         metrics:\n  enableClusterQueueResources: true\n  customLabels:{ENTRIES}\n"
    );
    let (file, _) = Configuration::parse(&text).unwrap();
    EngineConfig { status_interval_ms: 0, gather: Gather::NONE, ..EngineConfig::from(&file) }
}

fn cluster(gate: bool) -> Cluster {
    let mut c = Cluster::new(config(gate));
    c.api.namespace("team-a", &[]);
    c.api.put(
        Kind::Cohort,
        json!({"metadata": {"name": "co", "annotations": {"example.com/floor": "3"}}, "spec": {}}),
    );
    c.api.simple("3", &json!({"cohortName": "co"}));
    c.api.edit(&cq(), &json!({"metadata": {"labels": {"team": "red"}}}));
    c.api.edit(&lq(), &json!({"metadata": {"labels": {"example.com/stage": "prod"}}}));
    for (name, pods, class) in
        [("runs", 2, "train"), ("waits-1", 3, "train"), ("waits-2", 3, "serve"), ("waits-3", 3, "odd")]
    {
        let mut view = job("team-a", name, "lq", pods, "1");
        view.labels.insert("class".to_owned(), class.to_owned());
        view.annotations.insert("example.com/note".to_owned(), "hot".to_owned());
        c.api.add_job(view);
    }
    c.settle();
    c
}

fn cq() -> ObjectRef {
    ObjectRef::cluster(Kind::ClusterQueue, "cq")
}

fn lq() -> ObjectRef {
    ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq")
}

fn gauges(c: &Cluster, metric: &str) -> BTreeMap<String, f64> {
    let all = c.engine.metrics_snapshot().into_iter().filter(|g| g.metric == metric);
    all.map(|g| (g.labels.join(","), g.value)).collect()
}

fn keys(c: &Cluster, metric: &str) -> Vec<String> {
    gauges(c, metric).into_keys().collect()
}

fn last(c: &Cluster, metric: &str) -> Vec<String> {
    let found = c.observed.iter().rev().find(|(name, _)| name == metric);
    found.map(|(_, labels)| labels.clone()).unwrap_or_default()
}

const OTHER: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";

#[test]
fn each_metric_has_the_labels_of_what_it_is_about() {
    let c = cluster(true);
    assert_eq!(keys(&c, "kueue_reserving_active_workloads"), ["cq,red"]);
    assert_eq!(keys(&c, "kueue_cluster_queue_nominal_quota"), ["co,cq,default,cpu,red"]);
    assert_eq!(keys(&c, "kueue_local_queue_reserving_active_workloads"), ["lq,team-a,prod"]);
    assert_eq!(keys(&c, "kueue_cohort_info"), ["co,,co,3"]);
    assert_eq!(keys(&c, "kueue_cohort_subtree_admitted_active_workloads"), ["co,red"]);
    assert_eq!(last(&c, "kueue_admitted_workloads_total"), ["cq", "", "red"]);
    assert_eq!(last(&c, "kueue_cohort_subtree_admitted_workloads_total"), ["co", "", "3"]);
    assert_eq!(
        last(&c, "kueue_local_queue_admitted_workloads_total"),
        ["lq", "team-a", "", "prod", "train", "hot"]
    );
    assert_eq!(last(&c, "kueue_workload_creation_latency_seconds"), ["Job", "prod"]);
    assert_eq!(keys(&c, "kueue_admitted_active_workloads"), ["cq,red,train,hot"]);
    assert_eq!(keys(&c, "kueue_local_queue_admitted_active_workloads"), ["lq,team-a,prod,train,hot"]);
    let pending = gauges(&c, "kueue_pending_workloads");
    let waits = |class: &str| {
        ["active", "inadmissible"].map(|s| pending[&format!("cq,{s},red,{class},hot")]).iter().sum::<f64>()
    };
    assert_eq!([waits("train"), waits("serve"), waits(OTHER)].map(|n| n.to_string()), ["1", "1", "1"]);
    assert_eq!(pending.len(), 6, "{pending:?}");
}

#[test]
fn every_series_has_as_many_values_as_its_metric_has_labels() {
    let mut c = cluster(true);
    c.api.finish_job("runs", true);
    c.settle();
    let entries = config(true).custom_labels;
    let labels_of = |name: &str| {
        let metric = METRICS.iter().find(|m| m.name == name).unwrap();
        metric.labels.len() + metric.custom_labels(&entries).len()
    };
    assert!(c.observed.len() > 15);
    for (name, labels) in &c.observed {
        assert_eq!(labels_of(name), labels.len(), "{name}{labels:?}");
    }
    for gauge in c.engine.metrics_snapshot() {
        assert_eq!(labels_of(gauge.metric), gauge.labels.len(), "{gauge:?}");
    }
}

#[test]
fn a_changed_label_moves_the_series() {
    let mut c = cluster(true);
    let change = |c: &mut Cluster, object: &ObjectRef, metadata: Value| {
        c.series_gone.clear();
        c.api.edit(object, &json!({"metadata": metadata}));
        c.settle();
        c.series_gone.clone()
    };
    let cohort = ObjectRef::cluster(Kind::Cohort, "co");
    assert_eq!(change(&mut c, &cq(), json!({"labels": {"team": "blue"}})), [cq()]);
    assert_eq!(change(&mut c, &lq(), json!({"labels": {"example.com/stage": null}})), [lq()]);
    let floor = change(&mut c, &cohort, json!({"annotations": {"example.com/floor": "4"}}));
    assert_eq!(floor, [cohort]);
    // What is not read off moves nothing.
    assert_eq!(change(&mut c, &cq(), json!({"labels": {"other": "x"}, "annotations": {"team": "x"}})), []);
    assert_eq!(keys(&c, "kueue_reserving_active_workloads"), ["cq,blue"]);
    assert_eq!(keys(&c, "kueue_local_queue_reserving_active_workloads"), ["lq,team-a,"]);
    assert_eq!(keys(&c, "kueue_cohort_info"), ["co,,co,4"]);
    c.api.finish_job("runs", true);
    c.settle();
    assert_eq!(last(&c, "kueue_finished_workloads_total"), ["cq", "", "blue"]);
    // A Workload's label moves what is counted of it.
    let waits: Vec<_> =
        ["waits-1", "waits-2", "waits-3"].into_iter().filter(|name| c.api.job(name).view.suspended).collect();
    for name in waits {
        let workload = Api::workload_ref(&c.workload(name));
        c.api.edit(&workload, &json!({"metadata": {"labels": {"class": "serve"}}}));
    }
    c.settle();
    assert_eq!(
        keys(&c, "kueue_pending_workloads"),
        ["cq,active,blue,serve,hot", "cq,inadmissible,blue,serve,hot"]
    );
}

#[test]
fn what_a_queue_is_called_while_a_write_is_under_way_counts_where_it_is_counted() {
    let mut c = cluster(true);
    c.slow = Some(sluice_engine::Purpose::Finish);
    c.api.finish_job("runs", true);
    c.settle();
    c.api.edit(&cq(), &json!({"metadata": {"labels": {"team": "blue"}}}));
    c.settle();
    c.release();
    assert_eq!(last(&c, "kueue_finished_workloads_total"), ["cq", "", "blue"]);
}

#[test]
fn without_their_gate_there_are_none() {
    let c = cluster(false);
    assert_eq!(keys(&c, "kueue_reserving_active_workloads"), ["cq"]);
    assert_eq!(last(&c, "kueue_local_queue_admitted_workloads_total"), ["lq", "team-a", ""]);
    let workload = c.workload("runs");
    assert!(!workload.metadata.labels.unwrap_or_default().contains_key("class"));
}

#[test]
fn a_leader_that_learns_of_labels_when_it_starts_keeps_its_series() {
    let mut c = cluster(true);
    c.restart();
    c.series_gone.clear();
    c.settle();
    assert_eq!(c.series_gone, []);
    assert_eq!(keys(&c, "kueue_reserving_active_workloads"), ["cq,red"]);
}
