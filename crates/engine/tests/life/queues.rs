//! Stopped LocalQueues, deactivation of waiting Workloads, changing priorities (docs/reference/06-algorithm.md 6.18 and 6.19).

use serde_json::json;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

fn lq() -> ObjectRef {
    ObjectRef::namespaced(Kind::LocalQueue, "team-a", "lq")
}

#[test]
fn a_stopped_local_queue_holds_and_drains_like_its_cluster_queue() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.edit(&lq(), &json!({"spec": {"stopPolicy": "Hold"}}));
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(reported(&c.workload("b"), "QuotaReserved"), "False/Suspended: LocalQueue lq is inactive");
    let active = c.api.json(&lq()).unwrap()["status"]["conditions"][0].clone();
    assert_eq!(
        (active["status"].as_str(), active["reason"].as_str(), active["message"].as_str()),
        (Some("False"), Some("Stopped"), Some("LocalQueue is stopped"))
    );
    c.api.edit(&lq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!(reported(&c.workload("a"), "Evicted"), "True/LocalQueueStopped: The LocalQueue is stopped");
    c.api.edit(&lq(), &json!({"spec": {"stopPolicy": "None"}}));
    c.settle();
    assert!(!c.api.job("a").view.suspended && !c.api.job("b").view.suspended);
    assert_eq!(
        reported(&c.workload("a"), "Requeued"),
        "True/LocalQueueRestarted: The LocalQueue was restarted after being stopped"
    );
}

#[test]
fn a_cluster_queue_is_drained_of_what_came_by_a_local_queue_that_is_gone() {
    for again in [false, true] {
        let mut c = Cluster::plain();
        c.api.simple("3", &json!({}));
        c.api.cluster_queue("other", "default", "3", &json!({}));
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.settle();
        c.api.vanish(&lq());
        c.settle();
        if again {
            c.api.local_queue("team-a", "lq", "other");
            c.settle();
        }
        assert!(!c.api.job("a").view.suspended);
        c.api.edit(
            &ObjectRef::cluster(Kind::ClusterQueue, "cq"),
            &json!({"spec": {"stopPolicy": "HoldAndDrain"}}),
        );
        c.settle();
        assert!(c.api.job("a").view.suspended || again, "it may run in the other queue");
        assert_eq!(c.notes("EvictedDueToClusterQueueStopped").len(), 1);
    }
}

#[test]
fn a_check_is_asked_of_what_came_by_a_local_queue_that_is_gone() {
    let mut c = Cluster::plain();
    c.api.active_check("prov");
    let checks = json!({"admissionChecks": [{"name": "prov", "onFlavors": ["elsewhere"]}]});
    c.api.simple("3", &json!({"admissionChecksStrategy": checks}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.vanish(&lq());
    c.settle();
    let checks = json!({"admissionChecks": [{"name": "prov"}]});
    c.api.edit(
        &ObjectRef::cluster(Kind::ClusterQueue, "cq"),
        &json!({"spec": {"admissionChecksStrategy": checks}}),
    );
    c.settle();
    let status = c.workload("a").status.unwrap();
    assert_eq!(status.admission_checks.iter().map(|check| &*check.name).collect::<Vec<_>>(), ["prov"]);
}

#[test]
fn what_waits_can_be_deactivated_and_activated_again() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    assert_eq!(reported(&c.workload("a"), "QuotaReserved"), "False/Deactivated: The workload is deactivated");
    c.api.cluster_queue("cq", "default", "3", &json!({}));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_new_priority_class_reorders_what_waits_and_spares_what_runs() {
    let mut c = Cluster::plain();
    c.api.priority_class("low", 1);
    c.api.priority_class("high", 9);
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    for name in ["a", "b", "d"] {
        let mut view = job("team-a", name, "lq", 1, "1");
        view.workload_priority_class = Some("low".to_owned());
        c.api.add_job(view);
        c.advance(1);
    }
    assert!(!c.api.job("a").view.suspended);
    for name in ["a", "d"] {
        c.api.edit_job(name, |j| j.view.workload_priority_class = Some("high".to_owned()));
        c.settle();
    }
    assert_eq!(c.workload("a").spec.priority, Some(9), "also while it runs");
    assert_eq!(c.workload("d").spec.priority, Some(9));
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.written(Purpose::Evict), 0);
    assert!(c.notes("UpdatedWorkload").iter().all(|n| {
        ["Job/a", "Job/d"]
            .iter()
            .any(|job| n.starts_with(&format!("{job}: Updated workload priority class: team-a/")))
    }));
    c.api.finish_job("a", true);
    c.settle();
    assert!(!c.api.job("d").view.suspended, "before the older one of lower priority");
    assert!(c.api.job("b").view.suspended);
}

#[test]
fn a_raised_priority_preempts() {
    let mut c = Cluster::plain();
    c.api.priority_class("low", 1);
    c.api.priority_class("high", 9);
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    for name in ["a", "b"] {
        let mut view = job("team-a", name, "lq", 1, "1");
        view.workload_priority_class = Some("low".to_owned());
        c.api.add_job(view);
        c.settle();
    }
    c.api.edit_job("b", |j| j.view.workload_priority_class = Some("high".to_owned()));
    c.settle();
    assert!(c.api.job("a").view.suspended && !c.api.job("b").view.suspended);
    assert_eq!(condition(&c.workload("a"), "Preempted"), "True");
}

/// The jobs whose Workloads were to get quota, in that order.
fn in_order(c: &Cluster) -> Vec<&'static str> {
    let job_of = |workload: &ObjectRef| {
        ["first", "second"].into_iter().find(|job| Api::workload_ref(&c.workload(job)) == *workload)
    };
    let writes = c.writes.iter().filter(|(_, purpose)| *purpose == Purpose::ReserveQuota);
    let mut order: Vec<_> = writes.filter_map(|(workload, _)| job_of(workload)).collect();
    order.dedup();
    order
}

#[test]
fn the_head_of_a_strict_fifo_queue_keeps_its_place_while_its_writes_fail() {
    let transient = || WriteError::Transient("busy".to_owned());
    let refused = || WriteError::Refused("no".to_owned());
    for (purpose, error, cpu, order) in [
        // Why it waits could not be written: it waits on, as it does not fit.
        (Purpose::Pend, transient(), "5", &[][..]),
        (Purpose::ReserveQuota, refused(), "1", &["first", "second"][..]),
    ] {
        let mut c = Cluster::plain();
        c.api.simple("4", &json!({"queueingStrategy": "StrictFIFO"}));
        c.fail.extend([(purpose, error.clone()), (purpose, error)]);
        c.api.add_job(job("team-a", "first", "lq", 1, cpu));
        c.settle();
        c.api.add_job(job("team-a", "second", "lq", 1, "1"));
        c.settle();
        assert!(c.fail.len() < 2 && c.api.job("second").view.suspended, "{purpose:?}");
        c.advance(120);
        assert_eq!(in_order(&c), order, "{purpose:?}");
    }
}
