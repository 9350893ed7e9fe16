//! A job whose start the API server refuses holds no quota for good.

use sluice_api::job::JobKind;
use sluice_engine::{Purpose, WriteError};

use crate::model::build::job;
use crate::model::{Cluster, condition, reported};
use crate::pods::runs;
use crate::unadmitted::cluster;

/// A job whose start is refused, and another that waits for its quota.
fn refused(kind: JobKind) -> Cluster {
    let mut c = cluster();
    c.refuse = Some((Purpose::StartJob, WriteError::Refused("denied by policy".to_owned())));
    let mut old = job("team-a", "old", "lq", 1, "1");
    old.job.kind = kind;
    c.api.add_job(old);
    c.settle();
    assert_eq!(condition(&c.workload("old"), "Admitted"), "True");
    c
}

#[test]
fn others_get_the_quota_of_a_job_whose_start_is_refused() {
    for kind in [JobKind::JOB, JobKind::JOB_SET, JobKind::RAY_CLUSTER] {
        let mut c = refused(kind);
        c.advance(14);
        assert_eq!(condition(&c.workload("old"), "QuotaReserved"), "True", "it may have been a moment");
        c.advance(2);
        let old = c.workload("old");
        assert_eq!(
            reported(&old, "Evicted"),
            "True/FailedToStart: The start of the job is refused: denied by policy"
        );
        assert_eq!(condition(&old, "QuotaReserved"), "False");
        c.refuse = None;
        c.api.add_job(job("team-a", "new", "lq", 1, "1"));
        c.settle();
        assert!(runs(&c, "new"), "{kind:?}");
        // Once there is quota again, and nothing refuses it.
        c.api.finish_job("new", true);
        c.advance(60);
        assert!(runs(&c, "old"), "{kind:?}");
    }
}

#[test]
fn a_start_that_stays_refused_is_tried_ever_more_seldom_and_told_once() {
    let mut c = refused(JobKind::JOB);
    c.advance(86_400);
    assert!((10..40).contains(&c.refused), "{}", c.refused);
    assert_eq!(c.notes("FailedUpdate").len(), 1, "{:?}", c.notes("FailedUpdate"));
    assert!(c.notes("EvictedDueToFailedToStart").len() > 5);
}

#[test]
fn a_start_that_is_refused_for_a_moment_goes_on_with_its_quota() {
    let mut c = cluster();
    let refusal = WriteError::Refused("the webhook is not ready".to_owned());
    c.fail.extend([0, 1].map(|_| (Purpose::StartJob, refusal.clone())));
    c.api.add_job(job("team-a", "old", "lq", 1, "1"));
    c.advance(20);
    assert!(runs(&c, "old"));
    assert!(c.notes("EvictedDueToFailedToStart").is_empty());
}

#[test]
fn a_manager_that_restarts_ends_what_it_finds_refused() {
    let mut c = refused(JobKind::JOB_SET);
    c.advance(10);
    c.restart();
    c.advance(16);
    assert_eq!(condition(&c.workload("old"), "QuotaReserved"), "False");
}
