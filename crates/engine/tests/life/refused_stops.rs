//! A job whose stop the API server refuses is suspended all the same.

use serde_json::json;
use sluice_api::job::{JobKind, JobView};
use sluice_engine::{EngineConfig, Purpose, WriteError};

use crate::model::build::{job, made_by};
use crate::model::{Cluster, condition};
use crate::unadmitted::{cluster, halts, running};

/// The name of the Job of a JobSet.
const PART: &str = "set-main-0";

fn refusal() -> WriteError {
    WriteError::Refused("metadata.annotations: Too long: may not be more than 262144 bytes".to_owned())
}

fn sent(c: &Cluster, wanted: Purpose) -> usize {
    c.writes.iter().filter(|(_, purpose)| *purpose == wanted).count()
}

#[test]
fn a_job_that_its_user_lets_run_is_suspended_if_what_belongs_to_a_stop_is_refused() {
    let mut c = cluster();
    c.refuse = Some((Purpose::StopJob, refusal()));
    // More than there is.
    running(&mut c, job("team-a", "a", "lq", 2, "1"));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!((sent(&c, Purpose::StopJob), sent(&c, Purpose::SuspendJob)), (1, 1), "at once");
    for again in 2..5 {
        c.api.edit_job("a", |job| (job.view.suspended, job.view.active) = (false, true));
        c.settle();
        assert!(c.api.job("a").view.suspended);
        assert_eq!((sent(&c, Purpose::StopJob), sent(&c, Purpose::SuspendJob)), (1, again));
    }
}

#[test]
fn a_victim_whose_stop_is_refused_gives_its_quota_back() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    c.refuse = Some((Purpose::StopJob, refusal()));
    let workload = crate::model::Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert!(condition(&c.workload("a"), "QuotaReserved").starts_with("False"));
    // Once it was started again, its stop is a whole one.
    c.refuse = None;
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.settle();
    assert!(!c.api.job("a").view.suspended);
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    assert!(c.api.job("a").view.suspended);
    assert_eq!((sent(&c, Purpose::StopJob), sent(&c, Purpose::SuspendJob)), (2, 1));
}

/// A JobSet that may not run, and the Job that its controller made.
fn with_part() -> (Cluster, JobView) {
    let mut c = cluster();
    let mut set = job("team-a", "set", "lq", 2, "1");
    set.job.kind = JobKind::JOB_SET;
    set.pod_sets[0].parts = 2;
    c.api.add_job(set);
    c.settle();
    let mut part = job("team-a", PART, "", 1, "1");
    part.controller = Some(made_by(&c.api.job("set").view));
    (c, part)
}

fn is_there(c: &Cluster) -> bool {
    c.api.jobs().any(|(job, _)| *job.name == *PART)
}

#[test]
fn a_job_that_another_one_made_and_that_cannot_be_suspended_is_deleted() {
    // More than there is, and a user who lets run what takes the place of one of its Jobs.
    for is_stopped in [false, true] {
        let (mut c, part) = with_part();
        if !is_stopped {
            c.api.edit_job("set", |job| (job.view.suspended, job.started_by_user) = (false, true));
        }
        c.refuse = Some((Purpose::SuspendJob, refusal()));
        running(&mut c, part);
        c.advance(60);
        assert!(!is_there(&c), "{is_stopped}");
        let reported =
            "Job/set-main-0: Job \"set-main-0\" may not run and cannot be suspended, so it was deleted";
        assert_eq!(c.notes("StopEnforced"), [reported]);
    }
}

/// Owner references are written by users, too.
#[test]
fn what_only_claims_to_be_a_part_is_never_deleted() {
    let forged: [fn(&mut JobView); 5] = [
        // None that the JobSet makes.
        |part| part.job.name = "mine".into(),
        |part| part.job.name = "set-main-2".into(),
        // Not the JobSet, but with its UID.
        |part| part.controller.as_mut().unwrap().name = "other".to_owned(),
        |part| part.controller.as_mut().unwrap().kind = "RayJob".to_owned(),
        // It makes none in other namespaces.
        |part| part.job.namespace = "team-b".into(),
    ];
    for (at, forge) in forged.into_iter().enumerate() {
        let (mut c, mut part) = with_part();
        c.api.namespace("team-b", &[]);
        forge(&mut part);
        let name = part.job.name.clone();
        c.refuse = Some((Purpose::SuspendJob, refusal()));
        running(&mut c, part);
        c.advance(600);
        assert!(c.api.jobs().any(|(job, _)| job.name == name), "{at}");
        assert_eq!(sent(&c, Purpose::DeleteChild), 0, "{at}");
        assert_eq!(c.notes("StopEnforced"), [""; 0], "{at}");
    }
}

#[test]
fn an_api_server_that_refuses_for_a_moment_costs_no_part_its_life() {
    let (mut c, part) = with_part();
    running(&mut c, part);
    for _ in 0..3 {
        // As one that has just started does.
        c.fail.extend([(Purpose::SuspendJob, refusal()), (Purpose::SuspendJob, refusal())]);
        c.advance(60);
        assert!(c.fail.is_empty() && c.api.job(PART).view.suspended);
        c.api.edit_job(PART, |job| (job.view.suspended, job.view.active) = (false, true));
    }
    c.settle();
    assert!(c.api.job(PART).view.suspended);
    assert_eq!(sent(&c, Purpose::DeleteChild), 0);
}

#[test]
fn a_part_that_could_not_be_deleted_either_is_suspended_when_that_is_allowed_again() {
    let (mut c, part) = with_part();
    c.refuse = Some((Purpose::SuspendJob, refusal()));
    c.fail.push_back((Purpose::DeleteChild, refusal()));
    running(&mut c, part);
    c.advance(60);
    assert_eq!((sent(&c, Purpose::DeleteChild), is_there(&c)), (1, true));
    c.refuse = None;
    c.advance(300);
    assert!(c.api.job(PART).view.suspended);
    assert_eq!(sent(&c, Purpose::DeleteChild), 1);
}

#[test]
fn a_part_that_its_maker_makes_again_as_it_was_is_deleted_less_and_less_often() {
    let (mut c, part) = with_part();
    c.refuse = Some((Purpose::SuspendJob, refusal()));
    // Two at first: neither waits for the other.
    let mut other = part.clone();
    other.job.name = "set-main-1".into();
    running(&mut c, part.clone());
    running(&mut c, other);
    c.advance(60);
    assert_eq!(sent(&c, Purpose::DeleteChild), 2);
    for _ in 0..3_600 {
        if !is_there(&c) {
            running(&mut c, part.clone());
        }
        c.advance(1);
    }
    let deleted = sent(&c, Purpose::DeleteChild);
    assert!((8..30).contains(&deleted), "{deleted}");
}

/// A job of four pods that was admitted with two, and whose stop has begun when its Workload is deactivated. Another one waits for its quota.
fn half_stopped() -> Cluster {
    let mut c = Cluster::new(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    c.api.namespace("team-a", &[]);
    c.api.simple("2", &json!({}));
    let mut view = job("team-a", "a", "lq", 4, "1");
    view.pod_sets[0].min_count = Some(2);
    c.api.add_job(view);
    c.settle();
    c.api.add_job(job("team-a", "b", "lq", 2, "1"));
    c.settle();
    assert_eq!(c.api.job("a").view.pod_sets[0].count, 2);
    assert!(c.api.job("b").view.suspended);
    c.api.edit_job("a", |job| job.view.stopping = true);
    let workload = crate::model::Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c
}

#[test]
fn the_end_of_a_stop_that_is_refused_leaves_out_what_may_be_impossible_and_holds_no_quota() {
    let refusal = || WriteError::Refused("spec.completions: Invalid value: 4: field is immutable".to_owned());
    // An API server that refuses for a moment costs a job nothing.
    for refused in [2, 3, 4] {
        let mut c = half_stopped();
        c.fail.extend((0..refused).map(|_| (Purpose::StopJob, refusal())));
        c.advance(30);
        let (a, b) = (&c.api.job("a").view, &c.api.job("b").view);
        assert!(a.suspended && !a.stopping && !b.suspended, "{refused}");
        let restored = a.pod_sets[0].scheduling.node_selector.is_empty();
        let count = if refused < 3 { 4 } else { 2 };
        assert_eq!((a.pod_sets[0].count, restored), (count, refused < 4), "{refused}");
        assert_eq!(sent(&c, Purpose::StopJob), refused + usize::from(refused < 4), "{refused}");
        assert_eq!(sent(&c, Purpose::SuspendJob), usize::from(refused == 4), "{refused}");
    }
}

#[test]
fn what_is_refused_whole_and_in_part_is_tried_again_later_and_later() {
    let mut c = cluster();
    c.fail.extend((0..100).flat_map(|_| [Purpose::StopJob, Purpose::SuspendJob]).map(|p| (p, refusal())));
    running(&mut c, job("team-a", "a", "lq", 2, "1"));
    c.advance(3_600);
    assert!((5..30).contains(&halts(&c, "a")), "{}", halts(&c, "a"));
    let reported = c.notes("FailedUpdate");
    assert!(reported.len() == 1 && reported[0].contains("may not be more than 262144 bytes"), "{reported:?}");
    c.fail.clear();
    c.advance(300);
    assert!(c.api.job("a").view.suspended);
}
