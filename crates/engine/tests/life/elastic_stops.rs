//! Elastic jobs that shrink, stop, or exceed their run time at the wrong moment (docs/reference/06-algorithm.md 6.16, 6.19 and 6.26).

use serde_json::json;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::elastic::{add, free, running, scale, slice, slices, used};
use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};
use crate::readiness::wait;

fn stop_policy(c: &mut Cluster, policy: &str) {
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": policy}}));
    c.settle();
}

/// A queue with a check, in which nothing runs yet.
fn checked(cpu: &str) -> Cluster {
    let checks = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "look"}]}});
    let mut c = Cluster::plain();
    c.api.active_check("look");
    c.api.simple(cpu, &checks);
    c
}

fn answer(c: &mut Cluster, count: i32, state: &str) {
    let reference = Api::workload_ref(&slice(c, count));
    c.api.edit_status(&reference, |status| status["admissionChecks"][0]["state"] = json!(state));
    c.settle();
    c.advance(1);
}

#[test]
fn a_job_that_shrinks_below_what_has_ended_gives_back_less_first_and_can_be_stopped() {
    let mut c = running("10", &json!({}));
    scale(&mut c, 10);
    c.api.edit_job("a", |job| job.view.reclaimable = vec![(job.view.pod_sets[0].name.clone(), 6)]);
    c.settle();
    assert_eq!(used(&c), "4");
    // Three run on of those four: six have ended, and one is let end.
    let before = c.writes.len();
    c.api.edit_job("a", |job| job.view.reclaimable.clear());
    scale(&mut c, 3);
    let order: Vec<_> = c.writes[before..].iter().map(|(_, purpose)| *purpose).collect();
    let first = |wanted: Purpose| order.iter().position(|purpose| *purpose == wanted).unwrap();
    assert!(first(Purpose::Reclaim) < first(Purpose::ResizeSlice), "{order:?}");
    let now = slice(&c, 3);
    assert!(now.status.as_ref().unwrap().reclaimable_pods.is_empty(), "{:?}", now.status);
    assert_eq!(used(&c), "3");
    stop_policy(&mut c, "HoldAndDrain");
    assert!(c.api.job("a").view.suspended);
    assert_eq!(used(&c), "0");
}

#[test]
fn a_resize_that_is_refused_holds_up_no_stop() {
    let mut c = running("10", &json!({}));
    c.refuse = Some((Purpose::ResizeSlice, WriteError::Refused("no".to_owned())));
    stop_policy(&mut c, "HoldAndDrain");
    scale(&mut c, 2);
    c.advance(600);
    assert!(c.api.job("a").view.suspended);
    assert_eq!((used(&c).as_str(), c.api.job("a").view.pod_sets[0].count), ("0", 2));
}

#[test]
fn a_job_that_grew_and_was_preempted_has_the_time_left_that_it_did_not_run() {
    let mut c = Cluster::plain();
    c.api.simple("5", &json!({}));
    add(&mut c, "a", 3);
    c.api.edit_job("a", |job| job.view.maximum_execution_time_seconds = Some(3_600));
    c.settle();
    c.advance(600);
    scale(&mut c, 5);
    assert_eq!(slices(&c), ["3 WorkloadSliceReplaced", "5 runs"]);
    let ran = |c: &Cluster| slice(c, 5).status.unwrap().accumulated_past_execution_time_seconds;
    assert!((600..=602).contains(&ran(&c).unwrap()), "{:?}", ran(&c));
    c.advance(600);
    stop_policy(&mut c, "HoldAndDrain");
    c.advance(20_000);
    stop_policy(&mut c, "None");
    c.advance(1);
    assert!(!c.api.job("a").view.suspended, "{}", reported(&slice(&c, 5), "Evicted"));
    assert!((1_200..=1_210).contains(&ran(&c).unwrap()), "{:?}", ran(&c));
    // After it ran too long it may run again as long as any other that is activated.
    c.advance(3_000);
    assert!(c.api.job("a").view.suspended);
    let deactivated = Api::workload_ref(&slice(&c, 5));
    c.api.edit(&deactivated, &json!({"spec": {"active": true}}));
    c.settle();
    c.advance(60);
    assert!(!c.api.job("a").view.suspended, "{}", reported(&slice(&c, 5), "Evicted"));
}

#[test]
fn the_time_for_which_a_slice_waits_for_its_checks_is_time_of_the_one_before() {
    let mut c = checked("5");
    add(&mut c, "a", 3);
    c.api.edit_job("a", |job| job.view.maximum_execution_time_seconds = Some(3_600));
    c.settle();
    answer(&mut c, 3, "Ready");
    c.advance(600);
    scale(&mut c, 5);
    c.advance(900);
    answer(&mut c, 5, "Ready");
    assert_eq!(slices(&c), ["3 WorkloadSliceReplaced", "5 runs"]);
    let ran = slice(&c, 5).status.unwrap().accumulated_past_execution_time_seconds.unwrap();
    assert!((1_500..=1_510).contains(&ran), "{ran}");
}

#[test]
fn every_slice_that_ends_is_counted_and_all_the_time_that_they_ran_is_measured_once() {
    for (longest, measured) in [(None, 2), (Some(3_600), 1)] {
        let mut c = Cluster::plain();
        c.api.simple("5", &json!({}));
        add(&mut c, "a", 3);
        c.api.edit_job("a", |job| job.view.maximum_execution_time_seconds = longest);
        c.settle();
        c.advance(600);
        scale(&mut c, 5);
        c.advance(600);
        c.api.finish_job("a", true);
        c.settle();
        for of in ["kueue", "kueue_local_queue"] {
            let values = |metric: &str| {
                let metric = format!("{of}_{metric}");
                let seen = c.observed.iter().zip(&c.values).filter(|((name, _), _)| *name == metric);
                seen.map(|(_, value)| *value).collect::<Vec<_>>()
            };
            assert_eq!(values("finished_workloads_total"), [1.0, 1.0], "{longest:?}");
            let ran = values("execution_time_seconds");
            let total: f64 = ran.iter().sum();
            assert!((1_195.0..=1_210.0).contains(&total), "{longest:?}: {ran:?}");
            assert_eq!(ran.len(), measured, "{longest:?}");
        }
    }
}

#[test]
fn a_job_that_shrinks_while_it_waits_for_a_check_starts_with_fewer_pods() {
    let mut c = checked("5");
    add(&mut c, "a", 3);
    c.settle();
    scale(&mut c, 2);
    assert_eq!(slices(&c), ["2 reserved"]);
    answer(&mut c, 2, "Ready");
    // Its controller is asked first whether it has pods: it was changed while it was suspended.
    c.advance(5);
    assert!(c.written(Purpose::AskController) <= 1, "{}", c.written(Purpose::AskController));
    assert_eq!((slices(&c), free(&c).len()), (vec!["2 runs".to_owned()], 2));
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_job_that_is_stopped_does_not_continue_by_the_slice_that_has_quota_already() {
    let mut c = checked("9");
    add(&mut c, "a", 3);
    c.settle();
    answer(&mut c, 3, "Ready");
    scale(&mut c, 5);
    assert_eq!(slices(&c), ["3 runs", "5 reserved"]);
    let first = Api::workload_ref(&slice(&c, 3));
    c.api.edit(&first, &json!({"spec": {"active": false}}));
    c.settle();
    c.advance(1);
    assert!(c.api.job("a").view.suspended);
    assert_eq!(slices(&c), ["5 waits", "5 OutOfSync"]);
    assert_eq!(used(&c), "0");
    c.advance(600);
    assert!(c.api.job("a").view.suspended);
    c.api.edit(&first, &json!({"spec": {"active": true}}));
    c.settle();
    assert_eq!(slices(&c)[0], "5 reserved");
}

#[test]
fn the_approval_of_a_larger_slice_does_not_start_a_job_that_was_stopped_meanwhile() {
    let mut c = checked("9");
    add(&mut c, "a", 3);
    c.settle();
    answer(&mut c, 3, "Ready");
    scale(&mut c, 5);
    c.slow = Some(Purpose::StopJob);
    let first = Api::workload_ref(&slice(&c, 3));
    c.api.edit(&first, &json!({"spec": {"active": false}}));
    c.settle();
    let next = Api::workload_ref(&slice(&c, 5));
    c.api.edit_status(&next, |status| status["admissionChecks"][0]["state"] = json!("Ready"));
    c.settle();
    c.release();
    c.advance(600);
    assert!(c.api.job("a").view.suspended);
    assert_eq!(used(&c), "0");
}

#[test]
fn pods_that_run_are_ready_while_more_of_their_job_wait() {
    for block in [false, true] {
        let mut c = wait(|config| config.block_admission = block);
        c.api.simple("5", &json!({}));
        add(&mut c, "a", 3);
        c.settle();
        let waits = reported(&slice(&c, 3), "PodsReady");
        assert!(waits.starts_with("False/WaitForStart"), "{waits}");
        scale(&mut c, 9);
        c.api.edit_job("a", |job| job.view.ready = 3);
        c.settle();
        let ready = reported(&slice(&c, 3), "PodsReady");
        assert!(ready.starts_with("True/Started"), "{ready}");
        c.api.add_job(job("team-a", "b", "lq", 2, "1"));
        c.settle();
        assert!(!c.api.job("b").view.suspended, "others are admitted");
        c.api.finish_job("b", true);
        c.advance(1_000);
        assert_eq!(condition(&slice(&c, 3), "Evicted"), "");
        assert!(!c.api.job("a").view.suspended);
    }
}

#[test]
fn a_growing_job_whose_pods_do_not_get_ready_is_put_back_in_time() {
    let mut c = wait(|_| {});
    c.api.simple("5", &json!({}));
    add(&mut c, "a", 3);
    c.settle();
    scale(&mut c, 9);
    c.api.edit_job("a", |job| job.view.ready = 2);
    c.advance(310);
    assert!(c.api.job("a").view.suspended);
    assert_eq!(c.notes("EvictedDueToPodsReadyTimeout").len(), 1);
}
