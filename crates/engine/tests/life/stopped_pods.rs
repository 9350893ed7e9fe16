//! A stopped job holds its quota until its pods are gone, also where its controller says before that it has stopped.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::Purpose;

use crate::model::build::job;
use crate::model::{Api, Cluster, condition};
use crate::pods::{evict, runs};
use crate::unadmitted::cluster;

const KINDS: [JobKind; 3] = [JobKind::PYTORCH_JOB, JobKind::MPI_JOB, JobKind::SPARK_APPLICATION];

/// A job of this kind runs, and another waits for its quota.
fn running(kind: JobKind) -> Cluster {
    let mut c = cluster();
    c.config.frameworks.insert(kind);
    c.restart();
    let mut old = job("team-a", "old", "lq", 1, "1");
    old.job.kind = kind;
    c.api.add_job(old);
    c.settle();
    assert!(runs(&c, "old"), "{kind:?}");
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    c.settle();
    c
}

fn uid(c: &Cluster) -> Arc<str> {
    Arc::clone(&c.api.job("old").view.job.uid)
}

fn looks(c: &Cluster) -> usize {
    c.written(Purpose::EndPods)
}

#[test]
fn quota_is_kept_for_pods_that_its_status_no_longer_counts() {
    for kind in KINDS {
        for restarts in [false, true] {
            let mut c = running(kind);
            let old = uid(&c);
            c.api.ending_pods.insert(old);
            evict(&mut c);
            assert!(!c.api.job("old").view.active, "{kind:?}: its controller says that nothing runs");
            if restarts {
                c.restart();
            }
            c.advance(600);
            assert_eq!(condition(&c.workload("old"), "QuotaReserved"), "True", "{kind:?}");
            assert!(!runs(&c, "new"), "{kind:?}");
            c.api.ending_pods.clear();
            c.advance(31);
            assert!(runs(&c, "new"), "{kind:?}");
        }
    }
}

#[test]
fn it_is_kept_so_when_the_workload_is_deleted() {
    for kind in KINDS {
        let mut c = running(kind);
        let (old, workload) = (uid(&c), Api::workload_ref(&c.workload("old")));
        c.api.ending_pods.insert(old);
        c.api.delete(&workload);
        c.advance(600);
        assert!(c.api.json(&workload).is_some() && !runs(&c, "new"), "{kind:?}");
        c.api.ending_pods.clear();
        c.advance(31);
        assert_eq!(u8::from(runs(&c, "old")) + u8::from(runs(&c, "new")), 1, "{kind:?}");
    }
}

#[test]
fn pods_that_take_longer_than_they_may_are_given_less_time() {
    let mut c = running(JobKind::PYTORCH_JOB);
    c.config.longest_termination = Some(SignedDuration::from_mins(10));
    c.restart();
    let old = uid(&c);
    c.api.ending_pods.insert(Arc::clone(&old));
    evict(&mut c);
    c.advance(599);
    assert!(c.api.hurried.is_empty());
    c.advance(31);
    assert!(c.api.hurried.contains(&old));
    let reported = c.notes("StopEnforced");
    assert!(
        reported.iter().any(|note| note.ends_with("did not end in time; they get 30 s to end")),
        "{reported:?}"
    );
}

#[test]
fn a_stop_costs_one_look_where_the_status_does_not_say_when_pods_are_gone() {
    for (kind, wanted) in
        KINDS.map(|kind| (kind, 1)).into_iter().chain([(JobKind::RAY_CLUSTER, 0), (JobKind::JOB, 0)])
    {
        let mut c = running(kind);
        evict(&mut c);
        assert!(runs(&c, "new"), "{kind:?}: without waiting");
        c.advance(3_600);
        assert_eq!(looks(&c), wanted, "{kind:?}");
    }
}

/// What was found of one stop says nothing of the next one.
#[test]
fn each_stop_is_looked_at() {
    let mut c = running(JobKind::PYTORCH_JOB);
    let workload = Api::workload_ref(&c.workload("old"));
    evict(&mut c);
    c.api.delete_job("new");
    c.api.edit(&workload, &json!({"spec": {"active": true}}));
    c.advance(60);
    assert!(runs(&c, "old"));
    let old = uid(&c);
    c.api.ending_pods.insert(old);
    c.api.add_job(job("team-a", "new", "lq", 1, "1"));
    evict(&mut c);
    c.advance(60);
    assert!(!runs(&c, "new"));
    c.api.ending_pods.clear();
    c.advance(31);
    assert!(runs(&c, "new"));
}
