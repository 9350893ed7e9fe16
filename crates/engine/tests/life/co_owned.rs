//! What other clients write into the status of a Workload under their own field manager: an apply without it does not remove it.

use serde_json::json;
use sluice_engine::Purpose;

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

/// A Workload of two pods in a queue of so much.
fn cluster(cpu: &str) -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple(cpu, &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    c
}

/// Another client sets a target of deactivation.
fn target(c: &mut Cluster, reason: &str, message: &str) {
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit_status(&workload, |status| {
        let conditions = status["conditions"].as_array_mut().unwrap();
        conditions.retain(|condition| condition["type"] != "DeactivationTarget");
        conditions.push(json!({"type": "DeactivationTarget", "status": "True", "reason": reason,
            "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}));
    });
    c.settle();
}

#[test]
fn a_target_of_deactivation_that_another_manager_owns_evicts_once() {
    let mut c = cluster("2");
    c.api.co_owned = vec!["DeactivationTarget"];
    let workload = Api::workload_ref(&c.workload("a"));
    let say = |c: &mut Cluster, message: &str| target(c, "Maintenance", message);
    say(&mut c, "the rack is moved");
    let w = c.workload("a");
    let evicted = "True/DeactivatedDueToMaintenance: The workload is deactivated due to the rack is moved";
    assert_eq!((w.spec.active, reported(&w, "Evicted").as_str()), (Some(false), evicted));
    assert_eq!(condition(&w, "DeactivationTarget"), "True", "it is not ours alone");
    assert_eq!(w.status.unwrap().scheduling_stats.unwrap().evictions[0].count, 1);
    let written = c.writes.len();
    for message in ["today", "tomorrow", "the day after"] {
        say(&mut c, message);
        c.advance(60);
    }
    assert_eq!(c.writes.len(), written, "{:?}", &c.writes[written..]);

    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    let w = c.workload("a");
    assert_eq!((condition(&w, "DeactivationTarget").as_str(), w.spec.active), ("", Some(true)));
    assert!(!c.api.job("a").view.suspended, "its user wants it to run");
    say(&mut c, "again");
    assert!(c.api.job("a").view.suspended);
    assert_eq!(c.workload("a").status.unwrap().scheduling_stats.unwrap().evictions[0].count, 2);
}

#[test]
fn a_target_that_is_set_while_the_workload_is_paused_ends_with_the_pause() {
    for co_owned in [Vec::new(), vec!["DeactivationTarget"]] {
        let mut c = cluster("2");
        c.api.co_owned.clone_from(&co_owned);
        let workload = Api::workload_ref(&c.workload("a"));
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
        c.settle();
        assert_eq!(reported(&c.workload("a"), "Evicted"), "True/Deactivated: The workload is deactivated");
        for why in ["Maintenance", "Repair"] {
            target(&mut c, why, "the rack is moved");
            assert_eq!(
                reported(&c.workload("a"), "Evicted"),
                format!("True/DeactivatedDueTo{why}: The workload is deactivated due to the rack is moved"),
            );
            let written = c.writes.len();
            c.advance(600);
            assert_eq!(c.writes.len(), written, "{:?}", &c.writes[written..]);
        }
        c.api.edit(&workload, &json!({"spec": {"active": true}}));
        c.settle();
        let w = c.workload("a");
        assert_eq!((condition(&w, "DeactivationTarget").as_str(), w.spec.active), ("", Some(true)));
        assert!(!c.api.job("a").view.suspended, "{co_owned:?}");
    }
}

#[test]
fn pod_sets_that_another_client_reports_as_reclaimable_are_taken_off_once_a_minute() {
    for name in ["ghost", "main"] {
        let mut c = cluster("1");
        c.api.co_owned = vec!["reclaimablePods"];
        let workload = Api::workload_ref(&c.workload("a"));
        let add = |c: &mut Cluster| {
            c.api.edit_status(&workload, |s| s["reclaimablePods"] = json!([{"name": name, "count": 1}]));
            c.settle();
        };
        let left = |c: &Cluster| c.workload("a").status.unwrap().reclaimable_pods.len();
        add(&mut c);
        assert_eq!((left(&c), c.written(Purpose::Reclaim)), (0, 1));
        for _ in 0..3 {
            c.advance(10);
            add(&mut c);
        }
        assert_eq!((left(&c), c.written(Purpose::Reclaim)), (1, 1));
        c.advance(31);
        assert_eq!((left(&c), c.written(Purpose::Reclaim)), (0, 2));
        assert_eq!(
            c.written(Purpose::ReserveQuota),
            0,
            "{name}: there is room for one pod, and two are to run"
        );
    }
}
