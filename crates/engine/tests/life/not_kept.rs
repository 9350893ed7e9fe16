//! The API server may accept a write and not store it: the schema of a kind prunes the field, or a policy reverts it.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::Purpose;

use crate::model::build::job;
use crate::model::pods::pod;
use crate::model::{Api, Cluster, condition, reported};
use crate::plain_pods::bed;
use crate::pods::runs;
use crate::unadmitted::cluster;

/// The writes that were to start or stop something.
fn sent(c: &Cluster) -> usize {
    [Purpose::StartJob, Purpose::StopJob, Purpose::SuspendJob].map(|purpose| c.written(purpose)).iter().sum()
}

#[test]
fn a_start_that_is_not_kept_is_one_that_is_refused() {
    for kind in [JobKind::JOB, JobKind::RAY_CLUSTER] {
        let mut c = cluster();
        c.api.keeps_no_starts_and_stops = true;
        let mut view = job("team-a", "a", "lq", 1, "1");
        view.job.kind = kind;
        c.api.add_job(view);
        c.advance(16);
        assert_eq!(
            reported(&c.workload("a"), "Evicted"),
            "True/FailedToStart: The start of the job is refused: the API server accepted the write but did not store it: it is still suspended"
        );
        c.advance(44);
        assert!(sent(&c) < 10, "{}", sent(&c));
        let warnings = c.notes("FailedUpdate");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(c.notes("Started").is_empty());
        c.api.keeps_no_starts_and_stops = false;
        c.advance(120);
        assert!(runs(&c, "a"));
        assert_eq!(c.notes("Started").len(), 1);
    }
}

#[test]
fn a_stop_that_is_not_kept_is_tried_less_and_less_often_and_reported_once() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let before = sent(&c);
    c.api.keeps_no_starts_and_stops = true;
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.advance(60);
    let tried = sent(&c) - before;
    assert!((2..10).contains(&tried), "{tried}");
    let warnings = c.notes("FailedUpdate");
    assert_eq!(
        warnings,
        [
            "Job/a: Error updating Job \"a\": refused: the API server accepted the write but did not store it: it is not suspended"
        ]
    );
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True", "it runs");
    assert!(c.notes("Stopped").is_empty());
    c.api.keeps_no_starts_and_stops = false;
    c.advance(300);
    assert!(c.api.job("a").view.suspended);
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
}

#[test]
fn a_pod_that_keeps_its_gate_is_one_whose_start_is_refused() {
    let mut c = bed("1");
    c.api.keeps_no_starts_and_stops = true;
    c.api.add_pod(pod("p", "lq", "1"));
    c.advance(60);
    assert!(sent(&c) < 10, "{}", sent(&c));
    assert_eq!(c.notes("FailedUpdate").len(), 1, "{:?}", c.notes("FailedUpdate"));
    c.api.keeps_no_starts_and_stops = false;
    c.advance(300);
    assert!(c.api.is_free("p"));
}
