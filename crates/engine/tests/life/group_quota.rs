//! Pod groups never run with more than the quota that they hold.

use serde_json::json;
use sluice_api::v1beta2::Workload;
use sluice_engine::{Kind, ObjectRef};

use crate::contract::submit;
use crate::model::pods::{member, pod};
use crate::model::{Cluster, condition, reported};
use crate::plain_pods::{add_high, announced, bed};
use crate::pod_groups::{add, free, run, running, workload};

/// The Workload of the group.
fn of_group(c: &Cluster) -> Workload {
    c.api.workloads().into_iter().find(|w| w.metadata.name.as_deref() == Some("g")).unwrap()
}

/// Their user takes pods that ended out of the way.
fn take_out(c: &mut Cluster, names: &[&str]) {
    for name in names {
        c.api.edit_pod(name, &json!({"metadata": {"finalizers": null}}));
        c.api.delete_queued_pod(name);
    }
    c.settle();
}

/// A group of three of which two pods ended well, and another pod that runs on their quota.
fn with_two_done() -> Cluster {
    let mut c = running(3);
    c.api.run_pod("p0", "Succeeded");
    c.api.run_pod("p1", "Succeeded");
    c.settle();
    c.api.add_pod(pod("other", "lq", "2"));
    c.settle();
    assert_eq!(free(&c), ["other", "p2"]);
    c
}

#[test]
fn pods_in_the_place_of_succeeded_ones_run_on_the_quota_that_is_left() {
    let mut c = with_two_done();
    take_out(&mut c, &["p0", "p1"]);
    add(&mut c, "q", 2, 3);
    assert_eq!(free(&c), ["other", "p2"]);
    // A manager that starts again knows it, too.
    c.restart();
    c.settle();
    assert_eq!(free(&c), ["other", "p2"]);
    // One after the other they run on what is left.
    for (done, next) in [("p2", "q0"), ("q0", "q1")] {
        c.api.run_pod(done, "Succeeded");
        c.settle();
        assert_eq!(free(&c), ["other", next]);
    }
    c.api.run_pod("q1", "Succeeded");
    c.settle();
    assert_eq!(condition(&of_group(&c), "Finished"), "True");
}

#[test]
fn a_group_whose_pods_run_again_after_their_quota_was_given_back_is_evicted() {
    let mut c = with_two_done();
    take_out(&mut c, &["p0", "p1"]);
    add(&mut c, "q", 2, 3);
    c.api.free("q0");
    c.settle();
    assert!(reported(&of_group(&c), "Evicted").starts_with("True/OutOfSync: 2 pods of \"main\" run"));
    assert_eq!(free(&c), ["other"]);
}

#[test]
fn a_pod_that_failed_is_replaced_after_others_succeeded() {
    let mut c = with_two_done();
    c.api.run_pod("p2", "Failed");
    c.settle();
    assert_eq!(free(&c), ["other"]);
    add(&mut c, "r", 1, 3);
    assert_eq!(free(&c), ["other", "r0"]);
    c.api.run_pod("r0", "Succeeded");
    c.settle();
    assert_eq!(condition(&of_group(&c), "Finished"), "True");
}

#[test]
fn a_pod_that_is_ungated_by_hand_after_its_group_finished_is_stopped() {
    let mut c = bed("2");
    add(&mut c, "p", 1, 1);
    run(&mut c, "Succeeded");
    assert_eq!(condition(&workload(&c), "Finished"), "True");
    add(&mut c, "q", 1, 1);
    if c.api.pod("q0").is_some() {
        assert!(c.api.is_gated("q0"));
        c.api.free("q0");
    }
    c.settle();
    assert!(free(&c).is_empty());
}

#[test]
fn a_group_continues_while_pods_of_it_may_run_whatever_number_they_say() {
    for phase in ["Pending", "Running"] {
        let mut c = bed("3");
        add(&mut c, "p", 3, 3);
        run(&mut c, phase);
        c.api.run_pod("p0", "Succeeded");
        c.settle();
        let one = json!({"metadata": {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "1"}}});
        for name in ["p0", "p1", "p2"] {
            c.api.edit_pod(name, &one);
        }
        c.settle();
        assert_eq!(condition(&of_group(&c), "Finished"), "", "{phase}");
        // It can be evicted like any other.
        c.pods_vanish = false;
        let workload = ObjectRef::namespaced(Kind::Workload, "team-a", "g");
        c.api.edit(&workload, &json!({"spec": {"active": false}}));
        c.settle();
        for name in ["p1", "p2"] {
            assert!(announced(&c, name).starts_with("WorkloadEvictedDueToDeactivated"), "{phase} {name}");
        }
        c.api.add_pod(pod("other", "lq", "3"));
        c.settle();
        assert!(c.api.is_gated("other"), "{phase}: they terminate");
        c.pods_vanish = true;
        c.settle();
        assert!(c.api.is_free("other"), "{phase}");
    }
}

#[test]
fn a_pod_that_terminates_in_its_init_containers_keeps_its_quota() {
    let mut c = bed("2");
    add(&mut c, "p", 2, 2);
    // They have nodes, and none of their containers was started.
    run(&mut c, "Pending");
    c.pods_vanish = false;
    add_high(&mut c, "2");
    assert!(announced(&c, "p1").starts_with("WorkloadEvictedDueToPreempted: "));
    assert!(c.api.is_gated("high"));
    c.advance(29);
    assert!(c.api.is_gated("high"));
    c.advance(2);
    assert!(c.api.is_free("high"), "their grace is over");
}

#[test]
fn a_job_does_not_take_over_the_workload_of_a_group() {
    let mut c = running(2);
    submit(&mut c, "thief", "lq", 2, |view| view.prebuilt_workload = Some("g".to_owned()));
    let owners = of_group(&c).metadata.owner_references.unwrap();
    assert!(owners.iter().all(|owner| owner.kind == "Pod"), "{owners:?}");
    assert!(c.api.job("thief").view.suspended);
    assert!(c.notes("ErrWorkloadCompose").iter().any(|note| note.ends_with("belongs to another job")));
    // Its pods are made again in it as before.
    c.api.run_pod("p0", "Failed");
    c.settle();
    c.api.add_pod(member("r", "g", 2, "main"));
    c.settle();
    assert_eq!(free(&c), ["p1", "r"]);
}

/// A user made them; they start when the group is admitted again.
#[test]
fn pods_of_an_evicted_group_that_wait_are_not_hurried() {
    let mut c = bed("2");
    c.config.longest_termination = Some(jiff::SignedDuration::from_hours(1));
    c.restart();
    add(&mut c, "p", 2, 2);
    run(&mut c, "Running");
    // Of a role that was not admitted.
    c.api.add_pod(member("odd", "g", 2, "other"));
    c.settle();
    c.pods_vanish = false;
    let of = ObjectRef::namespaced(Kind::Workload, "team-a", "g");
    c.api.edit(&of, &json!({"spec": {"active": false}}));
    c.settle();
    for name in ["p0", "p1"] {
        c.api.edit_pod(name, &json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}));
    }
    assert!(c.api.is_gated("odd"));
    c.advance(3_700);
    let hurried = |name: &str| {
        let uid = c.api.pod(name).unwrap()["metadata"]["uid"].as_str().unwrap();
        c.api.hurried.contains(uid)
    };
    assert_eq!(["p0", "p1", "odd"].map(hurried), [true, true, false]);
}
