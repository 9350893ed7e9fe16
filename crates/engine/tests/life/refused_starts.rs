//! A job whose start the API server refuses holds no quota for good.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, Purpose, WriteError};

use crate::gathered_pods::{make, with_set};
use crate::model::build::job;
use crate::model::pods::pod;
use crate::model::{Cluster, condition, reported};
use crate::plain_pods::bed;
use crate::pod_groups::{add, free, run, workload};
use crate::pods::runs;
use crate::unadmitted::cluster;
use crate::{elastic, elastic_topology, topology_pods};

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
fn a_start_that_stays_refused_is_tried_less_and_less_often_and_reported_once() {
    let mut c = refused(JobKind::JOB);
    c.advance(86_400);
    assert!((10..40).contains(&c.refused), "{}", c.refused);
    assert_eq!(c.notes("FailedUpdate").len(), 1, "{:?}", c.notes("FailedUpdate"));
    assert!(c.notes("EvictedDueToFailedToStart").len() > 5);
}

#[test]
fn a_start_that_is_refused_for_a_moment_continues_with_its_quota() {
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

fn refusal() -> WriteError {
    WriteError::Refused("denied by policy".to_owned())
}

/// The only Workload gives its quota back 15 s after the first refusal, to others, and gets it again once nothing refuses its pods.
fn gives_its_quota_back(c: &mut Cluster, pods: &[&str]) {
    is_evicted(c);
    assert_eq!(c.notes("FailedUpdate").len(), pods.len(), "{:?}", c.notes("FailedUpdate"));
    c.refuse = None;
    c.api.add_pod(pod("other", "lq", "1"));
    c.settle();
    assert!(c.api.is_free("other"));
    c.api.delete_queued_pod("other");
    c.advance(60);
}

#[test]
fn others_get_the_quota_of_a_pod_whose_start_is_refused() {
    let mut c = bed("1");
    c.refuse = Some((Purpose::StartJob, refusal()));
    c.api.add_pod(pod("p", "lq", "1"));
    c.settle();
    gives_its_quota_back(&mut c, &["p"]);
    assert!(c.api.is_free("p"));
}

#[test]
fn others_get_the_quota_of_a_group_whose_start_is_refused() {
    let mut c = bed("2");
    c.refuse = Some((Purpose::StartJob, refusal()));
    add(&mut c, "p", 2, 2);
    gives_its_quota_back(&mut c, &["p0", "p1"]);
    assert!(c.api.is_free("p0") && c.api.is_free("p1"));
}

#[test]
fn others_get_the_quota_of_a_stateful_set_whose_pods_are_refused() {
    let (mut c, uid) = with_set("2", 2);
    c.refuse = Some((Purpose::StartJob, refusal()));
    make(&mut c, &uid, 0..2);
    gives_its_quota_back(&mut c, &["web-0", "web-1"]);
    assert!(c.api.is_free("web-0") && c.api.is_free("web-1"));
}

/// A part of a group is of no use.
#[test]
fn a_group_of_which_one_runs_and_one_is_refused_gives_its_quota_back() {
    let mut c = bed("2");
    c.fail.push_back((Purpose::StartJob, refusal()));
    add(&mut c, "p", 2, 2);
    assert_eq!(free(&c).len(), 1);
    run(&mut c, "Running");
    c.refuse = Some((Purpose::StartJob, refusal()));
    c.advance(17);
    let evicted = workload(&c);
    assert!(reported(&evicted, "Evicted").starts_with("True/FailedToStart"));
    assert_eq!(condition(&evicted, "QuotaReserved"), "False");
    assert!(free(&c).is_empty());
}

#[test]
fn an_elastic_job_of_which_no_pod_may_go_gives_its_quota_back_and_one_that_runs_with_fewer_continues() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.refuse = Some((Purpose::UngatePod, refusal()));
    elastic::add(&mut c, "a", 3);
    c.advance(14);
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");
    c.advance(3);
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/FailedToStart"));
    assert!(c.api.job("a").view.suspended);

    let mut c = elastic::running("5", &json!({}));
    c.refuse = Some((Purpose::UngatePod, refusal()));
    elastic::scale(&mut c, 5);
    c.advance(60);
    assert!(c.refused > 3 && !c.api.job("a").view.suspended);
}

/// The only Workload is evicted 15 s after the first refusal.
fn is_evicted(c: &mut Cluster) {
    c.advance(14);
    assert_eq!(condition(&workload(c), "QuotaReserved"), "True", "it may have been a moment");
    c.advance(3);
    let evicted = workload(c);
    assert_eq!(
        reported(&evicted, "Evicted"),
        "True/FailedToStart: The start of the job is refused: denied by policy"
    );
    assert_eq!(condition(&evicted, "QuotaReserved"), "False");
}

#[test]
fn others_get_the_quota_of_a_job_whose_pods_are_refused_their_places() {
    for running in [0, 1] {
        let mut c = topology_pods::placed(2, &[("n1", 2)]);
        for pod in 0..running {
            topology_pods::add(&mut c, &format!("p{pod}"), None);
        }
        c.settle();
        c.refuse = Some((Purpose::UngatePod, refusal()));
        for pod in running..2 {
            topology_pods::add(&mut c, &format!("p{pod}"), None);
        }
        is_evicted(&mut c);
        assert!(c.api.job("a").view.suspended, "a part of its pods is of no use");
    }
}

#[test]
fn others_get_the_quota_of_a_group_whose_pods_are_refused_their_places() {
    let mut c = bed("2");
    add(&mut c, "p", 2, 2);
    assert_eq!(free(&c), ["p0", "p1"], "no more than their places hold them");
    let group = crate::model::Api::workload_ref(&workload(&c));
    c.api.edit_status(&group, |status| {
        let assignment = topology_pods::nodes(&[("n1", 2)]);
        status["admission"]["podSetAssignments"][0]["topologyAssignment"] = assignment;
    });
    c.settle();
    c.refuse = Some((Purpose::UngatePod, refusal()));
    for name in ["p0", "p1"] {
        let mut pod = c.api.pod(name).unwrap().clone();
        pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = json!("g");
        pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("main");
        pod["spec"]["schedulingGates"] = json!([{"name": elastic_topology::PLACE}]);
        c.api.put(Kind::JobPod, pod);
    }
    c.settle();
    is_evicted(&mut c);
    assert!(free(&c).is_empty());
}

/// Its first gate was taken off before the API server began to refuse.
#[test]
fn others_get_the_quota_of_an_elastic_job_whose_pods_are_refused_their_places() {
    let mut c = elastic_topology::started(true);
    c.refuse = Some((Purpose::UngatePod, refusal()));
    elastic_topology::make(&mut c, 1);
    let gates = json!({"spec": {"schedulingGates": [{"name": elastic_topology::PLACE}]}});
    c.api.edit(&elastic_topology::pod_ref(Kind::JobPod, 0), &gates);
    c.advance(20);
    assert!(reported(&c.workload("a"), "Evicted").starts_with("True/FailedToStart"));
    assert!(c.api.job("a").view.suspended);
}

#[test]
fn failures_that_pass_by_themselves_are_no_refusals() {
    let mut c = cluster();
    let errors = [
        WriteError::Conflict("meanwhile".to_owned()),
        WriteError::Transient("busy".to_owned()),
        refusal(),
        refusal(),
    ];
    c.fail.extend(errors.map(|error| (Purpose::StartJob, error)));
    c.api.add_job(job("team-a", "old", "lq", 1, "1"));
    c.advance(120);
    assert!(runs(&c, "old"));
    assert!(c.notes("EvictedDueToFailedToStart").is_empty());
}
