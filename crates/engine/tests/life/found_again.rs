//! A Workload that lost its owner reference is matched with its job again.

use serde_json::json;
use sluice_engine::{ObjectRef, Purpose};

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

fn cluster() -> Cluster {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    c
}

fn lose_owner(c: &mut Cluster, job: &str) -> ObjectRef {
    let workload = Api::workload_ref(&c.workload(job));
    c.api.edit(&workload, &json!({"metadata": {"ownerReferences": null}}));
    workload
}

#[test]
fn a_workload_that_waits_runs_or_has_finished_finds_back() {
    for admitted in [false, true] {
        let mut c = cluster();
        c.api.add_job(job("team-a", "a", "lq", if admitted { 1 } else { 2 }, "1"));
        c.settle();
        let before = c.workload("a");
        lose_owner(&mut c, "a");
        c.settle();
        let after = c.workload("a");
        assert_eq!(after.metadata.uid, before.metadata.uid, "it is the same");
        assert_eq!(reported(&after, "Finished"), "");
        assert_eq!(c.notes("OwnerReferencesAdded"), ["Workload/job-a: Added 1 owner reference(s)"]);
        assert_eq!(c.api.job("a").view.suspended, !admitted);
        assert_eq!(c.written(Purpose::StopJob), 0, "what runs continues");
        if admitted {
            c.api.finish_job("a", true);
            c.settle();
            lose_owner(&mut c, "a");
            c.settle();
            assert_eq!(condition(&c.workload("a"), "Finished"), "True");
        }
    }
}

#[test]
fn a_workload_that_was_given_up_makes_room_for_another() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    let workload = lose_owner(&mut c, "a");
    let old = c.api.json(&workload).unwrap()["metadata"]["uid"].clone();
    c.api.edit_status(&workload, |status| {
        status["conditions"] = json!([{"type": "Finished", "status": "True", "reason": "OwnerNotFound", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        status["admission"] = json!(null);
    });
    c.settle();
    let w = c.workload("a");
    assert_ne!(json!(w.metadata.uid), old);
    assert_eq!(condition(&w, "Admitted"), "True");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_workload_of_another_job_is_not_taken() {
    let mut c = cluster();
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(
        &workload,
        &json!({"metadata": {"ownerReferences": null, "labels": {"kueue.x-k8s.io/job-uid": "other"}}}),
    );
    c.settle();
    assert_eq!(c.api.json(&workload).unwrap()["metadata"].get("ownerReferences"), None);
}
