//! No Workload is evicted, and no capacity is reserved, for a job that its queue cannot admit again.

use serde_json::{Value, json};
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::bed::Bed;

/// The page's ClusterQueue with two LocalQueues: `high` came through `x`, `low` through `y`.
fn two_ways() -> Bed {
    let mut bed = Bed::new();
    bed.page_queue(64);
    for name in ["x", "y"] {
        bed.c.api.local_queue("team-a", name, "q");
    }
    bed.high_and_low(["x", "y"]);
    bed
}

/// The same with a ClusterQueue each.
fn two_queues(reclaim: &Value) -> Bed {
    let mut bed = Bed::new();
    bed.queue("x", 32, reclaim, &json!({}));
    bed.queue("y", 32, &json!({"enable": true}), &json!({}));
    bed.high_and_low(["x", "y"]);
    bed
}

fn local(name: &str) -> ObjectRef {
    ObjectRef::namespaced(Kind::LocalQueue, "team-a", name)
}

fn stop(bed: &mut Bed, queue: &ObjectRef, policy: &str) {
    bed.c.api.edit(queue, &json!({"spec": {"stopPolicy": policy}}));
}

/// Both stay, and the event says why.
fn both_stay(bed: &Bed, why: &str) {
    assert!(bed.runs("high") && bed.runs("low"), "{why}");
    assert!(bed.evictions("high").is_empty() && bed.evictions("low").is_empty(), "{why}");
    assert_eq!(bed.listed("high"), ["a-0", "a-1", "a-2", "a-3"], "{why}");
    let note = format!(
        "Workload/jobset-high: Pods are on unhealthy node(s) a-0, a-1, a-2, a-3: it could not be admitted again: {why}"
    );
    assert_eq!(bed.c.notes("HotswapNotPossible"), [note]);
}

#[test]
fn one_whose_local_queue_is_stopped_stays_until_it_is_open_again() {
    let mut bed = two_ways();
    stop(&mut bed, &local("x"), "Hold");
    bed.fail(&["a"]);
    bed.pass(60);
    both_stay(&bed, "LocalQueue x is inactive");

    stop(&mut bed, &local("x"), "None");
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "c"], "nothing but the queue has changed");
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
}

#[test]
fn one_whose_local_queue_is_gone_stays() {
    let mut bed = two_ways();
    bed.c.api.delete(&local("x"));
    bed.fail(&["a"]);
    bed.pass(60);
    both_stay(&bed, "LocalQueue x doesn't exist");
}

#[test]
fn one_whose_cluster_queue_is_inactive_stays_until_it_is_active_again() {
    let mut bed = two_queues(&json!({"enable": true}));
    let queue = ObjectRef::cluster(Kind::ClusterQueue, "x");
    stop(&mut bed, &queue, "Hold");
    bed.fail(&["a"]);
    bed.pass(60);
    both_stay(&bed, "ClusterQueue x is inactive");

    stop(&mut bed, &queue, "None");
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "c"]);
}

#[test]
fn one_whose_admission_is_gated_stays() {
    let mut bed = two_ways();
    let workload = crate::model::Api::workload_ref(&bed.c.workload("high"));
    let gate =
        json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}}});
    bed.c.api.edit(&workload, &gate);
    bed.fail(&["a"]);
    bed.pass(60);
    both_stay(&bed, "Admission is gated by: example.com/gate");
}

#[test]
fn an_evicted_one_whose_queue_stops_meanwhile_keeps_nothing_until_it_is_open_again() {
    let mut bed = two_ways();
    bed.fail(&["a"]);
    bed.c.advance(31);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    stop(&mut bed, &local("x"), "Hold");
    bed.pass(60);
    assert!(!bed.runs("high") && bed.runs("low"), "{}", bed.reported("low", "QuotaReserved"));
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)], "once");

    stop(&mut bed, &local("x"), "None");
    bed.pass(3);
    assert!(bed.runs("high") && !bed.runs("low"), "its turn has come");
}

#[test]
fn one_that_its_quota_would_not_hold_again_stays() {
    for more in [false, true] {
        let reclaim = json!({"enable": true, "reclaimMoreThanNominalQuota": more});
        let mut bed = two_queues(&reclaim);
        bed.queue("x", 16, &reclaim, &json!({}));
        bed.fail(&["a"]);
        bed.pass(60);
        both_stay(&bed, "its ClusterQueue no longer has quota for it");
        bed.queue("x", 32, &reclaim, &json!({}));
        bed.pass(3);
        assert_eq!(bed.pools_of("high"), ["b", "c"]);
    }
}

#[test]
fn a_spare_is_of_no_use_to_one_that_its_quota_would_not_hold_again() {
    let reclaim = json!({"enable": true});
    let mut bed = two_queues(&reclaim);
    bed.pools(&["e"], 4);
    bed.queue("x", 16, &reclaim, &json!({}));
    bed.fail(&["a"]);
    bed.pass(60);
    both_stay(&bed, "its ClusterQueue no longer has quota for it");
}

#[test]
fn an_evicted_one_keeps_nothing_that_its_quota_could_never_hold() {
    let reclaim = json!({"enable": true});
    let mut bed = two_queues(&reclaim);
    bed.fail(&["a"]);
    bed.c.advance(31);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    bed.queue("x", 16, &reclaim, &json!({}));
    bed.pass(60);
    assert!(!bed.runs("high") && bed.runs("low"), "{}", bed.reported("low", "QuotaReserved"));
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)], "once");
}

/// Another job of the queue has what would be left of its quota.
#[test]
fn one_whose_quota_others_would_have_stays() {
    let reclaim = json!({"enable": true, "reclaimMoreThanNominalQuota": true});
    let mut bed = two_queues(&reclaim);
    bed.queue("x", 48, &reclaim, &json!({}));
    bed.pools(&["e"], 4);
    bed.jobset("other", "x", "high", 1);
    bed.pass(2);
    assert!(bed.runs("other"));
    bed.queue("x", 32, &reclaim, &json!({}));
    bed.fail(&["a"]);
    bed.pass(60);
    both_stay(&bed, "its ClusterQueue no longer has quota for it");
    bed.c.api.finish_job("other", true);
    for (_, _, pod) in bed.pods().into_iter().filter(|(job, _, _)| job == "other") {
        bed.c.api.delete(&pod);
    }
    bed.pass(3);
    assert_eq!(bed.pools_of("high"), ["b", "e"]);
    assert!(bed.runs("low"));
}

#[test]
fn pods_that_are_over_need_neither_quota_nor_nodes() {
    let mut bed = Bed::new();
    bed.queue("x", 32, &json!({"enable": true}), &json!({}));
    bed.queue("y", 16, &json!({"enable": true}), &json!({}));
    bed.pools(&["a", "b", "c"], 4);
    bed.jobset("high", "x", "high", 2);
    bed.settle();
    bed.jobset("low", "y", "low", 1);
    bed.pass(2);
    // Half of it is done, and another job has what that gave back.
    bed.c.api.edit_job("high", |job| job.view.reclaimable = vec![("slice".to_owned(), 4)]);
    for (_, _, pod) in bed.pods().into_iter().filter(|(_, node, _)| node.starts_with("b-")) {
        bed.c.api.edit_status(&pod, |status| status["phase"] = json!("Succeeded"));
        bed.c.api.delete(&pod);
    }
    bed.settle();
    bed.jobset("other", "x", "high", 1);
    bed.pass(2);
    assert_eq!((bed.pools_of("high"), bed.pools_of("other")), (vec!["a".to_owned()], vec!["b".to_owned()]));
    bed.fail(&["a"]);
    bed.pass(40);
    assert_eq!(bed.evictions("high"), [("NodeFailures".to_owned(), 1)]);
    assert_eq!(bed.evictions("low"), [("Preempted".to_owned(), 1)]);
    assert!(bed.runs("high") && bed.runs("other"), "{}", bed.reported("high", "QuotaReserved"));
}

#[test]
fn a_list_of_lost_nodes_that_cannot_be_written_is_retried_less_and_less_often_and_reported() {
    let mut bed = two_ways();
    let refused = WriteError::Refused("no such luck".to_owned());
    bed.c.refuse = Some((Purpose::UnhealthyNodes, refused));
    stop(&mut bed, &local("x"), "Hold");
    bed.fail(&["a"]);
    bed.pass(3600);
    assert!((1..=20).contains(&bed.c.refused), "{}", bed.c.refused);
    assert_eq!(bed.c.notes("FailedUpdate").len(), 1);
}
