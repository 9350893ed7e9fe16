//! Jobs that are stopped after some of their pods have ended.

use serde_json::json;
use sluice_api::job::JobFinished;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

use crate::model::build::job;
use crate::model::{Cluster, condition, reported};

/// Two pods run in a queue of two; one succeeds; the queue drains, and takes jobs again.
fn drained(count: i32, done: i32, min_count: Option<i32>) -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    let mut view = job("team-a", "a", "lq", count, "1");
    view.pod_sets[0].min_count = min_count;
    c.api.add_job(view);
    c.settle();
    assert!(!c.api.job("a").view.suspended, "{}", reported(&c.workload("a"), "QuotaReserved"));
    c.api.edit_job("a", |job| job.view.reclaimable = vec![("main".to_owned(), done)]);
    c.settle();
    stop_queue(&mut c, "HoldAndDrain");
    assert!(c.api.job("a").view.suspended);
    c
}

fn stop_queue(c: &mut Cluster, policy: &str) {
    c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": policy}}));
    c.settle();
}

#[test]
fn a_job_that_completed_some_pods_starts_again_with_the_rest() {
    for (done, restart) in [(1, false), (1, true), (2, false)] {
        let mut c = drained(2, done, None);
        if restart {
            c.restart();
            c.settle();
        }
        stop_queue(&mut c, "None");
        let w = c.workload("a");
        assert_eq!((condition(&w, "Admitted"), reported(&w, "Finished")), ("True".to_owned(), String::new()));
        let assigned = &w.status.unwrap().admission.unwrap().pod_set_assignments[0];
        assert_eq!(assigned.count, Some(2 - done), "only what is left is admitted");
        let job = c.api.job("a");
        assert!(!job.view.suspended, "{done} of 2 done");
        assert_eq!(job.view.pod_sets[0].count, 2, "the job's own number stays");
        if restart {
            c.restart();
            c.settle();
        }
        assert_eq!(c.notes("Stopped").len(), 1, "it continues: {:?}", c.notes("Stopped"));
        c.api.finish_job("a", true);
        c.settle();
        assert_eq!(reported(&c.workload("a"), "Finished"), "True/Succeeded: Job finished");
    }
}

#[test]
fn a_job_that_may_run_with_fewer_pods_gets_its_own_number_back() {
    // Two of four run; one of all its completions is left when it is stopped.
    let mut c = drained(4, 3, Some(1));
    assert_eq!(c.api.job("a").view.pod_sets[0].count, 4, "restored");
    stop_queue(&mut c, "None");
    let w = c.workload("a");
    assert_eq!(w.status.unwrap().admission.unwrap().pod_set_assignments[0].count, Some(1));
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.api.job("a").view.pod_sets[0].count, 1);
    stop_queue(&mut c, "HoldAndDrain");
    assert_eq!(c.api.job("a").view.pod_sets[0].count, 4);
}

#[test]
fn a_job_whose_ended_pods_are_to_run_again_is_admitted_again_for_all_of_them() {
    let mut c = drained(2, 1, None);
    c.slow = Some(sluice_engine::Purpose::StartJob);
    stop_queue(&mut c, "None");
    assert_eq!(c.workload("a").status.unwrap().admission.unwrap().pod_set_assignments[0].count, Some(1));
    // What had succeeded was removed before it was started.
    c.api.edit_job("a", |job| job.view.reclaimable.clear());
    c.release();
    let w = c.workload("a");
    assert_eq!(reported(&w, "Finished"), "", "it is not given up");
    assert_eq!(w.status.unwrap().admission.unwrap().pod_set_assignments[0].count, Some(2));
    assert!(!c.api.job("a").view.suspended);
}

/// How often quota was reserved, and given back.
fn written(c: &Cluster) -> [usize; 2] {
    [Purpose::ReserveQuota, Purpose::ReleaseQuota].map(|purpose| c.written(purpose))
}

/// The job is admitted once, for both of its pods.
fn runs_again_with_both(mut c: Cluster, [reserved, released]: [usize; 2], what: &str) {
    c.release();
    c.advance(5);
    let w = c.workload("a");
    assert_eq!(w.status.unwrap().admission.unwrap().pod_set_assignments[0].count, Some(2), "{what}");
    assert!(!c.api.job("a").view.suspended, "{what}");
    assert_eq!(written(&c), [reserved + 1, released], "{what}");
}

/// Until the status says that none of its pods has ended, the job would be admitted for too few.
#[test]
fn ended_pods_that_are_to_run_again_are_taken_off_the_status_before_the_job_is_admitted() {
    for error in [
        None,
        Some(WriteError::Conflict("409".to_owned())),
        Some(WriteError::Transient("502".to_owned())),
        Some(WriteError::Withdrawn),
    ] {
        let mut c = drained(2, 1, None);
        let before = written(&c);
        match &error {
            Some(error) => c.fail.push_back((Purpose::Reclaim, error.clone())),
            None => c.slow = Some(Purpose::Reclaim),
        }
        c.api.edit_job("a", |job| job.view.reclaimable.clear());
        c.settle();
        stop_queue(&mut c, "None");
        runs_again_with_both(c, before, &format!("{error:?}"));
    }
}

/// It was decided while the status was being corrected, for which the answer is a failure.
#[test]
fn a_job_is_not_admitted_for_the_pods_of_a_status_that_could_not_be_corrected() {
    for error in [WriteError::Conflict("409".to_owned()), WriteError::Transient("502".to_owned())] {
        let mut c = drained(2, 1, None);
        let before = written(&c);
        c.late = Some(Purpose::Reclaim);
        c.fail.push_back((Purpose::Reclaim, error.clone()));
        c.api.edit_job("a", |job| job.view.reclaimable.clear());
        c.settle();
        stop_queue(&mut c, "None");
        assert_eq!(written(&c), before, "the correction is under way");
        runs_again_with_both(c, before, &format!("{error:?}"));
    }
}

/// In a queue of one a job of low priority runs, and one of two pods waits whose status says that one of them has ended. The queue is stopped.
fn before_a_preemption() -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.priority_class("high", 10);
    c.api.add_job(job("team-a", "low", "lq", 1, "1"));
    c.settle();
    stop_queue(&mut c, "Hold");
    let mut high = job("team-a", "high", "lq", 2, "1");
    high.workload_priority_class = Some("high".to_owned());
    high.reclaimable = vec![("main".to_owned(), 1)];
    c.api.add_job(high);
    c.settle();
    assert_eq!(c.workload("high").status.unwrap().reclaimable_pods.len(), 1);
    c
}

#[test]
fn nothing_is_preempted_for_the_pods_of_a_status_that_is_being_corrected() {
    let mut c = before_a_preemption();
    stop_queue(&mut c, "None");
    assert_eq!(c.written(Purpose::Evict), 1, "for one pod there is room");
    for slow in [true, false] {
        let mut c = before_a_preemption();
        if slow {
            c.slow = Some(Purpose::Reclaim);
        } else {
            c.refuse = Some((Purpose::Reclaim, WriteError::Transient("502".to_owned())));
        }
        c.api.edit_job("high", |job| job.view.reclaimable.clear());
        c.settle();
        stop_queue(&mut c, "None");
        c.advance(5);
        assert_eq!(c.written(Purpose::Evict), 0, "slow: {slow}");
        c.refuse = None;
        c.release();
        c.advance(120);
        assert!(c.workload("high").status.unwrap().reclaimable_pods.is_empty());
        assert_eq!(c.written(Purpose::Evict), 0, "two never fit");
        assert!(!c.api.job("low").view.suspended);
    }
}

#[test]
fn a_job_whose_status_is_being_corrected_keeps_its_place_in_a_strict_queue() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({"queueingStrategy": "StrictFIFO"}));
    stop_queue(&mut c, "Hold");
    let mut first = job("team-a", "first", "lq", 2, "1");
    first.reclaimable = vec![("main".to_owned(), 1)];
    c.api.add_job(first);
    c.settle();
    c.api.add_job(job("team-a", "second", "lq", 1, "1"));
    c.settle();
    c.slow = Some(Purpose::Reclaim);
    c.api.edit_job("first", |job| job.view.reclaimable.clear());
    c.settle();
    stop_queue(&mut c, "None");
    c.advance(5);
    assert!(["first", "second"].iter().all(|name| c.api.job(name).view.suspended));
    c.release();
    c.advance(120);
    assert!(!c.api.job("first").view.suspended && c.api.job("second").view.suspended);
}

#[test]
fn a_job_that_is_ending_is_neither_stopped_nor_started() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.edit_job("a", |job| (job.view.active, job.view.ending) = (false, true));
    stop_queue(&mut c, "HoldAndDrain");
    assert!(!c.api.job("a").view.suspended && c.notes("Stopped").is_empty());
    assert_eq!(condition(&c.workload("a"), "Evicted"), "True");
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!(reported(&c.workload("a"), "Finished"), "True/Succeeded: Job finished");
    // One that ended while it was stopped, and is admitted once more.
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    c.api.edit_job("b", |job| job.view.ending = true);
    stop_queue(&mut c, "None");
    assert_eq!(condition(&c.workload("b"), "Admitted"), "True");
    assert!(c.api.job("b").view.suspended);
}

#[test]
fn a_job_that_completed_while_it_was_being_stopped_keeps_no_mark_of_that() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    let stops = |c: &Cluster| c.writes.iter().filter(|(_, purpose)| *purpose == Purpose::StopJob).count();
    assert_eq!(stops(&c), 0);
    c.api.edit_job("a", |job| {
        let view = &mut job.view;
        (view.suspended, view.stopping, view.active, view.ending) = (false, true, false, true);
        view.finished = Some(JobFinished { success: true, message: String::new() });
    });
    c.advance(60);
    assert!(!c.api.job("a").view.stopping);
    assert_eq!((stops(&c), condition(&c.workload("a"), "Finished")), (1, "True".to_owned()));
}

#[test]
fn a_mark_that_cannot_be_taken_off_a_completed_job_holds_no_quota() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    c.refuse = Some((Purpose::StopJob, WriteError::Refused("finished jobs are immutable".to_owned())));
    c.api.edit_job("a", |job| {
        let view = &mut job.view;
        (view.suspended, view.stopping, view.active, view.ending) = (false, true, false, true);
        view.finished = Some(JobFinished { success: true, message: String::new() });
    });
    c.advance(10);
    assert_eq!(condition(&c.workload("a"), "Finished"), "True");
    assert!(c.api.job("a").view.stopping);
    c.refuse = None;
    c.advance(300);
    assert!(!c.api.job("a").view.stopping);
}
