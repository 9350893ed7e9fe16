//! The existing metric series, and when they are added and removed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_core::{FairSharing, FairStrategy};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose};

use crate::model::build::job;
use crate::model::{Api, Cluster};

fn cluster(change: impl FnOnce(&mut EngineConfig)) -> Cluster {
    let mut config = EngineConfig {
        status_interval_ms: 0,
        cluster_queue_resource_metrics: true,
        ..EngineConfig::default()
    };
    change(&mut config);
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c
}

/// A queue of 3 cpu with two jobs that wait, one that runs.
fn busy() -> Cluster {
    let mut c = cluster(|_| {});
    c.api.simple("3", &json!({}));
    for (name, pods) in [("runs", 2), ("waits-1", 3), ("waits-2", 3)] {
        c.api.add_job(job("team-a", name, "lq", pods, "1"));
    }
    c.settle();
    c
}

fn gauges(c: &Cluster, metric: &str) -> BTreeMap<String, f64> {
    let all = c.engine.metrics_snapshot().into_iter().filter(|g| g.metric == metric);
    all.map(|g| (g.labels.join(","), g.value)).collect()
}

fn of<const N: usize>(values: [(&str, f64); N]) -> BTreeMap<String, f64> {
    values.into_iter().map(|(labels, value)| (labels.to_owned(), value)).collect()
}

/// Deletes an object that something may hold.
fn force_delete(c: &mut Cluster, object: &ObjectRef) {
    c.api.edit(object, &json!({"metadata": {"finalizers": null}}));
    c.api.delete(object);
}

fn times(c: &Cluster, metric: &str) -> usize {
    c.observed.iter().filter(|(name, _)| name == metric).count()
}

#[test]
fn series_of_a_deleted_queue_go_at_once_and_nothing_is_counted_for_it_after() {
    let mut c = busy();
    let (cq, lq) = (
        ObjectRef::cluster(Kind::ClusterQueue, "cq"),
        ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq"),
    );
    let before = c.observed.len();
    force_delete(&mut c, &cq);
    force_delete(&mut c, &lq);
    c.api.finish_job("runs", true);
    c.settle();
    assert_eq!(c.series_gone, [cq, lq]);
    let after = &c.observed[before..];
    assert!(after.iter().all(|(_, labels)| !labels.iter().any(|l| l == "cq" || l == "lq")), "{after:?}");
    let left = c.engine.metrics_snapshot();
    assert!(left.iter().all(|g| !g.labels.iter().any(|l| &**l == "cq" || &**l == "lq")), "{left:?}");
}

#[test]
fn in_a_queue_that_is_not_active_nothing_is_pending_actively() {
    let mut c = busy();
    let metric = "kueue_pending_workloads";
    // Neither has been looked at again: the heap and what is inadmissible both count.
    let all: f64 = gauges(&c, metric).values().sum();
    assert!((all - 2.0).abs() < f64::EPSILON);
    let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": "Hold"}}));
    c.api.add_job(job("team-a", "waits-3", "lq", 1, "1"));
    c.settle();
    assert_eq!(gauges(&c, metric), of([("cq,active", 0.0), ("cq,inadmissible", 3.0)]));
    assert_eq!(
        gauges(&c, "kueue_local_queue_pending_workloads"),
        of([("lq,team-a,active", 0.0), ("lq,team-a,inadmissible", 3.0)])
    );
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": null}}));
    c.api.delete_job("waits-3");
    c.settle();
    assert!((gauges(&c, metric).values().sum::<f64>() - 2.0).abs() < f64::EPSILON);
}

#[test]
fn shares_are_exact_and_those_without_end_are_no_number() {
    let strategies = vec![FairStrategy::LessThanOrEqualToFinalShare];
    let mut c = cluster(|config| config.fair_sharing = Some(FairSharing { strategies }));
    c.api.flavor("default", &[]);
    c.api.put(Kind::Cohort, json!({"metadata": {"name": "lower"}, "spec": {"parentName": "team"}}));
    c.api.cluster_queue("lends", "default", "3", &json!({"cohortName": "team"}));
    c.api.cluster_queue("borrows", "default", "0", &json!({"cohortName": "team"}));
    c.api.cluster_queue("below", "default", "0", &json!({"cohortName": "lower"}));
    c.api.local_queue("team-a", "lq", "borrows");
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let share = |c: &Cluster| gauges(c, "kueue_cluster_queue_weighted_share")["borrows,team"];
    assert!((share(&c) - 1000.0 / 3.0).abs() < 1e-9, "{}", share(&c));
    let status = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "borrows")).unwrap();
    assert_eq!(status["status"]["fairSharing"]["weightedShare"], 334);
    // A Cohort of a Cohort borrows, too: with the weight of 1 it has a third, and with that of 0.7 more.
    c.api.local_queue("team-a", "below", "below");
    c.api.add_job(job("team-a", "b", "below", 1, "1"));
    c.settle();
    let lower = ObjectRef::cluster(Kind::Cohort, "lower");
    for (weight, exact, rounded_up) in [("1", 1000.0 / 3.0, 334), ("700m", 1000.0 / 2.1, 477)] {
        c.api.edit(&lower, &json!({"spec": {"fairSharing": {"weight": weight}}}));
        c.settle();
        let shares = gauges(&c, "kueue_cohort_weighted_share");
        assert!((shares["lower"] - exact).abs() < 1e-9, "{shares:?}");
        let status = &c.api.json(&lower).unwrap()["status"];
        assert_eq!(status["fairSharing"]["weightedShare"], rounded_up);
    }
    let borrows = ObjectRef::cluster(Kind::ClusterQueue, "borrows");
    c.api.edit(&borrows, &json!({"spec": {"fairSharing": {"weight": "0"}}}));
    c.settle();
    assert!(share(&c).is_nan(), "{}", share(&c));
}

#[test]
fn a_cohort_whose_object_is_deleted_has_no_series_until_it_is_made_again() {
    let mut c = cluster(|_| {});
    c.api.flavor("default", &[]);
    let cohort = json!({"metadata": {"name": "team"}, "spec": {}});
    c.api.put(Kind::Cohort, cohort.clone());
    c.api.cluster_queue("cq", "default", "3", &json!({"cohortName": "team"}));
    c.api.cluster_queue("other", "default", "3", &json!({"cohortName": "implicit"}));
    c.api.local_queue("team-a", "lq", "cq");
    c.settle();
    let names = |c: &Cluster| {
        let all = c.engine.metrics_snapshot().into_iter().filter(|g| g.metric.contains("cohort_subtree"));
        let mut names: Vec<_> = all.map(|g| g.labels[0].to_string()).collect();
        names.dedup();
        names
    };
    assert_eq!(names(&c), ["implicit", "team"]);
    let reference = ObjectRef::cluster(Kind::Cohort, "team");
    force_delete(&mut c, &reference);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert_eq!((names(&c), &c.series_gone), (vec!["implicit".to_owned()], &vec![reference]));
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(times(&c, "kueue_cohort_subtree_admitted_workloads_total"), 0);
    c.api.put(Kind::Cohort, cohort);
    c.settle();
    assert_eq!(names(&c), ["implicit", "team"]);
}

#[test]
fn what_another_client_evicts_and_finishes_is_measured() {
    let mut c = cluster(|config| config.scheduling = false);
    c.api.simple("3", &json!({}));
    let admission = json!({
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1}],
    });
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": "",
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let template = crate::model::build::template("1");
    let workload = c.api.put(
        Kind::Workload,
        json!({"metadata": {"name": "w", "namespace": "team-a"},
               "spec": {"queueName": "lq", "active": true,
                        "podSets": [{"name": "main", "count": 1, "template": template}]}}),
    );
    let set = |c: &mut Cluster, conditions: serde_json::Value, admission: Option<&serde_json::Value>| {
        c.api.edit_status(&workload, |s| {
            *s = json!({"conditions": conditions});
            if let Some(admission) = admission {
                s["admission"] = admission.clone();
            }
        });
        c.settle();
    };
    let reserved = condition("QuotaReserved", "True", "QuotaReserved");
    let admitted = condition("Admitted", "True", "Admitted");
    let evicted = condition("Evicted", "True", "Preempted");
    set(&mut c, json!([reserved, admitted]), Some(&admission));
    set(&mut c, json!([reserved, admitted, evicted]), Some(&admission));
    assert_eq!(times(&c, "kueue_workload_eviction_latency_seconds"), 0);
    set(&mut c, json!([condition("QuotaReserved", "False", "Pending"), evicted]), None);
    let latency =
        ("kueue_workload_eviction_latency_seconds".to_owned(), vec!["cq".to_owned(), "Preempted".to_owned()]);
    assert!(c.observed.contains(&latency), "{:?}", c.observed);
    set(&mut c, json!([reserved, admitted]), Some(&admission));
    set(&mut c, json!([reserved, admitted, condition("Finished", "True", "Succeeded")]), Some(&admission));
    for metric in ["execution_time_seconds", "finished_workloads_total"] {
        assert_eq!(times(&c, &format!("kueue_{metric}")), 1, "{metric}");
        assert_eq!(times(&c, &format!("kueue_local_queue_{metric}")), 1, "{metric}");
    }
    assert_eq!(times(&c, "kueue_workload_eviction_latency_seconds"), 1);
}

#[test]
fn our_own_eviction_and_end_are_measured_once() {
    let mut c = busy();
    let workload = Api::workload_ref(&c.workload("runs"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    assert_eq!(times(&c, "kueue_workload_eviction_latency_seconds"), 1);
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    let running: Vec<_> =
        ["runs", "waits-1", "waits-2"].into_iter().filter(|job| !c.api.job(job).view.suspended).collect();
    c.api.finish_job(running[0], true);
    c.settle();
    assert_eq!(times(&c, "kueue_execution_time_seconds"), 1);
    assert_eq!(times(&c, "kueue_local_queue_execution_time_seconds"), 1);
}

#[test]
fn the_wait_for_checks_is_measured_only_where_there_are_checks() {
    let metric = "kueue_admission_checks_wait_time_seconds";
    let c = busy();
    assert_eq!((times(&c, "kueue_admitted_workloads_total"), times(&c, metric)), (1, 0));
    assert_eq!(times(&c, "kueue_local_queue_admission_checks_wait_time_seconds"), 0);
    let mut c = cluster(|_| {});
    c.api.active_check("prov");
    c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit_status(&workload, |s| s["admissionChecks"][0]["state"] = json!("Ready"));
    c.settle();
    assert_eq!(times(&c, metric), 1);
    assert_eq!(times(&c, "kueue_local_queue_admission_checks_wait_time_seconds"), 1);
}

#[test]
fn a_new_queue_has_its_zeros_from_the_beginning() {
    let mut c = cluster(|_| {});
    c.api.simple("3", &json!({}));
    c.settle();
    assert_eq!(gauges(&c, "kueue_cluster_queue_resource_pending"), of([("cq,cpu", 0.0)]));
    assert_eq!(gauges(&c, "kueue_finished_workloads"), of([("cq", 0.0)]));
    assert_eq!(gauges(&c, "kueue_local_queue_finished_workloads"), of([("lq,team-a", 0.0)]));
}

#[test]
fn the_share_of_a_cohort_leaves_its_status_with_fair_sharing() {
    let strategies = vec![FairStrategy::LessThanOrEqualToFinalShare];
    let mut c = cluster(|config| config.fair_sharing = Some(FairSharing { strategies }));
    c.api.flavor("default", &[]);
    let team = c.api.put(Kind::Cohort, json!({"metadata": {"name": "team"}, "spec": {}}));
    c.api.cluster_queue("cq", "default", "3", &json!({"cohortName": "team"}));
    c.settle();
    let share = |c: &Cluster| c.api.json(&team).unwrap()["status"]["fairSharing"].clone();
    let status = (team.clone(), Purpose::QueueStatus);
    let writes = |c: &Cluster| c.writes.iter().filter(|write| **write == status).count();
    assert_eq!((share(&c)["weightedShare"].clone(), writes(&c)), (json!(0), 1));
    c.config.fair_sharing = None;
    for restart in ["first", "second"] {
        c.restart();
        c.settle();
        c.advance(60);
        assert_eq!((share(&c), writes(&c)), (Value::Null, 2), "{restart}");
    }
}

#[test]
fn without_their_gate_cohorts_have_no_series() {
    for (on, counted) in [(true, 1), (false, 0)] {
        let mut c = cluster(|config| config.gates = config.gates.with(Gate::MetricsForCohorts, on));
        c.api.simple("3", &json!({"cohortName": "team"}));
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.settle();
        assert!(!c.api.job("a").view.suspended);
        assert_eq!(times(&c, "kueue_cohort_subtree_admitted_workloads_total"), counted);
        assert_eq!(gauges(&c, "kueue_cohort_info").len(), counted);
    }
}

#[test]
fn a_wait_is_measured_from_the_last_of_several_preemptions() {
    let mut c = cluster(|_| {});
    c.api.priority_class("high", 10);
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.add_job(job("team-a", "low", "lq", 1, "1"));
    c.settle();
    for name in ["first", "second"] {
        c.advance(3_600);
        let mut high = job("team-a", name, "lq", 1, "1");
        high.workload_priority_class = Some("high".to_owned());
        c.api.add_job(high);
        c.advance(5);
        assert!(c.api.job("low").view.suspended, "{name}");
        c.api.finish_job(name, true);
        c.advance(5);
        assert!(!c.api.job("low").view.suspended, "{name}");
    }
    for metric in ["quota_reserved_wait_time_seconds", "admission_wait_time_seconds"] {
        for metric in [format!("kueue_{metric}"), format!("kueue_local_queue_{metric}")] {
            let seen = c.observed.iter().zip(&c.values).filter(|((name, _), _)| *name == metric);
            let waits: Vec<_> = seen.map(|(_, value)| *value).collect();
            assert!(waits.len() == 5 && waits.iter().all(|wait| *wait < 60.0), "{metric}: {waits:?}");
        }
    }
}
