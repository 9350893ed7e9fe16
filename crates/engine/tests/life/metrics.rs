//! Metrics of a workload's life: names, labels and values (docs/reference/05-metrics.md).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_engine::metrics::METRICS;
use sluice_engine::metrics::names::{
    ADMISSION_CYCLE_PREEMPTION_SKIPS as SKIPS, CLUSTER_QUEUE_FREE_QUOTA_RATIO as FREE,
};
use sluice_engine::{EngineConfig, Kind, Purpose, WriteError};

use crate::model::build::job;
use crate::model::{Api, Cluster};

/// The gauges whose name has this part, by name and labels.
fn gauges(c: &Cluster, part: &str) -> BTreeMap<String, f64> {
    let all = c.engine.metrics_snapshot().into_iter().filter(|g| g.metric.contains(part));
    all.map(|g| (format!("{}{:?}", g.metric, g.labels), g.value)).collect()
}

fn with(change: impl FnOnce(&mut EngineConfig)) -> Cluster {
    let mut config = EngineConfig {
        status_interval_ms: 0,
        cluster_queue_resource_metrics: true,
        ..EngineConfig::default()
    };
    change(&mut config);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    for (name, cpu) in [("a", "2"), ("b", "500m"), ("large", "4")] {
        c.api.add_job(job("team-a", name, "lq", 2, cpu));
    }
    c.settle();
    c
}

#[test]
fn what_waits_is_counted_by_queue_and_resource() {
    let c = with(|_| {});
    // b runs; a and large wait.
    assert!(!c.api.job("b").view.suspended);
    assert_eq!(
        gauges(&c, "local_queue_pending_workloads"),
        BTreeMap::from([
            (r#"kueue_local_queue_pending_workloads["lq", "team-a", "active"]"#.to_owned(), 0.0),
            (r#"kueue_local_queue_pending_workloads["lq", "team-a", "inadmissible"]"#.to_owned(), 2.0),
        ])
    );
    assert_eq!(
        gauges(&c, "resource_pending"),
        BTreeMap::from([(r#"kueue_cluster_queue_resource_pending["cq", "cpu"]"#.to_owned(), 12.0)])
    );
    assert_eq!(
        gauges(&c, "cluster_queue_resource_usage"),
        BTreeMap::from([(
            r#"kueue_cluster_queue_resource_usage["", "cq", "default", "cpu"]"#.to_owned(),
            1.0
        )])
    );
    assert_eq!(
        gauges(&c, "cycle_preemption_skips"),
        BTreeMap::from([(r#"kueue_admission_cycle_preemption_skips["cq"]"#.to_owned(), 0.0)])
    );
}

#[test]
fn what_is_held_or_about_to_get_quota_does_not_ask_for_any() {
    let mut c = with(|_| {});
    let of = |c: &Cluster, metric: &str| gauges(c, metric).into_values().collect::<Vec<_>>();
    let lq = sluice_engine::ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq");
    for (policy, asked) in [("Hold", 0.0), ("None", 12.0)] {
        c.api.edit(&lq, &json!({"spec": {"stopPolicy": policy}}));
        c.settle();
        assert_eq!(of(&c, "resource_pending"), [asked], "{policy}");
    }
    c.slow = Some(Purpose::ReserveQuota);
    c.api.add_job(job("team-a", "c", "lq", 1, "1"));
    c.settle();
    assert_eq!(of(&c, "cluster_queue_resource_reservation"), [2.0], "b and c");
    assert_eq!(of(&c, "resource_pending"), [12.0]);
}

#[test]
fn unadmitted_workloads_are_those_of_a_cluster_queue_that_are_not_being_deleted() {
    let counted =
        |c: &Cluster| gauges(c, "kueue_unadmitted_workloads").into_values().sum::<f64>().to_string();
    let mut c = with(|_| {});
    crate::unadmitted::workload(&mut c, "free", "elsewhere", &Value::Null);
    c.settle();
    assert_eq!(counted(&c), "2", "a and large");
    let leaving = Api::workload_ref(&c.workload("a"));
    c.api.edit(&leaving, &json!({"metadata": {"finalizers": ["example.com/other"]}}));
    c.api.delete(&leaving);
    c.settle();
    assert_eq!(counted(&c), "1");
    let gate = Gate::UnadmittedWorkloadsObservability;
    let off = with(|config| config.gates = config.gates.with(gate, false));
    assert_eq!(gauges(&off, "unadmitted_workloads"), BTreeMap::new());
}

#[test]
fn gauges_of_a_deleted_queue_are_gone() {
    let mut c = with(|_| {});
    for name in ["a", "b", "large"] {
        c.api.delete_job(name);
    }
    c.settle();
    c.api.delete(&sluice_engine::ObjectRef::cluster(sluice_engine::Kind::ClusterQueue, "cq"));
    c.api.delete(&sluice_engine::ObjectRef::namespaced(sluice_engine::Kind::LocalQueue, "team-a", "lq"));
    c.settle();
    let left: Vec<_> = c.engine.metrics_snapshot().into_iter().filter(|g| !g.labels.is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn local_queues_have_no_series_when_their_metrics_are_off() {
    let mut c = with(|config| config.local_queue_metrics.enable = false);
    c.api.finish_job("b", true);
    c.settle();
    assert_eq!(gauges(&c, "local_queue"), BTreeMap::new());
    assert!(c.observed.iter().all(|(name, _)| !name.contains("local_queue")));
    assert!(!gauges(&c, "unadmitted_workloads").is_empty());
}

#[test]
fn only_the_selected_local_queues_have_series() {
    let selector = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", "c"]}]});
    let mut c = with(|config| {
        config.local_queue_metrics.local_queue_selector = Some(serde_json::from_value(selector).unwrap());
    });
    let seen = |c: &Cluster| {
        c.observed.iter().filter(|(name, _)| name.contains("local_queue")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(gauges(&c, "local_queue"), BTreeMap::new());
    assert_eq!(seen(&c), []);
    let lq = sluice_engine::ObjectRef::namespaced(sluice_engine::Kind::LocalQueue, "team-a", "lq");
    c.api.edit(&lq, &json!({"metadata": {"labels": {"team": "b"}}}));
    c.api.local_queue("team-a", "other", "cq");
    c.api.finish_job("b", true);
    c.api.add_job(job("team-a", "d", "other", 1, "1"));
    c.settle();
    let series = gauges(&c, "local_queue");
    assert!(series.len() > 5 && series.keys().all(|k| k.contains(r#"["lq", "team-a""#)), "{series:?}");
    assert!(seen(&c).iter().any(|(name, _)| name == "kueue_local_queue_finished_workloads_total"));
    assert!(seen(&c).iter().all(|(_, labels)| labels[0] == "lq"), "{:?}", seen(&c));
    assert!(!c.api.job("d").view.suspended);
}

#[test]
fn every_observation_and_gauge_is_defined_with_its_labels() {
    let mut c = with(|_| {});
    c.api.finish_job("b", true);
    c.settle();
    let labels_of = |name: &str| METRICS.iter().find(|m| m.name == name).map(|m| m.labels.len());
    assert!(c.observed.len() > 10);
    for (name, labels) in &c.observed {
        assert_eq!(labels_of(name), Some(labels.len()), "{name}{labels:?}");
    }
    for gauge in c.engine.metrics_snapshot() {
        assert_eq!(labels_of(gauge.metric), Some(gauge.labels.len()), "{gauge:?}");
    }
}

#[test]
fn equivalent_workloads_count_as_one_scheduling_hash() {
    let mut c = with(|_| {});
    for name in ["twin-1", "twin-2"] {
        c.api.add_job(job("team-a", name, "lq", 2, "2"));
    }
    c.settle();
    // a and its twins are one class, large is another; b runs.
    assert_eq!(
        gauges(&c, "pending_scheduling_hashes"),
        BTreeMap::from([
            (r#"kueue_pending_scheduling_hashes["cq", "active"]"#.to_owned(), 0.0),
            (r#"kueue_pending_scheduling_hashes["cq", "inadmissible"]"#.to_owned(), 2.0),
        ])
    );
}

#[test]
fn in_a_queue_that_is_not_active_no_scheduling_hash_is_active() {
    let mut c = with(|_| {});
    let cq = sluice_engine::ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": "Hold"}}));
    // One class has a member that was looked at and one that was not.
    c.api.add_job(job("team-a", "twin", "lq", 2, "2"));
    c.settle();
    assert_eq!(
        gauges(&c, "pending_scheduling_hashes"),
        BTreeMap::from([
            (r#"kueue_pending_scheduling_hashes["cq", "active"]"#.to_owned(), 0.0),
            (r#"kueue_pending_scheduling_hashes["cq", "inadmissible"]"#.to_owned(), 2.0),
        ])
    );
    let off = with(|config| config.gates = config.gates.with(Gate::SchedulingEquivalenceHashing, false));
    assert_eq!(gauges(&off, "pending_scheduling_hashes"), BTreeMap::new());
}

#[test]
fn a_head_that_finds_other_victims_is_counted() {
    let mut c = Cluster::plain();
    c.api.flavor("default", &[]);
    let reclaims = json!({"cohortName": "team", "preemption": {"reclaimWithinCohort": "Any"}});
    c.api.cluster_queue("lends-1", "default", "1", &reclaims);
    c.api.cluster_queue("lends-2", "default", "1", &reclaims);
    c.api.cluster_queue("borrows", "default", "0", &json!({"cohortName": "team"}));
    for queue in ["lends-1", "lends-2", "borrows"] {
        c.api.local_queue("team-a", queue, queue);
    }
    for name in ["victim-1", "victim-2"] {
        c.api.add_job(job("team-a", name, "borrows", 1, "1"));
    }
    c.settle();
    // Both want the same victim first.
    c.api.add_job(job("team-a", "back-1", "lends-1", 1, "1"));
    c.api.add_job(job("team-a", "back-2", "lends-2", 1, "1"));
    c.settle();
    assert!(!c.api.job("back-1").view.suspended && !c.api.job("back-2").view.suspended);
    let metric = "kueue_preemption_target_recomputations_total";
    let counted: Vec<_> = c.observed.iter().filter(|(name, _)| name == metric).map(|(_, l)| &l[1]).collect();
    // Once in each cycle until the victims are gone.
    assert!(!counted.is_empty() && counted.iter().all(|result| *result == "new_targets"), "{counted:?}");
}

#[test]
fn every_way_to_end_is_counted() {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    c.fail.push_back((Purpose::StartJob, WriteError::Unstartable("the label l is there".to_owned())));
    c.api.add_job(job("team-a", "unstartable", "lq", 1, "1"));
    c.settle();
    c.api.add_job(job("team-a", "orphan", "lq", 9, "1"));
    c.settle();
    let orphan = Api::workload_ref(&c.workload("orphan"));
    c.api.vanish(&c.api.job_ref("orphan"));
    c.api.edit(&orphan, &json!({"metadata": {"ownerReferences": null}}));
    c.restart();
    c.settle();
    let counted = |name: &str| c.observed.iter().filter(|(metric, _)| metric == name).count();
    assert_eq!(counted("kueue_finished_workloads_total"), 2);
    assert_eq!(counted("kueue_local_queue_finished_workloads_total"), 2);
    let queues = c.observed.iter().filter(|(metric, _)| metric == "kueue_finished_workloads_total");
    assert!(queues.clone().all(|(_, labels)| labels[0] == "cq"), "{:?}", queues.collect::<Vec<_>>());
    let kept = gauges(&c, "kueue_finished_workloads");
    assert_eq!(kept, BTreeMap::from([(r#"kueue_finished_workloads["cq"]"#.to_owned(), 2.0)]));
}

#[test]
fn a_head_that_finds_the_room_beside_its_victim_taken_counts_as_skipped_but_not_as_recomputed() {
    let mut c = Cluster::plain();
    c.api.flavor("default", &[]);
    c.api.priority_class("high", 10);
    let evicts = json!({"cohortName": "team", "preemption": {"withinClusterQueue": "LowerPriority"}});
    for (queue, cpu) in [("a", "2"), ("b", "2"), ("borrows", "0")] {
        c.api.cluster_queue(queue, "default", cpu, &evicts);
        c.api.local_queue("team-a", queue, queue);
        c.api.add_job(job("team-a", &format!("runs-{queue}"), queue, 1, "1"));
    }
    c.settle();
    // The victims stay while their pods end. Each of the two evicts one of its own, and needs what else is free.
    c.pods_vanish = false;
    for queue in ["a", "b"] {
        let mut large = job("team-a", &format!("large-{queue}"), queue, 2, "1");
        large.workload_priority_class = Some("high".to_owned());
        c.api.add_job(large);
    }
    c.settle();
    let skips = |c: &Cluster, queue: &str| gauges(c, "preemption_skips")[&format!("{SKIPS}[{queue:?}]")];
    assert_eq!((skips(&c, "a"), skips(&c, "b"), skips(&c, "borrows")), (0.0, 1.0, 0.0));
    let recomputed = "kueue_preemption_target_recomputations_total";
    assert!(c.observed.iter().all(|(name, _)| name != recomputed), "no search for other victims was made");
}

#[test]
fn reservations_below_a_cohort_count_what_lending_limits_keep_there() {
    let mut c = Cluster::plain();
    c.api.flavor("default", &[]);
    c.api.put(Kind::Cohort, json!({"metadata": {"name": "team"}, "spec": {"parentName": "all"}}));
    let limited = json!({
        "cohortName": "team",
        "resourceGroups": [{
            "coveredResources": ["cpu"],
            "flavors": [{
                "name": "default",
                "resources": [{"name": "cpu", "nominalQuota": "4", "lendingLimit": "1"}],
            }],
        }],
    });
    c.api.cluster_queue("keeps", "default", "4", &limited);
    c.api.cluster_queue("lends", "default", "2", &json!({"cohortName": "all"}));
    for queue in ["keeps", "lends"] {
        c.api.local_queue("team-a", queue, queue);
        c.api.add_job(job("team-a", queue, queue, 2, "1"));
    }
    c.settle();
    let of = |metric: &str| {
        let found = gauges(&c, metric);
        ["team", "all"].map(|cohort| found[&format!(r#"{metric}["{cohort}", "default", "cpu"]"#)].to_string())
    };
    assert_eq!(of("kueue_cohort_subtree_resource_reservations"), ["2", "4"]);
    // 3 of 4 stay in the queue that keeps them: only the rest can be lent, and only what exceeds them counts against it.
    assert_eq!(of("kueue_cohort_subtree_quota"), ["1", "3"]);
    assert_eq!(of("sluice_cohort_subtree_usage"), ["0", "2"]);
}

#[test]
fn local_queues_have_their_resources_without_those_of_cluster_queues() {
    let c = with(|config| config.cluster_queue_resource_metrics = false);
    assert_eq!(gauges(&c, "cluster_queue_resource"), BTreeMap::new());
    assert_eq!(
        gauges(&c, "local_queue_resource"),
        BTreeMap::from([
            (r#"kueue_local_queue_resource_reservation["lq", "team-a", "default", "cpu"]"#.to_owned(), 1.0),
            (r#"kueue_local_queue_resource_usage["lq", "team-a", "default", "cpu"]"#.to_owned(), 1.0),
        ])
    );
}

#[test]
fn the_scarcest_resource_says_how_much_of_a_queue_is_free() {
    let mut c = Cluster::plain();
    c.api.flavor("default", &[]);
    c.api.flavor("spot", &[]);
    let flavor = |name: &str, cpu: &str| {
        json!({"name": name, "resources": [
            {"name": "cpu", "nominalQuota": cpu},
            {"name": "memory", "nominalQuota": "1Ti"},
            {"name": "gpu", "nominalQuota": "0"},
        ]})
    };
    let groups = |flavors: Value| json!([{"coveredResources": ["cpu", "memory", "gpu"], "flavors": flavors}]);
    let two = json!({"resourceGroups": groups(json!([flavor("default", "2"), flavor("spot", "2")]))});
    c.api.cluster_queue("two-flavors", "default", "0", &two);
    c.api.cluster_queue("nothing", "default", "0", &json!({}));
    c.api.cluster_queue("borrows", "default", "1", &json!({"cohortName": "team"}));
    c.api.cluster_queue("lends", "default", "3", &json!({"cohortName": "team"}));
    let free = |c: &Cluster, queue: &str| gauges(c, "free_quota")[&format!("{FREE}[{queue:?}]")].to_string();
    c.settle();
    for (queue, now) in [("two-flavors", "1"), ("nothing", "0"), ("borrows", "1"), ("lends", "1")] {
        assert_eq!(free(&c, queue), now, "{queue}");
    }
    for queue in ["two-flavors", "borrows"] {
        c.api.local_queue("team-a", queue, queue);
        c.api.add_job(job("team-a", queue, queue, 1, "1"));
    }
    c.settle();
    // What others of the cohort use is not free either.
    for (queue, now) in [("two-flavors", "0.75"), ("borrows", "0.75"), ("lends", "0.75")] {
        assert_eq!(free(&c, queue), now, "{queue}");
    }
}

#[test]
fn only_scheduling_is_handed_out_to_be_measured_and_decides_the_same() {
    let mut c = with(|_| {});
    c.restart();
    let (mut twin, mut calls) = (c.engine.clone(), 0);
    let effects = c.engine.cycle_around(c.now, |schedule| {
        calls += 1;
        schedule();
    });
    assert_eq!((calls, &effects), (1, &twin.cycle(c.now)), "a and large are heads again");
    while c.engine.has_work() {
        c.engine.cycle(c.now);
    }
    c.engine.cycle_around(c.now, |_| panic!("no Workload is pending"));
}
