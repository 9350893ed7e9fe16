//! Late watch events and late answers of writes: nothing is done twice, and nothing is lost.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{EngineConfig, Input, Kind, Purpose, WriteError};

use crate::contract::cq;
use crate::model::build::job;
use crate::model::{Cluster, condition};
use crate::pods::runs;
use crate::unadmitted::cluster;

/// A queue that is drained while the API server carries out no stop of its jobs.
fn not_stopped(jobs: usize) -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple(&jobs.to_string(), &json!({}));
    for number in 0..jobs {
        c.api.add_job(job("team-a", &format!("j{number}"), "lq", 1, "1"));
    }
    c.settle();
    c.refuse = Some((Purpose::StopJob, WriteError::Transient("connection refused".to_owned())));
    c.api.edit(&cq(), &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    c
}

#[test]
fn what_failed_while_the_api_server_was_away_is_written_once_it_answers_again() {
    let mut c = not_stopped(50);
    c.advance(200);
    let running = |c: &Cluster| c.api.jobs().filter(|(_, job)| !job.view.suspended).count();
    c.refuse = None;
    c.settle();
    assert_eq!(running(&c), 50, "nothing shows that it is back");
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.settle();
    assert_eq!(running(&c), 0);
}

#[test]
fn what_fails_while_others_are_written_is_not_tried_each_time() {
    let mut c = not_stopped(1);
    c.checked = false;
    for number in 0..360 {
        c.api.add_job(job("team-a", &format!("new-{number}"), "lq", 1, "1"));
        c.advance(10);
    }
    assert!((60..=75).contains(&c.refused), "{} times in an hour", c.refused);
}

/// What is over goes a minute later.
fn retaining() -> Cluster {
    let config = EngineConfig {
        status_interval_ms: 0,
        retention_after_finished_seconds: Some(60),
        retention_after_deactivated_seconds: Some(60),
        ..EngineConfig::default()
    };
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    c.api.simple("3", &json!({}));
    c
}

#[test]
fn a_workload_is_deleted_once_however_late_that_is_seen() {
    let mut c = retaining();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.api.finish_job("a", true);
    c.advance(50);
    c.blind = Some(Kind::Workload);
    c.advance(40);
    assert!(c.api.workloads().is_empty());
    assert_eq!(c.written(Purpose::DeleteWorkload), 1);
    assert_eq!(c.notes("Deleted").len(), 1, "{:?}", c.notes("Deleted"));
    c.blind = None;
    let revision = c.api.revision();
    c.list(Kind::Workload, Vec::new(), revision);
    c.advance(60);
    assert_eq!(c.written(Purpose::DeleteWorkload), 1);
}

/// A job that runs, and is about to be deactivated as it was tried often enough.
fn to_be_deactivated() -> Cluster {
    let mut c = retaining();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = crate::model::Api::workload_ref(&c.workload("a"));
    c.api.edit_status(&workload, |status| {
        let target = json!({"type": "DeactivationTarget", "status": "True", "reason": "RequeuingLimitExceeded",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        status["conditions"].as_array_mut().unwrap().push(target);
    });
    c
}

#[test]
fn a_job_is_deleted_once_however_late_that_is_seen() {
    let mut c = to_be_deactivated();
    c.advance(50);
    assert_eq!(c.api.jobs().count(), 1);
    c.blind = Some(Kind::Job(JobKind::JOB));
    c.advance(40);
    assert_eq!(c.api.jobs().count(), 0);
    assert_eq!(c.written(Purpose::DeleteJob), 1);
    assert_eq!(c.notes("Deleted").len(), 1, "{:?}", c.notes("Deleted"));
}

#[test]
fn a_job_is_stopped_once_its_watch_shows_an_eviction_whose_answer_was_lost() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert!(runs(&c, "a"));
    // The pause before the next try grows.
    for _ in 0..4 {
        c.fail.push_back((Purpose::Evict, WriteError::Transient("overloaded".to_owned())));
    }
    let workload = crate::model::Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.advance(8);
    c.blind = Some(Kind::Workload);
    c.lost = Some(Purpose::Evict);
    c.advance(10);
    assert_eq!(condition(&c.workload("a"), "Evicted"), "True");
    assert!(runs(&c, "a"), "that is not known yet");
    c.blind = None;
    c.api.edit(&workload, &json!({"metadata": {"labels": {"any": "change"}}}));
    c.settle();
    assert!(!runs(&c, "a"));
}

/// The job of a user who deletes it, and makes another one of its name.
#[test]
fn what_was_not_found_any_more_is_not_the_one_that_has_its_name_now() {
    let mut c = cluster();
    c.fail.push_back((Purpose::StartJob, WriteError::NotFound("jobs.batch \"a\" not found".to_owned())));
    c.late = Some(Purpose::StartJob);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    (c.late, c.slow) = (None, Some(Purpose::CreateWorkload));
    c.api.delete_job("a");
    c.settle();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.release();
    assert!(runs(&c, "a"));
}

#[test]
fn a_deletion_of_one_that_is_gone_says_nothing_of_the_one_that_has_its_name_now() {
    let mut c = to_be_deactivated();
    c.late = Some(Purpose::DeleteJob);
    c.advance(70);
    assert_eq!(c.api.jobs().count(), 0);
    c.slow = Some(Purpose::CreateWorkload);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.release();
    assert!(runs(&c, "a"));
}

/// The answer of the write that made it was lost, and its watch lags behind.
#[test]
fn a_workload_that_exists_already_is_taken_in_as_it_is_read() {
    let mut c = cluster();
    c.lost = Some(Purpose::CreateWorkload);
    c.blind = Some(Kind::Workload);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.advance(2);
    assert!(runs(&c, "a"));
    assert_eq!(c.written(Purpose::CreateWorkload), 2);
}

#[test]
fn a_workload_that_was_read_and_is_gone_since_does_not_come_back() {
    let mut c = cluster();
    c.lost = Some(Purpose::CreateWorkload);
    c.late = Some(Purpose::Read);
    c.blind = Some(Kind::Workload);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.advance(2);
    let made = crate::model::Api::workload_ref(&c.workload("a"));
    let object = c.api.seen(&made);
    let uid = c.workload("a").metadata.uid.unwrap();
    c.api.delete_job("a");
    c.settle();
    // Its watch shows both before the answer comes.
    c.silent = true;
    c.engine.apply(c.now, Input::Applied(object));
    c.engine.apply(c.now, Input::Deleted { object: made.clone(), uid: Some(uid.into()) });
    c.settle();
    let writes = c.writes.len();
    c.api.vanish(&made);
    c.release();
    let after: Vec<_> = c.writes[writes..].iter().filter(|(object, _)| *object == made).collect();
    assert!(after.is_empty(), "{after:?}");
}

/// No job is left that could say that its pods are gone: they went with the objects of its kind.
#[test]
fn a_workload_of_a_kind_that_is_not_there_can_be_deleted() {
    let mut c = cluster();
    let mut set = job("team-a", "a", "lq", 1, "1");
    set.job.kind = JobKind::JOB_SET;
    c.api.add_job(set);
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    let workload = crate::model::Api::workload_ref(&c.workload("a"));
    let kind = Kind::Job(JobKind::JOB_SET);
    c.api.vanish(&c.api.job_ref("a"));
    c.api.delete(&workload);
    c.restart_without(&[kind]);
    c.advance(60);
    assert_eq!(c.api.workloads().len(), 1, "it is not known whether there are any");
    c.engine.apply(c.now, Input::Listed { kind, present: Vec::new(), as_of: None });
    c.advance(60);
    assert!(c.api.workloads().is_empty());
}

#[test]
fn a_job_that_has_ended_is_not_preempted_before_that_is_written() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.priority_class("high", 1_000);
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    c.slow = Some(Purpose::Finish);
    c.api.finish_job("a", true);
    c.settle();
    let mut high = job("team-a", "b", "lq", 1, "1");
    high.workload_priority_class = Some("high".to_owned());
    c.api.add_job(high);
    c.settle();
    c.release();
    let w = c.workload("a");
    assert_eq!((condition(&w, "Finished").as_str(), condition(&w, "Evicted").as_str()), ("True", ""));
    assert!(c.notes("Preempted").is_empty() && runs(&c, "b"));
}
